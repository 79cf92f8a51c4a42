//! Compresses and decompresses a page of 4 KiB.
//!
//! **Rule.** The CRC-32C of the page, then its bytes as zstd makes them or as they are; of zeroes nothing. Which of the
//! two it is says the length: what zstd makes is kept only where it is smaller. The checksum is made when a page comes
//! and never again. So it covers all that happens to the page in memory, its compression too.
//!
//! **Complication.** zstd says neither that a page is not smaller nor that it could not be compressed but by an error.
//! So it gets as much room as it ever needs: then no error means the first, and each means the second.

use super::{Damaged, PAGE_BYTES};
use plimsoll_core::crc32c;
use std::cell::RefCell;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::ResetDirective;

/// Levels of zstd for a volume: 1 is the fastest ordinary level, 19 the best without more memory.
pub const COMPRESSION_LEVELS: RangeInclusive<u8> = 1..=19;
/// CRC-32C of the page, before its bytes.
const CHECKSUM_BYTES: usize = 4;
/// What is kept of a page that is kept as it is.
pub(super) const PLAIN_BYTES: usize = CHECKSUM_BYTES + PAGE_BYTES;
/// Most bytes that zstd makes of a page: `ZSTD_COMPRESSBOUND` of zstd.h, for less than 128 KiB.
const COMPRESSED_BYTES_MAX: usize = PAGE_BYTES + (PAGE_BYTES >> 8) + (((128 << 10) - PAGE_BYTES) >> 11);

/// zstd's tables, for one thread; some hundred KiB that are made once.
struct Codec {
    compressor: Compressor<'static>,
    level: u8,
    decompressor: Decompressor<'static>,
    /// A checksum, and what zstd makes of a page.
    buffer: [u8; CHECKSUM_BYTES + COMPRESSED_BYTES_MAX],
}

/// Compressing a page failed, for example for lack of memory for zstd's tables. (A page that does not get smaller is no
/// failure.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotCompressed;

impl Codec {
    fn new() -> io::Result<Codec> {
        let level = *COMPRESSION_LEVELS.start();
        let mut compressor = Compressor::new(level.into())?;
        // The page's own covers it.
        compressor.include_checksum(false)?;
        let buffer = [0; CHECKSUM_BYTES + COMPRESSED_BYTES_MAX];
        Ok(Codec { compressor, level, decompressor: Decompressor::new()?, buffer })
    }

    /// Sets the level for later pages. Tables of another size are made anew.
    fn set_level(&mut self, level: u8) -> Result<(), NotCompressed> {
        if self.level != level {
            // A page that could not be compressed has left it in the middle of a frame.
            self.compressor.context_mut().reset(ResetDirective::SessionOnly).map_err(|_| NotCompressed)?;
            self.compressor.set_compression_level(level.into()).map_err(|_| NotCompressed)?;
            self.level = level;
        }
        Ok(())
    }
}

thread_local! {
    static CODEC: RefCell<Option<Codec>> = const { RefCell::new(None) };
}

#[cfg(test)]
thread_local! {
    /// Nothing can be compressed on this thread.
    pub(super) static FAILS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn with_codec<T>(call: impl FnOnce(&mut Codec) -> T) -> io::Result<T> {
    CODEC.with_borrow_mut(|codec| {
        let codec = match codec {
            Some(codec) => codec,
            None => codec.insert(Codec::new()?),
        };
        Ok(call(codec))
    })
}

/// What is kept of `page` as it is.
pub(super) fn plain(page: &[u8; PAGE_BYTES]) -> Option<Arc<[u8]>> {
    if page == &[0; PAGE_BYTES] {
        return None;
    }
    let mut kept = [0; PLAIN_BYTES];
    kept[..CHECKSUM_BYTES].copy_from_slice(&crc32c(page).to_le_bytes());
    kept[CHECKSUM_BYTES..].copy_from_slice(page);
    Some(Arc::from(&kept[..]))
}

/// What is kept of `page`, compressed if that is smaller.
pub(super) fn packed(page: &[u8; PAGE_BYTES], level: u8) -> Result<Option<Arc<[u8]>>, NotCompressed> {
    let Some(plain) = plain(page) else { return Ok(None) };
    Ok(Some(smaller(&plain, level)?.unwrap_or(plain)))
}

/// Compresses the stored form of a page; `None` if that is not smaller, or compressed already.
pub(super) fn smaller(kept: &[u8], level: u8) -> Result<Option<Arc<[u8]>>, NotCompressed> {
    if kept.len() != PLAIN_BYTES {
        return Ok(None);
    }
    #[cfg(test)]
    if FAILS.get() {
        return Err(NotCompressed);
    }
    let (checksum, page) = kept.split_at(CHECKSUM_BYTES);
    let compressed = with_codec(|codec| {
        codec.set_level(level)?;
        let Codec { compressor, buffer, .. } = codec;
        let bytes = compressor.compress_to_buffer(page, &mut buffer[CHECKSUM_BYTES..]).map_err(|_| NotCompressed)?;
        buffer[..CHECKSUM_BYTES].copy_from_slice(checksum);
        Ok((bytes < PAGE_BYTES).then(|| Arc::from(&buffer[..CHECKSUM_BYTES + bytes])))
    });
    compressed.unwrap_or(Err(NotCompressed))
}

/// Puts the page that `kept` is of into `page`.
pub(super) fn unpack(kept: &[u8], page: &mut [u8; PAGE_BYTES]) -> Result<(), Damaged> {
    let (checksum, bytes) = kept.split_first_chunk::<CHECKSUM_BYTES>().ok_or(Damaged)?;
    if bytes.len() == PAGE_BYTES {
        page.copy_from_slice(bytes);
    } else {
        let unpacked = with_codec(|codec| codec.decompressor.decompress_to_buffer(bytes, &mut page[..]));
        let unpacked = unpacked.expect("memory for zstd's tables");
        if !matches!(unpacked, Ok(PAGE_BYTES)) {
            return Err(Damaged);
        }
    }
    if crc32c(page) == u32::from_le_bytes(*checksum) { Ok(()) } else { Err(Damaged) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::page;
    use super::*;

    #[test]
    fn what_compresses_takes_less_and_what_does_not_takes_a_checksum_more() {
        assert_eq!(zstd::zstd_safe::compress_bound(PAGE_BYTES), COMPRESSED_BYTES_MAX);
        let bytes = |kind| packed(&page(kind, 7), 1).unwrap().map_or(0, |kept| kept.len());
        assert_eq!((bytes(0), bytes(2)), (0, PLAIN_BYTES));
        assert!((10..200).contains(&bytes(1)), "{}", bytes(1));
    }

    /// Planted break: the checksum is not compared.
    /// Promise: compressed-damage.
    #[test]
    fn a_damaged_page_is_an_error_and_never_wrong_data() {
        for kind in [1, 2] {
            let kept = packed(&page(kind, 9), 1).unwrap().unwrap();
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

    /// What memory changes before a page is compressed is found when it is read. Planted break: the checksum is made
    /// anew.
    /// Promise: compressed-damage.
    #[test]
    fn the_checksum_covers_the_time_before_it_is_compressed() {
        let mut damaged = plain(&page(1, 9)).unwrap().to_vec();
        damaged[CHECKSUM_BYTES + 100] ^= 1;
        let kept = smaller(&damaged, 1).unwrap().unwrap();
        assert_eq!(unpack(&kept, &mut [0; PAGE_BYTES]), Err(Damaged));
    }
}
