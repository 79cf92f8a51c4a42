//! A mounted file system with everything above its disk: causes, gates and accounts for tenants.
//!
//! ```text
//!   make_device --> Station::open --> mount --> Station::mounted        tenants: join, enroll, launch, leave
//!                   tags loaded                 files can be found
//! ```
//!
//! The tags must be there before the first block of the file system is read, so a station opens between the two halves
//! of `plimsoll_serve::attach::Attachment::build`. From then on the engine asks it about every
//! block, and takes its turns. When it is dropped, the gates open and the engine is alone with its blocks again.
//!
//! **An observed disk** has an engine without volumes ([`Disk::Observed`]). Its requests are seen, and counted in the
//! same accounts, but only the gates hold calls. All processes of no tenant are one session, `others`. It is mounted
//! before the station opens, and then what was dirty has no known cause; or later, which the doorman sees.

use crate::block_tags::VolumeTags;
use crate::classified::FileClasses;
use crate::commands::{Enrollee, LevelsHandle};
use crate::container_rules::ContainerRules;
use crate::doorman::{Doorman, ObservedDisk};
use crate::error::AgentError;
use crate::freezer::Freezer;
use crate::freezer::groups::{FreezeOrders, TenantCgroup};
use crate::levels::{Levels, Parts};
use crate::losses::LossLog;
use crate::metadata;
use crate::mounts::device_numbers;
use crate::tenant::{Tenant, join, lock, try_leave};
use crate::writeback::Writeback;
use plimsoll_core::{AccountId, Allocation, Span};
use plimsoll_engine::{EngineHandle, SessionConfig};
use plimsoll_gates::{Filter, GateWords, Keepers, Launch, Listeners, OciSocket, Programs};
use plimsoll_tags::{Coverage, Losses, Options, Tags, TagsError};
use rustix::event::{Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Bytes of the ring of events: 150,000 of 48 bytes, as many as 120 GB/s of dirtying makes within
/// [`FETCH_QUIET`](crate::levels::pace::FETCH_QUIET).
const EVENT_BYTES: u32 = 8 << 20;
/// Where listeners are handed over, in the run directory.
const LISTENERS_SOCKET: &str = "listeners.sock";
const LISTENERS_SOCKET_MODE: u32 = 0o600;
/// How often to ask whether a tenant's last calls have returned.
const LEAVE_AGAIN: Span = Span::from_millis(10);
/// How long to ask.
const LEAVE_PATIENCE: Span = Span::from_secs(10);

/// What a station needs to know.
#[derive(Clone, Debug)]
pub struct StationConfig {
    /// What the file system is on.
    pub disk: Disk,
    /// The block device.
    pub device: PathBuf,
    /// Directory of words and sockets, on a tmpfs and writable for this user only.
    pub run_directory: PathBuf,
    /// Where shim and keeper are: one that every user may enter, not mounted `noexec`.
    pub program_directory: PathBuf,
    /// Which calls of launched programs are notified.
    pub filter: Filter,
    /// Bytes that may be dirty before the kernel makes writers wait by itself.
    pub dirty_bytes_max: u64,
    /// Processes of tenants that can be distinguished at once; `None`: the tags' default.
    pub tasks_max: Option<u32>,
    /// Judges what containers ask for; `None`: admission alone does.
    pub containers: Option<Arc<dyn ContainerRules>>,
    /// Where launched programs say the classes of files, if there is such a place
    /// ([`ClassServer`](crate::ClassServer)).
    pub classes: Option<PathBuf>,
}

/// What a station's file system is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// A volume of the engine, by its name: its requests are ordered.
    Volume(String),
    /// A disk of the kernel's. Its engine has no volumes, and sees the disk's requests.
    Observed {
        /// The pool of the session of all processes of no tenant; empty: the device's own.
        pool: String,
        /// Whether tenants are charged for what their processes submit though causes could be told. Where they cannot,
        /// it is so in any case.
        is_by_submitter: bool,
    },
}

/// Options of a station's tags: they record each event, and each return from a call that the gates notify. The requests
/// of a volume are the engine's own, and need none.
pub fn tag_options(filter: Filter, dirty_bytes_max: u64, disk: &Disk) -> Options {
    Options {
        event_bytes: Some(EVENT_BYTES),
        has_request_events: matches!(disk, Disk::Observed { .. }),
        returns: filter.call_numbers().collect(),
        dirty_pages_max: u32::try_from(dirty_bytes_max / plimsoll_tags::BLOCK_BYTES).unwrap_or(u32::MAX),
        ..Options::default()
    }
}

/// Where a tenant's commands come in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entrance {
    /// Its bit in masks of causes.
    pub bit: u32,
    /// What its words say while they are closed.
    pub generation: u32,
    /// The name of its commands in messages.
    pub name: String,
    /// The library to preload.
    pub shim: PathBuf,
    /// The words that it looks at.
    pub words: PathBuf,
    /// Where the listener of the filter is handed over.
    pub listeners: PathBuf,
    /// Where classes of files are said; `null` for an observed disk.
    pub classes: Option<PathBuf>,
    /// Whether its commands may use io_uring: the freezer holds the tenant.
    #[serde(default)]
    pub has_rings: bool,
    /// Why the freezer does not hold it, in one line; `null`: it does.
    #[serde(default)]
    pub not_held: Option<String>,
}

impl Entrance {
    /// The gates for a command. Its calls of `filter` are notified.
    ///
    /// # Errors
    /// See [`Launch`].
    pub fn launch(&self, filter: Filter) -> Result<Launch, AgentError> {
        let launch = Launch::new().with_shim_at(&self.shim, &self.words, AccountId(self.bit), self.generation)?;
        let launch = self.classes.iter().fold(launch, |launch, path| launch.with_classes(path));
        let filter = if self.has_rings { filter.with_rings() } else { filter };
        Ok(launch.with_filter(filter, &self.listeners, &metadata::of_joined(self.bit), &self.name))
    }
}

/// What holds a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The instruments, of `shim`, `notifications`, `freezer`.
    pub held_by: Vec<&'static str>,
    /// Why the freezer does not hold it, in one line; `None`: it does.
    pub not_held: Option<String>,
    /// The cgroups that are frozen with it.
    pub cgroups: Vec<TenantCgroup>,
}

/// A tenant that leaves by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantState {
    /// The path of its session.
    pub path: String,
    /// Its processes and threads that live.
    pub tasks: Vec<u32>,
    /// What holds it.
    pub holding: Holding,
}

/// See the [module's text](self).
pub struct Station {
    engine: EngineHandle,
    config: StationConfig,
    levels: LevelsHandle,
    /// Ends with the station and not with the levels, since its end may wait for the disk. The levels end on the
    /// engine's thread if that stops. The caller unmounts that after it, while the engine still serves it.
    writeback: Writeback,
    /// Dropped after the levels, which give it orders.
    freezer: Option<Freezer>,
    programs: Programs,
    words: PathBuf,
    coverage: Coverage,
    classes: Arc<FileClasses>,
    /// Tenants that leave when no process of them is left.
    watched: Arc<Mutex<Vec<Tenant>>>,
    /// The session of all other processes, on an observed disk.
    others: Option<AccountId>,
    is_over: Arc<AtomicBool>,
    doorman: Option<JoinHandle<()>>,
}

impl Station {
    /// Loads the tags, makes the gates, and puts both above the engine.
    ///
    /// # Errors
    /// BPF is not permitted and the disk is a volume: its requests must have causes ([`TagsError::NotRun`]); a
    /// directory cannot be used; the engine has stopped.
    pub fn open(engine: &EngineHandle, config: StationConfig) -> Result<Station, AgentError> {
        let tags = load_tags(&config)?;
        let (table, coverage) = (tags.table(), tags.coverage().clone());
        let programs = Programs::install(&config.program_directory)?;
        let words = GateWords::create(&config.run_directory)?;
        let words_path = words.path().to_owned();
        let keepers = Keepers::open(&config.run_directory, &programs, &words)?;
        let starter = keepers.starter();
        let (freezer, orders) = open_freezer(&config.run_directory, &programs, &words_path);
        let socket = OciSocket::listen(&config.run_directory.join(LISTENERS_SOCKET), LISTENERS_SOCKET_MODE)?;
        let others = match &config.disk {
            Disk::Volume(_) => None,
            Disk::Observed { pool, .. } => Some(engine.open_session(pool, others_session())?),
        };
        let writeback = Writeback::start().map_err(|source| AgentError::System { action: "start a thread", source })?;
        let devices = device_numbers(&config.device)?;
        let is_observed = matches!(config.disk, Disk::Observed { .. });
        let observed = is_observed.then(|| ObservedDisk::new(config.device.clone(), writeback.mounts())).transpose()?;
        let parts = Parts {
            tags,
            words,
            listeners: Listeners::new(keepers),
            slices: writeback.slices(),
            devices,
            dirty_bytes_max: config.dirty_bytes_max,
            freezer: orders,
            others,
        };
        let (levels, handle) = Levels::new(parts)?;
        let classes = Arc::new(FileClasses::default());
        if let Disk::Volume(volume) = &config.disk {
            let tags = VolumeTags::new(table, levels.members().clone(), classes.clone());
            engine.set_tags(volume, Some(Box::new(tags)))?;
        }
        let members = levels.members().clone();
        engine.set_upper_levels(Some(Box::new(levels)))?;
        let (is_over, watched) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let mut doorman = Doorman {
            socket,
            starter,
            engine: engine.clone(),
            levels: handle.clone(),
            members,
            freezer: freezer.as_ref().map(Freezer::handle),
            pool: pool_of(engine, &config.disk)?,
            rules: config.containers.clone(),
            containers: BTreeMap::new(),
            observed,
            device: config.device.clone(),
            losses: LossLog::default(),
            watched: watched.clone(),
            is_over: is_over.clone(),
        };
        let thread = std::thread::Builder::new().name("doorman".to_owned()).spawn(move || doorman.run());
        let doorman = Some(thread.map_err(|source| AgentError::System { action: "start a thread", source })?);
        Ok(Station {
            engine: engine.clone(),
            config,
            levels: handle,
            writeback,
            freezer,
            programs,
            words: words_path,
            coverage,
            classes,
            watched,
            others,
            is_over,
            doorman,
        })
    }

    /// The file system is mounted now.
    ///
    /// # Errors
    /// The mount point cannot be opened.
    pub fn mounted(&self, mount_point: &Path) -> Result<(), AgentError> {
        self.writeback.mounts().mounted(mount_point)?;
        self.levels.mounted(device_numbers(&self.config.device)?)
    }

    /// What of the file system's I/O has causes.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Losses of the tags so far: I/O of the file system that found no room.
    pub fn losses(&self) -> Losses {
        self.levels.losses()
    }

    /// Classes that applications say of the volume's files, for a [`ClassServer`](crate::classified::ClassServer).
    /// `None` for an observed disk: its blocks have no cache here.
    pub fn classes(&self) -> Option<&Arc<FileClasses>> {
        matches!(self.config.disk, Disk::Volume(_)).then_some(&self.classes)
    }

    /// Opens a session in `pool` for a tenant. Its I/O is that of [enrolled](Self::enroll) processes.
    ///
    /// # Errors
    /// Admission refuses the session, or all accounts are taken.
    pub fn join(&self, pool: &str, name: &str, allocation: Allocation) -> Result<Tenant, AgentError> {
        join(&self.engine, &self.levels, pool, name, allocation)
    }

    /// Charges the I/O of a process, thread or cgroup to the tenant from now on. Pages that it dirtied before keep their account.
    ///
    /// # Errors
    /// There is no such process.
    pub fn enroll(&self, tenant: &Tenant, enrollee: Enrollee) -> Result<(), AgentError> {
        self.levels.enroll(tenant.account, enrollee.clone())?;
        if let Some(freezer) = self.freezer.as_ref().map(Freezer::handle) {
            match enrollee {
                Enrollee::Process(process) => freezer.hold_process(tenant.bit, &tenant.name, process),
                Enrollee::Cgroup(directory) => freezer.hold_cgroup(tenant.bit, &directory),
                Enrollee::Thread(_) => freezer.refuse(tenant.bit, "a thread cannot be frozen without its process"),
            }
        }
        Ok(())
    }

    /// The gates of a tenant's commands: the shim for writes and reads, and the filter of the configuration. They are
    /// described by names, so that another process can start the command.
    pub fn entrance(&self, tenant: &Tenant) -> Entrance {
        let not_held = self.holding(tenant).not_held;
        Entrance {
            bit: tenant.bit,
            generation: tenant.generation,
            name: tenant.name.clone(),
            shim: self.programs.shim().to_owned(),
            words: self.words.clone(),
            listeners: self.listeners(),
            classes: self.config.classes.clone(),
            has_rings: not_held.is_none(),
            not_held,
        }
    }

    /// What holds a tenant, for as long as it has joined.
    pub fn holding(&self, tenant: &Tenant) -> Holding {
        let has_listeners = self.levels.listeners(tenant.account).is_ok_and(|count| count > 0);
        let (not_held, cgroups) = match &self.freezer {
            Some(freezer) => (freezer.handle().why_not(tenant.bit), freezer.handle().cgroups(tenant.bit)),
            None => (Some("the freezer could not be started; the log says why".to_owned()), Vec::new()),
        };
        let instruments = [
            ("shim", has_listeners && !tenant.is_container),
            ("notifications", has_listeners),
            ("freezer", not_held.is_none()),
        ];
        let held_by = instruments.into_iter().filter(|(_, holds)| *holds).map(|(name, _)| name).collect();
        Holding { held_by, not_held, cgroups }
    }

    /// Where listeners are handed over: `listenerPath` of containers that are to join.
    pub fn listeners(&self) -> PathBuf {
        self.config.run_directory.join(LISTENERS_SOCKET)
    }

    /// Lets a tenant leave by itself when its last process or thread has ended.
    pub fn leave_when_gone(&self, tenant: Tenant) {
        lock(&self.watched).push(tenant);
    }

    /// Tenants that leave by themselves, with their live processes and threads and what holds them.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn tenants(&self) -> Result<Vec<TenantState>, AgentError> {
        let watched: Vec<Tenant> = lock(&self.watched).clone();
        let mut tenants = Vec::new();
        for tenant in watched {
            // A tenant that has begun to leave has none any more.
            let tasks = self.levels.tasks(tenant.account).unwrap_or_default();
            let (path, holding) = (self.engine.account_path(tenant.account)?, self.holding(&tenant));
            tenants.push(TenantState { path, tasks, holding });
        }
        Ok(tenants)
    }

    /// Closes a tenant's session. Its processes, if there are any left, have no account from then on, and pass the
    /// words that their shims look at.
    ///
    /// # Errors
    /// [`AgentError::Busy`] if calls or requests of it are still under way after ten seconds.
    pub fn leave(&self, tenant: &Tenant) -> Result<(), AgentError> {
        let attempts = LEAVE_PATIENCE.as_nanos() / LEAVE_AGAIN.as_nanos();
        for _ in 0..attempts {
            match try_leave(&self.engine, &self.levels, self.freezer.as_ref().map(Freezer::handle).as_ref(), tenant) {
                Err(AgentError::Busy { .. }) => drop(poll(&mut [], Some(&timespec(LEAVE_AGAIN)))),
                outcome => return outcome,
            }
        }
        Err(AgentError::Busy { account: tenant.account })
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.doorman.take().map(JoinHandle::join);
        // An engine that has stopped has let go of both.
        if let Disk::Volume(volume) = &self.config.disk {
            let _ = self.engine.set_tags(volume, None);
        }
        let _ = self.engine.set_upper_levels(None);
        if let Some(others) = self.others {
            let _ = self.engine.close_session(others);
        }
    }
}

/// The tags of the disk; those of submitters, if it is observed and BPF is not available.
fn load_tags(config: &StationConfig) -> Result<Tags, TagsError> {
    let as_usual = tag_options(config.filter, config.dirty_bytes_max, &config.disk);
    let options = Options { tasks_max: config.tasks_max.unwrap_or(as_usual.tasks_max), ..as_usual };
    match &config.disk {
        Disk::Volume(_) => Tags::load(&config.device, &options),
        Disk::Observed { is_by_submitter: true, .. } => {
            Tags::of_submitters(&config.device, &options, "submitters were asked for")
        }
        Disk::Observed { is_by_submitter: false, .. } => match Tags::load(&config.device, &options) {
            Err(TagsError::NotRun(why)) => Tags::of_submitters(&config.device, &options, &why),
            outcome => outcome,
        },
    }
}

/// The freezer. Without one, tenants are held at their calls only.
fn open_freezer(run_directory: &Path, programs: &Programs, words: &Path) -> (Option<Freezer>, Option<FreezeOrders>) {
    match Freezer::open(run_directory, programs, words) {
        Ok((freezer, orders)) => (Some(freezer), Some(orders)),
        Err(error) => {
            tracing::warn!(%error, "no tenant is held by the freezer");
            (None, None)
        }
    }
}

/// All processes of no tenant, on an observed disk.
fn others_session() -> SessionConfig {
    SessionConfig { name: "others".to_owned(), allocation: Allocation::default() }
}

/// The pool that the sessions of a disk open in.
fn pool_of(engine: &EngineHandle, disk: &Disk) -> Result<String, AgentError> {
    let volume = match disk {
        Disk::Volume(volume) => volume,
        Disk::Observed { pool, .. } => return Ok(pool.clone()),
    };
    let found = engine.status()?.volumes.into_iter().find(|found| found.name == *volume);
    Ok(found.map(|volume| volume.pool).unwrap_or_default())
}

fn timespec(span: Span) -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: span.as_nanos() as i64 }
}
