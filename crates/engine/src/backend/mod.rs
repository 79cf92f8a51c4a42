//! Volumes and what holds their bytes: memory, or a file or block device.
//!
//! A volume is opened and checked on the thread that asks for it. So everything that can be wrong is said before any
//! front end is served, and slow file systems do not hold up an engine. Then the engine takes it over.

mod compressed;
mod encrypted;
mod file;
mod memory;

pub use compressed::COMPRESSION_LEVELS;
#[doc(hidden)]
pub use compressed::CompressedMemory;
pub(crate) use compressed::{Compressing, Damaged, NotCompressed, PAGE_BYTES};
pub use encrypted::{Encryption, KEY_BYTES, KEY_OPENED, KeyError, SECTOR_BYTES, SectorCipher, check_key};
pub(crate) use file::{FileBackend, FileStep, Progress};
pub(crate) use memory::MemoryBackend;

use crate::submission::VolumeBytes;
use plimsoll_core::ByteCount;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Smallest block that volumes advertise, bytes: what every disk and file system can do.
pub const BLOCK_BYTES_MIN: u32 = 512;

/// Where a volume's bytes are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In memory, lost at the end.
    Memory {
        /// Bytes.
        size_bytes: u64,
    },
    /// In memory, compressed and with checksums, lost at the end. Its blocks are of 4 KiB.
    CompressedMemory {
        /// Bytes, a multiple of 4096.
        size_bytes: u64,
        /// zstd's, one of [`COMPRESSION_LEVELS`]: higher ones take less memory and more of a processor.
        level: u8,
    },
    /// In a regular file or on a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// Bytes to use of it; `None` for all that there are.
        size_bytes: Option<u64>,
        /// Whether to make a sparse file of `size_bytes` if there is none.
        creates: bool,
        /// How what it holds is encrypted; `None`: it is not.
        encryption: Option<Encryption>,
    },
}

impl Backing {
    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Backing::File { encryption: Some(_), .. })
    }

    /// Whether it is lost at the end.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Backing::Memory { .. } | Backing::CompressedMemory { .. })
    }
}

/// What a volume should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeConfig {
    /// What people call it; unique on its device.
    pub name: String,
    /// Path of the pool that its sessions open in.
    pub pool: String,
    /// Where its bytes are kept.
    pub backing: Backing,
    /// Its first byte on the device, for schedulers and device models, which go by place.
    pub start_bytes: u64,
    /// No front end may write.
    pub is_read_only: bool,
}

/// Why a volume cannot be served.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// The system refused something.
    #[error("volume {volume}: cannot {action} {}: {source}", path.display())]
    System {
        /// The volume.
        volume: String,
        /// What was tried.
        action: &'static str,
        /// The backing file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no such file, and none may be made.
    #[error("volume {volume}: there is no {}; create it, or allow the volume to do so with a size", path.display())]
    Missing {
        /// The volume.
        volume: String,
        /// The backing file.
        path: PathBuf,
    },
    /// A key that is not used.
    #[error("volume {volume}: key file {}: {source}", path.display())]
    Key {
        /// The volume.
        volume: String,
        /// The key's file.
        path: PathBuf,
        /// Why not.
        source: KeyError,
    },
    /// Neither a regular file nor a block device.
    #[error("volume {volume}: {} is neither a regular file nor a block device", path.display())]
    Kind {
        /// The volume.
        volume: String,
        /// What should be its backing file.
        path: PathBuf,
    },
    /// Another daemon serves it.
    #[error("volume {volume}: {} is {by}", path.display())]
    Locked {
        /// The volume.
        volume: String,
        /// The backing file.
        path: PathBuf,
        /// Which process has it, in words.
        by: String,
    },
    /// Something else than Plimsoll writes to it, or would be written below.
    #[error("volume {volume}: {} is in use: {by}", path.display())]
    InUse {
        /// The volume.
        volume: String,
        /// The backing file.
        path: PathBuf,
        /// What uses it.
        by: String,
    },
    /// A block device that takes no writes, and a volume that is to take them.
    #[error("volume {volume}: {} is a read-only block device, allowed one that takes writes, or read_only = true", path.display())]
    ReadOnlyDevice {
        /// The volume.
        volume: String,
        /// The block device.
        path: PathBuf,
    },
    /// Smaller than it should be.
    #[error(
        "volume {volume}: {} has {}, which is less than the volume's {}", path.display(),
        ByteCount(*.got_bytes).beside(ByteCount(*.expected_bytes)), ByteCount(*.expected_bytes).beside(ByteCount(*.got_bytes))
    )]
    TooSmall {
        /// The volume.
        volume: String,
        /// The backing file.
        path: PathBuf,
        /// Bytes that it has.
        got_bytes: u64,
        /// Bytes that the volume should have.
        expected_bytes: u64,
    },
    /// A size that cannot be served.
    #[error(
        "volume {volume}: a size of {size_bytes} bytes is out of range, allowed are multiples of {block_bytes} from {block_bytes} to 2^62"
    )]
    Size {
        /// The volume.
        volume: String,
        /// What it would have.
        size_bytes: u64,
        /// What its blocks have.
        block_bytes: u32,
    },
}

/// A volume that was opened and checked.
pub struct Volume {
    config: VolumeConfig,
    info: VolumeInfo,
    pub(crate) backend: Backend,
}

/// What a front end may know of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// What people call it.
    pub name: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of this many bytes: a power of two, at least [`BLOCK_BYTES_MIN`].
    pub block_bytes: u32,
    /// No front end may write.
    pub is_read_only: bool,
}

pub(crate) enum Backend {
    Memory(MemoryBackend),
    Compressed(Arc<CompressedMemory>),
    File(FileBackend),
}

impl Volume {
    /// Address of bytes of a volume in memory; `None` if the volume does not keep them as they are.
    pub(crate) fn bytes_in_memory(&self, offset: u64, length: u32) -> Option<VolumeBytes> {
        match &self.backend {
            Backend::Memory(memory) => Some(memory.bytes(offset, length)),
            Backend::File(_) | Backend::Compressed(_) => None,
        }
    }

    /// Opens what `config` asks for and checks that it can be served.
    ///
    /// # Errors
    /// Everything that [`VolumeError`] names.
    pub fn open(config: VolumeConfig) -> Result<Volume, VolumeError> {
        let no_memory = |source| {
            let (volume, action, path) = (config.name.clone(), "reserve memory for", "memory".into());
            VolumeError::System { volume, action, path, source }
        };
        let (backend, size_bytes, block_bytes) = match &config.backing {
            Backing::Memory { size_bytes } => {
                check_size(&config, *size_bytes, BLOCK_BYTES_MIN)?;
                let backend = MemoryBackend::new(*size_bytes).map_err(no_memory)?;
                (Backend::Memory(backend), *size_bytes, BLOCK_BYTES_MIN)
            }
            Backing::CompressedMemory { size_bytes, level } => {
                check_size(&config, *size_bytes, PAGE_BYTES as u32)?;
                let memory = Arc::new(
                    CompressedMemory::new(*size_bytes, *level)
                        .map_err(|_| no_memory(std::io::ErrorKind::OutOfMemory.into()))?,
                );
                (Backend::Compressed(memory), *size_bytes, PAGE_BYTES as u32)
            }
            Backing::File { path, size_bytes, creates, encryption } => {
                // Before a file is made.
                let key = encryption.as_ref().map(|encryption| encryption.key(&config)).transpose()?;
                let mut opened = file::open(&config, path, *size_bytes, *creates)?;
                if let (Some(encryption), Some(key)) = (encryption, key) {
                    let cipher = encryption.cipher(&config, &opened.backend.file, &key)?;
                    opened.backend.cipher = Some(Arc::new(cipher));
                }
                (Backend::File(opened.backend), opened.size_bytes, opened.block_bytes)
            }
        };
        let info = VolumeInfo { name: config.name.clone(), size_bytes, block_bytes, is_read_only: config.is_read_only };
        Ok(Volume { config, info, backend })
    }

    /// Takes the memory of a volume in memory now. Otherwise pages come with their first write, which on a virtual
    /// machine may wait for the host and then, on an emulated device, comes late.
    pub fn populate(&mut self) {
        if let Backend::Memory(memory) = &mut self.backend {
            memory.populate();
        }
    }

    fn compressed(&self) -> Option<&CompressedMemory> {
        match &self.backend {
            Backend::Compressed(memory) => Some(memory),
            Backend::Memory(_) | Backend::File(_) => None,
        }
    }

    /// Its pages, where it is compressed: tests of other crates hold some of them.
    #[doc(hidden)]
    pub fn pages(&self) -> Option<Arc<CompressedMemory>> {
        match &self.backend {
            Backend::Compressed(memory) => Some(memory.clone()),
            Backend::Memory(_) | Backend::File(_) => None,
        }
    }

    /// Bytes that its content takes, where it is compressed.
    pub fn stored_bytes(&self) -> Option<u64> {
        self.compressed().map(CompressedMemory::stored_bytes)
    }

    /// Bytes that were written and are not compressed yet, where it is compressed.
    pub fn backlog_bytes(&self) -> Option<u64> {
        self.compressed().map(CompressedMemory::backlog_bytes)
    }

    /// Bytes that were compressed after their writes were answered, where it is compressed.
    pub fn compressed_behind_bytes(&self) -> Option<u64> {
        self.compressed().map(CompressedMemory::compressed_behind_bytes)
    }

    /// Bytes that clients' writes compressed before they were answered, where it is compressed.
    pub fn compressed_by_writers_bytes(&self) -> Option<u64> {
        self.compressed().map(CompressedMemory::compressed_by_writers_bytes)
    }

    /// What was asked for.
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// What came of it.
    pub fn info(&self) -> &VolumeInfo {
        &self.info
    }
}

fn check_size(config: &VolumeConfig, size_bytes: u64, block_bytes: u32) -> Result<(), VolumeError> {
    let is_whole = size_bytes.is_multiple_of(u64::from(block_bytes));
    match is_whole && (1..=1 << 62).contains(&size_bytes) {
        true => Ok(()),
        false => Err(VolumeError::Size { volume: config.name.clone(), size_bytes, block_bytes }),
    }
}
