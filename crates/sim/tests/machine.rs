//! The machine as a whole: the same run from the same seed, and processes that get what a device can give.

mod common;

use common::*;
use plimsoll_core::*;
use plimsoll_sim::cache::PageRange;
use plimsoll_sim::{Bytes, MachineConfig, Process};
use std::cell::RefCell;
use std::rc::Rc;

/// Appends and fsyncs beside random writes and a reader: a bit of everything.
fn mixed_run(seed: u64, extra: bool) -> (u64, u64) {
    let config = MachineConfig { seed, memory_bytes: 64 << 20, ..MachineConfig::default() };
    let (mut simulation, sessions) = machine(config, "block_deadline", DISK, 4);
    let machine = simulation.machine().clone();
    machine.spawn("appender", sessions[0], |process| async move {
        let file = process.create("/log").await.unwrap();
        loop {
            file.append(4.kib()).await;
            file.fsync().await;
        }
    });
    machine.spawn("random writer", sessions[1], |process| async move {
        let file = process.create("/data").await.unwrap();
        file.allocate(0, 1.gib()).await;
        loop {
            file.write(process.random_below(1.gib() / 4.kib()) * 4.kib(), 4.kib()).await;
        }
    });
    machine.spawn("reader", sessions[2], |process| async move {
        let file = process.create("/big").await.unwrap();
        file.allocate(0, 1.gib()).await;
        for place in 0.. {
            file.read(place * 64.kib() % 1.gib(), 64.kib()).await;
        }
    });
    if extra {
        machine.spawn("idler", sessions[3], |process| async move {
            process.random_below(7);
        });
    }
    simulation.run_until(at(5.0));
    let appender = machine.statistics.of("appender");
    (simulation.trace_hash(), appender.count(CallKind::Fsync))
}

/// Promise: sim-seed.
#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    assert_eq!(mixed_run(1, false), mixed_run(1, false));
    assert_ne!(mixed_run(1, false).0, mixed_run(2, false).0);
}

/// Promise: sim-seed.
#[test]
fn a_process_more_does_not_change_what_the_others_draw() {
    assert_eq!(mixed_run(3, false), mixed_run(3, true), "the idler makes no call");
}

#[test]
fn an_appender_with_fsync_waits_for_the_disk_each_time() {
    let (mut simulation, sessions) = machine(MachineConfig::default(), "noop", DISK, 1);
    let machine = simulation.machine().clone();
    machine.spawn("appender", sessions[0], |process| async move {
        let file = process.create("/log").await.unwrap();
        for _ in 0..100 {
            file.append(4.kib()).await;
            file.fsync().await;
        }
    });
    simulation.run_to_completion();
    let appender = machine.statistics.of("appender");
    assert_eq!((appender.count(CallKind::Fsync), appender.bytes(CallKind::Write)), (100, 400 << 10));
    let fsync_ms = appender.calls(CallKind::Fsync).unwrap().percentile(50.0).as_millis_f64();
    assert!((4.0..20.0).contains(&fsync_ms), "about a revolution of 8.3 ms: {fsync_ms}");
    let flow = machine.block.borrow().flow().clone();
    assert_eq!(flow.completed, 200, "a write and a flush each");
}

#[test]
fn every_process_draws_from_a_stream_of_its_own() {
    let draws = |seed, names: &[&str]| {
        let config = MachineConfig { seed, ..MachineConfig::default() };
        let (mut simulation, sessions) = machine(config, "noop", DISK, 1);
        let drawn = Rc::new(RefCell::new(Vec::new()));
        for name in names {
            let drawn = drawn.clone();
            simulation.machine().spawn(name, sessions[0], |process| async move {
                drawn.borrow_mut().push(process.random_below(u64::MAX));
            });
        }
        simulation.run_to_completion();
        drawn.take()
    };
    let first = draws(1, &["a", "a", "b"]);
    assert_eq!(first, draws(1, &["a", "a", "b"]));
    assert_eq!(first[2], draws(1, &["c", "b"])[1], "whoever else there is");
    let mut all = [first, draws(2, &["a", "a", "b"])].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "by seed, by name, by number");
}

/// A run with one process that goes on as `program` says, beside the kernel's tasks.
fn run_alone<Run: Future<Output = ()> + 'static>(name: &str, program: impl FnOnce(Process) -> Run) {
    let (mut simulation, sessions) =
        machine(MachineConfig { memory_bytes: 4 << 20, ..MachineConfig::default() }, "noop", DISK, 1);
    simulation.machine().spawn(name, sessions[0], program);
    simulation.run_to_completion();
}

/// Promise: sim-endless-run.
#[test]
#[should_panic(expected = "no time passes: spinner")]
fn a_process_that_goes_round_while_no_time_passes_ends_the_run_and_is_named() {
    run_alone("spinner", |process| async move {
        loop {
            process.sleep(Span::ZERO).await;
        }
    });
}

/// Promise: sim-endless-run.
#[test]
#[should_panic(expected = "processes wait for ever while the kernel's tasks go on: starving")]
fn a_process_that_waits_for_what_never_comes_ends_the_run_and_is_named() {
    run_alone("starving", |process| async move {
        // More pages at once than there is memory.
        process.read_device(PageRange { first: 0, count: 2048 }).await;
    });
}

#[test]
fn a_process_that_sleeps_for_a_year_ends_no_run() {
    run_alone("sleeper", |process| async move { process.sleep(Span::from_secs(365 * 24 * 3600)).await });
}
