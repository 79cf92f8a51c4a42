//! `load` against real sockets and files. What depends on time stands in the unit tests, in virtual time; here are only
//! bounds that a busy machine cannot break: a latency is never shorter than the stop that caused it.

use plimsoll_core::Span;
use plimsoll_lab::load::{LoadError, LoadOptions, LoadReport, measure};
use plimsoll_protocols::nbd::wire::{REQUEST_BYTES, none_chunk, offset_data_chunk};
use plimsoll_protocols::nbd::{Command, ExportInfo, Request, SharedExports};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::nbd::{Address, Listener};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

const SIZE_BYTES: u64 = 16 << 20;

fn options(target: &str, mix: &str, per_second: f64, seconds: u64) -> LoadOptions {
    LoadOptions {
        target: target.parse().unwrap(),
        mix: mix.parse().unwrap(),
        rates: vec![per_second],
        first_per_second: 1.0,
        latency_max: Span::from_millis(30),
        warm_up: Span::ZERO,
        window: Span::from_secs(seconds),
        outstanding_max: 64,
        seed: 1,
        is_destructive: false,
    }
}

fn run(options: &LoadOptions) -> Result<LoadReport, LoadError> {
    measure(options, &mut |_, _| {})
}

/// Answers one request after the other with zeroes, and does nothing for `stop` before the one of this number.
fn serve(socket: OwnedFd, stop: (u64, rustix::time::Timespec)) -> io::Result<()> {
    let mut stream = File::from(socket);
    let mut header = [0; REQUEST_BYTES];
    for number in 0.. {
        stream.read_exact(&mut header)?;
        let request = Request::decode(&header).map_err(io::Error::other)?;
        let mut payload = vec![0; request.payload_bytes() as usize];
        stream.read_exact(&mut payload)?;
        if number == stop.0 {
            let _ = rustix::thread::nanosleep(&stop.1);
        }
        if request.command == Command::Read {
            let head = offset_data_chunk(request.cookie, true, request.offset, request.length);
            stream.write_all(&[&head[..], &vec![0; request.length as usize]].concat())?;
        } else {
            stream.write_all(&none_chunk(request.cookie))?;
        }
    }
    Ok(())
}

/// A server of `export` in this folder until it is dropped, and what `load` calls it.
fn server(folder: &Path, export: ExportInfo, stop: (u64, rustix::time::Timespec)) -> (Serving, String) {
    let socket = folder.join("nbd.sock");
    let target = format!("nbd+unix:///{}?socket={}", export.name, socket.display());
    let exports = SharedExports::new();
    exports.add(export).unwrap();
    let listener = Listener::bind(&Address::Unix(socket), ListenerOptions::default()).unwrap();
    let serving = plimsoll_serve::nbd::serve(listener, exports, move |socket, _, _| drop(serve(socket, stop)));
    (serving.unwrap(), target)
}

fn writable() -> ExportInfo {
    ExportInfo { is_read_only: false, ..ExportInfo::new("db", SIZE_BYTES) }
}

const NEVER: (u64, rustix::time::Timespec) = (u64::MAX, rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 });

/// Promise: lab-load-stops.
#[test]
fn a_server_that_stops_for_a_moment_shows_in_the_percentiles() {
    let folder = tempfile::tempdir().unwrap();
    let half_a_second = rustix::time::Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
    let (_serving, target) = server(folder.path(), writable(), (300, half_a_second));
    let report = run(&options(&target, "mix 50% reads random 4KiB", 400.0, 2));
    assert!(matches!(report, Err(LoadError::Input(ref text)) if text.contains("allowed with --destructive")));
    let mut options = options(&target, "mix 50% reads random 4KiB", 400.0, 2);
    options.is_destructive = true;
    let report = run(&options).unwrap();
    let row = &report.rows[0];
    // 800 expected, the deviation of such a count is 28.
    assert!(row.requests.abs_diff(800) < 140, "{}", row.requests);
    assert_eq!((row.requests, row.unfinished), (row.reads.requests + row.writes.requests, 0));
    // 200 of them came while it stood still, and waited for the rest of half a second.
    assert!(row.longest_seconds > Some(0.45) && row.p99_seconds > Some(0.4) && row.p90_seconds > Some(0.15), "{row:?}");
    assert!(row.mean_seconds > Some(0.04), "{row:?}");
}

/// Planted break: as much content as before, 1 MiB.
#[test]
fn a_write_may_be_as_long_as_the_server_takes() {
    let folder = tempfile::tempdir().unwrap();
    let (_serving, target) = server(folder.path(), writable(), NEVER);
    let asked = |mix| LoadOptions { is_destructive: true, ..options(&target, mix, 20.0, 1) };
    let row = &run(&asked("write sequential 4MiB")).unwrap().rows[0];
    assert!(row.writes.requests > 2 && row.unfinished == 0 && row.bytes_per_second > 8e6, "{row:?}");
    let error = run(&asked("write sequential 64MiB")).unwrap_err().to_string();
    assert!(error.contains("got requests of 67108864 bytes, allowed multiples of 1 up to 33554432"), "{error}");
}

/// The target may be written to by then, so this is no bad input. Planted break: whatever does not connect is bad
/// input.
#[test]
fn a_server_that_is_gone_after_the_first_rate_is_no_bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let (_serving, target) = server(folder.path(), writable(), NEVER);
    let asked = LoadOptions { rates: vec![20.0, 30.0], ..options(&target, "read random 4KiB", 20.0, 1) };
    let mut hide = |_, _| drop(std::fs::remove_file(folder.path().join("nbd.sock")));
    let error = measure(&asked, &mut hide).unwrap_err();
    assert!(matches!(error, LoadError::Gone { rates: 1, .. }), "{error:?}");
    assert!(error.to_string().ends_with("; it was there for 1 of the rates"), "{error}");
    let error = run(&asked).unwrap_err();
    assert!(matches!(error, LoadError::Connect { .. }), "{error:?}");
}

fn file(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("disk");
    std::fs::write(&path, vec![7; SIZE_BYTES as usize]).unwrap();
    path
}

/// Promise: lab-load-writes.
#[test]
fn a_file_is_read_and_only_written_where_that_was_allowed() {
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let path = file(folder.path());
    let is_as_it_was = || std::fs::read(&path).unwrap().iter().all(|&byte| byte == 7);
    let target = path.to_str().unwrap();
    // Allowing it writes nothing unless the mix does.
    for is_destructive in [false, true] {
        let report = run(&LoadOptions { is_destructive, ..options(target, "read random 4KiB", 200.0, 1) }).unwrap();
        assert!(report.rows[0].reads.requests > 120 && report.rows[0].writes.requests == 0, "{report:?}");
        assert!(is_as_it_was());
    }
    let writes = options(target, "write random 4KiB", 200.0, 1);
    assert!(run(&writes).unwrap_err().to_string().contains("which writes, allowed with --destructive"));
    assert!(is_as_it_was());
    let report = run(&LoadOptions { is_destructive: true, ..writes }).unwrap();
    assert!(report.rows[0].writes.requests > 120 && report.rows[0].unfinished == 0, "{report:?}");
    assert!(!is_as_it_was());
}

#[test]
fn the_peak_is_looked_for_and_drawn() {
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let path = file(folder.path());
    let asked = options(path.to_str().unwrap(), "read sequential 64KiB", 50.0, 1);
    let report = run(&LoadOptions { rates: vec![50.0, 20.0], latency_max: Span::from_secs(30), ..asked }).unwrap();
    let rates: Vec<f64> = report.rows.iter().map(|row| row.offered_per_second).collect();
    assert_eq!((rates, report.peak_per_second), (vec![20.0, 50.0], Some(50.0)));
    let svg = report.svg();
    assert!(svg.contains("read sequential 64KiB") && svg.contains("p99") && svg.contains("30 s mean"), "{svg}");
}

/// Planted break: all are drawn from the same seed.
#[test]
fn a_rate_that_is_asked_for_several_times_is_several_samples() {
    let folder = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let path = file(folder.path());
    let asked = options(path.to_str().unwrap(), "read random 4KiB", 500.0, 1);
    let report = run(&LoadOptions { rates: vec![500.0; 4], ..asked }).unwrap();
    // Each count deviates by 22, so all are alike once in many thousand times; but seeds are not drawn.
    let counts: Vec<u64> = report.rows.iter().map(|row| row.requests).collect();
    assert!(counts.iter().any(|&count| count != counts[0]), "{counts:?}");
}
