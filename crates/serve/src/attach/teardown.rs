//! Undoes attachments from the notes alone, in the one right order: file system, loop device, FUSE file.
//!
//! A daemon that stops and a successor that cleans up run the same steps. Each step first makes sure that the thing is
//! the one that was noted. What is not there any more is passed over. Mounts and devices of other programs stay, also
//! those that cover the daemon's. So undoing twice is the same as undoing once.
//!
//! A successor has one more step before the others: it ends the FUSE connection. Its server is dead. A process that
//! waits for an answer then gets an error instead, even if something still holds the old descriptor open.

use super::loop_device;
use super::state::{LoopNote, MountNote, VolumeNotes};
use super::{mounts, pause};
use plimsoll_core::Span;
use plimsoll_linux::Mount;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::fmt;
use std::path::Path;

/// How often a busy mount is tried before it is detached and left to its last user.
const BUSY_TRIES: u32 = 20;
/// How long each wait in between is.
const BUSY_WAIT: Span = Span::from_millis(50);

/// Whether the volume's server still answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// It does: what is dirty gets written.
    Alive,
    /// It is gone; what was not written is lost.
    Dead,
}

/// One thing that was undone, left alone, or could not be undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeardownStep {
    /// The volume.
    pub volume: String,
    /// What happened, in words.
    pub what: String,
    /// Whether something that the daemon attached is still there.
    pub is_left_over: bool,
}

impl fmt::Display for TeardownStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "volume {}: {}", self.volume, self.what)
    }
}

/// Collects the steps of one volume.
struct Report<'a> {
    volume: &'a str,
    steps: &'a mut Vec<TeardownStep>,
}

impl Report<'_> {
    fn done(&mut self, what: String) {
        self.push(what, false);
    }

    fn unmounted(&mut self, note: &MountNote) {
        self.done(format!("unmounted {} {} from {}", note.kind, note.source, note.target.display()));
    }

    fn left(&mut self, what: String) {
        self.push(what, true);
    }

    fn push(&mut self, what: String, is_left_over: bool) {
        self.steps.push(TeardownStep { volume: self.volume.to_owned(), what, is_left_over });
    }
}

/// Undoes what the notes of `volume` name, and appends what happened to `steps`. `disk` is the file on which its FUSE
/// file is mounted.
pub(super) fn tear_down(volume: &str, notes: &VolumeNotes, disk: &Path, server: Server, steps: &mut Vec<TeardownStep>) {
    let mut report = Report { volume, steps };
    if let (Server::Dead, Some(note)) = (server, &notes.fuse) {
        end_connection(note, &mut report);
    }
    let is_loop_ours = notes.loop_device.as_ref().is_some_and(loop_device::is_ours);
    if let (Some(note), true) = (&notes.file_system, is_loop_ours) {
        unmount_noted(note, server, &mut report);
    }
    if let (Some(note), true) = (&notes.loop_device, is_loop_ours) {
        detach_loop_device(note, &mut report);
    }
    if let Some(note) = &notes.fuse {
        unmount_noted(note, server, &mut report);
        remove_disk(disk, &mut report);
    }
}

/// Finds the mount of the note, if it is there and on top.
fn find(note: &MountNote) -> Option<Mount> {
    let table = mounts()?;
    let mount = table.on_top_at(&note.target)?;
    let is_it = mount.kind == note.kind && mount.source == Path::new(&note.source);
    let is_ours = is_it && note.id.is_none_or(|id| id == mount.id);
    is_ours.then(|| mount.clone())
}

/// Makes every request that waits for the dead server fail. The mount itself stays for now if a loop device is on it.
fn end_connection(note: &MountNote, report: &mut Report<'_>) {
    if find(note).is_some() && unmount(&note.target, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW).is_ok() {
        report.unmounted(note);
    }
}

fn unmount_noted(note: &MountNote, server: Server, report: &mut Report<'_>) {
    let MountNote { kind, source, target, .. } = note;
    let target_text = target.display();
    for attempt in 1.. {
        if find(note).is_none() {
            return;
        }
        match unmount(target, UnmountFlags::NOFOLLOW) {
            Ok(()) => return report.unmounted(note),
            Err(Errno::BUSY) if attempt < BUSY_TRIES => pause(BUSY_WAIT),
            Err(Errno::BUSY) => break,
            Err(errno) => return report.left(format!("cannot unmount {target_text}: {errno}")),
        }
    }
    if server == Server::Alive {
        sync(target);
    }
    match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Ok(()) => report.done(format!(
            "unmounted {kind} {source} from {target_text}, which is still in use: processes with files open there get \
             I/O errors"
        )),
        Err(errno) => report.left(format!("cannot unmount {target_text}: {errno}")),
    }
}

/// Unmounts the top file system at `target`; a busy one is tried for a second.
pub(super) fn unmount_patiently(target: &Path) -> Result<(), Errno> {
    for _ in 1..BUSY_TRIES {
        match unmount(target, UnmountFlags::NOFOLLOW) {
            Err(Errno::BUSY) => pause(BUSY_WAIT),
            outcome => return outcome,
        }
    }
    unmount(target, UnmountFlags::NOFOLLOW)
}

/// Writes what is dirty before the last way to the file system goes.
fn sync(target: &Path) {
    if let Ok(directory) = rustix::fs::open(target, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::fs::syncfs(directory);
    }
}

fn detach_loop_device(note: &LoopNote, report: &mut Report<'_>) {
    let device = loop_device::device_path(note.number);
    match loop_device::detach(note) {
        Ok(true) => report.done(format!("detached {}", device.display())),
        Ok(false) => report.done(format!("the kernel detaches {} when its last user closes it", device.display())),
        Err(error) => report.left(format!("cannot detach {}: {error}", device.display())),
    }
}

/// Removes the empty file on which the FUSE file was mounted. What is still mounted there, or has a content, stays.
fn remove_disk(disk: &Path, report: &mut Report<'_>) {
    let is_mounted = mounts().is_some_and(|table| table.on_top_at(disk).is_some());
    let is_empty = || std::fs::symlink_metadata(disk).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0);
    if is_mounted || !is_empty() {
        return;
    }
    if let Err(error) = std::fs::remove_file(disk) {
        report.left(format!("cannot remove {}: {error}", disk.display()));
    }
}
