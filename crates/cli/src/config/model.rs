//! What a configuration says, after it was checked: names are resolved, defaults filled in, places on devices given
//! out.

use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{Allocation, DeviceProfile, Span};
use plimsoll_engine::cache::CacheSettings;
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_protocols::iscsi::Chap;
use plimsoll_serve::attach::FileSystemPlan;
use plimsoll_serve::nbd::Address;
use plimsoll_settings::Place;
use std::fmt;
use std::path::PathBuf;

/// Requests that are kept at a device that is not emulated, if the configuration does not say.
/// A SATA device queues 32 (NCQ); an NVMe device is close to its rate at 32 random 4 KB reads.
pub const OUTSTANDING_DEFAULT: u32 = 32;

/// The section `[daemon]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSection {
    /// Where `plimsoll status` and its like connect.
    pub control_socket: PathBuf,
    /// Where the daemon keeps what its successor needs to clean up.
    pub state_directory: PathBuf,
    /// Where it notes what outlives a reboot: which volumes have a cache.
    pub notes_directory: PathBuf,
    /// Bytes that the buffers of all connections may take; `None` for what fits the machine.
    pub buffer_bytes: Option<u64>,
    /// Where the section stands.
    pub place: Place,
}

/// An address that NBD clients or iSCSI initiators connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// A Unix socket for NBD, or an address and a port; port 0 lets the kernel choose.
    pub address: Address,
    /// Its line; 0 if it is the default.
    pub line: usize,
}

/// A section `[device.NAME]`.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The model that it behaves like; `None` for as fast as it is.
    pub emulate: Option<String>,
    /// The mount point of the disk's file system, for a disk that is not ours: its requests are only seen. `None` for a
    /// device of volumes.
    pub observe: Option<PathBuf>,
    /// With `observe`: tenants are charged for what their processes submit, not for what they cause.
    pub is_by_submitter: bool,
    /// The scheduler, from the registry.
    pub scheduler: String,
    /// Decides what the emulation leaves to chance.
    pub seed: u64,
    /// What schedulers and admission know of it. `worst_case_runs_per_second` is 0 where it is unknown; then there are
    /// no percentages and no reserves.
    pub profile: DeviceProfile,
    /// Where the section stands.
    pub place: Place,
}

impl Device {
    /// The profile of a device of which nothing is known but what the file says.
    pub fn unknown_profile(name: &str, worst_case_runs_per_second: f64) -> DeviceProfile {
        DeviceProfile {
            name: name.to_owned(),
            capacity_bytes: u64::MAX,
            worst_case_runs_per_second,
            sequential_bytes_per_second: worst_case_runs_per_second * RUN_BYTES_MAX as f64,
            sequential_write_bytes_per_second: worst_case_runs_per_second * RUN_BYTES_MAX as f64,
            write_settle: Span::ZERO,
            is_rotational: false,
            outstanding_max: OUTSTANDING_DEFAULT,
        }
    }

    /// Whether percentages and reserves mean something here.
    pub fn is_worst_case_known(&self) -> bool {
        self.profile.worst_case_runs_per_second > 0.0
    }
}

/// A section `[pool.NAME]`.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name; unique in the file.
    pub name: String,
    /// The pool that it is in; `None` if it is directly on its device.
    pub parent: Option<String>,
    /// The device that it is on, through its parents.
    pub device: String,
    /// What it was promised.
    pub allocation: Allocation,
    /// Where the section stands.
    pub place: Place,
}

/// A section `[cache.NAME]`.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Its name; unique in the file.
    pub name: String,
    /// What it is made from.
    pub settings: CacheSettings,
    /// The scheme of classes, as the file names it.
    pub classes: String,
    /// Pools that may fill only a part of it: the line, a pool's name or a volume's and a session's with `/` between,
    /// and the part. The settings have the paths of their accounts.
    pub bounds: Vec<(usize, String, f64)>,
    /// Where the section stands.
    pub place: Place,
}

/// A section `[volume.NAME]`.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its name; unique in the file.
    pub name: String,
    /// The pool that it is in; the volume is an account there, and its sessions are below it.
    pub pool: String,
    /// The device that it is on, through its pool.
    pub device: String,
    /// A multiple of 4096.
    pub size_bytes: u64,
    /// Where its content is.
    pub backing: Backing,
    /// Its first byte on the device, a multiple of 4096.
    pub start_bytes: u64,
    /// Whether the file says where it starts; otherwise it was packed.
    pub is_start_fixed: bool,
    /// The name of its cache.
    pub cache: Option<String>,
    /// How far it is read ahead.
    pub read_ahead: Option<ReadAhead>,
    /// Whether what its file system keeps at fixed places has classes, in requests that say none.
    pub has_static_classes: bool,
    /// Writes are refused.
    pub is_read_only: bool,
    /// What it was promised, for all its sessions together.
    pub allocation: Allocation,
    /// Its NBD export.
    pub export: Option<Export>,
    /// Its iSCSI target.
    pub iscsi: Option<IscsiTarget>,
    /// Its disk and file system on this machine.
    pub mount: Option<Mount>,
    /// Where the section stands.
    pub place: Place,
}

/// Where a volume's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In a file or a block device.
    File {
        /// Its absolute path.
        path: PathBuf,
        /// Where the key is that it is encrypted with; `None`: it is not.
        key_file: Option<PathBuf>,
    },
    /// In memory, gone when the daemon ends.
    Memory,
    /// The same, compressed and with checksums.
    CompressedMemory {
        /// zstd's.
        level: u8,
    },
}

impl Backing {
    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Backing::File { key_file: Some(_), .. })
    }

    /// Whether it is gone when the daemon ends.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Backing::Memory | Backing::CompressedMemory { .. })
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backing::File { path, key_file: None } => write!(out, "{}", path.display()),
            Backing::File { path, key_file: Some(_) } => write!(out, "{}, encrypted", path.display()),
            Backing::Memory => out.write_str("memory"),
            Backing::CompressedMemory { .. } => out.write_str("memory, compressed"),
        }
    }
}

/// A section `[volume.NAME.nbd]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What clients ask for.
    pub name: String,
    /// Where the section stands.
    pub place: Place,
}

/// A section `[volume.NAME.iscsi]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IscsiTarget {
    /// What initiators log in to.
    pub name: String,
    /// What it asks of them.
    pub chap: Option<Chap>,
    /// Where the section stands.
    pub place: Place,
}

/// A section `[volume.NAME.mount]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The file system and where it is mounted; `None` for a block device without one.
    pub file_system: Option<FileSystemPlan>,
    /// Processes may join as tenants, each with a session of its own.
    pub takes_tenants: bool,
    /// Where the section stands.
    pub place: Place,
}
