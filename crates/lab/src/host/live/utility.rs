//! Utilities: the real `find`, `tar` and `e2fsck`, over the files of an ended process, with an empty page cache.
//!
//! The file system is unmounted before the first. `find` and `tar` have it mounted while they run, and are tenants
//! without gates. Their pages are written back, and counted as theirs, when they have ended. `e2fsck -f -n` reads the
//! block device, past every file system, so its reads have no class. All of them have the memory of the scenario's
//! machine.

use super::disk::Disk;
use super::memory::MemoryGroup;
use super::program::{self, Program};
use super::{HostError, clock};
use crate::results::Source;
use crate::scenario::{Setup, Tool, UtilitySetup};
use plimsoll_workloads::{DirectoryIndex, Plan};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// A name that no file has.
const NO_NAME: &str = "plimsoll-no-such-file";
/// The archive, in the root of the file system.
const ARCHIVE: &str = "archive.tar";

fn program_of(tool: Tool) -> &'static str {
    match tool {
        Tool::Find => "find",
        Tool::Tar => "tar",
        Tool::Check => "e2fsck",
    }
}

/// Why these utilities cannot be run here, if so.
pub(super) fn why_not(utilities: &[UtilitySetup]) -> Option<String> {
    utilities.iter().find_map(|utility| program::why_not(program_of(utility.tool)))
}

/// Runs a utility, on a disk that is not mounted before and after. Answers its start and end. `plans` are those of the
/// setup's processes.
pub(super) fn run(
    utility: &UtilitySetup,
    setup: &Setup,
    plans: &[Plan],
    disk: &mut Disk,
    memory: Option<&MemoryGroup>,
    stop: &AtomicBool,
) -> Result<Source, HostError> {
    let number = setup.processes.iter().position(|process| process.name == utility.of);
    let number = number.expect("checked when it was read");
    let needs_mount = utility.tool != Tool::Check;
    if needs_mount {
        disk.mount(setup)?;
    }
    let (root, process) = (disk.folder(), &setup.processes[number]);
    let folder = if process.is_in_root { root.to_owned() } else { root.join(&process.name) };
    let mut running = Program::wait(&utility.name, arguments(utility, &plans[number], &folder, disk))?;
    if let Some(tenants) = disk.tenants() {
        tenants.enroll(&utility.account, running.number())?;
    }
    memory.map_or(Ok(()), |memory| memory.join(running.number()))?;
    let started = clock::now();
    running.begin()?;
    let ended = running.end(stop)?;
    if needs_mount {
        disk.unmount()?;
    }
    let mut source = Source::default();
    (source.started, source.ended) = (Some(started), Some(ended));
    Ok(source)
}

/// What the utility is told: its program first.
fn arguments(utility: &UtilitySetup, plan: &Plan, folder: &Path, disk: &Disk) -> Vec<String> {
    let text = |path: PathBuf| path.display().to_string();
    let folder_text = text(folder.to_owned());
    let mut arguments: Vec<String> = vec![program_of(utility.tool).to_owned()];
    match utility.tool {
        Tool::Find => arguments.extend([folder_text, "-name".to_owned(), NO_NAME.to_owned()]),
        Tool::Tar => {
            let archive = text(disk.folder().join(ARCHIVE));
            arguments.extend(["-cf".to_owned(), archive, "-C".to_owned(), folder_text]);
            arguments.extend(directories(plan, utility.part));
        }
        Tool::Check => arguments.extend(["-f".to_owned(), "-n".to_owned(), text(disk.device_path())]),
    }
    arguments
}

/// That part of the directories, in order of name. The plan names them, so the disk is not read.
fn directories(plan: &Plan, part: f64) -> Vec<String> {
    let all = (0..plan.directory_count()).map(|number| plan.directory(DirectoryIndex(number)));
    let mut outer: Vec<String> = all.filter(|path| !path.contains('/')).collect();
    outer.sort();
    outer.truncate((outer.len() as f64 * part).ceil() as usize);
    outer
}
