//! What workloads find: folders and files, on the device and out of the page cache.

use super::job::Job;
use plimsoll_workloads::{Before, DirectoryIndex, FileIndex, Plan};
use rustix::fs::Advice;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Files are filled in pieces of this many bytes: large enough that the call does not matter.
const PIECE_BYTES: usize = 1 << 20;

/// Makes what `plan` wants to find in the folder of `job`. Files with data are written, not only allocated. An extent
/// that was never written reads as zero without the device, and its first write changes metadata.
pub(super) fn prepare(job: &Job, plan: &Plan) -> Result<(), String> {
    let folder = &job.folder;
    let made =
        |path: &Path, result: std::io::Result<()>| result.map_err(|error| format!("{}: {error}", path.display()));
    if !job.is_in_root {
        made(folder, std::fs::create_dir(folder))?;
    }
    for number in 0..plan.directory_count() {
        let path = folder.join(plan.directory(DirectoryIndex(number)));
        made(&path, std::fs::create_dir(&path))?;
    }
    let piece = vec![0x5A; PIECE_BYTES];
    for number in 0..plan.file_count() {
        let spec = plan.file(FileIndex(number));
        if spec.before == Before::Absent {
            continue;
        }
        let path = folder.join(&spec.path);
        let fill = || {
            let mut file = File::create_new(&path)?;
            let mut left = spec.bytes;
            while left > 0 {
                let length = left.min(PIECE_BYTES as u64);
                file.write_all(&piece[..length as usize])?;
                left -= length;
            }
            if job.is_written_before { Ok(()) } else { file.sync_all() }
        };
        made(&path, fill())?;
    }
    Ok(())
}

/// Writes everything back. Unless the files count as written before, drops their pages: then no process starts with
/// pages of the preparation in memory.
pub(super) fn settle(job: &Job, plan: &Plan) -> Result<(), String> {
    let folder = &job.folder;
    let named = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let root = File::open(folder).map_err(|error| named(folder, error))?;
    rustix::fs::syncfs(&root).map_err(|error| named(folder, error.into()))?;
    let files = if job.is_written_before { 0 } else { plan.file_count() };
    for number in 0..files {
        let spec = plan.file(FileIndex(number));
        if spec.before == Before::Filled {
            let path = folder.join(&spec.path);
            let file = File::open(&path).map_err(|error| named(&path, error))?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| named(&path, error.into()))?;
        }
    }
    Ok(())
}
