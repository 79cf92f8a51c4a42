//! Pages of the map: what each unit held when the page was made.
//!
//! A page has two slots. A snapshot writes the pages that have changed into the slot that does not hold. Only when all
//! of them are on the device does the superblock say that they hold. So a page is never overwritten while it is needed,
//! and a snapshot writes what has changed and no more.
//!
//! ```text
//!   byte     0 uuid
//!           16 generation
//!           24 page
//!           28 (reserved)
//!           32 sequence
//!           40 the entries, 10 bytes each
//!         4092 checksum
//!
//!   entry:   bit 79 | checksum of the unit: 24 bits | block: 36, all ones: none | class: 5 | pool: 9
//!                   | dirty | again | age: 4
//! ```

use super::bytes::{BLOCK_BYTES, Block, BlockKind, get, get_u32, get_u64, put, seal, sealed};
use crate::units::{BLOCKS_MAX, Pool};
use plimsoll_core::Class;

const ENTRIES_AT: usize = 40;
const ENTRY_BYTES: usize = 10;
/// Entries of a page.
pub const ENTRIES: usize = (BLOCK_BYTES - ENTRIES_AT - 4) / ENTRY_BYTES;
/// Ages that an entry can say.
pub const AGES: u8 = 16;
const NO_BLOCK: u64 = BLOCKS_MAX - 1;

/// What a unit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The block.
    pub block: u64,
    /// What it is.
    pub class: Class,
    /// The pool that it belongs to.
    pub pool: Pool,
    /// Whether the store lacks it.
    pub is_dirty: bool,
    /// Whether a policy has seen it used again.
    pub is_again: bool,
    /// How long ago it was put in order, 0 (just now) to [`AGES`] - 1.
    pub age: u8,
    /// The checksum of the data, 24 bits.
    pub checksum: u32,
}

/// A page's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageHead {
    /// The snapshot that it belongs to.
    pub generation: u64,
    /// The number of the page.
    pub page: u32,
    /// The block of the journal that was open when it was made.
    pub sequence: u64,
}

/// Writes a page. `entry` gives the content of a unit, by its index in the page.
pub fn encode(block: &mut Block, uuid: &[u8; 16], head: PageHead, mut entry: impl FnMut(usize) -> Option<Entry>) {
    block.fill(0);
    put(block, 0, uuid);
    put(block, 16, &head.generation.to_le_bytes());
    put(block, 24, &head.page.to_le_bytes());
    put(block, 32, &head.sequence.to_le_bytes());
    for at in 0..ENTRIES {
        let word = entry(at).map_or(u128::from(NO_BLOCK) << 20, |entry| {
            u128::from(entry.checksum) << 56
                | u128::from(entry.block) << 20
                | u128::from(entry.class.number()) << 15
                | u128::from(entry.pool.number()) << 6
                | u128::from(entry.is_dirty) << 5
                | u128::from(entry.is_again) << 4
                | u128::from(entry.age)
        });
        put(block, ENTRIES_AT + at * ENTRY_BYTES, &word.to_le_bytes()[..ENTRY_BYTES]);
    }
    seal(block, BlockKind::Map);
}

/// The head of `block`, if it is a whole page of the map of cache `uuid`.
pub fn head(block: &Block, uuid: &[u8; 16]) -> Option<PageHead> {
    if get::<16>(block, 0) != *uuid {
        return None;
    }
    sealed(block, BlockKind::Map)?;
    Some(PageHead { generation: get_u64(block, 16), page: get_u32(block, 24), sequence: get_u64(block, 32) })
}

/// What each unit of a whole page holds.
pub fn entries(block: &Block) -> impl Iterator<Item = Option<Entry>> + '_ {
    block[ENTRIES_AT..ENTRIES_AT + ENTRIES * ENTRY_BYTES].chunks_exact(ENTRY_BYTES).map(|bytes| {
        let low = get_u64(bytes, 0);
        let high = u64::from(bytes[8]) | u64::from(bytes[9]) << 8;
        let number = (low >> 20) & (BLOCKS_MAX - 1);
        (number != NO_BLOCK).then(|| Entry {
            block: number,
            class: Class::new((low >> 15) as u8 & 31).expect("five bits"),
            pool: Pool::new((low >> 6) as u16 & 511).expect("nine bits"),
            is_dirty: low >> 5 & 1 == 1,
            is_again: low >> 4 & 1 == 1,
            age: low as u8 & (AGES - 1),
            checksum: (high << 8 | low >> 56) as u32 & 0x00ff_ffff,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Option<Entry>> {
        let fields = (0u64..NO_BLOCK, 0u8..32, 0u16..512, any::<(bool, bool)>(), 0u8..AGES, 0u32..1 << 24);
        prop::option::of(fields.prop_map(|(block, class, pool, (is_dirty, is_again), age, checksum)| Entry {
            block,
            class: Class::new(class).unwrap(),
            pool: Pool::new(pool).unwrap(),
            is_dirty,
            is_again,
            age,
            checksum,
        }))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_a_changed_bit_is_noticed(
            entries in prop::collection::vec(entry(), ENTRIES), uuid in any::<[u8; 16]>(), generation in any::<u64>(),
            page in any::<u32>(), sequence in any::<u64>(), bit in 0..BLOCK_BYTES * 8,
        ) {
            let mut block = [7; BLOCK_BYTES];
            let written = PageHead { generation, page, sequence };
            encode(&mut block, &uuid, written, |at| entries[at]);
            prop_assert_eq!(head(&block, &uuid), Some(written));
            prop_assert_eq!(super::entries(&block).collect::<Vec<_>>(), entries);
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(head(&block, &uuid), None);
        }
    }
}
