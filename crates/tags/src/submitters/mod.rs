//! Tags where BPF is not permitted: an I/O is whose process submits it or makes the page dirty.
//!
//! The kernel counts for each process what it has read from disks and how much it has made dirty (`/proc/PID/io`,
//! `CONFIG_TASK_IO_ACCOUNTING`). [`Submitters`] looks at the processes of the accounts every [`LOOK_EVERY`] and tells what they
//! have moved as requests that went to the disk and are done. [`census`] finds out who belongs to whom.
//!
//! **What is lost** against the programs: on which disk and where it lies (all of it counts as on this one, and as sequential), the
//! journal and metadata, a second writer of a dirty page, and everybody who is registered nowhere. A child that is born
//! and loses its parent between two looks belongs to nobody, unless its cgroup is registered. There is no tag of any
//! block.

mod census;
mod processes;

use crate::counters::Counters;
use crate::device::Device;
use crate::error::TagsError;
use crate::memory::SharedMemory;
use crate::shared::{self, Group, Plain, Registration, State};
use crate::source::{self, Entry, Source, Surveyed, Table};
use crate::{Coverage, Event, Options};
use census::{Census, Registered};
use plimsoll_core::{Class, Span, Time};
use processes::{Moved, Proc};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How often the processes are looked at.
const LOOK_EVERY: Span = Span::from_millis(20);
/// How often everybody is asked for the cgroup anew.
const GROUPS_EVERY: Span = Span::from_secs(1);
/// The longest request that is told.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
const READ: u8 = 0;
const WRITE: u8 = 1;
/// The process's own count; a kernel without `CONFIG_TASK_IO_ACCOUNTING` has none.
const OWN_COUNT: &str = "/proc/self/io";

/// Keys and values by table.
type ByTable = BTreeMap<Table, BTreeMap<Vec<u8>, Vec<u8>>>;

#[derive(Default)]
struct Tables(Mutex<ByTable>);

impl Tables {
    fn lock(&self) -> MutexGuard<'_, ByTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Surveyed for Tables {
    fn entries(&self, table: Table) -> Result<Vec<Entry>, TagsError> {
        let tables = self.lock();
        let entries = tables.get(&table).into_iter().flatten();
        Ok(entries.map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Nothing carries an account: there are no tags.
    fn sweep(&self, _: u64) -> Result<u64, TagsError> {
        Ok(0)
    }
}

/// See the [module's text](self).
pub(crate) struct Submitters {
    tables: Arc<Tables>,
    counters: BTreeMap<u32, Counters>,
    census: Census,
    returns: BTreeSet<u32>,
    are_returns_told: bool,
    look_at: Time,
    /// When somebody was registered who was not looked at yet, in ticks since the machine began.
    registered_at: Option<u64>,
    groups_at: Time,
    capacity_sectors: u64,
    /// The next sector of what is told, as if all lay in a row.
    sector: u64,
    requests: u64,
    timer: OwnedFd,
    state: Arc<SharedMemory>,
    entries: Arc<SharedMemory>,
}

/// Begins to look at processes, for the block device at `path`; `why` says what keeps the programs from running.
pub(crate) fn begin(path: &Path, options: &Options, why: &str) -> Result<(Box<dyn Source>, Coverage), TagsError> {
    if !rustix::process::geteuid().is_root() {
        return Err(TagsError::NotRun("who submits I/O is told by files that only root may read".to_owned()));
    }
    if !Path::new(OWN_COUNT).exists() {
        return Err(TagsError::NotRun(
            "the kernel does not count I/O by process (CONFIG_TASK_IO_ACCOUNTING)".to_owned(),
        ));
    }
    let device = Device::open(path)?;
    let system = |action| move |error: std::io::Error| TagsError::Kernel { action, reason: error.to_string() };
    let memory = |bytes| SharedMemory::anonymous(bytes).map(Arc::new).map_err(system("get memory"));
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
    let submitters = Submitters {
        tables: Arc::default(),
        counters: BTreeMap::new(),
        census: Census::default(),
        returns: options.returns.iter().copied().collect(),
        are_returns_told: false,
        look_at: Time::ZERO,
        registered_at: None,
        groups_at: Time::ZERO,
        capacity_sectors: device.sectors,
        sector: 0,
        requests: 0,
        timer: timer.map_err(|errno| system("make a timer")(errno.into()))?,
        state: memory(size_of::<State>())?,
        entries: memory(shared::ENTRY_BYTES)?,
    };
    source::initialize(&submitters.state, &device);
    Ok((Box::new(submitters), Coverage::of_submitters(device.file_system, why)))
}

impl Submitters {
    fn look(&mut self, now: Time, each: &mut dyn FnMut(Event)) {
        let mut registered = self.registered();
        if registered.processes.is_empty() && registered.threads.is_empty() && registered.groups.is_empty() {
            return;
        }
        if now >= self.groups_at && !registered.groups.is_empty() {
            self.census.forget_strangers();
            self.groups_at = now + GROUPS_EVERY;
        }
        let since = self.registered_at.take().unwrap_or_else(boot_ticks);
        let moved = self.census.look(&Proc, since, &mut registered);
        self.remember(&registered);
        for (account, moved) in moved {
            self.tell(now, account, moved, each);
        }
        if self.are_returns_told && !self.returns.is_empty() {
            self.tell_who_returned(now, each);
        }
    }

    fn registered(&self) -> Registered {
        let tables = self.tables.lock();
        let of = |table| {
            let entries = tables.get(&table).into_iter().flatten();
            entries.filter_map(|(key, value)| Some((key, Registration::take(&mut &value[..])?.account)))
        };
        let tasks = |table| of(table).filter_map(|(key, account)| Some((u32::take(&mut &key[..])?, account))).collect();
        let groups = of(Table::Cgroups).filter_map(|(key, account)| Some((Group::take(&mut &key[..])?, account)));
        Registered { processes: tasks(Table::Processes), threads: tasks(Table::Threads), groups: groups.collect() }
    }

    /// Who has inherited a registration has it now, and who has ended has none.
    fn remember(&mut self, registered: &Registered) {
        for (table, tasks) in [(Table::Processes, &registered.processes), (Table::Threads, &registered.threads)] {
            let entry = |(task, account): (&u32, &u32)| {
                (task.bytes(), Registration { account: *account, is_automatic: 0 }.bytes())
            };
            self.tables.lock().insert(table, tasks.iter().map(entry).collect());
        }
    }

    /// Tells what an account has moved as requests that are done.
    fn tell(&mut self, now: Time, account: u32, moved: Moved, each: &mut dyn FnMut(Event)) {
        let written = moved.written.saturating_sub(moved.cancelled);
        let counters = self.counters.entry(account).or_default();
        counters.read_bytes += moved.read;
        counters.data_bytes += written;
        counters.dirtied_bytes += moved.written;
        counters.freed_bytes += moved.cancelled;
        for (operation, bytes) in [(READ, moved.read), (WRITE, written)] {
            let mut rest = bytes;
            while rest > 0 {
                let bytes = rest.min(REQUEST_BYTES_MAX);
                rest -= bytes;
                self.tell_request(now, account, operation, bytes, each);
            }
        }
    }

    fn tell_request(&mut self, now: Time, account: u32, operation: u8, bytes: u64, each: &mut dyn FnMut(Event)) {
        let sectors = bytes.next_multiple_of(PAGE_BYTES) / SECTOR_BYTES;
        if self.sector + sectors > self.capacity_sectors {
            self.sector = 0;
        }
        let (time_ns, id, sector, bytes) = (now.as_nanos(), self.requests, self.sector, bytes as u32);
        (self.requests, self.sector) = (self.requests + 1, self.sector + sectors);
        let (causes, class, inode, is_sync) = (1 << account, Class::default(), 0, operation == READ);
        if operation == WRITE {
            // No page's event tells of it.
            each(Event::WrittenDirect { time_ns, inode, causes });
        }
        each(Event::Issued { time_ns, id, sector, bytes, operation, causes, class, is_sync, inode });
        each(Event::Completed { time_ns, id, sector, bytes, status: 0 });
    }

    /// Tells of each thread that is in none of the calls whose return is an event. Whoever is running may be in one.
    fn tell_who_returned(&self, now: Time, each: &mut dyn FnMut(Event)) {
        for process in self.census.members() {
            let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
                let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
                let number: Option<i64> = call.split(' ').next().and_then(|number| number.parse().ok());
                let is_inside = |number: i64| u32::try_from(number).is_ok_and(|number| self.returns.contains(&number));
                if number.is_some_and(|number| !is_inside(number)) {
                    each(Event::Returned { time_ns: now.as_nanos(), thread });
                }
            }
        }
    }
}

impl Source for Submitters {
    fn state(&self) -> &Arc<SharedMemory> {
        &self.state
    }

    fn entries_of_tags(&self) -> (&Arc<SharedMemory>, u32) {
        (&self.entries, 0)
    }

    fn lookup(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, TagsError> {
        Ok(self.tables.lock().get(&table).and_then(|table| table.get(key).cloned()))
    }

    fn survey(&self) -> Arc<dyn Surveyed> {
        Arc::clone(&self.tables) as Arc<dyn Surveyed>
    }

    fn update(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), TagsError> {
        self.tables.lock().entry(table).or_default().insert(key.to_vec(), value.to_vec());
        // Before it does anything, it is counted from here.
        (self.look_at, self.groups_at) = (Time::ZERO, Time::ZERO);
        self.registered_at.get_or_insert_with(boot_ticks);
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, TagsError> {
        Ok(self.tables.lock().entry(table).or_default().remove(key).is_some())
    }

    fn counters(&self, account: u32) -> Result<Counters, TagsError> {
        Ok(self.counters.get(&account).copied().unwrap_or_default())
    }

    fn reset_counters(&mut self, account: u32) -> Result<(), TagsError> {
        self.counters.remove(&account);
        Ok(())
    }

    fn take_flows(&self) -> Result<Vec<(Vec<u8>, u64)>, TagsError> {
        Ok(Vec::new())
    }

    fn events(&mut self, each: &mut dyn FnMut(Event)) {
        let now = crate::now();
        if now >= self.look_at {
            self.look(now, each);
            self.look_at = now + LOOK_EVERY;
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    fn tell_returns(&mut self, are_told: bool) -> Result<(), TagsError> {
        self.are_returns_told = are_told;
        Ok(())
    }

    fn wake(&self) {
        if self.tables.lock().values().all(BTreeMap::is_empty) {
            return;
        }
        let nanos = LOOK_EVERY.as_nanos() as i64;
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = Itimerspec { it_interval: once, it_value: Timespec { tv_sec: 0, tv_nsec: nanos } };
        // Cannot fail: a timer of ours and a time that is one.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &timer);
    }

    fn missed(&self) -> Result<u64, TagsError> {
        Ok(0)
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// Now, on the clock that says when a process began.
fn boot_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec.unsigned_abs() * per_second + now.tv_nsec.unsigned_abs() * per_second / 1_000_000_000
}
