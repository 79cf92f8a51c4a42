//! Random work of three tenants; at every point where the device could have crashed, what was promised is there.

use super::oracle::{Disk, assert_order};
use super::{KINDS, Kind, Seen, Setup, Under, at};
use crate::cache::InodeNumber;
use crate::calls::file::File;
use crate::machine::Machine;
use crate::process::Process;
use plimsoll_core::{Span, Time};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;
const TENANTS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append { pages: u64 },
    Write { page: u64 },
    Direct { page: u64 },
    Preallocate { pages: u64 },
    Fsync,
    Fdatasync,
    Truncate { pages: u64 },
    Rename,
    Replace,
    MakeDirectory,
    Sync,
    Sleep { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..40u64).prop_map(|pages| Step::Append { pages }),
        4 => (0..200u64).prop_map(|page| Step::Write { page }),
        1 => (0..100u64).prop_map(|page| Step::Direct { page }),
        1 => (1..100u64).prop_map(|pages| Step::Preallocate { pages }),
        5 => Just(Step::Fsync),
        2 => Just(Step::Fdatasync),
        1 => (0..30u64).prop_map(|pages| Step::Truncate { pages }),
        1 => Just(Step::Rename),
        1 => Just(Step::Replace),
        1 => Just(Step::MakeDirectory),
        1 => Just(Step::Sync),
        1 => (1..3000u64).prop_map(|ms| Step::Sleep { ms }),
    ]
}

/// What a call promised when it returned.
struct Promise {
    /// What the device had seen by then.
    seen: usize,
    /// Pages, where they lie, and when they were last written.
    pages: Vec<(u64, Time)>,
    /// A transaction that must be committed.
    id: Option<u64>,
}

struct Tenant {
    process: Process,
    under: Under,
    seen: Arc<Mutex<Vec<Seen>>>,
    promises: Rc<RefCell<Vec<Promise>>>,
    number: usize,
    /// When each page was last written.
    written: BTreeMap<u64, Time>,
    /// The last call that changed more than times, and when it returned.
    changed: Option<(Time, Time)>,
    names: u32,
}

impl Tenant {
    fn path(&self, name: u32) -> String {
        format!("/{}-{name}", self.number)
    }

    async fn run(mut self, steps: Vec<Step>) {
        let start = self.process.now();
        let mut file = self.process.create(&self.path(0)).await.unwrap();
        self.changed = Some((start, self.process.now()));
        for step in steps {
            let start = self.process.now();
            match step {
                Step::Append { pages } => {
                    let first = file.size() / PAGE;
                    file.append(pages * PAGE).await;
                    self.note(first, pages, start);
                }
                Step::Write { page } => {
                    file.write(page * PAGE, PAGE).await;
                    self.note(page, 1, start);
                }
                Step::Direct { page } => {
                    let direct = self.process.open(&self.path(self.names)).await.unwrap().direct();
                    let start = self.process.now();
                    direct.write(page * PAGE, 2 * PAGE).await;
                    self.note(page, 2, start);
                }
                Step::Preallocate { pages } => {
                    file.allocate(0, pages * PAGE).await;
                }
                Step::Fsync => {
                    file.fsync().await;
                    self.promise(&file);
                }
                Step::Fdatasync => {
                    file.fdatasync().await;
                    self.promise(&file);
                }
                Step::Truncate { pages } => {
                    file.truncate(pages * PAGE).await;
                    self.written.retain(|&page, _| page < pages);
                    self.changed = Some((start, self.process.now()));
                }
                Step::Rename => {
                    let (from, to) = (self.path(self.names), self.path(self.names + 1));
                    self.process.rename(&from, &to).await.unwrap();
                    self.names += 1;
                }
                Step::Replace => {
                    self.process.unlink(&self.path(self.names)).await.unwrap();
                    self.written.clear();
                    let start = self.process.now();
                    file = self.process.create(&self.path(self.names)).await.unwrap();
                    self.changed = Some((start, self.process.now()));
                }
                Step::MakeDirectory => {
                    let path = format!("/d{}-{}", self.number, self.process.now().as_nanos());
                    self.process.mkdir(&path).await.unwrap();
                    self.process.unlink(&path).await.unwrap();
                }
                Step::Sync => self.process.sync().await,
                Step::Sleep { ms } => self.process.sleep(Span::from_millis(ms)).await,
            }
        }
        self.process.unlink(&self.path(self.names)).await.unwrap();
    }

    fn note(&mut self, first: u64, pages: u64, start: Time) {
        self.written.extend((first..first + pages).map(|page| (page, start)));
    }

    fn promise(&self, file: &File) {
        let number: InodeNumber = file.inode().number;
        let runs = self.under.places(number);
        let mut pages = Vec::new();
        for (&page, &since) in &self.written {
            let run = runs.iter().find(|run| run.page <= page && page < run.end());
            let run = run.unwrap_or_else(|| panic!("page {page} has no place after fsync"));
            assert!(!run.is_unwritten, "page {page} reads as zero after fsync");
            pages.push((run.block + page - run.page, since));
        }
        let block = self.under.inode_block(number);
        let history = self.under.history();
        let id = self.changed.and_then(|(from, to)| {
            let joins = history.joins.iter().filter(|&&(joined, _, at)| joined == block && from <= at && at <= to);
            joins.map(|&(_, id, _)| id).min()
        });
        assert!(id.is_some() || self.changed.is_none(), "a change of the inode joins a transaction");
        let seen = self.seen.lock().unwrap().len();
        self.promises.borrow_mut().push(Promise { seen, pages, id });
    }
}

fn check(kind: Kind, device: &'static str, log_blocks: u64, work: &[Vec<Step>]) {
    let mut setup = Setup::new(kind, device);
    setup.log_blocks = Some(log_blocks);
    let mut bench = setup.build();
    let free = bench.under.free_blocks();
    let promises: Rc<RefCell<Vec<Promise>>> = Rc::default();
    let machine: Machine = bench.simulation.machine().clone();
    for (number, steps) in work.iter().cloned().enumerate() {
        let (under, seen, promises) = (bench.under.clone(), bench.seen.clone(), promises.clone());
        machine.spawn(&format!("tenant {number}"), bench.sessions[number], |process| {
            let written = BTreeMap::new();
            Tenant { process, under, seen, promises, number, written, changed: None, names: 0 }.run(steps)
        });
    }
    for tenth in 1..4 {
        bench.simulation.run_until(at(f64::from(tenth) * 0.1));
        bench.under.assert_each_block_has_one_owner();
    }
    bench.simulation.run_to_completion();
    bench.under.assert_each_block_has_one_owner();
    let end = bench.simulation.machine().now() + Span::from_secs(100);
    bench.simulation.run_until(end);
    // XFS makes the root's first block with its first entry.
    let root = if kind == Kind::Xfs { 1 } else { 0 };
    assert_eq!(bench.under.free_blocks(), free - root, "what was unlinked is free again");
    let disk = Disk::replay(&bench.seen.lock().unwrap());
    assert_order(&disk, &bench.under);
    let history = bench.under.history();
    for promise in promises.borrow().iter() {
        for &(block, since) in &promise.pages {
            assert!(disk.has(block, since, promise.seen), "block {block} is not on the device after fsync");
        }
        if let Some(id) = promise.id {
            let commit = history.commits.iter().find(|commit| commit.id == id).expect("committed");
            let is_there = disk.writes[&commit.record()].iter().any(|w| w.is_forced && w.durable < promise.seen);
            assert!(is_there, "transaction {id} is not on the device after fsync");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]
    #[test]
    fn a_crash_at_any_point_leaves_what_was_promised(
        work in proptest::collection::vec(proptest::collection::vec(step(), 1..25), TENANTS),
        is_disk in any::<bool>(),
    ) {
        for kind in KINDS {
            // The smallest journal of mke2fs; XFS needs more for what it sets aside.
            let log_blocks = if kind == Kind::Xfs { 2048 } else { 1024 };
            check(kind, if is_disk { "hdd.wd-aakx" } else { "nvme" }, log_blocks, &work);
        }
    }
}
