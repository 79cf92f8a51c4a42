//! Nothing is left behind by `plimsoll agent` and `plimsoll why`, on a disk that the test has mounted.

use crate::support::{Daemon, Site, text};
use crate::traces::{Traces, another_is_live, wait_until};
use crate::{MACHINE, can_run, start_tenant};
use rustix::process::Signal;
use std::fs::File;
use std::process::{Command, Stdio};
use std::sync::PoisonError;

const SIZE_BYTES: u64 = 256 << 20;
const AGENT: [&str; 5] = ["agent", "--mount", "disk", "--run-directory", "state"];

/// An ext4 in a file, mounted through a loop device that goes with the mount.
struct Disk<'site>(&'site Site);

impl<'site> Disk<'site> {
    fn new(site: &'site Site) -> Disk<'site> {
        File::create(site.path("image")).unwrap().set_len(SIZE_BYTES).unwrap();
        let disk = Disk(site);
        let made = disk.shell("mkdir disk && mkfs.ext4 -q image && mount -o loop,noatime image disk");
        assert!(made, "an ext4 on a loop device");
        disk
    }

    fn shell(&self, script: &str) -> bool {
        let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.0.folder.path()).env("PATH", path).status().unwrap().success()
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // After a failure a process may still use it; then it goes when that process has ended.
        let is_well = self.shell(if std::thread::panicking() { "umount --lazy disk" } else { "umount disk" });
        assert!(is_well || std::thread::panicking(), "unmounted");
    }
}

/// Runs a test with a mounted disk, and looks whether all is as it was before.
fn leaves_nothing(test: impl Fn(&Site)) {
    if !can_run() {
        return;
    }
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if another_is_live() {
        return println!("not run: another live scenario runs on this machine");
    }
    let site = Site::new("");
    let _disk = Disk::new(&site);
    let before = Traces::of_machine(&site);
    test(&site);
    Traces::settle(&site, &before);
}

fn stop(daemon: Daemon<'_>) {
    let log = daemon.stop();
    assert!(!log.contains("ERROR"), "{log}");
}

/// Promise: tenants-agent-end.
#[test]
fn of_an_agent() {
    for is_killed in [false, true] {
        leaves_nothing(|site| {
            let before = Traces::of_machine(site);
            let daemon = site.start(&AGENT);
            let mut tenant = start_tenant(site, "echo text > disk/a; sync -f disk/a; echo > begun; exec sleep 1000");
            wait_until("a tenant that stays", || site.path("begun").exists());
            assert!(Traces::of_machine(site) != before, "all this can be seen");
            if is_killed {
                daemon.signal(Signal::KILL);
                daemon.wait();
                stop(site.start(&AGENT));
            } else {
                stop(daemon);
            }
            // Keepers end with their tenants.
            tenant.kill().unwrap();
            tenant.wait().unwrap();
        });
    }
}

/// A directory stands where it wants to listen.
/// Promise: tenants-agent-end.
#[test]
fn of_an_agent_that_fails_to_start() {
    leaves_nothing(|site| {
        std::fs::create_dir_all(site.path("state/control.sock/in")).unwrap();
        let errors = text(&site.start_fails(&AGENT).stderr);
        assert!(errors.contains("control.sock"), "{errors}");
        std::fs::remove_dir_all(site.path("state/control.sock")).unwrap();
    });
}

/// Promise: tags-leftovers.
#[test]
fn of_a_why_that_is_killed() {
    leaves_nothing(|site| {
        let before = Traces::of_machine(site);
        let mut command = site.command(&["why", "disk", "--interval", "200ms", "--json"]);
        let mut why = command.stdout(File::create(site.path("rows")).unwrap()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("its first look", || std::fs::metadata(site.path("rows")).unwrap().len() > 0);
        assert!(Traces::of_machine(site) != before, "it can be seen");
        why.kill().unwrap();
        why.wait().unwrap();
    });
}
