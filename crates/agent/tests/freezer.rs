//! The freezer: the instrument that holds a tenant whatever program it runs.
//!
mod support;

use plimsoll_agent::freezer::cgroup::{Hierarchy, move_into};
use plimsoll_agent::{Enrollee, Tenant};
use plimsoll_core::{Allocation, Rate, Span};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_serve::attach::FileSystemKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{Rig, go};

const MIB: u64 = 1 << 20;
/// Bytes a second that a tenant may move.
const LIMIT: u64 = 5 * MIB;
/// MiB that each program would move: without an instrument that takes it less than three seconds.
const WANTED_MIB: u64 = 600;
/// How long each program runs.
const RUN: Span = Span::from_secs(3);
/// What a program may move before the freezer has learned of it, on a machine that is busy with other work.
const OVERSHOOT: u64 = 40 * MIB;

fn limited(bytes_per_second: u64) -> Allocation {
    Allocation { limit: Some(Rate::BytesPerSecond(bytes_per_second as f64)), ..Allocation::default() }
}

/// `freezer.c`, linked with `flags`.
fn program(rig: &Rig, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/freezer.c");
    let program = rig.outside(name);
    let warnings = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"];
    let built = Command::new("cc").args(warnings).args(flags).arg(source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    program
}

fn start(rig: &Rig, tenant: &Tenant, program: &Path, way: &str) -> Child {
    let path = rig.path(way);
    let mut child = rig.start(tenant, &format!("exec {} {way} {} {WANTED_MIB}", program.display(), path.display()));
    go(&mut child);
    child
}

/// Bytes of a file that have a place on the disk, or are promised one.
fn bytes_in(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.blocks() * 512)
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Each way writes for three seconds as a tenant of 5 MiB/s.
/// Planted breaks: no freezer (each way moves 300 MiB or more); rings that the filter refuses.
/// Promise: freezer-holds.
#[test]
fn a_tenant_is_held_whatever_program_it_runs() {
    let Some(rig) = Rig::observing(FileSystemKind::Ext4, "split_token") else { return };
    let (of_libc, of_its_own) = (program(&rig, "dynamic", &[]), program(&rig, "static", &["-static"]));
    let mut failures = Vec::new();
    let ways = [
        (&of_its_own, "write"),
        (&of_libc, "mmap"),
        (&of_its_own, "direct"),
        (&of_libc, "stdio"),
        (&of_its_own, "aio"),
        (&of_its_own, "uring"),
    ];
    for (program, way) in ways {
        let tenant = rig.join(way, limited(LIMIT));
        // A tenant that the freezer holds already may have rings.
        let mut first = rig.start(&tenant, "read end");
        assert_eq!(rig.station().holding(&tenant).held_by, ["shim", "notifications", "freezer"]);
        let child = start(&rig, &tenant, program, way);
        let begun = monotonic_now();
        rig.wait_until("the end of a run", || monotonic_now().since(begun) >= RUN);
        let moved = bytes_in(&rig.path(way));
        let allowed = (2.0 * LIMIT as f64 * monotonic_now().since(begun).as_secs_f64()) as u64 + OVERSHOOT;
        end(child);
        go(&mut first);
        end(first);
        println!("{way}: {} MiB of {} allowed", moved / MIB, allowed / MIB);
        if moved > allowed || moved < MIB {
            failures.push(format!("{way}: {moved} bytes, allowed {allowed}"));
        }
        rig.station().leave(&tenant).unwrap();
        std::fs::remove_file(rig.path(way)).unwrap();
    }
    assert!(failures.is_empty(), "{failures:?}");
}

/// Programs that pass by, of a tenant with a limit that they do not reach, and of one without a limit.
/// Planted break: a tenant is frozen for each byte that it moves.
/// Promise: freezer-fair.
#[test]
fn a_tenant_within_its_promise_is_never_frozen() {
    let Some(rig) = Rig::observing(FileSystemKind::Ext4, "split_token") else { return };
    let program = program(&rig, "static", &["-static"]);
    for (way, allocation, least) in [("cpu", limited(LIMIT), 500), ("write", Allocation::default(), WANTED_MIB * MIB)] {
        let tenant = rig.join(way, allocation);
        let child = start(&rig, &tenant, &program, way);
        let path = rig.path(way);
        rig.wait_until("its work", || std::fs::metadata(&path).is_ok_and(|file| file.len() >= least));
        let holding = rig.station().holding(&tenant);
        assert_eq!((holding.not_held, holding.cgroups.len(), holding.cgroups[0].freezes), (None, 1, 0), "{way}");
        end(child);
    }
}

/// A tenant that runs already, in a cgroup of its own.
/// Promise: freezer-holds.
#[test]
fn a_cgroup_that_exists_is_frozen_where_it_is() {
    let Some(rig) = Rig::observing(FileSystemKind::Ext4, "split_token") else { return };
    let program = program(&rig, "static", &["-static"]);
    let tenant = rig.join("a", limited(LIMIT));
    let Some(hierarchy) = Hierarchy::all().into_iter().next() else { return };
    let cgroup = hierarchy.mount.join(format!("test-exists-{}", std::process::id()));
    std::fs::create_dir(&cgroup).unwrap();
    let mut command = Command::new("sh");
    let script = format!("read go; exec {} write {} {WANTED_MIB}", program.display(), rig.path("a").display());
    let mut child = command.args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
    move_into(&cgroup, child.id()).unwrap();
    rig.station().enroll(&tenant, Enrollee::Process(child.id())).unwrap();
    let holding = rig.station().holding(&tenant);
    go(&mut child);
    rig.wait_until("a freeze", || rig.station().holding(&tenant).cgroups[0].freezes > 0);
    assert!(bytes_in(&rig.path("a")) < WANTED_MIB / 2 * MIB);
    rig.station().leave(&tenant).unwrap();
    end(child);
    std::fs::remove_dir(&cgroup).unwrap();
    assert_eq!((holding.not_held, &holding.cgroups[0].directory), (None, &cgroup));
}
