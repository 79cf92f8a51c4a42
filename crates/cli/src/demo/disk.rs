//! The shared disk: an emulated drive in memory with a volume for each tenant, mounted or over NBD.

use super::tenant::{BACKUP_FILE_BYTES, TRANSACTIONS_FILE_BYTES, Target};
use crate::outcome::Failure;
use plimsoll_core::{Allocation, Rate, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::{EmulationStatus, EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_protocols::nbd::SharedExports;
use plimsoll_serve::attach::{AttachPlan, Attachment, FileSystemKind, FileSystemPlan, Format, recover};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::fuse::FuseConnection;
use plimsoll_serve::nbd::client::ClientOptions;
use plimsoll_serve::nbd::{Address, Client, Listener, NbdConnection, export_info, serve};
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The drive that everything shares.
pub const MODEL: &str = "hdd.wd-aakx";
/// Where the platter stands at first.
const SEED: u64 = 1;
/// Bound on the lateness of the drive's replies: three revolutions at 7200 rpm. The freezes that the demo shows last
/// half a second and more. Lateness under Plimsoll only speaks against it.
const LATENESS_BOUND: Span = Span::from_millis(25);
/// What the small writer is promised, per cent of the drive's worst case.
pub const RESERVE_PERCENT: f64 = 30.0;
/// The small writer's pool and volume.
pub const TRANSACTIONS: &str = "transactions";
const BACKUP: &str = "backup";
const TRANSACTIONS_VOLUME_BYTES: u64 = 256 << 20;
const BACKUP_VOLUME_BYTES: u64 = 1 << 30;
/// The transactions lie at the start of the drive, the backup behind them, as two partitions do.
const BACKUP_START_BYTES: u64 = 20_000_000_000;
/// Large files that are backed up at once.
const BACKUP_FILES: u64 = 4;
/// Requests that the backup keeps outstanding over NBD.
const BACKUP_DEPTH: u32 = 16;

fn failed<E: Display>(doing: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| Failure::Failed(format!("{doing}: {error}"))
}

/// How the tenants reach their volumes.
enum Way {
    Mounted { folder: PathBuf, attachments: Vec<Attachment> },
    Nbd { socket: PathBuf, listener: Option<Serving>, why: String },
}

/// What the disk has done since it started.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Runs of the small writer.
    pub transactions_runs: u64,
    /// Bytes of the bulk writer.
    pub backup_bytes: u64,
    /// How true the emulation was.
    pub emulation: EmulationStatus,
}

/// The disk and its two volumes. Everything is put away when it is dropped.
pub struct Disk {
    engine: EngineHandle,
    way: Way,
}

impl Disk {
    /// Starts the drive and makes the volumes reachable.
    pub fn prepare(uses_nbd: bool) -> Result<Disk, Failure> {
        let model = plimsoll_devices::build(MODEL, SEED).expect("the model is tested");
        let config = EngineConfig { lateness_bound: LATENESS_BOUND, ..EngineConfig::emulated(model, "noop") };
        let engine = spawn(config).map_err(failed("start the emulated drive"))?;
        let reserve = Allocation { reserve: Rate::DevicePercent(RESERVE_PERCENT), ..Allocation::default() };
        engine.open_pool(TRANSACTIONS, reserve).map_err(failed("open a pool"))?;
        engine.open_pool(BACKUP, Allocation::default()).map_err(failed("open a pool"))?;
        let way = match why_not_mounted(uses_nbd) {
            None => mount(&engine)?,
            Some(why) => listen(&engine, why)?,
        };
        Ok(Disk { engine, way })
    }

    /// Why there is no file system, if there is none.
    pub fn not_run(&self) -> Option<&str> {
        match &self.way {
            Way::Mounted { .. } => None,
            Way::Nbd { why, .. } => Some(why),
        }
    }

    /// Puts the named scheduler in charge.
    pub fn switch(&self, scheduler: &str) -> Result<(), Failure> {
        self.engine.switch_scheduler(scheduler).map_err(failed("switch the scheduler"))
    }

    /// What the tenants have had of the disk so far.
    pub fn served(&self) -> Result<Served, Failure> {
        let status = self.engine.status().map_err(failed("ask the engine"))?;
        let of = |path: &str| status.accounts.iter().find(|account| account.path == path);
        Ok(Served {
            transactions_runs: of(TRANSACTIONS).map_or(0, |account| account.runs),
            backup_bytes: of(BACKUP).map_or(0, |account| account.bytes),
            emulation: status.emulation.unwrap_or_default(),
        })
    }

    /// Where the small writer writes.
    pub fn transactions(&self) -> Result<Target, Failure> {
        match &self.way {
            Way::Mounted { folder, .. } => file(&folder.join(TRANSACTIONS).join("table"), TRANSACTIONS_FILE_BYTES),
            Way::Nbd { socket, .. } => connect(socket, TRANSACTIONS, 1),
        }
    }

    /// Targets of the bulk writer: one for each thread, and the first byte in it.
    pub fn backup(&self) -> Result<Vec<(Target, u64)>, Failure> {
        let target = |number: u64| match &self.way {
            Way::Mounted { folder, .. } => {
                file(&folder.join(BACKUP).join(format!("file{number}")), BACKUP_FILE_BYTES).map(|target| (target, 0))
            }
            Way::Nbd { socket, .. } => {
                connect(socket, BACKUP, BACKUP_DEPTH).map(|target| (target, number * BACKUP_FILE_BYTES))
            }
        };
        (0..BACKUP_FILES).map(target).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        match &mut self.way {
            Way::Mounted { attachments, .. } => attachments.clear(),
            Way::Nbd { listener, socket, .. } => {
                *listener = None;
                let _ = socket.parent().map(std::fs::remove_dir_all);
            }
        }
        let _ = self.engine.shutdown(GRACE_DEFAULT);
    }
}

fn why_not_mounted(uses_nbd: bool) -> Option<String> {
    if uses_nbd {
        return Some("--nbd was given".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("mounting takes root".to_owned());
    }
    let missing = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|device| !Path::new(device).exists())?;
    Some(format!("{missing} is missing"))
}

/// The demo's own folder: always the same, so that the next run cleans up after a killed one.
fn folder(user: &str) -> PathBuf {
    std::env::temp_dir().join(format!("plimsoll-demo-{user}"))
}

fn volume(name: &str) -> VolumeConfig {
    let (size_bytes, start_bytes) = match name {
        TRANSACTIONS => (TRANSACTIONS_VOLUME_BYTES, 0),
        _ => (BACKUP_VOLUME_BYTES, BACKUP_START_BYTES),
    };
    let backing = Backing::Memory { size_bytes };
    VolumeConfig { name: name.to_owned(), pool: name.to_owned(), backing, start_bytes, is_read_only: false }
}

fn open_volume(name: &str) -> Result<Volume, Failure> {
    let mut volume = Volume::open(volume(name)).map_err(failed("make a volume"))?;
    volume.populate();
    Ok(volume)
}

fn session(name: &str) -> SessionConfig {
    SessionConfig { name: name.to_owned(), allocation: Allocation::default() }
}

fn mount(engine: &EngineHandle) -> Result<Way, Failure> {
    let folder = folder("mounts");
    let (state, recovered) = recover(&folder.join("state")).map_err(failed("open the state directory"))?;
    recovered.iter().for_each(|step| tracing::warn!("left by a demo that was killed: {step}"));
    let mut attachments = Vec::new();
    for name in [TRANSACTIONS, BACKUP] {
        let opened = open_volume(name)?;
        let info = opened.info();
        let file_system = FileSystemPlan {
            kind: FileSystemKind::Ext4,
            format: Format::IfEmpty,
            target: folder.join(name),
            options: "noatime,noinit_itable".to_owned(),
            journal_bytes: None,
        };
        let plan = AttachPlan {
            volume: name.to_owned(),
            size_bytes: info.size_bytes,
            block_bytes: info.block_bytes,
            is_read_only: false,
            file_system: Some(file_system),
        };
        engine.add_volume(opened).map_err(failed("add a volume"))?;
        let (mut attachment, device) = Attachment::mount_disk(&state, plan).map_err(failed("mount"))?;
        engine
            .attach(name, session("mount"), Box::new(FuseConnection::new(device)))
            .map_err(failed("serve a mount"))?;
        attachment.build().map_err(failed("make a file system"))?;
        attachments.push(attachment);
    }
    Ok(Way::Mounted { folder, attachments })
}

fn listen(engine: &EngineHandle, why: String) -> Result<Way, Failure> {
    let folder = folder(&format!("{}-{}", rustix::process::geteuid().as_raw(), std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&folder).map_err(failed("make a folder"))?;
    let exports = SharedExports::new();
    for name in [TRANSACTIONS, BACKUP] {
        let volume = open_volume(name)?;
        exports.add(export_info(volume.info(), true)).map_err(failed("export a volume"))?;
        engine.add_volume(volume).map_err(failed("add a volume"))?;
    }
    let socket = folder.join("nbd.sock");
    let listener = Listener::bind(&Address::Unix(socket.clone()), ListenerOptions::default());
    let of_connections = engine.clone();
    let serving = serve(listener.map_err(failed("listen"))?, exports, move |stream, negotiated, peer| {
        let name = negotiated.export.name.clone();
        if let Err(error) =
            of_connections.attach(&name, session("nbd"), Box::new(NbdConnection::new(stream, negotiated)))
        {
            tracing::warn!("{peer} was turned away: {error}");
        }
    });
    Ok(Way::Nbd { socket, listener: Some(serving.map_err(failed("listen"))?), why })
}

/// An allocated file of so many bytes: writing into it changes no metadata but times.
fn file(path: &Path, bytes: u64) -> Result<Target, Failure> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    let file: File = file.map_err(failed("make a tenant's file"))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).map_err(failed("allocate a file"))?;
    file.sync_all().map_err(failed("sync a file"))?;
    Ok(Target::File(file))
}

fn connect(socket: &Path, export: &str, depth_max: u32) -> Result<Target, Failure> {
    let options = ClientOptions { export_name: export.to_owned(), depth_max, ..ClientOptions::default() };
    let client = Client::connect(&Address::Unix(socket.to_owned()), &options).map_err(failed("connect"))?;
    Ok(Target::Nbd(Box::new(client)))
}
