//! Moments in which two go for one block: each test holds one operation back until the other has gone by.

use crate::rig::{Rig, Setup};
use plimsoll_cache::store::{Action, RequestKind, Semantics, Target};

/// Outcome: a block that is written while the store is flushed for what it was before stays dirty, though its old unit
/// leaves the order before the new one is written; and nobody else gets the new one.
///
/// Planted break: what was copied is marked clean, whoever writes it.
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
    // Others come until somebody has left the order: that is first the one that was used longest ago.
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

/// Others are written until the unit of block 0 has left the order and is to be copied; an operation is held back meanwhile.
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

/// A block is to be copied and waits for a trim of it. It is trimmed, written again, and to be copied once more: two copies of
/// the same unit are made, one after the other. Outcome: the second one may fail when the first one is durable.
///
/// Planted break: whoever could not be copied is taken for one that is still being copied.
#[test]
fn a_unit_that_is_copied_twice_may_fail_the_second_time() {
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
    write_until_it_leaves(&mut rig, &mut others, write);
    rig.end_number(write);
    let first = rig.until(Target::Store, Action::Write);
    rig.end_number(first);
    let second = rig.until(Target::Store, Action::Write);
    assert!(rig.request(RequestKind::Flush, 0, u8::MAX));
    rig.settle_but(second);
    rig.store.fails_at = Some(rig.store.writes);
    rig.end_number(second);
    rig.store.fails_at = None;
    let contents = rig.read_all();
    rig.versions.check_newest(0, u8::MAX, contents[0].as_ref().unwrap()).unwrap();
}
