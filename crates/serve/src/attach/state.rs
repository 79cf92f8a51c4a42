//! Notes of what this daemon attached, written before each step, so that a successor can undo it.
//!
//! The state directory (usually below `/run`) holds:
//!
//! | file | what it is |
//! | --- | --- |
//! | `lock` | locked while its daemon lives; holds the daemon's process number, for people |
//! | `state.json` | what was attached; replaced as a whole and flushed **before** each step |
//! | `NAME.disk` | where the FUSE file of volume NAME is mounted |
//!
//! Because the note comes first, the file may name something that was never made, or that another program has got
//! since. So each note says enough to recognise the thing. Mounts are known by type, source and target, loop devices by
//! their backing file and the name that we gave them. The source of a FUSE mount and the name of a loop device hold a
//! mark that is random for each start of the daemon. After a reboot (another boot id) nothing of it exists.

use super::error::AttachError;
use super::pause;
use plimsoll_core::Span;
use plimsoll_linux::boot::BOOT_ID;
use plimsoll_linux::boot_id;
use plimsoll_linux::durable::replace_file;
use plimsoll_linux::files::{open_regular, read_regular};
use plimsoll_linux::process::is_ending;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Version of the state file's format.
const STATE_VERSION: u32 = 1;
/// Most characters of a volume's name, so that it fits a loop device's name behind the mark.
const VOLUME_NAME_CHARS_MAX: usize = 100;
/// Hexadecimal digits of a mark: 64 random bits.
const MARK_DIGITS: usize = 16;

/// How the names of what any daemon makes begin.
pub(super) const MARKED_NAMES_BEGIN: &str = "plimsoll:";
/// How often, and with which pauses, a lock is tried the holder of which is dead or dying: for two seconds. A process
/// that was killed has its locks until the last of its threads has ended.
const TRIES: u32 = 100;
const PAUSE: Span = Span::from_millis(20);
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";

/// A mount that we made, or were about to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountNote {
    /// The file system's type.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Where.
    pub target: PathBuf,
    /// The kernel's number for the mount, once there is one.
    pub id: Option<u64>,
}

/// A loop device that we configured, or were about to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoopNote {
    /// N of `/dev/loopN`.
    pub number: u32,
    /// The file behind it.
    pub backing_file: PathBuf,
    /// The name that we gave it.
    pub name: String,
}

/// What was attached of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeNotes {
    /// The one-file disk.
    pub fuse: Option<MountNote>,
    /// The block device on it.
    pub loop_device: Option<LoopNote>,
    /// The file system on that.
    pub file_system: Option<MountNote>,
}

/// The state file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    boot_id: String,
    volumes: BTreeMap<String, VolumeNotes>,
}

/// The directory, locked for as long as this value lives.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    mark: String,
    boot_id: String,
    volumes: Mutex<BTreeMap<String, VolumeNotes>>,
    /// Holds the lock; the kernel lets go of it when the process dies.
    _lock: File,
}

impl StateDirectory {
    /// Locks the directory, makes it if it is missing, and answers a predecessor's notes of this boot.
    pub(super) fn open(path: &Path) -> Result<(StateDirectory, BTreeMap<String, VolumeNotes>), AttachError> {
        std::fs::create_dir_all(path).map_err(AttachError::file("make", path))?;
        // Mounts are recognised by their targets, which the kernel tells without links.
        let path = path.canonicalize().map_err(AttachError::file("find", path))?;
        let lock = lock(&path)?;
        let boot_id = boot_id().map_err(AttachError::file("read", BOOT_ID))?;
        let mark: String = read_line(RANDOM_ID)?.chars().filter(char::is_ascii_hexdigit).take(MARK_DIGITS).collect();
        let left_over = read_state(&path.join("state.json"))?.filter(|state| state.boot_id == boot_id);
        let left_over = left_over.map(|state| state.volumes).unwrap_or_default();
        let volumes = Mutex::new(left_over.clone());
        Ok((StateDirectory { path, mark, boot_id, volumes, _lock: lock }, left_over))
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the FUSE file of a volume is mounted.
    pub(super) fn disk_path(&self, volume: &str) -> PathBuf {
        self.path.join(format!("{volume}.disk"))
    }

    /// The name of what this start of the daemon makes for a volume.
    pub(super) fn marked_name(&self, volume: &str) -> String {
        format!("{MARKED_NAMES_BEGIN}{}:{volume}", self.mark)
    }

    /// Begins the notes of a volume.
    pub(super) fn begin(&self, volume: &str) -> Result<(), AttachError> {
        check_volume_name(volume)?;
        let mut volumes = self.lock_volumes();
        if volumes.contains_key(volume) {
            return Err(AttachError::Attached { volume: volume.to_owned() });
        }
        volumes.insert(volume.to_owned(), VolumeNotes::default());
        Ok(())
    }

    /// The notes of a volume as they are now.
    pub(super) fn notes(&self, volume: &str) -> VolumeNotes {
        self.lock_volumes().get(volume).cloned().unwrap_or_default()
    }

    /// Changes the notes of a volume and flushes them to the disk before it returns.
    pub(super) fn note(&self, volume: &str, change: impl FnOnce(&mut VolumeNotes)) -> Result<(), AttachError> {
        let mut volumes = self.lock_volumes();
        change(volumes.entry(volume.to_owned()).or_default());
        self.write(&volumes)
    }

    /// Forgets a volume.
    pub(super) fn forget(&self, volume: &str) -> Result<(), AttachError> {
        let mut volumes = self.lock_volumes();
        volumes.remove(volume);
        self.write(&volumes)
    }

    fn lock_volumes(&self) -> MutexGuard<'_, BTreeMap<String, VolumeNotes>> {
        // The map is whole after every change, so one thread's panic does not spoil it for the others.
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, volumes: &BTreeMap<String, VolumeNotes>) -> Result<(), AttachError> {
        let state = State { version: STATE_VERSION, boot_id: self.boot_id.clone(), volumes: volumes.clone() };
        let path = self.path.join("state.json");
        let text = serde_json::to_vec_pretty(&state).map_err(io::Error::from);
        text.and_then(|text| replace_file(&path, &text)).map_err(AttachError::file("write", path))
    }
}

fn lock(directory: &Path) -> Result<File, AttachError> {
    let path = directory.join("lock");
    // No link: it is written to.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
    let mut file = File::from(open.map_err(io::Error::from).map_err(AttachError::file("open", &path))?);
    for tries in 0.. {
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            break;
        }
        let mut said = [0; 20];
        let length = file.read_at(&mut said, 0).unwrap_or(0);
        let process = String::from_utf8_lossy(&said[..length]).trim().to_owned();
        // A program that this process starts has the lock for a moment, until it executes.
        let is_let_go = |holder: u32| holder == std::process::id() || is_ending(holder);
        if tries == TRIES || !process.parse().is_ok_and(is_let_go) {
            return Err(AttachError::Held { directory: directory.to_owned(), process });
        }
        pause(PAUSE);
    }
    let mut write = || -> io::Result<()> {
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())
    };
    write().map_err(AttachError::file("write", &path))?;
    Ok(file)
}

/// Whether a daemon has this state directory, as far as this user may know.
pub(super) fn is_held(directory: &Path) -> bool {
    let lock = open_regular(&directory.join("lock"));
    lock.is_ok_and(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err())
}

fn read_line(path: &str) -> Result<String, AttachError> {
    let text = std::fs::read_to_string(path).map_err(AttachError::file("read", path))?;
    Ok(text.trim().to_owned())
}

fn read_state(path: &Path) -> Result<Option<State>, AttachError> {
    let text = match read_regular(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(AttachError::file("read", path)(error)),
    };
    let problem = |problem| AttachError::StateFile { path: path.to_owned(), problem };
    let state: State = serde_json::from_slice(&text).map_err(|error| problem(error.to_string()))?;
    if state.version != STATE_VERSION {
        return Err(problem(format!("its version is {}, expected {STATE_VERSION}", state.version)));
    }
    for volume in state.volumes.keys() {
        check_volume_name(volume).map_err(|error| problem(error.to_string()))?;
    }
    Ok(Some(state))
}

fn check_volume_name(volume: &str) -> Result<(), AttachError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !volume.is_empty() && volume.len() <= VOLUME_NAME_CHARS_MAX && !volume.starts_with('.');
    match is_name && volume.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(AttachError::VolumeName { got: volume.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note() -> LoopNote {
        LoopNote { number: 7, backing_file: PathBuf::from("/run/plimsoll/a.disk"), name: "plimsoll:0:a".to_owned() }
    }

    #[test]
    fn a_successor_reads_what_was_noted() {
        let directory = tempfile::tempdir().unwrap();
        let (state, left_over) = StateDirectory::open(directory.path()).unwrap();
        assert!(left_over.is_empty());
        state.begin("a").unwrap();
        state.note("a", |notes| notes.loop_device = Some(note())).unwrap();
        drop(state);
        let (state, left_over) = StateDirectory::open(directory.path()).unwrap();
        assert_eq!(left_over["a"].loop_device, Some(note()));
        assert!(matches!(state.begin("a"), Err(AttachError::Attached { .. })));
        state.forget("a").unwrap();
        drop(state);
        assert!(StateDirectory::open(directory.path()).unwrap().1.is_empty());
    }

    #[test]
    fn a_living_daemon_keeps_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let (_state, _) = StateDirectory::open(directory.path()).unwrap();
        let error = StateDirectory::open(directory.path()).unwrap_err();
        let AttachError::Held { process, .. } = &error else { panic!("{error}") };
        assert_eq!(*process, std::process::id().to_string());
    }

    /// A process that was killed keeps its locks until its last thread has ended. Here its child has them for a while.
    ///
    /// Planted break: no second try; "belongs to a daemon that is running (process ...)".
    #[test]
    fn a_lock_of_a_process_that_is_ending_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let lock = directory.path().join("lock");
        File::create(&lock).unwrap();
        let mut holder = std::process::Command::new("flock");
        holder.arg(&lock).args(["sh", "-c", "echo; sleep 0.5"]);
        let mut holder = holder.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut told = [0];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut told).unwrap();
        // The one that it names has gone.
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        std::fs::write(&lock, format!("{}\n", gone.id())).unwrap();
        assert!(StateDirectory::open(directory.path()).is_ok());
        holder.wait().unwrap();
    }

    #[test]
    fn nothing_outlives_a_reboot() {
        let directory = tempfile::tempdir().unwrap();
        let (state, _) = StateDirectory::open(directory.path()).unwrap();
        state.note("a", |notes| notes.loop_device = Some(note())).unwrap();
        drop(state);
        let path = directory.path().join("state.json");
        let boot_id = boot_id().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(&boot_id, "another-boot")).unwrap();
        assert!(StateDirectory::open(directory.path()).unwrap().1.is_empty());
    }

    #[test]
    fn a_file_that_is_not_ours_is_refused() {
        let other_version = r#"{"version": 2, "boot_id": "", "volumes": {}}"#;
        let other_name = r#"{"version": 1, "boot_id": "", "volumes": {"../a": {}}}"#;
        for text in ["", "{", "[]", other_version, other_name, r#"{"version": 1, "boot_id": "", "more": 0}"#] {
            // Each its own: a child that another test forks just now has the lock of the one before until it runs its
            // program.
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("state.json"), text).unwrap();
            let error = StateDirectory::open(directory.path()).unwrap_err();
            assert!(matches!(error, AttachError::StateFile { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let long = "a".repeat(101);
        for bad in ["", ".", "..", ".a", "a/b", "a b", "a\n", "\u{e4}", long.as_str()] {
            assert!(matches!(check_volume_name(bad), Err(AttachError::VolumeName { .. })), "{bad:?}");
        }
        for good in ["a", "pg-data_1.raw", "0"] {
            assert!(check_volume_name(good).is_ok(), "{good:?}");
        }
    }
}
