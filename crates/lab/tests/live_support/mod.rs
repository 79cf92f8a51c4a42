//! Shared by tests of the live host: a host with this test binary as its processes, and the state of the machine that
//! must be as before.

use plimsoll_lab::host::live::{LiveHost, ProcessProgram, serve_process};
use plimsoll_lab::host::{Host, HostError};
use plimsoll_lab::results::RunResult;
use plimsoll_lab::scenario::Setup;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Makes a child of this binary a process of a scenario.
const PROCESS_VARIABLE: &str = "PLIMSOLL_TEST_LIVE_PROCESS";

/// Runs share the machine's knobs and a folder.
pub static MACHINE: Mutex<()> = Mutex::new(());

/// Not a test by itself: the processes of the scenarios below.
#[test]
fn process_of_a_scenario() {
    if std::env::var_os(PROCESS_VARIABLE).is_some() {
        serve_process().unwrap();
    }
}

pub fn host(stop: Arc<AtomicBool>) -> LiveHost {
    // env(1) becomes this binary, which then is such a process.
    let binary = std::env::current_exe().unwrap().into_os_string();
    let variable = format!("{PROCESS_VARIABLE}=1").into();
    let arguments = vec![variable, binary, "--exact".into(), "live_support::process_of_a_scenario".into()];
    LiveHost::new(ProcessProgram { path: "env".into(), arguments }, stop)
}

pub fn run(setup: &Setup) -> Result<RunResult, HostError> {
    host(Arc::default()).run(setup, 1)
}

pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("not run: mounting takes root and /dev/fuse");
    }
    can
}

pub fn note(name: &str) -> PathBuf {
    std::env::temp_dir().join("plimsoll-live").join(name)
}

/// All sysctls of dirty pages, of which a live scenario turns some.
pub fn knobs() -> BTreeMap<String, String> {
    let names =
        std::fs::read_dir("/proc/sys/vm").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let dirty = names.filter(|name| name.starts_with("dirty"));
    dirty.map(|name| (name.clone(), std::fs::read_to_string(format!("/proc/sys/vm/{name}")).unwrap())).collect()
}

/// The sysctls as they are to be again, not as a killed run left them.
pub fn knobs_before() -> BTreeMap<String, String> {
    host(Arc::default()).recover().unwrap();
    knobs()
}

pub fn mounts() -> usize {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let folder = note("").display().to_string();
    table.lines().filter(|line| line.contains(&folder)).count()
}
