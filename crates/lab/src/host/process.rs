//! Processes: the steps of a workload as system calls of the simulated machine.

use super::Accounts;
use super::recorder::Recorder;
use crate::results::Source;
use crate::scenario::{ProcessSetup, sized_source};
use plimsoll_core::{AccountId, Deadlines, Span, Time};
use plimsoll_sim::executor::wait::{Semaphore, WaitQueue};
use plimsoll_sim::{File, Machine, Process, Simulation};
use plimsoll_workloads::{
    Action, Before, Counter, DEPTH_UNLIMITED, DirectoryIndex, FileIndex, FileSpec, Plan, Step, Thread,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes of a call that prepares a file.
const PREPARED_BYTES: u64 = 128 << 10;

/// Makes the folders and files that the workloads of `processes` start with, on `machine` and charged to `account`, and
/// waits until they exist.
pub(super) fn prepare<'a>(
    simulation: &mut Simulation,
    machine: &Machine,
    processes: impl Iterator<Item = &'a ProcessSetup>,
    account: AccountId,
    seed: u64,
) {
    let plans: Vec<(ProcessSetup, Plan)> = processes.map(|process| (process.clone(), plan(process, seed))).collect();
    if plans.is_empty() {
        return;
    }
    machine.spawn("prepare", account, |process| async move {
        for (setup, plan) in &plans {
            prepare_one(&process, setup, plan).await;
        }
        // Once for files and the journal, once for the metadata that the journal let go by that: what is left dirty
        // would be written half a minute into the experiment.
        process.sync().await;
        process.sync().await;
        for (setup, _) in &plans {
            setup.file_deadlines.iter().for_each(|(name, deadlines)| promise(&process, setup, name, deadlines));
        }
    });
    simulation.run_to_completion();
}

async fn prepare_one(process: &Process, setup: &ProcessSetup, plan: &Plan) {
    let folder = folder(setup);
    const NEW: &str = "a new machine has no files";
    if !setup.is_in_root {
        process.mkdir(&folder).await.expect(NEW);
    }
    for number in 0..plan.directory_count() {
        process.mkdir(&format!("{folder}/{}", plan.directory(DirectoryIndex(number)))).await.expect(NEW);
    }
    for number in 0..plan.file_count() {
        let spec = plan.file(FileIndex(number));
        if spec.before == Before::Absent {
            continue;
        }
        let file = process.create(&format!("{folder}/{}", spec.path)).await.expect(NEW);
        if spec.before == Before::Filled && spec.bytes > 0 {
            if setup.is_written_before {
                write_all(file, &spec).await;
            } else {
                file.fill(spec.bytes).await;
            }
        }
    }
}

/// Writes a file from its beginning to its end.
async fn write_all(file: File, spec: &FileSpec) {
    let file = classified(file, spec);
    let mut offset = 0;
    while offset < spec.bytes {
        let length = PREPARED_BYTES.min(spec.bytes - offset);
        file.write(offset, length).await;
        offset += length;
    }
}

/// The file in the hands of a program that says what it is, if it does.
fn classified(file: File, spec: &FileSpec) -> File {
    match spec.class {
        Some(class) => file.classified(class),
        None => file,
    }
}

/// Tells the scheduler of the deadlines of a file, if it is there.
fn promise(process: &Process, setup: &ProcessSetup, name: &str, deadlines: &Deadlines) {
    let machine = process.machine();
    if let Ok(inode) = machine.inode_of(&format!("{}/{name}", folder(setup))) {
        machine.scheduler().file_promised(machine.now(), inode.file(), deadlines);
    }
}

/// Where the files of a process are; what they are called goes behind it and a slash.
pub(super) fn folder(process: &ProcessSetup) -> String {
    if process.is_in_root { String::new() } else { format!("/{}", process.name) }
}

/// Each process draws from a stream of its own: the same workload twice is not twice the same.
fn plan(process: &ProcessSetup, seed: u64) -> Plan {
    let name = process.name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    process.workload.plan(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ name)
}

/// Starts all threads of `processes` on `machine`.
pub(super) fn start<'a>(
    machine: &Machine,
    processes: impl Iterator<Item = &'a ProcessSetup>,
    accounts: &Accounts,
    seed: u64,
    recorder: &Recorder,
) {
    for one in processes {
        let plan = plan(one, seed);
        let specs: Vec<_> = plan.threads().collect();
        let active = plan.active();
        recorder.source(&one.name).borrow_mut().started = Some(Time::ZERO + active.start);
        let shared = Rc::new(ProcessState {
            folder: folder(one),
            source: recorder.source(&one.name),
            recorder: recorder.clone(),
            origin: recorder.start.get() + active.start,
            stop: recorder.start.get() + active.end,
            counters: RefCell::default(),
            running: Cell::new(specs.len()),
            setup: one.clone(),
            plan,
        });
        for (number, spec) in specs.into_iter().enumerate() {
            let account = account_of(one, &spec.name, accounts);
            let (shared, is_background) = (shared.clone(), spec.is_background);
            let depth = (spec.depth != DEPTH_UNLIMITED).then(|| Rc::new(Semaphore::new(u64::from(spec.depth))));
            machine.spawn(&one.name, account, move |process| async move {
                let steps = shared.plan.thread(number as u32);
                let files = Rc::default();
                let now = process.clone();
                let runner = ProcessThread { process, shared: shared.clone(), files, depth, unit: None, is_background };
                runner.run(steps).await;
                shared.end_thread(now.now());
            });
        }
    }
}

/// The session of a thread: that of the first part of its name, or else the process's.
fn account_of(process: &ProcessSetup, thread: &str, accounts: &Accounts) -> AccountId {
    let role = thread.split('.').next().unwrap_or(thread);
    let own = process.thread_accounts.iter().find(|(name, _)| name == role || name == thread);
    accounts.ids[own.map_or(&process.account, |(_, account)| account)]
}

/// What the threads of a process share.
struct ProcessState {
    folder: String,
    plan: Plan,
    source: Rc<RefCell<Source>>,
    recorder: Recorder,
    /// The zero of the times in steps.
    origin: Time,
    stop: Time,
    counters: RefCell<BTreeMap<u8, Rc<TicketCounter>>>,
    running: Cell<usize>,
    setup: ProcessSetup,
}

/// A counter that threads post to and take from, served in the order in which they came.
#[derive(Default)]
struct TicketCounter {
    value: Cell<u64>,
    next_ticket: Cell<u64>,
    waiting: RefCell<Vec<u64>>,
    queue: WaitQueue,
}

impl ProcessState {
    fn counter(&self, counter: Counter) -> Rc<TicketCounter> {
        self.counters.borrow_mut().entry(counter.0).or_default().clone()
    }

    fn record(&self, kind: &'static str, now: Time, since: Time, bytes: u64) {
        self.source.borrow_mut().record(kind, self.recorder.at(now), now.since(since), bytes);
    }

    /// Counts a unit, and once more among those of its size, if they are counted apart.
    fn record_unit(&self, now: Time, unit: PendingUnit) {
        self.record("unit", now, unit.since, unit.bytes);
        if let Some((size, _)) = self.setup.unit_sizes.iter().find(|(_, bytes)| *bytes == unit.bytes) {
            let source = self.recorder.source(&sized_source(&self.setup.name, unit.is_read, size));
            source.borrow_mut().record("unit", self.recorder.at(now), now.since(unit.since), unit.bytes);
        }
    }

    fn end_thread(&self, now: Time) {
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.source.borrow_mut().ended = Some(self.recorder.at(now));
        }
    }
}

type Files = Rc<RefCell<BTreeMap<FileIndex, Rc<File>>>>;

/// What a user waits for.
#[derive(Clone, Copy)]
struct PendingUnit {
    /// When it began or was due.
    since: Time,
    /// Bytes that it moved so far.
    bytes: u64,
    /// Whether it only read.
    is_read: bool,
}

/// One thread.
struct ProcessThread {
    process: Process,
    shared: Rc<ProcessState>,
    files: Files,
    /// Bounds the units outstanding.
    depth: Option<Rc<Semaphore>>,
    /// The unit that began and did not end.
    unit: Option<PendingUnit>,
    is_background: bool,
}

impl ProcessThread {
    async fn run(mut self, mut steps: Thread) {
        self.process.sleep_until(self.shared.origin).await;
        while self.process.now() < self.shared.stop {
            let Some(step) = steps.next() else { break };
            match step {
                Step::Begin { due, deadline: _ } => {
                    self.unit = Some(PendingUnit { since: self.wait_due(due).await, bytes: 0, is_read: true });
                }
                Step::End => {
                    let unit = self.unit.take().expect("a unit that ends has begun");
                    if !self.is_background {
                        self.shared.record_unit(self.process.now(), unit);
                    }
                }
                Step::Call(action) => {
                    let bytes = call(&self.process, &self.shared, &self.files, action).await;
                    if let Some(unit) = &mut self.unit {
                        unit.bytes += bytes;
                        unit.is_read &= !matches!(action, Action::Write { .. });
                    }
                }
                Step::Start { due, action } => self.start(due, action).await,
                Step::Sleep(span) => self.process.sleep(span).await,
                Step::Compute(span) => self.process.compute(span).await,
                Step::Post { counter, count } => {
                    let post = self.shared.counter(counter);
                    post.value.set(post.value.get() + count);
                    post.queue.wake_all(&self.process.machine().executor);
                }
                Step::Take { counter, at_least, at_most, until } => {
                    steps.took(self.take(counter, at_least, at_most, until).await);
                }
            }
        }
    }

    /// Waits until a unit is due; answers with when it was, or with now.
    async fn wait_due(&self, due: Option<Span>) -> Time {
        let Some(due) = due else { return self.process.now() };
        let due = self.shared.origin + due;
        self.process.sleep_until(due).await;
        due
    }

    /// Starts a unit of one call, once fewer than the thread's depth are outstanding.
    async fn start(&self, due: Option<Span>, action: Action) {
        let since = self.wait_due(due).await;
        let machine = self.process.machine();
        if let Some(depth) = &self.depth {
            depth.acquire(&machine.executor).await;
        }
        // Without a due time a unit begins when there is room for it.
        let since = if due.is_some() { since } else { self.process.now() };
        let (process, shared, files) = (self.process.clone(), self.shared.clone(), self.files.clone());
        let depth = self.depth.clone();
        machine.spawn_kernel(async move {
            let bytes = call(&process, &shared, &files, action).await;
            shared.record("unit", process.now(), since, bytes);
            if let Some(depth) = depth {
                depth.release(&process.machine().executor);
            }
        });
    }

    async fn take(&self, counter: Counter, at_least: u64, at_most: u64, until: Option<Span>) -> u64 {
        let post = self.shared.counter(counter);
        let machine = self.process.machine().clone();
        let until = until.map_or(Time::MAX, |until| self.shared.origin + until);
        let ticket = post.next_ticket.replace(post.next_ticket.get() + 1);
        post.waiting.borrow_mut().push(ticket);
        if at_least > 0 && until < Time::MAX {
            let (machine, post) = (machine.clone(), post.clone());
            machine.clone().spawn_kernel(async move {
                machine.executor.sleep_until(until).await;
                post.queue.wake_all(&machine.executor);
            });
        }
        let is_over = || machine.now() >= until || at_least == 0;
        let is_served = || post.waiting.borrow()[0] == ticket && post.value.get() >= at_least;
        while !is_over() && !is_served() {
            post.queue.wait(&machine.executor).await;
        }
        post.waiting.borrow_mut().retain(|&waiting| waiting != ticket);
        let taken = post.value.get().min(at_most);
        post.value.set(post.value.get() - taken);
        post.queue.wake_all(&machine.executor);
        taken
    }
}

/// Makes a call, counts it, and answers with the bytes that it moved.
async fn call(process: &Process, shared: &ProcessState, files: &Files, action: Action) -> u64 {
    const PLANNED: &str = "a plan names what exists";
    let path = |file: FileIndex| format!("{}/{}", shared.folder, shared.plan.file(file).path);
    let folder = |directory| format!("{}/{}", shared.folder, shared.plan.directory(directory));
    let open = |file: FileIndex| files.borrow().get(&file).cloned().expect("a plan opens a file before it uses it");
    let keep = |index: FileIndex, file: File| {
        let spec = shared.plan.file(index);
        let file = classified(if spec.is_direct { file.direct() } else { file }, &spec);
        files.borrow_mut().insert(index, Rc::new(file));
    };
    let since = process.now();
    let (kind, bytes) = match action {
        Action::Create { file } => {
            keep(file, process.create(&path(file)).await.expect(PLANNED));
            let name = shared.plan.file(file).path;
            if let Some((_, deadlines)) = shared.setup.file_deadlines.iter().find(|(of, _)| *of == name) {
                promise(process, &shared.setup, &name, deadlines);
            }
            ("create", 0)
        }
        Action::Open { file } => {
            keep(file, process.open(&path(file)).await.expect(PLANNED));
            ("open", 0)
        }
        Action::Close { file } => {
            files.borrow_mut().remove(&file);
            return 0;
        }
        Action::Read { file, offset, length } => ("read", open(file).read(offset, length).await),
        Action::Write { file, offset, length } => {
            open(file).write(offset, length).await;
            ("write", length)
        }
        Action::Fsync { file } => {
            open(file).fsync().await;
            ("fsync", 0)
        }
        Action::Fdatasync { file } => {
            open(file).fdatasync().await;
            ("fdatasync", 0)
        }
        Action::Truncate { file, length } => {
            open(file).truncate(length).await;
            ("truncate", 0)
        }
        Action::Unlink { file } => {
            process.unlink(&path(file)).await.expect(PLANNED);
            ("unlink", 0)
        }
        Action::Stat { file } => {
            process.open(&path(file)).await.expect(PLANNED);
            ("stat", 0)
        }
        Action::SetAttributes { file } => {
            // The machine has no chmod; a truncation to the same size changes the inode and nothing else.
            let file = open(file);
            file.truncate(file.size()).await;
            ("attributes", 0)
        }
        Action::MakeDirectory { directory } => {
            process.mkdir(&folder(directory)).await.expect(PLANNED);
            ("mkdir", 0)
        }
        Action::ReadDirectory { directory } => {
            process.list(&folder(directory)).await.expect(PLANNED);
            ("list", 0)
        }
    };
    shared.record(kind, process.now(), since, bytes);
    bytes
}
