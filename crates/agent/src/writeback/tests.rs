//! Planted breaks that turned a test red: a caller waits for room; the thread goes on until no call asks any more; a
//! file that is never closed.

use super::*;
use plimsoll_core::{Span, Time};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::mpsc::channel;

const BLOCK: u64 = 16 << 10;
const FILE_BYTES: u64 = 64 << 20;

/// A file with every other block dirty, or nothing where the kernel does not tell what is dirty or memory is the disk.
fn file() -> Option<File> {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    dirty(&file)?;
    Some(file)
}

fn dirty(file: &File) -> Option<()> {
    file.set_len(FILE_BYTES).unwrap();
    file.sync_all().unwrap();
    (0..FILE_BYTES / BLOCK / 2).for_each(|n| file.write_all_at(&[7; BLOCK as usize], n * 2 * BLOCK).unwrap());
    match dirty_bytes(file, 0..FILE_BYTES) {
        Ok(dirty) if dirty > FILE_BYTES / 4 => Some(()),
        other => {
            eprintln!("not run: dirty bytes are {other:?}, which this file system or kernel does not keep or tell");
            None
        }
    }
}

#[test]
fn a_slice_is_dirty_bytes_and_the_next_goes_on_behind_it() {
    let Some(file) = file() else { return };
    let dirty = |range| dirty_bytes(&file, range).unwrap();
    let before = dirty(0..FILE_BYTES);
    let slice = 8 << 20;
    let end = write_slice(&file, 0, slice).unwrap();
    // Half of the bytes are dirty, so the slice reaches twice as far; the kernel's own flusher may help.
    assert!(end.abs_diff(2 * slice) <= RANGE_BYTES, "{end}");
    assert_eq!(dirty(0..end), 0);
    let after = dirty(0..FILE_BYTES);
    assert!(before - after >= slice - RANGE_BYTES, "{before} {after}");
    let next = write_slice(&file, end, slice).unwrap();
    assert!(next.abs_diff(end + 2 * slice) <= 2 * RANGE_BYTES, "{next}");
    assert_eq!(dirty(0..next), 0);
    // Round the end: dirty pages before the place are found too.
    file.write_all_at(&[8; BLOCK as usize], 0).unwrap();
    write_slice(&file, next, FILE_BYTES).unwrap();
    assert_eq!(dirty(0..FILE_BYTES), 0);
}

/// What goes beyond a slice, an fsync that was promised to be done waits for.
/// Promise: tenants-slice-size.
#[test]
fn a_slice_is_no_larger_than_was_asked_for() {
    let Some(file) = file() else { return };
    let dirty = || dirty_bytes(&file, 0..FILE_BYTES).unwrap();
    let mut from = 0;
    for bytes_max in [PAGE_BYTES, PAGE_BYTES + 1, BLOCK, 5 * BLOCK, 3 << 20] {
        let before = dirty();
        from = write_slice(&file, from, bytes_max).unwrap();
        let written = before - dirty();
        // Where a range ends within a folio, all of that is written.
        assert!(written >= bytes_max && written <= bytes_max + 4 * BLOCK, "{written} of {bytes_max}");
    }
    // At the file's end, which is within a page.
    file.sync_all().unwrap();
    file.write_all_at(&[7; 5000], FILE_BYTES).unwrap();
    assert_eq!(write_slice(&file, FILE_BYTES, PAGE_BYTES + 1), Ok(0));
    assert_eq!(dirty_bytes(&file, 0..FILE_BYTES + 5000), Ok(0));
}

/// For what must come, on the slowest machine.
const PATIENCE: Span = Span::from_secs(180);
const PAUSE: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = monotonic_now() + PATIENCE;
    while !is_so() {
        assert!(monotonic_now() < end, "never came: {what}");
        let _ = rustix::thread::nanosleep(&PAUSE);
    }
}

/// A file with a name, every other block of it dirty, and its file system; `None` where such a file is not found by its
/// inode.
fn named() -> Option<(tempfile::NamedTempFile, FileId)> {
    let named = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    dirty(named.as_file())?;
    let id = FileId(named.as_file().metadata().unwrap().ino());
    let mut files = Files::of(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    if files.find(Time::ZERO, id).is_none() {
        eprintln!("not run: files of this file system are not found by their inode, or this is not root");
        return None;
    }
    Some((named, id))
}

/// How often this process has the file open.
fn open_count(named: &tempfile::NamedTempFile) -> usize {
    let number = |found: std::fs::Metadata| (found.dev(), found.ino());
    let wanted = number(named.as_file().metadata().unwrap());
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|entry| std::fs::metadata(entry.path()).is_ok_and(|found| number(found) == wanted)).count()
}

/// Keeps the thread busy from what it was told before this on, until it is let go: to open a pipe waits for a writer.
struct Busy {
    folder: tempfile::TempDir,
    answered: Receiver<std::io::Result<()>>,
}

impl Busy {
    fn new(writeback: &Writeback) -> Busy {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let (answer, answered) = sync_channel(1);
        writeback.messages.send(Message::Mounted { mount_point: pipe, answer }).unwrap();
        Busy { folder, answered }
    }

    /// Waits until the thread opens the pipe; if it never does, this fails and does not wait for ever.
    fn let_go(self) {
        let pipe = self.folder.path().join("pipe");
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        wait_until("who reads the pipe", || rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).is_ok());
        self.answered.recv().unwrap().unwrap();
    }
}

/// As an engine's thread must be able to, whatever the disk does.
/// Promise: tenants-writeback-files.
#[test]
fn a_caller_does_not_wait_for_a_thread_that_waits() {
    let writeback = Writeback::start().unwrap();
    let (slices, busy) = (writeback.slices(), Busy::new(&writeback));
    let (asked, has_asked) = channel();
    std::thread::spawn(move || {
        let taken = (0..2 * SLICES_WAITING_MAX as u64).filter(|&n| slices.ask(FileId(n), PAGE_BYTES)).count();
        // Its end, too, takes no time.
        drop(slices);
        asked.send(taken)
    });
    let taken = has_asked.recv_timeout(PATIENCE.into());
    busy.let_go();
    // What the thread is busy with may not have been taken out yet.
    let room = SLICES_WAITING_MAX - 1..=SLICES_WAITING_MAX;
    assert!(taken.as_ref().is_ok_and(|taken| room.contains(taken)), "{taken:?}");
}

#[test]
fn a_file_is_opened_written_and_closed_by_the_thread() {
    let Some((named, id)) = named() else { return };
    let dirty = || dirty_bytes(named.as_file(), 0..FILE_BYTES).unwrap();
    let writeback = Writeback::start().unwrap();
    let (slices, mounts) = (writeback.slices(), writeback.mounts());
    assert!(slices.ask(id, FILE_BYTES), "nothing is mounted yet, and there is room");
    mounts.mounted(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (before, slice) = (dirty(), 8 << 20);
    slices.ask(id, slice);
    wait_until("the slice", || dirty() <= before.saturating_sub(slice - RANGE_BYTES));
    slices.ask(id, FILE_BYTES);
    wait_until("the rest", || dirty() == 0);
    // Its deletion gives the space back.
    wait_until("its end", || open_count(&named) == 1);
    assert!(matches!(mounts.mounted(Path::new("/nowhere")), Err(AgentError::System { .. })));
    // And opened again, by the mount before.
    named.as_file().write_all_at(&[8; BLOCK as usize], 0).unwrap();
    slices.ask(id, FILE_BYTES);
    wait_until("what was dirtied since", || dirty() == 0);
}

/// Otherwise the file system could not be unmounted.
/// Promise: tenants-writeback-files.
#[test]
fn no_file_is_open_after_the_end() {
    let Some((named, id)) = named() else { return };
    let writeback = Writeback::start().unwrap();
    let slices = writeback.slices();
    writeback.mounts().mounted(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    wait_until("the file that is kept", || slices.ask(id, PAGE_BYTES) && open_count(&named) == 2);
    drop(writeback);
    assert_eq!(open_count(&named), 1);
}

#[test]
fn the_end_comes_before_waiting_requests_and_clients_that_ask_on() {
    let writeback = Writeback::start().unwrap();
    let (slices, mounts, is_over) = (writeback.slices(), writeback.mounts(), writeback.is_over.clone());
    let busy = Busy::new(&writeback);
    // As many as there is room for: not before the thread has taken out what keeps it busy, for which it would not
    // begin after the end.
    let mut taken = 0;
    wait_until("who is busy", || {
        taken += usize::from(slices.ask(FileId(1), PAGE_BYTES));
        taken == SLICES_WAITING_MAX
    });
    let (ended, has_ended) = channel();
    std::thread::spawn(move || {
        drop(writeback);
        ended.send(())
    });
    wait_until("who ends it", || is_over.load(Ordering::Relaxed));
    busy.let_go();
    has_ended.recv_timeout(PATIENCE.into()).unwrap();
    assert!(!slices.ask(FileId(1), PAGE_BYTES), "nobody is there");
    assert!(matches!(mounts.mounted(Path::new("/")), Err(AgentError::Gone)));
}
