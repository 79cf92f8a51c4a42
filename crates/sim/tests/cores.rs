//! Processor time: other processes slow a reader only when there are very many of them (split-level paper, figure 15).

mod common;

use common::*;
use plimsoll_core::*;
use plimsoll_sim::{Bytes, MachineConfig};

/// Bytes per second that a sequential reader gets beside so many processes that never wait.
fn rate_beside(spinners: usize) -> f64 {
    let (mut simulation, sessions) = machine(MachineConfig::default(), "noop", DISK, 2);
    let machine = simulation.machine().clone();
    machine.spawn("reader", sessions[0], |process| async move {
        let file = process.create("/file").await.unwrap();
        file.allocate(0, 10.gib()).await;
        for place in 0.. {
            file.read(place * 128.kib(), 128.kib()).await;
        }
    });
    for _ in 0..spinners {
        machine.spawn("spinner", sessions[1], |process| async move {
            loop {
                process.compute(Span::from_millis(100)).await;
            }
        });
    }
    simulation.run_until(at(11.0));
    let busy = machine.cpu_busy().as_secs_f64();
    assert!(spinners < 8 || busy > 8.0 * 11.0 * 0.999, "eight cores are busy: {busy} s");
    machine.statistics.of("reader").calls(CallKind::Read).unwrap().bytes_per_second(1, 11)
}

#[test]
fn a_reader_is_slowed_by_very_many_spinners_only() {
    let alone = rate_beside(0);
    assert!(rate_beside(7) > 0.99 * alone, "a core is left");
    let few = rate_beside(64);
    assert!(few > 0.7 * alone, "{few} of {alone}");
    let many = rate_beside(1024);
    assert!(many < 0.6 * few, "{many}, {few}, {alone}");
}
