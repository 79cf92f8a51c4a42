//! What the daemon serves.

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
