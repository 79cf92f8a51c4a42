//! An engine that fails while the daemon serves: the daemon ends, and says why, instead of answering errors for ever.
//!
//! The engine is told to panic by `PLIMSOLL_TEST_PANIC`, which only a daemon that was built for debugging knows.

use crate::support::{Site, why_no_mounts};
use crate::versions::BLOCK_BYTES;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};

const CONFIGURATION: &str = r#"
[device.bad]
[device.good]
[pool.bad]
device = "bad"
[pool.good]
device = "good"
[cache.fast]
file = "fast.img"
size = "4MiB"
[volume.bad]
pool = "bad"
size = "1MiB"
memory = true
nbd = {}
[volume.good]
pool = "good"
size = "16MiB"
file = "slow.img"
cache = "fast"
nbd = {}
"#;
const ENGINE_FAILED: i32 = 4;

fn connect(site: &Site, export: &str) -> Client {
    let address = Address::Unix(site.path("state/nbd.sock"));
    Client::connect(&address, &ClientOptions { export_name: export.into(), ..ClientOptions::default() }).unwrap()
}

/// Says why such a daemon cannot be told to fail.
fn cannot() -> bool {
    if !cfg!(debug_assertions) {
        eprintln!("not run: only a daemon that was built for debugging can be told to fail");
    }
    !cfg!(debug_assertions)
}

/// Outcome: exit code 4, so that systemd starts it again; the log and the last line say which engine and why; the other
/// device's cache was closed in order, and what was flushed is there.
/// Promise: daemon-failed-engine.
#[test]
fn a_daemon_whose_engine_panics_ends_with_a_code_of_its_own_and_closes_the_others_in_order() {
    if cannot() {
        return;
    }
    let site = Site::new(CONFIGURATION);
    std::fs::File::create(site.path("slow.img")).unwrap().set_len(16 << 20).unwrap();
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap();
    assert!(made.status.success());
    let mut command = site.command(&["up", "plimsoll.toml"]);
    command.env("PLIMSOLL_TEST_PANIC", "bad");
    let mut daemon = site.start_command(command);
    let mut good = connect(&site, "good");
    good.write(0, &[7; BLOCK_BYTES], true).unwrap();
    assert!(connect(&site, "bad").write(0, &[7; BLOCK_BYTES], true).is_err());
    assert!(daemon.ends_by_itself());
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(ENGINE_FAILED), "{log}");
    let line = "device bad: its engine has failed: its thread has panicked: on purpose";
    assert!(log.contains(line) && log.trim().ends_with(line), "{log}");
    assert!(!site.path("state/control.sock").exists());
    let daemon = site.up();
    let found = daemon.served.iter().find(|line| line.contains("cache fast")).unwrap();
    assert!(!found.contains("recovered") && found.contains("4 KiB found in it"), "it was closed in order: {found}");
    let mut read = [0; BLOCK_BYTES];
    connect(&site, "good").read(0, &mut read).unwrap();
    assert!(read == [7; BLOCK_BYTES]);
    daemon.stop();
}

/// The kernel waits for the failed engine: writes to a block device. Outcome: the daemon ends all the same, and nothing
/// is left attached.
/// Promise: daemon-failed-engine.
#[test]
fn a_daemon_whose_engine_panics_below_a_block_device_ends_too() {
    if let Some(why) = why_no_mounts() {
        return eprintln!("not run: {why}");
    }
    if cannot() {
        return;
    }
    let configuration = "[device.bad]\n[pool.bad]\ndevice = \"bad\"\n[volume.bad]\npool = \"bad\"\nsize = \"1MiB\"\nmemory = true\nmount = { filesystem = \"none\" }\n";
    let site = Site::new(configuration);
    let mut command = site.command(&["up", "plimsoll.toml"]);
    command.env("PLIMSOLL_TEST_PANIC", "bad");
    let mut daemon = site.start_command(command);
    let line = daemon.served.iter().find(|line| line.contains("block device")).expect("it is served").clone();
    let device = line.rsplit(' ').next().unwrap().to_owned();
    let written = std::process::Command::new("dd")
        .args(["if=/dev/zero", &format!("of={device}"), "bs=4096", "count=1", "oflag=direct"])
        .output()
        .unwrap();
    assert!(!written.status.success());
    assert!(daemon.ends_by_itself());
    let (status, log) = daemon.wait();
    assert_eq!(status.code(), Some(ENGINE_FAILED), "{log}");
    assert_eq!(crate::support::mounts_below(site.folder.path()), Vec::<String>::new());
}
