//! Observed disks: mounted file systems, with a station above and an engine without volumes.
//!
//! The engine keeps the accounts, the scheduler and the figures as it does for volumes, and hears of the disk's
//! requests from the station.

use super::tenants::StationedVolume;
use crate::config::{Configuration, Device, name_like};
use plimsoll_agent::mounts::{self, MountedDisk};
use plimsoll_agent::{AgentError, Disk};
use plimsoll_core::DeviceProfile;
use plimsoll_engine::EngineHandle;
use std::path::Path;

/// The pool of processes that are not tenants, and of tenants that name none: the device itself.
const POOL: &str = "";

/// What is known of the disk: what the configuration says, and what the kernel does.
pub(super) fn profile(device: &Device, disk: &mounts::PresentDisk) -> DeviceProfile {
    let (capacity_bytes, is_rotational) = (disk.size_bytes(), disk.is_rotational());
    DeviceProfile { capacity_bytes, is_rotational, ..device.profile.clone() }
}

/// Starts a station above a disk with a file system that is mounted or will be. Answers with what is to be said of it,
/// too.
///
/// # Errors
/// What [`Station::open`](plimsoll_agent::Station::open) says; a directory cannot be made.
pub(super) fn observe(
    engine: &EngineHandle,
    configuration: &Configuration,
    device: &Device,
    disk: &mounts::PresentDisk,
) -> Result<(StationedVolume, Vec<String>), AgentError> {
    let observed = Disk::Observed { pool: POOL.to_owned(), is_by_submitter: device.is_by_submitter };
    let station =
        StationedVolume::open(engine, configuration, (&device.name, &device.name), POOL, observed, &disk.device)?;
    let (name, path) = (&device.name, disk.device.display());
    let observed = match &disk.mounted {
        Some(MountedDisk { mount_point, file_system, .. }) => format!("{file_system} on {}", mount_point.display()),
        None => "not mounted yet".to_owned(),
    };
    let mut said = vec![
        format!("device {name}: {observed} ({path}), observed"),
        format!("device {name}: causes are known of {}", station.coverage()),
        format!("device {name}: tenants join, containers at {}", station.listeners().display()),
    ];
    if disk.is_made_of_others() {
        said.push(format!(
            "device {name}: {path} consists of other disks, so its requests cannot be observed: reads are not \
             charged, and writes only when pages become dirty"
        ));
    }
    if !device.is_worst_case_known() {
        let assumed = plimsoll_schedulers::with_assumed_rates(&profile(device, disk));
        let (runs, megabytes) = (assumed.worst_case_runs_per_second, assumed.sequential_bytes_per_second / 1e6);
        said.push(format!(
            "device {name}: its speed is not known, so limits count bytes wherever they lie, there are no reserves \
             and percentages, and afq and split_deadline assume {runs} runs/s and {megabytes} MB/s; to measure it: plimsoll device measure {path} --out FILE, and name that file as profile"
        ));
    }
    Ok((station, said))
}

/// A name for the disk of the mount at `mount_point`: the end of its path, in letters that names may have.
pub(super) fn name_of(mount_point: &Path) -> String {
    name_like(&mount_point.file_name().map_or("root".into(), |name| name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_called_after_its_mount_point() {
        for (path, name) in [("/", "root"), ("/srv/data", "data"), ("/srv/.a b\u{e4}", "-a-b-")] {
            assert_eq!(name_of(Path::new(path)), name);
            assert_eq!(crate::config::name_problem(name), None, "{name}");
        }
    }
}
