//! Processes that restrict themselves, or were built with what wants to be first: the shim neither ends them nor holds
//! up what it cannot hold without system calls of its own.

mod support;

use plimsoll_core::AccountId;
use plimsoll_gates::{Filter, GateClass, GateWords};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use support::agent::Agent;
use support::lease::unless_a_lease_runs_out;
use support::{Plan, Rig, Tenant, alive, calls_of_group, is_root, try_compile, wait_until};

const ACCOUNT: u32 = 7;
const CLASSES: [GateClass; 4] = GateClass::ALL;

#[test]
#[ignore = "the agent of the other tests"]
fn agent_process() {
    support::agent::run();
}

fn close(words: &GateWords) {
    CLASSES.into_iter().for_each(|class| words.close(AccountId(ACCOUNT), class));
}

fn open(words: &GateWords) {
    CLASSES.into_iter().for_each(|class| words.open(AccountId(ACCOUNT), class));
}

/// `restricted.c`, and whether it has libseccomp.
fn restricted_program() -> &'static (PathBuf, bool) {
    static PROGRAM: OnceLock<(PathBuf, bool)> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let with = ["-pthread", "-DWITH_LIBSECCOMP", "-l:libseccomp.so.2"];
        match try_compile("cc", "restricted.c", "restricted", &with) {
            Ok(program) => (program, true),
            Err(_) => (support::compile_source("restricted.c", "restricted", &["-pthread"]), false),
        }
    })
}

fn restricted(rig: &Rig, how: &str, threads: usize) -> Tenant {
    let command = Command::new(&restricted_program().0);
    Plan::of(command, rig.disk.path(), how, threads).start(&rig.preload(ACCOUNT))
}

/// Each filter kills for what the shim asks at a closed gate.
///
/// Broken on purpose and seen red, each way by itself: a shim without `prctl`; without `syscall`; one with a `syscall`
/// that does not know `prctl`; one that does not count its filters when it is loaded.
/// Promise: gates-own-filter.
#[test]
fn a_process_that_installs_a_filter_of_its_own_lives_and_passes_its_gates() {
    let rig = Rig::new();
    let words = rig.words();
    let ways = ["prctl", "syscall prctl", "seccomp", "twice", "libseccomp", "strict", "fork", "exec"];
    alive(&words, || {
        for how in ways {
            if how == "libseccomp" && !restricted_program().1 {
                println!("not run: libseccomp is not installed");
                continue;
            }
            println!("{how}");
            let mut tenant = restricted(&rig, how, 1);
            tenant.goes_on();
            close(&words);
            tenant.goes_on();
            tenant.goes_on();
            open(&words);
            tenant.end();
        }
    });
}

/// The filter behind which `plimsoll run` starts a command tells the agent, which tells the shims of that account
/// nothing any more.
///
/// Broken on purpose and seen red: a filter that does not notify `seccomp`; one that does not notify `prctl`; an agent
/// that begins no generation.
/// Promise: gates-own-filter.
#[test]
fn a_process_that_installs_a_filter_past_the_c_library_lives_and_passes_its_gates() {
    if cfg!(not(target_arch = "x86_64")) {
        return println!("not run: the calls are written for x86-64");
    }
    for how in ["direct seccomp", "direct prctl", "prctl", "seccomp"] {
        println!("{how}");
        let rig = Rig::new();
        let agent = Agent::start(&rig);
        let socket = rig.run.path().join(support::agent::SOCKET_NAME);
        let gate = |generation| {
            let launch = rig.preload_of(ACCOUNT, generation);
            launch.with_filter(Filter::default(), &socket, &ACCOUNT.to_string(), "tenant")
        };
        let mut other = rig.tenant(&gate(1), "write", 1);
        let command = Command::new(&restricted_program().0);
        let mut tenant = Plan::of(command, rig.disk.path(), how, 1).start(&gate(1));
        tenant.goes_on();
        agent.hold(&[ACCOUNT]);
        tenant.goes_on();
        tenant.goes_on();
        // A program that installs a filter as C programs do affects no other process.
        if how.starts_with("direct") {
            other.goes_on()
        } else {
            other.waits()
        }
        agent.hold(&[]);
    }
}

/// Broken on purpose and seen red: a shim that does not wait for its threads before all get the filter.
/// Promise: gates-own-filter.
#[test]
fn threads_that_wait_live_when_another_one_installs_a_filter_for_all() {
    const THREADS: usize = 5;
    let rig = Rig::new();
    let words = rig.words();
    alive(&words, || {
        for _ in 0..5 {
            let mut tenant = restricted(&rig, "all threads", THREADS);
            wait_until("all others write", || tenant.returned()[1..].iter().all(|&returned| returned > 0));
            close(&words);
            tenant.waits_in(libc::SYS_futex, THREADS - 1);
            tenant.signal(Signal::USR1);
            wait_until("the filter is there", || tenant.counts()[0].0 > 0);
            assert!(
                !calls_of_group(tenant.group).contains(&libc::SYS_futex),
                "a thread is inside a call of the shim's"
            );
            tenant.goes_on();
            open(&words);
            tenant.end();
        }
    });
}

/// They can still do what the shim does at its gate.
/// Promise: gates-restricted.
#[test]
fn a_process_that_is_restricted_otherwise_is_held_as_before() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let words = rig.words();
        // The kernel tells only root in which call an undumpable process waits (proc_pid_syscall(5)).
        let for_root = ["undumpable", "setuid", "chroot"];
        alive(&words, || {
            for how in ["nothing", "landlock", "closed"].into_iter().chain(for_root) {
                if for_root.contains(&how) && !is_root() {
                    continue;
                }
                println!("{how}");
                let mut tenant = restricted(&rig, how, 1);
                wait_until("it writes, or cannot be restricted so", || {
                    tenant.returned()[0] > 0 || tenant.child.try_wait().unwrap().is_some()
                });
                if let Some(status) = tenant.child.try_wait().unwrap() {
                    assert_eq!((how, status.code()), ("landlock", Some(77)));
                    println!("not run: this kernel has no landlock");
                    continue;
                }
                close(&words);
                let _lease = rig.watch_lease();
                tenant.waits();
                open(&words);
                tenant.goes_on();
            }
        });
    });
}

/// An account is given to another tenant, by the same agent or the next one, while processes of the tenant before live
/// on.
///
/// Broken on purpose and seen red: a shim that waits at a word that says anything but 0.
/// Promise: gates-account-number.
#[test]
fn the_former_tenant_of_an_account_passes_and_the_present_one_waits() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let words = rig.words();
        alive(&words, || {
            let mut before = rig.tenant(&rig.preload(ACCOUNT), "write", 2);
            close(&words);
            before.waits();
            let generation = words.begin_generation(AccountId(ACCOUNT));
            before.goes_on();
            let mut now = rig.tenant(&rig.preload_of(ACCOUNT, generation), "write", 2);
            now.goes_on();
            let _lease = rig.watch_lease();
            close(&words);
            now.waits();
            before.goes_on();
            assert_eq!(words.admit(AccountId(ACCOUNT), GateClass::Write, 10), 2, "none of those before waits there");
            open(&words);
            now.goes_on();
        });
        // Another agent that finds the same words, and has given the account to no tenant yet.
        drop(words);
        let words = rig.words();
        alive(&words, || {
            let mut before = rig.tenant(&rig.preload_of(ACCOUNT, 1), "write", 1);
            close(&words);
            before.goes_on();
        });
    });
}

/// How a compiler is asked for a sanitizer.
const SANITIZERS: [(&str, &str, &[&str]); 10] = [
    ("gcc", "address", &["-fsanitize=address"]),
    ("gcc", "address, own options", &["-fsanitize=address", "-DOWN_OPTIONS"]),
    ("gcc", "address, static", &["-fsanitize=address", "-static-libasan"]),
    ("gcc", "undefined", &["-fsanitize=undefined"]),
    ("gcc", "thread", &["-fsanitize=thread"]),
    ("gcc", "leak", &["-fsanitize=leak"]),
    ("clang", "address", &["-fsanitize=address"]),
    ("clang", "address, shared", &["-fsanitize=address", "-shared-libasan"]),
    ("clang", "undefined", &["-fsanitize=undefined"]),
    ("clang", "thread", &["-fsanitize=thread"]),
];

/// AddressSanitizer refuses to start where another library was loaded before its own. The shell has options of its own
/// for it, as a project's tests do.
///
/// Broken on purpose and seen red: a shim without `__asan_default_options` (the shell's), a launcher without
/// ASAN_OPTIONS (own options).
/// Promise: gates-sanitizers.
#[test]
fn programs_with_sanitizers_start_and_are_held() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let words = rig.words();
        for (compiler, sanitizer, flags) in SANITIZERS {
            let name = format!("tenant-{compiler}-{}", sanitizer.replace(", ", "-").replace(' ', "-"));
            let flags: Vec<_> = flags.iter().chain(&["-pthread"]).copied().collect();
            let built = try_compile(compiler, "tenant.c", &name, &flags);
            // Some sanitizers cannot run everywhere: whatever is preloaded is not to blame.
            let runs = |program: &PathBuf| Command::new(program).output().is_ok_and(|out| out.status.code() == Some(2));
            let Some(program) = built.ok().filter(runs) else {
                println!("not run: {compiler} has no {sanitizer} sanitizer that runs here");
                continue;
            };
            println!("{compiler} {sanitizer}");
            let mut plain = Command::new(&program);
            plain.env("ASAN_OPTIONS", "detect_leaks=1");
            let mut shell = Command::new("sh");
            let set = if flags.contains(&"-DOWN_OPTIONS") { "" } else { "export ASAN_OPTIONS=detect_leaks=0;" };
            shell.arg("-c").arg(format!("{set} \"$@\"; exit 1")).arg("sh").arg(&program);
            for command in [plain, shell] {
                let plan = Plan::of(command, rig.disk.path(), "write", 2);
                alive(&words, || {
                    let mut tenant = plan.start(&rig.preload(ACCOUNT));
                    tenant.goes_on();
                    let _lease = rig.watch_lease();
                    close(&words);
                    tenant.waits_in(libc::SYS_futex, 2);
                    open(&words);
                    tenant.goes_on();
                    tenant.end();
                });
            }
        }
    });
}

/// A root directory with one program and its libraries in it.
fn root_with(program: &Path) -> tempfile::TempDir {
    let root = support::disk();
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in libraries.chain([program]) {
        let copy = root.path().join(file.strip_prefix("/").unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(file, copy).unwrap();
    }
    root
}

fn output_behind_shim(rig: &Rig, arguments: &[&str]) -> Output {
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]);
    rig.preload(ACCOUNT).prepare(&mut command).unwrap();
    command.output().unwrap()
}

/// The loader says of each library that it cannot preload that it cannot, in each program.
///
/// Broken on purpose and seen red: a shim without `chroot`; one that forgets itself where it is still there; one
/// without `setns`; one without `pivot_root`.
/// Promise: gates-loader.
#[test]
fn the_loader_says_nothing_where_the_root_has_changed() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let _words = rig.words();
    let program = Path::new("/usr/bin/printenv");
    let root = root_with(program);
    let root = root.path().to_str().unwrap();
    let said = |arguments: &[&str]| {
        let output = output_behind_shim(&rig, arguments);
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let preloaded = format!("{}\n", rig.programs.shim().display());
    let program = program.to_str().unwrap();
    let (nothing, empty) = (("\n".to_owned(), String::new()), String::new());
    // The same root, and another one.
    assert_eq!(said(&["chroot", "/", program, "LD_PRELOAD"]), (preloaded.clone(), empty.clone()));
    assert_eq!(said(&["chroot", root, program, "LD_PRELOAD"]), nothing);
    assert_eq!(said(&["unshare", "--root", root, program, "LD_PRELOAD"]), nothing);
    let pivot = format!(
        "mount --bind {root} {root} && mkdir -p {root}/old && cd {root} && \
         perl -e 'my ($new, $old) = (\".\", \"old\"); syscall({}, $new, $old) == 0 or die; chdir \"/\"; exec @ARGV' {program} LD_PRELOAD",
        libc::SYS_pivot_root
    );
    assert_eq!(said(&["unshare", "-m", "sh", "-c", &pivot]), nothing);
    // Into the mounts of a process that sees another root.
    let mut inside = Command::new("unshare");
    let script = format!("mount --bind {root} {root} && cd {root} && pivot_root . old && echo && exec cat");
    let tools = root_with(Path::new("/bin/cat"));
    Command::new("cp").args(["-rn", &format!("{}/.", tools.path().display()), root]).status().unwrap();
    let mut inside = inside
        .args(["-m", "sh", "-c", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0];
    std::io::Read::read_exact(inside.stdout.as_mut().unwrap(), &mut line).unwrap();
    let number = inside.id().to_string();
    let entered = said(&["nsenter", "-m", "-t", &number, program, "LD_PRELOAD"]);
    drop(inside.stdin.take());
    inside.wait().unwrap();
    assert_eq!(entered, nothing);
    // Others' libraries stay, wherever they stand.
    let others = "/lib/none.so:/lib/none2.so";
    let output = {
        let mut command = Command::new("chroot");
        command.args([root, program, "LD_PRELOAD"]).env("LD_PRELOAD", others);
        rig.preload(ACCOUNT).prepare(&mut command).unwrap();
        command.output().unwrap()
    };
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{others}\n"));
}
