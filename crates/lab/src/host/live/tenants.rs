//! The accounts of a scenario: sessions of a station above the disk, with processes that start behind its gates.
//!
//! Below a mount all I/O comes from the same kernel threads. A [`Station`] knows the cause of each block, so each
//! account of the scenario is a session of the engine. A scheduler that decides at system calls or by dirty pages hears
//! of both. Block schedulers go by cause then, which the kernel's own cannot: those are what to compare with.
//!
//! At the end no account has a limit any more. Otherwise a call that the scheduler holds for its caller's debts would
//! keep the run from ending until they are paid.

use super::HostError;
use super::error::failed;
use crate::scenario::{AccountSetup, Setup};
use plimsoll_agent::{AgentError, ClassServer, ClassifiedMount, Disk, Enrollee, Station, StationConfig, Tenant};
use plimsoll_core::Allocation;
use plimsoll_engine::EngineHandle;
use plimsoll_gates::{Filter, Launch};
use plimsoll_tags::TagsError;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Schedulers that decide at system calls or by what is dirty.
const NEED_LEVELS: &[&str] = &["afq", "scs_token", "split_deadline", "split_deadline_flusher", "split_token"];
/// Schedulers that need each read and write at its entry, with its bytes, which one word for all calls does not tell.
const NEED_EACH_CALL: &[&str] = &["scs_token"];
/// In memory, as the gates' words require. Always the same, so that the next run cleans up after a killed one.
pub(in crate::host::live) const RUN_DIRECTORY: &str = "/dev/shm/plimsoll-live";
/// Where programs say the classes of their files, in it.
const CLASSES_SOCKET: &str = "classes.sock";
/// Every user may enter, only the run's own may write.
const DIRECTORY_MODE: u32 = 0o755;

/// Whether the setup needs a station above its disk: to distinguish processes, or for classes of blocks.
pub(super) fn are_needed(setup: &Setup) -> bool {
    let sessions = setup.accounts.iter().filter(|account| !account.is_pool);
    let has_promises = setup.accounts.iter().any(|account| account.allocation != Allocation::default());
    let is_told_apart = sessions.clone().count() > 1 && has_promises;
    let is_alone_in_a_pool = sessions.clone().count() == 1 && sessions.clone().any(|one| one.parent.is_some());
    let has_levels = NEED_LEVELS.contains(&setup.machine.scheduler);
    let has_classes = setup.machine.cache.is_some();
    setup.machine.kernel_scheduler.is_none() && (has_levels || is_told_apart || is_alone_in_a_pool || has_classes)
}

/// Why a setup that takes a station cannot be run, if so.
pub(super) fn why_not(setup: &Setup) -> Option<String> {
    if NEED_EACH_CALL.contains(&setup.machine.scheduler) {
        return Some(format!(
            "{} decides about each read and write by its bytes, and gates tell only that a call writes",
            setup.machine.scheduler
        ));
    }
    let process = setup.processes.iter().find(|process| !process.thread_accounts.is_empty())?;
    Some(format!("{} has accounts for its threads, and a process is in one account", process.name))
}

/// The station, and the tenants that have joined. Gates open when it is dropped.
pub(super) struct Tenants {
    engine: EngineHandle,
    tenants: BTreeMap<String, Tenant>,
    /// Gone before its directory is.
    station: Station,
    _run_directory: RunDirectory,
}

/// Takes away what a run that was killed left, if it did. Its processes died with it.
pub(super) fn recover() -> bool {
    std::fs::remove_dir_all(RUN_DIRECTORY).is_ok()
}

/// Removed when it is dropped.
struct RunDirectory(PathBuf);

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

impl RunDirectory {
    fn make(path: &Path) -> std::io::Result<RunDirectory> {
        std::fs::create_dir_all(path)?;
        std::fs::set_permissions(path, PermissionsExt::from_mode(DIRECTORY_MODE))?;
        Ok(RunDirectory(path.to_owned()))
    }
}

impl Tenants {
    /// Opens the station above `volume`, on its block device, before a file system is mounted on it.
    pub(super) fn open(
        engine: &EngineHandle,
        volume: &str,
        device: PathBuf,
        program_directory: PathBuf,
        dirty_bytes_max: u64,
    ) -> Result<Tenants, HostError> {
        let run_directory =
            RunDirectory::make(Path::new(RUN_DIRECTORY)).map_err(|error| failed(RUN_DIRECTORY, error))?;
        let config = StationConfig {
            disk: Disk::Volume(volume.to_owned()),
            device,
            run_directory: run_directory.0.clone(),
            program_directory,
            filter: Filter::default(),
            dirty_bytes_max,
            tasks_max: None,
            containers: None,
            classes: None,
        };
        let station = Station::open(engine, config).map_err(|error| match error {
            AgentError::Tags(TagsError::NotRun(why)) => HostError::NotRun(why),
            error => failed("open a station", error),
        })?;
        Ok(Tenants { engine: engine.clone(), tenants: BTreeMap::new(), station, _run_directory: run_directory })
    }

    /// The file system is mounted now: opens the accounts, parents first. Those in no pool are in `pool`.
    pub(super) fn mounted(
        &mut self,
        mount_point: &Path,
        accounts: &[AccountSetup],
        pool: &str,
    ) -> Result<(), HostError> {
        self.station.mounted(mount_point).map_err(|error| failed("find files", error))?;
        let mut paths: BTreeMap<&str, String> = BTreeMap::new();
        for AccountSetup { name, parent, is_pool, allocation } in accounts {
            let parent = parent.as_ref().map(|parent| paths[parent.as_str()].as_str());
            if *is_pool {
                let path = parent.map_or(name.clone(), |parent| format!("{parent}/{name}"));
                // It is there if the file system was mounted before.
                if self.engine.account(&path).map_err(|error| failed(name, error))?.is_none() {
                    self.engine.open_pool(&path, *allocation).map_err(|error| failed(name, error))?;
                }
                paths.insert(name, path);
            } else {
                let joined = self.station.join(parent.unwrap_or(pool), name, *allocation);
                self.tenants.insert(name.clone(), joined.map_err(|error| failed(name, error))?);
            }
        }
        Ok(())
    }

    /// Serves the classes of files, as a daemon does, as long as the returned value lives. `mounted` is the mount point
    /// of the file system.
    pub(super) fn hear_classes(&self, mounted: &Path) -> Result<ClassServer, HostError> {
        let classes = self.station.classes().expect("the disk is a volume").clone();
        let mount = ClassifiedMount { mount_point: mounted.to_owned(), classes };
        let socket = Path::new(RUN_DIRECTORY).join(CLASSES_SOCKET);
        ClassServer::start(&socket, vec![mount]).map_err(|error| failed("hear classes", error))
    }

    fn tenant(&self, account: &str) -> &Tenant {
        self.tenants.get(account).expect("each process is in an account of the scenario")
    }

    /// The gates that a process in `account` starts behind.
    pub(super) fn launch(&self, account: &str) -> Result<Launch, HostError> {
        let launch = self.station.entrance(self.tenant(account)).launch(Filter::default());
        launch.map_err(|error| failed(account, error))
    }

    /// What the process `number` does is the account's from now on.
    pub(super) fn enroll(&self, account: &str, number: u32) -> Result<(), HostError> {
        let enrolled = self.station.enroll(self.tenant(account), Enrollee::Process(number));
        enrolled.map_err(|error| failed(account, error))
    }

    /// Lifts all limits, so that every process can finish.
    pub(super) fn release(&self) {
        for (name, tenant) in &self.tenants {
            if let Err(error) = self.engine.change_session(tenant.account, Allocation::default()) {
                eprintln!("{name} keeps its limit: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(accounts: &str) -> Setup {
        let text = format!(
            "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"live\"]\ntakes = \"1 s\"\n\
             duration = \"2s\"\n[machine]\ndevice = \"nvme.64th\"\nscheduler = \"wdt\"\nfile_system = \"ext4\"\n{accounts}\n\
             [process.a]\nworkload = \"append 4KiB\"\n[process.b]\nworkload = \"append 4KiB\"\n\
             [row.r]\ntitle = \"t\"\nmeasure = '1'\nunit = \"\"\n"
        );
        crate::scenario::parse(&text, Path::new("t.toml"), &[]).unwrap().variants[0].setup.clone()
    }

    #[test]
    fn processes_are_told_apart_where_they_or_their_pools_are_promised_something() {
        assert!(!are_needed(&setup("")));
        assert!(are_needed(&setup("[account]\na = { weight = 200 }")));
        assert!(are_needed(&setup("[account]\nheavy = { weight = 200 }\na = { parent = \"heavy\" }")));
    }
}
