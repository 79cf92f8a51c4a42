//! `plimsoll replay` through the real binary.

use serde_json::Value;
use std::fmt::Write;
use std::process::{Command, Output};

/// A trace in the SPC format: volume 0 reads 8 KiB every 20 ms, volume 1 writes 4 KiB every 40 ms, somewhere on 100 GB.
fn trace(requests: u64) -> tempfile::NamedTempFile {
    let mut text = String::new();
    for number in 0..requests {
        let sector = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36;
        let seconds = number as f64 * 0.02;
        writeln!(text, "0,{sector},8192,R,{seconds:.6}").unwrap();
        if number % 2 == 0 {
            writeln!(text, "1,{sector},4096,W,{seconds:.6}").unwrap();
        }
    }
    let file = tempfile::NamedTempFile::with_suffix(".spc").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

fn plimsoll(file: &tempfile::NamedTempFile, arguments: &[&str]) -> Output {
    let path = file.path().to_str().unwrap();
    let machine = ["--device", "hdd.wd-aakx", "--scheduler", "zygaria"];
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["replay", path]).args(machine).args(arguments).output().unwrap()
}

fn json(file: &tempfile::NamedTempFile, arguments: &[&str]) -> Value {
    let output = plimsoll(file, &[arguments, &["--json"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn by_time_stamps_it_takes_as_long_as_the_trace_and_faster_if_asked() {
    let file = trace(1000);
    let report = json(&file, &[]);
    assert_eq!((&report["requests"], &report["moved"], &report["left_out"]), (&1500.into(), &0.into(), &0.into()));
    let seconds = report["seconds"].as_f64().unwrap();
    assert!((19.98..20.2).contains(&seconds), "{seconds}");
    let session = &report["sessions"][0];
    assert_eq!((&session["session"], &session["requests"]), (&"volume 0".into(), &1000.into()));
    assert_eq!((&session["read_percent"], &report["sessions"][1]["read_percent"]), (&100.0.into(), &0.0.into()));
    let median = session["latency_seconds"]["p50"].as_f64().unwrap();
    assert!((0.004..0.03).contains(&median), "a seek and half a revolution: {median}");
    let twice = json(&file, &["--speed", "2"])["seconds"].as_f64().unwrap();
    assert!((twice - 10.0).abs() < 0.2, "{twice}");
    assert_eq!(json(&file, &[]), report, "the same again");
}

#[test]
fn closed_it_takes_as_long_as_the_device() {
    let file = trace(500);
    let one = json(&file, &["--closed", "1"]);
    let many = json(&file, &["--closed", "32"]);
    let seconds = |report: &Value| report["seconds"].as_f64().unwrap();
    assert!(seconds(&many) < seconds(&one), "the drive orders what it can see");
    assert!(one["device_busy"].as_f64().unwrap() > 0.999);
    assert_eq!(one["requests"], 750);
}

#[test]
fn limits_of_pools_hold() {
    let file = trace(500);
    let config = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    std::fs::write(config.path(), "[pool.slow]\nlimit = \"10 runs/s\"\nvolumes = [1]\n").unwrap();
    let report = json(&file, &["--closed", "32", "--config", config.path().to_str().unwrap()]);
    let session = &report["sessions"][1];
    assert_eq!(session["session"], "slow/volume 1");
    let rate = session["requests_per_second"].as_f64().unwrap();
    assert!((8.0..10.6).contains(&rate), "{rate}");
}

#[test]
fn wrong_input_ends_with_2_and_one_line() {
    let file = trace(3);
    let broken = tempfile::NamedTempFile::with_suffix(".spc").unwrap();
    std::fs::write(broken.path(), "0,1,4096,R,0.1\n0,1,4096,R,0.2\n0,1,x,R,0.3\n").unwrap();
    for (trace, arguments, expected) in [
        (&file, &["--device", "floppy"][..], "error: the argument '--device <MODEL>' cannot be used multiple times"),
        (&file, &["--speed", "0"], "--speed: got 0, allowed more than 0"),
        (&file, &["--format", "msr"], ""),
        (&broken, &["--format", "spc"], ""),
    ] {
        let output = plimsoll(trace, arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.starts_with(expected), "{message}");
        if expected.is_empty() {
            assert!(
                message.contains(": line ") && message.contains("allowed ") && message.lines().count() == 1,
                "{message}"
            );
        }
    }
}
