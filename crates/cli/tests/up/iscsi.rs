//! `plimsoll up` with iSCSI targets, as a normal user.

use crate::support::{Daemon, Site, text};
use plimsoll_testkit::iscsi::initiator::Initiator;
use std::process::Command;

const TWO_TARGETS: &str = r#"
[iscsi]
listen = ["127.0.0.1:0", "tcp:[::1]:0"]
[device.disk0]
worst_case = "1000 runs/s"
[pool.web]
device = "disk0"
reserve = "30%"
[volume.db]
pool = "web"
reserve = "20%"
size = "8MiB"
memory = true
iscsi = {}
[volume.kept]
pool = "web"
size = "8MiB"
memory = true
iscsi = { name = "iqn.2026-01.org.example:kept", chap = { user = "alice", secret = "correct-horse-battery" } }
"#;

/// Whether a program is there; says so if not.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !is_there {
        println!("not run: {program} is not installed");
    }
    is_there
}

#[test]
fn targets_are_served_and_a_session_is_an_account_of_its_volume() {
    let site = Site::of_normal_user(TWO_TARGETS);
    let daemon = site.up();
    let served = daemon.served.join("\n");
    assert!(served.contains("volume db: iSCSI target iqn.2026-01.local.plimsoll:db\n"), "{served}");
    let portal = daemon.served.iter().find_map(|line| line.strip_prefix("iSCSI on tcp:")).expect("a line for the port");
    if is_installed("iscsi-ls") {
        let listed = Command::new("iscsi-ls").arg(format!("iscsi://{portal}")).output().unwrap();
        let listed = text(&listed.stdout);
        assert!(listed.contains(":db") && listed.contains(":kept"), "{listed}");
    }
    if is_installed("iscsi-inq") {
        let inquire = |who: &str, name: &str| {
            let url = format!("iscsi://{who}{portal}/{name}/0");
            Command::new("iscsi-inq").arg(url).output().unwrap().status.success()
        };
        assert!(inquire("", "iqn.2026-01.local.plimsoll:db"));
        assert!(inquire("alice%correct-horse-battery@", "iqn.2026-01.org.example:kept"));
        assert!(!inquire("", "iqn.2026-01.org.example:kept"));
    }
    daemon.stop();
}

/// What `iscsi-inq` prints of a target, if it lets in.
fn inquiry(portal: &str, target: &str) -> Option<String> {
    let output = Command::new("iscsi-inq").arg(format!("iscsi://{portal}/{target}/0")).output().unwrap();
    output.status.success().then(|| text(&output.stdout))
}

/// Planted break that was seen red: what serves a volume is an export or a block device.
/// Promise: iscsi-shown.
#[test]
fn a_volume_that_is_only_a_target_is_shown_as_one() {
    let site = Site::of_normal_user(TWO_TARGETS);
    let daemon = site.up();
    let served = "iSCSI target iqn.2026-01.local.plimsoll:db";
    for command in [&["volume", "list"][..], &["status"]] {
        let printed = text(&site.ask(command).stdout);
        assert!(printed.lines().any(|line| line.contains("db") && line.contains(served)), "{printed}");
    }
    let target = "iqn.2026-01.org.example:kept";
    assert_eq!(site.json(&["volume", "list"])[1]["target"], target);
    assert_eq!(site.json(&["status"])["volumes"][1]["target"], target);
    // As it is written in the configuration.
    for line in daemon.served.iter().filter_map(|line| line.strip_prefix("iSCSI on ")) {
        let address: plimsoll_serve::nbd::Address = line.parse().unwrap();
        assert!(line.starts_with("tcp:") && address.to_string() == line, "{line}");
    }
    daemon.stop();
}

/// Planted break that was seen red: the session's target is in the list.
/// Promise: iscsi-session.
#[test]
fn an_application_opens_a_session_of_a_target_and_closes_it() {
    let site = Site::of_normal_user(TWO_TARGETS);
    let daemon = site.up();
    let opened = site.json(&["session", "open", "db", "Big_loader", "--reserve", "150 runs/s"]);
    let target = "iqn.2026-01.local.plimsoll:db:big-loader.1";
    assert_eq!((&opened["path"], &opened["target"]), (&"web/db/Big_loader#1".into(), &target.into()));
    assert!(opened.get("export").is_none());
    let portal = daemon.served.iter().find_map(|line| line.strip_prefix("iSCSI on tcp:")).expect("a line for the port");
    if is_installed("iscsi-inq") && is_installed("iscsi-ls") {
        assert!(
            inquiry(portal, target)
                .is_some_and(|printed| printed == inquiry(portal, "iqn.2026-01.local.plimsoll:db").unwrap())
        );
        let listed = Command::new("iscsi-ls").arg(format!("iscsi://{portal}")).output().unwrap();
        assert!(!text(&listed.stdout).contains("loader"), "nobody is told");
    }
    let status = site.json(&["status"]);
    let accounts = status["devices"][0]["accounts"].as_array().unwrap();
    let session = accounts.iter().find(|account| account["path"] == "web/db/Big_loader#1").expect("it is an account");
    assert_eq!(session["allocation"]["reserve"], "150 runs/s");
    let printed = text(&site.ask(&["session", "open", "db", "second"]).stdout);
    assert_eq!(printed.trim(), "iqn.2026-01.local.plimsoll:db:second.2");
    let environment = "echo $PLIMSOLL_TARGET $PLIMSOLL_SESSION";
    let held = ["session", "open", "db", "held", "--socket", "state/control.sock", "--", "sh", "-c", environment];
    let run = site.command(&held).output().unwrap();
    assert_eq!(text(&run.stdout).trim(), "iqn.2026-01.local.plimsoll:db:held.3 web/db/held#3");
    let closed = site.ask(&["session", "close", "web/db/Big_loader#1"]);
    assert!(closed.status.success(), "{}", text(&closed.stderr));
    if is_installed("iscsi-inq") {
        assert_eq!(inquiry(portal, target), None, "it is closed");
    }
    daemon.stop();
}

const CACHED_TARGET: &str = r#"
[iscsi]
listen = ["127.0.0.1:0"]
[device.disk0]
worst_case = "1000 runs/s"
[cache.fast]
file = "fast.img"
size = "4MiB"
semantics = "write-cache"
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
size = "16MiB"
file = "slow.img"
cache = "fast"
iscsi = {}
"#;
/// Bytes of a block, and a command of 16 bytes on the first one.
const BLOCK_BYTES: u32 = 512;

fn cdb_16(code: u8, flags: u8) -> [u8; 16] {
    [code, flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
}

fn log_in(daemon: &Daemon<'_>) -> Initiator {
    let portal = daemon.served.iter().find_map(|line| line.strip_prefix("iSCSI on tcp:")).expect("a line for the port");
    Initiator::log_in_at(portal, "iqn.2026-01.local.plimsoll:db", 1, &[])
}

/// The daemon is killed as soon as the last command of each row has its answer. Before the mend each of them lost the
/// block.
///
/// Planted break: WRITE AND VERIFY is written as a WRITE, nothing is flushed behind a VERIFY or a READ with FUA, and a
/// stop is answered at once. Six of the seven rows were red; the first one's block went past the cache.
/// Promise: iscsi-medium.
#[test]
fn what_was_read_from_or_verified_on_the_medium_survives_a_kill() {
    const WRITE: (u8, u8) = (0x8a, 0);
    const MISCOMPARE: u8 = 2;
    let site = Site::of_normal_user(CACHED_TARGET);
    let slow = std::fs::File::create(site.path("slow.img")).unwrap();
    slow.set_len(16 << 20).unwrap();
    std::fs::set_permissions(site.path("slow.img"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    // Code and flags of each; what is sent is the block, but to a VERIFY that finds a difference.
    let rows: [(&str, &[(u8, u8)]); 7] = [
        ("WRITE AND VERIFY, BYTCHK 0", &[(0x8e, 0)]),
        ("WRITE AND VERIFY, BYTCHK 1", &[(0x8e, 2)]),
        ("VERIFY, BYTCHK 0", &[WRITE, (0x8f, 0)]),
        ("VERIFY, BYTCHK 1", &[WRITE, (0x8f, 2)]),
        ("VERIFY of something else", &[WRITE, (0x8f, 2)]),
        ("READ with FUA", &[WRITE, (0x88, 8)]),
        ("stop", &[WRITE, (0x1b, 0)]),
    ];
    let (mut daemon, mut lost) = (site.up(), Vec::new());
    for (number, (name, commands)) in (1..).zip(rows) {
        let mut initiator = log_in(&daemon);
        let block = vec![number; BLOCK_BYTES as usize];
        for &(code, flags) in commands {
            let differs = code == 0x8f && name.ends_with("else");
            let (sent, read, expected) = match (code, flags) {
                (0x88, _) => (vec![], block.clone(), 0),
                (0x1b, _) | (0x8f, 0) => (vec![], vec![], 0),
                _ if differs => (vec![0; BLOCK_BYTES as usize], vec![], MISCOMPARE),
                _ => (block.clone(), vec![], 0),
            };
            let cdb = if code == 0x1b { [&[0x1b][..], &[0; 15]].concat() } else { cdb_16(code, flags).to_vec() };
            let (status, answer) = initiator.command(&cdb, read.len() as u32, &sent);
            assert_eq!(status, expected, "{name}");
            assert!(differs || answer == read, "{name}");
        }
        daemon.signal(rustix::process::Signal::KILL);
        daemon.wait();
        daemon = site.up();
        if log_in(&daemon).command(&cdb_16(0x88, 0), BLOCK_BYTES, &[]) != (0, block) {
            lost.push(name);
        }
    }
    daemon.stop();
    assert!(lost.is_empty(), "lost by a kill: {lost:?}");
}
