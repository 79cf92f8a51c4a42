//! Serves one volume as a block device, optionally with a file system, until it is told to stop.
//!
//! ```text
//!   serve_disk STATE_DIRECTORY SIZE_MIB [--file PATH] [--ext4 TARGET | --xfs TARGET] [--scheduler NAME]
//! ```
//!
//! Prints `ready DEVICE` when the device is there, and what was undone at both ends. Stop it by closing its standard
//! input. `bench/fuse-loop.sh` measures with it, the tests kill it.

use plimsoll_core::{Allocation, DeviceProfile, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::{EngineConfig, GRACE_DEFAULT, SessionConfig, spawn};
use plimsoll_serve::attach::{AttachPlan, Attachment, FileSystemKind, FileSystemPlan, Format, recover};
use plimsoll_serve::fuse::FuseConnection;
use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The name of the one volume.
const VOLUME: &str = "disk";
/// The pool that it is in.
const POOL: &str = "pool";

struct Arguments {
    state_directory: PathBuf,
    size_bytes: u64,
    file: Option<PathBuf>,
    file_system: Option<FileSystemPlan>,
    scheduler: String,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let state_directory = words.next().ok_or("no state directory")?.into();
    let size_mib: u64 = words.next().ok_or("no size")?.parse()?;
    let (mut file, mut file_system, mut scheduler) = (None, None, "noop".to_owned());
    while let Some(option) = words.next() {
        let value = words.next().ok_or(format!("{option} without a value"))?;
        let plan = |kind| FileSystemPlan {
            kind,
            format: Format::IfEmpty,
            target: PathBuf::from(&value),
            options: String::new(),
            journal_bytes: None,
        };
        match option.as_str() {
            "--file" => file = Some(value.into()),
            "--ext4" => file_system = Some(plan(FileSystemKind::Ext4)),
            "--xfs" => file_system = Some(plan(FileSystemKind::Xfs)),
            "--scheduler" => scheduler = value,
            _ => return Err(format!("no such option: {option}").into()),
        }
    }
    Ok(Arguments { state_directory, size_bytes: size_mib << 20, file, file_system, scheduler })
}

fn profile(size_bytes: u64) -> DeviceProfile {
    DeviceProfile {
        name: "device".to_owned(),
        capacity_bytes: size_bytes,
        worst_case_runs_per_second: 100_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 64,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { state_directory, size_bytes, file, file_system, scheduler } = arguments()?;
    let (state, recovered) = recover(Path::new(&state_directory))?;
    recovered.iter().for_each(|step| println!("recovered {step}"));

    let engine = spawn(EngineConfig::new(profile(size_bytes), &scheduler))?;
    engine.open_pool(POOL, Allocation::default())?;
    let backing = match file {
        None => Backing::Memory { size_bytes },
        Some(path) => Backing::File { path, size_bytes: Some(size_bytes), creates: true, encryption: None },
    };
    let config =
        VolumeConfig { name: VOLUME.to_owned(), pool: POOL.to_owned(), backing, start_bytes: 0, is_read_only: false };
    let volume = Volume::open(config)?;
    let plan = AttachPlan {
        volume: VOLUME.to_owned(),
        size_bytes,
        block_bytes: volume.info().block_bytes,
        is_read_only: false,
        file_system,
    };
    engine.add_volume(volume)?;

    let (mut attachment, device) = Attachment::mount_disk(&state, plan)?;
    let session = SessionConfig { name: "mount".to_owned(), allocation: Allocation::default() };
    engine.attach(VOLUME, session, Box::new(FuseConnection::new(device)))?;
    attachment.build()?;
    println!("ready {}", attachment.device_path().unwrap_or_default().display());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    attachment.detach().iter().for_each(|step| println!("detached {step}"));
    engine.shutdown(GRACE_DEFAULT)?;
    Ok(())
}
