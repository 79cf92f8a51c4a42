//! How long a cache takes to be found again: 25 million units, 100 GB, all of them in use, with a journal that is half
//! full.
//!
//! ```text
//! cargo run --profile quick -p plimsoll-cache --example recovery_speed [UNITS]
//! ```
//!
//! The device is memory: what it takes to read a real one comes on top, in parts beside the work.
#![allow(clippy::disallowed_methods, reason = "it measures real time")]

#[path = "../tests/support/metadata.rs"]
mod metadata;

use metadata::Metadata;
use plimsoll_cache::store::bytes::Block;
use plimsoll_cache::store::journal::{self, Change, RECORDS, Record};
use plimsoll_cache::store::map::{self, ENTRIES, Entry, PageHead};
use plimsoll_cache::store::{BLOCK_BYTES, Blocks, Identity, Layout, format, open};
use plimsoll_cache::units::UnitId;
use plimsoll_cache::{CacheConfig, Pool, policies};
use plimsoll_core::Class;
use plimsoll_core::class::Scheme;
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// The block that a unit holds: all different, in no order.
fn block_of(unit: u32, store_blocks: u64) -> u64 {
    (u64::from(unit).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (store_blocks / 2) * 2 + u64::from(unit & 1)
}

/// What all threads have had of the processors.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let units: u32 = std::env::args().nth(1).map_or(25_000_000, |units| units.parse().expect("a number of units"));
    let layout = Layout::of_device(u64::from(units) * 407 / 405 + 8200).expect("large enough");
    let identity = Identity { store: [0; 16], store_blocks: 1 << 32 };
    let mut device = Metadata::new(&layout);
    let superblock = format(&mut device, identity, [1; 16], layout).expect("memory");
    let class = |unit: u32| Class::new((unit % 19) as u8).expect("a class");
    for page in 0..layout.map_pages() {
        let head = PageHead { generation: superblock.generation, page, sequence: 0 };
        let mut block: Block = [0; BLOCK_BYTES];
        map::encode(&mut block, &superblock.uuid, head, |at| {
            let unit = page * ENTRIES as u32 + at as u32;
            (unit < layout.units).then(|| Entry {
                block: block_of(unit, identity.store_blocks),
                class: class(unit),
                pool: Pool::default(),
                is_dirty: unit.is_multiple_of(3),
                is_again: unit.is_multiple_of(7),
                age: (unit / 64 % 16) as u8,
                checksum: unit & 0x00ff_ffff,
            })
        });
        device.write(layout.map_block(0, page), &block).expect("memory");
    }
    let (mut previous, blocks) = (0, u64::from(layout.journal_blocks) / 2);
    for sequence in 1..=blocks {
        let record = |at: usize| {
            let unit = (sequence as u32 * 7919 + at as u32 * 104_729) % layout.units;
            let block = block_of(unit, identity.store_blocks) ^ 1;
            let (class, pool, unit) = (class(unit), Pool::default(), UnitId(unit));
            Record { change: Change::Dirty, block, class, pool, unit, checksum: 0 }
        };
        let records: Vec<Record> = (0..RECORDS).map(record).collect();
        let mut block: Block = [0; BLOCK_BYTES];
        previous = journal::encode(&mut block, &superblock.uuid, sequence, previous, &records);
        device.write(layout.journal_block(sequence), &block).expect("memory");
    }
    for policy in policies() {
        let config = CacheConfig::new(layout.units, Scheme::default());
        let (start, processors) = (Instant::now(), processor_seconds());
        let opened = open(&mut device, identity, &config, policy, false).expect("it was made just now");
        let seconds = start.elapsed().as_secs_f64();
        let processors = processor_seconds() - processors;
        println!("{}: {seconds:.2} s, {processors:.2} s of processors, {:?}", policy.name, opened.report);
    }
}
