//! The thread that registers new tenants and notices ended ones, so that the engine's thread waits for neither.
//!
//! A newcomer is a command of a tenant that has joined already, or a container, which joins by that. **A container** is
//! identified by its cgroup if it has one of its own, and by its first process. Later processes in it belong to it. It
//! leaves when no process is left behind its listeners.
//!
//! A runtime does not wait for an answer, and a listener that is closed would fail its container's calls for ever. So a
//! container with refused wishes is let through: it has no account, its calls go on, and a line in the log says
//! why.

use crate::commands::{Enrollee, LevelsHandle};
use crate::container_rules::ContainerRules;
use crate::descent::holds_only;
use crate::error::AgentError;
use crate::freezer::FreezerHandle;
use crate::losses::LossLog;
use crate::members::Members;
use crate::metadata::{ContainerWish, Metadata};
use crate::mounts::{DeviceNumbers, MountChanges, MountedDisk, device_numbers};
use crate::tenant::{Tenant, join, lock, try_leave};
use crate::writeback::Mounts;
use plimsoll_core::{AccountId, Span, ThreadId};
use plimsoll_engine::EngineHandle;
use plimsoll_gates::oci::{Arrival, ContainerState};
use plimsoll_gates::{KeeperStarter, Listener, OciSocket, Registration, SeccompState};
use plimsoll_linux::PeerLog;
use plimsoll_tags::{AccountsOf, cgroups_of};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// How often to look whether it is over.
const LOOK: Span = Span::from_millis(100);
/// How often, in looks, to look for tenants that have gone.
const ROUNDS_PER_VISIT: u64 = 5;
/// The status of a container in which something more is executed.
const RUNNING: &str = "running";

/// What runtimes and containers make the log say.
static LOG: PeerLog = PeerLog::new();

/// See the [module's text](self).
pub(crate) struct Doorman {
    pub(crate) socket: OciSocket,
    pub(crate) starter: KeeperStarter,
    pub(crate) engine: EngineHandle,
    pub(crate) levels: LevelsHandle,
    pub(crate) members: Members,
    pub(crate) freezer: Option<FreezerHandle>,
    /// Where sessions of containers open that name no pool.
    pub(crate) pool: String,
    /// Judges what containers ask for.
    pub(crate) rules: Option<Arc<dyn ContainerRules>>,
    /// Containers that have joined, by name.
    pub(crate) containers: BTreeMap<String, Tenant>,
    /// Tenants that leave when no process of them is left.
    pub(crate) watched: Arc<Mutex<Vec<Tenant>>>,
    /// An observed disk, from which something may be mounted at any time.
    pub(crate) observed: Option<ObservedDisk>,
    /// The disk's name in messages.
    pub(crate) device: PathBuf,
    /// What was said of what the tags have lost.
    pub(crate) losses: LossLog,
    pub(crate) is_over: Arc<AtomicBool>,
}

/// Mounts of an observed disk. With a mount its files can be found, by the numbers of their devices.
pub(crate) struct ObservedDisk {
    device: PathBuf,
    changes: MountChanges,
    mounts: Mounts,
    has_files: bool,
    devices: DeviceNumbers,
}

impl ObservedDisk {
    pub(crate) fn new(device: PathBuf, mounts: Mounts) -> Result<ObservedDisk, AgentError> {
        let changes = MountChanges::new()?;
        Ok(ObservedDisk { device, changes, mounts, has_files: false, devices: DeviceNumbers::new() })
    }

    /// Reads the table of mounts, if it may have changed. Answers the numbers of the devices, if they have changed.
    fn look(&mut self) -> Option<DeviceNumbers> {
        let has_changed = self.changes.have_come();
        if self.has_files && !has_changed {
            return None;
        }
        if !self.has_files
            && let Ok(disk) = MountedDisk::of(&self.device)
        {
            match self.mounts.mounted(&disk.mount_point) {
                Ok(()) => {
                    tracing::info!("{} is mounted on {}", disk.device.display(), disk.mount_point.display());
                    self.has_files = true;
                }
                Err(error) => tracing::debug!(%error, "{} cannot be opened yet", disk.mount_point.display()),
            }
        }
        let devices = device_numbers(&self.device).ok().filter(|devices| *devices != self.devices)?;
        self.devices = devices.clone();
        Some(devices)
    }
}

impl Doorman {
    pub(crate) fn run(&mut self) {
        let mut rounds = 0u64;
        while !self.is_over.load(Ordering::Relaxed) {
            if rounds.is_multiple_of(ROUNDS_PER_VISIT) {
                self.see_who_was_killed();
                self.see_what_is_carried();
                self.see_who_has_gone();
                self.see_who_went_elsewhere();
                self.see_what_is_mounted();
                self.see_what_was_lost();
            }
            rounds += 1;
            let mut polled: Vec<PollFd<'_>> =
                self.socket.waiting().map(|waiting| PollFd::from_borrowed_fd(waiting, PollFlags::IN)).collect();
            let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
            // A round that ends early only makes the next one come early.
            let _ = poll(&mut polled, Some(&look));
            self.take_listeners();
        }
    }

    /// Takes what runtimes and launched commands hand over.
    fn take_listeners(&mut self) {
        let arrivals = match self.socket.accept(plimsoll_gates::clock::monotonic_now()) {
            Ok(arrivals) => arrivals,
            Err(error) => {
                return tracing::error!(%error, "the socket for seccomp listeners has failed: no process can \
                                                          be put behind a gate any more");
            }
        };
        for arrival in arrivals {
            if let Err(error) = arrival.map_err(|error| error.to_string()).and_then(|arrival| self.take(arrival)) {
                LOG.warn(format_args!("a seccomp listener is refused: {error}"));
            }
        }
    }

    fn take(&mut self, arrival: Arrival) -> Result<(), String> {
        let SeccompState { metadata, pid: process, state: container, .. } = arrival.state;
        let account = match metadata.parse() {
            Ok(Metadata::Joined(bit)) => match self.members.account(bit) {
                Some(_) => AccountId(bit),
                None => return Err(format!("{metadata:?} names no tenant that has joined")),
            },
            Ok(Metadata::Container(wish)) => self.welcome(process, &container, &wish),
            Err(error) => no_tenant(&container, &error),
        };
        let listener = Listener::new(arrival.listener, account).map_err(|error| error.to_string())?;
        let registration = Registration { account, name: container.id, process };
        self.levels.listen(self.starter.guard(listener, registration)).map_err(|error| error.to_string())?;
        arrival.answer.taken_over();
        Ok(())
    }

    /// The account, among the causes, of the tenant that a container's calls belong to.
    fn welcome(&mut self, process: u32, container: &ContainerState, wish: &ContainerWish) -> AccountId {
        // Else it is a new one, even if an earlier one had its name.
        let is_executed_later = container.status == RUNNING;
        let known =
            self.containers.get(&container.id).filter(|tenant| is_executed_later && has_joined(&self.members, tenant));
        let tenant = match known.cloned() {
            Some(tenant) => tenant,
            None => match self.open(container, wish) {
                Ok(tenant) => tenant,
                Err(error) => return no_tenant(container, &error),
            },
        };
        if let Err(error) = self.enroll(&tenant, process) {
            // Processes that it forked may have been found all the same.
            let container = shown(&container.id);
            LOG.warn(format_args!("container {container}: its process {process} is charged to no tenant: {error}"));
        }
        let account = AccountId(tenant.bit);
        self.containers.insert(container.id.clone(), tenant);
        account
    }

    fn open(&self, container: &ContainerState, wish: &ContainerWish) -> Result<Tenant, AgentError> {
        let (pool, name) = (wish.pool.as_ref().unwrap_or(&self.pool), wish.session_name(&container.id));
        let granted = match &self.rules {
            Some(rules) => rules.granted(pool, wish.allocation).map_err(|problem| AgentError::Promise { problem })?,
            None => wish.allocation,
        };
        let tenant = join(&self.engine, &self.levels, pool, &name, granted)?;
        let tenant = Tenant { is_container: true, ..tenant };
        lock(&self.watched).push(tenant.clone());
        LOG.info(format_args!("container {} joined as {name}", shown(&container.id)));
        Ok(tenant)
    }

    fn enroll(&self, tenant: &Tenant, process: u32) -> Result<(), AgentError> {
        if let Some(cgroup) = own_cgroup(process) {
            self.levels.enroll(tenant.account, Enrollee::Cgroup(cgroup))?;
        }
        // crun does not know the number of what it executes later: the cgroup must do.
        if process == 0 {
            return Ok(());
        }
        self.levels.enroll(tenant.account, Enrollee::Process(process))?;
        self.freezer.iter().for_each(|freezer| freezer.hold_process(tenant.bit, &tenant.name, process));
        Ok(())
    }

    /// Processes that have left the cgroups in which they are frozen come back.
    fn see_who_went_elsewhere(&self) {
        let Some(freezer) = &self.freezer else { return };
        for tenant in lock(&self.watched).clone() {
            if let Ok(tasks) = self.levels.tasks(tenant.account) {
                freezer.gather(tenant.bit, &tasks);
            }
        }
        freezer.tidy();
    }

    fn see_what_is_mounted(&mut self) {
        let Some(disk) = &mut self.observed else { return };
        if let Some(devices) = disk.look() {
            // The levels go before the doorman does.
            let _ = self.levels.mounted(devices);
        }
    }

    fn see_what_was_lost(&mut self) {
        let now = plimsoll_gates::clock::monotonic_now();
        if let Some(line) = self.losses.look(now, self.levels.losses()) {
            tracing::warn!("{}: {line}", self.device.display());
        }
    }

    fn see_who_has_gone(&mut self) {
        let mut watched = lock(&self.watched);
        // A watched process was enrolled before.
        let Ok(tasks) = self.levels.tasks_of_bits() else { return };
        watched.retain(|tenant| {
            let is_gone = match self.levels.listeners(tenant.account) {
                // It has begun to leave.
                Err(AgentError::Membership { .. }) => true,
                listeners => tasks[tenant.bit as usize] == 0 && matches!(listeners, Ok(0)),
            };
            if !is_gone {
                return true;
            }
            match try_leave(&self.engine, &self.levels, self.freezer.as_ref(), tenant) {
                Err(AgentError::Busy { .. }) => true,
                Err(error) => {
                    tracing::warn!(%error, "tenant {} cannot leave", tenant.name);
                    false
                }
                Ok(()) => false,
            }
        });
        drop(watched);
        self.containers.retain(|_, tenant| has_joined(&self.members, tenant));
    }

    fn see_what_is_carried(&self) {
        match self.levels.recycle() {
            // The levels go before the doorman does.
            Ok(()) | Err(AgentError::Gone) => {}
            Err(error) => tracing::warn!(%error, "the numbers of ended accounts cannot be used again"),
        }
    }

    /// A thread that was killed inside a call does not return from it.
    fn see_who_was_killed(&self) {
        let lives = |thread: &ThreadId| Path::new(&format!("/proc/{}", thread.0)).exists();
        let dead: Vec<ThreadId> = self.levels.inside().into_iter().flatten().filter(|thread| !lives(thread)).collect();
        if !dead.is_empty() {
            // The levels go before the doorman does.
            let _ = self.levels.returned(dead);
        }
    }
}

fn has_joined(members: &Members, tenant: &Tenant) -> bool {
    members.account(tenant.bit) == Some(tenant.account)
}

/// The account of processes that are no tenant: their calls go on at once.
fn no_tenant(container: &ContainerState, why: &dyn std::fmt::Display) -> AccountId {
    LOG.warn(format_args!("container {} is no tenant, its calls go on at once: {why}", shown(&container.id)));
    AccountsOf::OTHERS
}

/// A name that a stranger chose, made safe for a log line.
fn shown(name: &str) -> String {
    plimsoll_core::shown(&name.chars().take(128).collect::<String>()).into_owned()
}

/// A cgroup that holds only a process and its descendants. Runtimes make one for each container. A process that was put
/// among others has none.
fn own_cgroup(process: u32) -> Option<PathBuf> {
    cgroups_of(process).into_iter().find(|directory| holds_only(directory, process))
}
