//! A loop device on a volume's file: makes a block device out of it.

use super::error::AttachError;
use super::pause;
use super::state::LoopNote;
use plimsoll_core::Span;
use plimsoll_engine::loop_control::{self, NAME_BYTES};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// How often another process may take the chosen free loop device before this one gives up.
const RACES_MAX: u32 = 16;
/// How often a loop device may be busy after its detach: a program such as udev has it open.
const CLEAR_WAITS: u32 = 40;
/// How long each of these waits is.
const CLEAR_WAIT: Span = Span::from_millis(50);

/// The path of loop device `number`.
pub(super) fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// Configures a free loop device on `backing_file` and gives back its number. `note` writes down what is going to be
/// done, before each attempt.
pub(super) fn attach(
    volume: &str,
    backing_path: &Path,
    backing_file: &File,
    block_bytes: u32,
    marked_name: &str,
    mut note: impl FnMut(LoopNote) -> Result<(), AttachError>,
) -> Result<u32, AttachError> {
    const CONTROL: &str = "/dev/loop-control";
    let control = open(Path::new(CONTROL)).map_err(AttachError::file("open", CONTROL))?;
    let name = marked_name.chars().take(NAME_BYTES - 1).collect::<String>();
    let mut race = 0;
    loop {
        let number = loop_control::find_free(&control).map_err(AttachError::step(volume, "find a free loop device"))?;
        note(LoopNote { number, backing_file: backing_path.to_owned(), name: name.clone() })?;
        let path = device_path(number);
        let device = open(&path).map_err(AttachError::file("open", &path))?;
        match loop_control::configure(&device, backing_file, block_bytes, &name) {
            Err(error) if is_busy(&error) && race < RACES_MAX => race += 1,
            Err(error) => return Err(AttachError::step(volume, format!("configure {}", path.display()))(error)),
            Ok(()) => {
                let status = loop_control::status(&device);
                let is_direct = status.map_err(AttachError::step(volume, "ask the loop device"))?.is_direct;
                return if is_direct {
                    Ok(number)
                } else {
                    Err(AttachError::Cached { volume: volume.to_owned(), number })
                };
            }
        }
    }
}

/// Whether the loop device is the one of the note: the same file is behind it, and it has the noted name.
///
/// The backing file's path is asked of sysfs, which needs no answer from the file's server. The name is asked of the
/// device, which may have to ask the server. If that is dead and the kernel says so, the path must do: it leads into
/// the daemon's own directory.
pub(super) fn is_ours(note: &LoopNote) -> bool {
    let sysfs = format!("/sys/block/loop{}/loop/backing_file", note.number);
    let Ok(backing_file) = std::fs::read_to_string(sysfs) else { return false };
    if Path::new(backing_file.trim_end_matches('\n')) != note.backing_file {
        return false;
    }
    let status = open(&device_path(note.number)).and_then(|device| loop_control::status(&device));
    match status {
        Ok(status) => status.name == note.name,
        Err(error) => !loop_control::is_unconfigured(&error),
    }
}

/// Takes the file away from the loop device, and waits until it is gone. `Ok(false)`: another process still has the
/// device open; the file goes when that process closes it.
pub(super) fn detach(note: &LoopNote) -> io::Result<bool> {
    let device = open(&device_path(note.number))?;
    match loop_control::clear(&device) {
        Err(error) if !loop_control::is_unconfigured(&error) => return Err(error),
        _ => drop(device),
    }
    for _ in 0..CLEAR_WAITS {
        if !is_ours(note) {
            return Ok(true);
        }
        pause(CLEAR_WAIT);
    }
    Ok(false)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}
