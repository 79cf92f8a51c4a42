//! The law by itself, step by step, and against tenants of every kind.

use super::*;
use proptest::prelude::*;

const WRITES: HeldClass = HeldClass::Writes;
const READS: HeldClass = HeldClass::Reads;

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Span::from_secs(100) + Span::from_millis(milliseconds)
}

/// A law with a gate of writes that closed at 0 and was passed at 6 ms.
fn passed() -> FreezeLaw {
    let mut law = FreezeLaw::default();
    law.gate(at(0), WRITES, true);
    law.moved(at(6), WRITES);
    law
}

/// Planted breaks: what moves within the grace is a reason; what moves at an open gate is one; a gate of writes is
/// passed by a read.
#[test]
fn only_bytes_that_pass_a_closed_gate_are_a_reason() {
    let mut law = FreezeLaw::default();
    law.moved(at(0), WRITES);
    assert_eq!((law.decide(at(0)), law.at(at(0))), (None, None), "the gates are open");
    law.gate(at(1), WRITES, true);
    law.moved(at(6), WRITES);
    law.moved(at(9), READS);
    assert_eq!((law.decide(at(9)), law.at(at(9))), (None, None), "the call may have begun before");
    law.moved(at(7), WRITES);
    assert_eq!(law.decide(at(9)), Some(FreezeOrder::Freeze));
    assert!(law.is_frozen());
}

/// Planted breaks: it is frozen for as long as it owes; the thaw has no least length; it is frozen again without a
/// reason; a thaw that was used makes no difference.
#[test]
fn a_freeze_lasts_as_long_as_it_owes_and_longer_each_time_that_a_thaw_is_used() {
    let mut law = passed();
    assert_eq!(law.decide(at(10)), Some(FreezeOrder::Freeze));
    law.moved(at(11), WRITES);
    assert_eq!((law.decide(at(109)), law.at(at(50))), (None, Some(at(110))));
    assert_eq!(law.decide(at(110)), Some(FreezeOrder::Thaw));
    assert_eq!((law.decide(at(200)), law.at(at(200))), (None, None), "it moves nothing");
    law.moved(at(201), WRITES);
    assert_eq!(law.decide(at(201)), Some(FreezeOrder::Freeze));
    assert_eq!((law.decide(at(600)), law.decide(at(601))), (None, Some(FreezeOrder::Thaw)), "400 ms");
    law.moved(at(602), WRITES);
    assert_eq!((law.decide(at(602)), law.at(at(602))), (None, Some(at(603))), "it runs for 2 ms");
    assert_eq!(law.decide(at(603)), Some(FreezeOrder::Freeze));
    law.gate(at(700), WRITES, false);
    assert_eq!(law.decide(at(700)), Some(FreezeOrder::Thaw), "it has paid");
    assert_eq!(law.at(at(700)), None);
}

/// Planted break: a tenant that waits for one gate is thawed when the other opens.
#[test]
fn it_runs_when_both_gates_are_open() {
    let mut law = passed();
    law.gate(at(7), READS, true);
    assert_eq!(law.decide(at(8)), Some(FreezeOrder::Freeze));
    law.gate(at(9), WRITES, false);
    assert_eq!(law.decide(at(9)), None);
    law.gate(at(10), READS, false);
    assert_eq!(law.decide(at(10)), Some(FreezeOrder::Thaw));
}

/// Planted breaks: it is not known; it is known for ever; what reads do makes it known.
#[test]
fn a_tenant_that_passed_by_is_frozen_at_once_the_next_time() {
    let mut law = passed();
    assert_eq!(law.decide(at(10)), Some(FreezeOrder::Freeze));
    law.gate(at(20), WRITES, false);
    assert_eq!(law.decide(at(20)), Some(FreezeOrder::Thaw));
    law.gate(at(21), WRITES, true);
    assert_eq!((law.decide(at(21)), law.at(at(21))), (None, Some(at(22))));
    assert_eq!(law.decide(at(22)), Some(FreezeOrder::Freeze));
    law.gate(at(30), WRITES, false);
    assert_eq!(law.decide(at(30)), Some(FreezeOrder::Thaw));
    law.gate(at(10_006), WRITES, true);
    assert_eq!(law.decide(at(10_010)), None, "it was known for ten seconds");
    let mut reader = FreezeLaw::default();
    reader.gate(at(0), READS, true);
    reader.moved(at(6), READS);
    assert_eq!(reader.decide(at(6)), Some(FreezeOrder::Freeze));
    reader.gate(at(7), READS, false);
    assert_eq!(reader.decide(at(7)), Some(FreezeOrder::Thaw));
    reader.gate(at(10), READS, true);
    assert_eq!(reader.decide(at(10)), None);
}

/// Planted break: it stays frozen in the law, and so is not frozen again.
#[test]
fn a_thaw_by_another_program_counts_as_one() {
    let mut law = passed();
    assert_eq!(law.decide(at(10)), Some(FreezeOrder::Freeze));
    law.overruled(at(20));
    assert_eq!(law.decide(at(21)), None);
    law.moved(at(22), WRITES);
    assert_eq!(law.decide(at(22)), Some(FreezeOrder::Freeze));
}

/// What happens to a law in a step.
#[derive(Clone, Debug)]
enum Step {
    Gate(HeldClass, bool),
    Moved(HeldClass),
    Overruled,
    Nothing,
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let class = || prop_oneof![3 => Just(WRITES), 1 => Just(READS)];
    let step = prop_oneof![
        3 => (class(), any::<bool>()).prop_map(|(class, is_closed)| Step::Gate(class, is_closed)),
        5 => class().prop_map(Step::Moved),
        1 => Just(Step::Overruled),
        3 => Just(Step::Nothing),
    ];
    prop::collection::vec((0..20_000u64, step), 0..300)
}

proptest! {
    /// Planted breaks: the grace is none; the least thaw is none; the first freeze may last ten seconds; a freeze goes
    /// on after the gates have opened.
    /// Promise: freezer-law.
    #[test]
    fn whatever_happens_the_bounds_hold(steps in steps()) {
        let (mut law, mut now) = (FreezeLaw::default(), at(0));
        let mut closed: [Option<Time>; 2] = [None; 2];
        // The time of the last thaw and freeze; whether bytes moved past a closed gate, ever and after a thaw.
        let (mut thawed, mut frozen, mut passed, mut has_used_thaws) = (None, None, false, false);
        for (micros, step) in steps {
            let next = now + Span::from_micros(micros);
            // The host asks again when the law says so.
            let mut times = vec![next];
            times.extend(law.at(now).filter(|&time| time < next));
            times.sort();
            for time in times {
                now = time;
                if now == next {
                    match step {
                        Step::Gate(class, is_closed) => {
                            let gate = &mut closed[class as usize];
                            *gate = is_closed.then(|| gate.unwrap_or(now));
                            law.gate(now, class, is_closed);
                        }
                        Step::Moved(class) => {
                            law.moved(now, class);
                            let is_past = |since: Time| now > since && (thawed.is_some() || now > since + GRACE);
                            if closed[class as usize].is_some_and(is_past) && frozen.is_none() {
                                (passed, has_used_thaws) = (true, has_used_thaws || thawed.is_some());
                            }
                        }
                        Step::Overruled => {
                            law.overruled(now);
                            if frozen.take().is_some() {
                                thawed = Some(now);
                            }
                        }
                        Step::Nothing => {}
                    }
                }
                match law.decide(now) {
                    Some(FreezeOrder::Freeze) => {
                        prop_assert!(frozen.is_none() && passed, "{now:?}");
                        prop_assert!(thawed.is_none_or(|thawed| now.since(thawed) >= THAW_MIN), "{now:?}");
                        frozen = Some(now);
                    }
                    Some(FreezeOrder::Thaw) => {
                        let lasted = now.since(frozen.take().unwrap());
                        let longest = if has_used_thaws { FREEZE_MAX } else { FREEZE_MIN };
                        prop_assert!(lasted <= longest, "{lasted:?}");
                        thawed = Some(now);
                    }
                    None => {}
                }
                prop_assert_eq!(law.is_frozen(), frozen.is_some());
                let owes = closed.iter().any(Option::is_some);
                prop_assert!(owes || frozen.is_none(), "frozen though it owes nothing");
            }
        }
    }

    /// A tenant writes as fast as it can, whatever the gate says; the host looks each millisecond, and a freeze takes a
    /// millisecond to begin. Planted breaks: freezes never become longer (a limit of 1 MB/s is passed twenty times).
    /// Promise: freezer-law.
    #[test]
    fn a_writer_that_passes_by_is_held_to_its_limit(
        limit in 1_000_000f64..50e6,
        speed in 60e6f64..2e9,
        stays_busy in any::<bool>(),
    ) {
        const RUN_MS: u64 = 60_000;
        let (mut law, mut balance, mut moved, mut running) = (FreezeLaw::default(), 0.0, 0.0, true);
        let mut last_ten_seconds = 0.0;
        for step in 0..RUN_MS {
            let now = at(step);
            balance = f64::min(balance + limit / 1000.0, limit / 10.0);
            // One that computes between its writes moves nothing every other tenth of a second.
            if running && (stays_busy || step / 100 % 2 == 0) {
                (balance, moved) = (balance - speed / 1000.0, moved + speed / 1000.0);
                law.moved(now, WRITES);
                last_ten_seconds += if step >= RUN_MS - 10_000 { speed / 1000.0 } else { 0.0 };
            }
            law.gate(now, WRITES, balance < 0.0);
            match law.decide(now) {
                Some(FreezeOrder::Freeze) => running = false,
                Some(FreezeOrder::Thaw) => running = true,
                None => {}
            }
        }
        // What it moves until it is first frozen, and in the first thaws, is owed: it is paid within the run.
        let allowed = limit * RUN_MS as f64 / 1000.0 * 1.1 + speed * 0.03;
        prop_assert!(moved <= allowed, "{moved} of {allowed}");
        let a_burst = speed * 0.01;
        prop_assert!(last_ten_seconds <= limit * 11.0 + a_burst, "{last_ten_seconds} in the last ten seconds");
    }

    /// Its calls wait at the gate; those that began before end within the grace.
    /// Promise: freezer-fair.
    #[test]
    fn a_tenant_that_waits_at_its_gates_is_never_frozen(closings in prop::collection::vec((1..500u64, 1..500u64), 0..50)) {
        let (mut law, mut now) = (FreezeLaw::default(), 0);
        for (open, closed) in closings {
            now += open;
            law.gate(at(now), WRITES, true);
            for step in 0..closed {
                if step <= 5 {
                    law.moved(at(now + step), WRITES);
                }
                prop_assert_eq!(law.decide(at(now + step)), None);
            }
            now += closed;
            law.gate(at(now), WRITES, false);
            prop_assert_eq!(law.decide(at(now)), None);
        }
    }
}
