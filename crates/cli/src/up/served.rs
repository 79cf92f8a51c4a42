//! What the daemon serves.

use crate::config::Volume as VolumeSection;
use crate::control::protocol::ServedAs;
use plimsoll_core::DeviceProfile;
use plimsoll_engine::EngineHandle;
use std::path::PathBuf;

/// A device and the engine that owns it.
#[derive(Clone)]
pub(super) struct ServedDevice {
    pub(super) profile: DeviceProfile,
    pub(super) engine: EngineHandle,
}

/// What a volume became when it was attached to this machine.
pub(super) struct ServedDisk {
    pub(super) volume: String,
    pub(super) block_device: Option<PathBuf>,
}

impl ServedDisk {
    /// The way to the volume of `section` over the front end called `kind`, once it has a block device.
    pub(super) fn way(&self, kind: &str, section: &VolumeSection) -> Option<ServedAs> {
        let address = self.block_device.as_ref()?.display().to_string();
        let file_system = section.mount.as_ref().and_then(|mount| mount.file_system.as_ref());
        let name = file_system.map_or(address.clone(), |file_system| file_system.target.display().to_string());
        Some(ServedAs { kind: kind.to_owned(), name, address })
    }
}
