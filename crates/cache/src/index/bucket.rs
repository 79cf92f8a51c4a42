//! A bucket of the index, and how its entries are compared.

/// Entries of a bucket: with the count they fill a cache line of 64 bytes.
pub(super) const ENTRIES: usize = 15;
/// No entry. No unit has this number: a cache has fewer units than the bits of its numbers can name.
pub(super) const EMPTY: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    pub entries: [u32; ENTRIES],
    /// Blocks that have this as their own bucket, or passed it on their way, and stand in a later bucket.
    pub passed: u32,
}

impl Bucket {
    /// A bucket without entries.
    pub const NEW: Bucket = Bucket { entries: [EMPTY; ENTRIES], passed: 0 };

    /// The places of the entries that are `wanted` where `mask` has ones.
    #[inline]
    pub fn matches(&self, mask: u32, wanted: u32) -> Places {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is no x86-64 without SSE2.
        return Places(unsafe { self.matches_at_once(mask, wanted) });
        #[cfg(not(target_arch = "x86_64"))]
        Places(self.matches_one_by_one(mask, wanted))
    }

    /// Compares all entries at once, without a branch, and the count with them. Sixteen words are four vectors. Left to
    /// itself the compiler makes three and a half of them, and gathers what they say word by word.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "sse2")]
    fn matches_at_once(&self, mask: u32, wanted: u32) -> u32 {
        use std::arch::x86_64::{
            _mm_and_si128, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi32,
            _mm_set1_epi32,
        };
        let Bucket { entries: e, passed } = self;
        let (mask, wanted) = (_mm_set1_epi32(mask as i32), _mm_set1_epi32(wanted as i32));
        let compare = |first: u32, second: u32, third: u32, fourth: u32| {
            let words = _mm_set_epi32(fourth as i32, third as i32, second as i32, first as i32);
            _mm_cmpeq_epi32(_mm_and_si128(words, mask), wanted)
        };
        let lower = _mm_packs_epi32(compare(e[0], e[1], e[2], e[3]), compare(e[4], e[5], e[6], e[7]));
        let upper = _mm_packs_epi32(compare(e[8], e[9], e[10], e[11]), compare(e[12], e[13], e[14], *passed));
        _mm_movemask_epi8(_mm_packs_epi16(lower, upper)) as u32 & ((1 << ENTRIES) - 1)
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn matches_one_by_one(&self, mask: u32, wanted: u32) -> u32 {
        let matched = |(place, entry): (usize, &u32)| u32::from(entry & mask == wanted) << place;
        self.entries.iter().enumerate().map(matched).sum()
    }
}

/// Places in a bucket, the lowest first: a bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places(u32);

impl Iterator for Places {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = (self.0 != 0).then(|| self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The count is no entry, though it is compared. Planted break that was seen red: it is taken for one.
        #[test]
        fn entries_compared_at_once_are_those_compared_one_by_one(
            entries in prop::array::uniform15(0u32..4), passed in 0u32..4, mask in 0u32..4, wanted in 0u32..4,
        ) {
            let bucket = Bucket { entries, passed };
            let places: Vec<_> = bucket.matches(mask, wanted).collect();
            let one_by_one = (0..ENTRIES).filter(|place| bucket.matches_one_by_one(mask, wanted) >> place & 1 == 1);
            prop_assert_eq!(&places, &one_by_one.collect::<Vec<_>>());
            let slow = (0..ENTRIES).filter(|&place| entries[place] & mask == wanted);
            prop_assert_eq!(&places, &slow.collect::<Vec<_>>());
        }
    }
}
