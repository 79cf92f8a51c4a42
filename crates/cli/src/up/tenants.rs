//! Tenants: processes that join a mounted volume, each with a session of its own (`plimsoll run`).
//!
//! A volume with `tenants = true` in its mount is mounted with a [`Station`]. So the process that caused each of its
//! blocks is known, and a process that joins starts behind gates. A device's scheduler hears of one station, so there
//! is one such volume a device. An observed disk has one too.

use super::plan;
use super::promises::JoinRules;
use super::refusal::Refusal;
use crate::config::{Configuration, Volume};
use crate::control::protocol::{Change, LossEntry, TenantCgroupEntry, TenantEntry};
use crate::outcome::Failure;
use plimsoll_agent::freezer::groups::TenantCgroup;
use plimsoll_agent::{
    AgentError, ClassServer, ClassifiedMount, Coverage, Disk, DiskLock, DiskUse, Enrollee, Entrance, Losses, Station,
    StationConfig, TagsError, TenantState, memory,
};
use plimsoll_engine::EngineHandle;
use plimsoll_gates::directory::{closed_to_others, make_own};
use plimsoll_gates::words::is_in_memory;
use plimsoll_gates::{Filter, GateError};
use plimsoll_linux::durable::{remove_file, replace_file};
use plimsoll_linux::process::is_kernel_thread;
use plimsoll_schedulers::Target;
use plimsoll_serve::attach::{AttachError, Attachment};
use rustix::fs::{StatVfsMountFlags, major, minor, stat, statvfs};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where words can be if the state directory is not in memory.
const MEMORY: &str = "/dev/shm";
/// Where shim and keeper can be if nothing may be executed in the state directory.
const PROGRAMS: &str = "/var/lib/plimsoll";
/// How the names of files in the state directory begin that name a directory in memory.
const NOTES_BEGIN: &str = "words-of-";
/// Where applications say the classes of their files, in the state directory.
const CLASSES_SOCKET: &str = "classes.sock";

/// A volume that takes tenants, or a disk that is observed.
pub(super) struct StationedVolume {
    name: String,
    /// The path of the account of tenants that name no pool; empty for the device's.
    account: String,
    /// What processes that join may be promised.
    rules: JoinRules,
    /// Dropped first: then no thread uses the directory any more.
    station: Station,
    mount_point: Option<PathBuf>,
    _run_directory: RunDirectory,
    /// Let go of last.
    _lock: DiskLock,
}

impl StationedVolume {
    /// Starts a station called `name` above `device`, the block device of a volume or of an observed disk. The engine
    /// is that of the configuration's device `on`.
    ///
    /// # Errors
    /// What [`Station::open`] says; a directory cannot be made.
    pub(super) fn open(
        engine: &EngineHandle,
        configuration: &Configuration,
        (name, on): (&str, &str),
        account: &str,
        disk: Disk,
        device: &Path,
    ) -> Result<StationedVolume, AgentError> {
        let state = &configuration.daemon.state_directory;
        // Before anything is changed: a second agent would tag each page twice, and hold the same calls.
        let lock = DiskLock::take(DiskUse::Tenants, &number_of(device)?)?;
        let run_directory = RunDirectory::make(state, name)?;
        let is_volume = matches!(disk, Disk::Volume(_));
        let target = if is_volume { Target::Tenants } else { Target::Observed };
        let rules = JoinRules::new(configuration, on, target);
        let config = StationConfig {
            disk,
            device: device.to_owned(),
            run_directory: run_directory.path.clone(),
            program_directory: program_directory(state)?,
            filter: Filter::default(),
            dirty_bytes_max: memory::dirty_bytes_max(),
            tasks_max: None,
            containers: Some(Arc::new(rules.clone())),
            classes: is_volume.then(|| state.join(CLASSES_SOCKET)),
        };
        let station = match Station::open(engine, config) {
            Err(error @ AgentError::Gates(GateError::Held { .. })) => {
                // The directory is another agent's, which needs it.
                std::mem::forget(run_directory);
                return Err(error);
            }
            opened => opened?,
        };
        let (name, account) = (name.to_owned(), account.to_owned());
        Ok(StationedVolume {
            name,
            account,
            rules,
            station,
            mount_point: None,
            _run_directory: run_directory,
            _lock: lock,
        })
    }

    /// The file system is mounted now.
    ///
    /// # Errors
    /// The mount point cannot be opened.
    pub(super) fn mounted(&mut self, mount_point: &Path) -> Result<(), AgentError> {
        self.station.mounted(mount_point)?;
        self.mount_point = Some(mount_point.to_owned());
        Ok(())
    }

    /// Where containers hand over their listeners.
    pub(super) fn listeners(&self) -> PathBuf {
        self.station.listeners()
    }

    /// What of the file system's I/O has causes.
    pub(super) fn coverage(&self) -> &Coverage {
        self.station.coverage()
    }
}

/// A directory in memory for a daemon and a volume: the same after a restart, another daemon's another one. Removed
/// when it is dropped. A daemon that is killed leaves it to its successor, and to tenants that live on.
struct RunDirectory {
    path: PathBuf,
    /// Names it, for a successor that has no such volume any more.
    note: PathBuf,
}

impl RunDirectory {
    fn make(state: &Path, volume: &str) -> Result<RunDirectory, AgentError> {
        let path = if is_in_memory(state).unwrap_or(false) {
            state.join(format!("gates-{volume}"))
        } else {
            let of_state = state.to_string_lossy().replace('/', "-");
            Path::new(MEMORY).join(format!("plimsoll-gates{of_state}-{volume}"))
        };
        let note = state.join(format!("{NOTES_BEGIN}{volume}"));
        let noted = replace_file(&note, path.as_os_str().as_bytes());
        noted.map_err(|source| AgentError::System { action: "note the directory of the gates", source })?;
        let is_left = path.exists();
        make_own(&path)?;
        if let Some(closed) = closed_to_others(&path) {
            let closed = closed.display();
            tracing::warn!("other users cannot enter {closed}, so calls of theirs are not held: chmod o+x {closed}");
        }
        if is_left {
            tracing::info!("recovered from a predecessor: the gates in {}, which are open", path.display());
        }
        Ok(RunDirectory { path, note })
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir_all(&self.path).and_then(|()| remove_file(&self.note));
        if let Err(error) = removed {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Removes what predecessors with this state directory left in memory for volumes and disks that are not served any
/// more. The gates of a daemon that is gone are open: what still runs behind them runs on.
pub(super) fn remove_left(configuration: &Configuration) {
    let volumes = configuration
        .volumes
        .iter()
        .filter(|volume| volume.mount.as_ref().is_some_and(|mount| mount.file_system.is_some() && mount.takes_tenants));
    let disks = configuration.devices.iter().filter(|device| device.observe.is_some());
    let names: Vec<&str> =
        volumes.map(|volume| volume.name.as_str()).chain(disks.map(|device| device.name.as_str())).collect();
    let user = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(&configuration.daemon.state_directory).into_iter().flatten().flatten() {
        let note = entry.path();
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(NOTES_BEGIN)) else { continue };
        if note.extension().is_some_and(|extension| extension == "new") || names.contains(&name) {
            continue;
        }
        let Ok(path) = std::fs::read(&note).map(|bytes| PathBuf::from(OsString::from_vec(bytes))) else { continue };
        let is_ours = path.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
        let is_named_so = path.file_name().is_some_and(|name| name.to_string_lossy().contains("gates-"));
        let removed = if is_ours && is_named_so { std::fs::remove_dir_all(&path) } else { Ok(()) };
        match removed.and_then(|()| remove_file(&note)) {
            Ok(()) => tracing::info!("recovered from a predecessor: removed {}", path.display()),
            Err(error) => tracing::warn!("left by a predecessor: cannot remove {}: {error}", path.display()),
        }
    }
}

/// The stations of a daemon.
#[derive(Clone, Default)]
pub(super) struct Tenants {
    stations: Arc<Vec<StationedVolume>>,
}

impl Tenants {
    /// Adds a volume; before any other thread has the stations.
    pub(super) fn add(&mut self, station: StationedVolume) {
        Arc::get_mut(&mut self.stations)
            .expect(
                "no other thread has the tenants while the daemon \
                                                 starts",
            )
            .push(station);
    }

    /// Serves the socket in `state` at which applications say the classes of files on volumes with tenants; `None` if
    /// there are none.
    ///
    /// # Errors
    /// The errors of [`ClassServer::start`].
    pub(super) fn hear_classes(&self, state: &Path) -> Result<Option<ClassServer>, AgentError> {
        let mounts = self.stations.iter().filter_map(|volume| {
            let classes = volume.station.classes()?.clone();
            Some(ClassifiedMount { mount_point: volume.mount_point.clone()?, classes })
        });
        let mounts: Vec<_> = mounts.collect();
        if mounts.is_empty() { Ok(None) } else { ClassServer::start(&state.join(CLASSES_SOCKET), mounts).map(Some) }
    }

    /// Lost causes, of those stations where some got lost.
    pub(super) fn losses(&self) -> Vec<LossEntry> {
        let entries = self.stations.iter().map(|StationedVolume { name, station, .. }| {
            let Losses { entries, events, registrations } = station.losses();
            LossEntry { volume: name.clone(), registrations, events, entries }
        });
        entries.filter(|entry| entry.registrations + entry.events + entry.entries > 0).collect()
    }

    /// The tenants that have joined.
    ///
    /// # Errors
    /// An engine has stopped.
    pub(super) fn list(&self) -> Result<Vec<TenantEntry>, String> {
        let mut entries = Vec::new();
        for StationedVolume { name, station, .. } in self.stations.iter() {
            let tenants = station.tenants().map_err(|error| error.to_string())?.into_iter();
            entries.extend(tenants.map(|tenant| entry(name, tenant)));
        }
        Ok(entries)
    }

    /// Opens a session for a process and its children, in `pool` or in the volume's own account.
    ///
    /// # Errors
    /// There is no such volume or it takes no tenants. The scheduler does not keep the promises, the session is
    /// refused, or there is no such process.
    pub(super) fn join(
        &self,
        volume: Option<&str>,
        pool: Option<&str>,
        name: &str,
        change: &Change,
        process: u32,
    ) -> Result<Entrance, Refusal> {
        if let Some(what) = why_no_tenant(process) {
            return Err(Refusal::Invalid(format!("process: got {process}, {what}, allowed a process of a user")));
        }
        let names = || self.stations.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>().join(", ");
        let StationedVolume { account, rules, station, .. } = match (volume, &self.stations[..]) {
            (_, []) => {
                return Err(Refusal::Failed("nothing takes tenants: set volume.NAME.mount.tenants = true".to_owned()));
            }
            (None, [only]) => only,
            (None, _) => return Err(Refusal::Invalid(format!("got no volume, allowed {}", names()))),
            (Some(wanted), stations) => stations
                .iter()
                .find(|volume| volume.name == wanted)
                .ok_or_else(|| Refusal::NotFound(format!("volume {wanted:?} takes no tenants, allowed {}", names())))?,
        };
        let pool = pool.unwrap_or(account);
        let allocation =
            rules.joining(pool, change).map_err(|problem| Refusal::Invalid(format!("{name}: {problem}")))?;
        let tenant = station.join(pool, name, allocation)?;
        let enrolled = station.enroll(&tenant, Enrollee::Process(process));
        let entrance = station.entrance(&tenant);
        // A tenant that has never been there has gone, too.
        station.leave_when_gone(tenant);
        enrolled?;
        Ok(entrance)
    }
}

/// Why a process cannot be a tenant, in words. All that process 1 starts would be its I/O, the kernel's threads do that
/// of others, and the daemon would wait for itself.
fn why_no_tenant(process: u32) -> Option<&'static str> {
    match process {
        1 => Some("which starts all others"),
        _ if process == std::process::id() => Some("which is this daemon"),
        _ if is_kernel_thread(process) => Some("which is a thread of the kernel"),
        _ => None,
    }
}

fn entry(volume: &str, TenantState { path, tasks, holding }: TenantState) -> TenantEntry {
    let shown = |cgroup: TenantCgroup| TenantCgroupEntry {
        directory: cgroup.directory.display().to_string(),
        freezes: cgroup.freezes,
        is_late: cgroup.is_late,
    };
    TenantEntry {
        volume: volume.to_owned(),
        path,
        processes: tasks,
        held_by: holding.held_by.into_iter().map(str::to_owned).collect(),
        not_held: holding.not_held,
        freezes: holding.cgroups.iter().map(|cgroup| cgroup.freezes).sum(),
        cgroups: holding.cgroups.into_iter().map(shown).collect(),
    }
}

/// A station that cannot be had; `told` says where and why.
pub(super) fn no_station(error: AgentError, told: impl FnOnce(AgentError) -> String) -> Failure {
    match error {
        AgentError::Tags(TagsError::NotRun(why)) => Failure::NotRun(why),
        error => Failure::Failed(told(error)),
    }
}

/// Makes the block device of a volume, puts a station above it, and mounts it.
///
/// # Errors
/// What [`Attachment::build`] says; what [`Station::open`] says.
pub(super) fn mount_with_station(
    attachment: &mut Attachment,
    engine: &EngineHandle,
    configuration: &Configuration,
    volume: &Volume,
    mount_point: &Path,
) -> Result<StationedVolume, Failure> {
    let no_disk = |error: AttachError| Failure::Failed(plan::at(configuration, volume, "mount", error));
    let refused = |error: AgentError| no_station(error, |error| plan::at(configuration, volume, "mount", error));
    attachment.make_device().map_err(no_disk)?;
    let device = attachment.device_path().expect("it was made");
    let disk = Disk::Volume(volume.name.clone());
    let account = configuration.volume_path(volume);
    let station = StationedVolume::open(engine, configuration, (&volume.name, &volume.device), &account, disk, &device);
    let mut station = station.map_err(refused)?;
    attachment.mount().map_err(no_disk)?;
    station.mounted(mount_point).map_err(refused)?;
    Ok(station)
}

/// The number of a block device, such as `7:3`: the same for every path to it.
fn number_of(device: &Path) -> Result<String, AgentError> {
    let system = |errno: Errno| AgentError::System { action: "look at the block device", source: errno.into() };
    let found = stat(device).map_err(system)?.st_rdev;
    Ok(format!("{}:{}", major(found), minor(found)))
}

fn program_directory(state: &Path) -> Result<PathBuf, AgentError> {
    let is_executable = statvfs(state).is_ok_and(|system| !system.f_flag.contains(StatVfsMountFlags::NOEXEC));
    let path = if is_executable { state.join("programs") } else { PathBuf::from(PROGRAMS) };
    make_own(&path)?;
    Ok(path)
}
