//! `plimsoll up` with NBD exports only, as a normal user, and the commands that talk to it.

use crate::support::{Site, text};
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;

const TWO_POOLS: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock", "tcp:127.0.0.1:0"]
[device.disk0]
worst_case = "1000 runs/s"
[pool.web]
device = "disk0"
reserve = "30%"
[pool.mail]
device = "disk0"
reserve = "50%"
[volume.db]
pool = "web"
size = "8MiB"
memory = true
nbd = {}
[volume.spool]
pool = "mail"
size = "8MiB"
memory = true
nbd = { export = "the spool" }
"#;

fn options(export: &str) -> ClientOptions {
    ClientOptions { export_name: export.into(), ..ClientOptions::default() }
}

#[test]
fn exports_are_served_pools_change_and_sigterm_ends_it() {
    let site = Site::of_normal_user(TWO_POOLS);
    let daemon = site.up();
    let served = daemon.served.join("\n");
    assert!(served.contains("device disk0: scheduler zygaria\nvolume db: NBD export \"db\"\n"), "{served}");
    let tcp = daemon.served.iter().find_map(|line| line.strip_prefix("NBD on tcp:")).expect("a line for the port");
    let tcp = Address::Tcp(tcp.parse().unwrap());
    let unix = Address::Unix(site.path("state/nbd.sock"));

    let mut client = Client::connect(&unix, &options("db")).unwrap();
    client.write(4096, &[7; 8192], true).unwrap();
    let mut other = Client::connect(&tcp, &options("db")).unwrap();
    let mut read = [0; 8192];
    other.read(4096, &mut read).unwrap();
    assert_eq!(read, [7; 8192], "both connections see one volume");
    assert!(Client::connect(&unix, &options("spool")).is_err(), "the export has another name than the volume");

    let status = site.json(&["status"]);
    let accounts = status["devices"][0]["accounts"].as_array().unwrap();
    let of = |path: &str| accounts.iter().find(|account| account["path"] == path).unwrap();
    assert_eq!((&of("web/db")["requests"], &of("web")["requests"]), (&2.into(), &2.into()));
    assert_eq!(of("web")["write_latency"]["count"], 1);
    assert_eq!(of("mail")["requests"], 0);
    let volumes = site.json(&["volume", "list"]);
    assert_eq!((&volumes[0]["front_ends"], &volumes[1]["front_ends"]), (&2.into(), &0.into()));
    assert_eq!(volumes[1]["export"], "the spool");
    let table = text(&site.ask(&["status"]).stdout);
    assert!(table.contains("device disk0: scheduler zygaria") && table.contains("web/db/nbd#"), "{table}");

    pools_change(&site);
    client.disconnect().unwrap();
    // `other` stays connected: the daemon ends all the same.
    daemon.stop();
    assert!(!site.path("state/nbd.sock").exists());
    assert!(other.read(0, &mut read).is_err(), "nobody serves any more");
}

fn pools_change(site: &Site) {
    let done = |arguments: &[&str], expected: &str| {
        let output = site.ask(arguments);
        assert_eq!(
            (text(&output.stdout).trim(), output.status.code()),
            (expected, Some(0)),
            "{}",
            text(&output.stderr)
        );
    };
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let output = site.ask(arguments);
        assert_eq!((text(&output.stderr).trim(), output.status.code()), (expected, Some(code)));
    };
    done(&["pool", "set", "web", "--reserve", "45%", "--limit", "500 runs/s", "--weight", "7"], "pool web changed");
    refused(
        &["pool", "set", "web", "--reserve", "60%"],
        2,
        "web: limit 500 runs/s is less than reserve 60%, allowed is at least as much",
    );
    refused(
        &["pool", "set", "web", "--reserve", "60%", "--limit", "none"],
        1,
        "web: a reserve of 600 runs/s does not fit: disk0 has 1000 runs/s, 500 are promised to others, 100 too many",
    );
    let mut stream = UnixStream::connect(site.path("state/control.sock")).unwrap();
    let request = r#"{"command":"pool_set","pool":"web","change":{"reserve":"60%","limit":"none"}}"#;
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["error"]["kind"], "refused");
    assert_eq!(answer["error"]["excess_runs_per_second"], 100.0);
    // This command takes no priority under any scheduler, and sessions have none under zygaria, the default.
    refused(
        &["pool", "set", "web/db", "--priority", "idle"],
        2,
        "web/db: got a priority or a deadline, which are each session's own, allowed in the configuration, with plimsoll run and with \
         plimsoll session open; there, too, not under this scheduler: web/db: got priority idle, which zygaria does not keep on \
         volumes, allowed with the scheduler cfq",
    );
    done(&["pool", "add", "web/batch", "--reserve", "5%"], "pool web/batch added on disk0");
    refused(&["pool", "add", "web/batch"], 1, "there is a pool \"web/batch\" already");
    refused(
        &["pool", "add", "nowhere/batch"],
        2,
        "there is no pool \"nowhere\"; plimsoll pool list shows what there is",
    );
    refused(&["pool", "remove", "web"], 1, "web: a pool with members cannot be closed");
    refused(&["pool", "set", "web"], 2, "got nothing to change, allowed --reserve, --limit and --weight");
    let pools = site.json(&["pool", "list"]);
    let web = &pools.as_array().unwrap().iter().find(|pool| pool["path"] == "web").unwrap()["allocation"];
    assert_eq!((&web["reserve"], &web["limit"], &web["weight"]), (&"45%".into(), &"500 runs/s".into(), &7.into()));
    assert_eq!(pools.as_array().unwrap().len(), 5);
    done(&["pool", "remove", "web/batch"], "pool web/batch removed");
    assert_eq!(site.json(&["pool", "list"]).as_array().unwrap().len(), 4);
}

#[test]
fn hostile_clients_of_the_control_socket_are_answered_and_sent_away() {
    let site = Site::of_normal_user(TWO_POOLS);
    let daemon = site.up();
    let path = site.path("state/control.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "for its owner only");
    let converse = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        // The daemon may close before it has heard everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    for hostile in
        [&b"\xff\xfe\n"[..], b"{\"command\":\"dance\"}\n{\"command\":\"status\"}\n", b"GET / HTTP/1.1\r\n\r\n", b"\0"]
    {
        let answer = converse(hostile);
        assert_eq!(answer.lines().count(), 1, "one answer, then the end: {answer}");
        assert!(answer.starts_with("{\"error\":{\"kind\":\"bad_request\",\"message\":"), "{answer}");
    }
    let long = converse(&[b'x'; 20_000]);
    assert!(long.is_empty() || long.contains("a line longer than 16384 bytes"), "{long}");
    let two = converse(b"{\"command\":\"pool_list\"}\n{\"command\":\"volume_list\"}");
    let kinds: Vec<&str> = two.lines().map(|line| line.split('"').nth(1).unwrap()).collect();
    assert_eq!(kinds, ["pools", "volumes"], "a line without an end counts at the end");

    let mut crowd: Vec<UnixStream> = Vec::new();
    let busy = loop {
        assert!(crowd.len() <= 16, "16 clients at once");
        let mut stream = UnixStream::connect(&path).unwrap();
        // Turned away before it could ask, or answered.
        let _ = stream.write_all(b"{\"command\":\"volume_list\"}\n");
        let mut answer = String::new();
        let _ = BufReader::new(&stream).read_line(&mut answer);
        if !answer.contains("\"volumes\"") {
            break answer;
        }
        crowd.push(stream);
    };
    assert!(busy.is_empty() || busy.contains("\"busy\""), "{busy}");
    crowd[0].write_all(b"half a line").unwrap();
    daemon.stop();
}

#[test]
fn a_client_can_end_it() {
    let site = Site::of_normal_user(TWO_POOLS);
    let daemon = site.up();
    let mut stream = UnixStream::connect(site.path("state/control.sock")).unwrap();
    stream.write_all(b"{\"command\":\"shutdown\"}\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "{\"done\":\"shutting down\"}\n");
    let (status, log) = daemon.wait();
    assert!(status.success(), "{log}");
    let output = site.ask(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("no daemon answers at state/control.sock"), "{}", text(&output.stderr));
}

#[test]
fn there_is_one_daemon_for_a_state_directory() {
    let site = Site::of_normal_user(TWO_POOLS);
    let daemon = site.up();
    let output = site.up_fails();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("belongs to a daemon that is running"), "{}", text(&output.stderr));
    site.json(&["status"]);
    daemon.stop();
}

#[test]
fn a_successor_of_a_killed_daemon_serves_on_the_same_sockets() {
    let site = Site::of_normal_user(&TWO_POOLS.replace("memory = true\nnbd = {}", "file = \"db.img\"\nnbd = {}"));
    let file = std::fs::File::create(site.path("db.img")).unwrap();
    file.set_len(8 << 20).unwrap();
    std::fs::set_permissions(site.path("db.img"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let unix = Address::Unix(site.path("state/nbd.sock"));
    let daemon = site.up();
    let mut client = Client::connect(&unix, &options("db")).unwrap();
    client.write(0, &[9; 4096], true).unwrap();
    daemon.signal(Signal::KILL);
    daemon.wait();
    let daemon = site.up();
    let mut read = [0; 4096];
    Client::connect(&unix, &options("db")).unwrap().read(0, &mut read).unwrap();
    assert_eq!(read, [9; 4096], "what was acknowledged as durable is there");
    daemon.stop();
}

/// Promise: volume-refused.
#[test]
fn a_volume_that_cannot_be_opened_is_named_with_its_line_and_nothing_is_left() {
    let site = Site::of_normal_user(
        &TWO_POOLS.replace("memory = true\n", "file = \"missing.img\"\n").replacen("missing", "other", 1),
    );
    let output = site.up_fails();
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    let lines: Vec<&str> = errors.lines().filter(|line| line.starts_with("plimsoll.toml:")).collect();
    assert_eq!(lines.len(), 2, "both are reported: {errors}");
    for (line, at) in lines.iter().zip(["17: volume.db.file: ", "22: volume.spool.file: "]) {
        assert!(line.starts_with(&format!("plimsoll.toml:{at}")) && line.contains("does not exist"), "{errors}");
    }
    // What is there is judged with the configuration.
    std::fs::write(site.path("other.img"), [0; 4096]).unwrap();
    std::fs::set_permissions(site.path("other.img"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let output = site.up_fails();
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("volume.db.size: got 8 MiB, and ") && errors.contains("has 4 KiB"), "{errors}");
    assert!(!site.path("state/control.sock").exists() && !site.path("state/nbd.sock").exists());
}

#[test]
fn mounts_are_refused_to_a_normal_user_before_anything_is_touched() {
    let mount = "mount = { path = \"/mnt/never\", filesystem = \"ext4\", format = \"if-empty\" }";
    let site = Site::of_normal_user(&TWO_POOLS.replacen("nbd = {}", mount, 1));
    let output = site.up_fails();
    assert_eq!(output.status.code(), Some(3));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("not run: plimsoll.toml:18: volume.db.mount: mounting takes root, and this is user "),
        "{errors}"
    );
    assert!(!site.path("state").exists());
}

/// Each connection is an open file of the daemon.
///
/// Broken on purpose and seen red: the daemon keeps to the limit of the shell that started it.
#[test]
fn connections_are_not_limited_by_the_open_files_of_a_shell() {
    const CONNECTIONS: usize = 300;
    let site = Site::new(TWO_POOLS);
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=256:").arg(site.command(&[]).get_program()).args(["up", "plimsoll.toml"]);
    limited.current_dir(site.folder.path());
    let _daemon = site.start_command(limited);
    let address = Address::Unix(site.path("state/nbd.sock"));
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| Client::connect(&address, &options("db")).unwrap()).collect();
    assert_eq!(clients.len(), CONNECTIONS);
}
