//! Starts writeback of a file in slices, for schedulers that lower the cost of an fsync before they release it
//! (split-level paper, section 5.2).
//!
//! A slice is so many *dirty* bytes, wherever in the file they are. The kernel takes ranges: cachestat(2) tells how
//! many bytes of a range are dirty. So a file is gone through in ranges, from where the slice before ended, round and
//! round. A range that has no more dirty bytes than are left of the slice is given to sync_file_range(2), and the next
//! is twice as long. A range that has more is halved, down to a page. A slice takes O(pages passed + log file), not
//! O(file). Where a folio is larger than a page all of it counts as dirty. Before Linux 6.5 the kernel does not tell,
//! and ranges of 1.25 MiB count in full.
//!
//! **A thread of its own does it**, one slice after the other. Starting a write may wait for a full queue of the
//! device; opening and closing the file may wait for the disk ([`crate::files`]). So the [`Files`] are that thread's,
//! and a caller says no more than which file and how much:
//!
//! ```text
//!   an engine's thread   Slices::ask       -> never waits    \
//!   control threads      Mounts::mounted   -> is answered     > the thread: opens, writes, keeps for a while, closes
//!                        Writeback's drop  -> waits for it   /
//! ```
//!
//! An engine may serve the volume that the files lie on. It neither waits for the thread nor ends it, and holds nothing
//! that needs the disk to be dropped. There is room for [`SLICES_WAITING_MAX`] slices that wait; more are left out: the
//! scheduler that wished for them will wish again.

mod system;

use crate::error::AgentError;
use crate::files::{Files, KEPT_FOR};
use plimsoll_core::FileId;
use plimsoll_gates::clock::monotonic_now;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use system::{PAGE_BYTES, dirty_bytes, start_writeback};

/// Slices that wait for the thread at the most.
pub const SLICES_WAITING_MAX: usize = 256;
/// Bytes of a slice's first range, and of the least one if the kernel does not tell what is dirty. It is the largest
/// write of the block layer by default (`max_sectors_kb`).
const RANGE_BYTES: u64 = 1280 << 10;
/// Files with a remembered place.
const PLACES_MAX: usize = 4096;

/// What the thread is told. None of it is open: a drop of a message that no thread takes any more waits for nothing.
enum Message {
    Mounted {
        mount_point: PathBuf,
        answer: SyncSender<std::io::Result<()>>,
    },
    Slice {
        file: FileId,
        bytes_max: u64,
    },
    /// Look whether it is over.
    Wake,
}

/// The thread that starts writeback, as the thread that ends it sees it. It is not the thread that serves the disk.
/// Dropping this waits for at most the slice under way. Then no file is open any more, and the file system can be
/// unmounted.
pub struct Writeback {
    messages: SyncSender<Message>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Where slices are asked for. Never waits, also when it is dropped. Clones are cheap.
#[derive(Clone)]
pub struct Slices(SyncSender<Message>);

/// The sender for news of mounts. Clones are cheap.
#[derive(Clone)]
pub struct Mounts(SyncSender<Message>);

impl Writeback {
    /// Starts the thread, which knows of no file system yet.
    ///
    /// # Errors
    /// There is no room for another thread.
    pub fn start() -> std::io::Result<Writeback> {
        let (messages, received) = sync_channel(SLICES_WAITING_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_seen = is_over.clone();
        let thread = std::thread::Builder::new().name("writeback".to_owned());
        let thread = thread.spawn(move || Work::default().run(&received, &is_over_seen))?;
        Ok(Writeback { messages, is_over, thread: Some(thread) })
    }

    /// For the thread of an engine.
    pub fn slices(&self) -> Slices {
        Slices(self.messages.clone())
    }

    /// For threads that may wait.
    pub fn mounts(&self) -> Mounts {
        Mounts(self.messages.clone())
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // An error says that it has ended already.
        let _ = self.messages.send(Message::Wake);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Slices {
    /// Requests writing `bytes_max` dirty bytes of a file, or all if there are fewer. Never waits; says whether there
    /// was room for it.
    pub fn ask(&self, file: FileId, bytes_max: u64) -> bool {
        self.0.try_send(Message::Slice { file, bytes_max }).is_ok()
    }
}

impl Mounts {
    /// Files are looked up in the file system at `mount_point` from now on. Waits for the slices before it.
    ///
    /// # Errors
    /// The mount point cannot be opened, or the thread has ended.
    pub fn mounted(&self, mount_point: &Path) -> Result<(), AgentError> {
        let (answer, answered) = sync_channel(1);
        let message = Message::Mounted { mount_point: mount_point.to_owned(), answer };
        self.0.send(message).map_err(|_| AgentError::Gone)?;
        let opened = answered.recv().map_err(|_| AgentError::Gone)?;
        opened.map_err(|source| AgentError::System { action: "open the mount point", source })
    }
}

/// What the thread has.
#[derive(Default)]
struct Work {
    files: Option<Files>,
    /// Where the slice before ended, by file.
    places: BTreeMap<FileId, u64>,
}

impl Work {
    fn run(&mut self, messages: &Receiver<Message>, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let has_kept = self.files.as_ref().is_some_and(Files::has_kept);
            let next = match has_kept {
                true => messages.recv_timeout(KEPT_FOR.into()),
                false => messages.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok(Message::Mounted { mount_point, answer }) => {
                    let opened = Files::of(&mount_point).map(|files| self.files = Some(files));
                    self.places.clear();
                    // The caller may have given up.
                    let _ = answer.send(opened);
                }
                Ok(Message::Slice { file, bytes_max }) => self.slice(file, bytes_max),
                Ok(Message::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.files.iter_mut().for_each(|files| files.close_old(monotonic_now()));
        }
    }

    fn slice(&mut self, id: FileId, bytes_max: u64) {
        let files = self.files.as_mut();
        let Some(file) = files.and_then(|files| files.find(monotonic_now(), id)) else { return };
        let from = self.places.get(&id).copied().unwrap_or(0);
        match write_slice(file, from, bytes_max) {
            Ok(end) => {
                if self.places.len() >= PLACES_MAX {
                    self.places.clear();
                }
                self.places.insert(id, end);
            }
            // The fsync that follows will say so to its caller.
            Err(errno) => tracing::warn!(inode = id.0, %errno, "cannot start writeback of a file"),
        }
    }
}

/// Writes up to `bytes_max` dirty bytes, from `from` to the end and again from the start. Answers with where it ended.
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
mod tests;
