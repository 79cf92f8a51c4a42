//! Tests of both journaling file systems: on a device that writes down what it was asked and when it was done.

mod behaviour;
mod crash;
mod entanglement;
mod oracle;
mod passing;

use super::ext4::{self, Ext4};
use super::extents::Run;
use super::history::History;
use super::space::Blocks;
use super::xfs::{self, Xfs};
use crate::Simulation;
use crate::cache::InodeNumber;
use crate::config::MachineConfig;
use passing::Passing;
use plimsoll_core::{AccountId, AccountKind, AccountTree, Allocation, BlockRequest, DeviceProfile, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use std::cell::Ref;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// Which file system, how mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ordered,
    Nolock,
    Xfs,
}

pub const KINDS: [Kind; 3] = [Kind::Ordered, Kind::Nolock, Kind::Xfs];

/// What a device saw.
#[derive(Clone, Debug)]
pub enum Seen {
    Submitted(Time, DeviceRequest),
    Completed(Time, u64),
}

/// A device that writes down what it sees.
struct Recorder {
    inner: Box<dyn DeviceModel>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl DeviceModel for Recorder {
    fn profile(&self) -> &DeviceProfile {
        self.inner.profile()
    }
    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.seen.lock().unwrap().push(Seen::Submitted(now, request.clone()));
        self.inner.submit(now, request);
    }
    fn next_completion(&self) -> Option<Time> {
        self.inner.next_completion()
    }
    fn complete(&mut self, now: Time) -> Option<Finished> {
        let finished = self.inner.complete(now)?;
        self.seen.lock().unwrap().push(Seen::Completed(now, finished.token));
        Some(finished)
    }
    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }
}

/// A block scheduler, and what it was asked.
struct Keeper {
    inner: Box<dyn plimsoll_core::Scheduler>,
    requests: Arc<Mutex<Vec<BlockRequest>>>,
}

impl plimsoll_core::Scheduler for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }
    fn request_added(&mut self, now: Time, request: BlockRequest) {
        self.requests.lock().unwrap().push(request.clone());
        self.inner.request_added(now, request);
    }
    fn next(&mut self, now: Time) -> plimsoll_core::Dispatch {
        self.inner.next(now)
    }
    fn account_opened(&mut self, now: Time, account: &plimsoll_core::Account) {
        self.inner.account_opened(now, account);
    }
    fn request_completed(&mut self, now: Time, completion: &plimsoll_core::Completion) {
        self.inner.request_completed(now, completion);
    }
}

/// The file system under test.
#[derive(Clone)]
pub enum Under {
    Ext4(Rc<Ext4>),
    Xfs(Rc<Xfs>),
}

impl Under {
    pub fn history(&self) -> Ref<'_, History> {
        match self {
            Under::Ext4(ext4) => ext4.journal.history.borrow(),
            Under::Xfs(xfs) => xfs.log.history.borrow(),
        }
    }

    pub fn places(&self, inode: InodeNumber) -> Vec<Run> {
        match self {
            Under::Ext4(ext4) => ext4.places(inode),
            Under::Xfs(xfs) => xfs.places(inode),
        }
    }

    pub fn inode_block(&self, inode: InodeNumber) -> u64 {
        match self {
            Under::Ext4(ext4) => ext4.inode_block(inode),
            Under::Xfs(xfs) => xfs.inode_block(inode),
        }
    }

    pub fn free_blocks(&self) -> u64 {
        match self {
            Under::Ext4(ext4) => ext4.free_blocks(),
            Under::Xfs(xfs) => xfs.free_blocks(),
        }
    }

    pub fn is_free(&self, block: u64) -> bool {
        match self {
            Under::Ext4(ext4) => ext4.is_free(block),
            Under::Xfs(xfs) => xfs.is_free(block),
        }
    }

    /// No file has a block that another has, or that is free: one entry for each block, as a naive bitmap.
    pub fn assert_each_block_has_one_owner(&self) {
        let owned: Vec<Blocks> = match self {
            Under::Ext4(ext4) => ext4.owned(),
            Under::Xfs(xfs) => xfs.owned(),
        };
        let mut owner = BTreeMap::new();
        for (number, blocks) in owned.iter().enumerate() {
            for block in blocks.first..blocks.end() {
                assert_eq!(owner.insert(block, number), None, "block {block} has two owners");
                assert!(!self.is_free(block), "block {block} has an owner and is free");
            }
        }
    }
}

/// A machine with a file system on a recorded device.
pub struct Bench {
    pub simulation: Simulation,
    pub sessions: Vec<AccountId>,
    pub journal: AccountId,
    pub under: Under,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub requests: Arc<Mutex<Vec<BlockRequest>>>,
}

/// The scheduler that orders the requests.
#[derive(Clone, Copy, Debug)]
pub enum Queue {
    Deadline,
    /// Everything passes before the second session's data, which waits until then at least.
    Passing {
        held_until: Time,
    },
}

/// How a bench is set up; `log_blocks` as mkfs would choose if `None`.
#[derive(Clone, Debug)]
pub struct Setup {
    pub kind: Kind,
    pub device: &'static str,
    pub scheduler: Queue,
    pub log_blocks: Option<u64>,
    pub config: MachineConfig,
}

impl Setup {
    pub fn new(kind: Kind, device: &'static str) -> Setup {
        let config = MachineConfig { memory_bytes: 256 << 20, ..MachineConfig::default() };
        Setup { kind, device, scheduler: Queue::Deadline, log_blocks: None, config }
    }

    pub fn build(self) -> Bench {
        let Setup { kind, device, scheduler, log_blocks, mut config } = self;
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let requests: Arc<Mutex<Vec<BlockRequest>>> = Arc::default();
        let inner = plimsoll_devices::build(device, config.seed).unwrap();
        let profile = inner.profile().clone();
        let device = Box::new(Recorder { inner, seen: seen.clone() });
        let mut tree = AccountTree::new(profile.clone());
        let mut open =
            |name: &str| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
        config.accounts.flusher = open("flusher");
        config.accounts.journal = open("journal");
        let sessions: Vec<AccountId> = (0..10).map(|number| open(&format!("session {number}"))).collect();
        let inner = match scheduler {
            Queue::Deadline => plimsoll_schedulers::build("block_deadline", &profile).unwrap(),
            Queue::Passing { held_until } => Box::new(Passing::new(sessions[1], held_until)),
        };
        let scheduler = Box::new(Keeper { inner, requests: requests.clone() });
        let journal = config.accounts.journal;
        let capacity = profile.capacity_bytes;
        let ext4 = |options: ext4::Ext4Options| {
            Ext4::new(capacity, ext4::Ext4Options { journal_blocks: log_blocks, ..options })
        };
        let under = match kind {
            Kind::Ordered => Under::Ext4(ext4(ext4::Ext4Options::ORDERED)),
            Kind::Nolock => Under::Ext4(ext4(ext4::Ext4Options::NOLOCK)),
            Kind::Xfs => Under::Xfs(Xfs::new(capacity, xfs::XfsOptions { log_blocks })),
        };
        let simulation = match under.clone() {
            Under::Ext4(file_system) => Simulation::new(config, scheduler, device, file_system, &tree),
            Under::Xfs(file_system) => Simulation::new(config, scheduler, device, file_system, &tree),
        };
        Bench { simulation, sessions, journal, under, seen, requests }
    }
}

/// Whether a request is of a file's data: metadata is the device's own file.
pub fn is_data(request: &BlockRequest) -> bool {
    request.file.is_some_and(|file| file != InodeNumber::DEVICE.file())
}

pub fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}
