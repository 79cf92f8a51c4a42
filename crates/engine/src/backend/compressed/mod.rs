//! A volume in memory with compressed pages: more fits, and what is read was checked.
//!
//! **Rule.** A page of 4 KiB is kept compressed by zstd, or as it is if that is not smaller. A page of zeroes is not
//! kept at all. The CRC-32C of what it was before is kept with it. A read that finds another checksum is an error and
//! never wrong data. **Complication.** It takes time of a processor, some ten times what a copy takes, so service
//! threads do it (`work`), several at a time. A page is taken and put under a lock of its own, and compressed outside
//! of it. Blocks of the volume are pages, so no write changes part of one.
//!
//! A write may leave it to a service thread ([`backlog`]). Then the page is kept as it is, and what that thread makes
//! of it is put in its place if it is there still.

mod backlog;
mod codec;
#[cfg(test)]
mod tests;

pub(crate) use backlog::Compressing;
pub use codec::COMPRESSION_LEVELS;
pub(crate) use codec::NotCompressed;

use backlog::Backlog;
use codec::{packed, plain, smaller, unpack};
use std::collections::TryReserveError;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes of a page, and of a block of the volume.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages that get their places together, at the first write to one of them: 2 MiB of the volume. The places take 16 KiB
/// of memory.
const CHUNK_PAGES: usize = 512;

/// What is kept of a page.
#[derive(Default)]
struct CompressedPage {
    /// See [`codec`]; nothing for zeroes.
    kept: Option<Arc<[u8]>>,
    is_in_backlog: bool,
}

/// Pages that got their places together.
type Chunk = Box<[Mutex<CompressedPage>]>;

/// Pages, compressed. Threads may read and write at the same time; of two writes to a page, one is there afterwards.
pub struct CompressedMemory {
    chunks: Box<[OnceLock<Chunk>]>,
    stored_bytes: AtomicU64,
    /// Pages that were compressed after their write was answered, and before.
    compressed_behind: AtomicU64,
    compressed_by_writers: AtomicU64,
    level: u8,
    backlog: Backlog,
    /// A page could not be compressed, and the log says so.
    has_failed: AtomicBool,
}

/// What the work that compresses the backlog found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompressionStep {
    Nothing,
    Page,
    /// A page that could not be compressed; it is in the backlog again.
    Failure,
}

/// A page with other content than what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

fn lock(page: &Mutex<CompressedPage>) -> MutexGuard<'_, CompressedPage> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CompressedMemory {
    /// A volume of `size_bytes`, a multiple of [`PAGE_BYTES`], all zeroes; `level` is one of [`COMPRESSION_LEVELS`].
    ///
    /// # Errors
    /// There is not even memory for the places of its chunks, 16 bytes for 2 MiB.
    pub(crate) fn new(size_bytes: u64, level: u8) -> Result<CompressedMemory, TryReserveError> {
        let pages = size_bytes / PAGE_BYTES as u64;
        let count = pages.div_ceil(CHUNK_PAGES as u64);
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(usize::try_from(count).unwrap_or(usize::MAX))?;
        chunks.extend((0..count).map(|_| OnceLock::new()));
        let chunks = chunks.into_boxed_slice();
        let [stored_bytes, compressed_behind, compressed_by_writers] = [const { AtomicU64::new(0) }; 3];
        let (backlog, has_failed) = (Backlog::new(pages), AtomicBool::new(false));
        Ok(CompressedMemory {
            chunks,
            stored_bytes,
            compressed_behind,
            compressed_by_writers,
            level,
            backlog,
            has_failed,
        })
    }

    /// The place of a page, if any of its chunk was written.
    fn place(&self, page: u64) -> Option<&Mutex<CompressedPage>> {
        let chunk = self.chunks[page as usize / CHUNK_PAGES].get()?;
        Some(&chunk[page as usize % CHUNK_PAGES])
    }

    fn made_place(&self, page: u64) -> &Mutex<CompressedPage> {
        let chunk = &self.chunks[page as usize / CHUNK_PAGES];
        &chunk.get_or_init(|| (0..CHUNK_PAGES).map(|_| Mutex::default()).collect())[page as usize % CHUNK_PAGES]
    }

    /// Holds up each thread that comes to a page, until what is given is dropped. For tests, also of other crates.
    #[doc(hidden)]
    pub fn hold(&self, page: u64) -> impl Sized + '_ {
        lock(self.made_place(page))
    }

    fn kept(&self, page: u64) -> Option<Arc<[u8]>> {
        lock(self.place(page)?).kept.clone()
    }

    /// Reads a page. O(1).
    pub(crate) fn read(&self, page: u64, target: &mut [u8; PAGE_BYTES]) -> Result<(), Damaged> {
        match self.kept(page) {
            Some(kept) => unpack(&kept, target),
            None => {
                target.fill(0);
                Ok(())
            }
        }
    }

    /// Writes a page, compressed. If it could not be, it is not written: kept as it is it would be beyond what the
    /// backlog may be. O(1).
    pub(crate) fn write(&self, page: u64, source: &[u8; PAGE_BYTES]) -> Result<(), NotCompressed> {
        match packed(source, self.level).inspect_err(|_| self.say_failed())? {
            None => self.zero(page, 1),
            packed => self.put(&mut lock(self.made_place(page)), packed),
        }
        Ok(())
    }

    /// Once a volume: what fails may fail for every page.
    fn say_failed(&self) {
        if !self.has_failed.swap(true, Relaxed) {
            tracing::error!("a page of a compressed volume could not be compressed; while that is so, writes may fail");
        }
    }

    /// Writes a page uncompressed. The caller then has to begin a [`Compressing`], which compresses it. If too much is
    /// left to it already, does as [`write`](Self::write) does. O(1).
    pub(crate) fn write_behind(&self, page: u64, source: &[u8; PAGE_BYTES]) -> Result<(), NotCompressed> {
        let Some(plain) = plain(source) else {
            self.zero(page, 1);
            return Ok(());
        };
        let mut place = lock(self.made_place(page));
        if !place.is_in_backlog {
            if self.backlog.pays() || !self.backlog.put(page) {
                drop(place);
                self.write(page, source)?;
                self.compressed_by_writers.fetch_add(1, Relaxed);
                return Ok(());
            }
            place.is_in_backlog = true;
        }
        self.put(&mut place, Some(plain));
        Ok(())
    }

    /// Compresses the page that is in the backlog for longest.
    fn compress_one(&self) -> CompressionStep {
        let Some(page) = self.backlog.take() else { return CompressionStep::Nothing };
        if let Some(snapshot) = self.leave_backlog(page) {
            match smaller(&snapshot, self.level) {
                Ok(Some(smaller)) => self.put_instead(page, &snapshot, smaller),
                Ok(None) => {}
                Err(NotCompressed) => {
                    self.say_failed();
                    self.come_back(page, &snapshot);
                    return CompressionStep::Failure;
                }
            }
        }
        self.backlog.leave_place();
        self.compressed_behind.fetch_add(1, Relaxed);
        CompressionStep::Page
    }

    /// Compressing a page failed. It goes back into the backlog, unless a write has replaced it.
    fn come_back(&self, page: u64, snapshot: &Arc<[u8]>) {
        let mut place = lock(self.made_place(page));
        let is_as_it_was = place.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, snapshot));
        if is_as_it_was && !place.is_in_backlog {
            place.is_in_backlog = true;
            self.backlog.put_back(page);
        } else {
            self.backlog.leave_place();
        }
    }

    /// The stored form of a page. A later write puts the page into the backlog again.
    fn leave_backlog(&self, page: u64) -> Option<Arc<[u8]>> {
        let mut place = lock(self.place(page)?);
        place.is_in_backlog = false;
        place.kept.clone()
    }

    /// Puts `smaller` where `snapshot` was, unless the page was written since.
    fn put_instead(&self, page: u64, snapshot: &Arc<[u8]>, smaller: Arc<[u8]>) {
        let mut place = lock(self.made_place(page));
        if place.kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, snapshot)) {
            self.put(&mut place, Some(smaller));
        }
    }

    /// Makes pages zero. O(pages).
    pub(crate) fn zero(&self, first: u64, pages: u64) {
        (first..first + pages).filter_map(|page| self.place(page)).for_each(|place| self.put(&mut lock(place), None));
    }

    fn put(&self, place: &mut CompressedPage, kept: Option<Arc<[u8]>>) {
        let bytes = |kept: &Option<Arc<[u8]>>| kept.as_ref().map_or(0, |kept| kept.len() as u64);
        let new = bytes(&kept);
        let old = std::mem::replace(&mut place.kept, kept);
        self.stored_bytes.fetch_add(new.wrapping_sub(bytes(&old)), Relaxed);
    }

    /// Bytes that its pages take, with their checksums. O(1).
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Relaxed)
    }

    /// Bytes of the volume's pages that are in the backlog. O(1).
    pub(crate) fn backlog_bytes(&self) -> u64 {
        (self.backlog.pages() * PAGE_BYTES) as u64
    }

    /// Bytes of the volume that were compressed after they were answered. O(1).
    pub(crate) fn compressed_behind_bytes(&self) -> u64 {
        self.compressed_behind.load(Relaxed) * PAGE_BYTES as u64
    }

    /// Bytes of the volume that [`write_behind`](Self::write_behind) compressed at once. O(1).
    pub(crate) fn compressed_by_writers_bytes(&self) -> u64 {
        self.compressed_by_writers.load(Relaxed) * PAGE_BYTES as u64
    }
}
