//! `plimsoll record` beside NBD clients.

use crate::support::{Site, text};
use crate::tenants::wait_until;
use plimsoll_core::Operation;
use plimsoll_protocols::nbd::CommandFlags;
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use plimsoll_traces::{Format, TraceRecord};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};

const TWO_VOLUMES: &str = r#"
[nbd]
listen = ["unix:state/nbd.sock"]
[device.disk0]
[pool.web]
device = "disk0"
[volume.db]
pool = "web"
size = "8MiB"
memory = true
nbd = {}
[volume.spool]
pool = "web"
size = "8MiB"
memory = true
nbd = {}
"#;
/// Where the second volume lies on the device: behind the first.
const SPOOL_AT: u64 = 8 << 20;
/// Most lines of a stream that are looked at before a test gives up.
const LINES_MAX: usize = 10_000;

fn connect(site: &Site, export: &str) -> Client {
    let options = ClientOptions { export_name: export.into(), ..ClientOptions::default() };
    Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).unwrap()
}

/// Starts to record and waits until the file is there: then the daemon has agreed, and records.
fn record(site: &Site, format: &str) -> Child {
    let arguments = ["record", "--device", "disk0", "--out", "trace", "--format", format];
    let mut command = site.command(&[&arguments[..], &["--socket", "state/control.sock"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !site.path("trace").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it recorded");
        std::thread::yield_now();
    }
    child
}

fn known_sequence(site: &Site) {
    let (mut db, mut spool) = (connect(site, "db"), connect(site, "spool"));
    db.write(4096, &[7; 8192], false).unwrap();
    spool.read(512, &mut [0; 1024]).unwrap();
    db.flush().unwrap();
    spool.trim(65_536, 4096).unwrap();
    db.read(4096, &mut [0; 4096]).unwrap();
}

/// As it stands in a trace: operation, place on the device, length, volume.
const EXPECTED: [(Operation, u64, u64, u32); 5] = [
    (Operation::Write, 4096, 8192, 0),
    (Operation::Read, SPOOL_AT + 512, 1024, 1),
    (Operation::Flush, 0, 0, 0),
    (Operation::Trim, SPOOL_AT + 65_536, 4096, 1),
    (Operation::Read, 4096, 4096, 0),
];

fn read(path: &Path, format: Format) -> Vec<TraceRecord> {
    plimsoll_traces::open(path, Some(format)).unwrap().map(Result::unwrap).collect()
}

/// Operation, place, length and volume of each.
fn what(records: &[TraceRecord]) -> Vec<(Operation, u64, u64, u32)> {
    records.iter().map(|record| (record.operation, record.offset, record.length, record.device)).collect()
}

#[test]
fn what_clients_did_is_read_back_from_every_format() {
    let site = Site::of_normal_user(TWO_VOLUMES);
    let daemon = site.up();
    let transfers = [EXPECTED[0], EXPECTED[1], EXPECTED[4]];
    for (format, expected, said) in [
        (Format::Fio3, &EXPECTED[..], "trace: 5 requests, of disk0\n"),
        (Format::Blktrace, &EXPECTED[..], "trace: 5 requests, of disk0\n"),
        (Format::Msr, &transfers[..], "trace: 3 requests, 2 left out, which msr cannot say, of disk0\n"),
    ] {
        let child = record(&site, format.name());
        known_sequence(&site);
        // Ctrl-C comes after the last reply; what was done by then is in the file.
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((text(&output.stdout).as_str(), output.status.code()), (said, Some(0)), "{}", text(&output.stderr));
        let records = read(&site.path("trace"), format);
        let devices = |records: &[TraceRecord]| records.iter().map(|record| record.device).collect::<Vec<_>>();
        let mut got = what(&records);
        if format == Format::Blktrace {
            // Its devices are numbers of the kernel's.
            assert_eq!(devices(&records).len(), expected.len());
            got.iter_mut().zip(expected).for_each(|(got, expected)| got.3 = expected.3);
        }
        assert_eq!(got, expected, "{format}");
        if format == Format::Msr {
            assert!(records.iter().all(|record| record.response.is_some()));
        }
        std::fs::remove_file(site.path("trace")).unwrap();
    }
    daemon.stop();
}

#[test]
fn a_daemon_that_ends_leaves_a_whole_file_and_one_that_is_killed_too() {
    for (signal, code, said) in [(Signal::TERM, 0, "; the daemon has ended"), (Signal::KILL, 1, "did not answer")] {
        let site = Site::of_normal_user(TWO_VOLUMES);
        let daemon = site.up();
        let child = record(&site, "fio3");
        // Another recording is refused; the file that it would replace stays.
        let output = site.ask(&["record", "--out", "trace"]);
        assert_eq!(text(&output.stderr), "device disk0 is being recorded already\n");
        known_sequence(&site);
        daemon.signal(signal);
        daemon.wait();
        let output = child.wait_with_output().unwrap();
        let all = text(&output.stdout) + text(&output.stderr).as_str();
        assert_eq!(output.status.code(), Some(code), "{all}");
        assert!(all.contains(said), "{all}");
        let records = read(&site.path("trace"), Format::Fio3);
        // A daemon that is killed has not sent what it recorded last; what it sent is there.
        let is_whole = records.len() == EXPECTED.len() || (signal == Signal::KILL && records.len() < EXPECTED.len());
        assert!(is_whole, "{all}");
        assert_eq!(what(&records), EXPECTED[..records.len()], "{all}");
    }
}

#[test]
fn wrong_arguments_are_named_and_touch_no_file() {
    let site = Site::of_normal_user(TWO_VOLUMES);
    std::fs::write(site.path("trace"), "precious").unwrap();
    let daemon = site.up();
    let output = site.ask(&["record", "--device", "disk9", "--out", "trace"]);
    assert_eq!(text(&output.stderr), "there is no device \"disk9\", allowed disk0\n");
    assert_eq!(output.status.code(), Some(2));
    let output = site.ask(&["record", "--out", "trace", "--format", "spc"]);
    let said = text(&output.stderr);
    assert!(said.contains("invalid value 'spc' for '--format <FORMAT>': allowed are fio3, msr, blktrace"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(site.path("trace")).unwrap(), "precious");
    let output = site.ask(&["record", "--out", "nowhere/trace"]);
    assert!(text(&output.stderr).starts_with("--out nowhere/trace: No such file"), "{}", text(&output.stderr));
    // A failed recording does not keep the device, once the daemon has seen that its client has gone.
    let mut output = None;
    wait_until("the end of the recording", || {
        let asked = site.ask(&["record", "--out", "other", "--seconds", "1"]);
        let is_kept = text(&asked.stderr) == "device disk0 is being recorded already\n";
        output = Some(asked);
        !is_kept
    });
    let output = output.unwrap();
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("other: 0 requests, of disk0\n", Some(0)));
    daemon.stop();
}

#[test]
fn a_client_that_does_not_read_loses_records_and_is_told_how_many() {
    // More than the queue and the sockets' buffers hold.
    const WRITES: u64 = 200_000;
    const DEPTH: u32 = 32;
    let site = Site::of_normal_user(TWO_VOLUMES);
    let daemon = site.up();
    let mut stream = UnixStream::connect(site.path("state/control.sock")).unwrap();
    stream.write_all(b"{\"command\":\"record\"}\n").unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.starts_with("{\"recording\":{\"device\":\"disk0\",\"unix_ns\":"), "{line}");
    assert!(line.ends_with("\"volumes\":[{\"number\":0,\"name\":\"db\"},{\"number\":1,\"name\":\"spool\"}]}}\n"));
    // Would never end if a tenant waited for the recording.
    let options = ClientOptions { export_name: "db".into(), depth_max: DEPTH, ..ClientOptions::default() };
    let mut db = Client::connect(&Address::Unix(site.path("state/nbd.sock")), &options).unwrap();
    for number in 0..WRITES / u64::from(DEPTH) {
        for tag in 0..DEPTH {
            let offset = (number * u64::from(DEPTH) + u64::from(tag)) % 2048 * 4096;
            db.submit_write(tag, CommandFlags::NONE, offset, &[1; 512]).unwrap();
        }
        db.send_submitted().unwrap();
        for _ in 0..DEPTH {
            db.receive(|_, _, _| {}).unwrap();
        }
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let (mut received, mut end) = (0, None);
    for line in lines.by_ref().lines().take(LINES_MAX) {
        let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        received += line["records"]["records"].as_array().map_or(0, Vec::len) as u64;
        end = line.get("recorded").cloned().or(end);
    }
    let end = end.expect("the last line says how much it was");
    let lost = end["lost"].as_u64().unwrap();
    assert!(lost > 0, "{end}");
    assert_eq!((received, received + lost), (end["requests"].as_u64().unwrap(), WRITES), "{end}");
    daemon.stop();
}
