//! The live host: what it refuses, what it measures, and that it leaves nothing behind.

mod live_support;

use live_support::{MACHINE, can_mount, host, knobs, knobs_before, mounts, note, run};
use plimsoll_core::Span;
use plimsoll_lab::host::{Host, HostError};
use plimsoll_lab::scenario::{self, Setup};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

/// Makes it a host that is to be killed.
const HOST_VARIABLE: &str = "PLIMSOLL_TEST_LIVE_HOST";

/// A scenario of two seconds on ext4, with limits of dirty memory that differ from any default.
fn setup(machine: &str, rest: &str) -> Setup {
    let text = format!(
        "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"sim\", \"live\"]\ntakes = \"1 s\"\n\
         seeds = 1\nduration = \"2s\"\n[machine]\ndevice = \"hdd.wd-aakx\"\nmemory = \"777MiB\"\n{machine}\n{rest}\n\
         [row.r]\ntitle = \"t\"\nmeasure = '1'\nunit = \"\"\n"
    );
    let scenario = scenario::parse(&text, Path::new("live.toml"), &[]).unwrap_or_else(|error| panic!("{error}"));
    scenario.variants[0].setup.clone()
}

/// For runs that are ended before: however long the test takes to end them, they do not end by themselves.
const LONG: Span = Span::from_secs(120);
/// Tries of a check that fails if the machine's processors are taken away for a second.
const TRIES: u32 = 5;

const EXT4: &str = "scheduler = \"noop\"\nfile_system = \"ext4\"\nvolume = \"512MiB\"";
const APPEND: &str = "[process.p]\nworkload = \"append 4KiB to log 16MiB, fsync\"";

/// Settings of a loop device as a note has them, once it is complete; empty until then.
fn noted_settings() -> Vec<(PathBuf, String)> {
    let text = std::fs::read_to_string(note("queue-settings")).unwrap_or_default();
    let line = |line: &str| {
        let [device, name, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        (Path::new("/sys/block").join(device).join("queue").join(name), value.to_owned())
    };
    if text.contains("max_sectors_kb") && text.ends_with('\n') { text.lines().map(line).collect() } else { Vec::new() }
}

fn assert_put_back(settings: &[(PathBuf, String)]) {
    assert!(settings.len() >= 5, "{settings:?}");
    // The note has the device's own number, which is hidden under a scheduler: there it is the scheduler's.
    let has_scheduler = settings.iter().any(|(path, value)| path.ends_with("scheduler") && value != "none");
    for (path, value) in settings.iter().filter(|(path, _)| !(has_scheduler && path.ends_with("nr_requests"))) {
        let now = std::fs::read_to_string(path).unwrap();
        let is_same = now.trim() == value || now.contains(&format!("[{value}]"));
        assert!(is_same, "{}: {now:?} instead of {value:?}", path.display());
    }
    assert!(!note("queue-settings").exists());
}

#[test]
fn what_it_cannot_do_is_not_run_with_the_reason() {
    let threads = "[account.a]\n[account.b]\nweight = 300\n[process.p]\naccount = \"a\"\n\
                   workload = \"append 4KiB, threads 2\"\nthreads = { p = \"b\" }";
    let tenant = "[tenant.t]\npattern = \"random\"\nlength = \"4KiB\"";
    let threads_of_tenant = &format!("{tenant}\nthreads = 2\ndepth = 2");
    let large = "[process.p]\nworkload = \"read random 4KiB in big 40GiB\"";
    let files = &format!("{APPEND}\n[process.p.file_deadlines]\n\"log.0\" = {{ fsync = \"100ms\" }}");
    for (machine, rest, reason) in [
        (
            "scheduler = \"noop\"\nfile_system = \"raw\"",
            APPEND,
            "raw is no file system of the kernel's: the live host \
         has ext4, ext4-dioread-lock, xfs",
        ),
        (
            &EXT4.replace("noop", "scs_token"),
            APPEND,
            "scs_token decides about each read and write by its bytes, and gates tell only that a call writes",
        ),
        (&format!("{EXT4}\nflusher = false"), APPEND, "the kernel's flusher cannot be turned off"),
        (EXT4, threads_of_tenant, "t has threads on NUMA nodes, which are modelled on the simulator only"),
        (
            &format!("{EXT4}\nkernel_scheduler = \"bfq\""),
            tenant,
            "tenants are clients of the engine, and the kernel's bfq is above a block device",
        ),
        (EXT4, files, "p has file_deadlines, but below a mount a request does not say which file it is of"),
        (&format!("{EXT4}\nalternate = \"afq\""), APPEND, "schedulers take turns where tenants are, not processes"),
        (EXT4, threads, "p has accounts for its threads, and a process is in one account"),
        (
            "scheduler = \"noop\"\nfile_system = \"ext4\"",
            large,
            "its files need a volume of 41.2 GiB in memory, allowed are 8 GiB",
        ),
    ] {
        let refused = run(&setup(machine, rest)).err();
        let is_normal_user = !rustix::process::geteuid().is_root();
        match refused {
            Some(HostError::NotRun(got)) if is_normal_user && got == "mounting takes root" => {}
            got => assert_eq!(got, Some(HostError::NotRun(reason.to_owned()))),
        }
    }
}

/// Promise: lab-live-leftovers.
#[test]
fn it_measures_real_calls_and_puts_everything_back() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let before = knobs_before();
    match run(&setup(EXT4, APPEND)) {
        Ok(result) => {
            assert_eq!(result.hash, None, "it cannot be repeated exactly");
            let of = |kind: &str| -> (u64, u64) {
                let seconds = result.sources["p"].series(kind).unwrap().window(0, 100);
                (seconds.iter().map(|s| s.count).sum(), seconds.iter().map(|s| s.bytes).sum())
            };
            let ((writes, bytes), (fsyncs, _), (units, _)) = (of("write"), of("fsync"), of("unit"));
            assert!(writes > 0 && bytes == writes * 4096);
            // A call may fall in a second that counts and its neighbour in one that does not.
            assert!(fsyncs.abs_diff(writes) <= 2 && units.abs_diff(writes) <= 2, "{writes} {fsyncs} {units}");
            assert!(result.device_busy > 0.0);
        }
        Err(HostError::NotRun(reason)) => println!("not run: {reason}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!((knobs(), mounts()), (before.clone(), 0), "after a run");

    // Ctrl-C, as soon as the knobs are turned.
    let (stop, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (watched, is_over_seen) = (stop.clone(), is_over.clone());
    let unturned = before.clone();
    let watcher = std::thread::spawn(move || {
        while knobs() == unturned && !is_over_seen.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        watched.store(true, Ordering::Relaxed);
    });
    let result = host(stop).run(&Setup { duration: LONG, ..setup(EXT4, APPEND) }, 1);
    is_over.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    assert_eq!(result.err(), Some(HostError::Failed("interrupted".to_owned())));
    assert_eq!((knobs(), mounts()), (before.clone(), 0), "after Ctrl-C");

    // A failure in the middle of it: the volume is full.
    let full = "[process.p]\nworkload = \"write sequential 1MiB in big 600MiB\"";
    let Err(HostError::Failed(reason)) = run(&setup(EXT4, full)) else { panic!("600 MiB do not fit 512 MiB") };
    assert!(reason.contains("No space left on device"), "{reason}");
    assert_eq!((knobs(), mounts()), (before.clone(), 0), "after a failure");

    // A predecessor that was killed: its note brings back what it had found.
    let note = note("vm-knobs");
    let expire = "dirty_expire_centisecs";
    std::fs::write(&note, format!("{expire} {}", before[expire])).unwrap();
    std::fs::write(format!("/proc/sys/vm/{expire}"), "1234").unwrap();
    let _ = run(&setup(EXT4, full));
    assert_eq!((knobs(), mounts()), (before, 0), "after a predecessor that was killed");
    assert!(!note.exists());
}

/// Red if the file keeps its name, and if the model is used instead.
/// Promise: lab-own-disk.
#[test]
fn tenants_use_this_machines_own_disk_and_nothing_is_left_of_it() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let own = "scheduler = \"wdt\"\nown_disk = \"256MiB\"";
    let tenant = "[tenant.t]\npattern = \"random\"\nlength = \"4KiB\"\nread_percent = 50\ndepth = 4";
    let host = host(Arc::default());
    // A disk that others use may do nothing at all for seconds.
    match host.run(&Setup { duration: Span::from_secs(8), ..setup(own, tenant) }, 1) {
        Ok(result) => {
            let bytes = |kind: &str| -> u64 {
                result.sources["t"].series(kind).unwrap().window(0, 100).iter().map(|s| s.bytes).sum()
            };
            assert!(bytes("read") > 0 && bytes("write") > 0);
            let notes = host.notes();
            assert!(notes[0].starts_with("seed 1: this machine's own disk, 256 MiB of it: "), "{notes:?}");
        }
        Err(HostError::NotRun(reason)) => println!("not run: {reason}"),
        Err(error) => panic!("{error}"),
    }
    assert!(!note("own-disk").exists());
    let reason = "a file system is on an emulated device only, own_disk is for tenants";
    let refused = run(&setup(&format!("{EXT4}\nown_disk = \"256MiB\""), APPEND));
    assert_eq!(refused.err(), Some(HostError::NotRun(reason.to_owned())));
}

/// Red if the schedulers never switch, if each second is a turn, and if the other one begins.
#[test]
fn two_schedulers_take_turns() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = "scheduler = \"zygaria\"\nalternate = \"noop\"\nturn_seconds = 2";
    let tenants = "[account]\nlimited = { limit = \"10 runs/s\" }\n\
                   [tenant]\nlimited = { pattern = \"random\", length = \"4KiB\", depth = 4, account = \"limited\" }";
    let setup = Setup { duration: Span::from_secs(8), ..setup(machine, tenants) };
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        match host(Arc::default()).run(&setup, 1) {
            Ok(result) => {
                let seconds = result.sources["limited"].series("read").unwrap().window(0, 8);
                let counts: Vec<u64> = seconds.iter().map(|second| second.count).collect();
                // A turn begins with what the other one has let through.
                if [(1, 3), (5, 7)].iter().all(|&(limited, free)| counts[limited] <= 2 * 10 && counts[free] > 4 * 10) {
                    return;
                }
                seen.push(counts);
            }
            Err(HostError::NotRun(reason)) => return println!("not run: {reason}"),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("reads in each second: {seen:?}");
}

/// A process with a limit beside one without, told apart by the cause of each request.
fn tenants() -> Setup {
    let processes = "[account.b]\nlimit = \"64KB/s\"\n[process.a]\nworkload = \"append 4KiB to log 16MiB\"\n\
                     [process.b]\nworkload = \"append 4KiB to log 16MiB\"";
    setup(&EXT4.replace("noop", "split_token"), processes)
}

/// Limits of dirty memory are the machine's. Red without the lock: the second run takes the first one's mount away.
#[test]
fn there_is_one_live_run_at_a_time() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let first = host(stop.clone());
    let first = std::thread::spawn(move || first.run(&Setup { duration: LONG, ..setup(EXT4, APPEND) }, 1));
    while mounts() == 0 && !first.is_finished() {
        std::thread::yield_now();
    }
    let second = run(&setup(EXT4, APPEND));
    let goes_on = !first.is_finished();
    stop.store(true, Ordering::Relaxed);
    let first = first.join().unwrap();
    let expected = "another live run is under way on this machine; run one after the other";
    assert_eq!(second.err(), Some(HostError::Failed(expected.to_owned())));
    assert_eq!(
        (goes_on, first.err()),
        (true, Some(HostError::Failed("interrupted".to_owned()))),
        "the first one goes on"
    );
}

/// Red if the processes are not enrolled, if they start behind no gates, and if limits are not told.
#[test]
fn a_tenant_with_a_limit_is_held_at_its_gate_and_the_end_lets_it_go() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let mut seen = Vec::new();
    let is_held = (0..TRIES).any(|_| {
        let result = match run(&tenants()) {
            Err(HostError::NotRun(reason)) => {
                println!("not run: {reason}");
                return true;
            }
            result => result.unwrap(),
        };
        assert_eq!(mounts(), 0);
        assert!(!Path::new("/dev/shm/plimsoll-live").exists(), "the station's words");
        let written = |process: &str| -> u64 {
            result.sources[process].series("write").unwrap().window(0, 100).iter().map(|s| s.bytes).sum()
        };
        // In memory both would write alike; what b has written before its gate closed takes it minutes to pay. A
        // station that gets no processor for longer than its lease holds no process.
        seen.push((written("b"), written("a")));
        written("b") < written("a") / 10
    });
    assert!(is_held, "bytes of b beside a: {seen:?}");
    assert_eq!(mounts(), 0);
}

/// Reads over NBD on the whole of a disk with 500 GB that take no memory. Red if sessions are opened without what they
/// are promised, outside of their pool, or each tenant in a session of its own. Red if a tenant that is left out
/// connects, if bytes are not counted, and if a tenant with so many outstanding requests waits for each.
#[test]
fn tenants_are_clients_in_the_sessions_of_their_accounts() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let tenant = |name: &str, account: &str, rest: &str| {
        format!("[tenant.{name}]\naccount = \"{account}\"\npattern = \"random\"\nlength = \"4KiB\"\n{rest}\n")
    };
    let accounts = "[account.pool]\nlimit = \"10 runs/s\"\n[account.shared]\nparent = \"pool\"\n\
                    [account.narrow]\nlimit = \"2 runs/s\"\n[account.free]\n";
    let tenants = [
        tenant("first", "shared", "depth = 4"),
        tenant("second", "shared", "depth = 4"),
        tenant("narrow", "narrow", "depth = 4"),
        tenant("reader", "free", "depth = 8"),
        tenant("writer", "free", "rate = \"10 runs/s\"\nread_percent = 0"),
        tenant("nobody", "free", "stop = \"1ns\""),
    ];
    let result = match run(&setup("scheduler = \"zygaria\"", &format!("{accounts}{}", tenants.concat()))) {
        Err(HostError::NotRun(reason)) => return println!("not run: {reason}"),
        result => result.unwrap(),
    };
    let of = |tenant: &str, kind: &str| -> u64 {
        let seconds = result.sources[tenant].series(kind).unwrap().window(0, 100);
        let (count, bytes) = seconds.iter().fold((0, 0), |(count, bytes), s| (count + s.count, bytes + s.bytes));
        assert_eq!(bytes, count * 4096, "{tenant}");
        count
    };
    let (shared, narrow, reader) =
        (of("first", "read") + of("second", "read"), of("narrow", "read"), of("reader", "read"));
    assert!(reader > shared && shared > narrow, "{reader}, {shared}, {narrow}: nothing, 10/s and 2/s in the way");
    assert!(shared <= 25 && narrow <= 6, "{shared}, {narrow}: more than the limits let through in two seconds");
    assert!(of("writer", "write") > 0);
    assert!(!result.sources.contains_key("nobody"));
}

/// Two processes in groups of their own under BFQ, with everything turned that a run can turn.
fn rivals(duration: Span) -> Setup {
    let machine = format!("{EXT4}\nkernel_scheduler = \"bfq\"\nkernel_limits = true");
    let processes = "[account.a]\npriority = \"idle\"\nlimit = \"1MB/s\"\n[account.b]\nweight = 300\n\
                     [process.a]\nworkload = \"append 4KiB to log 16MiB\"\n\
                     [process.b]\nworkload = \"append 4KiB to log 16MiB, fsync\"";
    Setup { duration, ..setup(&machine, processes) }
}

/// Not a test by itself: the host that is killed.
#[test]
fn host_that_is_killed() {
    if std::env::var_os(HOST_VARIABLE).is_some() {
        let _ = run(&rivals(LONG));
    }
}

/// The processes in the groups of the run that is under way.
fn members() -> Vec<u32> {
    let Ok(folder) = std::fs::read_to_string(note("cgroups")) else { return Vec::new() };
    let members = ["a", "b"].map(|group| Path::new(&folder).join(group).join("cgroup.procs"));
    let texts = members.iter().map(|path| std::fs::read_to_string(path).unwrap_or_default());
    texts.flat_map(|text| text.lines().map(|line| line.parse().unwrap()).collect::<Vec<u32>>()).collect()
}

/// Red without the recovery of queue settings (the loop device keeps bfq), and without that of groups (they stay).
/// Promise: lab-live-leftovers.
#[test]
fn a_killed_host_takes_its_processes_along_and_the_next_start_puts_everything_back() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let before = knobs_before();
    // The whole of it once, undisturbed.
    match run(&rivals(Span::from_secs(2))) {
        Ok(result) => assert!(result.sources.values().all(|source| source.series("write").is_some())),
        Err(HostError::NotRun(reason)) if reason.contains("blkio") => return println!("not run: {reason}"),
        Err(HostError::NotRun(reason)) => println!("not run: {reason}"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!((knobs(), mounts(), note("cgroups").exists()), (before.clone(), 0, false), "after a run");

    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "host_that_is_killed"]).env(HOST_VARIABLE, "1");
    let mut host = command.spawn().unwrap();
    while members().len() < 2 || noted_settings().is_empty() {
        assert!(host.try_wait().unwrap().is_none(), "the host ended before it ran anything");
        std::thread::yield_now();
    }
    let (processes, settings) = (members(), noted_settings());
    let scheduler = std::fs::read_to_string(&settings[0].0).unwrap();
    assert!(scheduler.contains("[bfq]"), "{scheduler}");
    host.kill().unwrap();
    host.wait().unwrap();
    for process in processes {
        while Path::new(&format!("/proc/{process}")).exists() {
            std::thread::yield_now();
        }
    }
    assert!(knobs() != before && mounts() > 0 && note("cgroups").exists(), "it was killed in the middle");
    let groups = std::fs::read_to_string(note("cgroups")).unwrap();

    // Whatever the next run does, it begins with what this one left, and says so.
    let next = self::host(Arc::default());
    let _ = next.run(&setup(EXT4, APPEND), 1);
    let said: Vec<String> =
        next.notes().into_iter().filter(|note| note.starts_with("left by a run that was killed: ")).collect();
    for what in ["put back limits of dirty memory", "put back settings of the loop device", "blkio", "unmounted ext4"] {
        assert!(said.iter().any(|note| note.contains(what)), "{what} is not in {said:?}");
    }
    assert_eq!((knobs(), mounts()), (before, 0));
    assert!(!note("cgroups").exists() && !Path::new(&groups).exists(), "{groups}");
    assert_put_back(&settings);
}
