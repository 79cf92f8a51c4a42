//! A live run with a real PostgreSQL: its files have its classes in the cache, its queries are timed, and nothing is
//! left behind.

mod live_support;

use live_support::{MACHINE, can_mount, host, knobs, knobs_before, mounts, note, run};
use plimsoll_lab::host::HostError;
use plimsoll_lab::host::sim::SimHost;
use plimsoll_lab::host::{Host, live::LiveHost};
use plimsoll_lab::scenario::{self, Setup};
use plimsoll_sim::cached_volume::CacheFigures;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

/// Numbers of the scheme of classes `postgresql-on-ext4`.
const JOURNAL: usize = 7;
const LOG: usize = 19;
const SYSTEM_TABLE: usize = 20;
const TABLES: std::ops::RangeInclusive<usize> = 23..=24;
const INDEX: usize = 25;
/// Where a server listens.
const SOCKET: &str = "/dev/shm/plimsoll-live/postgresql/.s.PGSQL.5432";

fn setup(scale: &str) -> Setup {
    let text = format!(
        "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"live\"]\ntakes = \"1 s\"\n\
         duration = \"120s\"\n\
         [machine]\ndevice = \"raid1e-5\"\nscheduler = \"noop\"\nfile_system = \"ext4\"\nvolume = \"1TiB\"\n\
         memory = \"48MiB\"\njournal = \"8MiB\"\n\
         [cache]\ndevice = \"ssd.x25-e\"\nsize = \"80MB\"\npolicy = \"selective\"\nclasses = \"postgresql-on-ext4\"\n\
         [database.query]\nqueries = [17, 2]\nscale = {scale}\nbuffers = \"640KiB\"\n\
         [row.r]\ntitle = \"t\"\nmeasure = 'run().took(\"query.2\")'\nunit = \"s\"\n"
    );
    let scenario = scenario::parse(&text, Path::new("live.toml"), &[]).unwrap_or_else(|error| panic!("{error}"));
    scenario.variants[0].setup.clone()
}

/// Processes of servers, which work in their data directory.
fn servers() -> Vec<PathBuf> {
    let data = note("mount/postgresql");
    let is_ours = |process: &PathBuf| std::fs::read_link(process.join("cwd")).is_ok_and(|at| at.starts_with(&data));
    std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(is_ours).collect()
}

fn pause() {
    let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
}

fn of(figures: &CacheFigures, class: usize) -> (u64, u64) {
    (figures.classes[class].reads + figures.classes[class].writes, figures.classes[class].units)
}

/// Broken on purpose and seen red: no class is said, so tables and indexes are as ext4 says.
/// Promise: lab-live-database.
#[test]
fn a_servers_files_have_its_classes_and_nothing_is_left() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let before = (knobs_before(), mounts(), 0);
    let result = run(&setup("0.03"));
    assert_eq!((knobs(), mounts(), servers().len()), before);
    assert!(!Path::new(SOCKET).exists());
    let result = match result {
        Err(HostError::NotRun(reason)) => return println!("not run: {reason}"),
        result => result.unwrap(),
    };
    let figures = &result.cache["query"];
    let tables: u64 = TABLES.map(|class| of(figures, class).1).sum();
    assert!(tables > 0 && of(figures, LOG).1 > 0 && of(figures, SYSTEM_TABLE).1 > 0, "{figures:?}");
    assert!(of(figures, INDEX).0 > 0 && of(figures, JOURNAL).1 > 0, "{figures:?}");
    let took = |source: &str| {
        let source = &result.sources[source];
        source.ended.unwrap().since(source.started.unwrap()).as_secs_f64()
    };
    let each = took("query.17") + took("query.2");
    assert!(took("query.17") > 0.0 && (took("query") - each).abs() < 1e-6, "{} of {each}", took("query"));
    assert_eq!(
        result.sources["query"].series("unit").unwrap().window(0, 120).iter().map(|second| second.count).sum::<u64>(),
        2
    );
}

/// Broken on purpose and seen red: a server in the host's own namespace.
/// Promise: lab-live-database.
#[test]
fn an_interrupted_run_leaves_no_server() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let before = (knobs_before(), mounts(), 0);
    let stop = Arc::new(AtomicBool::new(false));
    let running: LiveHost = host(stop.clone());
    let running = std::thread::spawn(move || running.run(&setup("0.05"), 1).err());
    while !Path::new(SOCKET).exists() && !running.is_finished() {
        pause();
    }
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/ipc")).ok();
    let ours = namespace(Path::new("/proc/self"));
    let is_apart = servers().iter().all(|server| namespace(server) != ours);
    assert!(is_apart, "what a server shares among its processes would outlive it");
    stop.store(true, Ordering::Relaxed);
    match running.join().unwrap() {
        Some(HostError::NotRun(reason)) => println!("not run: {reason}"),
        error => assert_eq!(error, Some(HostError::Failed("interrupted".to_owned()))),
    }
    assert_eq!((knobs(), mounts(), servers().len()), before);
}

#[test]
fn a_real_server_is_not_simulated() {
    let reason = "a real database is on the live host only";
    assert_eq!(SimHost.run(&setup("0.01"), 1).err(), Some(HostError::NotRun(reason.to_owned())));
}
