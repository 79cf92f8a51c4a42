//! The fast device of a cache: a block device or a regular file, opened with O_DIRECT where that can be, and locked.

use super::{CacheError, CacheSettings};
use crate::backend::lock_patiently;
use io_uring::{opcode, squeue, types};
use plimsoll_cache::store::{Action, BLOCK_BYTES, Blocks, Operation};
use rustix::fs::{FlockOperation, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes that are read or written by one call: 1 MiB.
const CALL_BYTES_MAX: usize = 1 << 20;

/// An open device. Clones are of the same one, which is closed and unlocked with the last.
#[derive(Clone)]
pub(crate) struct CacheDevice {
    file: Arc<File>,
    bytes: u64,
    cache: String,
    path: PathBuf,
}

impl CacheDevice {
    /// Opens the device of `settings`; `creates` a file of the size that they say, if there is none.
    pub(super) fn open(settings: &CacheSettings, creates: bool) -> Result<CacheDevice, CacheError> {
        let CacheSettings { name, path, size_bytes, .. } = settings;
        CacheDevice::open_sized(name, path, size_bytes.filter(|_| creates))
    }

    /// Opens what is at `path`.
    pub(super) fn open_existing(name: &str, path: &Path) -> Result<CacheDevice, CacheError> {
        CacheDevice::open_sized(name, path, None)
    }

    /// Opens what is at `path`, or makes a file of that size there, or makes it as long.
    fn open_sized(name: &str, path: &Path, size_bytes: Option<u64>) -> Result<CacheDevice, CacheError> {
        let system = |action: &'static str| {
            move |source| CacheError::System { cache: name.to_owned(), action, path: path.to_owned(), source }
        };
        let is_made = size_bytes.is_some() && !path.exists();
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(is_made).mode(0o600);
            options.custom_flags(flags.bits() as i32).open(path)
        };
        let file = match open(OFlags::DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::info!(cache = name, "no O_DIRECT on this file system: the page cache is used");
                open(OFlags::empty())
            }
            opened => opened,
        };
        let mut file = file.map_err(system("open"))?;
        lock_patiently(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => CacheError::Locked { cache: name.to_owned(), path: path.to_owned() },
            errno => system("lock")(errno.into()),
        })?;
        let is_file = file.metadata().map_err(system("look at"))?.is_file();
        let has_bytes = file.seek(SeekFrom::End(0)).map_err(system("measure"))?;
        if let Some(size_bytes) = size_bytes
            && is_file
            && has_bytes < size_bytes
        {
            file.set_len(size_bytes).map_err(system("give its size to"))?;
        }
        let bytes = file.seek(SeekFrom::End(0)).map_err(system("measure"))?;
        Ok(CacheDevice { file: Arc::new(file), bytes, cache: name.to_owned(), path: path.to_owned() })
    }

    /// Bytes of what is at `path`, 0 if nothing is, and whether it could be made longer: a file can.
    pub(super) fn measure(path: &Path) -> io::Result<(u64, bool)> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => {
                Ok((File::open(path)?.seek(SeekFrom::End(0))?, false))
            }
            Ok(metadata) => Ok((metadata.len(), true)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, true)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn system(&self, action: &'static str) -> impl Fn(io::Error) -> CacheError + use<> {
        let (cache, path) = (self.cache.clone(), self.path.clone());
        move |source| CacheError::System { cache: cache.clone(), action, path: path.clone(), source }
    }

    /// The ring operation for `operation`, whose bytes are at `data`.
    pub(crate) fn entry(&self, operation: &Operation, data: *mut u8) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        let Operation { offset_bytes, length_bytes, action, .. } = *operation;
        match action {
            Action::Read => opcode::Read::new(file, data, length_bytes).offset(offset_bytes).build(),
            Action::Write => opcode::Write::new(file, data, length_bytes).offset(offset_bytes).build(),
            Action::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Action::Trim => unreachable!("a cache trims the store only"),
        }
    }

    /// Does `operation` here and now, whose bytes are `data`: for files in memory, which need not be waited for.
    pub(crate) fn perform(&self, operation: &Operation, data: &mut [u8]) -> io::Result<()> {
        match operation.action {
            Action::Read => self.file.read_exact_at(data, operation.offset_bytes),
            Action::Write => self.file.write_all_at(data, operation.offset_bytes),
            Action::Flush => self.file.sync_data(),
            Action::Trim => unreachable!("a cache trims the store only"),
        }
    }
}

/// Room for one call that O_DIRECT takes.
fn aligned(room: &mut Vec<u8>, length: usize) -> &mut [u8] {
    room.resize(length + BLOCK_BYTES, 0);
    let start = room.as_ptr().align_offset(BLOCK_BYTES);
    &mut room[start..start + length]
}

impl Blocks for CacheDevice {
    fn blocks(&self) -> u64 {
        self.bytes / BLOCK_BYTES as u64
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        let (mut room, mut offset) = (Vec::new(), first * BLOCK_BYTES as u64);
        for part in into.chunks_mut(CALL_BYTES_MAX) {
            let bytes = aligned(&mut room, part.len());
            self.file.read_exact_at(bytes, offset).inspect_err(|error| {
                let (cache, length) = (&self.cache, part.len());
                tracing::warn!(cache, offset, length, %error, "the cache's device cannot be read");
            })?;
            part.copy_from_slice(bytes);
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        let (mut room, mut offset) = (Vec::new(), first * BLOCK_BYTES as u64);
        for part in from.chunks(CALL_BYTES_MAX) {
            let bytes = aligned(&mut room, part.len());
            bytes.copy_from_slice(part);
            self.file.write_all_at(bytes, offset)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
