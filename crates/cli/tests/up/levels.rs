//! Schedulers that work at the calls, above real gates: `afq` and Split-Deadline on a disk that is observed, with
//! tenants that have priorities and deadlines from `plimsoll run`. Root and BPF only.
//!
//! Planted breaks that turned a test red: `plimsoll run` that leaves out a priority, or a deadline.

use crate::agent::{AGENT, Disk, site};
use crate::lease::unless_a_lease_runs_out;
use crate::support::{Daemon, Site};
use crate::tenants::{accounts, run, wait_until, watch_lease};
use crate::why::Why;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What the schedulers go by, whatever is below the loop device: 0.5 MB of it for a run at its worst.
const PROFILE: &str = "worst_case = \"200 runs/s\"\nsequential = \"100MB/s\"\noutstanding_max = 4\n";
/// Where a process finds what to append to.
const FILES: &str = "PLIMSOLL_TEST_APPEND_TO";
/// Threads of a tenant, so that one of them always is in a call.
const THREADS: u64 = 4;
const BLOCK: usize = 4096;
/// How `plimsoll run` ends where no command has started.
const OWN_FAILURE: i32 = 125;
/// Appends of a thread at the most: an eighth of what the disk has room for.
const APPENDS_MAX: u32 = 12_000;
/// Appends of both tenants that are counted: priority 7 has some ninety of them.
const COUNTED: u64 = 800;
const MIB: u64 = 1 << 20;
/// A file that takes the disk of [`PROFILE`] a second.
const LARGE_MIB: u64 = 96;

/// An agent that knows the disk, or one that knows nothing of it.
fn start<'site>(site: &'site Site, scheduler: &str, is_known: bool) -> Daemon<'site> {
    std::fs::write(site.path("profile"), PROFILE).unwrap();
    let profile = ["--profile", "profile"];
    site.start(&[&AGENT[..], &["--scheduler", scheduler], if is_known { &profile } else { &[] }].concat())
}

/// A command that ends with the test.
struct Tenant(Child);

impl Tenant {
    fn start(mut command: Command) -> Tenant {
        Tenant(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No test: what the tenants of one are. Appends and syncs, in four files at once.
#[test]
fn an_appender() {
    let Some(files) = std::env::var_os(FILES) else { return };
    std::thread::scope(|scope| {
        for path in paths(PathBuf::from(files)) {
            scope.spawn(move || {
                let mut file = File::create(path).unwrap();
                for _ in 0..APPENDS_MAX {
                    file.write_all(&[7; BLOCK]).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
}

fn paths(files: PathBuf) -> impl Iterator<Item = PathBuf> {
    (0..THREADS).map(move |number| files.with_extension(number.to_string()))
}

/// A tenant that appends, and the calls that it has had so far.
struct Appender {
    files: PathBuf,
    _tenant: Tenant,
}

impl Appender {
    fn start(site: &Site, disk: &Disk<'_>, name: &str, options: &[&str]) -> Appender {
        let (files, program) = (disk.path(name), std::env::current_exe().unwrap());
        let ourselves = [program.to_str().unwrap(), "--exact", "levels::an_appender", "--test-threads=1"];
        let mut command = run(site, &[&["--name", name], options].concat(), &ourselves);
        command.env(FILES, &files);
        Appender { files, _tenant: Tenant::start(command) }
    }

    fn calls(&self) -> u64 {
        let bytes = paths(self.files.clone()).map(|path| std::fs::metadata(path).map_or(0, |file| file.len()));
        bytes.sum::<u64>() / BLOCK as u64
    }
}

/// The calls of two tenants under `scheduler`, the first of priority 7 and the second of 0, while both want more.
fn shares(scheduler: &str, is_known: bool) -> Option<[u64; 2]> {
    let site = site()?;
    let disk = Disk::new(&site, "ext4");
    let daemon = start(&site, scheduler, is_known);
    let lease = watch_lease(&site);
    let both = [("low", "7"), ("high", "0")]
        .map(|(name, priority)| Appender::start(&site, &disk, name, &["--priority", priority]));
    let calls = || both.each_ref().map(Appender::calls);
    wait_until("calls of both", || calls().iter().all(|&calls| calls > 0));
    let before = calls();
    let since = || std::array::from_fn::<u64, 2, _>(|tenant| calls()[tenant] - before[tenant]);
    wait_until("calls enough to tell", || since().iter().sum::<u64>() >= COUNTED);
    let shares = since();
    drop((lease, both));
    let log = daemon.stop();
    assert!(!log.contains("ERROR"), "{log}");
    println!("{scheduler}: priority 7 and 0 had {shares:?} calls");
    Some(shares)
}

/// Shares are 8 to 1 where all goes as it should. Planted break: a disk of which nothing is known is taken for one that
/// moves nothing.
/// Promise: tenants-levels.
#[test]
fn a_higher_priority_has_more_of_the_calls_that_wait_for_fsync() {
    for is_known in [true, false] {
        unless_a_lease_runs_out(|| {
            let Some([low, high]) = shares("afq", is_known) else { return };
            assert!(high >= 2 * low && low > 0, "priority 0 had {high} calls, priority 7 {low}; known: {is_known}");
        });
    }
}

/// A tenant that writes a large file and syncs it; answers with what of it the agent had written in slices, bytes.
fn written_in_slices(site: &Site, why: &mut Why, name: &str) -> u64 {
    let (of, count) = (format!("of=disk/{name}"), format!("count={LARGE_MIB}"));
    let command = ["dd", "if=/dev/zero", &of, "bs=1M", &count, "conv=fsync", "status=none"];
    let mut writer = run(site, &["--name", name], &command).spawn().unwrap();
    let process = writer.id();
    assert!(writer.wait().unwrap().success());
    wait_until("all that it wrote", || {
        why.look();
        why.written(process, "data") >= LARGE_MIB * MIB
    });
    // The name of the agent's thread that starts writeback.
    why.through(process, "writeback")
}

/// Only a tenant with a shorter promise than a file takes is a reason to write the file before its fsync goes on, even
/// if that tenant does nothing.
/// Promise: tenants-levels.
#[test]
fn a_large_fsync_is_written_in_slices_beside_an_account_with_a_short_deadline() {
    for (scheduler, is_known) in
        [("split_deadline", true), ("split_deadline_flusher", true), ("split_deadline_flusher", false)]
    {
        unless_a_lease_runs_out(|| {
            let Some(site) = site() else { return };
            let _disk = Disk::new(&site, "ext4");
            let daemon = start(&site, scheduler, is_known);
            let mut why = Why::start(&site);
            assert_eq!(
                written_in_slices(&site, &mut why, "alone"),
                0,
                "{scheduler}: five seconds were promised to all"
            );
            let sleeper = Tenant::start(run(&site, &["--fsync-deadline", "300ms"], &["sleep", "1000"]));
            wait_until("its session", || accounts(&site).iter().any(|path| path.starts_with("sleep#")));
            let lease = watch_lease(&site);
            let bytes = written_in_slices(&site, &mut why, "beside");
            drop(lease);
            println!("{scheduler}: {bytes} bytes in slices");
            // No slice is longer than a tenth of a second, and less than a quarter of a second's data goes with the
            // fsync.
            assert!(bytes >= LARGE_MIB / 4 * MIB, "{scheduler}: {bytes} bytes in slices");
            drop((why, sleeper));
            let log = daemon.stop();
            assert!(!log.contains("ERROR"), "{log}");
        });
    }
}

/// What a scheduler does not keep is refused, so each promise arrives under one that keeps it; until then one session
/// was promised all seven under `afq`, which kept one. Planted break that was seen red: what is not kept is accepted
/// (the test waits for the command then, until its limit).
/// Promise: schedulers-refused-promise, tenants-levels.
#[test]
fn a_session_is_promised_what_plimsoll_run_was_told_and_its_scheduler_keeps() {
    let limit = json!({ "limit": "3 MB/s" });
    let fsync = json!({ "deadlines": { "read": null, "write": null, "fsync": "35 ms" } });
    for (scheduler, kept, expected) in [
        ("split_token", ["--limit", "3MB/s"], limit),
        ("afq", ["--priority", "2"], json!({ "priority": 2 })),
        ("split_deadline_flusher", ["--fsync-deadline", "35ms"], fsync),
    ] {
        a_session_is_promised(scheduler, kept, &expected);
    }
}

fn a_session_is_promised(scheduler: &str, kept: [&str; 2], expected: &Value) {
    let Some(site) = site() else { return };
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site, scheduler, true);
    let promises = [
        ["--reserve", "20 runs/s"],
        ["--limit", "3MB/s"],
        ["--weight", "300"],
        ["--priority", "2"],
        ["--read-deadline", "15ms"],
        ["--write-deadline", "25ms"],
        ["--fsync-deadline", "35ms"],
    ];
    for broken in promises.iter().filter(|promise| promise[0] != kept[0]) {
        let refused = run(&site, broken, &["sleep", "1000"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        let reason = format!("which {scheduler} does not keep on observed disks, allowed ");
        assert!(said.lines().count() == 1 && said.contains(&reason), "{broken:?}: {said}");
        assert_eq!(refused.status.code(), Some(OWN_FAILURE), "{broken:?}: {said}");
    }
    let _sleeper = Tenant::start(run(&site, &kept, &["sleep", "1000"]));
    let allocation = || {
        let accounts = site.json(&["status"])["devices"][0]["accounts"].clone();
        let is_ours = |account: &&Value| account["path"].as_str().unwrap().starts_with("sleep#");
        let account = accounts.as_array().unwrap().iter().find(is_ours).cloned();
        account.map(|account| account["allocation"].clone())
    };
    wait_until("its session", || allocation().is_some());
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&allocation().unwrap()[key], value, "{scheduler}: {key}");
    }
    daemon.stop();
}
