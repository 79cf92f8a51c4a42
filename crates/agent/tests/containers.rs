//! Containers of real runtimes join by the listener that they hand over, and leave when they have gone.
//!
//! Broken on purpose and seen red: no cgroup enrolled; no process enrolled; any cgroup taken for the container's own;
//! every listener a tenant of its own; calls by path from elsewhere let through; a refused container's listener closed.

#[path = "../../gates/tests/support/runtime.rs"]
mod runtime;
mod support;

use plimsoll_core::Allocation;
use plimsoll_gates::Filter;
use plimsoll_serve::attach::FileSystemKind;
use runtime::{Cgroups, Runtime};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::lease::unless_a_lease_runs_out;
use support::{POOL, Rig};

const MIB: u64 = 1 << 20;
/// MiB of a container that will be held.
const LONG_MIB: u64 = 512;
/// The programs of the machine, as far as a shell and `dd` need them.
const FOLDERS: [&str; 4] = ["/bin", "/usr", "/lib", "/lib64"];

/// A container that does what files in the volume tell it.
struct Container<'a> {
    rig: &'a Rig,
    runtime: Runtime,
    child: Child,
}

impl<'a> Container<'a> {
    /// Runs `script` behind the filter; the listener is handed over with `metadata`.
    fn start(rig: &'a Rig, runtime: Runtime, metadata: &str, script: &str) -> Container<'a> {
        let volume = rig.path("");
        let folders = FOLDERS.iter().map(Path::new).filter(|folder| folder.exists());
        let folders: Vec<_> = folders.chain(std::iter::once(volume.as_path())).collect();
        let arguments = ["sh", "-c", script].map(str::to_owned);
        runtime.describe(&arguments, &folders, &Filter::default().oci_profile(&rig.station().listeners(), metadata));
        let mut command = runtime.run(&runtime.bundle.path().join("pid"));
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Container { rig, runtime, child }
    }

    fn ends_well(&mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn wait_for(&mut self, path: &Path) {
        self.rig.wait_until(&format!("{}", path.display()), || path.exists());
    }
}

impl Drop for Container<'_> {
    /// The volume cannot be unmounted as long as a container sees it.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.runtime.delete();
            let _ = self.child.wait();
        }
    }
}

/// With which cgroups each runtime is tried; runc does not do without.
const RUNTIMES: [(&str, Cgroups); 5] = [
    ("runc", Cgroups::Version1),
    ("crun", Cgroups::Version2),
    ("runc", Cgroups::Version2),
    ("crun", Cgroups::Version1),
    ("crun", Cgroups::None),
];

fn each(runtimes: &[(&'static str, Cgroups)], test: impl Fn(Rig, Runtime)) {
    for &(program, cgroups) in runtimes {
        println!("{program}, {cgroups:?}");
        let Some(runtime) = Runtime::new(program, cgroups) else { continue };
        let Some(rig) = Rig::new(FileSystemKind::Ext4, "split_token") else { return };
        test(rig, runtime);
    }
}

/// Sessions but that of the mount.
fn sessions(rig: &Rig) -> Vec<String> {
    let accounts = rig.accounts().into_iter().filter(|path| path.contains('#') && path != "pool/mount#1");
    accounts.map(|path| path.split('#').next().unwrap().to_owned()).collect()
}

/// A script that writes so many MiB and says that it has.
fn write(rig: &Rig, name: &str, mib: u64) -> String {
    let path = rig.path(name);
    let (path, count) = (path.display(), mib * 16);
    format!("dd if=/dev/zero of={path} bs=64k count={count} status=none && : > {path}-written")
}

fn wait_for(path: PathBuf) -> String {
    format!("while [ ! -e {} ]; do sleep 0.05; done", path.display())
}

/// Promise: tenants-container.
#[test]
fn a_container_joins_when_it_starts_is_charged_and_leaves_when_it_has_gone() {
    unless_a_lease_runs_out(|| {
        each(&RUNTIMES, |rig, runtime| {
            // What a shell forked before it was known is found by the cgroup. Without one it must have waited at its
            // gate first.
            let first = if runtime.cgroups == Cgroups::None {
                format!(": > {}; ", rig.path("first").display())
            } else {
                String::new()
            };
            let script = format!("{first}({}) && {}", write(&rig, "a", 8), wait_for(rig.path("end")));
            let mut container = Container::start(&rig, runtime, "name=backup,weight=50", &script);
            container.wait_for(&rig.path("a-written"));
            assert_eq!(sessions(&rig), ["pool/backup"]);
            let status = rig.engine.status().unwrap();
            let account = status.accounts.iter().find(|account| account.path.starts_with("pool/backup#")).unwrap();
            assert_eq!(account.allocation, Allocation { weight: 50, ..Allocation::default() });
            rig.sync();
            let written = rig.bytes("backup");
            assert!((8 * MIB..9 * MIB).contains(&written), "{written}");
            std::fs::write(rig.path("end"), "").unwrap();
            container.ends_well();
            rig.wait_until("the end of its session", || sessions(&rig).is_empty());
        });
    });
}

/// Promise: tenants-container.
#[test]
fn what_is_executed_in_a_container_belongs_to_it() {
    each(&RUNTIMES[..2], |rig, runtime| {
        let script = format!(": > {} && {}", rig.path("begun").display(), wait_for(rig.path("end")));
        let mut container = Container::start(&rig, runtime, "", &script);
        let name = format!("{POOL}/{}", container.runtime.container);
        container.wait_for(&rig.path("begun"));
        let executed = container.runtime.execute(&["sh", "-c", &write(&rig, "b", 8)]).status().unwrap();
        assert!(executed.success(), "{executed}");
        assert_eq!(sessions(&rig), [name.as_str()]);
        rig.sync();
        assert!(rig.bytes(&container.runtime.container) >= 8 * MIB);
        std::fs::write(rig.path("end"), "").unwrap();
        container.ends_well();
        rig.wait_until("the end of its session", || sessions(&rig).is_empty());
    });
}

/// What it wants to write takes hours at its limit. There is no shim in a container: its writes are held by the freezer,
/// which leaves the container's own cgroup where it is.
///
/// Planted break: containers are not given to the freezer (all of it is written at once).
/// Promise: tenants-container, freezer-holds.
#[test]
fn a_container_beyond_its_limit_waits_at_its_gate_and_no_other_does() {
    unless_a_lease_runs_out(|| {
        each(&RUNTIMES[..2], |rig, runtime| {
            let script = format!("{} && : > {}", write(&rig, "a", LONG_MIB), rig.path("late").display());
            let mut container = Container::start(&rig, runtime, "name=slow,limit=64kB/s", &script);
            rig.wait_until("its session", || sessions(&rig) == ["pool/slow"]);
            rig.wait_until("what it writes", || std::fs::metadata(rig.path("a")).is_ok_and(|file| file.len() >= MIB));
            for n in 0..8 {
                let file = std::fs::File::create(rig.path(&format!("other-{n}"))).unwrap();
                file.sync_all().unwrap();
            }
            let a_while = rustix::thread::Timespec { tv_sec: 1, tv_nsec: 0 };
            let _ = rustix::thread::nanosleep(&a_while);
            let written = std::fs::metadata(rig.path("a")).unwrap().len();
            assert!(!rig.path("late").exists() && written < LONG_MIB * MIB / 2, "{written}");
            rig.engine.change_account(&rig.session("slow"), Allocation::default()).unwrap();
            container.ends_well();
            assert!(rig.path("late").exists());
        });
    });
}

/// With its listener closed its calls would fail for ever.
/// Promise: tenants-container.
#[test]
fn a_container_with_refused_wishes_is_let_through_and_is_no_tenant() {
    each(&RUNTIMES[..2], |rig, runtime| {
        for (number, wish) in ["pool=nowhere", "limit=fast", "reserve=200%"].into_iter().enumerate() {
            let Some(runtime) = runtime.again() else { return };
            let script = format!("{} && sync", write(&rig, &format!("a{number}"), 1));
            let mut container = Container::start(&rig, runtime, wish, &script);
            container.ends_well();
            assert_eq!(sessions(&rig), [""; 0]);
        }
    });
}

/// Promise: tenants-container.
#[test]
fn a_cgroup_that_others_are_in_is_not_taken_for_a_containers() {
    let Some(rig) = Rig::new(FileSystemKind::Ext4, "noop") else { return };
    // Without a cgroup manager it stays in the cgroups of this test.
    let Some(runtime) = Runtime::new("crun", Cgroups::None) else { return };
    let script = format!("{} && {}", write(&rig, "a", 1), wait_for(rig.path("end")));
    let mut container = Container::start(&rig, runtime, "name=c", &script);
    container.wait_for(&rig.path("a-written"));
    rig.sync();
    let before = rig.bytes("c");
    let written = Command::new("sh").args(["-c", &write(&rig, "mine", 8)]).status().unwrap();
    assert!(written.success());
    rig.sync();
    assert!(rig.bytes("c") - before < MIB, "what others in its cgroup write is not its own");
    std::fs::write(rig.path("end"), "").unwrap();
    container.ends_well();
}
