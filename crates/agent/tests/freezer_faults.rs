//! The freezer by itself, on cgroups of both versions: agents that are killed, owners that freeze and thaw their own,
//! leftovers, processes that do not stop.

use plimsoll_agent::freezer::cgroup::{CgroupVersion, Hierarchy, members, move_into};
use plimsoll_agent::freezer::groups::{FreezeOrders, TenantCgroup};
use plimsoll_agent::freezer::{Freezer, FreezerHandle};
use plimsoll_core::Span;
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::{GateWords, Programs};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// For what must come, on the slowest machine.
const WAIT_MAX: Span = Span::from_secs(60);
const PAUSE: Span = Span::from_millis(2);
/// Says to this program that it is an agent that will be killed, and where.
const AGENT: &str = "PLIMSOLL_TEST_AGENT";
/// The cgroups that it freezes, and their processes.
const VICTIMS: u32 = 50;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = monotonic_now() + WAIT_MAX;
    while !is_so() {
        assert!(monotonic_now() < end, "never came: {what}");
        pause();
    }
}

fn pause() {
    let pause = rustix::thread::Timespec::try_from(std::time::Duration::from(PAUSE)).unwrap();
    let _ = rustix::thread::nanosleep(&pause);
}

/// A process that counts as fast as it may; it ends with this value.
struct Counter {
    child: Child,
    file: PathBuf,
}

impl Counter {
    fn start(folder: &Path, number: u32) -> Counter {
        let file = folder.join(format!("count-{number}"));
        let script = format!("while :; do echo >> {}; sleep 0.01; done", file.display());
        Counter { child: Command::new("sh").args(["-c", &script]).spawn().unwrap(), file }
    }

    fn process(&self) -> u32 {
        self.child.id()
    }

    fn count(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }

    fn goes_on(&self) {
        let before = self.count();
        wait_until("a process that goes on", || self.count() > before);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process() as i32).unwrap(), signal).unwrap();
    }

    /// Whether it has stopped for a while.
    fn is_still(&self) -> bool {
        let before = self.count();
        for _ in 0..50 {
            pause();
        }
        self.count() == before
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // Its last `sleep` ends by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cgroup of an owner's, removed when it is dropped.
struct Owned(PathBuf, CgroupVersion);

impl Owned {
    fn make(hierarchy: &Hierarchy, name: &str) -> Owned {
        let directory = hierarchy.mount.join(format!("test-{name}-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        Owned(directory, hierarchy.version)
    }

    /// As its owner does.
    fn set(&self, is_frozen: bool) {
        let (file, text) = match (self.1, is_frozen) {
            (CgroupVersion::First, true) => ("freezer.state", "FROZEN"),
            (CgroupVersion::First, false) => ("freezer.state", "THAWED"),
            (CgroupVersion::Second, true) => ("cgroup.freeze", "1"),
            (CgroupVersion::Second, false) => ("cgroup.freeze", "0"),
        };
        std::fs::write(self.0.join(file), text).unwrap();
    }

    fn is_frozen(&self) -> bool {
        is_frozen(&self.0)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.set(false);
        let outer = self.0.parent().unwrap();
        for _ in 0..100 {
            members(&self.0).into_iter().for_each(|process| drop(move_into(outer, process)));
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            pause();
        }
    }
}

fn is_frozen(directory: &Path) -> bool {
    let is = |file: &str, text: &str| {
        std::fs::read_to_string(directory.join(file)).is_ok_and(|answer| answer.trim() == text)
    };
    is("cgroup.freeze", "1") || is("freezer.self_freezing", "1")
}

/// A freezer, with everything below it.
struct Bench {
    orders: FreezeOrders,
    freezer: Freezer,
    renewing: Renewing,
    folders: (TempDir, TempDir),
}

/// A thread that says that the agent lives, until it is dropped.
struct Renewing(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Renewing {
    fn start(words: GateWords) -> Renewing {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                words.renew();
                pause();
            }
        });
        Renewing(is_over, Some(thread))
    }

    fn end(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().map(JoinHandle::join);
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.end();
    }
}

impl Bench {
    /// `None`, with the reason printed, where it cannot be.
    fn new() -> Option<Bench> {
        if !can_freeze() {
            return None;
        }
        let folders = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let (freezer, orders, words) = open(folders.0.path(), folders.1.path());
        Some(Bench { orders, freezer, renewing: Renewing::start(words), folders })
    }

    fn handle(&self) -> FreezerHandle {
        self.freezer.handle()
    }

    fn folder(&self) -> &Path {
        self.folders.0.path()
    }
}

fn open(programs: &Path, run: &Path) -> (Freezer, FreezeOrders, GateWords) {
    let words = GateWords::create(run).unwrap();
    words.renew();
    let programs = Programs::install(programs).unwrap();
    let (freezer, orders) = Freezer::open(run, &programs, words.path()).unwrap();
    (freezer, orders, words)
}

fn can_freeze() -> bool {
    let is_possible = rustix::process::geteuid().is_root() && !Hierarchy::all().is_empty();
    if !is_possible {
        println!("not run: needs root and a mounted tree of cgroups that can be frozen");
    }
    is_possible
}

fn cgroup_of(process: u32) -> PathBuf {
    Hierarchy::all()[0].directory_of(process).unwrap()
}

/// Planted breaks: a cgroup that has its owner's is thawed by us.
/// Promise: freezer-owner.
#[test]
fn what_its_owner_has_frozen_stays_so_and_what_the_owner_thaws_runs() {
    let Some(bench) = Bench::new() else { return };
    for (bit, hierarchy) in Hierarchy::all().iter().enumerate() {
        let (bit, owned) = (bit as u32, Owned::make(hierarchy, "owner"));
        let counter = Counter::start(bench.folder(), bit);
        move_into(&owned.0, counter.process()).unwrap();
        bench.handle().hold_cgroup(bit, &owned.0);
        assert_eq!(bench.handle().why_not(bit), None);
        // It is frozen before us, and thawed by us: it stays.
        owned.set(true);
        bench.orders.set(bit, true);
        bench.orders.set(bit, false);
        assert!(counter.is_still() && owned.is_frozen(), "{hierarchy:?}");
        owned.set(false);
        counter.goes_on();
        // It is frozen by us, then by its owner: it stays when we thaw.
        bench.orders.set(bit, true);
        wait_until("a freeze", || owned.is_frozen());
        assert!(!bench.orders.take_overruled(bit));
        owned.set(true);
        bench.orders.set(bit, false);
        assert!(counter.is_still() && owned.is_frozen(), "{hierarchy:?}");
        owned.set(false);
        counter.goes_on();
        // It is frozen by us and thawed by its owner: it runs, and the law is told.
        bench.orders.set(bit, true);
        wait_until("a freeze", || owned.is_frozen());
        owned.set(false);
        wait_until("that it is told", || bench.orders.take_overruled(bit));
        bench.orders.set(bit, false);
        counter.goes_on();
        // And again, to see that nothing of it is left.
        bench.orders.set(bit, true);
        wait_until("a freeze", || owned.is_frozen() && counter.is_still());
        bench.orders.set(bit, false);
        counter.goes_on();
        assert!(!owned.is_frozen());
        bench.handle().let_go(bit);
    }
}

/// Planted breaks: a process stays in the root; a frozen one cannot be let go; what was made is left.
/// Promise: freezer-leftovers.
#[test]
fn a_process_among_others_has_a_cgroup_of_its_own_until_it_leaves() {
    let Some(bench) = Bench::new() else { return };
    let counter = Counter::start(bench.folder(), 0);
    let before = cgroup_of(counter.process());
    bench.handle().hold_process(7, "a/b c", counter.process());
    assert_eq!(bench.handle().why_not(7), None);
    let made = cgroup_of(counter.process());
    let name = format!("plimsoll.{}.{}.a_b_c", std::process::id(), counter.process());
    assert_eq!(made, before.join(name));
    bench.orders.set(7, true);
    wait_until("a freeze", || counter.is_still());
    let shown = TenantCgroup { directory: made.clone(), freezes: 1, is_late: false };
    wait_until("a complete freeze", || bench.handle().cgroups(7) == [shown.clone()]);
    // A second freezer's cgroup is inside: each thaws its own.
    let Some(other) = Bench::new() else { return };
    other.handle().hold_process(3, "other", counter.process());
    assert_eq!(other.handle().why_not(3), None);
    assert_eq!(cgroup_of(counter.process()).parent(), Some(&*made));
    other.handle().let_go(3);
    assert_eq!(cgroup_of(counter.process()), made);
    bench.handle().let_go(7);
    counter.goes_on();
    assert_eq!((cgroup_of(counter.process()), made.exists()), (before, false));
    assert_eq!(bench.handle().why_not(7).as_deref(), Some("no process of it has joined"));
}

/// One that has left its cgroup is brought back, and so are children that were forked before.
#[test]
fn a_process_that_moves_itself_elsewhere_comes_back() {
    let Some(bench) = Bench::new() else { return };
    let counter = Counter::start(bench.folder(), 0);
    let before = cgroup_of(counter.process());
    bench.handle().hold_process(0, "a", counter.process());
    let made = cgroup_of(counter.process());
    move_into(&before, counter.process()).unwrap();
    assert_eq!(cgroup_of(counter.process()), before);
    bench.handle().gather(0, &[counter.process()]);
    assert_eq!(cgroup_of(counter.process()), made);
}

/// A stopped process is none the worse for it, and goes on when both have let it; a frozen one can be killed.
#[test]
fn a_stopped_process_and_a_killed_one_do_not_hold_a_thaw_up() {
    let Some(bench) = Bench::new() else { return };
    let (counter, killed) = (Counter::start(bench.folder(), 0), Counter::start(bench.folder(), 1));
    for (bit, counter) in [(0, &counter), (1, &killed)] {
        bench.handle().hold_process(bit, "a", counter.process());
        wait_until("a beginning", || counter.count() > 0);
    }
    counter.signal(Signal::STOP);
    [0, 1].into_iter().for_each(|bit| bench.orders.set(bit, true));
    wait_until("a freeze", || [&counter, &killed].iter().all(|it| is_frozen(&cgroup_of(it.process()))));
    killed.signal(Signal::KILL);
    counter.signal(Signal::CONT);
    assert!(counter.is_still());
    [0, 1].into_iter().for_each(|bit| bench.orders.set(bit, false));
    counter.goes_on();
    wait_until("an end", || killed.is_still());
}

/// An agent that is stopped renews no lease.
/// Promise: freezer-fails-open.
#[test]
fn an_agent_that_is_stuck_leaves_nothing_frozen() {
    let Some(mut bench) = Bench::new() else { return };
    let counter = Counter::start(bench.folder(), 0);
    bench.handle().hold_process(0, "a", counter.process());
    bench.orders.set(0, true);
    wait_until("a freeze", || is_frozen(&cgroup_of(counter.process())));
    bench.renewing.end();
    wait_until("a thaw", || !is_frozen(&cgroup_of(counter.process())));
    counter.goes_on();
    assert!(bench.orders.take_overruled(0));
}

/// What the agent of the next test is; it does nothing else.
#[test]
fn an_agent_that_will_be_killed() {
    let Some(run) = std::env::var_os(AGENT) else { return };
    let (run, processes) = (PathBuf::from(run), std::env::var("PLIMSOLL_TEST_PROCESSES").unwrap());
    let (freezer, orders, words) = open(&run, &run);
    let processes: Vec<u32> = processes.split(' ').map(|process| process.parse().unwrap()).collect();
    for (bit, &process) in processes.iter().enumerate() {
        words.renew();
        freezer.handle().hold_process(bit as u32, "victim", process);
        orders.set(bit as u32, true);
    }
    let is_done = || processes.iter().all(|&process| is_frozen(&cgroup_of(process)));
    let mut is_said = false;
    loop {
        words.renew();
        if is_done() && !std::mem::replace(&mut is_said, true) {
            println!("all are frozen");
        }
        pause();
    }
}

/// The agent is killed by SIGKILL; then its thawer too, before another agent.
/// Planted breaks: no thawer; a note that is written after the freeze; a successor that does not look at the note.
/// Promise: freezer-fails-open, freezer-leftovers.
#[test]
fn fifty_frozen_tenants_of_a_killed_agent_go_on() {
    if !can_freeze() {
        return;
    }
    for is_thawer_killed in [false, true] {
        let run = tempfile::tempdir_in("/dev/shm").unwrap();
        let counters: Vec<Counter> = (0..VICTIMS).map(|number| Counter::start(run.path(), number)).collect();
        let before = cgroup_of(counters[0].process());
        let processes: Vec<String> = counters.iter().map(|counter| counter.process().to_string()).collect();
        let mut agent = Command::new(std::env::current_exe().unwrap());
        agent.args(["--exact", "an_agent_that_will_be_killed", "--nocapture"]);
        agent.env(AGENT, run.path()).env("PLIMSOLL_TEST_PROCESSES", processes.join(" ")).stdout(Stdio::piped());
        let mut agent = agent.spawn().unwrap();
        let mut lines = BufReader::new(agent.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("all are frozen")));
        let made: Vec<PathBuf> = counters.iter().map(|counter| cgroup_of(counter.process())).collect();
        assert!(made.iter().all(|directory| is_frozen(directory) && *directory != before));
        if is_thawer_killed {
            thawers_of(run.path()).into_iter().for_each(|thawer| {
                kill_process(Pid::from_raw(thawer).unwrap(), Signal::KILL).unwrap();
            });
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        if !is_thawer_killed {
            wait_until("that all go on", || made.iter().all(|directory| !is_frozen(directory)));
            counters.iter().for_each(Counter::goes_on);
        }
        let (freezer, _orders, _words) = open(run.path(), run.path());
        assert!(made.iter().all(|directory| !directory.exists()), "what was made is left");
        counters.iter().for_each(Counter::goes_on);
        assert_eq!(cgroup_of(counters[0].process()), before);
        drop(freezer);
        wait_until("the end of the thawer", || thawers_of(run.path()).is_empty());
    }
}

/// The processes that have a file of `run` open, of the thawer's name.
fn thawers_of(run: &Path) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_one = |process: &i32| {
        let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        command.contains("plimsoll-thawer") && command.contains(run.to_str().unwrap())
    };
    processes.filter(is_one).collect()
}
