//! Variants that a host cannot run: what asks for them is *not run*, and everything else is measured.

use plimsoll_lab::experiment;
use plimsoll_lab::host::sim::SimHost;
use plimsoll_lab::host::{Host, HostError};
use plimsoll_lab::scenario::{self, Scenario};
use std::path::Path;

fn parse(schedulers: &str) -> Scenario {
    let text = format!(
        "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"sim\", \"live\"]\ntakes = \"1 s\"\n\
         duration = \"3s\"\n[machine]\ndevice = \"hdd.wd-aakx\"\nscheduler = \"noop\"\nfile_system = \"ext4\"\n\
         [process.p]\nworkload = \"append 4KiB, fsync\"\n[variant.by.set]\n{schedulers}\n\
         [row.ours]\ntitle = \"t\"\nmeasure = 'run(\"by=ours\").calls(\"p\", \"fsync\")'\nunit = \"1/s\"\n\
         claim = \"> 0\"\nsource = \"s\"\n\
         [row.kernels]\ntitle = \"t\"\nmeasure = 'run(\"by=kernels\").calls(\"p\", \"fsync\")'\nunit = \"1/s\"\n\
         claim = \"> 0\"\nsource = \"s\"\n"
    );
    scenario::parse(&text, Path::new("t.toml"), &[]).unwrap_or_else(|error| panic!("{error}"))
}

const REASON: &str = "the kernel's bfq is on the live host only";

/// Promise: lab-not-run.
#[test]
fn the_rest_is_measured() {
    let scenario = parse("ours = { machine.scheduler = \"cfq\" }\nkernels = { machine.kernel_scheduler = \"bfq\" }");
    let report = experiment::run(&scenario, &SimHost, 1, &|| ()).unwrap();
    let [ours, kernels] = &report.rows[..] else { panic!("two rows") };
    assert_eq!((ours.holds, &ours.not_run), (Some(true), &None));
    assert_eq!((kernels.holds, kernels.measured), (None, None));
    assert_eq!(kernels.not_run.as_deref(), Some(&*format!("by=kernels: {REASON}")));
    assert_eq!(report.unknown().map(|row| &row.name[..]).collect::<Vec<_>>(), ["kernels"]);
    assert_eq!((report.failed().count(), report.not_run), (0, None));
}

#[test]
fn where_nothing_was_run_nothing_is_reported() {
    let bfq = "{ machine.kernel_scheduler = \"bfq\" }";
    let scenario = parse(&format!("ours = {bfq}\nkernels = {bfq}"));
    let error = experiment::run(&scenario, &SimHost, 1, &|| ()).err();
    assert_eq!(error, Some(HostError::NotRun(REASON.to_owned())));
    assert_eq!(SimHost.run(&scenario.variants[0].setup, 1).err(), error);
}

#[test]
fn schedulers_take_no_turns_in_virtual_time() {
    let turns = "{ machine.alternate = \"noop\", machine.turn_seconds = 1 }";
    let scenario = parse(&format!("ours = {turns}\nkernels = {turns}"));
    let reason = "schedulers take turns on the live host only";
    assert_eq!(SimHost.run(&scenario.variants[0].setup, 1).err(), Some(HostError::NotRun(reason.to_owned())));
}

#[test]
fn this_machines_own_disk_is_not_simulated() {
    let own = "{ machine.own_disk = \"256MiB\" }";
    let scenario = parse(&format!("ours = {own}\nkernels = {own}"));
    let reason = "this machine's own disk is on the live host only";
    assert_eq!(SimHost.run(&scenario.variants[0].setup, 1).err(), Some(HostError::NotRun(reason.to_owned())));
}
