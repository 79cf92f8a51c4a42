//! A machine to test on.

#![allow(dead_code, reason = "each test uses some of it")]

use plimsoll_core::*;
use plimsoll_sim::fs::FileSystem;
use plimsoll_sim::fs::raw::Raw;
use plimsoll_sim::{MachineConfig, Simulation};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

pub const DISK: &str = "hdd.wd-aakx";

/// A machine over `raw` files, and `sessions` accounts to run processes in (the kernel's tasks have one of their own).
pub fn machine(config: MachineConfig, scheduler: &str, device: &str, sessions: usize) -> (Simulation, Vec<AccountId>) {
    let device = plimsoll_devices::build(device, config.seed).unwrap();
    let profile = device.profile().clone();
    machine_with(config, plimsoll_schedulers::build(scheduler, &profile).unwrap(), device, sessions)
}

pub fn machine_with(
    config: MachineConfig,
    scheduler: Box<dyn Scheduler>,
    device: Box<dyn plimsoll_devices::DeviceModel>,
    sessions: usize,
) -> (Simulation, Vec<AccountId>) {
    let file_system = Rc::new(Raw::new(device.profile().capacity_bytes));
    machine_on(file_system, config, scheduler, device, sessions)
}

pub fn machine_on(
    file_system: Rc<dyn FileSystem>,
    mut config: MachineConfig,
    scheduler: Box<dyn Scheduler>,
    device: Box<dyn plimsoll_devices::DeviceModel>,
    sessions: usize,
) -> (Simulation, Vec<AccountId>) {
    let profile = device.profile().clone();
    let mut tree = AccountTree::new(profile.clone());
    let mut open = |name: &str| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
    config.accounts.flusher = open("flusher");
    config.accounts.journal = open("journal");
    let sessions = (0..sessions).map(|number| open(&format!("session {number}"))).collect();
    (Simulation::new(config, scheduler, device, file_system, &tree), sessions)
}

pub fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// Dispatches what comes, in order, and keeps what it has seen.
pub struct Probe {
    seen: Seen,
    queue: VecDeque<BlockRequest>,
    inside: usize,
    /// Requests that it will see at once at the most.
    pub queue_max: usize,
    /// Holds an fsync, wishes for writeback, and lets it go on when everything dirtied has completed.
    pub holds_fsync_until_clean: bool,
    /// Wishes for a commit then, once.
    pub commit_at: Time,
    held: Option<(CallId, FileId)>,
    unwritten_bytes: i64,
}

/// What a probe has seen.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    requests: Vec<BlockRequest>,
    dirtied: Vec<PageEvent>,
    freed: Vec<PageEvent>,
}

impl Seen {
    pub fn requests(&self) -> Vec<BlockRequest> {
        self.0.lock().unwrap().requests.clone()
    }
    pub fn dirtied(&self) -> Vec<PageEvent> {
        self.0.lock().unwrap().dirtied.clone()
    }
    pub fn freed(&self) -> Vec<PageEvent> {
        self.0.lock().unwrap().freed.clone()
    }
}

impl Probe {
    pub fn new() -> (Probe, Seen) {
        let seen = Seen::default();
        let probe = Probe {
            seen: seen.clone(),
            queue: VecDeque::new(),
            inside: 0,
            queue_max: usize::MAX,
            holds_fsync_until_clean: false,
            commit_at: Time::MAX,
            held: None,
            unwritten_bytes: 0,
        };
        (probe, seen)
    }
}

impl Scheduler for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn call_entered(&mut self, _now: Time, call: &Call) -> CallDecision {
        if call.kind == CallKind::Fsync && self.holds_fsync_until_clean {
            self.held = Some((call.id, call.file));
            return CallDecision::Hold;
        }
        CallDecision::Admit
    }

    fn released_calls(&mut self, _now: Time, released: &mut Vec<CallId>) {
        if self.unwritten_bytes == 0 {
            released.extend(self.held.take().map(|(call, _)| call));
        }
    }

    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        if let Some((_, file)) = self.held {
            wishes.push(Wish::StartWriteback { file, bytes_max: 64 << 10 });
        }
        if now >= self.commit_at {
            self.commit_at = Time::MAX;
            wishes.push(Wish::Commit);
        } else if self.commit_at < Time::MAX {
            wishes.push(Wish::WakeAt(self.commit_at));
        }
    }

    fn pages_dirtied(&mut self, _now: Time, event: &PageEvent) {
        self.unwritten_bytes += event.length as i64;
        self.seen.0.lock().unwrap().dirtied.push(event.clone());
    }

    fn pages_freed(&mut self, _now: Time, event: &PageEvent) {
        self.seen.0.lock().unwrap().freed.push(event.clone());
    }

    fn request_added(&mut self, _now: Time, request: BlockRequest) {
        self.inside += 1;
        assert!(self.inside <= self.queue_max, "{} requests", self.inside);
        self.seen.0.lock().unwrap().requests.push(request.clone());
        self.unwritten_bytes -= if request.operation == Operation::Write { i64::from(request.length) } else { 0 };
        self.queue.push_back(request);
    }

    fn next(&mut self, _now: Time) -> Dispatch {
        self.queue.pop_front().map_or(Dispatch::Nothing, Dispatch::Now)
    }

    fn request_completed(&mut self, _now: Time, _completion: &Completion) {
        self.inside -= 1;
    }
}
