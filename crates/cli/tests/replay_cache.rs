//! `plimsoll replay --cache` and `plimsoll class` through the real binary.

use serde_json::Value;
use std::fmt::Write;
use std::process::{Command, Output};

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().unwrap()
}

/// Twenty rounds over 200 blocks that are read, and twice as many others that are written once, in the form of HP's
/// trace: what is read are inodes, what is written is swap.
fn trace() -> tempfile::NamedTempFile {
    let mut text = String::new();
    for number in 0..20 * 200 {
        let (seconds, sector) = (number as f64 * 0.01, number % 200 * 8);
        writeln!(text, "{seconds:.6},0,100,4096,{sector},0,0,20000,R").unwrap();
        for other in 0..2 {
            let sector = (1_000 + number * 2 + other) * 8;
            writeln!(text, "{seconds:.6},0,100,4096,{sector},0,0,70000,W").unwrap();
        }
    }
    let file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Promise: lab-replay-cache.
#[test]
fn policies_are_compared_by_size_and_class_and_drawn() {
    let (trace, folder) = (trace(), tempfile::tempdir().unwrap());
    let (path, svg) = (trace.path().to_str().unwrap(), folder.path().join("misses.svg"));
    let cache = ["replay", path, "--cache=400KiB,2MiB", "--classes", "hp-ux"];
    let output = plimsoll(&[&cache[..], &["--json", "--out", svg.to_str().unwrap()]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(
        (&report["accesses"], &report["writes"], &report["blocks"]),
        (&12_000.into(), &8_000.into(), &8_200.into())
    );
    let row = |policy: &str, units: u64| {
        let mut rows = report["rows"].as_array().unwrap().iter();
        rows.find(|row| row["policy"] == policy && row["units"] == units).unwrap().clone()
    };
    // A loop over 200 blocks with 400 strangers a round: LRU sees none again in 512 units, priorities keep them all.
    assert_eq!(row("lru", 512)["read_hit_percent"], 0.0);
    assert_eq!(row("selective", 512)["read_hit_percent"], 95.0);
    assert_eq!(row("credit", 512)["read_hit_percent"], 95.0);
    let classes = row("selective", 512)["classes"].clone();
    assert_eq!((&classes[0]["class"], &classes[0]["units"]), (&"inode".into(), &200.into()));
    assert_eq!((&classes[1]["class"], &classes[1]["hit_percent"]), (&"swap".into(), &0.0.into()));
    assert!(row("lru", 100)["syncer_percent"].as_f64().unwrap() > 50.0);
    assert!(std::fs::read_to_string(svg).unwrap().contains("reads that miss"));
    let table = String::from_utf8(plimsoll(&cache).stdout).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    // Two sizes and four policies, then two classes of four policies, each with a header; and what the trace was.
    assert_eq!(lines.len(), 1 + 8 + 1 + 8 + 1, "{table}");
    assert!(lines[18].ends_with("12000 blocks of 4 KiB read and written, 67 % written; about 8200 different ones"));
}

#[test]
fn sizes_may_be_left_out_and_policies_chosen() {
    let trace = trace();
    let arguments = ["replay", trace.path().to_str().unwrap(), "--cache", "--policy", "credit", "--json"];
    let report: Value = serde_json::from_slice(&plimsoll(&arguments).stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let units: Vec<u64> = rows.iter().map(|row| row["units"].as_u64().unwrap()).collect();
    assert_eq!(units, [82, 164, 410, 820, 1640, 2460, 3280, 4100]);
    assert!(rows.iter().all(|row| row["policy"] == "credit" && row["classes"][0]["class"] == "group-descriptor"));
}

#[test]
fn schemes_are_listed_and_a_file_is_shown_or_blamed() {
    let list = String::from_utf8(plimsoll(&["class", "list"]).stdout).unwrap();
    let mut rows = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert!(rows.any(|cells| cells[..2] == ["postgresql", "7"]), "{list}");
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(path, "include = [\"ext4\"]\n[class.directory]\nwrites = \"never\"\noccupancy_max = \"5%\"\n")
        .unwrap();
    let shown = String::from_utf8(plimsoll(&["class", "show", path]).stdout).unwrap();
    let mut rows = shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let directory = rows.find(|cells| cells[1] == "directory").unwrap();
    assert_eq!(directory, ["6", "directory", "0", "always", "never", "5", "%"], "{shown}");
    std::fs::write(path, "[class.a]\nnumber = 40\npriority = 1\n").unwrap();
    let blamed = plimsoll(&["class", "show", path]);
    let message = format!("{path}:2: class.a.number: got the number 40, allowed 0 to 31\n");
    assert_eq!((blamed.status.code(), String::from_utf8(blamed.stderr).unwrap()), (Some(2), message));
}

#[test]
fn wrong_input_ends_with_2_and_one_line() {
    let trace = trace();
    let path = trace.path().to_str().unwrap();
    let schemes = "ext4, hp-ux, ntfs, postgresql, postgresql-on-ext4, xfs, or the path of a .toml file";
    for (arguments, expected) in [
        (
            &["--cache=1%", "--policy", "lri"][..],
            "--policy: got \"lri\", allowed lru, s3_fifo, selective, credit\n".to_owned(),
        ),
        (&["--cache=1%", "--classes", "ext3"], {
            format!("--classes: got \"ext3\", allowed {schemes} (did you mean \"ext4\"?)\n")
        }),
        (&["--cache=1KiB"], "a cache of 0 units: units: got 0, allowed 1 to 134217727\n".to_owned()),
        (&["--cache=0%"], "error: invalid value '0%' for '--cache[=<SIZES>]'".to_owned()),
        (&["--cache", "--device", "nvme"], "error: the argument '--cache[=<SIZES>]' cannot be used with".to_owned()),
        (&["--device", "nvme"], "error: the following required arguments were not provided".to_owned()),
        (
            &["--device", "nvme", "--scheduler", "noop", "--policy", "lru"],
            "error: the argument '--device <MODEL>' cannot".to_owned(),
        ),
    ] {
        let output = plimsoll(&[&["replay", path], arguments].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.starts_with(&expected), "{message}");
    }
}
