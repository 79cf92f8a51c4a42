//! Limits and weights as the kernel has them: a group of the blkio controller for each account.
//!
//! Groups are of version 1, which knows a writer's group at its own calls only. The kernel writes the page cache back
//! in root's name. The comparison is about that. With version 2 (`io.max`, `io.bfq.weight`) the kernel charges some
//! writeback to its writer; a machine with that alone is *not run*.

use super::HostError;
use super::error::failed;
use super::group_folder::{self, GroupFolder};
use crate::scenario::{AccountSetup, MachineSetup, Setup};
use plimsoll_agent::limits::{Limits, LimitsConfig};
use plimsoll_core::Rate;
use plimsoll_core::account::WEIGHT_DEFAULT;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Where the groups' folder is noted, beside the state directory.
const NOTE: &str = "cgroups";
/// Where limits are noted that are to be put back; they go with their groups.
const LIMITS_NOTE: &str = "limits";
const CONTROLLER: &str = "blkio";
const MEMBERS: &str = "cgroup.procs";
const BFQ: &str = "bfq";
const BFQ_WEIGHT: &str = "blkio.bfq.weight";
/// What BFQ takes (`BFQ_MAX_WEIGHT`).
const BFQ_WEIGHT_MAX: u32 = 1000;
const BYTES_LIMITS: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
const REQUESTS_LIMITS: [&str; 2] = ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"];

/// Groups that were made. Dropping it removes them; their processes must have gone.
pub(super) struct Groups {
    folder: GroupFolder,
    limits_note: PathBuf,
}

/// Why the kernel cannot be told what the accounts are promised, if so.
pub(super) fn why_not(setup: &Setup) -> Option<String> {
    if group_folder::controller(CONTROLLER).is_none() {
        return Some("kernel_limits takes the blkio controller of cgroups version 1, which is not mounted".to_owned());
    }
    if let Some(process) = setup.processes.iter().find(|process| !process.thread_accounts.is_empty()) {
        return Some(format!("{}'s threads are in several accounts: the kernel's limits are by process", process.name));
    }
    setup.accounts.iter().find_map(|account| why_not_told(account, &setup.machine))
}

fn why_not_told(account: &AccountSetup, machine: &MachineSetup) -> Option<String> {
    let AccountSetup { name, is_pool, allocation, .. } = account;
    let promises_anything = allocation.limit.is_some() || allocation.weight != WEIGHT_DEFAULT;
    if *is_pool && promises_anything {
        return Some(format!("pool {name} is promised something: the kernel's groups of version 1 have no members"));
    }
    if let Some(Rate::DevicePercent(_)) = allocation.limit {
        return Some(format!("{name} is limited to a part of the device: the kernel knows bytes and requests only"));
    }
    let is_bfq = machine.kernel_scheduler == Some(BFQ);
    if allocation.weight != WEIGHT_DEFAULT && !machine.has_kernel_wdt && (!is_bfq || allocation.weight > BFQ_WEIGHT_MAX)
    {
        return Some(format!(
            "{name} has weight {}: only {BFQ} has weights, up to {BFQ_WEIGHT_MAX}, and kernel_wdt",
            allocation.weight
        ));
    }
    None
}

impl Groups {
    /// Makes a group for each account and sets its limits on the block device `device` (`loop0`). `mounted` is the file
    /// system's mount point.
    pub(super) fn make(setup: &Setup, device: &str, mounted: &Path) -> Result<Groups, HostError> {
        let folder = GroupFolder::make(CONTROLLER, mounted.with_file_name(NOTE))?;
        let groups = Groups { folder, limits_note: mounted.with_file_name(LIMITS_NOTE) };
        let number = number_of(device)?;
        for account in setup.accounts.iter().filter(|account| !account.is_pool) {
            let group = groups.folder.path().join(&account.name);
            std::fs::create_dir(&group).map_err(|error| failed(group.display(), error))?;
            for (file, value) in settings(account, &number, setup.machine.kernel_scheduler == Some(BFQ)) {
                let path = group.join(file);
                std::fs::write(&path, value).map_err(|error| failed(path.display(), error))?;
            }
        }
        Ok(groups)
    }

    /// Keeps the accounts' weights on the block device `device` from now on, as `plimsoll agent --wdt` does.
    pub(super) fn steer(&self, setup: &Setup, device: &str) -> Result<Steering, HostError> {
        let name = self.folder.path().file_name().expect("a folder of ours has a name").to_string_lossy();
        let sessions = setup.accounts.iter().filter(|account| !account.is_pool);
        let config = LimitsConfig {
            device: number_of(device)?,
            controller: self.folder.path().parent().expect("it is in the controller").to_owned(),
            weights: sessions.map(|one| (format!("{name}/{}", one.name), one.allocation.weight)).collect(),
            parent: None,
            note: self.limits_note.clone(),
        };
        let (limits, _) = Limits::begin(config).map_err(|error| failed("steer groups", error))?;
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || limits.serve(&stopped, |_| ()));
        Ok(Steering { stop: Some(stop), thread: Some(thread) })
    }

    /// Puts a process into the group of `account`.
    pub(super) fn join(&self, account: &str, process: u32) -> Result<(), HostError> {
        let path = self.folder.path().join(account).join(MEMBERS);
        std::fs::write(&path, process.to_string()).map_err(|error| failed(path.display(), error))
    }
}

fn number_of(device: &str) -> Result<String, HostError> {
    let number = std::fs::read_to_string(format!("/sys/block/{device}/dev"));
    Ok(number.map_err(|error| failed(device, error))?.trim().to_owned())
}

/// A thread that keeps weights. Dropping it ends it, and puts limits back.
pub(super) struct Steering {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the thread that keeps the weights has failed");
        }
    }
}

/// Files of the account's group, and what is written to them.
fn settings(account: &AccountSetup, device: &str, is_bfq: bool) -> Vec<(&'static str, String)> {
    let mut settings = Vec::new();
    if is_bfq {
        settings.push((BFQ_WEIGHT, account.allocation.weight.to_string()));
    }
    let mut limit = |files: [&'static str; 2], limit: f64| {
        settings.extend(files.map(|file| (file, format!("{device} {}", limit.ceil() as u64))));
    };
    match account.allocation.limit {
        Some(Rate::BytesPerSecond(bytes)) => limit(BYTES_LIMITS, bytes),
        Some(Rate::RunsPerSecond(runs)) => limit(REQUESTS_LIMITS, runs),
        Some(Rate::DevicePercent(_)) | None => {}
    }
    settings
}

impl Drop for Groups {
    fn drop(&mut self) {
        if self.folder.remove() {
            let _ = std::fs::remove_file(&self.limits_note);
        }
    }
}

/// Removes what a run that was killed left, if it did; `mounted` as for [`Groups::make`].
pub(super) fn recover(mounted: &Path) -> bool {
    let folder = GroupFolder::left(CONTROLLER, mounted.with_file_name(NOTE));
    folder.map(|folder| Groups { folder, limits_note: mounted.with_file_name(LIMITS_NOTE) }).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Allocation;

    fn account(allocation: Allocation) -> AccountSetup {
        AccountSetup { name: "a".to_owned(), parent: None, is_pool: false, allocation }
    }

    #[test]
    fn promises_become_files() {
        let limited = |limit| account(Allocation { limit: Some(limit), weight: 300, ..Allocation::default() });
        let bytes = settings(&limited(Rate::BytesPerSecond(10e6)), "7:3", false);
        let expected = BYTES_LIMITS.map(|file| (file, "7:3 10000000".to_owned()));
        assert_eq!(bytes, expected, "no weights without BFQ");
        let requests = settings(&limited(Rate::RunsPerSecond(45.0)), "7:3", true);
        assert_eq!(requests[0], (BFQ_WEIGHT, "300".to_owned()));
        assert_eq!(requests[1..], REQUESTS_LIMITS.map(|file| (file, "7:3 45".to_owned())));
    }
}
