//! Moments in which two go for one block: each test holds one operation back until the other has gone by.

use crate::rig::{Rig, Setup, policy};
use crate::search::Rate;
use plimsoll_cache::store::{Action, RequestKind, Semantics, Target};

/// Outcome: a block that is written while the store is flushed for its older version stays dirty, though its old unit
/// leaves the order before the new one is written; and no other block gets the new unit.
///
/// Planted break: what was copied is marked clean, whichever request writes it.
/// Promise: cache-oracle.
#[test]
fn what_is_written_while_an_older_version_becomes_clean_is_not_forgotten() {
    let mut rig = Rig::fresh(Setup::small("lru", Semantics::WriteCache), 1);
    assert!(rig.request(RequestKind::Write, 0, u8::MAX));
    rig.settle();
    rig.machine.clean_all();
    let flush = rig.until(Target::Store, Action::Flush);
    assert!(rig.request(RequestKind::Write, 0, u8::MAX));
    let write = rig.number_of(Target::Cache, Action::Write).expect("it goes to another unit");
    rig.end_number(flush);
    // Other blocks come until a block has left the order: the first to leave is the one used longest ago.
    let mut others = 1..rig.setup.store_blocks;
    while rig.machine.cache().free_units() == rig.machine.cache().unused_units() {
        let block = others.next().expect("there are fewer units than blocks");
        rig.request(RequestKind::Write, block, u8::MAX);
        rig.settle_but(write);
    }
    rig.end_number(write);
    for block in others.take(4) {
        rig.request(RequestKind::Write, block, u8::MAX);
        rig.settle();
    }
    let content = rig.read(0).unwrap();
    rig.versions.check_newest(0, u8::MAX, &content).unwrap();
}

/// Others are written until the unit of block 0 has left the order and is to be copied; an operation is held back
/// meanwhile.
fn write_until_it_leaves(rig: &mut Rig, others: &mut std::ops::Range<u64>, held: u32) {
    let leaves = |rig: &Rig| {
        let cache = rig.machine.cache();
        cache.find(0).is_some_and(|unit| cache.is_being_cleaned(unit))
    };
    while !leaves(rig) {
        let block = others.next().expect("there are fewer units than blocks");
        rig.request(RequestKind::Write, block, u8::MAX);
        rig.settle_but(held);
    }
}

/// Block 0 was to be copied and waits for that behind a trim and a write of it: the trim is done, and the write is
/// under way, by the number that is answered.
fn trimmed_while_it_is_to_be_copied() -> (Rig, std::ops::Range<u64>, u32) {
    let mut rig = Rig::fresh(Setup { store_blocks: 400, ..Setup::small("lru", Semantics::WriteCache) }, 2);
    for kind in [RequestKind::Write, RequestKind::Flush] {
        assert!(rig.request(kind, 0, u8::MAX));
        rig.settle();
    }
    let mut others = 1..rig.setup.store_blocks;
    assert!(rig.request(RequestKind::Trim, 0, u8::MAX));
    let trim = rig.number_of(Target::Store, Action::Trim).expect("the store is told first");
    assert!(rig.request(RequestKind::Write, 0, u8::MAX));
    write_until_it_leaves(&mut rig, &mut others, trim);
    rig.end_number(trim);
    let flush = rig.number_of(Target::Store, Action::Flush).expect("the trim is to be durable");
    rig.end_number(flush);
    let write = rig.number_of(Target::Cache, Action::Write).expect("it was trimmed, and is written again");
    (rig, others, write)
}

/// A block is to be copied and waits for a trim of it. It is trimmed, written again, and to be copied once more.
/// Outcome: it is copied once, by the second job, and may fail then: the slot that waited for the first one is given
/// back.
///
/// This test had it that both jobs copy the unit, one after the other, and that the second one may fail when the first
/// is durable. That two jobs copy a unit is the fault: the first to end frees the unit that the second still copies.
///
/// Planted break that was seen red: a slot that waited copies what its block holds when its turn comes.
/// Promise: store-trim-race.
#[test]
fn a_block_that_is_trimmed_while_it_is_to_be_copied_is_copied_once() {
    let (mut rig, mut others, write) = trimmed_while_it_is_to_be_copied();
    rig.machine.audit().unwrap();
    write_until_it_leaves(&mut rig, &mut others, write);
    rig.end_number(write);
    let copy = rig.until(Target::Store, Action::Write);
    rig.machine.audit().unwrap();
    rig.store.fails_at = Some(rig.store.writes);
    rig.end_number(copy);
    rig.store.fails_at = None;
    rig.settle();
    rig.machine.audit().unwrap();
    let contents = rig.read_all();
    rig.versions.check_newest(0, u8::MAX, contents[0].as_ref().unwrap()).unwrap();
}

/// A block is written while two copies of it are to be made: the first one's flush is still under way when what is
/// newer is to be copied. Outcome: what is being copied is dirty until that is durable itself, whatever else becomes
/// durable, and no flushed write is lost.
///
/// Planted breaks that were seen red: a copy of an older version ends the one that is under way; and, with that, what
/// the store lacks is given away when it is free.
/// Promise: store-trim-race.
#[test]
fn a_copy_of_an_older_version_does_not_end_that_of_a_newer_one() {
    let (mut rig, mut others, write) = trimmed_while_it_is_to_be_copied();
    // Between the two copies.
    assert!(rig.request(RequestKind::Write, 0, u8::MAX));
    write_until_it_leaves(&mut rig, &mut others, write);
    rig.end_number(write);
    let flush = rig.until(Target::Store, Action::Flush);
    rig.settle_but(flush);
    // All others are used, and one more leaves the order.
    for block in 1..rig.setup.store_blocks {
        if rig.machine.cache().find(block).is_some() {
            assert!(rig.request(RequestKind::Read, block, u8::MAX));
            rig.settle_but(flush);
        }
    }
    let mut config = rig.setup.config();
    config.watermark_high += 1;
    rig.machine.set_policy(&config, policy("lru")).unwrap();
    let newer = rig.until(Target::Store, Action::Write);
    let unit = rig.machine.cache().find(0).unwrap();
    assert!(rig.machine.cache().is_being_cleaned(unit), "it is not block 0 that leaves");
    assert!(rig.request(RequestKind::Flush, 0, u8::MAX));
    rig.end_number(flush);
    let cache = rig.machine.cache();
    assert!(cache.is_dirty(unit) || cache.is_being_cleaned(unit), "it is free, and not on the store");
    rig.end_number(newer);
    let flush = rig.until(Target::Store, Action::Flush);
    for block in others.take(8) {
        rig.request(RequestKind::Write, block, u8::MAX);
        rig.settle_but(flush);
        let [cache, store] = [&rig.cache, &rig.store].map(|device| device.after_power_failure(|_, _| 0));
        let content = Rig::new(rig.setup.clone(), cache, store, rig.versions.clone(), 3).read(0).unwrap();
        rig.versions.check(0, &content).unwrap();
    }
}

/// The cache's device fails, and while one read waits for another, a range is trimmed. Outcome: the trim fails, and its
/// blocks are free for the next request.
///
/// Planted break that was seen red, by the search, too (seed 19): a range that fails before its first step hands its
/// blocks to itself.
#[test]
fn a_range_that_fails_at_once_keeps_none_of_its_blocks() {
    let mut rig = Rig::fresh(Setup::small("lru", Semantics::Strict), 1);
    assert!(rig.request(RequestKind::Read, 30, u8::MAX));
    let read = rig.until(Target::Store, Action::Read);
    assert!(rig.request(RequestKind::Read, 30, u8::MAX), "it waits for the first read");
    rig.faults.rates.push(Rate { target: Target::Cache, action: Action::Flush, one_in: 1 });
    assert!(rig.request(RequestKind::Write, 20, u8::MAX));
    rig.settle_but(read);
    assert!(rig.machine.has_failed());
    assert!(rig.trim(3, 6));
    rig.machine.audit().unwrap();
    assert_eq!(rig.machine.free_run(3..9), 6);
    rig.settle();
    assert_eq!(rig.under_way(), 0);
}
