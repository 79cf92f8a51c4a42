//! Measures a real disk or file: the rates that promises on it are based on.
//!
//! A scheduler must know what a device does at its worst, small requests at random places (Zygaria, section 2). Here
//! they are sent to it with O_DIRECT, so many outstanding all the time, on a ring of their own.
//!
//! The complication is what the figure is for: a promise must be kept in every second. So the time is cut into windows,
//! and what counts is the slowest one. And a measurement must not destroy anything. What exists is only read, unless
//! the caller says otherwise. A file that was made for it loses its name at once and is gone with the process.

mod requests;

pub use requests::Requests;

use crate::clock::Clock;
use crate::ring::{Owner, Ring};
use io_uring::{opcode, types};
use plimsoll_core::{Span, Time};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Bytes of a small request: a page, the least that file systems and databases read.
const RANDOM_BYTES: u32 = 4096;
/// Bytes of a sequential request. [`SEQUENTIAL_OUTSTANDING`] of them let any disk stream.
const SEQUENTIAL_BYTES: u32 = 1 << 20;
const SEQUENTIAL_OUTSTANDING: u32 = 4;
/// Least bytes of what is measured: requests at random places need room.
pub const SIZE_BYTES_MIN: u64 = 16 << 20;
/// Parts of the time, of which the slowest counts.
const WINDOWS: usize = 5;
/// Time before the first window, which does not count: caches fill, and a disk gets under way.
const WARM_UP: Span = Span::from_millis(500);
/// O_DIRECT wants memory and places aligned to what no device exceeds. Bytes.
const ALIGNMENT_BYTES: usize = 4096;
/// How often the caller hears how far it is.
const PROGRESS_INTERVAL: Span = Span::from_millis(100);

/// What is sent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Reads of 4 KiB anywhere.
    RandomReads,
    /// Writes of 4 KiB anywhere.
    RandomWrites,
    /// Reads of 1 MiB from one end to the other.
    SequentialReads,
    /// Writes of 1 MiB from one end to the other.
    SequentialWrites,
}

impl Load {
    /// The loads that a target can take; loads that write only if `is_writable`.
    pub fn of(is_writable: bool) -> &'static [Load] {
        const ALL: [Load; 4] = [Load::RandomReads, Load::SequentialReads, Load::RandomWrites, Load::SequentialWrites];
        if is_writable { &ALL } else { &ALL[..2] }
    }

    /// Whether its requests go anywhere: what the worst case is measured with.
    pub fn is_random(self) -> bool {
        matches!(self, Load::RandomReads | Load::RandomWrites)
    }

    fn is_write(self) -> bool {
        matches!(self, Load::RandomWrites | Load::SequentialWrites)
    }

    /// Bytes of a request.
    pub fn request_bytes(self) -> u32 {
        if self.is_random() { RANDOM_BYTES } else { SEQUENTIAL_BYTES }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Load::RandomReads => "random reads of 4 KiB",
            Load::RandomWrites => "random writes of 4 KiB",
            Load::SequentialReads => "sequential reads",
            Load::SequentialWrites => "sequential writes",
        }
    }
}

/// What came of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Requests a second on average.
    pub per_second: f64,
    /// Requests a second in the slowest of five windows.
    pub per_second_min: f64,
}

/// Why nothing can be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// What was named cannot be measured, or not without doing harm.
    #[error("{}: got {got}, allowed {allowed}", path.display())]
    Target {
        /// What was named.
        path: PathBuf,
        /// What it is.
        got: String,
        /// What it should be.
        allowed: &'static str,
    },
    /// The system refused something.
    #[error("{}: cannot {action}: {source}", path.display())]
    System {
        /// What was named.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A file or disk that is measured. One that was made for it has no name any more, so that nothing is left of it.
#[derive(Debug)]
pub struct Target {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    is_writable: bool,
    is_made: bool,
}

impl Target {
    /// Opens what is at `path`, to be written to only if `is_destructive`. If there is nothing, makes a file of
    /// `size_bytes`, which then still has to be [filled](Target::fill).
    ///
    /// # Errors
    /// What is neither a file nor a disk, too small, sparse, in use, or without direct I/O; and what the system
    /// refuses.
    pub fn open(path: &Path, size_bytes: u64, is_destructive: bool) -> Result<Target, MeasureError> {
        match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Target::make(path, size_bytes),
            _ => Target::open_existing(path, is_destructive),
        }
    }

    fn make(path: &Path, size_bytes: u64) -> Result<Target, MeasureError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::DIRECT | OFlags::CLOEXEC;
        // Where there is no direct I/O the file is made all the same, and the call fails after that.
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| {
            if errno == Errno::INVAL {
                _ = std::fs::remove_file(path);
            }
            no_direct(path, errno).unwrap_or_else(|| system(path, "make it", errno.into()))
        })?;
        let target = Target { file: file.into(), path: path.into(), size_bytes, is_writable: true, is_made: true };
        target.lock()?;
        std::fs::remove_file(path).map_err(|error| system(path, "delete it again", error))?;
        target.file.set_len(size_bytes).map_err(|error| system(path, "give it its size", error))?;
        Ok(target)
    }

    /// Opens what is at `path`, to be written to only if `is_destructive`.
    ///
    /// # Errors
    /// As [`open`](Target::open); and if there is nothing.
    pub fn open_existing(path: &Path, is_destructive: bool) -> Result<Target, MeasureError> {
        let metadata = std::fs::metadata(path).map_err(|error| system(path, "look at it", error))?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(refused(path, kind_in_words(metadata.mode()), "a file or a disk"));
        }
        if kind.is_file() && metadata.blocks() * 512 < metadata.len() {
            return Err(refused(
                path,
                "a sparse file".into(),
                "a file without holes: the file system reads holes \
                                                              without the disk",
            ));
        }
        let mut flags = if is_destructive { OFlags::RDWR } else { OFlags::RDONLY };
        if is_destructive && kind.is_block_device() {
            // The kernel then refuses a disk that is mounted or otherwise in use.
            flags |= OFlags::EXCL;
        }
        let opened = rustix::fs::open(path, flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
        let refuse = |errno: Errno| no_direct(path, errno).unwrap_or_else(|| system(path, "open it", errno.into()));
        let mut file = File::from(opened.map_err(refuse)?);
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(|error| system(path, "measure it", error))?;
        if size_bytes < SIZE_BYTES_MIN {
            return Err(refused(path, format!("{size_bytes} bytes"), "at least 16 MiB"));
        }
        let target = Target { file, path: path.into(), size_bytes, is_writable: is_destructive, is_made: false };
        target.lock()?;
        Ok(target)
    }

    /// Bytes that there are.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether loads may write to it.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Whether it was made for the measurement, and so holds nothing yet.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// So that neither a daemon nor another measurement uses it meanwhile.
    fn lock(&self) -> Result<(), MeasureError> {
        let lock = match self.is_writable {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        rustix::fs::flock(&self.file, lock).map_err(|errno| match errno {
            Errno::WOULDBLOCK => refused(&self.path, "a target that another process has locked".into(), "a target \
                                                                                                         that no process has locked"),
            errno => system(&self.path, "lock it", errno.into()),
        })
    }

    /// Writes every byte of a file that was made, so that none is a hole. `progress` hears the bytes written.
    ///
    /// # Errors
    /// What the system says: no space left, most likely.
    pub fn fill(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), MeasureError> {
        let requests = self.size_bytes / u64::from(SEQUENTIAL_BYTES);
        let mut course = Course::new(self, Load::SequentialWrites, SEQUENTIAL_OUTSTANDING)?;
        course.run(&mut |_, done| {
            progress(done * u64::from(SEQUENTIAL_BYTES));
            done < requests
        })?;
        self.file.sync_all().map_err(|error| system(&self.path, "make it durable", error))
    }

    /// Sends `load` for `span`, at random places with `outstanding` requests all the time. `progress` hears how far it
    /// is.
    ///
    /// # Errors
    /// What the system says of a request.
    ///
    /// # Panics
    /// If `load` writes and the target may not be written.
    pub fn measure(
        &mut self,
        load: Load,
        outstanding: u32,
        span: Span,
        progress: &mut dyn FnMut(Span),
    ) -> Result<Measured, MeasureError> {
        assert!(self.is_writable || !load.is_write(), "no permission was given to write to {}", self.path.display());
        let outstanding = if load.is_random() { outstanding } else { SEQUENTIAL_OUTSTANDING };
        let mut counter = Windows::new(span);
        let mut told = Time::ZERO;
        let mut course = Course::new(self, load, outstanding)?;
        course.run(&mut |now, done| {
            counter.count(now, done);
            if now.since(told) >= PROGRESS_INTERVAL {
                told = now;
                progress(now.since(Time::ZERO).min(span));
            }
            now < Time::ZERO + WARM_UP + span
        })?;
        Ok(counter.measured())
    }
}

fn system(path: &Path, action: &'static str, source: io::Error) -> MeasureError {
    MeasureError::System { path: path.to_owned(), action, source }
}

fn refused(path: &Path, got: String, allowed: &'static str) -> MeasureError {
    MeasureError::Target { path: path.to_owned(), got, allowed }
}

fn no_direct(path: &Path, errno: Errno) -> Option<MeasureError> {
    let allowed = "a file system with direct I/O: otherwise memory would be measured";
    (errno == Errno::INVAL).then(|| refused(path, "a file system without direct I/O".into(), allowed))
}

fn kind_in_words(mode: u32) -> String {
    match FileType::from_raw_mode(mode) {
        FileType::Directory => "a directory".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Completions by window.
struct Windows {
    span: Span,
    done_before: u64,
    counts: [u64; WINDOWS],
}

impl Windows {
    fn new(span: Span) -> Windows {
        Windows { span, done_before: 0, counts: [0; WINDOWS] }
    }

    /// `done` requests are done at `now`.
    fn count(&mut self, now: Time, done: u64) {
        let new = done - std::mem::replace(&mut self.done_before, done);
        let since = now.since(Time::ZERO);
        if since >= WARM_UP {
            let window = (since - WARM_UP).as_nanos() * WINDOWS as u64 / self.span.as_nanos().max(1);
            if let Some(count) = self.counts.get_mut(window as usize) {
                *count += new;
            }
        }
    }

    fn measured(&self) -> Measured {
        let seconds = self.span.as_secs_f64();
        let least = self.counts.iter().min().copied().unwrap_or(0);
        Measured {
            per_second: self.counts.iter().sum::<u64>() as f64 / seconds,
            per_second_min: least as f64 * WINDOWS as f64 / seconds,
        }
    }
}

/// A page of memory where O_DIRECT wants it.
#[derive(Clone)]
#[repr(C, align(4096))]
struct AlignedPage([u8; ALIGNMENT_BYTES]);

/// One load on its way.
struct Course<'t> {
    target: &'t Target,
    load: Load,
    ring: Ring,
    outstanding: u32,
    /// One after the other, `request_bytes` for each outstanding request.
    memory: Vec<AlignedPage>,
    sent: u64,
    random: u64,
}

impl<'t> Course<'t> {
    fn new(target: &'t Target, load: Load, outstanding: u32) -> Result<Course<'t>, MeasureError> {
        let ring = Ring::new().map_err(|error| system(&target.path, "use io_uring for it", error))?;
        let pages = load.request_bytes() as usize / ALIGNMENT_BYTES * outstanding as usize;
        // Not zeroes: some drives do not write those.
        let memory = vec![AlignedPage([0x5a; ALIGNMENT_BYTES]); pages];
        Ok(Course { target, load, ring, outstanding, memory, sent: 0, random: 1 })
    }

    /// Sends requests until `goes_on` answers no. `goes_on` gets the time since the start and the number of requests
    /// that are done.
    fn run(&mut self, goes_on: &mut dyn FnMut(Time, u64) -> bool) -> Result<(), MeasureError> {
        let (clock, mut done, mut under_way, mut failure) = (Clock::start(), 0, 0, None);
        for slot in 0..self.outstanding {
            self.send(slot);
            under_way += 1;
        }
        let mut completed = Vec::new();
        while under_way > 0 {
            // An error here leaves requests under way, which write into memory that is ours: wait for them.
            if let Err(error) = self.ring.submit_and_wait(None) {
                failure.get_or_insert(error);
            }
            self.ring.drain(&mut completed);
            for one in completed.drain(..) {
                let Owner::Piece(slot) = one.owner else { continue };
                under_way -= 1;
                match one.result {
                    Ok(_) => done += 1,
                    Err(errno) => drop(failure.get_or_insert(errno.into())),
                }
                if goes_on(clock.now(), done) && failure.is_none() {
                    self.send(slot);
                    under_way += 1;
                }
            }
        }
        let action = if self.load.is_write() { "write to it" } else { "read it" };
        failure.map_or(Ok(()), |error| Err(system(&self.target.path, action, error)))
    }

    fn send(&mut self, slot: u32) {
        let bytes = self.load.request_bytes();
        let places = self.target.size_bytes / u64::from(bytes);
        let place = if self.load.is_random() { self.draw() % places } else { self.sent % places };
        self.sent += 1;
        let offset = place * u64::from(bytes);
        let pages = bytes as usize / ALIGNMENT_BYTES;
        let data = self.memory[slot as usize * pages..].as_mut_ptr().cast::<u8>();
        let file = types::Fd(self.target.file.as_raw_fd());
        let entry = match self.load.is_write() {
            true => opcode::Write::new(file, data, bytes).offset(offset).build(),
            false => opcode::Read::new(file, data, bytes).offset(offset).build(),
        };
        // SAFETY: the slot's pages are used by one request at a time, and `run` returns when all are done.
        unsafe { self.ring.push(entry, Owner::Piece(slot)) };
    }

    /// SplitMix64: places need no better chance.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_window_counts_and_the_warm_up_does_not() {
        let at = |ms| Time::ZERO + WARM_UP + Span::from_millis(ms);
        let mut windows = Windows::new(Span::from_secs(10));
        windows.count(Time::ZERO, 1000); // before the first window
        for (done, ms) in [(1100, 0), (1300, 2000), (1400, 4001), (1600, 6000), (1800, 9999), (5000, 10_000)] {
            windows.count(at(ms), done);
        }
        assert_eq!(windows.counts, [100, 200, 100, 200, 200]);
        assert_eq!(windows.measured(), Measured { per_second: 80.0, per_second_min: 50.0 });
    }

    /// Promise: devices-measuring.
    #[test]
    fn what_exists_is_not_written_and_what_is_made_leaves_no_name() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let path = folder.path().join("disk");
        let content: Vec<u8> = (0..SIZE_BYTES_MIN).map(|byte| (byte % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let span = Span::from_millis(100);
        let mut target = Target::open(&path, 0, false).unwrap();
        assert_eq!((target.is_writable(), target.is_made()), (false, false));
        for &load in Load::of(target.is_writable()) {
            // A disk that others use may do nothing for as long.
            let mut rates = (0..100).map(|_| target.measure(load, 8, span, &mut |_| {}).unwrap().per_second);
            assert!(rates.any(|rate| rate > 0.0), "{load:?}");
        }
        drop(target);
        assert!(std::fs::read(&path).unwrap() == content, "reading changed the file");
        let made = folder.path().join("made");
        let mut target = Target::open(&made, SIZE_BYTES_MIN, false).unwrap();
        target.fill(&mut |_| {}).unwrap();
        assert!(!made.exists());
        let blocks = target.file.metadata().unwrap().blocks();
        assert!(blocks * 512 >= SIZE_BYTES_MIN, "holes are left: {blocks} blocks");
        assert_eq!(Load::of(target.is_writable()).len(), 4);
        target.measure(Load::RandomWrites, 8, span, &mut |_| {}).unwrap();
    }

    #[test]
    fn what_cannot_be_measured_is_said_in_one_line() {
        let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
        let sparse = folder.path().join("sparse");
        File::create(&sparse).unwrap().set_len(SIZE_BYTES_MIN).unwrap();
        let small = folder.path().join("small");
        std::fs::write(&small, [1; 4096]).unwrap();
        let says = |path: &Path| Target::open(path, 0, false).unwrap_err().to_string();
        assert!(says(folder.path()).contains("got a directory, allowed a file"));
        assert!(says(&sparse).contains("got a sparse file"));
        assert!(says(&small).contains("got 4096 bytes, allowed at least 16 MiB"));
        assert!(says(Path::new("/proc/self/nothing")).contains("cannot make it"));
    }
}
