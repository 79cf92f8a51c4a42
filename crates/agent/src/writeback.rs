//! Starting writeback of a file in slices, for schedulers that bring down the cost of an fsync before they let it go
//! (split-level paper, section 5.2).
//!
//! A slice is so many *dirty* bytes, wherever in the file they are. The kernel takes ranges: cachestat(2) tells how many
//! bytes of a range are dirty. So a file is gone through in ranges, from where the slice before ended, round and round: one
//! that has no more dirty bytes than are left of the slice is given to sync_file_range(2), and the next is twice as long; one
//! that has more is halved, down to a page. That takes O(pages passed + log file), not the whole file's. Where a folio is larger than
//! a page all of it counts as dirty. Before Linux 6.5 nobody tells, and ranges of 1.25 MiB count in full.
//!
//! It may wait for a full queue of the device, so a thread of its own does it, one slice after the other. There is room for
//! [`SLICES_WAITING_MAX`] that wait; more are left out: whoever wished for them will wish again.

mod system;

use plimsoll_core::FileId;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use system::{PAGE_BYTES, dirty_bytes, start_writeback};

/// Slices that wait for the thread at the most.
pub const SLICES_WAITING_MAX: usize = 256;
/// The first range of a slice, and the least where nobody tells what is dirty, bytes: the largest write that the block layer makes
/// by default (`max_sectors_kb`).
const RANGE_BYTES: u64 = 1280 << 10;
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
    for part in [from..length, 0..from] {
        let (mut place, mut range_bytes) = (part.start, RANGE_BYTES);
        while place < part.end {
            if left == 0 {
                return Ok(place);
            }
            let range = place..part.end.min(place + range_bytes);
            let length = range.end - range.start;
            let (dirty, length_min) = match dirty_bytes(file, range.clone()) {
                Err(Errno::NOSYS) => (length, RANGE_BYTES),
                told => (told?, PAGE_BYTES),
            };
            if dirty > left && length > length_min {
                // All of it is dirty: then so is as much of it as is left.
                let shorter = if dirty >= length { left.min(length - 1) } else { length / 2 };
                range_bytes = (shorter - shorter % PAGE_BYTES).max(length_min);
                continue;
            }
            place = range.end;
            if dirty > 0 {
                start_writeback(file, range)?;
            }
            left = left.saturating_sub(dirty);
            range_bytes = range_bytes.saturating_mul(2);
        }
    }
    Ok(from)
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
        assert!(end.abs_diff(2 * slice) <= RANGE_BYTES, "{end}");
        assert_eq!(dirty(0..end), 0);
        let after = dirty(0..FILE_BYTES);
        assert!(before - after >= slice - RANGE_BYTES, "{before} {after}");
        let next = write_slice(&file, end, slice).unwrap();
        assert!(next.abs_diff(end + 2 * slice) <= 2 * RANGE_BYTES, "{next}");
        assert_eq!(dirty(0..next), 0);
        // Round the end: what is dirty before the place is found too.
        file.write_all_at(&[8; BLOCK as usize], 0).unwrap();
        write_slice(&file, next, FILE_BYTES).unwrap();
        assert_eq!(dirty(0..FILE_BYTES), 0);
    }

    /// What goes beyond a slice, an fsync that was promised to be done waits for.
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
