//! A file system, mounted, and a station above it: on a volume in memory, or on an observed disk.
#![allow(dead_code, reason = "each test binary uses a part of it")]

#[path = "../../../gates/tests/support/lease.rs"]
pub mod lease;

use lease::LeaseWatch;
use plimsoll_agent::mounts::MountedDisk;
use plimsoll_agent::{AgentError, Disk, Enrollee, Station, StationConfig, Tenant};
use plimsoll_core::{AccountId, Allocation, DeviceProfile, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::{EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::{Filter, GateClass, words};
use plimsoll_serve::attach::{AttachPlan, Attachment, FileSystemKind, FileSystemPlan, Format, recover};
use plimsoll_serve::fuse::FuseConnection;
use plimsoll_tags::TagsError;
use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const SIZE_BYTES: u64 = 1 << 30;
const VOLUME: &str = "disk";
pub const POOL: &str = "pool";
/// For what must come, on the slowest machine.
const WAIT_MAX: Span = Span::from_secs(100);
const PAUSE_MIN: Span = Span::from_millis(5);
pub const DIRTY_BYTES_MAX: u64 = 256 << 20;

/// Where programs are, with those of administrators.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Everything is taken down in the order of its parts when it is dropped.
pub struct Rig {
    /// As long as the station is open: see [`lease`].
    lease: Option<LeaseWatch>,
    station: Option<Station>,
    mounted: Mounted,
    pub engine: EngineHandle,
    config: StationConfig,
    directory: TempDir,
    run_directory: TempDir,
}

/// Keepers that wait until they are let go.
pub struct SlowKeepers {
    held: PathBuf,
    begun: PathBuf,
}

impl SlowKeepers {
    pub fn has_begun(&self) -> bool {
        self.begun.exists()
    }

    pub fn go_on(&self) {
        std::fs::remove_file(&self.held).unwrap();
    }
}

/// What is mounted, and how it goes away.
enum Mounted {
    Volume(Box<Attachment>),
    /// A loop device on a file; it goes with the mount.
    Loop(PathBuf),
}

impl Mounted {
    /// Says what was done to a volume.
    fn detach(&mut self) -> Vec<String> {
        match self {
            Mounted::Volume(attachment) => attachment.detach().iter().map(ToString::to_string).collect(),
            Mounted::Loop(target) => {
                let unmount = |options: &[&str]| {
                    let ended = Command::new("umount").args(options).arg(&*target).stderr(Stdio::null()).status();
                    ended.is_ok_and(|status| status.success())
                };
                // A child that another test forks has this process's files open until it executes.
                let end = monotonic_now() + WAIT_MAX;
                while !unmount(&[]) {
                    if std::thread::panicking() || monotonic_now() >= end {
                        // The lazy unmount completes when the processes that use it have ended.
                        unmount(&["--lazy"]);
                        assert!(std::thread::panicking(), "not unmounted");
                        break;
                    }
                    let pause = rustix::thread::Timespec::try_from(std::time::Duration::from(PAUSE_MIN)).unwrap();
                    let _ = rustix::thread::nanosleep(&pause);
                }
                Vec::new()
            }
        }
    }
}

/// A device without a model, so that only a scheduler makes I/O slow.
fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "device".to_owned(),
        capacity_bytes: SIZE_BYTES,
        worst_case_runs_per_second: 20_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    }
}

impl Rig {
    /// On a volume under `scheduler`; `None`, with the reason printed, where it cannot be.
    pub fn new(kind: FileSystemKind, scheduler: &str) -> Option<Rig> {
        Rig::unless_impossible(|| Rig::on_volume(kind, scheduler))
    }

    /// On a loop device that was mounted before, under `scheduler`; `None`, with the reason printed, where it cannot
    /// be.
    pub fn observing(kind: FileSystemKind, scheduler: &str) -> Option<Rig> {
        Rig::unless_impossible(|| Rig::on_loop(&kind.to_string(), scheduler, false))
    }

    /// The same on btrfs, which no volume has.
    pub fn observing_btrfs(scheduler: &str) -> Option<Rig> {
        Rig::unless_impossible(|| {
            // Opening a context loads the module, where it is one.
            if let Err(error) = rustix::mount::fsopen("btrfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC) {
                return Err(TagsError::NotRun(format!("this kernel has no btrfs: {error}")).into());
            }
            if Command::new("mkfs.btrfs").arg("--version").env("PATH", path()).output().is_err() {
                return Err(TagsError::NotRun("there is no mkfs.btrfs".to_owned()).into());
            }
            Rig::on_loop("btrfs", scheduler, false)
        })
    }

    /// The same, where tenants are charged for what their processes submit.
    pub fn observing_submitters(kind: FileSystemKind, scheduler: &str) -> Option<Rig> {
        Rig::unless_impossible(|| Rig::on_loop(&kind.to_string(), scheduler, true))
    }

    fn unless_impossible(make: impl FnOnce() -> Result<Rig, AgentError>) -> Option<Rig> {
        if !rustix::process::geteuid().is_root() {
            println!("not run: needs root for mounts, loop devices and BPF programs");
            return None;
        }
        match make() {
            Ok(rig) => Some(rig),
            Err(AgentError::Tags(TagsError::NotRun(why))) => {
                println!("not run: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn directories() -> (TempDir, TempDir) {
        let directory = tempfile::Builder::new().prefix("plimsoll-agent-").tempdir().unwrap();
        let run_directory = tempfile::Builder::new().prefix("plimsoll-agent-").tempdir_in("/dev/shm").unwrap();
        for path in [directory.path(), run_directory.path()] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        (directory, run_directory)
    }

    fn config(disk: Disk, device: PathBuf, directory: &TempDir, run_directory: &TempDir) -> StationConfig {
        StationConfig {
            disk,
            device,
            run_directory: run_directory.path().to_owned(),
            program_directory: directory.path().to_owned(),
            filter: Filter::default(),
            dirty_bytes_max: DIRTY_BYTES_MAX,
            tasks_max: None,
            containers: None,
            classes: Some(directory.path().join("classes.sock")),
        }
    }

    fn on_loop(kind: &str, scheduler: &str, is_by_submitter: bool) -> Result<Rig, AgentError> {
        let (directory, run_directory) = Rig::directories();
        let (image, target) = (directory.path().join("image"), directory.path().join("mounted"));
        std::fs::File::create(&image).unwrap().set_len(SIZE_BYTES).unwrap();
        std::fs::create_dir(&target).unwrap();
        let do_it = |program: &str, arguments: &[&OsStr]| {
            let output = Command::new(program).args(arguments).env("PATH", path()).output().unwrap();
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        };
        do_it(&format!("mkfs.{kind}"), &["-q".as_ref(), image.as_ref()]);
        do_it("mount", &["-o".as_ref(), "loop,noatime".as_ref(), image.as_ref(), target.as_ref()]);
        // From here on it is unmounted whatever happens.
        let mounted = Mounted::Loop(target.clone());
        let engine = spawn(EngineConfig::new(profile(), scheduler)).unwrap();
        let device = MountedDisk::of(&target)?.device;
        let disk = Disk::Observed { pool: POOL.to_owned(), is_by_submitter };
        let config = Rig::config(disk, device, &directory, &run_directory);
        let mut rig = Rig { lease: None, station: None, mounted, engine, config, directory, run_directory };
        rig.engine.open_pool(POOL, Allocation::default()).unwrap();
        let station = Station::open(&rig.engine, rig.config.clone())?;
        rig.station = Some(station);
        rig.watch_lease();
        Ok(rig)
    }

    fn on_volume(kind: FileSystemKind, scheduler: &str) -> Result<Rig, AgentError> {
        let (directory, run_directory) = Rig::directories();
        let (state, _) = recover(&directory.path().join("state")).unwrap();
        let engine = spawn(EngineConfig::new(profile(), scheduler)).unwrap();
        engine.open_pool(POOL, Allocation::default()).unwrap();
        let backing = Backing::Memory { size_bytes: SIZE_BYTES };
        let config = VolumeConfig {
            name: VOLUME.to_owned(),
            pool: POOL.to_owned(),
            backing,
            start_bytes: 0,
            is_read_only: false,
        };
        let volume = Volume::open(config).unwrap();
        let target = directory.path().join("mounted");
        let options = "noatime".to_owned();
        let file_system =
            FileSystemPlan { kind, format: Format::IfEmpty, target: target.clone(), options, journal_bytes: None };
        let plan = AttachPlan {
            volume: VOLUME.to_owned(),
            size_bytes: SIZE_BYTES,
            block_bytes: volume.info().block_bytes,
            is_read_only: false,
            file_system: Some(file_system),
        };
        engine.add_volume(volume).unwrap();
        let (mut attachment, connection) = Attachment::mount_disk(&state, plan).unwrap();
        let session = SessionConfig { name: "mount".to_owned(), allocation: Allocation::default() };
        engine.attach(VOLUME, session, Box::new(FuseConnection::new(connection))).unwrap();
        attachment.make_device().unwrap();
        let device = attachment.device_path().unwrap();
        let config = Rig::config(Disk::Volume(VOLUME.to_owned()), device, &directory, &run_directory);
        let station = Station::open(&engine, config.clone())?;
        attachment.mount().unwrap();
        station.mounted(&target)?;
        let (mounted, station) = (Mounted::Volume(Box::new(attachment)), Some(station));
        let mut rig = Rig { lease: None, station, mounted, engine, config, directory, run_directory };
        rig.watch_lease();
        Ok(rig)
    }

    fn words(&self) -> PathBuf {
        self.run_directory.path().join(words::FILE_NAME)
    }

    fn watch_lease(&mut self) {
        self.lease = Some(LeaseWatch::of(&self.words()));
    }

    pub fn station(&self) -> &Station {
        self.station.as_ref().expect("it is open")
    }

    pub fn close_station(&mut self) {
        self.lease = None;
        self.station = None;
    }

    /// As a daemon that ends, with a station that has been closed: what was done to a volume.
    pub fn detach(&mut self) -> Vec<String> {
        assert!(self.station.is_none());
        self.mounted.detach()
    }

    /// Files that this process has open on the file system.
    pub fn open_here(&self) -> usize {
        let below = self.path("");
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|to| to.starts_with(&below))).count()
    }

    /// As an agent that is started again: the run directory is the same.
    pub fn open_station(&mut self) {
        let station = Station::open(&self.engine, self.config.clone()).unwrap();
        station.mounted(&self.path("")).unwrap();
        self.station = Some(station);
        self.watch_lease();
    }

    /// The same, for so many processes of tenants.
    pub fn open_station_for(&mut self, tasks_max: u32) {
        self.config.tasks_max = Some(tasks_max);
        self.open_station();
    }

    /// Keepers that are started from now on wait before they begin.
    pub fn slow_keepers(&self) -> SlowKeepers {
        let at = |name: &str| self.directory.path().join(name);
        let slow = SlowKeepers { held: at("held"), begun: at("begun") };
        std::fs::write(&slow.held, "").unwrap();
        std::fs::rename(at("plimsoll-keeper"), at("real-keeper")).unwrap();
        let [held, begun, real] = [&slow.held, &slow.begun, &at("real-keeper")].map(|path| path.display().to_string());
        let text = format!("#!/bin/sh\n: > {begun}\nwhile [ -e {held} ]; do sleep 0.1; done\nexec {real} \"$@\"\n");
        std::fs::write(at("script"), text).unwrap();
        std::fs::set_permissions(at("script"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::rename(at("script"), at("plimsoll-keeper")).unwrap();
        slow
    }

    /// Whether a tenant's writes wait.
    pub fn is_closed(&self, tenant: &Tenant) -> bool {
        self.word(tenant, GateClass::Write) != 0
    }

    /// The word of a class of a tenant's calls; 0 is open.
    pub fn word(&self, tenant: &Tenant, class: GateClass) -> u8 {
        let words = std::fs::read(self.words()).unwrap();
        words[words::place_of(AccountId(tenant.bit), class)]
    }

    /// Starts a tenant that writes a page and flushes it, eight times.
    pub fn start_flushing(&self, tenant: &Tenant, name: &str) -> Child {
        let file = self.path(name);
        let flush = format!("dd if=/dev/zero of={} bs=4k count=1 conv=notrunc,fsync status=none", file.display());
        let mut child = self.start(tenant, &format!("for i in 1 2 3 4 5 6 7 8; do {flush}; done"));
        go(&mut child);
        child
    }

    /// Waits for something that must come.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        // By the clock, and at most half of the time: to look at a thousand processes takes a slow machine a second.
        let mut looked = monotonic_now();
        let end = looked + WAIT_MAX;
        while !is_so() {
            assert!(monotonic_now() < end, "never came: {what}");
            let pause = monotonic_now().since(looked).max(PAUSE_MIN);
            let pause = rustix::thread::Timespec::try_from(std::time::Duration::from(pause)).unwrap();
            let _ = rustix::thread::nanosleep(&pause);
            looked = monotonic_now();
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mounted").join(name)
    }

    /// A path beside the mount point.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The socket for classes of files, if a server listens there.
    pub fn classes_socket(&self) -> PathBuf {
        self.config.classes.clone().expect("it has one")
    }

    pub fn join(&self, name: &str, allocation: Allocation) -> Tenant {
        self.station().join(POOL, name, allocation).unwrap()
    }

    /// Starts a shell command behind a tenant's gates, and enrolls no process.
    pub fn launch(&self, tenant: &Tenant, script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read go && {script}")]).stdin(Stdio::piped());
        self.station().entrance(tenant).launch(Filter::default()).unwrap().prepare(&mut command).unwrap();
        command.spawn().unwrap()
    }

    /// Starts a shell command as a tenant, behind its gates; it waits to be [let go](go).
    pub fn start(&self, tenant: &Tenant, script: &str) -> Child {
        let child = self.launch(tenant, script);
        self.station().enroll(tenant, Enrollee::Process(child.id())).unwrap();
        child
    }

    /// A file of this process's, on the disk and no longer in memory.
    pub fn cold_file(&self, name: &str, mib: u64) {
        let mut file = std::fs::File::create(self.path(name)).unwrap();
        file.write_all(&vec![7; (mib << 20) as usize]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    pub fn sync(&self) {
        assert!(Command::new("sync").arg("-f").arg(self.path(".")).status().unwrap().success());
    }

    /// The paths of all accounts but the device's.
    pub fn accounts(&self) -> Vec<String> {
        self.engine.status().unwrap().accounts.into_iter().skip(1).map(|account| account.path).collect()
    }

    /// The path of the session of the tenant that joined as `name`.
    pub fn session(&self, name: &str) -> String {
        let path = format!("{POOL}/{name}#");
        self.accounts().into_iter().find(|account| account.starts_with(&path)).unwrap()
    }

    /// Bytes that were moved on behalf of the tenant that joined as `name`.
    pub fn bytes(&self, name: &str) -> u64 {
        let path = format!("{POOL}/{name}#");
        let accounts = self.engine.status().unwrap().accounts;
        accounts.iter().filter(|account| account.path.starts_with(&path)).map(|account| account.bytes).sum()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.close_station();
        self.mounted.detach();
        let _ = self.engine.shutdown(GRACE_DEFAULT);
    }
}

pub fn go(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}
