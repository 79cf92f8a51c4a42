//! Observed disks beside volumes: an observed disk has no volumes, and gates have different names.

use crate::config::sections::Sections;
use crate::config::volume::POOL;
use crate::config::volume::mount::TENANTS;
use crate::config::{Device, Problem};

/// No volume is on an observed disk.
pub(super) fn check_volumes(sections: &Sections, problems: &mut Vec<Problem>) {
    let is_observed = |name: &str| {
        let mut devices = sections.devices.iter();
        devices.any(|device: &Device| device.name == name && device.observe.is_some())
    };
    for volume in sections.volumes.iter().filter(|volume| is_observed(&volume.device)) {
        let got = format!("a volume on device {:?}, which is observed", volume.device);
        problems.push(volume.place.problem(POOL.name, got, "a pool of a device without observe"));
    }
}

/// Gates are found by name: that of a volume with tenants, or of an observed device.
pub(super) fn check_gates(sections: &Sections, problems: &mut Vec<Problem>) {
    let is_observed =
        |name: &str| sections.devices.iter().any(|device| device.name == name && device.observe.is_some());
    for volume in &sections.volumes {
        let Some(mount) = volume.mount.as_ref().filter(|mount| mount.takes_tenants) else { continue };
        if is_observed(&volume.name) {
            let got = format!("a volume with tenants that is called as device {0:?}, which is observed", volume.name);
            problems.push(mount.place.problem(TENANTS.name, got, "a name of its own"));
        }
    }
}
