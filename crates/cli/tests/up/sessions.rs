//! Sessions that applications open over the control socket, for their NBD connections.
//!
//! Planted breaks that were seen red: sessions count where a client names no export; what is closed stays exported;
//! connections open in the volume's account; with a session that is tied all clients of the volume are cut off; a
//! command does not keep the connection; a volume without an export is a failure like any.

use crate::support::{Site, text, why_no_mounts};
use crate::tenants::wait_until;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;

const ONE_VOLUME: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[device.disk0]
worst_case = "1000 runs/s"
[pool.web]
device = "disk0"
reserve = "30%"
[volume.db]
pool = "web"
size = "8MiB"
memory = true
reserve = "20%"
nbd = {}
"#;

fn connect(site: &Site, export: &str) -> Option<Client> {
    let options = ClientOptions { export_name: export.into(), ..ClientOptions::default() };
    Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).ok()
}

fn asked(site: &Site, arguments: &[&str]) -> (String, Option<i32>) {
    let output = site.ask(arguments);
    (text(&output.stdout).trim().to_owned() + text(&output.stderr).trim(), output.status.code())
}

/// Path and reserve of each account below the volume's.
fn sessions(site: &Site) -> Vec<(String, String)> {
    let status = site.json(&["status"]);
    let accounts = status["devices"][0]["accounts"].as_array().unwrap().iter();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of = accounts.map(|account| (text(&account["path"]), text(&account["allocation"]["reserve"])));
    of.filter(|(path, _)| path.starts_with("web/db/")).collect()
}

/// Promise: accounts-session, daemon-session-close-name.
#[test]
fn an_application_opens_a_session_connects_to_it_and_closes_it() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    let opened = site.json(&["session", "open", "db", "loader", "--reserve", "150 runs/s", "--weight", "7"]);
    assert_eq!((&opened["path"], &opened["export"]), (&"web/db/loader#1".into(), &"db/loader#1".into()));
    assert_eq!(
        asked(&site, &["session", "open", "db", "second", "--reserve", "100 runs/s"]),
        (
            "web/db/second#2: a reserve of 100 runs/s does not fit: web/db has 200 runs/s, 150 are promised to others, \
             50 too many"
                .into(),
            Some(1)
        )
    );

    let mut client = connect(&site, "db/loader#1").expect("a client that knows the name may connect");
    client.write(4096, &[7; 4096], false).unwrap();
    let mut other = connect(&site, "").expect("a client that names none gets the volume");
    let mut read = [0; 4096];
    other.read(4096, &mut read).unwrap();
    assert_eq!(read, [7; 4096], "a session is a way to the volume");
    let named = |path: &str, reserve: &str| (path.to_owned(), reserve.to_owned());
    let reserve = "150 runs/s";
    let expected = [
        named("web/db/loader#1", reserve),
        named("web/db/loader#1/nbd#1", "0 runs/s"),
        named("web/db/nbd#2", "0 runs/s"),
    ];
    assert_eq!(sessions(&site), expected);

    let busy = "web/db/loader#1: clients are connected to it: try again when they have gone";
    assert_eq!(asked(&site, &["session", "close", "web/db/loader#1"]), (busy.into(), Some(1)));
    let of_session = "web/db/loader#1 is a session's: plimsoll session close";
    assert_eq!(asked(&site, &["pool", "remove", "web/db/loader#1"]), (of_session.into(), Some(1)));
    client.disconnect().unwrap();
    other.disconnect().unwrap();
    wait_until("the end of the connections", || sessions(&site).len() == 1);
    let closed = ("session web/db/loader#1 closed".into(), Some(0));
    // By the name that session open prints; the path does it, too (below).
    assert_eq!(asked(&site, &["session", "close", "db/loader#1"]), closed);
    assert!(connect(&site, "db/loader#1").is_none() && sessions(&site).is_empty());
    assert_eq!(asked(&site, &["session", "open", "db", "second", "--reserve", "100 runs/s"]).0, "db/second#3");
    daemon.stop();
}

/// Promise: accounts-session.
#[test]
fn what_cannot_have_a_session_is_told() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    for (arguments, expected, code) in [
        (&["open", "nothing", "a"][..], "there is no volume \"nothing\"; plimsoll volume list shows what there is", 2),
        (&["close", "web/db"], "there is no session \"web/db\" that session_open has opened", 2),
    ] {
        let arguments: Vec<&str> = ["session"].into_iter().chain(arguments.iter().copied()).collect();
        assert_eq!(asked(&site, &arguments), (expected.into(), Some(code)));
    }
    let (message, code) = asked(&site, &["session", "open", "db", "a/b"]);
    assert!(message.starts_with("got the name \"a/b\", allowed ") && code == Some(2), "{message}");
    daemon.stop();
}

/// Names stand in tables. Longer ones than a request may be are refused as such, and not as a request that is too long.
///
/// Broken on purpose and seen red: any name of a tenant is taken; only the daemon looks at names.
/// Promise: accounts-session.
#[test]
fn a_name_that_does_not_fit_a_table_is_refused_in_a_line() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    let allowed = "allowed 1 to 64 letters, digits, \"-\", \"_\" and \".\", not starting with \".\"";
    for (name, shown) in [
        ("a".repeat(64 << 10), format!("\"{}\"...", "a".repeat(80))),
        ("a".repeat(65), format!("\"{}\"", "a".repeat(65))),
        ("two\nlines\x1b[2J".to_owned(), r#""two\nlines\u{1b}[2J""#.to_owned()),
        (String::new(), "\"\"".to_owned()),
    ] {
        let expected = (format!("got the name {shown}, {allowed}"), Some(2));
        assert_eq!(asked(&site, &["session", "open", "db", &name]), expected);
        let arguments = ["run", "--socket", "state/control.sock", "--name", &name, "--", "true"];
        let output = site.command(&arguments).output().unwrap();
        // As other wrappers end: 2 may be the command's own.
        assert_eq!((text(&output.stderr).trim().to_owned(), output.status.code()), (expected.0, Some(125)));
    }
    // A client that speaks to the daemon itself is told, too.
    let stream = UnixStream::connect(site.path("state/control.sock")).unwrap();
    for request in [
        r#"{"command":"join","name":"two\nlines","process":1}"#,
        r#"{"command":"session_open","volume":"db","name":"two\nlines"}"#,
    ] {
        let error = say(&stream, request)["error"].clone();
        assert_eq!(
            (&error["kind"], &error["message"]),
            (&"invalid".into(), &format!("got the name {:?}, {allowed}", "two\nlines").into())
        );
    }
    let (message, code) = asked(&site, &["session", "close", &"a".repeat(64 << 10)]);
    assert!(message.starts_with("got a request of 655") && message.ends_with(", allowed are 16384"), "{message}");
    assert_eq!((code, sessions(&site).len()), (Some(2), 0));
    daemon.stop();
}

/// Broken on purpose and seen red: what a session is opened with counts as a pool.
/// Promise: accounts-session.
#[test]
fn a_session_holds_no_pools() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    assert_eq!(asked(&site, &["session", "open", "db", "loader"]).1, Some(0));
    let mut client = connect(&site, "db/loader#1").unwrap();
    client.flush().unwrap();
    for session in ["web/db/loader#1", "web/db/loader#1/nbd#1"] {
        let expected = format!("{session} is a session, which holds no pools");
        assert_eq!(asked(&site, &["pool", "add", &format!("{session}/batch")]), (expected, Some(1)));
    }
    let missing = asked(&site, &["pool", "add", "web/db/loader#2/batch"]);
    assert_eq!(missing.1, Some(2), "{}", missing.0);
    client.disconnect().unwrap();
    wait_until("the end of the connection", || sessions(&site).len() == 1);
    let closed = ("session web/db/loader#1 closed".into(), Some(0));
    assert_eq!(asked(&site, &["session", "close", "web/db/loader#1"]), closed);
    daemon.stop();
}

/// Promise: accounts-session.
#[test]
fn a_volume_that_is_only_mounted_has_no_sessions() {
    if let Some(why) = why_no_mounts() {
        return println!("not run: {why}");
    }
    let mount = "mount = { path = \"{folder}/mnt\", filesystem = \"ext4\", format = \"if-empty\" }";
    let without_nbd = ONE_VOLUME.replace("nbd = {}", mount).replace("[nbd]\nlisten = [\"unix:state/nbd.sock\"]\n", "");
    let site = Site::new("");
    let text = without_nbd.replace("{folder}", site.folder.path().to_str().unwrap());
    std::fs::write(site.path("plimsoll.toml"), format!("[daemon]\nstate_directory = \"state\"\n{text}")).unwrap();
    let daemon = site.up();
    let expected = "volume db has no NBD export and no iSCSI target for a session, allowed are volumes with nbd or iscsi; plimsoll run is for processes";
    assert_eq!(asked(&site, &["session", "open", "db", "loader"]), (expected.into(), Some(2)));
    let reserved = ["session", "open", "db", "loader", "--reserve", "150 runs/s"];
    assert_eq!(asked(&site, &reserved), (expected.into(), Some(2)));
    assert_eq!(sessions(&site).len(), 1, "the mount's");
    daemon.stop();
}

/// Asks over a connection of the control socket.
fn say(stream: &UnixStream, request: &str) -> serde_json::Value {
    let mut stream = stream;
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

const TIED: &str =
    r#"{"command":"session_open","volume":"db","name":"tied","change":{"reserve":"150 runs/s"},"tied":true}"#;

/// Promise: accounts-tied-session.
#[test]
fn a_session_that_is_tied_ends_with_the_connection_that_opened_it() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    let opener = UnixStream::connect(site.path("state/control.sock")).unwrap();
    assert_eq!(say(&opener, TIED)["session"]["export"], "db/tied#1");
    let second = say(&opener, &TIED.replace("150", "10"));
    assert_eq!(second["session"]["path"], "web/db/tied#2", "one connection may open several");
    assert_eq!(say(&opener, r#"{"command":"pool_list"}"#)["pools"].as_array().unwrap().len(), 4);
    let closed = say(&opener, r#"{"command":"session_close","session":"web/db/tied#2"}"#);
    assert_eq!(closed["done"], "session web/db/tied#2 closed");

    let (mut tied, mut read) = (connect(&site, "db/tied#1").unwrap(), [0; 4096]);
    // A connection gets its number with its first read, not with its handshake; the next connection to read gets the
    // next number.
    tied.read(0, &mut read).unwrap();
    let mut other = connect(&site, "").unwrap();
    assert_eq!(asked(&site, &["session", "open", "db", "late", "--reserve", "100 runs/s"]).1, Some(1), "does not fit");
    drop(opener);
    wait_until("the end of the session", || sessions(&site).iter().all(|(path, _)| path == "web/db/nbd#2"));
    assert!(tied.read(0, &mut read).is_err(), "cut off");
    assert!(connect(&site, "db/tied#1").is_none());
    other.read(0, &mut read).unwrap();
    let late = asked(&site, &["session", "open", "db", "late", "--reserve", "100 runs/s"]);
    assert_eq!(late, ("db/late#4".into(), Some(0)), "what the session was promised is free");
    other.disconnect().unwrap();
    let again = UnixStream::connect(site.path("state/control.sock")).unwrap();
    assert_eq!(say(&again, &TIED.replace("150", "10"))["session"]["export"], "db/tied#5");
    let log = daemon.stop();
    assert!(log.contains("session web/db/tied#1 closed: its opener is gone"), "{log}");
    assert!(!log.contains("tied#5"), "a stop ends everything in its own order: {log}");
}

/// A process that dropping this kills, also when a test fails.
struct Killed(Pid);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// `plimsoll session open`, for a command of the shell.
fn open_for(site: &Site, script: &str) -> Command {
    let open = ["session", "open", "db", "loader", "--reserve", "150 runs/s", "--socket", "state/control.sock"];
    site.command(&[&open[..], &["--", "sh", "-c", script]].concat())
}

/// Promise: accounts-tied-session.
#[test]
fn a_session_for_a_command_ends_with_the_last_of_its_processes_also_by_kill_9() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    let named = |name: &str| std::fs::read_to_string(site.path(name)).unwrap_or_default().trim().to_owned();
    let script = "echo $PLIMSOLL_EXPORT $PLIMSOLL_SESSION >name; echo told >told; exec sleep 1000";
    let mut opener = open_for(&site, script).spawn().unwrap();
    let killed = Killed(Pid::from_child(&opener));
    wait_until("the command", || named("told") == "told");
    assert_eq!(named("name"), "db/loader#1 web/db/loader#1");
    let mut client = connect(&site, "db/loader#1").unwrap();
    client.write(0, &[7; 4096], false).unwrap();
    assert_eq!(sessions(&site)[0], ("web/db/loader#1".into(), "150 runs/s".into()));
    drop(killed);
    opener.wait().unwrap();
    wait_until("the end of the session", || sessions(&site).is_empty());
    assert!(client.read(0, &mut [0; 4096]).is_err() && connect(&site, "db/loader#1").is_none());

    let left = open_for(&site, "sleep 1000 >left 2>left & echo $!; exit 7").output().unwrap();
    let killed = Killed(Pid::from_raw(text(&left.stdout).trim().parse().unwrap()).unwrap());
    assert_eq!(left.status.code(), Some(7), "{}", text(&left.stderr));
    assert_eq!(asked(&site, &["session", "close", "web/db/other#2"]).1, Some(2));
    assert_eq!(sessions(&site).len(), 1, "a process of the command lives");
    drop(killed);
    wait_until("the end of the second", || sessions(&site).is_empty());

    let mut missing =
        site.command(&["session", "open", "db", "a", "--socket", "state/control.sock", "--", "no-such-command"]);
    let missing = missing.output().unwrap();
    // As of env: 127, or 126 where a folder of PATH is closed to this user, so that it cannot know whether the command
    // is there.
    assert!(matches!(missing.status.code(), Some(126 | 127)), "{missing:?}");
    assert!(text(&missing.stderr).contains("cannot run no-such-command"), "{}", text(&missing.stderr));
    wait_until("the end of the third", || sessions(&site).is_empty());
    daemon.stop();
}

/// Another export has its name already, or it would be too long. Broken on purpose and seen red, as it was: the client
/// is cut off, and its pool and reserve stay.
#[test]
fn a_session_whose_name_is_no_export_is_refused_and_nothing_of_it_stays() {
    let long = "x".repeat(4090);
    let taken = r#"
[volume.other]
pool = "web"
size = "1MiB"
memory = true
[volume.other.nbd]
export = "db/loader#1"
"#;
    let long_name = ONE_VOLUME.replace("nbd = {}", &format!("nbd = {{ export = \"{long}\" }}"));
    for (configuration, said) in [(format!("{ONE_VOLUME}{taken}"), "db/loader#1"), (long_name, "4096")] {
        let site = Site::of_normal_user(&configuration);
        let daemon = site.up();
        let (answer, code) = asked(&site, &["session", "open", "db", "loader", "--reserve", "150 runs/s"]);
        assert!(answer.contains(said) && code == Some(2), "{code:?}: {answer}");
        assert_eq!(sessions(&site), []);
        let (answer, code) = asked(&site, &["pool", "set", "web", "--weight", "3"]);
        assert_eq!(code, Some(0), "{answer}");
        daemon.stop();
    }
}

/// Planted break that was seen red: the daemon takes what its scheduler does not keep.
/// Promise: schedulers-refused-promise.
#[test]
fn a_session_is_promised_nothing_that_the_scheduler_does_not_keep() {
    let site = Site::of_normal_user(ONE_VOLUME);
    let daemon = site.up();
    let refused = |what: &str, by: &str| {
        (format!("web/db/loader: got {what}, which zygaria does not keep on volumes, allowed {by}"), Some(2))
    };
    let open = |option: &[&str]| asked(&site, &[&["session", "open", "db", "loader"], option].concat());
    assert_eq!(open(&["--priority", "0"]), refused("priority 0", "with the scheduler cfq"));
    let readers = "with the scheduler block_deadline or split_deadline or split_deadline_flusher";
    assert_eq!(open(&["--read-deadline", "10ms"]), refused("read deadline 10 ms", readers));
    assert_eq!(
        open(&["--fsync-deadline", "10ms"]),
        refused("fsync deadline 10 ms", "none: no scheduler keeps it there")
    );
    assert_eq!(sessions(&site).len(), 0, "nothing has changed");
    assert_eq!(open(&["--limit", "5MB/s"]), ("db/loader#1".into(), Some(0)));
    daemon.stop();
}
