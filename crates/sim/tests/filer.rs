//! The storage server against what is known in closed form: queueing formulas, the paper's Table 2, and its own books.

use plimsoll_core::{Span, Time};
use plimsoll_executor::{Adaptive, Dispatching, Kind, Policy, Slicing};
use plimsoll_sim::filer::{
    Costs, Filer, FilerConfig, FilerFigures, FilerWorkload, PLATFORMS, Platform, RequestStream, WORKLOADS,
};

const SECOND: Span = Span::from_secs(1);

/// Writes of 4 KiB alone, which never lack anything.
const WRITES: FilerWorkload = FilerWorkload {
    name: "writes",
    streams: &[RequestStream {
        part: 1.0,
        kind: Kind::Write,
        sizes: &[(4096, 1.0)],
        is_sequential: false,
        is_suspended: false,
    }],
    restarts: [0.0; 3],
};

/// One service thread, and a log that is never full.
fn one_thread() -> Platform {
    Platform { cores: 2, log_bytes: 1 << 50, ..PLATFORMS[0] }
}

fn costs(request_us: u64, turn_us: u64) -> Costs {
    let request = Span::from_micros(request_us);
    Costs { request, kib: Span::ZERO, deviation: 0.8, turn: Span::from_micros(turn_us), ..Costs::PAPER }
}

struct Outcome {
    mean_ms: f64,
    done: u64,
    unfinished: u64,
    figures: FilerFigures,
}

fn run(config: FilerConfig, seconds: u64) -> Outcome {
    let (mut filer, mut sum, mut done, mut unfinished) = (Filer::new(config), Span::ZERO, 0_u64, 0);
    let end = Time::ZERO + SECOND * seconds;
    filer.run_until(end, &mut |_, sent, now, _| {
        sum += now.since(sent);
        done += 1;
    });
    filer.unfinished(&mut |_, _, _| unfinished += 1);
    Outcome { mean_ms: sum.as_millis_f64() / done.max(1) as f64, done, unfinished, figures: filer.figures() }
}

fn config(platform: Platform, workload: FilerWorkload, per_second: f64, policy: Policy, costs: Costs) -> FilerConfig {
    FilerConfig {
        platform,
        workload,
        per_second,
        policy,
        is_adaptive: false,
        maintenance_gives_way: false,
        costs,
        seed: 1,
    }
}

fn assert_near(got: f64, expected: f64, part: f64, what: &str) {
    assert!((got / expected - 1.0).abs() < part, "{what}: {got}, expected {expected}");
}

/// Pollaczek and Khinchine: one server, first come, first served. Requests are so short that none is preempted.
/// Promise: sim-filer.
#[test]
fn one_thread_keeps_requests_waiting_as_long_as_the_formula_says() {
    for load in [0.3, 0.7, 0.9] {
        let mean_s = 10e-6;
        let outcome = run(
            config(one_thread(), WRITES, load / mean_s, Policy::BASELINE, costs(10, 0)),
            if load > 0.8 { 60 } else { 20 },
        );
        let variation = (0.8_f64 * 0.8).exp_m1();
        let waits_s = load * mean_s * (1.0 + variation) / (2.0 * (1.0 - load));
        assert_near(outcome.mean_ms, (waits_s + mean_s) * 1e3, 0.04, &format!("at {load}"));
        assert_eq!(outcome.figures.preempted, 0);
    }
}

/// Requests of very different lengths: by the adaptive rule a long one gives way to waiting ones, so that the mean is
/// well below that of Combo's slices. Planted break: runs are stopped with the slice alone.
/// Promise: executor-adaptive-slice.
#[test]
fn a_long_request_gives_way_under_the_adaptive_rule() {
    let mean_ms = |load: f64, is_adaptive| {
        let costs = Costs { deviation: 1.5, ..costs(1000, 0) };
        let config = config(one_thread(), WRITES, load * 1000.0, Adaptive::POLICY, costs);
        run(FilerConfig { is_adaptive, ..config }, 200).mean_ms
    };
    for (load, part) in [(0.5, 1.0), (0.7, 0.9), (0.9, 0.8)] {
        let (adaptive, combo) = (mean_ms(load, true), mean_ms(load, false));
        assert!(adaptive < combo * part, "at {load}: {adaptive} and {combo} ms");
    }
}

/// With more than it can do, a thread runs requests for a slice and takes a turn, again and again.
/// Promise: sim-filer.
#[test]
fn what_a_turn_costs_is_lost_once_a_slice() {
    for (slicing, slice_us) in [(Slicing::BY_WEIGHT, 2000.0), (Slicing::BY_DEPTH, 5300.0)] {
        let policy = Policy { dispatching: Dispatching::AllToHigh, slicing, weights: [60, 30, 10] };
        let outcome = run(config(one_thread(), WRITES, 100_000.0, policy, costs(20, 100)), 5);
        // The last request of a slice goes on for half of a mean residual life after it.
        let expected = 5.0 * 1e6 / 20.0 * slice_us / (slice_us + 100.0);
        assert_near(outcome.done as f64, expected, 0.015, &format!("{slicing:?}"));
    }
}

/// Table 2, at a load at which next to no request is preempted.
/// Promise: sim-filer.
#[test]
fn requests_are_restarted_as_often_as_in_the_papers_table() {
    for workload in WORKLOADS {
        let outcome = run(config(PLATFORMS[1], workload, 20_000.0, Policy::BASELINE, Costs::PAPER), 10);
        let all: u64 = outcome.figures.restarts.iter().sum();
        let part = |times: usize| outcome.figures.restarts[times] as f64 / all as f64;
        for (times, expected) in workload.restarts.into_iter().enumerate() {
            let got = part(times + 1);
            assert!((got - expected).abs() < 0.006, "{} restarted {}: {got}, {expected}", workload.name, times + 1);
        }
    }
}

/// A log of one MiB is filled faster than a consistency point ends: writes wait, and go on when there is room.
/// Promise: sim-filer.
#[test]
fn writes_wait_while_the_log_is_full_and_none_is_lost() {
    let small = Platform { log_bytes: 1 << 20, ..PLATFORMS[1] };
    let outcome = run(config(small, WRITES, 40_000.0, Policy::BASELINE, Costs::PAPER), 3);
    assert!(outcome.figures.log_waits > 1000 && outcome.figures.consistency_points > 5, "{:?}", outcome.figures);
    let large = run(config(PLATFORMS[1], WRITES, 40_000.0, Policy::BASELINE, Costs::PAPER), 3);
    assert_eq!(large.figures.log_waits, 0);
    assert!(outcome.mean_ms > 3.0 * large.mean_ms, "{} and {} ms", outcome.mean_ms, large.mean_ms);
    // The same clients with the same chance: what one has done the other has, or it is still there.
    assert_eq!(outcome.done + outcome.unfinished, large.done + large.unfinished);
}

/// More data than the threads can do, under slices that leave consistency points a fifth of what they need at the
/// worst: the log is never full, and what is too much waits for a thread. Planted break: the weights stay as they are
/// (81,000 writes wait in three seconds, and more).
/// Promise: sim-consistency-point.
#[test]
fn a_consistency_point_is_done_before_the_log_is_full() {
    let vda = *WORKLOADS.iter().find(|workload| workload.name == "vda").unwrap();
    for (platform, per_second) in [("mid-range", 51_840.0), ("all-flash", 97_200.0)] {
        let platform = *PLATFORMS.iter().find(|each| each.name == platform).unwrap();
        for (is_adaptive, maintenance_gives_way) in [(false, false), (false, true), (true, false)] {
            let config = config(platform, vda, per_second, Policy::COMBO, Costs::PAPER);
            let outcome = run(FilerConfig { is_adaptive, maintenance_gives_way, ..config }, 3);
            let FilerFigures { log_waits, consistency_points, .. } = outcome.figures;
            assert!(
                log_waits == 0 && consistency_points >= 2,
                "{}, {is_adaptive}: {:?}",
                platform.name,
                outcome.figures
            );
        }
    }
}

/// A thread that is in the maintenance queue for a quarter of the time, forty operations a slice: a client that comes
/// meanwhile waits for one of them if maintenance gives way as in the service threads, and else for the rest of the
/// slice. Planted break: it never does (four times as long as without consistency points).
/// Promise: executor-maintenance.
#[test]
fn a_client_waits_for_one_operation_of_a_consistency_point() {
    let costs = Costs { operation: Span::from_micros(5), ..costs(10, 0) };
    let outcome = |log_bytes, maintenance_gives_way| {
        let platform = Platform { cores: 2, log_bytes, ..PLATFORMS[3] };
        let config = config(platform, WRITES, 10_000.0, Policy::BASELINE, costs);
        run(FilerConfig { maintenance_gives_way, ..config }, 5)
    };
    let (without, with, slices) = (outcome(1 << 50, true), outcome(800 << 10, true), outcome(800 << 10, false));
    assert_eq!((without.figures.consistency_points, with.figures.log_waits), (0, 0));
    assert!(with.figures.consistency_points > 400, "{:?}", with.figures);
    assert!(with.mean_ms < 1.5 * without.mean_ms, "{} and {} ms", with.mean_ms, without.mean_ms);
    assert!(slices.mean_ms > 3.0 * without.mean_ms, "{} and {} ms", slices.mean_ms, without.mean_ms);
}

#[test]
fn a_seed_stands_for_a_course() {
    let hash = |seed| {
        let config = config(PLATFORMS[1], WORKLOADS[0], 80_000.0, Policy::COMBO, Costs::PAPER);
        run(FilerConfig { seed, ..config }, 1).figures.hash
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
