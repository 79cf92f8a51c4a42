//! Blocks of the journal: what changed, in order.
//!
//! Each block names the cache, its own number and the checksum of the block before it. So no other block can be taken
//! for the next one: neither its predecessor in the ring, nor the block of another cache.
//!
//! ```text
//!   byte     0 uuid
//!           16 sequence
//!           24 checksum of the block before
//!           28 number of records
//!           32 the records, 16 bytes each
//!         4092 checksum
//!
//!   record, first word:   bit 63 | block: 36 bits | class: 5 | pool: 9 | kind: 2 | (12 reserved)
//!           second word:  bit 63 | unit: 27 bits | checksum of the unit: 24 | (13 reserved)
//! ```

use super::bytes::{BLOCK_BYTES, Block, BlockKind, get, get_u32, get_u64, put, seal, sealed};
use crate::units::{Pool, UnitId};
use plimsoll_core::Class;

const RECORDS_AT: usize = 32;
const RECORD_BYTES: usize = 16;
/// Records of a block.
pub const RECORDS: usize = (BLOCK_BYTES - RECORDS_AT - 4) / RECORD_BYTES;

/// What a record says of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The unit holds the block, and the store lacks this version. The block's previous unit is free.
    Dirty,
    /// The unit holds the block, as the store does.
    Clean,
    /// The unit holds nothing.
    Invalid,
}

const CHANGES: [Change; 3] = [Change::Dirty, Change::Clean, Change::Invalid];

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub change: Change,
    /// The block that the unit holds, or held.
    pub block: u64,
    /// What the block is.
    pub class: Class,
    /// The pool that it belongs to.
    pub pool: Pool,
    /// The unit.
    pub unit: UnitId,
    /// The checksum of the unit's content, 24 bits.
    pub checksum: u32,
}

impl Record {
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let first = self.block << 28
            | u64::from(self.class.number()) << 23
            | u64::from(self.pool.number()) << 14
            | (self.change as u64) << 12;
        let second = u64::from(self.unit.0) << 37 | u64::from(self.checksum) << 13;
        let mut bytes = [0; RECORD_BYTES];
        put(&mut bytes, 0, &first.to_le_bytes());
        put(&mut bytes, 8, &second.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let (first, second) = (get_u64(bytes, 0), get_u64(bytes, 8));
        Some(Record {
            change: *CHANGES.get((first >> 12) as usize & 3)?,
            block: first >> 28,
            class: Class::new((first >> 23) as u8 & 31)?,
            pool: Pool::new((first >> 14) as u16 & 511)?,
            unit: UnitId((second >> 37) as u32),
            checksum: (second >> 13) as u32 & 0x00ff_ffff,
        })
    }
}

/// A block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number; the first of a cache is 1.
    pub sequence: u64,
    /// The checksum of the block before it.
    pub previous: u32,
    /// Its own.
    pub checksum: u32,
    records: usize,
}

/// Writes a block with `count` records; `record` names them.
pub fn encode(block: &mut Block, uuid: &[u8; 16], sequence: u64, previous: u32, records: &[Record]) -> u32 {
    debug_assert!(records.len() <= RECORDS);
    block.fill(0);
    put(block, 0, uuid);
    put(block, 16, &sequence.to_le_bytes());
    put(block, 24, &previous.to_le_bytes());
    put(block, 28, &(records.len() as u32).to_le_bytes());
    for (at, record) in records.iter().enumerate() {
        put(block, RECORDS_AT + at * RECORD_BYTES, &record.encode());
    }
    seal(block, BlockKind::Journal)
}

/// The head of `block`, if it is a whole journal block of cache `uuid`.
pub fn head(block: &Block, uuid: &[u8; 16]) -> Option<Head> {
    if get::<16>(block, 0) != *uuid {
        return None;
    }
    let checksum = sealed(block, BlockKind::Journal)?;
    let records = get_u32(block, 28) as usize;
    (records <= RECORDS).then(|| Head { sequence: get_u64(block, 16), previous: get_u32(block, 24), checksum, records })
}

/// The records of a block with that head; what cannot be one is left out.
pub fn records<'a>(block: &'a Block, head: &Head) -> impl Iterator<Item = Record> + 'a {
    block[RECORDS_AT..].chunks_exact(RECORD_BYTES).take(head.records).filter_map(Record::decode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        (0usize..3, 0u64..1 << 36, 0u8..32, 0u16..512, 0u32..(1 << 27) - 1, 0u32..1 << 24).prop_map(
            |(change, block, class, pool, unit, checksum)| Record {
                change: CHANGES[change],
                block,
                class: Class::new(class).unwrap(),
                pool: Pool::new(pool).unwrap(),
                unit: UnitId(unit),
                checksum,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_a_changed_bit_is_noticed(
            records in prop::collection::vec(record(), 0..=RECORDS), uuid in any::<[u8; 16]>(), sequence in any::<u64>(),
            previous in any::<u32>(), bit in 0..BLOCK_BYTES * 8,
        ) {
            let mut block = [7; BLOCK_BYTES];
            let checksum = encode(&mut block, &uuid, sequence, previous, &records);
            let found = head(&block, &uuid).unwrap();
            prop_assert_eq!((found.sequence, found.previous, found.checksum), (sequence, previous, checksum));
            prop_assert_eq!(super::records(&block, &found).collect::<Vec<_>>(), records);
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(head(&block, &uuid), None);
        }
    }
}
