//! Rules for an observed disk: no volumes, and one device for each.

use crate::config::model::Device;
use crate::config::sections::Sections;
use crate::config::{Problem, quoted};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&Path, &str> = BTreeMap::new();
    for device in &sections.devices {
        let Some(path) = device.observe.as_deref() else { continue };
        if let Some(first) = users.get(path) {
            let got = format!("the mount point of device {first:?}, {}", quoted(&path.to_string_lossy()));
            problems.push(device.place.problem("observe", got, "a mount point of its own"));
        } else {
            users.insert(path, &device.name);
        }
    }
    let is_observed = |name: &str| {
        let mut devices = sections.devices.iter();
        devices.any(|device: &Device| device.name == name && device.observe.is_some())
    };
    for volume in sections.volumes.iter().filter(|volume| is_observed(&volume.device)) {
        let got = format!("a volume on device {:?}, which is observed", volume.device);
        problems.push(volume.place.problem("pool", got, "a pool of a device without observe"));
    }
}
