//! A volume in a regular file or on a block device.
//!
//! Opened with O_DIRECT where the file system can, so that the page cache neither doubles memory nor hides the device
//! from the scheduler. Locked against a second daemon for as long as it is open. A request becomes one or more *steps*.
//! Each is one operation on the engine's ring or, where what it holds is encrypted, work for a processor. What a step's
//! result means is decided here, without any I/O.
//!
//! ```text
//!   write, write-zeroes, encrypted:  Encrypt (as much as there is memory for) -> Write -> Encrypt the next -> ...
//!   read, encrypted:                 Read -> Decrypt
//! ```
//!
//! A trim gives space back, encrypted or not: a hole reads as zeroes ([`SectorCipher`]). Zeroes that are written are
//! encrypted like anything else, so no reader of the file sees where they are.

use super::{BLOCK_BYTES_MIN, SectorCipher, VolumeConfig, VolumeError, check_size};
use crate::occupied::{self, Locks};
use io_uring::{opcode, squeue, types};
use plimsoll_core::{Operation, Span, Time};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

/// Bytes of zeroes in one write, on a file system that cannot make zeroes itself.
const ZEROES_BYTES: usize = 64 * 1024;
/// Time between two log lines of a volume, however many requests fail.
const LOG_INTERVAL: Span = Span::from_secs(1);

#[repr(C, align(4096))]
struct Zeroes([u8; ZEROES_BYTES]);
static ZEROES: Zeroes = Zeroes([0; ZEROES_BYTES]);

/// One operation on a file, or on the bytes of a request to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileStep {
    /// Reads into the request's buffer.
    Read,
    /// Writes out of it; forced to the device if told so.
    Write {
        /// With RWF_DSYNC.
        is_forced: bool,
    },
    /// Makes the file system zero a range, keeping its space.
    ZeroRange,
    /// Writes zeroes.
    WriteZeroes,
    /// Gives a range back to the file system.
    PunchHole,
    /// fdatasync.
    Sync,
    /// Encrypts the request's bytes, or as many zeroes, before the write: work, no operation on the ring.
    Encrypt,
    /// Makes of all that was read what it means: work, too.
    Decrypt,
}

impl FileStep {
    /// Whether earlier writes may be lost if this step failed, because it was to make them durable. A forced write that
    /// failed for lack of room says nothing of other writes.
    pub(crate) fn leaves_doubt(self, errno: Errno) -> bool {
        match self {
            FileStep::Sync => true,
            FileStep::Write { is_forced } => is_forced && !matches!(errno, Errno::NOSPC | Errno::DQUOT),
            _ => false,
        }
    }
}

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The work is done.
    Done,
    /// Take this step, so many bytes further on.
    Next(FileStep, u32),
    /// The work has failed.
    Failed(Errno),
}

/// An open file, and what its file system can do.
pub(crate) struct FileBackend {
    pub(super) file: File,
    volume: String,
    can_zero_range: bool,
    /// By which what it holds is encrypted.
    pub(crate) cipher: Option<Arc<SectorCipher>>,
    failed_logged: Option<Time>,
    /// Locks on what lies beneath it.
    _beneath: Locks,
}

impl FileBackend {
    /// The step that starts `operation`.
    pub(crate) fn first_step(&self, operation: Operation, is_forced: bool) -> FileStep {
        match operation {
            Operation::Read => FileStep::Read,
            Operation::Write | Operation::WriteZeroes if self.cipher.is_some() => FileStep::Encrypt,
            Operation::Write => FileStep::Write { is_forced },
            Operation::Trim => FileStep::PunchHole,
            Operation::WriteZeroes if self.can_zero_range => FileStep::ZeroRange,
            Operation::WriteZeroes => FileStep::WriteZeroes,
            Operation::Flush => FileStep::Sync,
        }
    }

    /// The ring operation for `step` on `length` bytes from `offset` of the file. The bytes are at `data`.
    pub(crate) fn entry(&self, step: FileStep, offset: u64, length: u32, data: *mut u8) -> squeue::Entry {
        let file = types::Fd(self.file.as_raw_fd());
        let fallocate = |mode: FallocateFlags| {
            let mode = (mode | FallocateFlags::KEEP_SIZE).bits() as i32;
            opcode::Fallocate::new(file, u64::from(length)).offset(offset).mode(mode).build()
        };
        match step {
            FileStep::Read => opcode::Read::new(file, data, length).offset(offset).build(),
            FileStep::Write { is_forced } => {
                let flags = if is_forced { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(file, data, length).offset(offset).rw_flags(flags).build()
            }
            FileStep::WriteZeroes => {
                let length = length.min(ZEROES_BYTES as u32);
                opcode::Write::new(file, ZEROES.0.as_ptr(), length).offset(offset).build()
            }
            FileStep::ZeroRange => fallocate(FallocateFlags::ZERO_RANGE),
            FileStep::PunchHole => fallocate(FallocateFlags::PUNCH_HOLE),
            FileStep::Encrypt | FileStep::Decrypt => unreachable!("work is not for the ring"),
            FileStep::Sync => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        }
    }

    /// What follows when `step`, with `left` bytes to go, ended with `result`.
    pub(crate) fn progress(
        &mut self,
        step: FileStep,
        left: u32,
        is_forced: bool,
        result: Result<u32, Errno>,
    ) -> Progress {
        let after = |bytes: u32| if is_forced { Progress::Next(FileStep::Sync, bytes) } else { Progress::Done };
        match (step, result) {
            (FileStep::Sync | FileStep::Decrypt, Ok(_)) => Progress::Done,
            (FileStep::Encrypt, Ok(_)) => Progress::Next(FileStep::Write { is_forced }, 0),
            (FileStep::ZeroRange | FileStep::PunchHole, Ok(_)) => after(left),
            (FileStep::ZeroRange, Err(Errno::OPNOTSUPP)) => {
                self.can_zero_range = false;
                Progress::Next(FileStep::WriteZeroes, 0)
            }
            (_, Err(Errno::INTR | Errno::AGAIN)) => Progress::Next(step, 0),
            (_, Err(errno)) => Progress::Failed(errno),
            // The file ends before the volume does: another program truncated it.
            (_, Ok(0)) => Progress::Failed(Errno::IO),
            (FileStep::Write { .. }, Ok(bytes)) if bytes < left && self.cipher.is_some() => {
                Progress::Next(FileStep::Encrypt, bytes)
            }
            (_, Ok(bytes)) if bytes < left => Progress::Next(step, bytes),
            (FileStep::WriteZeroes, Ok(bytes)) => after(bytes),
            (FileStep::Read, Ok(_)) if self.cipher.is_some() => Progress::Next(FileStep::Decrypt, 0),
            (FileStep::Read | FileStep::Write { .. }, Ok(_)) => Progress::Done,
        }
    }

    /// Says in the log that a request failed, at most once a second. A file system without holes is no reason for a
    /// message. A trim is advice, and the front end knows whether its client can do without.
    pub(crate) fn log_failure(&mut self, now: Time, operation: Operation, offset: u64, errno: Errno) {
        if (operation, errno) == (Operation::Trim, Errno::OPNOTSUPP) {
            return;
        }
        if self.failed_logged.is_some_and(|logged| now.since(logged) < LOG_INTERVAL) {
            return;
        }
        self.failed_logged = Some(now);
        tracing::error!(volume = self.volume, ?operation, offset, error = %errno, "the backing file failed a request");
    }

    /// Makes everything durable, waiting for it.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A file that can be served.
pub(super) struct Opened {
    pub(super) backend: FileBackend,
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u32,
}

/// Opens, locks and measures the backing file of a volume.
pub(super) fn open(
    config: &VolumeConfig,
    path: &Path,
    size_bytes: Option<u64>,
    creates: bool,
) -> Result<Opened, VolumeError> {
    let volume = || config.name.clone();
    let system = |action: &'static str| {
        move |source: io::Error| VolumeError::System { volume: volume(), action, path: path.to_owned(), source }
    };
    let exists = match std::fs::metadata(path) {
        Ok(metadata) => {
            let kind = FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&metadata));
            if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
                return Err(VolumeError::Kind { volume: volume(), path: path.to_owned() });
            }
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(system("look at")(error)),
    };
    let make_bytes = match (exists, creates, size_bytes) {
        (true, _, _) => None,
        (false, true, Some(size_bytes)) => Some(size_bytes),
        (false, _, _) => return Err(VolumeError::Missing { volume: volume(), path: path.to_owned() }),
    };
    make_bytes.map_or(Ok(()), |size_bytes| check_size(config, size_bytes, BLOCK_BYTES_MIN))?;
    if !config.is_read_only && occupied::is_read_only_device(path) {
        return Err(VolumeError::ReadOnlyDevice { volume: volume(), path: path.to_owned() });
    }
    let in_use = |by| VolumeError::InUse { volume: volume(), path: path.to_owned(), by };
    let opened = open_direct(config, path, !exists);
    let (mut file, is_direct) = opened.map_err(|error| match occupied::user_behind(path, &error) {
        Some(by) => in_use(by),
        None => system("open")(error),
    })?;
    let beneath = occupied::lock(path, &file, config.is_read_only).map_err(|errno| match errno {
        Errno::WOULDBLOCK => {
            VolumeError::Locked { volume: volume(), path: path.to_owned(), by: occupied::locked_by(path) }
        }
        errno => system("lock")(errno.into()),
    })?;
    if let Some(by) = occupied::kernel_user_of(path).filter(|_| !config.is_read_only) {
        return Err(in_use(by));
    }
    if let Some(size_bytes) = make_bytes {
        file.set_len(size_bytes).map_err(system("give its size to"))?;
    }
    let has_bytes = file.seek(SeekFrom::End(0)).map_err(system("measure"))?;
    let size = size_bytes.unwrap_or(has_bytes);
    if has_bytes < size {
        let path = path.to_owned();
        return Err(VolumeError::TooSmall { volume: volume(), path, got_bytes: has_bytes, expected_bytes: size });
    }
    check_size(config, size, BLOCK_BYTES_MIN)?;
    let mut block_bytes = BLOCK_BYTES_MIN;
    if is_direct {
        block_bytes = direct_block_bytes(&file).map_err(system("measure"))?;
        if !size.is_multiple_of(u64::from(block_bytes)) {
            set_buffered(&file).map_err(system("switch O_DIRECT off for"))?;
            block_bytes = BLOCK_BYTES_MIN;
        }
    }
    let backend = FileBackend {
        file,
        volume: volume(),
        can_zero_range: true,
        cipher: None,
        failed_logged: None,
        _beneath: beneath,
    };
    Ok(Opened { backend, size_bytes: size, block_bytes })
}

/// Opens with O_DIRECT, or without where the file system refuses it; says which.
fn open_direct(config: &VolumeConfig, path: &Path, creates: bool) -> io::Result<(File, bool)> {
    let flags = match config.is_read_only {
        true => OFlags::RDONLY,
        false => OFlags::RDWR | occupied::exclusive(path),
    };
    let mut flags = flags | OFlags::CLOEXEC;
    if creates {
        flags |= OFlags::CREATE;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    let open = |flags| Ok(rustix::fs::open(path, flags, mode)?.into());
    match occupied::open_patiently(path, || open(flags | OFlags::DIRECT)) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            tracing::info!(volume = config.name, "no O_DIRECT on this file system: the page cache is used");
            Ok((open(flags)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// The alignment that O_DIRECT asks of this file.
fn direct_block_bytes(file: &File) -> io::Result<u32> {
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN | StatxFlags::TYPE)?;
    if StatxFlags::from_bits_retain(statx.stx_mask).contains(StatxFlags::DIOALIGN) && statx.stx_dio_offset_align > 0 {
        return Ok(statx.stx_dio_offset_align.max(BLOCK_BYTES_MIN));
    }
    match FileType::from_raw_mode(u32::from(statx.stx_mode)) {
        FileType::BlockDevice => Ok(rustix::fs::ioctl_blksszget(file)?.max(BLOCK_BYTES_MIN)),
        _ => Ok(BLOCK_BYTES_MIN),
    }
}

fn set_buffered(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend() -> FileBackend {
        FileBackend {
            file: tempfile::tempfile().unwrap(),
            volume: "v".into(),
            can_zero_range: true,
            cipher: None,
            failed_logged: None,
            _beneath: Locks::new(),
        }
    }

    /// Planted break: whatever fails leaves a doubt.
    #[test]
    fn what_failed_to_be_made_durable_leaves_a_doubt_and_nothing_else() {
        let forced = FileStep::Write { is_forced: true };
        assert!(FileStep::Sync.leaves_doubt(Errno::IO) && FileStep::Sync.leaves_doubt(Errno::NOSPC));
        assert!(forced.leaves_doubt(Errno::IO) && !forced.leaves_doubt(Errno::NOSPC));
        for step in [FileStep::Write { is_forced: false }, FileStep::Read, FileStep::PunchHole, FileStep::ZeroRange] {
            assert!(!step.leaves_doubt(Errno::IO), "{step:?}");
        }
    }

    #[test]
    fn what_follows_a_step() {
        let mut file = backend();
        let mut after = |step, left, is_forced, result| file.progress(step, left, is_forced, result);
        assert_eq!(after(FileStep::Read, 4096, false, Ok(4096)), Progress::Done);
        assert_eq!(after(FileStep::Read, 4096, false, Ok(512)), Progress::Next(FileStep::Read, 512));
        assert_eq!(after(FileStep::Read, 4096, false, Ok(0)), Progress::Failed(Errno::IO));
        let write = FileStep::Write { is_forced: true };
        assert_eq!(after(write, 512, true, Ok(512)), Progress::Done, "RWF_DSYNC has done it");
        assert_eq!(after(write, 512, true, Err(Errno::NOSPC)), Progress::Failed(Errno::NOSPC));
        assert_eq!(after(write, 512, false, Err(Errno::INTR)), Progress::Next(write, 0));
        assert_eq!(after(FileStep::PunchHole, 512, true, Ok(0)), Progress::Next(FileStep::Sync, 512));
        let no_holes = after(FileStep::PunchHole, 512, false, Err(Errno::OPNOTSUPP));
        assert_eq!(no_holes, Progress::Failed(Errno::OPNOTSUPP), "what was trimmed must read as zero");
        assert_eq!(after(FileStep::Sync, 0, true, Ok(0)), Progress::Done);
        assert_eq!(after(FileStep::Sync, 0, true, Err(Errno::IO)), Progress::Failed(Errno::IO));
    }

    fn cipher() -> Arc<SectorCipher> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, std::array::from_fn::<u8, 64, _>(|at| at as u8)).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        Arc::new(SectorCipher::of_key_file(&path).unwrap())
    }

    /// Planted break: what is left of a short write is not encrypted anew, so that it is written from where the first
    /// part was.
    #[test]
    fn what_is_written_encrypted_is_encrypted_first_and_what_is_read_is_decrypted_at_last() {
        let mut file = FileBackend { cipher: Some(cipher()), ..backend() };
        let firsts = [Operation::Read, Operation::Write, Operation::WriteZeroes, Operation::Trim, Operation::Flush];
        let firsts = firsts.map(|operation| file.first_step(operation, true));
        let expected = [FileStep::Read, FileStep::Encrypt, FileStep::Encrypt, FileStep::PunchHole, FileStep::Sync];
        assert_eq!(firsts, expected);
        let mut after = |step, left, result| file.progress(step, left, true, result);
        let write = FileStep::Write { is_forced: true };
        assert_eq!(after(FileStep::Encrypt, 8192, Ok(0)), Progress::Next(write, 0));
        assert_eq!(after(FileStep::Encrypt, 8192, Err(Errno::IO)), Progress::Failed(Errno::IO));
        assert_eq!(after(write, 8192, Err(Errno::INTR)), Progress::Next(write, 0));
        assert_eq!(after(write, 8192, Ok(4096)), Progress::Next(FileStep::Encrypt, 4096));
        assert_eq!(after(write, 4096, Ok(4096)), Progress::Done);
        assert_eq!(after(FileStep::Read, 8192, Ok(4096)), Progress::Next(FileStep::Read, 4096));
        assert_eq!(after(FileStep::Read, 4096, Ok(4096)), Progress::Next(FileStep::Decrypt, 0));
        assert_eq!(after(FileStep::Read, 4096, Ok(0)), Progress::Failed(Errno::IO));
        assert_eq!(after(FileStep::Decrypt, 4096, Ok(0)), Progress::Done);
        assert_eq!(after(FileStep::Decrypt, 4096, Err(Errno::IO)), Progress::Failed(Errno::IO));
    }

    #[test]
    fn a_file_system_that_cannot_zero_a_range_is_asked_once() {
        let mut file = backend();
        assert_eq!(file.first_step(Operation::WriteZeroes, false), FileStep::ZeroRange);
        let unsupported = file.progress(FileStep::ZeroRange, 1 << 20, true, Err(Errno::OPNOTSUPP));
        assert_eq!(unsupported, Progress::Next(FileStep::WriteZeroes, 0));
        assert_eq!(file.first_step(Operation::WriteZeroes, false), FileStep::WriteZeroes);
        assert_eq!(
            file.progress(FileStep::WriteZeroes, 1 << 20, true, Ok(65536)),
            Progress::Next(FileStep::WriteZeroes, 65536)
        );
        let last = file.progress(FileStep::WriteZeroes, 65536, true, Ok(65536));
        assert_eq!(last, Progress::Next(FileStep::Sync, 65536));
    }
}
