//! From what the configuration says to what the engine is asked for.

use crate::config::{Backing, Configuration, Device, Volume, quoted};
use crate::outcome::Failure;
use plimsoll_engine::backend::{self, Encryption, VolumeConfig, VolumeError, VolumeInfo};
use plimsoll_engine::notes::Notes;
use plimsoll_engine::{BufferMemory, EngineConfig, LATENESS_BOUND_DEFAULT};
use plimsoll_serve::attach::{AttachPlan, DataPlaces, FileSystemPlan};
use std::path::Path;

/// The engine of `device`; its connections have their buffers from `buffers`.
pub(super) fn engine(device: &Device, buffers: &BufferMemory) -> EngineConfig {
    EngineConfig {
        profile: device.profile.clone(),
        scheduler: device.scheduler.clone(),
        model: device.emulate.as_ref().and_then(|model| plimsoll_devices::build(model, device.seed)),
        lateness_bound: LATENESS_BOUND_DEFAULT,
        processor: None,
        executor: None,
        buffers: buffers.clone(),
    }
}

/// Where is noted what outlives the daemon.
pub(super) fn notes(configuration: &Configuration) -> Notes {
    Notes::new(configuration.daemon.notes_directory.clone())
}

/// The volume, which opens its sessions in an account of its own.
pub(super) fn volume(configuration: &Configuration, volume: &Volume) -> VolumeConfig {
    VolumeConfig {
        name: volume.name.clone(),
        pool: configuration.volume_path(volume),
        backing: match &volume.backing {
            Backing::Memory => backend::Backing::Memory { size_bytes: volume.size_bytes },
            &Backing::CompressedMemory { level } => {
                backend::Backing::CompressedMemory { size_bytes: volume.size_bytes, level }
            }
            Backing::File { path, key_file } => backend::Backing::File {
                path: path.clone(),
                size_bytes: Some(volume.size_bytes),
                creates: false,
                encryption: key_file.clone().map(|key_file| Encryption { key_file, notes: Some(notes(configuration)) }),
            },
        },
        start_bytes: volume.start_bytes,
        is_read_only: volume.is_read_only,
    }
}

/// The block device and file system of a volume.
pub(super) fn attachment(info: &VolumeInfo, file_system: Option<FileSystemPlan>) -> AttachPlan {
    let VolumeInfo { name, size_bytes, block_bytes, is_read_only } = info.clone();
    AttachPlan { volume: name, size_bytes, block_bytes, is_read_only, file_system }
}

/// Where a volume may have data before it is mounted. What a cache has is in no file of the volume's.
pub(super) fn data_places(section: &Volume) -> DataPlaces {
    match &section.backing {
        _ if section.cache.is_some() => DataPlaces::Anywhere,
        Backing::File { path, .. } => DataPlaces::InFile(path.clone()),
        Backing::Memory | Backing::CompressedMemory { .. } => DataPlaces::Nowhere,
    }
}

/// A place in the configuration and what went wrong there.
pub(super) fn at(configuration: &Configuration, volume: &Volume, key: &str, error: impl std::fmt::Display) -> String {
    let place = &volume.place;
    format!("{}:{}: {}: {error}", configuration.file.display(), place.line_of(key), place.dotted(key))
}

/// What is wrong with a file or block device that something else uses, and what is allowed.
pub(super) fn in_use_words(path: &Path, by: &str) -> (String, &'static str) {
    let got = format!("{}, in use: {by}", quoted(&path.to_string_lossy()));
    (got, "a file or block device that nothing else uses")
}

/// Opens a volume's content, or says where in the configuration what is wrong with it. One that something else uses is
/// the same mistake as for `check`.
pub(super) fn open(configuration: &Configuration, section: &Volume) -> Result<backend::Volume, Failure> {
    backend::Volume::open(volume(configuration, section)).map_err(|error| {
        let key = match &error {
            VolumeError::Key { .. } => "encryption",
            _ if section.place.has("file") => "file",
            _ => "memory",
        };
        let message = match &error {
            VolumeError::Missing { path, .. } => {
                let path = path.display();
                format!("{path} does not exist; to make one: truncate -s {} {path}", section.size_bytes)
            }
            error => error.to_string(),
        };
        match &error {
            VolumeError::InUse { path, by, .. } => {
                let (got, allowed) = in_use_words(path, by);
                let message = format!("got {got}, allowed {allowed}");
                Failure::BadInput(at(configuration, section, key, message))
            }
            _ => Failure::Failed(at(configuration, section, key, message)),
        }
    })
}
