//! The built-in scenarios: the fast ones run here, with one seed, twice. What takes longer than some seconds without
//! optimisation (`split-fig1`, `split-fig6`, `split-fig9`, `split-fig10`, `device-curves`) is only read here, and run
//! by `plimsoll scenario run all` with an optimised binary.

use plimsoll_lab::experiment::{self, Report};
use plimsoll_lab::host::sim::SimHost;
use plimsoll_lab::scenario::{self, Setting};
use std::path::Path;

const FAST: &[&str] = &["split-fig3", "split-fig5"];

fn run(name: &str) -> Report {
    let scenario = scenario::load(name, &[]).unwrap_or_else(|error| panic!("{error}"));
    experiment::run(&scenario, &SimHost, 1, &|| {}).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// How many claims held, and how many there are, as `docs/figures/split.json` says.
fn on_the_page(name: &str) -> (u64, u64) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/figures/split.json");
    let figures: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let figure = figures.as_array().unwrap().iter().find(|figure| figure["scenario"] == name).unwrap();
    (figure["held"].as_u64().unwrap(), figure["claims"].as_u64().unwrap())
}

/// Planted break: the page has a claim less that held, red.
/// Promise: lab-motivation.
#[test]
fn fast_scenarios_hold_and_take_the_same_course_twice() {
    for name in FAST {
        let (first, second) = (run(name), run(name));
        let failed: Vec<&str> = first.failed().map(|row| row.name.as_str()).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
        let claims: Vec<bool> = first.rows.iter().filter_map(|row| row.holds).collect();
        let held = claims.iter().filter(|holds| **holds).count();
        assert_eq!((held as u64, claims.len() as u64), on_the_page(name), "{name}: docs/figures");
        let text = |report: &Report| serde_json::to_string(report).unwrap();
        assert_eq!(text(&first), text(&second), "{name}");
        assert!(!first.hashes.is_empty(), "{name} has a number for its course");
    }
}

/// A scenario made for tests, run with one seed.
fn run_made(name: &str, settings: &[Setting]) -> Report {
    run_made_with(name, settings, 1)
}

fn run_made_with(name: &str, settings: &[Setting], seeds: u32) -> Report {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good").join(name).with_extension("toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let scenario = scenario::parse(&text, &file, settings).unwrap_or_else(|error| panic!("{error}"));
    experiment::run(&scenario, &SimHost, seeds, &|| {}).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// `cfq`, which knows no limits, is the planted break: beside it both claims fail.
/// Promise: split-isolation.
#[test]
fn a_limited_tenant_leaves_another_the_rest_of_the_disk_whatever_it_does() {
    for (scheduler, failing) in [("split_token", 0), ("cfq", 2)] {
        let report = run_made("limited", &[format!("machine.scheduler={scheduler}").parse().unwrap()]);
        let failed: Vec<_> = report.failed().map(|row| (&row.name, row.measured)).collect();
        assert_eq!(failed.len(), failing, "{scheduler}: {failed:?}");
    }
}

/// A lock a container, or one node, is the planted break: beside either both claims fail.
#[test]
fn one_lock_for_all_is_slow_on_several_nodes() {
    let failing = |settings: &[&str]| {
        let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
        run_made("locks", &settings).failed().count()
    };
    assert_eq!(failing(&[]), 0);
    assert_eq!(failing(&["machine.throttle_lock=container"]), 2);
    assert_eq!(failing(&["machine.numa_nodes=1"]), 2);
    assert_eq!(failing(&["tenant.a.node=1"]), 2, "threads are where they are said to be");
}

/// A scheme that says nothing of files is the planted break: then the paper's policy is LRU, and what it gains is gone.
/// Promise: cache-credit-paper, cache-selective-paper, cache-unused-class.
#[test]
fn metadata_and_small_files_stay_in_a_cache_if_their_classes_say_so() {
    let failing = |settings: &[&str]| {
        let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
        let report = run_made("cached", &settings);
        report.failed().map(|row| row.name.clone()).collect::<Vec<String>>()
    };
    assert_eq!(failing(&[]), Vec::<String>::new());
    let without = failing(&["cache.classes=postgresql"]);
    for name in ["server", "find", "small"] {
        assert!(without.iter().any(|failed| failed == name), "{name} holds without classes: {without:?}");
    }
}

/// Slices that are alike are the planted break, and a load that the server can do.
#[test]
fn a_storage_server_does_what_it_can_and_longer_slices_do_more() {
    let failing = |settings: &[&str]| {
        let settings: Vec<Setting> = settings.iter().map(|setting| setting.parse().unwrap()).collect();
        let report = run_made("filer", &settings);
        report.failed().map(|row| row.name.clone()).collect::<Vec<String>>()
    };
    assert_eq!(failing(&[]), Vec::<String>::new());
    assert_eq!(failing(&["filer.workload=vdi"]), ["restarts"]);
    assert!(failing(&["filer.platform=mid-range"]).contains(&"slow".to_owned()));
}

/// The executor's rules near the peak, with three seeds. Planted breaks, which the scenario can do itself: SORD sends
/// new reads to the high queue (`np-to-hq`), slices by depth are those by weight, all queues weigh the same, and
/// adaptive is a policy that loses. Each fails the claims of its rule.
/// Promise: executor-combo.
#[test]
fn each_rule_of_combo_gains_near_the_peak_and_adaptive_is_not_behind() {
    const OF_COMBO: [&str; 4] = ["combo", "no-sord", "no-qats", "weights-alike"];
    let failing = |policies: &[&str], key: &str| {
        let setting = |policy: &&str| format!("variant.policy.set.{policy}.filer.{key}").parse().unwrap();
        let settings: Vec<Setting> = policies.iter().map(setting).collect();
        let report = run_made_with("filer-rules", &settings, 3);
        report.failed().map(|row| row.name.clone()).collect::<Vec<String>>()
    };
    assert_eq!(failing(&[], ""), Vec::<String>::new());
    assert_eq!(failing(&["combo", "no-qats", "weights-alike"], "dispatching=np-to-hq"), ["sord", "weights"]);
    assert_eq!(failing(&OF_COMBO, "slices=weight"), ["qats"]);
    assert!(failing(&OF_COMBO, "weights=[10, 10, 10]").contains(&"weights".to_owned()));
    assert_eq!(failing(&["adaptive"], "dispatching=rs-to-hq"), ["adaptive"]);
}

/// Scenarios made for tests with several machines: their claims are about guests and clusters.
#[test]
fn several_machines_hold_and_take_the_same_course_twice() {
    for name in ["guest", "cluster"] {
        let run = || run_made(name, &[]);
        let (first, second) = (run(), run());
        let failed: Vec<_> = first.failed().map(|row| (&row.name, row.measured)).collect();
        assert!(failed.is_empty(), "{name}: {failed:?}");
        assert_eq!(first.hashes, second.hashes, "{name}");
    }
}
