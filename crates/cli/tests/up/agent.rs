//! `plimsoll agent`: a file system on a loop device that is none of ours, with tenants. Root and BPF only.
//!
//! Planted breaks that turned a test red: a daemon that leaves its run directory; a successor that says nothing of it;
//! a refusal to observe that ends with 1.

use crate::lease::unless_a_lease_runs_out;
use crate::support::{Daemon, Site, text};
use crate::tenants::{accounts, run, wait_until, watch_lease};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};

const SIZE_BYTES: u64 = 512 << 20;
pub const AGENT: [&str; 5] = ["agent", "--mount", "disk", "--run-directory", "state"];

/// A file system in a file, mounted through a loop device that goes with the mount.
pub struct Disk<'site> {
    site: &'site Site,
    folder: &'static str,
}

impl<'site> Disk<'site> {
    pub fn new(site: &'site Site, kind: &str) -> Disk<'site> {
        Disk::at(site, "disk", kind)
    }

    /// One that is mounted in `folder`, a path without slashes at its ends.
    pub fn at(site: &'site Site, folder: &'static str, kind: &str) -> Disk<'site> {
        let image = format!("image-{}", folder.replace('/', "-"));
        File::create(site.path(&image)).unwrap().set_len(SIZE_BYTES).unwrap();
        std::fs::create_dir_all(site.path(folder)).unwrap();
        do_it(site, &format!("mkfs.{kind} -q {image} && mount -o loop,noatime {image} {folder}"));
        Disk { site, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.site.path(self.folder).join(name)
    }

    /// Writes and syncs small files, as a process that is no tenant does.
    fn use_it(&self) {
        for n in 0..8 {
            let mut file = File::create(self.path(&format!("other{n}"))).unwrap();
            file.write_all(&[7; 4096]).unwrap();
            file.sync_all().unwrap();
        }
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // After a failure a process may still use it; then it goes when that process has ended.
        let lazy = if std::thread::panicking() { "--lazy " } else { "" };
        do_it(self.site, &format!("umount {lazy}{}", self.folder));
    }
}

pub fn do_it(site: &Site, script: &str) {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-c", script]).current_dir(site.folder.path()).env("PATH", path).output();
    let output = output.unwrap();
    let is_well = output.status.success();
    assert!(is_well || std::thread::panicking(), "{script}: {}", text(&output.stderr));
}

/// A site without a configuration, unless this machine cannot observe.
pub fn site() -> Option<Site> {
    let why = match rustix::process::geteuid().is_root() {
        false => Some("takes root"),
        true if cfg!(not(feature = "bpf")) => Some("built without BPF"),
        true => ["mkfs.ext4", "mkfs.xfs"].into_iter().find(|program| {
            !["/usr/sbin", "/sbin", "/usr/bin"].iter().any(|folder| PathBuf::from(folder).join(program).is_file())
        }),
    };
    if let Some(why) = why {
        println!("not run: {why}");
        return None;
    }
    Some(Site::new(""))
}

fn ask(site: &Site, arguments: &[&str]) -> Output {
    let output = site.ask(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

/// A tenant with a limit far below what it wants, held at its gate.
fn held_writer(site: &Site, disk: &Disk<'_>) -> std::process::Child {
    held_writer_of(site, disk, 64, "64kB/s")
}

/// The same, of a tenant that writes so many MiB with a limit of so much a second.
pub fn held_writer_of(site: &Site, disk: &Disk<'_>, mib: u64, limit: &str) -> std::process::Child {
    ask(site, &["pool", "add", "backup", "--limit", limit]);
    let of = format!("of={}", disk.path("b").display());
    let count = format!("count={}", mib * 16);
    let mut writer = run(site, &["--pool", "backup"], &["dd", "if=/dev/zero", &of, "bs=64k", &count]);
    let writer = writer.stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until("its session", || accounts(site).iter().any(|path| path.starts_with("backup/dd#")));
    wait_until("what it wrote", || std::fs::metadata(disk.path("b")).is_ok_and(|file| file.len() > 0));
    writer
}

pub fn start<'site>(site: &'site Site) -> Daemon<'site> {
    site.start(&AGENT)
}

/// Promise: tenants-observed.
#[test]
fn a_tenant_of_an_observed_disk_is_held_to_its_limit_and_no_other_is() {
    unless_a_lease_runs_out(|| {
        for kind in ["ext4", "xfs"] {
            let Some(site) = site() else { return };
            let disk = Disk::new(&site, kind);
            let daemon = start(&site);
            let said = daemon.served.join("\n");
            assert!(said.contains("device disk: scheduler split_token\n"), "{said}");
            assert!(said.contains(&format!("device disk: {kind} on ")) && said.contains(", observed\n"), "{said}");
            assert!(said.contains("the device was mounted before") && said.contains("is not known"), "{said}");
            let lease = watch_lease(&site);
            let mut writer = held_writer(&site, &disk);
            disk.use_it();
            assert!(writer.try_wait().unwrap().is_none(), "{kind}: at its limit it would take a quarter of an hour");
            drop(lease);
            let pools = site.json(&["pool", "list"]);
            assert_eq!((&pools[0]["path"], &pools[0]["device"]), (&"backup".into(), &"disk".into()));
            ask(&site, &["pool", "set", "backup", "--limit", "none"]);
            assert!(writer.wait().unwrap().success());
            wait_until("the end of its session", || accounts(&site) == ["disk", "others#1", "backup"]);
            let log = daemon.stop();
            assert!(!log.contains("ERROR"), "{log}");
            assert_eq!(std::fs::metadata(disk.path("b")).unwrap().len(), 64 << 20);
        }
    });
}

/// Every user may make files where the words are.
/// Promise: daemon-prepared-path.
#[test]
fn a_directory_that_was_there_before_and_is_not_ours_is_not_used_for_gates() {
    let Some(site) = site() else { return };
    let _disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    let [directory] = <[PathBuf; 1]>::try_from(site.memory_directories()).unwrap();
    daemon.stop();
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o1777)).unwrap();
    let said = text(&site.start_fails(&AGENT).stderr);
    let expected = format!("{} cannot be used: others may write to it (mode 1777)", directory.display());
    assert!(said.contains(&expected), "{said}");
    assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o7777, 0o1777, "left as it is");
    std::fs::remove_dir(&directory).unwrap();
    start(&site).stop();
}

/// Nothing was dirty before the tags were there.
#[test]
fn a_disk_may_be_mounted_when_the_agent_serves() {
    unless_a_lease_runs_out(|| {
        let Some(site) = site() else { return };
        let disk = Disk::new(&site, "ext4");
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let place = site.path("disk").canonicalize().unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == place.to_str()).unwrap();
        let device = line.split(' ').next().unwrap();
        // Opened once more, the loop device outlives its mount.
        let _open = File::open(device).unwrap();
        do_it(&site, "umount disk");
        let daemon = site.start(&["agent", "--mount", device, "--run-directory", "state"]);
        let said = daemon.served.join("\n");
        assert!(said.contains("not mounted yet") && !said.contains("was mounted before"), "{said}");
        do_it(&site, &format!("mount -o noatime {device} disk"));
        let files = format!("/proc/{}/fd", site.json(&["status"])["process"]);
        let is_place = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|path| path == place);
        wait_until("its files", || std::fs::read_dir(&files).unwrap().flatten().any(is_place));
        let lease = watch_lease(&site);
        let mut writer = held_writer(&site, &disk);
        disk.use_it();
        assert!(writer.try_wait().unwrap().is_none());
        drop(lease);
        ask(&site, &["pool", "set", "backup", "--limit", "none"]);
        assert!(writer.wait().unwrap().success());
        let log = daemon.stop();
        assert!(log.contains(&format!("{device} is mounted on ")), "{log}");
    });
}

/// The privileges that BPF takes; an agent with the rest of root's privileges may do all else.
/// Promise: tenants-no-bpf.
#[test]
fn where_bpf_is_not_permitted_tenants_are_charged_for_what_they_submit_and_the_agent_says_so() {
    unless_a_lease_runs_out(|| {
        let Some(site) = site() else { return };
        let disk = Disk::new(&site, "ext4");
        let command = site.command(&AGENT);
        let mut without = Command::new("setpriv");
        without
            .args(["--bounding-set", "-sys_admin,-bpf,-perfmon"])
            .arg(command.get_program())
            .args(command.get_args());
        without.current_dir(site.folder.path());
        let daemon = site.start_command(without);
        let said = daemon.served.join("\n");
        assert!(
            said.contains("causes are known of nothing, tenants are charged for what their processes submit"),
            "{said}"
        );
        assert!(said.contains("BPF is not permitted here"), "{said}");
        // So much that it is looked at before it is through.
        let lease = watch_lease(&site);
        let mut writer = held_writer_of(&site, &disk, 384, "64kB/s");
        disk.use_it();
        assert!(writer.try_wait().unwrap().is_none(), "at its limit it would take a quarter of an hour");
        drop(lease);
        ask(&site, &["pool", "set", "backup", "--limit", "none"]);
        assert!(writer.wait().unwrap().success());
        wait_until("the end of its session", || accounts(&site) == ["disk", "others#1", "backup"]);
        let log = daemon.stop();
        assert!(!log.contains("ERROR"), "{log}");
    });
}

#[test]
fn a_recording_of_an_observed_disk_has_what_was_seen() {
    let Some(site) = site() else { return };
    let disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    let written = || {
        let accounts = site.json(&["status"])["devices"][0]["accounts"].clone();
        accounts.as_array().unwrap().iter().find(|account| account["path"] == "others#1").unwrap()["write_latency"]["count"]
            .as_u64()
            .unwrap()
    };
    let mut record = site.command(&["record", "--out", "trace", "--format", "msr", "--socket", "state/control.sock"]);
    let mut record = record.stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_until("the beginning", || site.path("trace").exists());
    let before = written();
    disk.use_it();
    // A writer has its answer before the daemon has fetched what was seen.
    wait_until("what was seen", || written() >= before + 8);
    rustix::process::kill_process(rustix::process::Pid::from_child(&record), Signal::INT).unwrap();
    assert!(record.wait().unwrap().success());
    let trace = std::fs::read_to_string(site.path("trace")).unwrap();
    // What was under way at the end has no time.
    let writes = trace.lines().filter(|line| line.contains(",Write,") && !line.ends_with(",0"));
    assert!(writes.count() >= 8, "{trace}");
    daemon.stop();
}

/// Promise: tenants-agent-end.
#[test]
fn an_agent_that_ends_lets_all_calls_go_and_leaves_nothing() {
    let Some(site) = site() else { return };
    let disk = Disk::new(&site, "ext4");
    let daemon = start(&site);
    let mut writer = held_writer(&site, &disk);
    let log = daemon.stop();
    assert!(!log.contains("ERROR"), "{log}");
    assert!(writer.wait().unwrap().success(), "its gate is open");
    assert!(site.memory_directories().is_empty());
}

/// Promise: tenants-agent-end.
#[test]
fn a_killed_agent_holds_no_process_and_its_successor_says_what_it_found() {
    unless_a_lease_runs_out(|| {
        let Some(site) = site() else { return };
        let disk = Disk::new(&site, "ext4");
        let daemon = start(&site);
        let mut writer = held_writer(&site, &disk);
        daemon.signal(Signal::KILL);
        daemon.wait();
        assert!(writer.wait().unwrap().success(), "the lease has run out");
        let successor = start(&site);
        assert_eq!(accounts(&site), ["disk", "others#1"]);
        let lease = watch_lease(&site);
        let mut writer = held_writer(&site, &disk);
        assert!(writer.try_wait().unwrap().is_none());
        drop(lease);
        let log = successor.stop();
        assert!(log.contains("recovered from a predecessor: the gates in "), "{log}");
        assert!(writer.wait().unwrap().success());
        assert!(site.memory_directories().is_empty());
    });
}

#[test]
fn what_cannot_be_observed_is_refused_before_anything_starts() {
    let site = Site::of_normal_user("[device.d]\nobserve = \"/\"\n");
    let agent = |arguments: &[&str]| {
        let output = site.command(&[&["agent", "--mount"], arguments].concat()).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, message) = agent(&["/proc"]);
    assert_eq!((code, message.as_str()), (Some(2), "--mount: /proc: proc has no disk of its own\n"));
    let (code, message) = agent(&["/proc/self"]);
    assert_eq!(code, Some(2), "{message}");
    let output = site.up_fails();
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("not run: observing / takes root"), "{}", text(&output.stderr));
}

/// A disk as LVM and dm-crypt make them: dm-linear on a loop device, with a file system that is mounted.
struct Mapped<'site> {
    site: &'site Site,
}

impl<'site> Mapped<'site> {
    /// Unless this machine has no device mapper.
    fn new(site: &'site Site) -> Option<Mapped<'site>> {
        if !Command::new("dmsetup").arg("version").output().is_ok_and(|output| output.status.success()) {
            println!("not run: dmsetup is missing, or the kernel has no device mapper");
            return None;
        }
        File::create(site.path("image")).unwrap().set_len(SIZE_BYTES).unwrap();
        let mapped = Mapped { site };
        let sectors = SIZE_BYTES / 512;
        let name = mapped.name();
        do_it(site, "mkdir disk && losetup --find --show image > device");
        // Without udev dmsetup makes the node itself.
        do_it(site, &format!("DM_DISABLE_UDEV=1 dmsetup create {name} --table \"0 {sectors} linear $(cat device) 0\""));
        do_it(site, &format!("mkfs.ext4 -q /dev/mapper/{name} && mount -o noatime /dev/mapper/{name} disk"));
        Some(mapped)
    }

    fn name(&self) -> String {
        format!("plimsoll-test-{}", std::process::id())
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        let script = format!(
            "umount disk; DM_DISABLE_UDEV=1 dmsetup remove --retry {}; losetup --detach $(cat device)",
            self.name()
        );
        do_it(self.site, &script);
    }
}

/// It has no requests of its own that could be seen: the agent says so, reads are not held, and writes are, as pages
/// become dirty.
/// Promise: tenants-stacked-disk.
#[test]
fn a_disk_that_is_made_of_others_is_said_to_be() {
    unless_a_lease_runs_out(|| {
        let Some(site) = site() else { return };
        let Some(_mapped) = Mapped::new(&site) else { return };
        std::fs::write(site.path("disk").join("cold"), vec![7; 8 << 20]).unwrap();
        do_it(&site, "sync disk/cold && dd of=disk/cold oflag=nocache conv=notrunc,fdatasync count=0 status=none");
        let daemon = start(&site);
        let said = daemon.served.join("\n");
        let words = "consists of other disks, so its requests cannot be observed: reads are not charged, and writes only when pages";
        assert!(said.lines().any(|line| line.starts_with("device disk: /dev/") && line.contains(words)), "{said}");
        ask(&site, &["pool", "add", "backup", "--limit", "64kB/s"]);
        let command = |words: &[&str]| {
            let mut command = run(&site, &["--pool", "backup"], words);
            command.stderr(std::process::Stdio::null()).spawn().unwrap()
        };
        let cold = format!("if={}", site.path("disk/cold").display());
        let mut reader = command(&["dd", &cold, "of=/dev/null", "bs=64k"]);
        assert!(reader.wait().unwrap().success(), "at the limit it would take two minutes");
        let of = format!("of={}", site.path("disk/b").display());
        let lease = watch_lease(&site);
        let mut writer = command(&["dd", "if=/dev/zero", &of, "bs=64k", "count=1024"]);
        wait_until("what it wrote", || std::fs::metadata(site.path("disk/b")).is_ok_and(|file| file.len() > 0));
        assert!(writer.try_wait().unwrap().is_none(), "at its limit it would take a quarter of an hour");
        drop(lease);
        ask(&site, &["pool", "set", "backup", "--limit", "none"]);
        assert!(writer.wait().unwrap().success());
        let log = daemon.stop();
        assert!(!log.contains("ERROR"), "{log}");
    });
}
