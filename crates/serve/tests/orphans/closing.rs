//! A session that closes ends what it has under way, but takes no step after others have aborted that.

use super::*;

/// A WRITE SAME of so many blocks takes several steps. A test holds a block of the first; this is the last one's last.
const SAME_BLOCKS: u8 = 64;
const LAST: u64 = SAME_BLOCKS as u64 - 1;

/// The engine is at work on the first step when this is over, and hears of the logout before anything else.
fn write_same_and_log_out(initiator: &mut Initiator, engine: &EngineHandle) {
    initiator.request(&transfer(0x41, 0, SAME_BLOCKS), 0, &[OLD; BLOCK as usize]);
    log_out(initiator);
    wait_until(engine, "the first step", has_begun);
}

fn wait_until_one_is_left(engine: &EngineHandle) {
    wait_until(engine, "the end of the session", |status| status.volumes[0].front_ends == 1);
}

/// Planted break that was seen red: a session that closes looks only at what it has aborted itself.
/// Promise: volume-closed-connection.
#[test]
fn what_a_closing_session_would_do_next_does_not_come_after_what_the_one_in_its_place_writes() {
    let (volume, pages) = compressed();
    let target = Arc::new(Target::of_volume("iqn.2026-01.org.example:v", None, volume.info(), false));
    let served = Served::new(config("noop"), vec![volume]);
    let mut old = deaf_session(&served.engine, &target);
    let held = pages.hold(HELD);
    write_same_and_log_out(&mut old, &served.engine);
    let mut new = deaf_session(&served.engine, &target);
    let tag = new.command_number;
    write(&mut new, LAST, 1, NEW);
    let first = heard(&mut new);
    drop(held);
    assert_eq!(first, (opcode::RESPONSE, tag), "nobody is at work there");
    wait_until_one_is_left(&served.engine);
    assert_eq!([HELD, LAST].map(|block| read(&mut new, block)), [OLD, NEW]);
}

/// Planted break that was seen red: a session that closes looks only at what it has aborted itself.
/// Promise: volume-aborted.
#[test]
fn what_a_closing_session_would_do_next_does_not_come_after_a_reset() {
    let (volume, pages) = compressed();
    let portal = Portal::with(config("noop"), vec![(volume, None)]);
    let mut old = Initiator::log_in(&portal, "v", 1, &[]);
    let mut other = Initiator::log_in(&portal, "v", 2, &[]);
    let held = pages.hold(HELD);
    write_same_and_log_out(&mut old, &portal.engine);
    assert_eq!(other.command(&[0; 6], 0, &[]).0, 0, "the engine has heard the logout");
    manage(&mut other, LOGICAL_UNIT_RESET, 0);
    ping(&mut other);
    let first = heard(&mut other);
    drop(held);
    assert_eq!(first, (opcode::NOP_IN, PING), "answered while the first step may still write");
    assert_eq!(heard(&mut other), (opcode::TASK_MANAGEMENT_RESPONSE, MANAGEMENT));
    assert_eq!(heard(&mut old), (opcode::LOGOUT_RESPONSE, MANAGEMENT), "what was aborted has no answer");
    wait_until_one_is_left(&portal.engine);
    // The reset itself.
    assert_eq!(other.command(&[0; 6], 0, &[]).0, 2);
    assert_eq!([HELD, LAST].map(|block| read(&mut other, block)), [OLD, 0]);
}
