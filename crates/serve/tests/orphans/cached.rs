//! What a cache asks its volume for on behalf of a client that is gone.

use super::*;
use plimsoll_testkit::cached;
use std::collections::BTreeSet;

/// Blocks of the cache, of eight of the unit's each. Those before this one are trimmed, the others are written in part.
const TRIMMED: u64 = 12;
const ALL: u64 = 31;

/// UNMAP of a block of the cache.
fn unmap(initiator: &mut Initiator, block: u64) {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend((8 * block).to_be_bytes());
    list.extend(8u32.to_be_bytes());
    list.extend([0; 4]);
    initiator.request(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list);
}

/// Commands that are answered until a ping is.
fn answered_by_now(initiator: &mut Initiator) -> BTreeSet<u32> {
    ping(initiator);
    std::iter::from_fn(|| Some(heard(initiator)).filter(|&(code, _)| code != opcode::NOP_IN))
        .map(|(_, tag)| tag)
        .collect()
}

fn write_block(initiator: &mut Initiator, block: u64, content: u8) {
    let (status, _) = initiator.command(&transfer(0x2a, 8 * block, 8), 0, &[content; BLOCK as usize]);
    assert_eq!(status, 0);
}

/// Planted breaks that were seen red: what the scheduler has is not dropped; what the cache asks for after the abort,
/// because it has waited for the first of two on a block, is not dropped; a request is over while the scheduler still
/// has what was dropped of it.
/// Promise: volume-aborted.
#[test]
fn what_no_backend_has_of_what_a_cache_wants_for_what_was_aborted_is_dropped_and_not_waited_for() {
    let volume = memory("v", BLOCKS * BLOCK, 0);
    let target = Arc::new(Target::of_volume("iqn.2026-01.org.example:v", None, volume.info(), false));
    let (served, _directory) = cached(EngineConfig::new(profile(), "zygaria"), volume, |_| {});
    let engine = &served.engine;
    engine.open_pool("slow", Allocation::default()).unwrap();
    let mut writer = session_in(engine, &target, "slow", 1);
    let mut other = session_in(engine, &target, "pool", 2);
    (0..TRIMMED).for_each(|block| write_block(&mut writer, block, OLD));
    let limit = |limit| engine.change_account("slow", Allocation { limit, ..Allocation::default() }).unwrap();
    limit(Some(Rate::RunsPerSecond(0.001)));
    let first_tag = writer.command_number;
    (0..TRIMMED).chain(0..TRIMMED).for_each(|block| unmap(&mut writer, block));
    (TRIMMED..ALL).for_each(|block| writer.request(&transfer(0x2a, 8 * block, 1), 0, &[OLD; 512]));
    let tag_of = |block: u64| first_tag + (if block < TRIMMED { block } else { block + TRIMMED }) as u32;
    let mut answered = answered_by_now(&mut writer);
    wait_until(engine, "what the cache wants", |status| are_queued(status, 15));

    manage(&mut other, LOGICAL_UNIT_RESET, 0);
    assert_eq!(heard(&mut other), (opcode::TASK_MANAGEMENT_RESPONSE, MANAGEMENT));
    answered.extend(answered_by_now(&mut writer));
    // The reset itself.
    assert_eq!(other.command(&[0; 6], 0, &[]).0, 2);
    let (last_trimmed, last) = (TRIMMED - 1, ALL - 1);
    assert!(![last_trimmed, last].iter().any(|&block| answered.contains(&tag_of(block))), "{answered:?}");
    // Neither waits for the limit.
    [last_trimmed, last].iter().for_each(|&block| write_block(&mut other, block, NEW));
    drop(writer);
    // The engine has heard that now.
    write_block(&mut other, last, NEW);
    assert_eq!(engine.status().unwrap().volumes[0].front_ends, 2, "the scheduler has something of its session");

    limit(None);
    wait_until(engine, "the end of the session", |status| status.volumes[0].front_ends == 1);
    for block in (0..ALL).filter(|&block| !answered.contains(&tag_of(block))) {
        let (status, bytes) = other.command(&transfer(0x28, 8 * block, 1), 512, &[]);
        let expected = match block {
            _ if block == last_trimmed || block == last => NEW,
            _ if block < TRIMMED => OLD,
            _ => 0,
        };
        assert!(status == 0 && bytes.iter().all(|&byte| byte == expected), "block {block} was changed after the reset");
    }
    drop(other);
    served.wait_until_all_have_gone_of(&["pool", "slow"]);
}
