//! What the control socket can do to a running daemon.

mod reload;

use super::caches::Caches;
use super::doors::{DoorName, OpenDoors};
use super::executor::ServiceThreads;
use super::promises;
use super::refusal::Refusal;
use super::served::{ServedDevice, ServedDisk};
use super::tenants::Tenants;
use crate::config::{Configuration, Volume as VolumeSection};
use crate::control::protocol::{
    Change, DaemonStatus, ExecutorStatus, PoolStatus, Request, Response, ServedAs, SessionEntry, VolumeEntry,
};
use crate::control::recording::RecordingAnswer;
use crate::control::server::Answer;
use crate::metrics::accounts::POOL;
use crate::metrics::caches::CACHED_VOLUME;
use crate::metrics::devices::DAEMON;
use crate::metrics::tenants::TENANT;
use crate::metrics::volumes::SERVED_VOLUME;
use plimsoll_core::Allocation;
use plimsoll_core::account::{AccountError, AccountKind};
use plimsoll_engine::{EngineError, EngineStatus, RECORDER_EVENTS_DEFAULT};
use plimsoll_serve::registry::{Entry, Reach, front_ends, with_sockets};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// Answers requests of the control socket, from any thread.
pub(super) struct Administration {
    configuration: Configuration,
    /// What the file said when it was last found in order.
    loaded: Mutex<Configuration>,
    devices: Vec<ServedDevice>,
    executor: Option<ServiceThreads>,
    disks: Vec<ServedDisk>,
    tenants: Tenants,
    doors: Arc<OpenDoors>,
    caches: Caches,
    stop: Sender<()>,
    /// Held from a look-up to the change that follows, so that two clients do not undo each other's change.
    changing: Mutex<()>,
}

impl Administration {
    /// For the daemon that serves `devices`; it ends when it hears from `stop`.
    pub(super) fn new(
        configuration: Configuration,
        devices: Vec<ServedDevice>,
        executor: Option<ServiceThreads>,
        disks: Vec<ServedDisk>,
        tenants: Tenants,
        doors: Arc<OpenDoors>,
        stop: Sender<()>,
    ) -> Administration {
        let caches = Caches::new(configuration.clone(), devices.clone());
        Administration {
            loaded: Mutex::new(configuration.clone()),
            configuration,
            devices,
            executor,
            disks,
            tenants,
            doors,
            caches,
            stop,
            changing: Mutex::new(()),
        }
    }

    /// Carries out a request.
    pub(super) fn answer(&self, request: Request) -> Answer {
        // These may take long, and have a lock of their own.
        let cached = match &request {
            Request::CacheList {} => {
                Some(self.caches.list().map(|caches| Response::Caches(CACHED_VOLUME.list(caches))))
            }
            Request::CacheFlush { volume } => Some(self.caches.flush(volume)),
            Request::CacheAttach { volume, cache, make } => Some(self.caches.attach(volume, cache, *make)),
            Request::CacheDetach { volume, lost } => Some(self.caches.detach(volume, *lost)),
            Request::CacheResize { volume, size_bytes } => Some(self.caches.resize(volume, *size_bytes)),
            Request::CacheSet { volume, change } => Some(self.caches.change(volume, change)),
            _ => None,
        };
        match cached {
            Some(answer) => Answer::Line(answer.unwrap_or_else(Response::from)),
            None => self.answer_at_once(request),
        }
    }

    fn answer_at_once(&self, request: Request) -> Answer {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match request {
            Request::Status {} => self.status().map(|status| Response::Status(DAEMON.object(&status))),
            Request::PoolList {} => self.pools().map(|pools| Response::Pools(POOL.list(pools))),
            Request::Tenants {} => {
                let tenants = self.tenants.list().map_err(Refusal::Failed);
                tenants.map(|tenants| Response::Tenants(TENANT.list(tenants)))
            }
            Request::VolumeList {} => self.volumes().map(|volumes| Response::Volumes(SERVED_VOLUME.list(volumes))),
            Request::PoolAdd { pool, device, change } => self.pool_add(&pool, device.as_deref(), change),
            Request::PoolSet { pool, change } => self.pool_set(&pool, change),
            Request::PoolRemove { pool } => self.pool_remove(&pool),
            Request::SessionOpen { volume, name, change, tied } => match self.session_open(&volume, &name, change) {
                Ok(session) if tied => return self.tied(session),
                opened => opened.map(Response::Session),
            },
            Request::SessionClose { session } => self.session_close(&session),
            Request::Record { device } => match self.record(device.as_deref()) {
                Ok(recording) => return Answer::Recording(recording),
                Err(refusal) => Err(refusal),
            },
            Request::Join { volume, pool, name, change, process } => check_name(&name).and_then(|()| {
                let joined = self.tenants.join(volume.as_deref(), pool.as_deref(), &name, &change, process);
                joined.map(|entrance| Response::Joined(Box::new(entrance)))
            }),
            Request::CacheList {}
            | Request::CacheFlush { .. }
            | Request::CacheAttach { .. }
            | Request::CacheDetach { .. }
            | Request::CacheResize { .. }
            | Request::CacheSet { .. } => unreachable!("answered before"),
            Request::Shutdown {} => {
                // The daemon may be ending already.
                let _ = self.stop.send(());
                Ok(Response::Done("shutting down".into()))
            }
        };
        Answer::Line(answer.unwrap_or_else(Response::from))
    }

    fn record(&self, device: Option<&str>) -> Result<RecordingAnswer, Refusal> {
        let device = self.device(device)?;
        let recording = device.engine.record(RECORDER_EVENTS_DEFAULT)?;
        Ok(RecordingAnswer::new(device.profile.name.clone(), recording))
    }

    fn status(&self) -> Result<DaemonStatus, Refusal> {
        Ok(DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            configuration: self.configuration.file.clone(),
            executor: self.executor.as_ref().map(|executor| ExecutorStatus {
                policy: self.configuration.executor.policy,
                figures: executor.figures(),
            }),
            devices: self.shown_engines()?,
            volumes: self.volumes()?,
            losses: self.tenants.losses(),
        })
    }

    fn engines(&self) -> Result<Vec<EngineStatus>, Refusal> {
        self.devices.iter().map(|device| device.engine.status().map_err(Refusal::from)).collect()
    }

    /// The same for readers. A session that an application opened is a session, and its connections are sessions in it.
    /// The engine has a pool for it, because it has members.
    fn shown_engines(&self) -> Result<Vec<EngineStatus>, Refusal> {
        let mut engines = self.engines()?;
        let accounts = engines.iter_mut().flat_map(|engine| &mut engine.accounts);
        for account in accounts.filter(|account| self.doors.has_session(&account.path)) {
            account.kind = AccountKind::Session;
        }
        Ok(engines)
    }

    fn is_volume(&self, path: &str) -> bool {
        self.configuration.volumes.iter().any(|volume| self.configuration.volume_path(volume) == path)
    }

    fn pools(&self) -> Result<Vec<PoolStatus>, Refusal> {
        let mut pools = Vec::new();
        for status in self.engines()? {
            // The root stands for the device and comes first.
            let accounts = status.accounts.iter().skip(1).filter(|account| account.kind == AccountKind::Pool);
            pools.extend(accounts.map(|account| PoolStatus {
                device: status.device.clone(),
                path: account.path.clone(),
                is_volume: self.is_volume(&account.path),
                is_session: self.doors.has_session(&account.path),
                allocation: account.allocation,
            }));
        }
        pools.sort_by(|a, b| (&a.device, &a.path).cmp(&(&b.device, &b.path)));
        Ok(pools)
    }

    fn volumes(&self) -> Result<Vec<VolumeEntry>, Refusal> {
        let engines = self.engines()?;
        let running = |name: &str| engines.iter().flat_map(|engine| &engine.volumes).find(|volume| volume.name == name);
        let entries = self.configuration.volumes.iter().map(|volume| {
            let file_system = volume.mount.as_ref().and_then(|mount| mount.file_system.as_ref());
            let disk = self.disks.iter().find(|disk| disk.volume == volume.name);
            VolumeEntry {
                name: volume.name.clone(),
                device: volume.device.clone(),
                path: self.configuration.volume_path(volume),
                size_bytes: volume.size_bytes,
                start_bytes: volume.start_bytes,
                is_read_only: volume.is_read_only,
                content: volume.backing.to_string(),
                export: volume.door("nbd").map(|export| export.name.clone()),
                target: volume.door("iscsi").map(|target| target.name.clone()),
                block_device: disk.and_then(|disk| disk.block_device.clone()),
                mount_point: file_system.map(|file_system| file_system.target.clone()),
                served_as: self.served_as(volume),
                front_ends: running(&volume.name).map_or(0, |volume| volume.front_ends),
            }
        });
        Ok(entries.collect())
    }

    /// Every way to a volume, in the order of the registry.
    fn served_as(&self, volume: &VolumeSection) -> Vec<ServedAs> {
        let ways = |entry: &Entry| match &entry.reach {
            Reach::Sockets(_) => {
                let own = volume.door(entry.section);
                own.map(|own| self.doors.ways(entry.name, &own.name)).unwrap_or_default()
            }
            Reach::Kernel => {
                let disk = self.disks.iter().find(|disk| disk.volume == volume.name);
                disk.and_then(|disk| disk.way(entry.name, volume)).into_iter().collect()
            }
        };
        front_ends().iter().flat_map(ways).collect()
    }

    /// The pool at `path`, with what it is promised now.
    fn find(&self, path: &str) -> Result<(&ServedDevice, Allocation), Refusal> {
        for device in &self.devices {
            let account = device.engine.account(path)?.filter(|account| account.kind == AccountKind::Pool);
            if let Some(account) = account {
                return Ok((device, account.allocation));
            }
        }
        Err(Refusal::NotFound(format!("there is no pool {path:?}; plimsoll pool list shows what there is")))
    }

    /// Whether there is a session at `path`: an application's, a connection's, a mount's or a tenant's.
    fn is_session(&self, path: &str) -> Result<bool, Refusal> {
        for device in &self.devices {
            if device.engine.account(path)?.is_some_and(|account| account.kind == AccountKind::Session) {
                return Ok(true);
            }
        }
        Ok(self.doors.has_session(path))
    }

    fn pool_add(&self, path: &str, device: Option<&str>, change: Change) -> Result<Response, Refusal> {
        let name = path.rsplit('/').next().unwrap_or_default();
        check_name(name)?;
        let owner = match path.rsplit_once('/') {
            Some((parent, _)) if self.is_session(parent)? => {
                return Err(Refusal::Failed(format!("{parent} is a session, which holds no pools")));
            }
            Some((parent, _)) => self.find(parent)?.0,
            None => self.device(device)?,
        };
        if self.find(path).is_ok() {
            return Err(Refusal::Failed(format!("there is a pool {path:?} already")));
        }
        if path.rsplit_once('/').is_some_and(|(parent, _)| self.is_volume(parent)) {
            return Err(Refusal::Failed("a volume holds sessions, not pools".into()));
        }
        let device = &owner.profile.name;
        let allocation = promises::check_pool(&self.configuration, device, path, &change, Allocation::default())?;
        owner.engine.open_pool(path, allocation)?;
        Ok(Response::Done(format!("pool {path} added on {}", owner.profile.name)))
    }

    fn device(&self, name: Option<&str>) -> Result<&ServedDevice, Refusal> {
        let names = || self.devices.iter().map(|device| device.profile.name.as_str()).collect::<Vec<_>>().join(", ");
        match (name, &self.devices[..]) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Refusal::Invalid(format!("got no device, allowed {}", names()))),
            (Some(name), devices) => devices
                .iter()
                .find(|device| device.profile.name == name)
                .ok_or_else(|| Refusal::NotFound(format!("there is no device {name:?}, allowed {}", names()))),
        }
    }

    fn pool_set(&self, path: &str, change: Change) -> Result<Response, Refusal> {
        if change == Change::default() {
            return Err(Refusal::Invalid("got nothing to change, allowed reserve, limit and weight".into()));
        }
        let (device, before) = self.find(path)?;
        let allocation = promises::check_pool(&self.configuration, &device.profile.name, path, &change, before)?;
        device.engine.change_account(path, allocation)?;
        Ok(Response::Done(format!("pool {path} changed")))
    }

    fn session_open(&self, volume: &str, name: &str, change: Change) -> Result<SessionEntry, Refusal> {
        check_name(name)?;
        let found = self.configuration.volumes.iter().find(|section| section.name == volume);
        let section = found.ok_or_else(|| {
            Refusal::NotFound(format!("there is no volume {volume:?}; plimsoll volume list shows what there is"))
        })?;
        let own = front_ends().iter().find_map(|entry| {
            let own = section.door(entry.section)?;
            Some(DoorName { front_end: entry.name, name: own.name.clone() })
        });
        let door = own.ok_or_else(|| Refusal::NotFound(no_door(volume)))?;
        let account = format!("{}/{name}", self.configuration.volume_path(section));
        let allocation = change.apply(self.configuration.session_allocation(section));
        promises::check(&self.configuration, &section.device, &account, &allocation)?;
        self.doors.open_session(&door, name, &change)
    }

    /// The session ends with the connection that asked for it.
    fn tied(&self, session: SessionEntry) -> Answer {
        let (doors, path) = (self.doors.clone(), session.path.clone());
        Answer::Tied(Response::Session(session), Box::new(move || doors.end_session(&path)))
    }

    fn session_close(&self, name: &str) -> Result<Response, Refusal> {
        let path = self.doors.session_path(name);
        let path = path.as_deref().unwrap_or(name);
        match self.doors.close_session(path) {
            Ok(true) => Ok(Response::Done(format!("session {path} closed"))),
            Ok(false) => Err(Refusal::NotFound(format!("there is no session {path:?} that session_open has opened"))),
            Err(EngineError::Account(AccountError::Tree { .. })) => {
                Err(Refusal::Failed(format!("{path}: clients are connected to it: try again when they have gone")))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn pool_remove(&self, path: &str) -> Result<Response, Refusal> {
        if self.doors.has_session(path) {
            return Err(Refusal::Failed(format!("{path} is a session's: plimsoll session close")));
        }
        if self.is_volume(path) {
            return Err(Refusal::Failed(format!("{path} is a volume's, which is served as long as the daemon runs")));
        }
        let (device, _) = self.find(path)?;
        device.engine.close_pool(path)?;
        Ok(Response::Done(format!("pool {path} removed")))
    }
}

/// The refusal that a volume has no door for a session, with the volumes that have one.
fn no_door(volume: &str) -> String {
    let missing = with_sockets().map(|(entry, sockets)| format!("no {} {}", entry.title, sockets.words.door));
    let (missing, allowed): (Vec<String>, Vec<&str>) =
        (missing.collect(), with_sockets().map(|(entry, _)| entry.section).collect());
    let (missing, allowed) = (missing.join(" and "), allowed.join(" or "));
    format!(
        "volume {volume} has {missing} for a session, allowed are volumes with {allowed}; plimsoll run is for processes"
    )
}

/// Names stand in tables, paths and messages.
fn check_name(name: &str) -> Result<(), Refusal> {
    crate::config::name_refusal(name).map_or(Ok(()), |refusal| Err(Refusal::Invalid(refusal)))
}
