//! The thread that looks at processes, and the way of its findings to the caller that asks for events.
//!
//! What one look has found lies ready until it is taken; before that no look follows, and the kernel counts on. A
//! thread that takes it never waits: where the thread is just putting something down, it is woken right after.

use super::census::{Census, Registered};
use super::processes::{Moved, Processes};
use super::tables::Tables;
use crate::counters::Counters;
use crate::error::TagsError;
use crate::source::{Entry, Surveyed, Table};
use crate::{Event, now};
use plimsoll_core::{Class, Span, Time};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

/// How often the processes are looked at.
const LOOK_EVERY: Span = Span::from_millis(20);
/// How often every process is asked for the cgroup anew.
const GROUPS_EVERY: Span = Span::from_secs(1);
/// The longest request that is told.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
const READ: u8 = 0;
const WRITE: u8 = 1;

/// What a look has found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) events: VecDeque<Event>,
    counters: BTreeMap<u32, Counters>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.counters.is_empty()
    }
}

/// What the thread and its callers have in common.
pub(super) struct Shared {
    pub(super) tables: Tables,
    found: Mutex<Found>,
    /// Readable since something was found.
    pub(super) handed_over: OwnedFd,
    pub(super) are_returns_told: AtomicBool,
    pub(super) is_over: AtomicBool,
}

impl Shared {
    pub(super) fn new() -> std::io::Result<Shared> {
        let handed_over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (are_returns_told, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Shared { tables: Tables::default(), found: Mutex::default(), handed_over, are_returns_told, is_over })
    }

    /// Moves the findings into `events`, which are empty, and adds their counts. Never waits.
    pub(super) fn take(&self, events: &mut VecDeque<Event>, counters: &mut BTreeMap<u32, Counters>) {
        let mut found = match self.found.try_lock() {
            Ok(found) => found,
            Err(TryLockError::Poisoned(found)) => found.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        std::mem::swap(&mut found.events, events);
        for (account, counted) in std::mem::take(&mut found.counters) {
            let sum = counters.entry(account).or_default();
            sum.read_bytes += counted.read_bytes;
            sum.data_bytes += counted.data_bytes;
            sum.dirtied_bytes += counted.dirtied_bytes;
            sum.freed_bytes += counted.freed_bytes;
        }
    }

    /// What was found until now wakes no thread any more.
    pub(super) fn forget_waking(&self) {
        let _ = rustix::io::read(&self.handed_over, &mut [0u8; 8]);
    }

    fn wake(&self) {
        // One that is full needs no more waking.
        let _ = rustix::io::write(&self.handed_over, &1u64.to_ne_bytes());
    }

    fn hand_over(&self, found: Found) {
        if !found.is_empty() {
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
            self.wake();
        }
    }

    fn is_taken(&self) -> bool {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Surveyed for Shared {
    fn entries(&self, table: Table) -> Result<Vec<Entry>, TagsError> {
        Ok(self.tables.entries(table))
    }

    /// Nothing carries an account: there are no tags.
    fn sweep(&self, _: u64) -> Result<u64, TagsError> {
        Ok(0)
    }
}

/// What the thread has.
pub(super) struct Watch {
    processes: Box<dyn Processes + Send>,
    census: Census,
    registered: Registered,
    returns: BTreeSet<u32>,
    groups_at: Time,
    capacity_sectors: u64,
    /// The next sector of what is told, as if all lay in a row.
    sector: u64,
    requests: u64,
}

impl Watch {
    pub(super) fn new(processes: Box<dyn Processes + Send>, capacity_sectors: u64, returns: &[u32]) -> Watch {
        Watch {
            processes,
            census: Census::default(),
            registered: Registered::default(),
            returns: returns.iter().copied().collect(),
            groups_at: Time::ZERO,
            capacity_sectors,
            sector: 0,
            requests: 0,
        }
    }

    pub(super) fn run(mut self, shared: &Shared) {
        while !shared.is_over.load(Ordering::Acquire) {
            if shared.is_taken() {
                let found = self.look(now(), shared);
                shared.hand_over(found);
            } else {
                // A caller may have come for it here meanwhile.
                shared.wake();
            }
            match self.registered.is_empty() {
                true => std::thread::park(),
                false => std::thread::park_timeout(LOOK_EVERY.into()),
            }
        }
    }

    pub(super) fn look(&mut self, now: Time, shared: &Shared) -> Found {
        let (since, has_new_groups) = shared.tables.learn(&mut self.registered);
        if self.registered.is_empty() {
            self.census = Census::default();
            return Found::default();
        }
        if (has_new_groups || now >= self.groups_at) && !self.registered.groups.is_empty() {
            self.census.forget_strangers();
            self.groups_at = now + GROUPS_EVERY;
        }
        let before = self.registered.clone();
        let moved = self.census.look(&*self.processes, since, &mut self.registered);
        let lost = shared.tables.remember(&before, &mut self.registered);
        let mut found = Found::default();
        for (account, moved) in moved.into_iter().filter(|(account, _)| !lost.contains(account)) {
            self.tell(now, account, moved, &mut found);
        }
        if shared.are_returns_told.load(Ordering::Relaxed) && !self.returns.is_empty() {
            self.tell_who_returned(&mut found.events);
        }
        found
    }

    /// Tells what an account has moved as requests that are done.
    fn tell(&mut self, now: Time, account: u32, moved: Moved, found: &mut Found) {
        let written = moved.written.saturating_sub(moved.cancelled);
        if moved != Moved::default() {
            let counters = found.counters.entry(account).or_default();
            (counters.read_bytes, counters.data_bytes) = (moved.read, written);
            (counters.dirtied_bytes, counters.freed_bytes) = (moved.written, moved.cancelled);
        }
        for (operation, bytes) in [(READ, moved.read), (WRITE, written)] {
            let mut rest = bytes;
            while rest > 0 {
                let bytes = rest.min(REQUEST_BYTES_MAX);
                rest -= bytes;
                self.tell_request(now, account, operation, bytes, &mut found.events);
            }
        }
    }

    fn tell_request(&mut self, now: Time, account: u32, operation: u8, bytes: u64, events: &mut VecDeque<Event>) {
        let sectors = bytes.next_multiple_of(PAGE_BYTES) / SECTOR_BYTES;
        if self.sector + sectors > self.capacity_sectors {
            self.sector = 0;
        }
        let (time_ns, id, sector, bytes) = (now.as_nanos(), self.requests, self.sector, bytes as u32);
        (self.requests, self.sector) = (self.requests + 1, self.sector + sectors);
        let (causes, class, inode, is_sync) = (1 << account, Class::default(), 0, operation == READ);
        if operation == WRITE {
            // No page's event tells of it.
            events.push_back(Event::WrittenDirect { time_ns, inode, causes });
        }
        events.push_back(Event::Issued { time_ns, id, sector, bytes, operation, causes, class, is_sync, inode });
        events.push_back(Event::Completed { time_ns, id, sector, bytes, status: 0 });
    }

    /// Reports each thread that is in none of the calls with an event for their return. A running thread may be in one.
    /// A thread that was let into a call meanwhile has not returned from it, and the caller may have read the clock a
    /// little before. So the report has the time of the look before this one.
    fn tell_who_returned(&self, events: &mut VecDeque<Event>) {
        for process in self.census.members() {
            let time_ns = now().saturating_sub(LOOK_EVERY).as_nanos();
            for (thread, call) in self.processes.calls(process) {
                let is_inside = u32::try_from(call).is_ok_and(|call| self.returns.contains(&call));
                if !is_inside {
                    events.push_back(Event::Returned { time_ns, thread });
                }
            }
        }
    }
}
