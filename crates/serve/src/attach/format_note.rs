//! The note that a volume is being formatted, so that a format which was interrupted is begun again.
//!
//! **Intuition.** A daemon that is killed while a program makes a file system leaves a part of one. Nothing in it says
//! what it is, so the next start would refuse the volume for ever. **Rule.** A note comes before the deed, and goes
//! when the file system is whole, before it is mounted. So where the note stands, no file system of this volume was ever
//! mounted. **Complication.** The note says nothing of what other programs wrote to the file later. So while the format
//! runs, the daemon touches the note each second. The file counts as the remnant of that format only if it did not
//! change after the note. The kernel keeps the time of a file's last change, and no program can set it.
//! What does not tell that time (a block device), or is not all that the volume has (a cache), proves nothing. Then the
//! volume is refused as it was, with the reason.

use super::error::AttachError;
use plimsoll_linux::durable::{remove_file, replace_file};
use rustix::fs::{FallocateFlags, Timespec, Timestamps, UTIME_NOW, fallocate, futimens};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the note is touched while the format runs.
const BEAT: Duration = Duration::from_secs(1);
/// How much later than the note the file may have changed: a beat, and what a busy machine needs to wake a thread.
/// Seconds.
const LATER_MAX: i64 = 3;

/// What a note says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Noted {
    volume: String,
    file: PathBuf,
    inode: u64,
    start_bytes: u64,
    size_bytes: u64,
}

/// Where it is noted that a volume is being formatted, and what the volume is.
#[derive(Clone, Debug)]
pub struct FormatNote {
    path: PathBuf,
    noted: Noted,
    has_cache: bool,
}

/// What the note of a format says of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remnant {
    /// No format of it was interrupted.
    None,
    /// What it holds is what an interrupted format left, and nothing else.
    Proven,
    /// A format was interrupted, and it is not known that it holds nothing else; why not.
    Doubtful(String),
}

impl FormatNote {
    /// The note in `directory`, which outlives a reboot, of the volume that has `size_bytes` bytes of `file` from
    /// `start_bytes` on. `None` where the file cannot be looked at.
    pub fn of(
        directory: &Path,
        volume: &str,
        file: &Path,
        (start_bytes, size_bytes): (u64, u64),
        has_cache: bool,
    ) -> Option<FormatNote> {
        let file = file.canonicalize().ok()?;
        let inode = file.metadata().ok()?.ino();
        let path = directory.join(format!("format-of-{volume}.json"));
        Some(FormatNote {
            path,
            noted: Noted { volume: volume.to_owned(), file, inode, start_bytes, size_bytes },
            has_cache,
        })
    }

    /// Whether a format of the volume was interrupted.
    ///
    /// # Errors
    /// The note or the file cannot be looked at.
    pub(super) fn look(&self) -> Result<Remnant, AttachError> {
        let text = match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Remnant::None),
            read => read.map_err(AttachError::file("read", &self.path))?,
        };
        let doubtful = |why: &str| Ok(Remnant::Doubtful(why.to_owned()));
        match serde_json::from_slice::<Noted>(&text) {
            Ok(noted) if noted == self.noted => {}
            Ok(_) => return doubtful("it was in another file, or had another size"),
            Err(_) => return doubtful("its note is damaged"),
        }
        let note = self.path.metadata().map_err(AttachError::file("look at", &self.path))?;
        let file = &self.noted.file;
        let found = file.metadata().map_err(AttachError::file("look at", file))?;
        if !found.is_file() {
            return doubtful("a block device does not tell when it was written last");
        }
        if self.has_cache {
            return doubtful("a part of it may be in its cache");
        }
        match found.ctime() > note.mtime() + LATER_MAX {
            true => doubtful("its file has changed since"),
            false => Ok(Remnant::Proven),
        }
    }

    /// Does `work`, which changes the volume until it is formatted, under the note; the note stays.
    ///
    /// # Errors
    /// The note cannot be written; nothing was done then.
    pub(super) fn under<T>(&self, work: impl FnOnce() -> T) -> Result<T, AttachError> {
        let wrong = AttachError::file("write", &self.path);
        let made = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let text = serde_json::to_vec(&self.noted).map_err(io::Error::from);
        made.and(text).and_then(|text| replace_file(&self.path, &text)).map_err(wrong)?;
        let note = File::options().write(true).open(&self.path).map_err(AttachError::file("open", &self.path))?;
        let is_over = AtomicBool::new(false);
        Ok(std::thread::scope(|scope| {
            let beats = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // A note that is not touched proves less.
                    let _ = touch(&note);
                    std::thread::park_timeout(BEAT);
                }
            });
            let _ends = End { is_over: &is_over, beats: beats.thread() };
            work()
        }))
    }

    /// The volume has a whole file system, or never had a format that was interrupted.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remove(&self) -> Result<(), AttachError> {
        remove_file(&self.path).map_err(AttachError::file("remove", &self.path))
    }
}

/// Ends the beats when it is dropped, also by a panic.
struct End<'scope> {
    is_over: &'scope AtomicBool,
    beats: &'scope std::thread::Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.beats.unpark();
    }
}

fn touch(note: &File) -> Result<(), Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    futimens(note, &Timestamps { last_access: now, last_modification: now })
}

/// Makes the volume, which is the file `disk`, empty again.
pub(super) fn empty(disk: &File, size_bytes: u64) -> io::Result<()> {
    let all = |flags| fallocate(disk, flags | FallocateFlags::KEEP_SIZE, 0, size_bytes);
    let emptied = match all(FallocateFlags::PUNCH_HOLE) {
        Err(Errno::OPNOTSUPP) => all(FallocateFlags::ZERO_RANGE),
        emptied => emptied,
    };
    emptied?;
    disk.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_of(folder: &Path, has_cache: bool) -> FormatNote {
        let file = folder.join("v.img");
        File::options().create(true).append(true).open(&file).unwrap();
        FormatNote::of(&folder.join("notes"), "v", &file, (0, 4096), has_cache).unwrap()
    }

    /// Makes the note older than the file's last change.
    fn age(note: &FormatNote, seconds: i64) {
        let file = File::options().write(true).open(&note.path).unwrap();
        let then = Timespec { tv_sec: note.noted.file.metadata().unwrap().ctime() - seconds, tv_nsec: 0 };
        futimens(&file, &Timestamps { last_access: then, last_modification: then }).unwrap();
    }

    /// Planted break that was seen red: the time of the last change is not looked at.
    /// Promise: mount-format-killed.
    #[test]
    fn only_what_did_not_change_after_the_format_counts_as_its_remnant() {
        let folder = tempfile::tempdir().unwrap();
        let note = note_of(folder.path(), false);
        assert_eq!(note.look().unwrap(), Remnant::None);
        note.under(|| std::fs::write(folder.path().join("v.img"), "a part").unwrap()).unwrap();
        assert_eq!(note.look().unwrap(), Remnant::Proven);
        assert!(matches!(note_of(folder.path(), true).look().unwrap(), Remnant::Doubtful(_)));
        let longer = FormatNote { noted: Noted { size_bytes: 8192, ..note.noted.clone() }, ..note.clone() };
        assert!(matches!(longer.look().unwrap(), Remnant::Doubtful(_)));
        age(&note, LATER_MAX);
        assert_eq!(note.look().unwrap(), Remnant::Proven);
        age(&note, LATER_MAX + 1);
        assert_eq!(note.look().unwrap(), Remnant::Doubtful("its file has changed since".to_owned()));
        std::fs::write(&note.path, "{").unwrap();
        assert_eq!(note.look().unwrap(), Remnant::Doubtful("its note is damaged".to_owned()));
        note.remove().unwrap();
        assert_eq!(note.look().unwrap(), Remnant::None);
    }

    #[test]
    fn a_note_is_there_while_the_work_is_done_and_stays_after_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let note = note_of(folder.path(), false);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            note.under(|| {
                assert_eq!(note.look().unwrap(), Remnant::Proven);
                panic!("as the work does");
            })
        }));
        assert!(panicked.is_err() && note.path.exists());
    }
}
