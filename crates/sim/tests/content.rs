//! What processes write reaches the device: page by page, at the file's place, in the name of the processes that wrote
//! it. The oracle is a map of pages.

mod common;

use common::*;
use plimsoll_core::*;
use plimsoll_sim::cache::{InodeNumber, PAGE_BYTES, PageRange};
use plimsoll_sim::{File, MachineConfig, Process};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const FILES: usize = 3;
const FILE_PAGES: u64 = 600;

#[derive(Clone, Debug)]
enum Step {
    Write { file: usize, offset: u64, length: u64 },
    Read { file: usize, offset: u64, length: u64 },
    Fsync(usize),
    Truncate(usize, u64),
    Nap(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..FILES, 0..FILE_PAGES * PAGE_BYTES, 1..200_000u64);
    prop_oneof![
        5 => place().prop_map(|(file, offset, length)| Step::Write { file, offset, length }),
        2 => place().prop_map(|(file, offset, length)| Step::Read { file, offset, length }),
        1 => (0..FILES).prop_map(Step::Fsync),
        1 => (0..FILES, 1..FILE_PAGES).prop_map(|(file, pages)| Step::Truncate(file, pages * PAGE_BYTES)),
        1 => (0..20_000u64).prop_map(Step::Nap),
    ]
}

async fn run(process: Process, steps: Vec<Step>, is_first: bool) {
    if !is_first {
        process.sleep(Span::from_nanos(1)).await;
    }
    let mut files: Vec<File> = Vec::new();
    for number in 0..FILES {
        let path = format!("/{number}");
        files.push(if is_first {
            process.create(&path).await.unwrap()
        } else {
            while process.machine().inode_of(&path).is_err() {
                process.sleep(Span::from_micros(1)).await;
            }
            process.open(&path).await.unwrap()
        });
    }
    for step in steps {
        match step {
            Step::Write { file, offset, length } => files[file].write(offset, length).await,
            Step::Read { file, offset, length } => drop(files[file].read(offset, length).await),
            Step::Fsync(file) => files[file].fsync().await,
            Step::Truncate(file, bytes) => files[file].truncate(bytes).await,
            Step::Nap(millis) => process.sleep(Span::from_millis(millis)).await,
        }
    }
}

/// Pages of files, with the accounts that dirtied them, less the freed pages; as the scheduler was told.
fn expected(seen: &Seen) -> BTreeMap<(u64, u64), u64> {
    let mut dirtied = BTreeMap::new();
    for event in seen.dirtied() {
        for page in event.offset / PAGE_BYTES..(event.offset + event.length) / PAGE_BYTES {
            *dirtied.entry((event.file.0, page)).or_insert(0) += u64::from(event.previous.is_empty());
        }
    }
    for event in seen.freed() {
        for page in event.offset / PAGE_BYTES..(event.offset + event.length) / PAGE_BYTES {
            *dirtied.get_mut(&(event.file.0, page)).expect("freed after it was dirtied") -= 1;
        }
    }
    dirtied.retain(|_, times| *times > 0);
    dirtied
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Promise: sim-cut-file.
    #[test]
    fn every_dirtied_page_is_written_as_often_as_it_became_dirty(
        first in proptest::collection::vec(step(), 1..30), second in proptest::collection::vec(step(), 0..30),
        memory_pages in 300..4000u64, has_stable_pages: bool,
    ) {
        let (probe, seen) = Probe::new();
        let device = plimsoll_devices::build("ssd.x25-m", 1).unwrap();
        let memory_bytes = memory_pages * PAGE_BYTES;
        let config = MachineConfig { memory_bytes, has_stable_pages, ..MachineConfig::default() };
        let (mut simulation, sessions) = machine_with(config, Box::new(probe), device, 2);
        let machine = simulation.machine().clone();
        machine.spawn("first", sessions[0], move |process| run(process, first, true));
        machine.spawn("second", sessions[1], move |process| run(process, second, false));
        simulation.run_to_completion();
        machine.spawn("sync", sessions[0], |process| async move { process.sync().await });
        simulation.run_to_completion();
        prop_assert_eq!(machine.cache.borrow().dirty() + machine.cache.borrow().writeback(), 0);

        let mut written: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let members: BTreeSet<u32> = sessions.iter().map(|session| session.0).collect();
        for request in seen.requests().into_iter().filter(|request| request.operation == Operation::Write) {
            prop_assert!(request.causes.iter().all(|cause| members.contains(&cause.0)) && !request.causes.is_empty());
            let file = request.file.expect("all writes are data");
            for page in 0..u64::from(request.length) / PAGE_BYTES {
                let place = request.offset + page * PAGE_BYTES;
                let index = page_at(&machine, file, place).unwrap_or(u64::MAX);
                *written.entry((file.0, index)).or_insert(0) += 1;
            }
        }
        // A file that was cut has no places any more behind its end.
        let ends: Vec<u64> = (0..FILES).map(|n| machine.inode(machine.inode_of(&format!("/{n}")).unwrap()).pages()).collect();
        let inside = |&(file, page): &(u64, u64)| page < ends[file as usize - 2];
        let told: BTreeMap<_, _> = expected(&seen).into_iter().filter(|(key, _)| inside(key)).collect();
        written.retain(|key, _| key.1 != u64::MAX && inside(key));
        prop_assert_eq!(written, told);
    }
}

/// The page of a file that lies at a place of the device; extents of `raw` are never moved while the file lives.
fn page_at(machine: &plimsoll_sim::Machine, file: FileId, place: u64) -> Option<u64> {
    let inode = machine.inode(InodeNumber(file.0 as u32));
    let extent = machine.file_system.mapped(&inode, PageRange { first: 0, count: FILE_PAGES + 100 });
    place.checked_sub(extent.device_offset?).map(|bytes| bytes / PAGE_BYTES)
}
