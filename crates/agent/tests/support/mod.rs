//! A volume in memory with a file system, mounted, and a station above it.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use plimsoll_agent::{AgentError, Station, StationConfig, Tenant, Who};
use plimsoll_brick::attach::{AttachPlan, Attachment, FileSystemKind, FileSystemPlan, Format, recover};
use plimsoll_brick::backend::{Backing, Volume, VolumeConfig};
use plimsoll_brick::engine::{EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_brick::fuse::FuseConnection;
use plimsoll_core::{Allocation, DeviceProfile};
use plimsoll_gates::Filter;
use plimsoll_tags::TagsError;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const SIZE_BYTES: u64 = 1 << 30;
const VOLUME: &str = "disk";
pub const POOL: &str = "pool";
pub const DIRTY_BYTES_MAX: u64 = 256 << 20;

/// Everything is taken down in the order of its parts when it is dropped.
pub struct Rig {
    station: Option<Station>,
    attachment: Attachment,
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

/// A device without a model, so that what is slow is slow because a scheduler made it so.
fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "device".to_owned(),
        capacity_bytes: SIZE_BYTES,
        worst_case_runs_per_second: 20_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        is_rotational: false,
        outstanding_max: 32,
    }
}

impl Rig {
    /// Under `scheduler`; `None`, with the reason printed, where it cannot be.
    pub fn new(kind: FileSystemKind, scheduler: &str) -> Option<Rig> {
        if !rustix::process::geteuid().is_root() {
            println!("not run: needs root for mounts, loop devices and BPF programs");
            return None;
        }
        match Rig::try_new(kind, scheduler) {
            Ok(rig) => Some(rig),
            Err(AgentError::Tags(TagsError::NotRun(why))) => {
                println!("not run: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn try_new(kind: FileSystemKind, scheduler: &str) -> Result<Rig, AgentError> {
        let directory = tempfile::Builder::new().prefix("plimsoll-agent-").tempdir().unwrap();
        let run_directory = tempfile::Builder::new().prefix("plimsoll-agent-").tempdir_in("/dev/shm").unwrap();
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        open(directory.path());
        open(run_directory.path());
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
        let file_system = FileSystemPlan { kind, format: Format::IfEmpty, target: target.clone(), options };
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
        let config = StationConfig {
            volume: VOLUME.to_owned(),
            device: attachment.device_path().unwrap(),
            run_directory: run_directory.path().to_owned(),
            program_directory: directory.path().to_owned(),
            filter: Filter::default(),
            dirty_bytes_max: DIRTY_BYTES_MAX,
        };
        let station = Station::open(&engine, config.clone())?;
        attachment.mount().unwrap();
        station.mounted(&target)?;
        Ok(Rig { station: Some(station), attachment, engine, config, directory, run_directory })
    }

    pub fn station(&self) -> &Station {
        self.station.as_ref().expect("it is open")
    }

    pub fn close_station(&mut self) {
        self.station = None;
    }

    /// As an agent that is started again: the run directory is the same.
    pub fn open_station(&mut self) {
        let station = Station::open(&self.engine, self.config.clone()).unwrap();
        station.mounted(&self.path("")).unwrap();
        self.station = Some(station);
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
        let words = std::fs::read(self.run_directory.path().join("gate-words")).unwrap();
        let write_word = 4096 + tenant.bit as usize * 4 * 64;
        words[write_word] != 0
    }

    /// Waits for something that must come.
    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let has_come = (0..20_000).any(|_| {
            let _ = rustix::thread::nanosleep(&pause);
            is_so()
        });
        assert!(has_come, "never came: {what}");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mounted").join(name)
    }

    pub fn join(&self, name: &str, allocation: Allocation) -> Tenant {
        self.station().join(POOL, name, allocation).unwrap()
    }

    /// Starts a shell command behind a tenant's gates, and says of nobody that it is the tenant's.
    pub fn launch(&self, tenant: &Tenant, script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("read go && {script}")]).stdin(Stdio::piped());
        self.station().entrance(tenant).launch(Filter::default()).unwrap().prepare(&mut command).unwrap();
        command.spawn().unwrap()
    }

    /// Starts a shell command as a tenant, behind its gates; it waits to be [let go](go).
    pub fn start(&self, tenant: &Tenant, script: &str) -> Child {
        let child = self.launch(tenant, script);
        self.station().enroll(tenant, Who::Process(child.id())).unwrap();
        child
    }

    pub fn sync(&self) {
        assert!(Command::new("sync").arg("-f").arg(self.path(".")).status().unwrap().success());
    }

    /// The paths of all accounts but the device's.
    pub fn accounts(&self) -> Vec<String> {
        self.engine.status().unwrap().accounts.into_iter().skip(1).map(|account| account.path).collect()
    }

    /// The path of the session of whoever joined as `name`.
    pub fn session(&self, name: &str) -> String {
        let path = format!("{POOL}/{name}#");
        self.accounts().into_iter().find(|account| account.starts_with(&path)).unwrap()
    }

    /// Bytes that were moved on behalf of whoever joined as `name`.
    pub fn bytes(&self, name: &str) -> u64 {
        let path = format!("{POOL}/{name}#");
        let accounts = self.engine.status().unwrap().accounts;
        accounts.iter().filter(|account| account.path.starts_with(&path)).map(|account| account.bytes).sum()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.attachment.detach();
        let _ = self.engine.shutdown(GRACE_DEFAULT);
    }
}

pub fn go(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}
