//! The fast device of a cache: a block device or a regular file, locked, and opened with O_DIRECT if possible.

use super::{CacheError, CacheSettings};
use crate::content::Content;
use crate::occupied::{self, Locks};
use io_uring::{opcode, squeue, types};
use plimsoll_cache::store::superblock::Found;
use plimsoll_cache::store::{Action, BLOCK_BYTES, Blocks, Operation, Superblock};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
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
    /// On what lies beneath it.
    _locks: Arc<Locks>,
}

impl CacheDevice {
    /// Opens the device of `settings`. If `creates`, makes a missing file of the size in the settings.
    pub(super) fn open(settings: &CacheSettings, creates: bool) -> Result<CacheDevice, CacheError> {
        let CacheSettings { name, path, size_bytes, .. } = settings;
        CacheDevice::open_sized(name, path, size_bytes.filter(|_| creates))
    }

    /// Opens what is at `path`.
    pub(super) fn open_existing(name: &str, path: &Path) -> Result<CacheDevice, CacheError> {
        CacheDevice::open_sized(name, path, None)
    }

    /// Opens what is at `path`, or makes a file of that size there.
    fn open_sized(name: &str, path: &Path, size_bytes: Option<u64>) -> Result<CacheDevice, CacheError> {
        let system = |action: &'static str| {
            move |source| CacheError::System { cache: name.to_owned(), action, path: path.to_owned(), source }
        };
        // What is not there is made, or told where it is opened.
        if let Ok(metadata) = std::fs::metadata(path) {
            plimsoll_linux::files::storage(&metadata).map_err(system("use"))?;
        }
        let in_use = |by| CacheError::InUse { cache: name.to_owned(), path: path.to_owned(), by };
        if occupied::is_read_only_device(path) {
            return Err(CacheError::ReadOnlyDevice { cache: name.to_owned(), path: path.to_owned() });
        }
        let is_made = size_bytes.is_some() && !path.exists();
        let exclusive = occupied::exclusive(path);
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(is_made).mode(0o600);
            options.custom_flags((flags | exclusive).bits() as i32).open(path)
        };
        let file = match occupied::open_patiently(path, || open(OFlags::DIRECT)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                tracing::info!(cache = name, "no O_DIRECT on this file system: the page cache is used");
                open(OFlags::empty())
            }
            opened => opened,
        };
        let file = file.map_err(|error| match occupied::user_behind(path, &error) {
            Some(by) => in_use(by),
            None => system("open")(error),
        })?;
        let locks = occupied::lock(path, &file, false).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => {
                let by = occupied::locked_by(path);
                CacheError::Locked { cache: name.to_owned(), path: path.to_owned(), by }
            }
            errno => system("lock")(errno.into()),
        })?;
        if let Some(by) = occupied::kernel_user_of(path) {
            return Err(in_use(by));
        }
        let (cache, path_of) = (name.to_owned(), path.to_owned());
        let mut device = CacheDevice { file: Arc::new(file), bytes: 0, cache, path: path_of, _locks: Arc::new(locks) };
        match size_bytes.filter(|_| is_made) {
            // What was reserved of it is of no use. Its place is where the path leads: it may be a link.
            Some(size_bytes) => {
                device.grow_or(size_bytes, |device| device.path.canonicalize().and_then(std::fs::remove_file))?;
            }
            None => device.measure_again()?,
        }
        Ok(device)
    }

    fn measure_again(&mut self) -> Result<(), CacheError> {
        self.bytes = (&*self.file).seek(SeekFrom::End(0)).map_err(self.system("measure"))?;
        Ok(())
    }

    /// Makes a file as long, if it is shorter. A device with other content stays as it is.
    pub(super) fn grow(&mut self, size_bytes: u64) -> Result<(), CacheError> {
        let had_bytes = self.bytes;
        self.grow_or(size_bytes, move |device| device.file.set_len(had_bytes))
    }

    /// The same; `take_back` takes back what was reserved where there is not so much room.
    fn grow_or(
        &mut self,
        size_bytes: u64,
        take_back: impl FnOnce(&CacheDevice) -> io::Result<()>,
    ) -> Result<(), CacheError> {
        let metadata = self.file.metadata().map_err(self.system("look at"))?;
        self.measure_again()?;
        if !metadata.is_file() || self.bytes >= size_bytes {
            return Ok(());
        }
        // A file without a name is memory, which is taken as it is needed.
        let grown = match metadata.nlink() > 0 {
            true => reserve(&self.file, size_bytes),
            false => self.file.set_len(size_bytes),
        };
        if let Err(error) = grown {
            take_back(self).map_err(self.system("take back the room of"))?;
            return Err(self.system("find room for")(error));
        }
        self.measure_again()
    }

    /// Refuses a device with content: anything but zeroes at its ends, or a cache that was given up.
    pub(super) fn refuse_content(&mut self) -> Result<(), CacheError> {
        let mut superblocks = [0; 2 * BLOCK_BYTES];
        let bytes = self.blocks() * BLOCK_BYTES as u64;
        if bytes >= superblocks.len() as u64 {
            self.read(0, &mut superblocks).map_err(self.system("look into"))?;
            let is_superblock =
                |block: &[u8]| !matches!(Superblock::decode(block.try_into().expect("a block")), Found::Foreign);
            // The caller has looked at it: no cache is in use here.
            if superblocks.chunks_exact(BLOCK_BYTES).any(is_superblock) {
                return Ok(());
            }
        }
        let in_tail = self.first_byte_of_tail().map_err(self.system("look into"))?;
        if let Some(first_byte_at) = in_tail {
            let content = Content::Unknown { first_byte_at };
            return Err(CacheError::Content { cache: self.cache.clone(), path: self.path.clone(), content });
        }
        let block = BLOCK_BYTES as u64;
        let content = Content::read(bytes, |offset, bytes| self.read(offset / block, bytes));
        match content.map_err(self.system("look into"))? {
            Content::Empty => Ok(()),
            content => Err(CacheError::Content { cache: self.cache.clone(), path: self.path.clone(), content }),
        }
    }

    /// The first byte that is not zero behind the last whole block. A file may have any length, also less than a block.
    fn first_byte_of_tail(&self) -> io::Result<Option<u64>> {
        let begin = self.blocks() * BLOCK_BYTES as u64;
        if self.bytes == begin {
            return Ok(None);
        }
        let mut room = Vec::new();
        let block = aligned(&mut room, BLOCK_BYTES);
        let length = self.file.read_at(block, begin)?;
        Ok(block[..length].iter().position(|byte| *byte != 0).map(|at| begin + at as u64))
    }

    /// Size of `path` in bytes, 0 if it is missing, and whether it can grow, as a file can.
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

    /// Bytes that the file system of `path` has free; `None` if that is not known.
    pub(super) fn room(path: &Path) -> Option<u64> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let place = if path.exists() { path } else { folder };
        let found = rustix::fs::statvfs(place).ok().filter(|found| found.f_blocks > 0)?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn system(&self, action: &'static str) -> impl Fn(io::Error) -> CacheError + use<> {
        let (cache, path) = (self.cache.clone(), self.path.clone());
        move |source| CacheError::System { cache: cache.clone(), action, path: path.clone(), source }
    }

    /// The ring operation for `operation`; its bytes are at `data`.
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

    /// Does `operation` at once, with its bytes in `data`: for files in memory, which need no waiting.
    pub(crate) fn perform(&self, operation: &Operation, data: &mut [u8]) -> io::Result<()> {
        match operation.action {
            Action::Read => self.file.read_exact_at(data, operation.offset_bytes),
            Action::Write => self.file.write_all_at(data, operation.offset_bytes),
            Action::Flush => self.file.sync_data(),
            Action::Trim => unreachable!("a cache trims the store only"),
        }
    }
}

/// Makes a file so long and gives it all of its blocks. So a file system that is full says so now, and not to a later
/// write. One that cannot is made as long and is sparse.
fn reserve(file: &File, size_bytes: u64) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, size_bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(size_bytes),
        reserved => Ok(reserved?),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a block of [`MetadataExt::blocks`].
    const COUNTED_BYTES: u64 = 512;
    const SIZE_BYTES: u64 = 1 << 20;

    fn open(path: &Path, size_bytes: u64) -> Result<CacheDevice, CacheError> {
        let mut device = CacheDevice::open_sized("fast", path, Some(size_bytes))?;
        device.grow(size_bytes)?;
        Ok(device)
    }

    /// Planted break that was seen red: a file is made as long, and no more.
    /// Promise: notes-file-blocks.
    #[test]
    fn a_file_has_all_of_its_blocks_when_it_is_made_or_grown_and_keeps_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let [made, grown] = ["made", "grown"].map(|name| directory.path().join(name));
        std::fs::write(&grown, [7; BLOCK_BYTES]).unwrap();
        for path in [&made, &grown] {
            assert_eq!(open(path, SIZE_BYTES).unwrap().bytes(), SIZE_BYTES);
            let has_bytes = std::fs::metadata(path).unwrap().blocks() * COUNTED_BYTES;
            assert!(has_bytes >= SIZE_BYTES, "{} has {has_bytes}", path.display());
        }
        assert!(std::fs::read(&grown).unwrap()[..BLOCK_BYTES] == [7; BLOCK_BYTES]);
        // What is long enough stays as it is.
        assert_eq!(open(&made, BLOCK_BYTES as u64).unwrap().bytes(), SIZE_BYTES);
    }

    /// On a file system in memory, which says at once that it has not so much.
    ///
    /// Planted breaks that were seen red: a file is made as long, and no more; what cannot be as long stays.
    /// Promise: notes-file-blocks.
    #[test]
    fn a_file_for_which_there_is_no_room_is_refused_and_nothing_is_left_of_it() {
        let shared_memory = Path::new("/dev/shm");
        let room = rustix::fs::statfs(shared_memory).map(|found| found.f_blocks * found.f_bsize as u64);
        let directory = tempfile::tempdir_in(shared_memory);
        let (Ok(room), Ok(directory)) = (room, directory) else {
            return eprintln!("not run: no file system in memory");
        };
        if room == 0 {
            return eprintln!("not run: the file system in memory has no bound");
        }
        let [made, grown] = ["made", "grown"].map(|name| directory.path().join(name));
        std::fs::write(&grown, [7; BLOCK_BYTES]).unwrap();
        for path in [&made, &grown] {
            match open(path, room + SIZE_BYTES).err() {
                Some(CacheError::System { source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(!made.exists());
        assert!(std::fs::read(&grown).unwrap() == [7; BLOCK_BYTES]);
    }

    /// Memory is not taken before it is needed.
    ///
    /// Planted break that was seen red: a file without a name has all of its blocks, too.
    #[test]
    fn a_file_without_a_name_takes_memory_as_it_is_needed() {
        let file = rustix::fs::memfd_create("cache", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        assert_eq!(open(&path, SIZE_BYTES).unwrap().bytes(), SIZE_BYTES);
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_blocks, 0);
    }
}
