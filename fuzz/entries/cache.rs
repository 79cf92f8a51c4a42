//! What the fuzz target of the cache's metadata does with its bytes, and what must hold for any bytes.
//!
//! The fuzz target calls this function, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/cache/tests/corpus.rs`).
//!
//! The bytes are pieces: a byte that names a block, two that say how much of it is there, and so many bytes of its
//! beginning. What is not there is zeroes. As no fuzzer finds a checksum, all of them are made right first.

use plimsoll_cache::store::bytes::{BlockKind, seal};
use plimsoll_cache::store::{BLOCK_BYTES, Blocks, CacheStore, Depth, Identity, Semantics, open, probe};
use plimsoll_cache::{CacheConfig, policies};
use plimsoll_core::class::Scheme;
use std::io;
use std::ops::Range;

/// Blocks of the device: room for a journal, a small map and some hundred units.
const BLOCKS: u64 = 600;

struct Device(Vec<u8>);

impl Device {
    fn make_right(&mut self, blocks: Range<u64>, kind: BlockKind) {
        for block in self.0.chunks_exact_mut(BLOCK_BYTES).take(blocks.end as usize).skip(blocks.start as usize) {
            seal(block.try_into().expect("a block"), kind);
        }
    }
}

impl Blocks for Device {
    fn blocks(&self) -> u64 {
        BLOCKS
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        let from =
            usize::try_from(first).map_err(io::Error::other)?.checked_mul(BLOCK_BYTES).expect("within the device");
        into.copy_from_slice(self.0.get(from..from + into.len()).expect("nothing is read behind the device's end"));
        Ok(())
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        let at = first as usize * BLOCK_BYTES;
        self.0.get_mut(at..at + from.len()).expect("nothing is written behind the device's end").copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Finds a cache or says in one line why there is none. What was found can be worked with and closed, and is found
/// again. Says whether there was one.
pub fn cache_metadata(input: &[u8]) -> bool {
    let mut device = vec![0; BLOCKS as usize * BLOCK_BYTES];
    let mut rest = input;
    while let [block, low, high, piece @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(piece.len()).min(BLOCK_BYTES);
        device[usize::from(*block) * BLOCK_BYTES..][..length].copy_from_slice(&piece[..length]);
        rest = &piece[length..];
    }
    let mut device = Device(device);
    device.make_right(0..2, BlockKind::Superblock);
    let superblock = match probe(&mut device) {
        Ok(superblock) => superblock,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            return false;
        }
    };
    let map = superblock.layout.map_start(0).min(BLOCKS);
    device.make_right(2..map, BlockKind::Journal);
    device.make_right(map..superblock.layout.map_start(2).min(BLOCKS), BlockKind::Map);
    let identity = Identity { store: superblock.store, store_blocks: superblock.store_blocks };
    let config = CacheConfig::new(superblock.layout.units.clamp(2, 64), Scheme::default());
    let opened = match open(&mut device, identity, &config, &policies()[0], true) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            return false;
        }
    };
    let report = opened.report;
    assert!(report.dirty_units <= report.units && report.units <= superblock.layout.units, "{report:?}");
    let mut store = CacheStore::new(opened, Semantics::WriteCache, Depth { requests: 2, cleaning: 1 });
    store.close();
    while let Some(operation) = store.next_operation() {
        // Only its own writes are done; nothing is asked for that would need the store.
        assert!(operation.offset_bytes < BLOCKS * BLOCK_BYTES as u64);
        let first = operation.offset_bytes / BLOCK_BYTES as u64;
        if operation.length_bytes > 0 {
            let data = store.buffer(&operation).to_vec();
            device.write(first, &data).expect("memory");
        }
        store.completed(operation.id, true);
    }
    assert!(store.is_closed());
    let again = open(&mut device, identity, &config, &policies()[0], false).expect("what was closed is found");
    // Some units may have been made ready for others meanwhile; none of them was dirty.
    assert_eq!((again.report.dirty_units, again.report.records), (report.dirty_units, 0));
    assert!(again.report.units <= report.units, "{report:?}, {:?}", again.report);
    true
}
