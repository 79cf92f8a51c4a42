//! Threads: the steps of a workload as system calls.

use super::clock;
use super::job::Job;
use super::priority::{self, Priorities};
use super::tally::Tallies;
use crate::scenario::sized_source;
use plimsoll_core::{Span, Time};
use plimsoll_workloads::{Action, Counter, DEPTH_UNLIMITED, DirectoryIndex, FileIndex, Plan, Step, Thread, ThreadSpec};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Calls that a thread of unlimited depth really has outstanding at once; more wait, and their latency counts.
const WORKERS_MAX: u32 = 256;
/// What O_DIRECT asks of addresses at the most: the loop device's blocks.
const ALIGNMENT_BYTES: usize = 4096;
/// Bytes that are written are this, in a page that differs from its neighbours in nothing.
const FILL: u8 = 0xA5;
/// Mode that is set where attributes change: what a new file has anyway.
const MODE: u32 = 0o644;

/// The threads of a process.
pub(super) struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What a team did.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) tallies: Tallies,
    /// Processor time of all threads, nanoseconds.
    pub(super) processor_ns: u64,
}

/// What the threads of a process share.
struct Shared {
    name: String,
    folder: PathBuf,
    unit_sizes: Vec<(String, u64)>,
    priorities: Option<Priorities>,
    plan: Plan,
    /// Where the experiment's time is zero, and where that of the steps is.
    origin: Time,
    steps_origin: Time,
    stop: Time,
    is_over: AtomicBool,
    posts: Mutex<BTreeMap<u8, Post>>,
    posted: Condvar,
    outcome: Mutex<TeamOutcome>,
}

#[derive(Default)]
struct TeamOutcome {
    tallies: Tallies,
    processor: Span,
    running: usize,
    failure: Option<String>,
}

/// A counter that threads post to and take from, in the order in which they came.
#[derive(Default)]
struct Post {
    value: u64,
    next_ticket: u64,
    waiting: Vec<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Team {
    /// Starts every thread of the job, with the workload `plan`, in an experiment that begins at `origin`.
    pub(super) fn start(job: Job, plan: Plan, origin: Time) -> io::Result<Team> {
        let specs: Vec<ThreadSpec> = plan.threads().collect();
        let active = plan.active();
        let shared = Arc::new(Shared {
            name: job.name,
            folder: job.folder,
            unit_sizes: job.unit_sizes,
            priorities: job.priorities,
            plan,
            origin,
            steps_origin: origin + active.start,
            stop: origin + active.end,
            is_over: AtomicBool::new(false),
            posts: Mutex::default(),
            posted: Condvar::new(),
            outcome: Mutex::new(TeamOutcome { running: specs.len(), ..TeamOutcome::default() }),
        });
        let mut team = Team { shared: shared.clone(), threads: Vec::new() };
        for (number, spec) in specs.into_iter().enumerate() {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(format!("{}.{number}", shared.name));
            // A team that is dropped ends by itself.
            team.threads.push(thread.spawn(move || shared.run(number as u32, &spec))?);
        }
        Ok(team)
    }

    /// Whether a thread has met an error.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.shared.outcome).failure.is_some()
    }

    /// Whether every thread has come to its end.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.shared.outcome).running == 0
    }

    fn end(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    /// Ends it: every thread finishes the call that it is in.
    pub(super) fn finish(mut self) -> Result<Done, String> {
        self.end();
        let mut outcome = lock(&self.shared.outcome);
        match outcome.failure.take() {
            Some(failure) => Err(failure),
            None => {
                let (tallies, processor_ns) = (std::mem::take(&mut outcome.tallies), outcome.processor.as_nanos());
                Ok(Done { tallies, processor_ns })
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn run(&self, number: u32, spec: &ThreadSpec) {
        let files = SharedFiles::default();
        let mut runner = Runner::new(self, &files);
        let priority = self.priorities.as_ref().map(|priorities| priorities.of_thread(&spec.name));
        if let Some(Err(error)) = priority.map(priority::set) {
            return self.settle(Tallies::default(), Err(format!("set an I/O priority: {error}")), true);
        }
        let workers = if spec.depth == DEPTH_UNLIMITED { WORKERS_MAX } else { spec.depth };
        let result = match workers {
            0 | 1 => runner.run(self.plan.thread(number), spec.is_background, None),
            // A unit is handed to a free worker; if none is free, depth is reached.
            workers => std::thread::scope(|scope| {
                let (units, taken) = sync_channel(0);
                let taken = Arc::new(Mutex::new(taken));
                for _ in 0..workers {
                    let taken = taken.clone();
                    let files = &files;
                    scope.spawn(move || self.work(&taken, files));
                }
                runner.run(self.plan.thread(number), spec.is_background, Some(units))
            }),
        };
        let Runner { tallies, .. } = runner;
        self.settle(tallies, result, true);
    }

    /// Carries out units of one call, one after the other.
    fn work(&self, units: &Mutex<Receiver<(Option<Time>, Action)>>, files: &SharedFiles) {
        let mut runner = Runner::new(self, files);
        let mut result = Ok(());
        while result.is_ok() {
            let Ok((due, action)) = lock(units).recv() else { break };
            result = runner.unit(due, action);
        }
        // The thread that hands out units must not wait for workers that have gone.
        if result.is_err() {
            self.settle(Tallies::default(), result, false);
            while lock(units).recv().is_ok() {}
            result = Ok(());
        }
        self.settle(runner.tallies, result, false);
    }

    /// Takes in what a thread did.
    fn settle(&self, tallies: Tallies, result: Result<(), String>, is_last_word: bool) {
        let mut outcome = lock(&self.outcome);
        outcome.tallies.merge(tallies);
        if let Err(failure) = result {
            outcome.failure.get_or_insert(failure);
        }
        if is_last_word {
            outcome.running -= 1;
            if outcome.running == 0 && !self.is_over.load(Ordering::Relaxed) {
                outcome.tallies.all.ended = Some(clock::now().since(self.origin));
            }
        }
        outcome.processor += clock::thread_processor_time();
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || clock::now() >= self.stop
    }

    /// Waits until `time`, or until the run is over.
    fn sleep_until(&self, time: Time) {
        while !self.is_over() && clock::now() < time {
            clock::sleep_until(time.min(clock::now() + clock::SLICE));
        }
    }

    fn post(&self, counter: Counter, count: u64) {
        lock(&self.posts).entry(counter.0).or_default().value += count;
        self.posted.notify_all();
    }

    fn take(&self, counter: Counter, at_least: u64, at_most: u64, until: Option<Span>) -> u64 {
        let until = until.map_or(Time::MAX, |until| self.steps_origin + until);
        let mut posts = lock(&self.posts);
        let post = posts.entry(counter.0).or_default();
        let ticket = post.next_ticket;
        post.next_ticket += 1;
        post.waiting.push(ticket);
        loop {
            let post = posts.entry(counter.0).or_default();
            let is_served = post.waiting[0] == ticket && post.value >= at_least;
            if is_served || at_least == 0 || clock::now() >= until || self.is_over() {
                post.waiting.retain(|&waiting| waiting != ticket);
                let taken = post.value.min(at_most);
                post.value -= taken;
                self.posted.notify_all();
                return taken;
            }
            let slice = clock::SLICE.min(until.since(clock::now()));
            let slice = std::time::Duration::from_nanos(slice.as_nanos());
            posts = self.posted.wait_timeout(posts, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

type SharedFiles = Mutex<BTreeMap<FileIndex, Arc<File>>>;

/// Memory for calls, as O_DIRECT wants it.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
}

impl Memory {
    fn of(&mut self, length: u64) -> &mut [u8] {
        let length = length as usize;
        if self.bytes.len() < length + ALIGNMENT_BYTES {
            self.bytes = vec![FILL; length + ALIGNMENT_BYTES];
        }
        let skipped = self.bytes.as_ptr().align_offset(ALIGNMENT_BYTES);
        &mut self.bytes[skipped..skipped + length]
    }
}

/// One thread.
struct Runner<'team> {
    shared: &'team Shared,
    files: &'team SharedFiles,
    tallies: Tallies,
    /// The unit that began and did not end.
    unit: Option<Unit>,
    memory: Memory,
}

/// What a user waits for.
#[derive(Clone, Copy)]
struct Unit {
    /// When it began or was due.
    since: Time,
    /// Bytes that it moved so far.
    bytes: u64,
    /// Whether it only read.
    is_read: bool,
}

impl<'team> Runner<'team> {
    fn new(shared: &'team Shared, files: &'team SharedFiles) -> Runner<'team> {
        Runner { shared, files, tallies: Tallies::default(), unit: None, memory: Memory::default() }
    }

    fn run(
        &mut self,
        mut steps: Thread,
        is_background: bool,
        workers: Option<SyncSender<(Option<Time>, Action)>>,
    ) -> Result<(), String> {
        let shared = self.shared;
        shared.sleep_until(shared.steps_origin);
        while !shared.is_over() {
            let Some(step) = steps.next() else { break };
            match step {
                Step::Begin { due, deadline: _ } => {
                    let since = self.wait_due(due).unwrap_or_else(clock::now);
                    self.unit = Some(Unit { since, bytes: 0, is_read: true });
                }
                Step::End => {
                    let unit = self.unit.take().expect("a unit that ends has begun");
                    if !is_background {
                        self.record_unit(unit);
                    }
                }
                Step::Call(action) => {
                    let bytes = self.call(action)?;
                    if let Some(unit) = &mut self.unit {
                        unit.bytes += bytes;
                        unit.is_read &= !matches!(action, Action::Write { .. });
                    }
                }
                Step::Start { due, action } => {
                    let due = self.wait_due(due);
                    match &workers {
                        Some(workers) => workers.send((due, action)).expect("workers stay until the end"),
                        None => self.unit(due, action)?,
                    }
                }
                Step::Sleep(span) => shared.sleep_until(clock::now() + span),
                Step::Compute(span) => compute(span),
                Step::Post { counter, count } => shared.post(counter, count),
                Step::Take { counter, at_least, at_most, until } => {
                    steps.took(shared.take(counter, at_least, at_most, until));
                }
            }
        }
        Ok(())
    }

    /// Waits until a unit is due, if it is; answers with when it was.
    fn wait_due(&self, due: Option<Span>) -> Option<Time> {
        let due = self.shared.steps_origin + due?;
        self.shared.sleep_until(due);
        Some(due)
    }

    /// A unit of one call.
    fn unit(&mut self, due: Option<Time>, action: Action) -> Result<(), String> {
        let since = due.unwrap_or_else(clock::now);
        let bytes = self.call(action)?;
        self.record("unit", since, bytes);
        Ok(())
    }

    fn record(&mut self, kind: &'static str, since: Time, bytes: u64) {
        let now = clock::now();
        self.tallies.all.record(kind, now.since(self.shared.origin), now.since(since), bytes);
    }

    /// Counts a unit, and once more among those of its size, if they are counted apart.
    fn record_unit(&mut self, unit: Unit) {
        let Unit { since, bytes, is_read } = unit;
        self.record("unit", since, bytes);
        let Shared { name, unit_sizes, origin, .. } = self.shared;
        if let Some((size, _)) = unit_sizes.iter().find(|(_, of)| *of == bytes) {
            let sized = self.tallies.sized.entry(sized_source(name, is_read, size)).or_default();
            let now = clock::now();
            sized.record("unit", now.since(*origin), now.since(since), bytes);
        }
    }

    /// Makes a call, counts it, and answers with the bytes that it moved.
    fn call(&mut self, action: Action) -> Result<u64, String> {
        let since = clock::now();
        let done = self.make(action).map_err(|error| format!("{action:?}: {error}"))?;
        let Some((kind, bytes)) = done else { return Ok(0) };
        self.record(kind, since, bytes);
        Ok(bytes)
    }

    fn make(&mut self, action: Action) -> io::Result<Option<(&'static str, u64)>> {
        let shared = self.shared;
        let path = |file: FileIndex| shared.folder.join(shared.plan.file(file).path);
        let folder = |directory: DirectoryIndex| shared.folder.join(shared.plan.directory(directory));
        Ok(Some(match action {
            Action::Create { file } => {
                self.keep(file, &path(file), true)?;
                ("create", 0)
            }
            Action::Open { file } => {
                self.keep(file, &path(file), false)?;
                ("open", 0)
            }
            Action::Close { file } => {
                lock(self.files).remove(&file);
                return Ok(None);
            }
            Action::Read { file, offset, length } => {
                let open = self.open(file)?;
                ("read", open.read_at(self.memory.of(length), offset)? as u64)
            }
            Action::Write { file, offset, length } => {
                let open = self.open(file)?;
                open.write_all_at(self.memory.of(length), offset)?;
                ("write", length)
            }
            Action::Fsync { file } => {
                self.open(file)?.sync_all()?;
                ("fsync", 0)
            }
            Action::Fdatasync { file } => {
                self.open(file)?.sync_data()?;
                ("fdatasync", 0)
            }
            Action::Truncate { file, length } => {
                self.open(file)?.set_len(length)?;
                ("truncate", 0)
            }
            Action::Unlink { file } => {
                std::fs::remove_file(path(file))?;
                ("unlink", 0)
            }
            Action::Stat { file } => {
                std::fs::metadata(path(file))?;
                ("stat", 0)
            }
            Action::SetAttributes { file } => {
                self.open(file)?.set_permissions(Permissions::from_mode(MODE))?;
                ("attributes", 0)
            }
            Action::MakeDirectory { directory } => {
                std::fs::create_dir(folder(directory))?;
                ("mkdir", 0)
            }
            Action::ReadDirectory { directory } => {
                let _ = std::fs::read_dir(folder(directory))?.count();
                ("list", 0)
            }
        }))
    }

    fn keep(&self, index: FileIndex, path: &Path, is_new: bool) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(is_new);
        if self.shared.plan.file(index).is_direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
        }
        lock(self.files).insert(index, Arc::new(options.open(path)?));
        Ok(())
    }

    fn open(&self, file: FileIndex) -> io::Result<Arc<File>> {
        let found = lock(self.files).get(&file).cloned();
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not open"))
    }
}

/// Uses so much of a core.
fn compute(span: Span) {
    let end = clock::thread_processor_time() + span;
    while clock::thread_processor_time() < end {
        std::hint::spin_loop();
    }
}
