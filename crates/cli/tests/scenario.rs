//! `plimsoll scenario` through the real binary: exit codes, JSON, pictures, determinism.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn good(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/good").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn plimsoll(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("scenario").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = plimsoll(&[arguments, &["--json", "-", "--no-progress"]].concat());
    let value = serde_json::from_slice(&output.stdout);
    (value.unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr))), output.status.code())
}

#[test]
fn a_scenario_whose_claims_hold_ends_with_0_and_says_so() {
    let output = plimsoll(&["run", &good("small.toml"), "--no-progress"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    let row = table.lines().find(|line| line.starts_with("Larger requests move more")).unwrap();
    assert!(row.contains("100") && row.contains(">= 5") && row.ends_with("yes"), "{row}");
    assert!(table.lines().any(|line| line.starts_with("A's longest read") && line.contains(" ± ")), "{table}");
}

#[test]
fn the_json_is_one_object_with_a_row_for_each_measurement() {
    let (report, code) = json(&["run", &good("small.toml")]);
    assert_eq!(code, Some(0));
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["hashes", "host", "rows", "scenario", "seeds", "settings"]);
    assert_eq!((&report["scenario"], &report["host"], &report["seeds"]), (&"small".into(), &"sim".into(), &2.into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), ["busy", "size", "informs"]);
    for row in rows {
        let object = row.as_object().unwrap();
        for key in ["name", "measured", "unit", "paper", "claim", "holds"] {
            assert!(object.contains_key(key), "{key} of {row}");
        }
        assert_eq!(row["by_seed"].as_array().unwrap().len(), 2);
    }
    assert_eq!(rows[1]["paper"], 100.0);
    assert_eq!(rows[0]["holds"], true);
    assert!(rows[2]["claim"].is_null() && rows[2]["holds"].is_null(), "it only informs");
}

#[test]
fn the_same_seeds_take_the_same_course_and_others_another() {
    for name in ["small.toml", "process.toml"] {
        let (first, _) = json(&["run", &good(name), "--seeds", "3"]);
        let (again, _) = json(&["run", &good(name), "--seeds", "3"]);
        assert_eq!(first, again, "{name}");
        let hashes = first["hashes"][0]["hashes"].as_array().unwrap();
        assert_eq!(hashes.len(), 3);
        assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2], "{name}: {hashes:?}");
        let (fewer, _) = json(&["run", &good(name), "--seeds", "1"]);
        assert_eq!(fewer["hashes"][0]["hashes"][0], hashes[0], "{name}: a seed does not know of the others");
    }
}

#[test]
fn processes_do_what_their_workloads_say() {
    let (report, code) = json(&["run", &good("process.toml")]);
    assert_eq!(code, Some(0), "{report:#}");
}

#[test]
fn a_claim_that_fails_ends_with_1_and_names_it() {
    let output = plimsoll(&["run", &good("small.toml"), "--no-progress", "--set", "row.busy.claim=<= 0.5"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "1 claims do not hold: small: busy\n");
    assert!(text(&output.stdout).lines().any(|line| line.starts_with("The disk is busy") && line.ends_with("NO")));
}

#[test]
fn a_measurement_that_cannot_be_made_fails_its_claim() {
    let measure = "row.busy.measure=run(\"scheduler=noop size=4KiB\").latency(\"b\", \"write\", 0.5, 0, 1)";
    let (report, code) = json(&["run", &good("small.toml"), "--set", measure]);
    assert_eq!(code, Some(1));
    assert!(report["rows"][0]["measured"].is_null());
    assert_eq!(report["rows"][0]["holds"], false);
    assert_eq!(report["rows"][0]["problem"], "no write of \"b\" that returned from 0 s to 1 s");
}

/// Promise: lab-scenario-errors.
#[test]
fn wrong_input_ends_with_2_and_one_line() {
    let no_such = "scenario: got \"device-curve\", allowed the path of a .toml file, or one of ";
    for (arguments, expected) in [
        (&["run", "device-curve"][..], no_such),
        (&["show", "device-curve"], no_such),
        (&["run", "missing.toml"], "missing.toml:1: file: got No such file or directory (os error 2), allowed a file"),
        (
            &["run", "device-curves", "--set", "machine.scheduler=x"],
            "--set machine.scheduler: got \"x\", allowed \"noop\"",
        ),
        (&["run", "device-curves", "--set", "x"], "error: invalid value 'x' for '--set <KEY=VALUE>'"),
        (&["run", "device-curves", "--seeds", "0"], "error: invalid value '0' for '--seeds <N>'"),
    ] {
        let output = plimsoll(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).starts_with(expected), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_this_version_cannot_run_ends_with_3_and_the_reason() {
    let output = plimsoll(&["run", &good("small.toml"), "--host", "live"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), "not run: small: it runs on sim only\n");
    let (report, code) = json(&["run", &good("small.toml"), "--host", "live"]);
    assert_eq!((&report["not_run"], code), (&"it runs on sim only".into(), Some(3)));
    let (report, code) = json(&["run", &good("small.toml"), "--set", "hosts=[\"live\"]"]);
    assert_eq!((&report["not_run"], code), (&"it runs on live only".into(), Some(3)));
}

/// Every element that is opened is closed, in order; attributes are quoted; no `&` or `<` stands bare.
fn assert_well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let before = &rest[..start];
        assert!(!before.contains('>'), "a bare > in {before:?}");
        for entity in before.split('&').skip(1) {
            assert!(entity.split(';').next().is_some_and(|name| name.len() < 8), "a bare & in {before:?}");
        }
        let end = rest[start..].find('>').expect("a tag that ends") + start;
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name.trim()), "</{name}>"),
            None if tag.ends_with('/') || tag.starts_with('?') || tag.starts_with('!') => {}
            None => open.push(tag.split_whitespace().next().unwrap()),
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{open:?} not closed");
}

#[test]
fn the_folder_gets_picture_json_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = plimsoll(&["run", &good("small.toml"), "--no-progress", "--out", out]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(PathBuf::from(out).join(name)).unwrap();
    let svg = read("small.svg");
    assert_well_formed(&svg);
    assert!(svg.starts_with("<svg ") && svg.contains("&lt;noop&gt; &amp; more") && svg.contains("1MiB"));
    let page = read("report.html");
    assert!(page.contains(&svg), "the page needs no other file");
    assert!(page.contains("plimsoll scenario run small --host sim --seeds 2") && page.contains("2 of 2 claims hold"));
    let report: Value = serde_json::from_str(&read("small.json")).unwrap();
    assert_eq!(report["rows"][0]["holds"], true);
}

#[test]
fn list_and_show_tell_what_there_is() {
    let output = plimsoll(&["list", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let entry = list.as_array().unwrap().iter().find(|entry| entry["name"] == "split-fig1").unwrap();
    assert_eq!((&entry["source"], &entry["hosts"][0]), (&"figure 1".into(), &"sim".into()));
    let table = text(&plimsoll(&["list"]).stdout);
    assert!(table.lines().any(|line| line.starts_with("split-fig1 ")), "{table}");
    let shown = text(&plimsoll(&["show", "split-fig1"]).stdout);
    for part in [
        "Machine: hdd.wd-aakx under cfq, ext4-dioread-lock on it, 16 GiB of memory, 8 cores, dirty ratios 10 and 20 %",
        "Account b: weight 100, priority idle",
        "Process a (account a): read sequential 128KiB in big 300GiB",
        "Varied: case: idle, normal, alone, noop, block_deadline",
        "A without a burst (MB/s); the paper has 138; claimed near paper, margin 5 %, on every seed",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
}
