//! This machine's own disk instead of a model: a file on it that is read and written past the page cache.
//!
//! **Intuition.** What a scheduler does on an emulated device it should do on a real one. **Rule.** A file is made in
//! the directory for temporary files and filled, so that no read is answered without the disk. The disk's worst case
//! and sequential rate are measured; they are the device's profile. **Complication.** The file loses its name as soon
//! as it is open, so that nothing is left of it however a run ends. If temporary files lie in memory there is no disk
//! to run on.

use super::HostError;
use super::error::failed;
use plimsoll_core::{ByteCount, DeviceProfile, Rate, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::measure::{Load, Measured, Target};
use rustix::fs::statfs;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Requests outstanding at the disk: Linux's default for one device (`nr_requests`). With 32, virtual disks do less
/// than they can.
const OUTSTANDING_MAX: u32 = 128;
/// How long each of the four loads is measured.
const MEASURED_FOR: Span = Span::from_secs(2);
/// The file is filled in steps of so many bytes.
const STEP_BYTES: usize = 1 << 20;
/// Not zeroes: some drives do not write those.
const FILL: u8 = 0x5A;
/// File systems in memory: tmpfs and ramfs (statfs(2)).
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A volume of `bytes` on the disk that `folder` is on, and what that disk can do.
pub(super) fn open(name: &str, folder: &Path, bytes: u64) -> Result<(Volume, DeviceProfile), HostError> {
    std::fs::create_dir_all(folder).map_err(|error| failed(folder.display(), error))?;
    let is_on = statfs(folder).map_err(|errno| failed(folder.display(), errno))?;
    if IN_MEMORY.contains(&is_on.f_type) {
        let folder = folder.display();
        return Err(HostError::NotRun(format!("{folder} is in memory: TMPDIR says where there is a disk")));
    }
    let path = folder.join("own-disk");
    let opened = fill(&path, bytes).and_then(|()| {
        let profile = measure(&path)?;
        let config = VolumeConfig {
            name: name.to_owned(),
            pool: String::new(),
            backing: Backing::File { path: path.clone(), size_bytes: None, creates: false, encryption: None },
            start_bytes: 0,
            is_read_only: false,
        };
        Ok((Volume::open(config).map_err(|error| failed("open a volume", error))?, profile))
    });
    let removed = std::fs::remove_file(&path).map_err(|error| failed(path.display(), error));
    opened.and_then(|opened| removed.map(|()| opened))
}

/// In words, for a reader of the figures.
pub(super) fn in_words(profile: &DeviceProfile) -> String {
    let read = Rate::BytesPerSecond(profile.sequential_bytes_per_second);
    let written = Rate::BytesPerSecond(profile.sequential_write_bytes_per_second);
    format!(
        "this machine's own disk, {} of it: {} at its worst, {read} read and {written} written in sequence",
        ByteCount(profile.capacity_bytes),
        Rate::RunsPerSecond(profile.worst_case_runs_per_second.round()),
    )
}

fn fill(path: &Path, bytes: u64) -> Result<(), HostError> {
    // What a run that was killed here left.
    let _ = std::fs::remove_file(path);
    let write = || {
        let mut file = File::create_new(path)?;
        let step = vec![FILL; STEP_BYTES];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(STEP_BYTES as u64);
            file.write_all(&step[..now as usize])?;
            left -= now;
        }
        file.sync_all()
    };
    write().map_err(|error| failed(path.display(), error))
}

fn measure(path: &Path) -> Result<DeviceProfile, HostError> {
    let failed = |error| failed("measure this machine's own disk", error);
    let mut target = Target::open(path, 0, true).map_err(failed)?;
    let mut of = |load: Load| target.measure(load, OUTSTANDING_MAX, MEASURED_FOR, &mut |_| {}).map_err(failed);
    let in_sequence = |load: Load, measured: Measured| measured.per_second * f64::from(load.request_bytes());
    let (reads, writes) = (of(Load::RandomReads)?, of(Load::RandomWrites)?);
    let read = in_sequence(Load::SequentialReads, of(Load::SequentialReads)?);
    let written = in_sequence(Load::SequentialWrites, of(Load::SequentialWrites)?);
    Ok(DeviceProfile {
        name: "own".to_owned(),
        capacity_bytes: target.size_bytes(),
        worst_case_runs_per_second: reads.per_second_min.min(writes.per_second_min),
        sequential_bytes_per_second: read,
        sequential_write_bytes_per_second: written,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: OUTSTANDING_MAX,
    })
}
