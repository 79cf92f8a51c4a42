//! AES-256 in XTS mode (IEEE 1619-2007), as Linux's `aes-xts-plain64`. Sectors of 512 bytes are numbered from the
//! volume's start.
//!
//! **Rule.** A sector's number is encrypted with the key's second half and gives a *tweak*. Each block of 16 bytes is
//! combined with the tweak before and after it is encrypted with the first half. It has twice the tweak of the block
//! before it (in GF(2^128)). So equal content looks different in every place, and a sector is read and written without
//! any other. **Complication.** A processor encrypts several blocks at a time if it gets them together. One after the
//! other takes four to eight times as long. So all tweaks of a page come first, and its blocks go through the cipher at
//! once. The crate `xts-mode`, which takes one after the other, is the oracle.
//!
//! **A sector of zeroes is a hole.** What was never written, and what was trimmed, are zeroes in the file. They read as
//! zeroes instead of as what the cipher would make of them. Other bytes encrypt to 512 zeroes once in 2^4096 times.

use super::key::{KEY_BYTES, Key, KeyError};
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use std::path::Path;

/// Bytes of a sector, the unit that is encrypted by itself. Every request is made of whole ones.
pub const SECTOR_BYTES: usize = crate::backend::BLOCK_BYTES_MIN as usize;
/// Most that is encrypted at a time, bytes.
const PAGE_BYTES: usize = crate::backend::PAGE_BYTES;
const PAGE_SECTORS: usize = PAGE_BYTES / SECTOR_BYTES;
/// Bytes of a block of the cipher.
const BLOCK_BYTES: usize = 16;
const SECTOR_BLOCKS: usize = SECTOR_BYTES / BLOCK_BYTES;
/// x^128 in the field, without that term: x^7 + x^2 + x + 1.
const REDUCED: u128 = 0x87;

/// A key that can encrypt and decrypt. Dropping it wipes it (feature `zeroize` of `aes`). Any number of threads may use
/// it.
pub struct SectorCipher {
    blocks: Aes256,
    tweaks: Aes256,
}

/// Twice a tweak.
fn doubled(tweak: u128) -> u128 {
    (tweak << 1) ^ (if tweak >> 127 == 1 { REDUCED } else { 0 })
}

impl SectorCipher {
    pub(crate) fn new(key: &Key) -> SectorCipher {
        let (first, second) = key.halves();
        let of = |half: &[u8; KEY_BYTES / 2]| Aes256::new(half.into());
        SectorCipher { blocks: of(first), tweaks: of(second) }
    }

    /// The cipher with the key in a file.
    ///
    /// # Errors
    /// The file holds no key, or other users may read it.
    pub fn of_key_file(path: &Path) -> Result<SectorCipher, KeyError> {
        Ok(SectorCipher::new(&Key::read(path)?))
    }

    /// Encrypts at most a page of whole sectors, of which the first has this number. O(1).
    ///
    /// # Panics
    /// If it is more, or not whole ones.
    pub fn encrypt(&self, sector: u64, bytes: &mut [u8]) {
        self.between_tweaks(sector, bytes, |cipher, blocks| cipher.encrypt_blocks(blocks));
    }

    /// Decrypts likewise; sectors of zeroes stay what they are. O(1).
    ///
    /// # Panics
    /// As for [`encrypt`](Self::encrypt).
    pub fn decrypt(&self, sector: u64, bytes: &mut [u8]) {
        let is_hole = |sector: &[u8]| {
            let (blocks, _) = sector.as_chunks::<BLOCK_BYTES>();
            blocks.iter().all(|block| u128::from_ne_bytes(*block) == 0)
        };
        let mut holes = [true; PAGE_SECTORS];
        for (hole, sector) in holes.iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
            *hole = is_hole(sector);
        }
        if holes == [true; PAGE_SECTORS] {
            return;
        }
        self.between_tweaks(sector, bytes, |cipher, blocks| cipher.decrypt_blocks(blocks));
        for (_, sector) in holes.iter().zip(bytes.chunks_exact_mut(SECTOR_BYTES)).filter(|(hole, _)| **hole) {
            sector.fill(0);
        }
    }

    fn between_tweaks(&self, sector: u64, bytes: &mut [u8], cross: impl FnOnce(&Aes256, &mut [Block])) {
        assert!(bytes.len().is_multiple_of(SECTOR_BYTES) && bytes.len() <= PAGE_BYTES, "{} bytes", bytes.len());
        let sectors = bytes.len() / SECTOR_BYTES;
        let mut firsts = [Block::default(); PAGE_SECTORS];
        for (number, first) in (sector..).zip(&mut firsts[..sectors]) {
            first[..8].copy_from_slice(&number.to_le_bytes());
        }
        self.tweaks.encrypt_blocks(&mut firsts[..sectors]);
        let mut tweaks = [0_u128; PAGE_SECTORS * SECTOR_BLOCKS];
        for (tweaks, first) in tweaks.chunks_exact_mut(SECTOR_BLOCKS).zip(&firsts[..sectors]) {
            let mut tweak = u128::from_le_bytes((*first).into());
            for of_block in tweaks {
                *of_block = tweak;
                tweak = doubled(tweak);
            }
        }
        let (blocks, _) = Block::slice_as_chunks_mut(bytes);
        combine(blocks, &tweaks);
        cross(&self.blocks, blocks);
        combine(blocks, &tweaks);
    }
}

fn combine(blocks: &mut [Block], tweaks: &[u128]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        *block = (u128::from_le_bytes((*block).into()) ^ tweak).to_le_bytes().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xts_mode::{Xts128, get_tweak_default};

    fn bytes_of(hex: &str) -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    /// IEEE 1619-2007, annex B, vectors 10 to 14: one key of 512 bits, the bytes 0 to 255 twice, and five numbers of
    /// sectors. Here are the first and the last 32 bytes of each. Planted break: the halves of the key are taken for
    /// each other.
    /// Promise: encrypted-format.
    #[test]
    fn the_standards_own_vectors_come_out() {
        const KEY: &str = "2718281828459045235360287471352662497757247093699959574966967627\
                           3141592653589793238462643383279502884197169399375105820974944592";
        const VECTORS: [(u64, &str, &str); 5] = [
            (
                0xff,
                "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b",
                "773dad38014bd2092fa755c824bb5e54c4f36ffda9fcea70b9c6e693e148c151",
            ),
            (
                0xffff,
                "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11",
                "54fbff89eeaeea791f4a7ab1f9868294a4f9e27b42af8100cb9d59cef9645803",
            ),
            (
                0xff_ffff,
                "e387aaa58ba483afa7e8eb469778317ecf4cf573aa9d4eac23f2cdf914e4e200",
                "ed242c8900dd1fa965bc950dfce09b132263a1eef52dd6888c309f5a7d712826",
            ),
            (
                0xffff_ffff,
                "bf53d2dade78e822a4d949a9bc6766b01b06a8ef70d26748c6a7fc36d80ae4c5",
                "f6516139420fcff3b7361d86322c4bd84c82f335abb152c4a93411373aaa8220",
            ),
            (
                0xff_ffff_ffff,
                "64497e5a831e4a932c09be3e5393376daa599548b816031d224bbf50a818ed23",
                "6975be5e0b4efce51cd3e70c25a1fbbbd609d273ad5b0d59631c531f6a0a57b9",
            ),
        ];
        let cipher = SectorCipher::new(&Key::of(bytes_of(KEY).try_into().unwrap()));
        let plain: Vec<u8> = (0..=255).chain(0..=255).collect();
        for (number, first, last) in VECTORS {
            let mut bytes = plain.clone();
            cipher.encrypt(number, &mut bytes);
            assert_eq!(bytes[..32], bytes_of(first), "{number:x}");
            assert_eq!(bytes[512 - 32..], bytes_of(last), "{number:x}");
            cipher.decrypt(number, &mut bytes);
            assert_eq!(bytes, plain);
        }
    }

    fn oracle(key: &[u8; KEY_BYTES]) -> Xts128<Aes256> {
        let (first, second) = key.split_at(KEY_BYTES / 2);
        Xts128::new(Aes256::new_from_slice(first).unwrap(), Aes256::new_from_slice(second).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// Planted breaks: sectors of a page have one tweak; a tweak's lost bit is not put back in; the number's upper
        /// half is lost.
        /// Promise: encrypted-format.
        #[test]
        fn it_is_what_one_block_after_the_other_gives(
            key in prop::array::uniform32(any::<u8>()),
            sector in any::<u64>(),
            plain in (1..=PAGE_SECTORS).prop_flat_map(|sectors| prop::collection::vec(any::<u8>(), sectors * SECTOR_BYTES)),
        ) {
            let sector = sector >> 4;
            let whole: [u8; KEY_BYTES] = std::array::from_fn(|at| key[at % 32].wrapping_add((at / 32) as u8));
            let cipher = SectorCipher::new(&Key::of(whole));
            let (mut bytes, mut expected) = (plain.clone(), plain.clone());
            cipher.encrypt(sector, &mut bytes);
            oracle(&whole).encrypt_area(&mut expected, SECTOR_BYTES, sector.into(), get_tweak_default);
            prop_assert!(bytes == expected);
            cipher.decrypt(sector, &mut bytes);
            prop_assert!(bytes == plain);
        }

        /// Planted break: a page with a hole is all hole.
        /// Promise: encrypted-holes.
        #[test]
        fn a_sector_of_zeroes_is_a_hole_and_zeroes_that_are_written_are_none(holes in prop::array::uniform8(any::<bool>())) {
            let cipher = SectorCipher::new(&Key::of(std::array::from_fn(|at| at as u8)));
            let mut bytes = [0; PAGE_BYTES];
            cipher.encrypt(7, &mut bytes);
            for (hole, sector) in holes.iter().zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
                prop_assert!(sector.iter().any(|&byte| byte != 0));
                sector.fill(if *hole { 0 } else { 1 });
            }
            let stored = bytes;
            cipher.decrypt(7, &mut bytes);
            for ((hole, sector), before) in holes.iter().zip(bytes.chunks_exact(SECTOR_BYTES)).zip(stored.chunks_exact(SECTOR_BYTES)) {
                prop_assert_eq!(sector.iter().all(|&byte| byte == 0), *hole);
                prop_assert!(*hole || sector != before);
            }
        }
    }
}
