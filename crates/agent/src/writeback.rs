//! Starting writeback of a file in slices, for schedulers that bring down the cost of an fsync before they let it go
//! (split-level paper, section 5.2).
//!
//! A slice is so many *dirty* bytes, wherever in the file they are. The kernel takes ranges: cachestat(2) tells how many
//! bytes of a range are dirty, so a range is halved until what is dirty in it fits what is left of the slice, and is then
//! given to sync_file_range(2). Each file is gone through from where the slice before ended, round and round. Before Linux
//! 6.5 nobody tells, and ranges count in full.
//!
//! It may wait for a full queue of the device, so a thread of its own does it, one slice after the other. There is room for
//! [`SLICES_WAITING_MAX`] that wait; more are left out: whoever wished for them will wish again.

mod system;

use plimsoll_core::FileId;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use system::{dirty_bytes, start_writeback};

/// Slices that wait for the thread at the most.
pub const SLICES_WAITING_MAX: usize = 256;
/// A range is not halved below this, bytes: the largest write that the block layer makes by default (`max_sectors_kb`).
const RANGE_BYTES_MIN: u64 = 1280 << 10;
/// Files whose place is remembered.
const FILES_MAX: usize = 4096;

struct Slice {
    id: FileId,
    file: Arc<File>,
    bytes_max: u64,
}

/// The thread that starts writeback.
pub struct Writeback {
    slices: Option<SyncSender<Slice>>,
    thread: Option<JoinHandle<()>>,
}

impl Writeback {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no room for another thread.
    pub fn start() -> std::io::Result<Writeback> {
        let (slices, received) = sync_channel(SLICES_WAITING_MAX);
        let thread = std::thread::Builder::new().name("writeback".to_owned()).spawn(move || run(&received))?;
        Ok(Writeback { slices: Some(slices), thread: Some(thread) })
    }

    /// Has `bytes_max` dirty bytes of a file written, or all that are dirty if there are fewer. Never waits; says whether
    /// there was room for it.
    pub fn slice(&self, id: FileId, file: Arc<File>, bytes_max: u64) -> bool {
        self.slices.as_ref().is_some_and(|slices| slices.try_send(Slice { id, file, bytes_max }).is_ok())
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        self.slices = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(slices: &Receiver<Slice>) {
    let mut places: BTreeMap<FileId, u64> = BTreeMap::new();
    while let Ok(Slice { id, file, bytes_max }) = slices.recv() {
        let from = places.get(&id).copied().unwrap_or(0);
        match write_slice(&file, from, bytes_max) {
            Ok(end) => {
                if places.len() >= FILES_MAX {
                    places.clear();
                }
                places.insert(id, end);
            }
            // The fsync that follows will say so to whom it concerns.
            Err(errno) => tracing::warn!(inode = id.0, %errno, "writeback could not be started"),
        }
    }
}

/// Writes up to `bytes_max` dirty bytes, from `from` on to the end and again from the start. Answers with where it ended.
fn write_slice(file: &File, from: u64, bytes_max: u64) -> Result<u64, Errno> {
    let length = rustix::fs::fstat(file)?.st_size.unsigned_abs();
    let from = if from < length { from } else { 0 };
    let mut left = bytes_max;
    for half in [from..length, 0..from] {
        if let Some(end) = write_range(file, half, &mut left)? {
            return Ok(end);
        }
    }
    Ok(from)
}

/// Writes what is dirty in a range, up to `left` bytes. Answers with where it stopped, if it did not reach the end.
fn write_range(file: &File, range: Range<u64>, left: &mut u64) -> Result<Option<u64>, Errno> {
    if range.is_empty() {
        return Ok(None);
    }
    if *left == 0 {
        return Ok(Some(range.start));
    }
    let length = range.end - range.start;
    let dirty = match dirty_bytes(file, range.clone()) {
        Ok(dirty) => dirty,
        Err(Errno::NOSYS) => length,
        Err(errno) => return Err(errno),
    };
    if dirty <= *left || length <= RANGE_BYTES_MIN {
        if dirty > 0 {
            start_writeback(file, range)?;
        }
        *left = left.saturating_sub(dirty);
        return Ok(None);
    }
    let middle = range.start + (length / 2).next_multiple_of(RANGE_BYTES_MIN);
    match write_range(file, range.start..middle.min(range.end), left)? {
        Some(end) => Ok(Some(end)),
        None => write_range(file, middle.min(range.end)..range.end, left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const BLOCK: u64 = 16 << 10;
    const FILE_BYTES: u64 = 64 << 20;

    /// A file with every other block dirty, or nothing where the kernel does not tell what is dirty or memory is the disk.
    fn file() -> Option<File> {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.set_len(FILE_BYTES).unwrap();
        file.sync_all().unwrap();
        (0..FILE_BYTES / BLOCK / 2).for_each(|n| file.write_all_at(&[7; BLOCK as usize], n * 2 * BLOCK).unwrap());
        match dirty_bytes(&file, 0..FILE_BYTES) {
            Ok(dirty) if dirty > FILE_BYTES / 4 => Some(file),
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
        assert!(end.abs_diff(2 * slice) <= RANGE_BYTES_MIN, "{end}");
        assert_eq!(dirty(0..end), 0);
        let after = dirty(0..FILE_BYTES);
        assert!(before - after >= slice - RANGE_BYTES_MIN, "{before} {after}");
        let next = write_slice(&file, end, slice).unwrap();
        assert!(next.abs_diff(end + 2 * slice) <= 2 * RANGE_BYTES_MIN, "{next}");
        assert_eq!(dirty(0..next), 0);
        // Round the end: what is dirty before the place is found too.
        file.write_all_at(&[8; BLOCK as usize], 0).unwrap();
        write_slice(&file, next, FILE_BYTES).unwrap();
        assert_eq!(dirty(0..FILE_BYTES), 0);
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_the_end_waits_for_the_rest() {
        let Some(file) = file() else { return };
        let file = Arc::new(file);
        let writeback = Writeback::start().unwrap();
        let taken = (0..100_000).filter(|&n| writeback.slice(FileId(n), file.clone(), FILE_BYTES)).count();
        assert!(taken >= SLICES_WAITING_MAX, "{taken}");
        drop(writeback);
        assert_eq!(dirty_bytes(&file, 0..FILE_BYTES), Ok(0));
        assert_eq!(Arc::strong_count(&file), 1);
    }
}
