//! What a start makes of what a kill in the midst of a snapshot, or right behind one, has left.

use crate::rig::{Rig, Setup};
use crate::versions::Versions;
use plimsoll_cache::store::bytes::data_checksum;
use plimsoll_cache::store::journal::{self, Change, Record};
use plimsoll_cache::store::map::{self, ENTRIES, Entry, PageHead};
use plimsoll_cache::store::{BLOCK_BYTES, RequestKind, Semantics, probe};
use plimsoll_cache::{Pool, UnitId};
use plimsoll_core::Class;
use std::sync::Arc;

/// During a snapshot a block moves from a unit with a written page to a unit with a page not yet written: both pages
/// say that they have it. Outcome: the older page is never believed, also when the block has left the newer unit and
/// every changed page was written again.
///
/// Planted break: the page of the unit that lost does not count as changed.
/// Promise: store-warm.
#[test]
fn what_the_older_of_two_pages_says_of_a_block_never_comes_back() {
    const BLOCK: u64 = 7;
    let setup = Setup { units: 900, store_blocks: 60, ..Setup::small("lru", Semantics::WriteCache) };
    let (mut cache, store) = setup.devices();
    let (layout, superblock) = (setup.layout(), probe(&mut cache).unwrap());
    for (page, unit, byte) in [(0, 5, 1), (1, 500, 2)] {
        let data = [byte; BLOCK_BYTES];
        let checksum = data_checksum(&superblock.uuid, BLOCK, &data);
        let (class, pool) = (Class::UNCLASSIFIED, Pool::default());
        let entry = Entry { block: BLOCK, class, pool, is_dirty: true, is_again: false, age: 0, checksum };
        let head = PageHead { generation: superblock.generation, page, sequence: u64::from(page) };
        let mut block = [0; BLOCK_BYTES];
        map::encode(&mut block, &superblock.uuid, head, |at| {
            (page as usize * ENTRIES + at == unit as usize).then_some(entry)
        });
        cache.put(layout.map_block(0, page), Arc::new(block));
        cache.put(layout.unit_block(UnitId(unit)), Arc::new(data));
    }
    let mut rig = Rig::new(setup.clone(), cache, store, Versions::new(setup.store_blocks), 1);
    assert!(rig.read(BLOCK).unwrap()[..] == [2; BLOCK_BYTES], "the page that was made later is right");
    assert!(rig.request(RequestKind::Trim, BLOCK, u8::MAX));
    rig.settle();
    rig.machine.close();
    rig.settle();
    assert!(rig.machine.is_closed());
    let mut next = Rig::new(setup, rig.cache.clone(), rig.store.clone(), rig.versions.clone(), 2);
    assert_eq!(next.machine.dirty_units(), 0);
    assert!(next.read(BLOCK).unwrap()[..] == [0; BLOCK_BYTES], "what was trimmed is there again");
}

/// Killed at the end of one snapshot after the other, a cache has used all blocks of its journal, those too that are
/// kept for the end of the next one. Outcome: a start makes room, and the next write is answered.
///
/// Planted break: a start leaves the journal as it is.
/// Promise: store-journal-full.
#[test]
fn a_journal_that_was_used_to_its_end_goes_on_after_a_start() {
    let setup = Setup::small("lru", Semantics::Strict);
    let (mut cache, store) = setup.devices();
    let (uuid, mut previous) = (probe(&mut cache).unwrap().uuid, 0);
    for sequence in 1..=u64::from(setup.journal_blocks) {
        // It says of a unit that holds nothing that it holds nothing.
        let (change, unit, class, pool) = (Change::Invalid, UnitId(0), Class::UNCLASSIFIED, Pool::default());
        let record = Record { change, block: 0, class, pool, unit, checksum: 0 };
        let mut block = [0; BLOCK_BYTES];
        previous = journal::encode(&mut block, &uuid, sequence, previous, &[record]);
        cache.put(setup.layout().journal_block(sequence), Arc::new(block));
    }
    let mut rig = Rig::new(setup.clone(), cache, store, Versions::new(setup.store_blocks), 1);
    assert!(rig.request(RequestKind::Write, 5, u8::MAX));
    // The write is done before a page of the map is.
    while rig.finish_one() {}
    assert_eq!(rig.under_way(), 0, "it waits for a journal that has no room, and no snapshot makes any");
    rig.machine.close();
    rig.settle();
    assert!(rig.machine.is_closed());
}

/// Blocks that were used several times are in the main queue at a shutdown. Outcome: after the next start they are
/// there still, and what passes by does not send them away.
///
/// Planted break: what a start restores is in the small queue, red.
#[test]
fn what_was_in_the_main_queue_of_s3_fifo_is_there_after_a_start() {
    let setup = Setup { store_blocks: 400, ..Setup::small("s3_fifo", Semantics::WriteCache) };
    let write_all = |rig: &mut Rig, blocks: std::ops::Range<u64>| {
        for block in blocks {
            assert!(rig.request(RequestKind::Write, block, u8::MAX));
            rig.settle();
        }
    };
    let has_used = |rig: &Rig| (0..3).all(|block| rig.machine.cache().find(block).is_some());
    let mut rig = Rig::fresh(setup.clone(), 1);
    write_all(&mut rig, 0..3);
    (0..9).for_each(|turn| drop(rig.read(turn % 3).unwrap()));
    write_all(&mut rig, 100..140);
    assert!(has_used(&rig));
    rig.machine.close();
    rig.settle();
    let mut next = Rig::new(setup, rig.cache.clone(), rig.store.clone(), rig.versions.clone(), 2);
    write_all(&mut next, 200..240);
    assert!(has_used(&next), "what is new sent them away");
}
