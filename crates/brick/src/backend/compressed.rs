//! A volume in memory whose pages are compressed: more fits, and what is read was checked.
//!
//! **Rule.** A page of 4 KiB is kept as zstd makes it, as it is where that is not smaller, and not at all if it is zero; with the CRC-32C of
//! what it was before. A read that finds another checksum is an error and never wrong data. **Complication.** It takes time of a
//! processor, some ten times what a copy takes, so service threads do it ([`work`](crate::engine)), several at a time. A page is taken
//! and put under a lock of its own, and compressed outside of it; blocks of the volume are pages, so nobody changes part of one.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use zstd::bulk::{Compressor, Decompressor};

/// Bytes of a page, and of a block of the volume.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Pages whose places are made together, at the first write to one of them: 2 MiB of the volume, 12 KiB of memory.
const CHUNK_PAGES: usize = 512;
/// zstd's level: its fastest ordinary one.
const LEVEL: i32 = 1;
/// CRC-32C of the page, before its bytes.
const CHECKSUM_BYTES: usize = 4;

/// What is kept of a page: the checksum, then its bytes; nothing for zeroes.
type Page = Mutex<Option<Arc<[u8]>>>;

/// Pages, compressed. Threads may read and write at the same time; of two writes to a page, one is there afterwards.
pub(crate) struct CompressedMemory {
    chunks: Box<[OnceLock<Box<[Page]>>]>,
    stored_bytes: AtomicU64,
}

/// A page whose content is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// zstd's tables, for one thread; some hundred KiB that are made once.
struct Codec {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
    /// A checksum, and what is smaller than a page.
    buffer: [u8; CHECKSUM_BYTES + PAGE_BYTES - 1],
}

impl Codec {
    fn new() -> io::Result<Codec> {
        let mut compressor = Compressor::new(LEVEL)?;
        // The page's own covers it.
        compressor.include_checksum(false)?;
        Ok(Codec { compressor, decompressor: Decompressor::new()?, buffer: [0; CHECKSUM_BYTES + PAGE_BYTES - 1] })
    }
}

thread_local! {
    static CODEC: RefCell<Option<Codec>> = const { RefCell::new(None) };
}

fn with_codec<T>(call: impl FnOnce(&mut Codec) -> T) -> T {
    CODEC.with_borrow_mut(|codec| call(codec.get_or_insert_with(|| Codec::new().expect("memory for zstd's tables"))))
}

fn lock(page: &Page) -> MutexGuard<'_, Option<Arc<[u8]>>> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is kept of `page`.
fn packed(page: &[u8; PAGE_BYTES]) -> Option<Arc<[u8]>> {
    if page == &[0; PAGE_BYTES] {
        return None;
    }
    let checksum = crc32c::crc32c(page).to_le_bytes();
    Some(with_codec(|codec| {
        let Codec { compressor, buffer, .. } = codec;
        match compressor.compress_to_buffer(page, &mut buffer[CHECKSUM_BYTES..]) {
            Ok(bytes) => {
                buffer[..CHECKSUM_BYTES].copy_from_slice(&checksum);
                Arc::from(&buffer[..CHECKSUM_BYTES + bytes])
            }
            // It does not get smaller.
            Err(_) => Arc::from([&checksum[..], page].concat()),
        }
    }))
}

/// Puts the page that `kept` is of into `page`.
fn unpack(kept: &[u8], page: &mut [u8; PAGE_BYTES]) -> Result<(), Damaged> {
    let (checksum, bytes) = kept.split_first_chunk::<CHECKSUM_BYTES>().ok_or(Damaged)?;
    if bytes.len() == PAGE_BYTES {
        page.copy_from_slice(bytes);
    } else {
        let unpacked = with_codec(|codec| codec.decompressor.decompress_to_buffer(bytes, &mut page[..]));
        if !matches!(unpacked, Ok(PAGE_BYTES)) {
            return Err(Damaged);
        }
    }
    if crc32c::crc32c(page) == u32::from_le_bytes(*checksum) { Ok(()) } else { Err(Damaged) }
}

impl CompressedMemory {
    /// A volume of `size_bytes`, a multiple of [`PAGE_BYTES`], all zeroes.
    pub(crate) fn new(size_bytes: u64) -> CompressedMemory {
        let pages = size_bytes / PAGE_BYTES as u64;
        let chunks = pages.div_ceil(CHUNK_PAGES as u64);
        CompressedMemory { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), stored_bytes: AtomicU64::new(0) }
    }

    /// Reads a page. O(1).
    pub(crate) fn read(&self, page: u64, target: &mut [u8; PAGE_BYTES]) -> Result<(), Damaged> {
        let chunk = self.chunks[page as usize / CHUNK_PAGES].get();
        let kept = chunk.and_then(|chunk| lock(&chunk[page as usize % CHUNK_PAGES]).clone());
        match kept {
            Some(kept) => unpack(&kept, target),
            None => {
                target.fill(0);
                Ok(())
            }
        }
    }

    /// Writes a page. O(1).
    pub(crate) fn write(&self, page: u64, source: &[u8; PAGE_BYTES]) {
        let packed = packed(source);
        let chunk = &self.chunks[page as usize / CHUNK_PAGES];
        if packed.is_none() && chunk.get().is_none() {
            return;
        }
        let chunk = chunk.get_or_init(|| (0..CHUNK_PAGES).map(|_| Page::default()).collect());
        self.put(&chunk[page as usize % CHUNK_PAGES], packed);
    }

    /// Makes pages zero. O(pages).
    pub(crate) fn zero(&self, first: u64, pages: u64) {
        for page in first as usize..(first + pages) as usize {
            if let Some(chunk) = self.chunks[page / CHUNK_PAGES].get() {
                self.put(&chunk[page % CHUNK_PAGES], None);
            }
        }
    }

    fn put(&self, page: &Page, packed: Option<Arc<[u8]>>) {
        let bytes = |kept: &Option<Arc<[u8]>>| kept.as_ref().map_or(0, |kept| kept.len() as u64);
        let new = bytes(&packed);
        let old = std::mem::replace(&mut *lock(page), packed);
        self.stored_bytes.fetch_add(new.wrapping_sub(bytes(&old)), Relaxed);
    }

    /// Bytes that its pages take, with their checksums. O(1).
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A page that compresses, one that does not, or zeroes.
    fn page(kind: u8, seed: u64) -> [u8; PAGE_BYTES] {
        let mut word = seed | 1;
        std::array::from_fn(|at| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            match kind {
                0 => 0,
                1 => (at as u8) & 7 | (seed as u8) << 3,
                _ => (word >> 56) as u8,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against a vector of pages. Planted breaks: what does not get smaller is not kept; zeroes are not put.
        #[test]
        fn pages_are_what_was_written_last(
            // Some pages often, so that they are written again.
            steps in prop::collection::vec((prop_oneof![0u64..4, 0u64..1200], 0u8..5, any::<u64>()), 1..80)
        ) {
            let memory = CompressedMemory::new(1200 * PAGE_BYTES as u64);
            let mut plain = vec![[0; PAGE_BYTES]; 1200];
            for (at, kind, seed) in steps {
                match kind {
                    4 => {
                        let pages = seed % (1200 - at).min(700);
                        memory.zero(at, pages);
                        plain[at as usize..(at + pages) as usize].fill([0; PAGE_BYTES]);
                    }
                    kind => {
                        plain[at as usize] = page(kind.min(2), seed);
                        memory.write(at, &plain[at as usize]);
                    }
                }
            }
            let mut read = [1; PAGE_BYTES];
            let mut stored = 0;
            for (at, expected) in plain.iter().enumerate() {
                prop_assert_eq!(memory.read(at as u64, &mut read), Ok(()));
                prop_assert!(&read == expected, "page {}", at);
                stored += packed(expected).map_or(0, |kept| kept.len() as u64);
            }
            prop_assert_eq!(memory.stored_bytes(), stored);
        }
    }

    #[test]
    fn what_compresses_takes_less_and_what_does_not_takes_a_checksum_more() {
        let bytes = |kind| packed(&page(kind, 7)).map_or(0, |kept| kept.len());
        assert_eq!((bytes(0), bytes(2)), (0, PAGE_BYTES + CHECKSUM_BYTES));
        assert!((10..200).contains(&bytes(1)), "{}", bytes(1));
    }

    /// Planted break: the checksum is not compared.
    #[test]
    fn a_damaged_page_is_an_error_and_never_wrong_data() {
        for kind in [1, 2] {
            let kept = packed(&page(kind, 9)).unwrap();
            let mut read = [0; PAGE_BYTES];
            for at in (0..kept.len()).step_by(kept.len() / 16) {
                let mut damaged = kept.to_vec();
                damaged[at] ^= 0x10;
                // A bit that says nothing may change: then the page is what it was.
                if unpack(&damaged, &mut read).is_ok() {
                    assert!(read == page(kind, 9), "kind {kind}, byte {at}");
                }
            }
            let mut flipped = kept.to_vec();
            flipped[0] ^= 1;
            assert_eq!(unpack(&flipped, &mut read), Err(Damaged), "kind {kind}");
            assert_eq!(unpack(&kept[..kept.len() - 1], &mut read), Err(Damaged), "kind {kind}");
        }
        assert_eq!(unpack(&[], &mut [0; PAGE_BYTES]), Err(Damaged));
    }
}
