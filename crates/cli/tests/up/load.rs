//! `plimsoll load` beside a daemon, and what it refuses.

use crate::support::{Site, text};
use serde_json::Value;

const VOLUMES: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[device.disk0]
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
size = "1GiB"
memory = true
nbd = {}
[volume.old]
pool = "web"
size = "8MiB"
memory = true
read_only = true
nbd = {}
"#;

#[test]
fn a_volume_is_loaded_as_spc1_does() {
    let site = Site::new(VOLUMES);
    let daemon = site.up();
    let target = format!("nbd+unix:///db?socket={}", site.path("state/nbd.sock").display());
    let load = ["load", &target, "--mix", "spc1-like", "--rate", "300,100", "--seconds", "1", "--warm-up", "0"];
    let output =
        site.command(&[&load[..], &["--destructive", "--json", "--out", "load.svg"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["mix"], &report["size_bytes"]), (&"spc1-like".into(), &(1u64 << 30).into()));
    for (row, expected) in [(0, 100u64), (1, 300)] {
        let row = &report["rows"][row];
        assert_eq!((&row["offered_per_second"], &row["unfinished"]), (&(expected as f64).into(), &0.into()));
        let requests = row["requests"].as_u64().unwrap();
        assert!(requests.abs_diff(expected) < 10 + expected / 3, "{requests}");
        assert!(row["reads"]["requests"].as_u64().unwrap() > 0 && row["mean_seconds"].as_f64().unwrap() > 0.0);
    }
    assert!(std::fs::read_to_string(site.path("load.svg")).unwrap().contains("spc1-like"));
    let table = site.command(&["load", &target, "--rate", "50", "--seconds", "1", "--no-progress"]).output().unwrap();
    let table = text(&table.stdout);
    assert!(table.starts_with("offered/s  answered/s") && table.contains("read random 4KiB: "), "{table}");
    daemon.stop();
}

#[test]
fn a_picture_where_this_user_may_not_write_is_refused_at_once() {
    let site = Site::of_normal_user(VOLUMES);
    for out in ["/load.svg", "/etc/passwd"] {
        let output = site.command(&["load", "missing", "--out", out]).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert_eq!(message, format!("--out {out}: Permission denied (os error 13)\n"));
    }
}

/// Promise: lab-load-writes.
#[test]
fn what_cannot_be_loaded_is_one_line_and_2() {
    let site = Site::new(VOLUMES);
    let daemon = site.up();
    let export = |name: &str| format!("nbd+unix:///{name}?socket={}", site.path("state/nbd.sock").display());
    let (db, old, none) = (export("db"), export("old"), export("none"));
    std::fs::write(site.path("small"), [1; 4096]).unwrap();
    let write = "write random 4KiB";
    for (target, arguments, expected) in [
        (&*db, &["--mix", write][..], "got the mix \"write random 4KiB\", which writes, allowed with --destructive"),
        (&db, &["--mix", "read random 4097B"], "got requests of 4097 bytes, allowed multiples of 512 up to"),
        (&old, &["--mix", write, "--destructive"], "got writes, allowed reads: the export is read-only"),
        (&old, &["--mix", "spc1-like", "--destructive"], "got writes, allowed reads: the export is read-only"),
        (&none, &[], "none"),
        ("nbd+unix:///db?socket=/nobody/is/there", &[], "connecting: No such file or directory"),
        ("small", &[], "small: got 4096 bytes, allowed at least 16 MiB"),
        ("missing", &[], "missing: cannot look at it: No such file or directory"),
        (".", &[], ".: got a directory, allowed a file or a disk"),
    ] {
        let output = site.command(&[&["load", target], arguments].concat()).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{target} {arguments:?}: {message}");
        assert!(message.contains(expected) && message.lines().count() == 1, "{target} {arguments:?}: {message}");
    }
    for (arguments, expected) in [
        (&[&*db, "--rate", "0"][..], "requests a second from 0.1 to 1000000"),
        (&[&db, "--mix", "append 4KiB"], "allowed spc1-like, or read, write or mix"),
        (&[&db, "--latency-max", "0ms"], "allowed are times above 0"),
        (&["nbd:x://y"], "allowed nbd://HOST:PORT/EXPORT and nbd+unix:///EXPORT?socket=/PATH"),
        (&["unix:relative"], "an absolute path"),
    ] {
        let output = site.command(&[&["load"], arguments].concat()).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    daemon.stop();
}
