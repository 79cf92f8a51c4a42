//! The device of a live run: a model in real time with one volume in memory, mounted or for clients of the engine. For
//! clients it can also be a file on this machine's own disk.

use super::error::failed;
use super::queue::Queue;
use super::tenants::Tenants;
use super::{HostError, VOLUME_BYTES_MAX, cache, cgroups, knobs, memory, own_disk, queue, tenants};
use crate::scenario::{Alternate, MachineSetup, Setup};
use plimsoll_core::{Allocation, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig, VolumeInfo};
use plimsoll_engine::{CacheStatus, EmulationStatus, EngineConfig, EngineHandle, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_serve::attach::{
    AttachPlan, Attachment, DataPlaces, FileSystemKind, FileSystemPlan, Format, StateDirectory, recover,
};
use plimsoll_serve::fuse::FuseConnection;
use rustix::process::Uid;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File systems, as scenarios call them, and how they are mounted. Nothing is initialised behind a run's back.
const FILE_SYSTEMS: &[(&str, FileSystemKind, &str)] = &[
    ("ext4", FileSystemKind::Ext4, "noatime,noinit_itable,data=ordered,dioread_nolock"),
    ("ext4-dioread-lock", FileSystemKind::Ext4, "noatime,noinit_itable,data=ordered,dioread_lock"),
    ("xfs", FileSystemKind::Xfs, "noatime"),
];
/// Always the same folder of the user that runs it, so that the next run cleans up after a killed one.
const FOLDER: &str = "plimsoll-live";
pub(super) const VOLUME: &str = "volume";
/// The session of what comes through the mount and has no cause.
const MOUNT: &str = "mount";
/// How late a disk's reply may be before it counts as late: half a revolution at 7200 rpm. What is measured here takes
/// several revolutions, and lateness does not accumulate.
const LATENESS_BOUND_ROTATIONAL: Span = Span::from_millis(4);

/// An abstract socket, which has one owner and leaves nothing behind: with it runs exclude each other on the machine.
/// Limits of dirty memory are the machine's, whatever folder for temporary files a run has.
const LOCK: &str = "plimsoll-live";

/// The device, and the file system on it. Everything is put away when it is dropped.
pub(super) struct Disk {
    /// Let go after everything else.
    _lock: OnlyRun,
    engine: EngineHandle,
    queue: Option<Queue>,
    tenants: Option<Tenants>,
    attachment: Option<Attachment>,
    /// Of the volume, where it is not mounted.
    info: Option<VolumeInfo>,
    /// What this machine's own disk can do, if it is that.
    own: Option<String>,
    /// What a run that was killed had left, a line each.
    recovered: Vec<String>,
    folder: PathBuf,
}

/// Where everything of a run is.
fn base() -> PathBuf {
    std::env::temp_dir().join(folder_of(rustix::process::geteuid()))
}

/// Each user's own: what root's run left is not for others to write in.
fn folder_of(user: Uid) -> String {
    if user.is_root() { FOLDER.to_owned() } else { format!("{FOLDER}-{}", user.as_raw()) }
}

/// A volume of `bytes` in memory, from the device's start on, with its sessions in `pool`.
fn open_volume(pool: &str, bytes: u64) -> Result<Volume, HostError> {
    let config = VolumeConfig {
        name: VOLUME.to_owned(),
        pool: pool.to_owned(),
        backing: Backing::Memory { size_bytes: bytes },
        start_bytes: 0,
        is_read_only: false,
    };
    Volume::open(config).map_err(|error| failed("make a volume", error))
}

/// The setup's device, emulated.
fn emulated(setup: &Setup, seed: u64) -> EngineConfig {
    let model = plimsoll_devices::build(setup.machine.device, seed).expect("a model that was chosen by its name");
    let mut config = EngineConfig::emulated(model, setup.machine.scheduler);
    if config.profile.is_rotational {
        config.lateness_bound = LATENESS_BOUND_ROTATIONAL;
    }
    config
}

/// Why this machine cannot mount `file_system`, if so.
pub(super) fn why_not_mounted(file_system: &str) -> Option<String> {
    if !FILE_SYSTEMS.iter().any(|known| known.0 == file_system) {
        let known: Vec<&str> = FILE_SYSTEMS.iter().map(|known| known.0).collect();
        return Some(format!(
            "{file_system} is no file system of the kernel's: the live host has {}",
            known.join(", ")
        ));
    }
    if !rustix::process::geteuid().is_root() {
        return Some("mounting takes root".to_owned());
    }
    let missing = ["/dev/fuse", "/dev/loop-control"].into_iter().find(|device| !Path::new(device).exists())?;
    Some(format!("{missing} is missing"))
}

/// Cleans up after a killed run, as the next run does before it begins. Answers a line for each step.
pub(super) fn recover_what_was_left() -> Result<Vec<String>, HostError> {
    let _lock = OnlyRun::begin()?;
    put_back(&base().join("mount")).map(|(_, left)| left)
}

/// Cleans up after a killed run in and beside `folder`, and on the machine. Answers a line for each step.
fn put_back(folder: &Path) -> Result<(Arc<StateDirectory>, Vec<String>), HostError> {
    let (state, steps) =
        recover(&folder.with_file_name("state")).map_err(|error| failed("open the state directory", error))?;
    let others = [
        (knobs::recover(folder), "put back limits of dirty memory"),
        (queue::recover(folder), "put back settings of the loop device"),
        (cgroups::recover(folder), "removed groups of the blkio controller"),
        (memory::recover(folder), "removed a group of the memory controller"),
        (tenants::recover(), "removed the gates' directory"),
    ];
    let others = others.into_iter().filter(|(was_left, _)| *was_left).map(|(_, what)| what.to_owned());
    let left = steps.iter().map(ToString::to_string).chain(others);
    Ok((state, left.map(|what| format!("left by a run that was killed: {what}")).collect()))
}

impl Disk {
    /// Starts a device, with nothing on it, after putting away what a run that was killed left.
    fn start(lock: OnlyRun, config: EngineConfig) -> Result<(Disk, Arc<StateDirectory>), HostError> {
        let folder = base().join("mount");
        let (state, recovered) = put_back(&folder)?;
        knobs::begin_afresh();
        let engine = spawn(config).map_err(|error| failed("start the device", error))?;
        let (queue, tenants, attachment, info, own) = Default::default();
        Ok((Disk { _lock: lock, engine, queue, tenants, attachment, info, own, recovered, folder }, state))
    }

    /// Starts the setup's device, or this machine's own disk, with a volume as large as it is, for clients of the
    /// engine.
    pub(super) fn build_bare(setup: &Setup, seed: u64) -> Result<Disk, HostError> {
        let (lock, machine) = (OnlyRun::begin()?, &setup.machine);
        let (config, volume) = match machine.own_disk_bytes {
            Some(bytes) => {
                let (volume, profile) = own_disk::open(VOLUME, &base(), bytes)?;
                (EngineConfig::new(profile, machine.scheduler), volume)
            }
            None => {
                let config = emulated(setup, seed);
                let volume = open_volume("", config.profile.capacity_bytes)?;
                (config, volume)
            }
        };
        let own = machine.own_disk_bytes.map(|_| own_disk::in_words(&config.profile));
        let (mut disk, _) = Disk::start(lock, config)?;
        (disk.own, disk.info) = (own, Some(volume.info().clone()));
        disk.engine.add_volume(volume).map_err(|error| failed("add a volume", error))?;
        Ok(disk)
    }

    /// Starts the setup's device, with a file system of `bytes` and a mount with the promises `allocation`. If the
    /// setup needs tenants, they get their accounts' promises.
    pub(super) fn build(setup: &Setup, allocation: Allocation, bytes: u64, seed: u64) -> Result<Disk, HostError> {
        let machine = &setup.machine;
        let (mut disk, state) = Disk::start(OnlyRun::begin()?, emulated(setup, seed))?;
        let mut volume = open_volume(VOLUME, bytes)?;
        if bytes <= VOLUME_BYTES_MAX {
            volume.populate();
        }
        let found = machine.cache.as_ref().map(|setup| cache::make(setup, &volume, seed)).transpose()?.flatten();
        let (_, kind, options) = FILE_SYSTEMS.iter().find(|known| known.0 == machine.file_system).expect("was checked");
        let file_system = FileSystemPlan {
            kind: *kind,
            format: Format::IfEmpty,
            target: disk.folder.clone(),
            options: (*options).to_owned(),
            journal_bytes: machine.journal_bytes,
        };
        let plan = AttachPlan {
            volume: VOLUME.to_owned(),
            size_bytes: bytes,
            block_bytes: volume.info().block_bytes,
            is_read_only: false,
            file_system: Some(file_system),
        };
        let opened = disk.engine.open_pool(VOLUME, allocation);
        opened.and_then(|()| disk.engine.add_volume(volume)).map_err(|error| failed("add a volume", error))?;
        let cached = found.map_or(Ok(()), |found| disk.engine.attach_cache(VOLUME, found));
        cached.map_err(|error| failed("put a cache before the volume", error))?;
        let (mut attachment, connection) =
            Attachment::mount_disk(&state, plan).map_err(|error| failed("mount FUSE", error))?;
        // The volume is memory that is new: a look through the emulated device would take as long as reading all of it.
        attachment.has_data_in(DataPlaces::Nowhere, || false);
        let attachment = disk.attachment.insert(attachment);
        let session = SessionConfig { name: MOUNT.to_owned(), allocation: Allocation::default() };
        let served = disk.engine.attach(VOLUME, session, Box::new(FuseConnection::new(connection)));
        served.map_err(|error| failed("serve the mount", error))?;
        attachment.make_device().map_err(|error| failed("make a block device", error))?;
        disk.mount(setup)?;
        disk.queue = Some(Queue::set(&disk.device(), machine, &disk.folder)?);
        Ok(disk)
    }

    /// Mounts the file system, with the setup's tenants above its disk, if it needs them.
    pub(super) fn mount(&mut self, setup: &Setup) -> Result<(), HostError> {
        let attachment = self.attachment.as_mut().expect("a disk with a file system");
        if tenants::are_needed(setup) {
            let device = attachment.device_path().expect("it was made");
            let dirty_bytes_max = knobs::dirty_bytes_max(&setup.machine.config);
            self.tenants = Some(Tenants::open(&self.engine, VOLUME, device, base(), dirty_bytes_max)?);
        }
        attachment.mount().map_err(|error| failed("make a file system", error))?;
        match &mut self.tenants {
            Some(tenants) => tenants.mounted(&self.folder, &setup.accounts, VOLUME),
            None => Ok(()),
        }
    }

    /// Puts the other scheduler in charge if `second` is the first of its turn.
    pub(super) fn take_turns(&self, machine: &MachineSetup, second: u64) -> Result<(), HostError> {
        let Some(Alternate { scheduler, turn_seconds }) = machine.alternate else { return Ok(()) };
        if second == 0 || !second.is_multiple_of(turn_seconds) {
            return Ok(());
        }
        let is_turn_of_the_other = (second / turn_seconds) % 2 == 1;
        let next = if is_turn_of_the_other { scheduler } else { machine.scheduler };
        self.engine.switch_scheduler(next).map_err(|error| failed(next, error))
    }

    /// Unmounts the file system, of which nothing is in memory then. Tenants are told apart no more.
    pub(super) fn unmount(&mut self) -> Result<(), HostError> {
        let attachment = self.attachment.as_mut().expect("a disk with a file system");
        // Written back while the classes of blocks are told, which ends before: the station keeps the file system in
        // use.
        let root = std::fs::File::open(&self.folder).map_err(|error| failed(self.folder.display(), error))?;
        rustix::fs::syncfs(&root).map_err(|errno| failed("write back", errno))?;
        drop(root);
        self.tenants = None;
        attachment.unmount().map_err(|error| failed("unmount", error))
    }

    /// The engine that serves it.
    pub(super) fn engine(&self) -> &EngineHandle {
        &self.engine
    }

    /// The volume that clients of the engine share.
    ///
    /// # Panics
    /// If the disk has a file system.
    pub(super) fn volume(&self) -> &VolumeInfo {
        self.info.as_ref().expect("a disk without a file system")
    }

    /// The block device.
    pub(super) fn device_path(&self) -> PathBuf {
        self.attachment.as_ref().and_then(Attachment::device_path).expect("it was built")
    }

    /// The block device's name: `loop0`.
    pub(super) fn device(&self) -> String {
        self.device_path().file_name().expect("a device has a name").to_string_lossy().into_owned()
    }

    /// The tenants that share it, if they are told apart.
    pub(super) fn tenants(&self) -> Option<&Tenants> {
        self.tenants.as_ref()
    }

    /// Lifts the limits of all tenants.
    pub(super) fn release(&self) {
        if let Some(tenants) = &self.tenants {
            tenants.release();
        }
    }

    /// Where the file system is mounted.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The steps of cleaning up after a killed run, before this one began: a line each.
    pub(super) fn recovered(&self) -> &[String] {
        &self.recovered
    }

    /// What this machine's own disk can do, if it is that.
    pub(super) fn own(&self) -> Option<&str> {
        self.own.as_deref()
    }

    /// How true the emulation was so far, of the device and of its cache's; a real disk is never late.
    pub(super) fn emulations(&self) -> Result<Vec<EmulationStatus>, HostError> {
        let status = self.engine.status().map_err(|error| failed("ask the engine", error))?;
        let of_caches = status.volumes.into_iter().filter_map(|volume| volume.cache?.emulation);
        Ok([status.emulation.unwrap_or_default()].into_iter().chain(of_caches).collect())
    }

    /// The cache before it, if it has one.
    pub(super) fn cache(&self) -> Result<Option<CacheStatus>, HostError> {
        let caches = self.engine.caches().map_err(|error| failed("ask the engine", error))?;
        Ok(caches.into_iter().next().map(|(_, status)| status))
    }

    /// Requests so far of unknown cause, and all. A flush is its sender's, whatever caused it, and does not count.
    pub(super) fn requests(&self) -> Result<(u64, u64), HostError> {
        let status = self.engine.status().map_err(|error| failed("ask the engine", error))?;
        let of = |is_meant: &dyn Fn(&str) -> bool| -> u64 {
            let meant = status.accounts.iter().filter(|account| is_meant(&account.path));
            meant.map(|account| account.read_latency.count + account.write_latency.count).sum()
        };
        let mount = format!("{VOLUME}/{MOUNT}#");
        Ok((of(&|path| path.starts_with(&mount)), of(&|path| path.contains('#'))))
    }

    /// Whether the device has something to do.
    pub(super) fn is_busy(&self) -> Result<bool, HostError> {
        let status = self.engine.status().map_err(|error| failed("ask the engine", error))?;
        Ok(status.requests_under_way > 0)
    }
}

/// No other live run of this machine is under way as long as this is there.
struct OnlyRun(#[expect(dead_code, reason = "it is held and not used")] UnixListener);

impl OnlyRun {
    fn begin() -> Result<OnlyRun, HostError> {
        let bound = SocketAddr::from_abstract_name(LOCK).and_then(|name| UnixListener::bind_addr(&name));
        match bound {
            Ok(listener) => Ok(OnlyRun(listener)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Err(HostError::Failed(
                "another live run is under way on this machine; run one after the other".to_owned(),
            )),
            Err(error) => Err(failed("exclude other live runs", error)),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.queue = None;
        self.tenants = None;
        // The last writes of the file system go through the engine.
        self.attachment = None;
        let _ = self.engine.shutdown(GRACE_DEFAULT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_of_one_user() {
        let folders = [0, 1000, 1001].map(|user| folder_of(Uid::from_raw(user)));
        assert_eq!(folders, ["plimsoll-live", "plimsoll-live-1000", "plimsoll-live-1001"]);
    }
}
