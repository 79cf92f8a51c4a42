//! What the tests of mounted volumes share: an engine with one volume, and programs that look at what it holds.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use plimsoll_core::{Allocation, DeviceProfile, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig, VolumeInfo};
use plimsoll_engine::{EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_serve::attach::{AttachPlan, Attachment, FileSystemKind, FileSystemPlan, Format, StateDirectory, recover};
use plimsoll_serve::fuse::FuseConnection;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// Large enough for mkfs.xfs, which wants 300 MB.
pub const SIZE_BYTES: u64 = 320 << 20;
pub const VOLUME: &str = "disk";
pub const POOL: &str = "pool";

/// Whether volumes can be attached here; prints why not.
pub fn can_attach(programs: &[&str]) -> bool {
    let problem = if !rustix::process::geteuid().is_root() {
        Some("needs root for mounts and loop devices".to_owned())
    } else if let Some(device) = ["/dev/fuse", "/dev/loop-control"].iter().find(|path| File::open(path).is_err()) {
        Some(format!("{device} cannot be opened"))
    } else {
        programs.iter().find(|program| !is_installed(program)).map(|program| format!("{program} is missing"))
    };
    if let Some(problem) = &problem {
        println!("not run: {problem}");
    }
    problem.is_none()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories.into_iter().any(|directory| directory.join(program).is_file())
}

/// Runs a program to its end.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
    command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs a program that must succeed, and gives back what it printed.
pub fn run_well(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{printed}\n{}", output.status, text(&output.stderr));
    printed
}

/// Checks a file system that is not mounted without changing it: nothing to repair, no journal to replay.
pub fn check_file_system(kind: FileSystemKind, device: &Path) {
    let device = device.to_str().unwrap();
    match kind {
        FileSystemKind::Ext4 => run_well("e2fsck", &["-f", "-n", device]),
        FileSystemKind::Xfs => run_well("xfs_repair", &["-n", device]),
    };
}

/// An engine that serves one volume, and a state directory to attach it with. Attachments must go before it.
pub struct Rig {
    pub engine: EngineHandle,
    pub state: Arc<StateDirectory>,
    pub info: VolumeInfo,
    pub directory: TempDir,
}

impl Rig {
    /// With a volume in memory.
    pub fn in_memory() -> Rig {
        Rig::in_memory_of(SIZE_BYTES)
    }

    /// With a volume of `size_bytes` in memory; only what is written takes any.
    pub fn in_memory_of(size_bytes: u64) -> Rig {
        Rig::new(tempfile::tempdir().unwrap(), Backing::Memory { size_bytes })
    }

    /// With a volume in a file of the directory.
    pub fn in_file(directory: TempDir) -> Rig {
        let path = backing_path(directory.path());
        Rig::new(directory, Backing::File { path, size_bytes: Some(SIZE_BYTES), creates: true, encryption: None })
    }

    fn new(directory: TempDir, backing: Backing) -> Rig {
        let (state, recovered) = recover(&state_path(directory.path())).unwrap();
        assert_eq!(recovered, []);
        let (engine, info) = serve(backing);
        Rig { engine, state, info, directory }
    }

    /// The directory that file systems are mounted on.
    pub fn target(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// Attaches the volume, as a bare block device if `file_system` is `None`.
    pub fn attach(&self, file_system: Option<(FileSystemKind, Format)>) -> Attachment {
        let mut attachment = self.mount_disk(file_system);
        attachment.build().unwrap();
        attachment
    }

    /// Mounts the FUSE file only.
    pub fn mount_disk(&self, file_system: Option<(FileSystemKind, Format)>) -> Attachment {
        mount_disk(&self.engine, &self.state, &self.info, file_system, self.target())
    }

    /// Stops the engine and gives back the directory.
    pub fn shut_down(self) -> TempDir {
        self.engine.shutdown(GRACE_DEFAULT).unwrap();
        self.directory
    }
}

pub fn backing_path(directory: &Path) -> PathBuf {
    directory.join("disk.raw")
}

pub fn state_path(directory: &Path) -> PathBuf {
    directory.join("state")
}

/// Starts an engine that serves a volume with `backing`.
pub fn serve(backing: Backing) -> (EngineHandle, VolumeInfo) {
    serve_with("noop", backing)
}

/// The same under another scheduler.
pub fn serve_with(scheduler: &str, backing: Backing) -> (EngineHandle, VolumeInfo) {
    let profile = DeviceProfile {
        name: "device".to_owned(),
        capacity_bytes: 1 << 40,
        worst_case_runs_per_second: 100_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 64,
    };
    let engine = spawn(EngineConfig::new(profile, scheduler)).unwrap();
    engine.open_pool(POOL, Allocation::default()).unwrap();
    let (name, pool) = (VOLUME.to_owned(), POOL.to_owned());
    let config = VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false };
    let volume = Volume::open(config).unwrap();
    let info = volume.info().clone();
    engine.add_volume(volume).unwrap();
    (engine, info)
}

/// Mounts the FUSE file of the engine's volume.
pub fn mount_disk(
    engine: &EngineHandle,
    state: &Arc<StateDirectory>,
    info: &VolumeInfo,
    file_system: Option<(FileSystemKind, Format)>,
    target: PathBuf,
) -> Attachment {
    let file_system = file_system.map(|(kind, format)| FileSystemPlan {
        kind,
        format,
        target,
        options: String::new(),
        journal_bytes: None,
    });
    let plan = AttachPlan {
        volume: VOLUME.to_owned(),
        size_bytes: info.size_bytes,
        block_bytes: info.block_bytes,
        is_read_only: info.is_read_only,
        file_system,
    };
    let (attachment, device) = Attachment::mount_disk(state, plan).unwrap();
    let session = SessionConfig { name: "mount".to_owned(), allocation: Allocation::default() };
    engine.attach(VOLUME, session, Box::new(FuseConnection::new(device))).unwrap();
    attachment
}

/// What is still mounted or attached below `directory`.
pub fn leftovers(directory: &Path) -> Vec<String> {
    let directory = directory.canonicalize().unwrap().display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut found: Vec<String> = mounts.lines().filter(|line| line.contains(&directory)).map(str::to_owned).collect();
    for entry in std::fs::read_dir("/sys/block").unwrap() {
        let backing_file = entry.unwrap().path().join("loop/backing_file");
        found.extend(std::fs::read_to_string(backing_file).ok().filter(|path| path.contains(&directory)));
    }
    found
}

/// Bytes that depend on `seed` and nothing else.
pub fn bytes_of(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_ne_bytes());
    }
    bytes.truncate(length);
    bytes
}
