//! fio replays what we write, request by request.

mod support;

use plimsoll_core::Operation;
use plimsoll_traces::{Format, TraceRecord, Writer};
use std::fs;
use std::path::Path;
use std::process::Command;
use support::record;

const READS: u64 = 20;
const WRITES: u64 = 30;
const BYTES: u64 = 4096;
/// The file that is replayed into, bytes.
const FILE_BYTES: u64 = 1 << 20;
/// Between two requests, nanoseconds.
const PAUSE_NS: u64 = 100_000;

fn has_fio() -> bool {
    let found = Command::new("fio").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("not run: fio is not installed");
    }
    found
}

fn trace() -> Vec<TraceRecord> {
    let request = |number: u64| {
        let operation = if number < READS { Operation::Read } else { Operation::Write };
        record(5_000_000_000 + number * PAUSE_NS, operation, number * BYTES, BYTES)
    };
    (0..READS + WRITES).map(request).collect()
}

fn write(format: Format, device: &Path, log: &Path) {
    let mut writer = Writer::new(format, fs::File::create(log).unwrap()).unwrap();
    writer.name_device(0, device.to_str().unwrap()).unwrap();
    trace().iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
}

/// The number after `name` in the object `"section" : {` of fio's JSON.
fn figure(report: &str, section: &str, name: &str) -> u64 {
    let section = &report[report.find(&format!("\"{section}\" : {{")).unwrap()..];
    let value = &section[section.find(&format!("\"{name}\" : ")).unwrap() + name.len() + 5..];
    value[..value.find(|char: char| !char.is_ascii_digit()).unwrap()].parse().unwrap()
}

fn replays(format: Format) {
    if !has_fio() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (device, log) = (folder.path().join("device"), folder.path().join("log"));
    fs::write(&device, vec![0; FILE_BYTES as usize]).unwrap();
    write(format, &device, &log);
    let output = Command::new("fio")
        .current_dir(folder.path())
        .args(["--name=replay", "--ioengine=psync", "--output-format=json"])
        .arg(format!("--read_iolog={}", log.display()))
        .arg(format!("--replay_redirect={}", device.display()))
        .output()
        .unwrap();
    let (report, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && complaints.is_empty(), "{report}{complaints}");
    let figures =
        ["read", "write"].map(|section| (figure(&report, section, "total_ios"), figure(&report, section, "io_bytes")));
    assert_eq!(figures, [(READS, READS * BYTES), (WRITES, WRITES * BYTES)], "{report}");
}

/// Promise: traces-fio.
#[test]
fn fio_replays_our_iolog() {
    replays(Format::Fio3);
}

#[test]
fn fio_replays_our_blktrace() {
    replays(Format::Blktrace);
}

/// fio's own recording is read back with the requests that fio says it made.
#[test]
fn we_read_what_fio_records() {
    if !has_fio() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let output = Command::new("fio")
        .current_dir(folder.path())
        .args(["--name=record", "--ioengine=psync", "--rw=randwrite", "--bs=4k", "--size=256k", "--fsync=16"])
        .arg(format!("--write_iolog={}", log.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (records, error) = support::drain(plimsoll_traces::open(&log, None).unwrap());
    assert!(error.is_none(), "{}", error.unwrap());
    let of = |operation| records.iter().filter(move |record| record.operation == operation);
    // fio flushes between two writes: the last sixteen have no flush behind them.
    assert_eq!((of(Operation::Write).count(), of(Operation::Flush).count()), (64, 3));
    assert_eq!(of(Operation::Write).map(|record| record.length).sum::<u64>(), 256 << 10);
}

/// Each way of making writes durable that fio knows, in its own recording.
/// Promise: traces-habits.
#[test]
fn we_read_each_kind_of_sync_that_fio_records() {
    if !has_fio() {
        return;
    }
    // Between two writes, after each sixteenth: three times. sync_file_range is no flush; it comes before and after.
    for (option, flushes) in [("--fsync=16", 3), ("--fdatasync=16", 3), ("--sync_file_range=write:16", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let output = Command::new("fio")
            .current_dir(folder.path())
            .args(["--name=record", "--ioengine=sync", "--rw=write", "--bs=4k", "--size=256k", option])
            .arg(format!("--write_iolog={}", log.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{option}: {}", String::from_utf8_lossy(&output.stderr));
        let mut reader = plimsoll_traces::open(&log, None).unwrap();
        let records: Vec<_> =
            reader.by_ref().map(|record| record.unwrap_or_else(|e| panic!("{option}: {e}"))).collect();
        let count = |operation| records.iter().filter(|record| record.operation == operation).count();
        assert_eq!((count(Operation::Write), count(Operation::Flush)), (64, flushes), "{option}");
        let lines = fs::read_to_string(&log).unwrap().lines().count() as u64;
        assert_eq!(records.len() as u64 + reader.left_out(), lines, "{option}: each line is a record or counted");
        let ranges = fs::read_to_string(&log).unwrap().matches("sync_file_range").count();
        assert_eq!(ranges > 0, flushes == 0, "{option}");
    }
}
