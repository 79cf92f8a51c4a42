//! Readers: read-ahead keeps a sequential reader at the speed of the device, pages are read once, memory is used.

mod common;

use common::*;
use plimsoll_core::*;
use plimsoll_sim::cache::PAGE_BYTES;
use plimsoll_sim::{Bytes, MachineConfig, Simulation};

const DISK_BYTES_PER_SECOND: f64 = 138e6;

fn config() -> MachineConfig {
    MachineConfig { memory_bytes: 1 << 30, ..MachineConfig::default() }
}

/// A file of so many bytes that is not in memory.
fn with_file(config: MachineConfig, device: &str, bytes: u64, sessions: usize) -> (Simulation, Vec<AccountId>) {
    let (mut simulation, sessions) = machine(config, "noop", device, sessions);
    simulation.machine().spawn("maker", sessions[0], move |process| async move {
        process.create("/file").await.unwrap().allocate(0, bytes).await;
    });
    simulation.run_to_completion();
    (simulation, sessions)
}

fn read_sequentially(simulation: &Simulation, name: &str, session: AccountId, bytes: u64, at_a_time: u64) {
    simulation.machine().spawn(name, session, move |process| async move {
        let file = process.open("/file").await.unwrap();
        for place in 0..bytes / at_a_time {
            assert_eq!(file.read(place * at_a_time, at_a_time).await, at_a_time);
        }
    });
}

#[test]
fn a_sequential_reader_has_the_speed_of_the_device() {
    for at_a_time in [4.kib(), 64.kib(), 1.mib()] {
        let (mut simulation, sessions) = with_file(config(), DISK, 512.mib(), 1);
        read_sequentially(&simulation, "reader", sessions[0], 512.mib(), at_a_time);
        simulation.run_to_completion();
        let rate = 512.mib() as f64 / simulation.machine().now().as_secs_f64();
        assert!((0.93..1.02).contains(&(rate / DISK_BYTES_PER_SECOND)), "{rate} with {at_a_time} bytes a read");
        let requests = simulation.machine().block.borrow().flow().added;
        assert!(requests < 512.mib() / 100.kib(), "{requests} requests, 128 KiB each but for the first");
    }
}

/// On a drive without a buffer that reads ahead by itself.
#[test]
fn without_read_ahead_each_page_is_waited_for() {
    let rate = |read_ahead_bytes| {
        let config = MachineConfig { read_ahead_bytes, ..config() };
        let (mut simulation, sessions) = with_file(config, "ssd.x25-m", 64.mib(), 1);
        read_sequentially(&simulation, "reader", sessions[0], 64.mib(), 4.kib());
        simulation.run_to_completion();
        64.mib() as f64 / simulation.machine().now().as_secs_f64()
    };
    let (without, with) = (rate(0), rate(128.kib()));
    assert!(with > 3.0 * without, "{with} and {without}");
}

#[test]
fn two_readers_of_the_same_pages_wait_for_the_same_requests() {
    let (mut simulation, sessions) = with_file(config(), DISK, 64.mib(), 2);
    read_sequentially(&simulation, "first", sessions[0], 64.mib(), 64.kib());
    read_sequentially(&simulation, "second", sessions[1], 64.mib(), 64.kib());
    simulation.run_to_completion();
    let bytes = |name: &str| simulation.machine().statistics.of(name).bytes(CallKind::Read);
    assert_eq!((bytes("first"), bytes("second")), (64.mib(), 64.mib()));
    let file = simulation.machine().inode_of("/file").unwrap();
    let resident = simulation.machine().cache.borrow().mapping(file).unwrap().resident;
    assert_eq!(resident, 64.mib() / PAGE_BYTES);
    let rate = 64.mib() as f64 / simulation.machine().now().as_secs_f64();
    assert!(rate > 0.85 * DISK_BYTES_PER_SECOND, "{rate}");
}

#[test]
fn what_fits_into_memory_is_read_once_and_what_does_not_again_and_again() {
    for (bytes, rounds_from_disk) in [(512.mib(), 1), (2.gib(), 3)] {
        let (mut simulation, sessions) = with_file(config(), DISK, bytes, 1);
        for _ in 0..3 {
            read_sequentially(&simulation, "reader", sessions[0], bytes, 1.mib());
            simulation.run_to_completion();
        }
        let seconds = simulation.machine().now().as_secs_f64();
        let from_disk = (rounds_from_disk * bytes) as f64 / DISK_BYTES_PER_SECOND;
        assert!((0.97..1.25).contains(&(seconds / from_disk)), "{bytes} bytes: {seconds} s, {from_disk} s of the disk");
    }
}

#[test]
fn direct_readers_leave_no_pages_and_see_every_byte() {
    let (mut simulation, sessions) = with_file(config(), DISK, 64.mib(), 1);
    simulation.machine().spawn("direct", sessions[0], |process| async move {
        let file = process.open("/file").await.unwrap().direct();
        for place in 0..64 {
            file.read(place.mib(), 1.mib()).await;
        }
        file.write(0, 1.mib()).await;
    });
    simulation.run_to_completion();
    let cache = simulation.machine().cache.borrow();
    assert_eq!(cache.totals.hits + cache.totals.misses, 0);
    assert_eq!(simulation.machine().block.borrow().flow().added, 65 * 2, "cut into requests of 512 KiB");
}

#[test]
fn a_partial_write_to_a_page_that_is_not_in_memory_reads_it_first() {
    let (mut simulation, sessions) = with_file(config(), DISK, 64.mib(), 1);
    simulation.machine().spawn("writer", sessions[0], |process| async move {
        let file = process.open("/file").await.unwrap();
        file.write(10.mib() + 100, 200).await;
        file.write(20.mib(), 4.kib()).await;
        file.append(100).await;
    });
    simulation.run_to_completion();
    assert_eq!(simulation.machine().block.borrow().flow().added, 1, "whole pages and new ones need no reading");
    assert!(simulation.machine().now() > at(0.001));
}

/// Red where a reader goes on asking for pages behind the new end: no page comes, no time passes, and the run never
/// ends.
/// Promise: sim-cut-file.
#[test]
fn a_read_of_a_file_that_is_cut_meanwhile_ends_at_the_new_end() {
    let (whole, left) = (16.mib(), 1.mib());
    let (mut simulation, sessions) = with_file(config(), DISK, whole, 2);
    let machine = simulation.machine().clone();
    let read = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let seen = read.clone();
    machine.spawn("reader", sessions[0], move |process| async move {
        let file = process.open("/file").await.unwrap();
        let first = file.read(100, whole - 100).await;
        seen.set((first, file.read(left, whole).await));
    });
    machine.spawn("cutter", sessions[1], move |process| async move {
        process.sleep(Span::from_millis(50)).await;
        process.open("/file").await.unwrap().truncate(left).await;
    });
    simulation.run_to_completion();
    let (first, second) = read.get();
    assert!((left - 100..whole - 100).contains(&first), "{first}: what was there before the cut, and no more");
    assert_eq!(second, 0, "behind the end there is nothing");
    let reader = machine.statistics.of("reader");
    assert_eq!(reader.bytes(CallKind::Read), first, "the figures have what the call answered");
}
