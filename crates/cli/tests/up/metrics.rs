//! Each field that a daemon says has its row in the table of metrics, and each command's table shows them.

use crate::support::{Daemon, Site, text};
use crate::tenants::{accounts, run, wait_until};
use plimsoll_cli::metrics::coverage::without_row;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use serde_json::Value;

/// A daemon with all that it can have without root: an emulated device, a cache with a bounded pool, a compressed
/// volume with its service threads, a volume that is read ahead, an iSCSI target.
const CONFIGURATION: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[iscsi]
listen = ["tcp:127.0.0.1:0"]
[executor]
threads = 1
[device.disk0]
emulate = "ssd.x25-m"
[pool.web]
device = "disk0"
weight = 7
[cache.fast]
file = "fast.img"
size = "4MiB"
pools = { web = "50%" }
[volume.cached]
pool = "web"
size = "16MiB"
file = "slow.img"
cache = "fast"
nbd = {}
[volume.packed]
pool = "web"
size = "16MiB"
memory = true
compression = "zstd"
nbd = {}
[volume.ahead]
pool = "web"
size = "16MiB"
file = "ahead.img"
read_ahead = "512KiB"
nbd = {}
[volume.target]
pool = "web"
size = "16MiB"
memory = true
iscsi = {}
"#;

/// Planted breaks: a queue's `waited_ns_max` is in the status and has no row; the answer has a field past the rows.
/// Both red.
#[test]
fn each_field_of_a_daemons_answers_has_a_row() {
    let site = Site::new(CONFIGURATION);
    for file in ["slow.img", "ahead.img"] {
        std::fs::write(site.path(file), vec![7; 16 << 20]).unwrap();
    }
    let made = site.command(&["cache", "make", "plimsoll.toml", "fast"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let daemon = site.up();
    for volume in ["cached", "packed", "ahead"] {
        let options = ClientOptions { export_name: volume.into(), ..ClientOptions::default() };
        let mut client = Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).unwrap();
        client.write(0, &vec![3; 1 << 20], true).unwrap();
        client.read(0, &mut vec![0; 1 << 20]).unwrap();
        client.disconnect().unwrap();
    }
    let answers = answers(&site);
    assert_eq!(without_row(&answers), Vec::<String>::new(), "{answers}");
    let device = &answers["status"]["devices"][0];
    let volumes: Vec<&Value> = device["volumes"].as_array().unwrap().iter().collect();
    // What is not there tells nothing of its fields.
    for there in [
        &device["emulation"],
        &device["accounts"][1],
        &volumes[0]["cache"]["classes"][0],
        &volumes[0]["cache"]["pools"][0],
        &volumes[1]["stored_bytes"],
        &volumes[2]["read_ahead"],
        &answers["status"]["executor"]["threads"][0],
        &answers["status"]["executor"]["queues"][0],
        &answers["caches"][0],
        &answers["pools"][0],
        &answers["volumes"][0],
    ] {
        assert!(!there.is_null(), "{answers}");
    }
    shows(&site, &["status"], &["account", "runs/s", "at device", "flush p99", "web/packed"]);
    shows(&site, &["volume", "list"], &["served as", "users", "NBD export \"cached\""]);
    shows(&site, &["cache", "status"], &["syncer", "past it", "of it", "hits", "at most", "fast"]);
    shows(&site, &["pool", "list"], &["priority", "web/ahead"]);
    stop(daemon);
}

/// Planted breaks: the rows of tenants lack `processes`, while serde made answers; a tenant has a field past the rows.
/// Both red.
#[test]
fn each_field_of_tenants_has_a_row() {
    let Some(site) = crate::tenants::site() else { return };
    let Some(daemon) = crate::tenants::up(&site) else { return };
    let mut sleeping = run(&site, &[], &["sleep", "1000"]).spawn().unwrap();
    wait_until("its session", || accounts(&site).iter().any(|path| path.starts_with("web/db/sleep#")));
    let answers = answers(&site);
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    stop(daemon);
    assert_eq!(without_row(&answers), Vec::<String>::new(), "{answers}");
    assert!(!answers["tenants"][0]["processes"][0].is_null(), "{answers}");
}

/// All that a daemon says about itself, by the kind of the answer.
fn answers(site: &Site) -> Value {
    let commands = ["status", "pool_list", "volume_list", "cache_list", "tenants"];
    let answers = commands.map(|command| site.request(&format!(r#"{{"command":"{command}"}}"#)));
    Value::Object(answers.iter().flat_map(|answer| answer.as_object().unwrap().clone()).collect())
}

fn shows(site: &Site, command: &[&str], words: &[&str]) {
    let shown = text(&site.ask(command).stdout);
    let missing: Vec<_> = words.iter().filter(|word| !shown.contains(**word)).collect();
    assert!(missing.is_empty(), "{command:?}: {missing:?} are not in\n{shown}");
}

fn stop(daemon: Daemon<'_>) {
    let log = daemon.stop();
    assert!(!log.contains("ERROR"), "{log}");
}
