//! Tenants that send what was recorded.
//!
//! Planted breaks that were seen red: every request read, the first request sent again and again, what moves nothing or
//! is too long sent too.

use plimsoll_lab::experiment::{self, Report, ReportRow};
use plimsoll_lab::host::HostError;
use plimsoll_lab::host::sim::SimHost;
use plimsoll_lab::scenario;
use std::path::Path;

/// Runs a tenant with this trace for 20 seconds; measured are bytes and requests a second, read and written.
fn run(trace: &Path, seed_count: u32) -> Result<Report, HostError> {
    let row = |name: &str, function: &str, kind: &str| {
        format!("[row.{name}]\ntitle = \"t\"\nmeasure = 'run().{function}(\"a\", \"{kind}\")'\nunit = \"\"\n")
    };
    let text = format!(
        "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\ntakes = \"1 s\"\nduration = \"20s\"\n\
         [machine]\ndevice = \"hdd.wd-aakx\"\nscheduler = \"noop\"\n[tenant.a]\ntrace = '{}'\ndepth = 4\nregion = [0, 0.5]\n{}{}{}{}",
        trace.display(),
        row("read_bytes", "rate", "read"),
        row("written_bytes", "rate", "write"),
        row("reads", "calls", "read"),
        row("writes", "calls", "write"),
    );
    let scenario = scenario::parse(&text, Path::new("t.toml"), &[]).unwrap_or_else(|error| panic!("{error}"));
    experiment::run(&scenario, &SimHost, seed_count, &|| {})
}

fn written(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

#[test]
fn requests_are_as_they_were_recorded_round_and_round() {
    // fio's second version says what a request is and where, and has requests that move nothing. One place is beyond
    // any device; the last request is longer than what tenants send.
    let trace = written(
        "fio version 2 iolog\nf add\nf open\nf read 0 8192\nf sync 0 0\nf write 4096 512\nf read 9000000000000000 4096\n\
         f read 0 1073741824\nf close\n",
    );
    let report = run(trace.path(), 3).unwrap();
    let [read_bytes, written_bytes, reads, writes] = &report.rows[..] else { panic!("four rows") };
    let of = |row: &ReportRow| row.measured.unwrap();
    assert!(of(writes) > 10.0, "the device is kept busy: {}", of(writes));
    let near = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 0.02, "{got}, expected {expected}");
    near(of(reads), 2.0 * of(writes));
    near(of(read_bytes), (8192.0 + 4096.0) / 512.0 * of(written_bytes));
}

#[test]
fn without_its_trace_a_scenario_is_not_run_and_a_broken_one_is_told_by_its_line() {
    let Err(HostError::NotRun(reason)) = run(Path::new("no/such/trace.csv"), 1) else { panic!("it is not there") };
    assert!(reason.contains("no/such/trace.csv") && reason.contains("--set tenant.a.trace="), "{reason}");
    let broken = written("0,1,4096,R,0.5\n0,1,4096,X,0.6\n");
    let Err(HostError::Failed(reason)) = run(broken.path(), 1) else { panic!("it is broken") };
    assert!(reason.contains("line 2: opcode: got"), "{reason}");
    let empty = written("fio version 2 iolog\nf add\nf sync 0 0\n");
    let Err(HostError::Failed(reason)) = run(empty.path(), 1) else { panic!("nothing to send") };
    assert!(reason.contains("neither reads nor writes"), "{reason}");
}
