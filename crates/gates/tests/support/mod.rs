//! What the tests of the gates share: tenants that count their calls, an agent, and a look at the call each thread
//! waits in.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use plimsoll_core::{AccountId, Span, Time};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::words::RENEWAL;
use plimsoll_gates::{Filter, GateClass, GateWords, Launch, Programs};
pub mod agent;
pub mod lease;
pub mod only;
pub mod runtime;

use lease::LeaseWatch;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// A test that waits longer than this has found a hang. On a busy machine a second is nothing.
const PATIENCE: Span = Span::from_secs(180);
/// How many calls a thread must get through before it counts as going on.
pub const PROGRESS: u64 = 20;

pub fn pause(milliseconds: u64) {
    #[expect(clippy::disallowed_methods, reason = "waits for other processes")]
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// Waits until it is so; `what` names the condition in the failure's message.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = monotonic_now() + PATIENCE;
    while !is_so() {
        assert!(monotonic_now() < deadline, "after {} s not yet: {what}", PATIENCE.as_secs_f64());
        pause(5);
    }
}

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("not run: needs root");
    }
    is_root
}

/// `tenant.c`, compiled once.
pub fn tenant_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile("tenant", &["-pthread"]))
}

/// Compiles `tests/tenant.c` as `name`.
pub fn compile(name: &str, flags: &[&str]) -> PathBuf {
    compile_source("tenant.c", name, flags)
}

/// Compiles a program of `tests` as `name`.
pub fn compile_source(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    try_compile("cc", source, name, flags).unwrap_or_else(|problem| panic!("cc {source}: {problem}"))
}

/// The same with any compiler; says why it cannot.
pub fn try_compile(compiler: &str, source: &str, name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let draft = program.with_extension(std::process::id().to_string());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    // A library's flag stands behind the source that needs it.
    let outcome = Command::new(compiler).args(["-O1", "-Wall"]).arg(&source).args(flags).arg("-o").arg(&draft).output();
    let outcome = outcome.map_err(|error| error.to_string())?;
    if !outcome.status.success() {
        return Err(String::from_utf8_lossy(&outcome.stderr).into_owned());
    }
    std::fs::rename(&draft, &program).unwrap();
    Ok(program)
}

/// A run directory in memory, a folder for data and programs on a disk.
pub struct Rig {
    pub programs: Programs,
    pub run: TempDir,
    pub disk: TempDir,
}

impl Rig {
    pub fn new() -> Rig {
        let (run, disk) = (tempfile::tempdir_in("/dev/shm").unwrap(), disk());
        // Tenants may be other users.
        let everybody: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        for folder in [&run, &disk] {
            std::fs::set_permissions(folder.path(), everybody.clone()).unwrap();
        }
        Rig { programs: Programs::install(disk.path()).unwrap(), run, disk }
    }

    pub fn words(&self) -> GateWords {
        GateWords::create(self.run.path()).unwrap()
    }

    fn words_path(&self) -> PathBuf {
        self.run.path().join(plimsoll_gates::words::FILE_NAME)
    }

    /// For what is said of calls that are held: see [`lease`].
    pub fn watch_lease(&self) -> LeaseWatch {
        LeaseWatch::of(&self.words_path())
    }

    /// When the lease ends, as the agent has said last.
    pub fn lease_until(&self) -> Time {
        lease::until(&File::open(self.words_path()).unwrap())
    }

    pub fn preload(&self, account: u32) -> Launch {
        self.preload_of(account, 1)
    }

    /// The shim of the tenant that has the account in this generation.
    pub fn preload_of(&self, account: u32, generation: u32) -> Launch {
        let account = AccountId(account);
        Launch::new().with_shim_at(self.programs.shim(), &self.words_path(), account, generation).unwrap()
    }

    pub fn filtered(&self, account: u32, filter: Filter) -> Launch {
        let socket = self.run.path().join(agent::SOCKET_NAME);
        Launch::new().with_filter(filter, &socket, &account.to_string(), "tenant")
    }

    /// A process that has read the words and does `what` at one of them (`stranger.c`).
    pub fn stranger(&self, account: u32, class: GateClass, what: &[&str]) -> Stranger {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        let program = PROGRAM.get_or_init(|| compile_source("stranger.c", "stranger", &["-pthread"]));
        let place = plimsoll_gates::words::place_of(AccountId(account), class).to_string();
        Stranger(Command::new(program).arg(self.words_path()).arg(place).args(what).process_group(0).spawn().unwrap())
    }

    /// `threads` threads that do `what`, behind a gate.
    pub fn tenant(&self, gate: &Launch, what: &str, threads: usize) -> Tenant {
        Plan::new(self.disk.path(), what, threads).start(gate)
    }
}

/// Runs `work` while the lease of the words is renewed.
pub fn alive<T>(words: &GateWords, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                words.renew();
                pause(RENEWAL.as_nanos() / 2_000_000);
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        is_over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A folder that is not in memory.
pub fn disk() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A tenant's command, before it is put behind a gate.
pub struct Plan {
    pub command: Command,
    counters: File,
    threads: usize,
}

impl Plan {
    pub fn new(folder: &Path, what: &str, threads: usize) -> Plan {
        Plan::of(Command::new(tenant_program()), folder, what, threads)
    }

    /// With `command` before the tenant's arguments.
    pub fn of(mut command: Command, folder: &Path, what: &str, threads: usize) -> Plan {
        let (_, path) = tempfile::NamedTempFile::new_in(folder).unwrap().keep().unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        // A page that is dirty would not leave the cache.
        File::open(&path).unwrap().sync_all().unwrap();
        let counters_path = path.with_extension("counters");
        let counters = File::create_new(&counters_path).unwrap();
        counters.set_len(threads as u64 * 16).unwrap();
        for path in [&path, &counters_path] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        }
        command.arg(path).arg(&counters_path).arg(what).arg(threads.to_string()).process_group(0);
        let counters = File::open(counters_path).unwrap();
        Plan { command, counters, threads }
    }

    pub fn start(mut self, gate: &Launch) -> Tenant {
        gate.prepare(&mut self.command).unwrap();
        let child = self.command.spawn().unwrap();
        Tenant { group: child.id(), child, counters: self.counters, threads: self.threads }
    }
}

/// A running tenant and whatever it started; killed when dropped.
pub struct Tenant {
    pub child: Child,
    /// The process group with the threads that do the work.
    pub group: u32,
    counters: File,
    threads: usize,
}

impl Tenant {
    /// Calls that each thread entered, and calls that returned to it.
    pub fn counts(&self) -> Vec<(u64, u64)> {
        let mut bytes = vec![0; self.threads * 16];
        self.counters.read_exact_at(&mut bytes, 0).unwrap();
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        bytes.chunks(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect()
    }

    pub fn returned(&self) -> Vec<u64> {
        self.counts().into_iter().map(|(_, returned)| returned).collect()
    }

    /// Waits until every thread has got through some more calls.
    pub fn goes_on(&mut self) {
        let before = self.returned();
        wait_until("every thread goes on", || {
            assert_eq!(self.child.try_wait().unwrap(), None, "the tenant has ended");
            self.returned().iter().zip(&before).all(|(now, before)| *now >= before + PROGRESS)
        });
    }

    /// Waits until `waiting` threads of the tenant and of what it started are in the system call `number`, and that
    /// remains so while no call returns.
    pub fn waits_in(&self, number: i64, waiting: usize) {
        self.waits_in_one_of(&[number], waiting);
    }

    /// The same for calls of which one or the other is under way.
    pub fn waits_in_one_of(&self, numbers: &[i64], waiting: usize) {
        let is_settled = || calls_of_group(self.group).iter().filter(|call| numbers.contains(call)).count() == waiting;
        wait_until(&format!("{waiting} threads wait in a system call of {numbers:?}"), || {
            let before = self.counts();
            // Long enough for the slowest call to return that had passed the gate before.
            is_settled() && {
                pause(300);
                is_settled() && self.counts() == before
            }
        });
    }

    /// Since the counts were these, each thread was let through the gate once at most, with a call that had passed it
    /// before it closed.
    pub fn passed_once_at_most(&self, closed: &[u64]) {
        for ((entered, returned), closed) in self.counts().into_iter().zip(closed) {
            assert!(returned <= closed + 1, "{} calls passed a closed gate", returned - closed);
            assert_eq!(entered, returned + 1);
        }
    }

    /// All threads wait in the shim.
    pub fn waits(&self) {
        self.waits_in(libc::SYS_futex, self.threads);
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let group = rustix::process::Pid::from_raw(self.group as i32).unwrap();
        rustix::process::kill_process_group(group, signal).unwrap();
    }

    pub fn end(&mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::KILL);
        self.child.wait().unwrap()
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.end();
        }
    }
}

/// A process at another account's word; killed when dropped.
pub struct Stranger(Child);

impl Stranger {
    /// Waits until so many of its threads wait.
    pub fn waits(&self, threads: usize) {
        let waiting = || calls_of_group(self.0.id()).iter().filter(|&&call| call == libc::SYS_futex).count();
        wait_until("the strangers wait", || waiting() == threads);
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The system calls that the threads of a process group are in; -1 for a thread that runs.
pub fn calls_of_group(group: u32) -> Vec<i64> {
    let mut calls = Vec::new();
    for process in numbers("/proc") {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { continue };
        // proc(5): "pid (name) state parent group ...", and a name may contain anything.
        let fields = stat.rsplit(')').next().unwrap().split_whitespace();
        if fields.clone().nth(2) != Some(&*group.to_string()) {
            continue;
        }
        for thread in numbers(&format!("/proc/{process}/task")) {
            let call = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/syscall")).unwrap_or_default();
            calls.push(call.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(-1));
        }
    }
    calls
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map_while(Result::ok);
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
