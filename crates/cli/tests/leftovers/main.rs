//! Nothing is left behind: no mount, loop device, BPF program, cgroup, changed sysctl, process or file, however a
//! daemon or a live scenario ends; after a `kill -9` when the next one has started. Root only.
//!
//! Broken on purpose and seen red: a daemon that keeps its run directory.

mod agent;
#[path = "../up/support.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod support;
mod traces;

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use support::{Site, text, why_no_mounts};
use traces::{Traces, knobs, wait_until};

/// Sysctls and the folder of live runs are the machine's.
static MACHINE: Mutex<()> = Mutex::new(());

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    ByItself,
    /// As systemd ends it.
    Terminated,
    /// Ctrl-C.
    Interrupted,
    /// `kill -9`, and then the next one.
    Killed,
}

fn can_run() -> bool {
    let problem = why_no_mounts().or(cfg!(not(feature = "bpf")).then_some("built without BPF"));
    if let Some(problem) = problem {
        println!("not run: {problem}");
    }
    problem.is_none()
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

const TENANTS: &str = "[device.disk0]\nworst_case = \"1000 runs/s\"\nscheduler = \"split_token\"\n[pool.web]\ndevice = \"disk0\"\n\
    [volume.db]\npool = \"web\"\nsize = \"512MiB\"\nmemory = true\n\
    mount = { path = \"{folder}/mnt\", filesystem = \"ext4\", format = \"if-empty\", tenants = true }\n";
const NOT_MOUNTABLE: &str = "[volume.other]\npool = \"web\"\nsize = \"64MiB\"\nfile = \"other.img\"\n\
    mount = { path = \"{folder}/mnt2\", filesystem = \"ext4\", format = \"if-empty\" }\n";

fn site(configuration: &str) -> Site {
    let site = Site::new(configuration);
    let path = site.path("plimsoll.toml");
    let configuration = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, configuration.replace("{folder}", site.folder.path().to_str().unwrap())).unwrap();
    site
}

fn start_tenant(site: &Site, script: &str) -> Child {
    let arguments = ["run", "--socket", "state/control.sock", "--name", "tenant", "--", "sh", "-c", script];
    site.command(&arguments).spawn().unwrap()
}

/// Promise: tenants-leftovers.
#[test]
fn of_a_daemon_with_tenants() {
    if !can_run() {
        return;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    for end in [End::Terminated, End::Interrupted, End::Killed] {
        println!("{end:?}");
        let site = site(TENANTS);
        let before = Traces::of(&site);
        let daemon = site.up();
        let done =
            start_tenant(&site, "dd if=/dev/zero of=mnt/a bs=64k count=64 conv=fsync status=none").wait().unwrap();
        assert!(done.success(), "{done}");
        let mut living = start_tenant(&site, "sync -f mnt/a; echo > begun; exec sleep 1000");
        wait_until("a tenant that stays", || site.path("begun").exists());
        assert!(Traces::of(&site) != before, "all this can be seen");
        let ended = match end {
            End::Interrupted => {
                daemon.signal(Signal::INT);
                daemon.wait()
            }
            End::Killed => {
                daemon.signal(Signal::KILL);
                daemon.wait();
                let next = site.up();
                next.signal(Signal::TERM);
                next.wait()
            }
            End::ByItself | End::Terminated => {
                daemon.signal(Signal::TERM);
                daemon.wait()
            }
        };
        assert!(ended.0.success(), "{}:\n{}", ended.0, ended.1);
        // Keepers end with their tenants.
        living.kill().unwrap();
        living.wait().unwrap();
        Traces::settle(&site, &before);
    }
}

/// Promise: tenants-leftovers.
#[test]
fn of_a_daemon_that_fails_to_start() {
    if !can_run() {
        return;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let site = site(&format!("{TENANTS}{NOT_MOUNTABLE}"));
    std::fs::write(site.path("other.img"), vec![b'?'; 64 << 20]).unwrap();
    let before = Traces::of(&site);
    let errors = text(&site.up_fails().stderr);
    assert!(errors.contains("volume db: unmounted ext4"), "the first one had been mounted: {errors}");
    Traces::settle(&site, &before);
}

/// Memory of a size that no machine has, so that limits of dirty memory are changed.
const SCENARIO: &str = "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"live\"]\ntakes = \"1 s\"\n\
    seeds = 1\nduration = \"2s\"\n[row.r]\ntitle = \"t\"\nmeasure = '1'\nunit = \"\"\n\
    [machine]\ndevice = \"hdd.wd-aakx\"\nmemory = \"777MiB\"\nfile_system = \"ext4\"\nvolume = \"512MiB\"\n";
/// A station: words, keepers, BPF programs.
const OURS: &str = "scheduler = \"split_token\"\n[account.b]\nlimit = \"64KB/s\"\n\
    [process.a]\nworkload = \"append 4KiB to log 16MiB, fsync\"\n[process.b]\nworkload = \"append 4KiB to log 16MiB\"\n";
/// Cgroups, and settings of the loop device's queue.
const KERNELS: &str = "scheduler = \"noop\"\nkernel_scheduler = \"bfq\"\nkernel_limits = true\n\
    [account.a]\nlimit = \"1MB/s\"\n[account.b]\nweight = 300\n\
    [process.a]\nworkload = \"append 4KiB to log 16MiB\"\n[process.b]\nworkload = \"append 4KiB to log 16MiB, fsync\"\n";
/// A cache, with a group of memory, and a utility after it.
const CACHED: &str = "scheduler = \"noop\"\n[cache]\ndevice = \"ssd.x25-e\"\nsize = \"40MB\"\npolicy = \"selective\"\n\
    [process.a]\nworkload = \"append 4KiB to log 16MiB, fsync\"\n[utility.find]\ntool = \"find\"\nof = \"a\"\n";
/// Where the server of such a scenario listens.
const SERVER: &str = "/dev/shm/plimsoll-live/postgresql/.s.PGSQL.5432";
/// A real PostgreSQL, if it is installed.
const DATABASE: &str = "scheduler = \"noop\"\n[cache]\ndevice = \"ssd.x25-e\"\nsize = \"40MB\"\npolicy = \"selective\"\n\
    classes = \"postgresql-on-ext4\"\n[database.a]\nqueries = [2]\nscale = 0.002\nbuffers = \"640KiB\"\n";
/// More than the volume has room for.
const FAILING: &str = "scheduler = \"noop\"\n[process.a]\nworkload = \"write sequential 1MiB in big 600MiB\"\n";

/// What a scenario ends with that cannot be run on this machine.
const NOT_RUN: i32 = 3;

/// More arguments, for a run that is ended before: so long that it does not end by itself.
fn long(name: &str) -> [&'static str; 2] {
    if name == "database.toml" { ["--set", "database.a.scale=0.05"] } else { ["--set", "duration=120s"] }
}

fn scenario(site: &Site, name: &str) -> Command {
    let mut command = site.command(&["scenario", "run", name, "--host", "live", "--no-progress"]);
    command.env("TMPDIR", site.folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Promise: lab-live-database, tenants-leftovers.
#[test]
fn of_a_live_scenario() {
    if !can_run() {
        return;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if traces::another_is_live() {
        return println!("not run: another live scenario runs on this machine");
    }
    let site = Site::new("");
    // PostgreSQL's user has to come in.
    std::fs::set_permissions(site.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let before = Traces::of_machine(&site);
    let setups = [
        ("ours.toml", OURS),
        ("kernels.toml", KERNELS),
        ("cached.toml", CACHED),
        ("failing.toml", FAILING),
        ("database.toml", DATABASE),
    ];
    for (name, setup) in setups {
        std::fs::write(site.path(name), format!("{SCENARIO}{setup}")).unwrap();
    }
    for name in ["ours.toml", "kernels.toml", "cached.toml", "database.toml"] {
        for end in [End::ByItself, End::Interrupted, End::Killed] {
            println!("{name}, {end:?}");
            let (knobs_before, mut run) = (knobs(), scenario(&site, name));
            let mut run = if end == End::ByItself { run.spawn() } else { run.args(long(name)).spawn() }.unwrap();
            if end != End::ByItself {
                let is_begun =
                    || if name == "database.toml" { Path::new(SERVER).exists() } else { knobs() != knobs_before };
                wait_until("the middle of it", || is_begun() || run.try_wait().unwrap().is_some());
            }
            let ended = if end == End::ByItself { None } else { run.try_wait().unwrap() };
            match end {
                _ if ended.is_some() => {}
                End::ByItself => {}
                End::Interrupted | End::Terminated => kill(&run, Signal::INT),
                End::Killed => kill(&run, Signal::KILL),
            }
            run.wait().unwrap();
            if let Some(status) = ended {
                assert_eq!(status.code(), Some(NOT_RUN), "{name} has ended before anybody ended it");
                println!("not run: {name} cannot be here");
            } else if end == End::Killed {
                assert!(Traces::of_machine(&site) != before, "a kill leaves something");
                // The next scenario begins with the traces that the killed one left.
                scenario(&site, "failing.toml").status().unwrap();
            }
            Traces::settle(&site, &before);
        }
    }
}
