//! `plimsoll up` with iSCSI targets, as a normal user.

use crate::support::{Site, text};
use std::process::Command;

const TWO_TARGETS: &str = r#"
[iscsi]
listen = ["127.0.0.1:0"]
[device.disk0]
worst_case = "1000 runs/s"
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
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
