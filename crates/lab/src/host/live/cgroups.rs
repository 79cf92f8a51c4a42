//! Limits and weights as the kernel has them: a group of the blkio controller for each account.
//!
//! Groups are of version 1, where a writer's group is known at its own calls only: what it leaves in the page cache is
//! written by the kernel, in the root's name. That is what the comparison is about. With version 2 (`io.max`,
//! `io.bfq.weight`) the kernel charges some writeback to its writer; a machine with that alone is *not run*.
//!
//! The groups' folder is written down before it is made: a run that is killed leaves it, and the next one removes it.

use super::{HostError, failed};
use crate::scenario::{AccountSetup, MachineSetup, Setup};
use plimsoll_agent::limits::{Limits, LimitsConfig};
use plimsoll_core::account::WEIGHT_DEFAULT;
use plimsoll_core::{Rate, Span};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Where the groups' folder is noted, beside the state directory.
const NOTE: &str = "cgroups";
/// Where limits are noted that are to be put back; they go with their groups.
const LIMITS_NOTE: &str = "limits";
/// The groups' folder, before the host's process number.
const FOLDER: &str = "plimsoll-live-";
const MOUNTS: &str = "/proc/self/mounts";
const MEMBERS: &str = "cgroup.procs";
const BFQ: &str = "bfq";
const BFQ_WEIGHT: &str = "blkio.bfq.weight";
/// What BFQ takes (`BFQ_MAX_WEIGHT`).
const BFQ_WEIGHT_MAX: u32 = 1000;
const BYTES_LIMITS: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
const REQUESTS_LIMITS: [&str; 2] = ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"];
/// A process that was just killed may still be in its group.
const REMOVE_TRIES: u32 = 40;
const REMOVE_WAIT: Span = Span::from_millis(50);

/// Groups that were made. Dropping it removes them; their processes must have gone.
pub(super) struct Groups {
    folder: PathBuf,
    note: PathBuf,
}

/// Why the kernel cannot be told what the accounts are promised, if so.
pub(super) fn why_not(setup: &Setup) -> Option<String> {
    if controller().is_none() {
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

/// Where the blkio controller is mounted.
fn controller() -> Option<PathBuf> {
    controller_in(&std::fs::read_to_string(MOUNTS).ok()?)
}

fn controller_in(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [_, target, "cgroup", options, ..] if options.split(',').any(|option| option == "blkio") => Some(target.into()),
        _ => None,
    })
}

impl Groups {
    /// Makes a group for each account and sets its limits on the block device `device` (`loop0`); `mounted` is where the
    /// file system is mounted.
    pub(super) fn make(setup: &Setup, device: &str, mounted: &Path) -> Result<Groups, HostError> {
        let controller = controller().ok_or_else(|| failed("find the blkio controller", "it is not mounted"))?;
        let folder = controller.join(format!("{FOLDER}{}", std::process::id()));
        let groups = Groups { folder, note: note_path(mounted) };
        let make = |path: &Path| std::fs::create_dir(path).map_err(|error| failed(path.display(), error));
        let note = groups.folder.display().to_string();
        std::fs::write(&groups.note, note).map_err(|error| failed(groups.note.display(), error))?;
        make(&groups.folder)?;
        let number = number_of(device)?;
        for account in setup.accounts.iter().filter(|account| !account.is_pool) {
            let group = groups.folder.join(&account.name);
            make(&group)?;
            for (file, value) in settings(account, &number, setup.machine.kernel_scheduler == Some(BFQ)) {
                let path = group.join(file);
                std::fs::write(&path, value).map_err(|error| failed(path.display(), error))?;
            }
        }
        Ok(groups)
    }

    /// Keeps the accounts' weights on the block device `device` from now on, as `plimsoll agent --wdt` does.
    pub(super) fn steer(&self, setup: &Setup, device: &str) -> Result<Steering, HostError> {
        let name = self.folder.file_name().expect("a folder of ours has a name").to_string_lossy();
        let sessions = setup.accounts.iter().filter(|account| !account.is_pool);
        let config = LimitsConfig {
            device: number_of(device)?,
            controller: self.folder.parent().expect("it is in the controller").to_owned(),
            weights: sessions.map(|one| (format!("{name}/{}", one.name), one.allocation.weight)).collect(),
            parent: None,
            note: self.note.with_file_name(LIMITS_NOTE),
        };
        let (limits, _) = Limits::begin(config).map_err(|error| failed("steer groups", error))?;
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || limits.serve(&stopped, |_| ()));
        Ok(Steering { stop: Some(stop), thread: Some(thread) })
    }

    /// Puts a process into the group of `account`.
    pub(super) fn join(&self, account: &str, process: u32) -> Result<(), HostError> {
        let path = self.folder.join(account).join(MEMBERS);
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
            eprintln!("whoever kept the weights has failed");
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
        if let Err(error) = remove(&self.folder) {
            return eprintln!("groups were not removed: {error}; {} names them", self.note.display());
        }
        let _ = std::fs::remove_file(self.note.with_file_name(LIMITS_NOTE));
        let _ = std::fs::remove_file(&self.note);
    }
}

/// Removes the groups in `folder` and it.
fn remove(folder: &Path) -> Result<(), String> {
    let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let groups = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir());
    for path in groups.chain([folder.to_owned()]) {
        let mut tries = 1;
        while let Err(error) = std::fs::remove_dir(&path) {
            if tries == REMOVE_TRIES {
                return Err(named(&path, error));
            }
            tries += 1;
            super::clock::sleep_until(super::clock::now() + REMOVE_WAIT);
        }
    }
    Ok(())
}

/// The note lies beside the mounted file system, not in it.
fn note_path(mounted: &Path) -> PathBuf {
    mounted.with_file_name(NOTE)
}

/// Removes what a run that was killed left; `mounted` as for [`Groups::make`].
pub(super) fn recover(mounted: &Path) {
    let note = note_path(mounted);
    let Ok(text) = std::fs::read_to_string(&note) else { return };
    if let Some(folder) = noted(&text, controller()) {
        drop(Groups { folder, note });
    }
}

/// The folder that a note names, if it is one of ours.
fn noted(note: &str, controller: Option<PathBuf>) -> Option<PathBuf> {
    let folder = PathBuf::from(note);
    let number = folder.file_name()?.to_str()?.strip_prefix(FOLDER)?;
    let is_ours = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_ours && folder.parent() == controller.as_deref()).then_some(folder)
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

    #[test]
    fn a_note_names_a_folder_of_ours_or_none() {
        let controller = || Some(PathBuf::from("/sys/fs/cgroup/blkio"));
        let ours = "/sys/fs/cgroup/blkio/plimsoll-live-17";
        assert_eq!(noted(ours, controller()), Some(PathBuf::from(ours)));
        for other in
            ["/sys/fs/cgroup/blkio/system", "/sys/fs/plimsoll-live-17", "/sys/fs/cgroup/blkio/plimsoll-live-", ""]
        {
            assert_eq!(noted(other, controller()), None, "{other:?}");
        }
        assert_eq!(noted(ours, None), None);
    }

    #[test]
    fn the_controller_is_found_among_the_mounts() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup /sys/fs/cgroup/blkio cgroup rw,relatime,blkio 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(controller_in(mounts), Some(PathBuf::from("/sys/fs/cgroup/blkio")));
        assert_eq!(controller_in("cgroup2 /sys/fs/cgroup cgroup2 rw,relatime,blkio 0 0\n"), None);
    }
}
