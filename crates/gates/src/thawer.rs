//! The thawer: a process that thaws what an agent has frozen when the agent does not, and the note that it reads.
//!
//! A thawer is a process of its own (`shim/thawer.c`), one an agent. It holds the other end of the agent's line, the
//! agent's lease, and the note. That is a file on a tmpfs with a slot for each cgroup that the agent may freeze. An
//! agent notes a freeze before it freezes, and a thaw after it thaws. So a note names each cgroup that the agent has
//! frozen. It may name one that the agent is about to freeze or has just thawed, too: to thaw that does no harm.
//!
//! ```text
//!   slot 0   "plimsoll frozen 1 BOOT_ID\n"
//!   slot n   state  version  origin          inode   path
//!            'F'    '1'      'M' made by us  u64     NUL-terminated
//!            'T'    '2'      'O' found
//! ```
//!
//! The kernel gives numbers of cgroups out anew with each start, so a note of another start is void.

use crate::error::GateError;
use crate::programs::{self, Programs};
use plimsoll_linux::boot_id;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The note's name in the run directory.
pub const NOTE_NAME: &str = "frozen";
const SLOT_BYTES: usize = 4096;
const VERSION_OFFSET: usize = 1;
const ORIGIN_OFFSET: usize = 2;
const INODE_OFFSET: usize = 8;
const PATH_OFFSET: usize = 16;
const FREE: u8 = 0;
const FROZEN: u8 = b'F';
const THAWED: u8 = b'T';
const FIRST: u8 = b'1';
const SECOND: u8 = b'2';
const MADE: u8 = b'M';
const FOUND: u8 = b'O';

/// A cgroup in a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteEntry {
    /// Its directory.
    pub directory: PathBuf,
    /// The number of the directory: another cgroup of the same name has another one.
    pub inode: u64,
    /// Whether it is one of cgroups version 2; else it is one of the `freezer` controller of version 1.
    pub is_version_2: bool,
    /// Whether the agent made it.
    pub is_made: bool,
    /// Whether the agent has frozen it.
    pub is_frozen: bool,
}

impl NoteEntry {
    fn slot(&self) -> Option<[u8; SLOT_BYTES]> {
        let (mut slot, path) = ([0; SLOT_BYTES], self.directory.as_os_str().as_bytes());
        // The last byte stays a zero.
        slot[PATH_OFFSET..SLOT_BYTES - 1].get_mut(..path.len())?.copy_from_slice(path);
        slot[0] = if self.is_frozen { FROZEN } else { THAWED };
        slot[VERSION_OFFSET] = if self.is_version_2 { SECOND } else { FIRST };
        slot[ORIGIN_OFFSET] = if self.is_made { MADE } else { FOUND };
        slot[INODE_OFFSET..PATH_OFFSET].copy_from_slice(&self.inode.to_ne_bytes());
        Some(slot)
    }

    fn of_slot(slot: &[u8]) -> Option<NoteEntry> {
        if slot.len() != SLOT_BYTES || slot[0] == FREE {
            return None;
        }
        let path = slot[PATH_OFFSET..].split(|byte| *byte == 0).next()?;
        Some(NoteEntry {
            directory: std::ffi::OsString::from_vec(path.to_vec()).into(),
            inode: u64::from_ne_bytes(slot[INODE_OFFSET..PATH_OFFSET].try_into().ok()?),
            is_version_2: slot[VERSION_OFFSET] == SECOND,
            is_made: slot[ORIGIN_OFFSET] == MADE,
            is_frozen: slot[0] == FROZEN,
        })
    }
}

/// The note of an agent: see the [module's text](self).
#[derive(Debug)]
pub struct FrozenNote {
    path: PathBuf,
    file: File,
    /// Whether a slot is taken, from slot 1 on.
    taken: Vec<bool>,
}

impl FrozenNote {
    /// Begins a note in the run directory, in place of a predecessor's; answers with the cgroups in that one. A thawer
    /// of the predecessor keeps the old one.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn begin(directory: &Path) -> Result<(FrozenNote, Vec<NoteEntry>), GateError> {
        let path = directory.join(NOTE_NAME);
        let at = |action| GateError::file(action, &path);
        let before = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(at("read"))?,
        };
        let header = header();
        let mut slots = before.chunks(SLOT_BYTES);
        let left = match slots.next() {
            Some(first) if first == header => slots.filter_map(NoteEntry::of_slot).collect(),
            _ => Vec::new(),
        };
        let draft = directory.join(format!("{NOTE_NAME}.new"));
        let _ = std::fs::remove_file(&draft);
        let file = File::options().read(true).write(true).create_new(true).open(&draft).map_err(at("make"))?;
        file.write_all_at(&header, 0).map_err(at("write"))?;
        std::fs::rename(&draft, &path).map_err(at("replace"))?;
        Ok((FrozenNote { path, file, taken: Vec::new() }, left))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a cgroup; answers with its slot.
    ///
    /// # Errors
    /// Its path is longer than 4,079 bytes, or the file cannot be written.
    pub fn add(&mut self, entry: &NoteEntry) -> io::Result<usize> {
        let slot = entry.slot().ok_or_else(|| io::Error::other("its path is too long for a note"))?;
        let place = self.taken.iter().position(|is_taken| !is_taken).unwrap_or(self.taken.len());
        self.file.write_all_at(&slot, offset(place))?;
        match self.taken.get_mut(place) {
            Some(is_taken) => *is_taken = true,
            None => self.taken.push(true),
        }
        Ok(place)
    }

    /// Notes that a cgroup is frozen from now on, or no more. One system call.
    ///
    /// # Errors
    /// The file cannot be written: then the cgroup must not be frozen.
    pub fn set_frozen(&self, slot: usize, is_frozen: bool) -> io::Result<()> {
        self.file.write_all_at(&[if is_frozen { FROZEN } else { THAWED }], offset(slot))
    }

    /// Forgets a cgroup, which is thawed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn remove(&mut self, slot: usize) -> io::Result<()> {
        self.taken[slot] = false;
        self.file.write_all_at(&[FREE], offset(slot))
    }
}

fn offset(slot: usize) -> u64 {
    (SLOT_BYTES * (slot + 1)) as u64
}

fn header() -> [u8; SLOT_BYTES] {
    let mut header = [0; SLOT_BYTES];
    let text = format!("plimsoll frozen 1 {}\n", boot_id().unwrap_or_default());
    header[..text.len()].copy_from_slice(text.as_bytes());
    header
}

/// The agent's line to its thawer; when it is dropped, or the agent dies, the thawer thaws what the note calls frozen.
#[derive(Debug)]
pub struct Thawer {
    line: OwnedFd,
}

impl Thawer {
    /// Starts one for the note at `note`, which takes milliseconds. `words` is the file of words, with the lease.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(programs: &Programs, note: &Path, words: &Path) -> Result<Thawer, GateError> {
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (line, theirs) = pair.map_err(GateError::step("make a pair of sockets"))?;
        let status = programs::run(programs.thawer(), &[note, words], theirs)?;
        if status.success() { Ok(Thawer { line }) } else { Err(GateError::Thawer { outcome: status.to_string() }) }
    }

    /// Whether it is still there. One system call.
    pub fn is_alive(&self) -> bool {
        let mut polled = [PollFd::new(&self.line, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_err() || !polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, is_frozen: bool) -> NoteEntry {
        NoteEntry {
            directory: name.into(),
            inode: 7,
            is_version_2: name.len().is_multiple_of(2),
            is_made: true,
            is_frozen,
        }
    }

    #[test]
    fn the_thawer_finds_the_slots_where_they_are() {
        let header = include_str!("../shim/layout.h");
        let of = |name: &str| {
            let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
            line.unwrap().split(' ').next().unwrap().parse::<usize>().unwrap()
        };
        let names = ["NOTE_SLOT_BYTES", "NOTE_VERSION_OFFSET", "NOTE_INODE_OFFSET", "NOTE_PATH_OFFSET", "NOTE_FROZEN"];
        assert_eq!(names.map(of), [SLOT_BYTES, VERSION_OFFSET, INODE_OFFSET, PATH_OFFSET, usize::from(FROZEN)]);
    }

    /// Planted breaks: a removed one is left; a slot is not used again; a note of another start counts.
    #[test]
    fn a_successor_finds_what_was_noted() {
        let directory = tempfile::tempdir().unwrap();
        let (mut note, left) = FrozenNote::begin(directory.path()).unwrap();
        assert_eq!(left, []);
        let slots: Vec<usize> = ["/a", "/bc", "/d"].map(|name| note.add(&entry(name, false)).unwrap()).into();
        note.set_frozen(slots[1], true).unwrap();
        note.remove(slots[0]).unwrap();
        assert_eq!(note.add(&entry("/e", true)).unwrap(), slots[0]);
        assert!(note.add(&entry(&"x".repeat(4080), true)).is_err());
        let (_, left) = FrozenNote::begin(directory.path()).unwrap();
        assert_eq!(left, [entry("/e", true), entry("/bc", true), entry("/d", false)]);
        let (mut note, left) = FrozenNote::begin(directory.path()).unwrap();
        assert_eq!(left, []);
        note.add(&entry("/a", true)).unwrap();
        note.file.write_all_at(b"plimsoll frozen 1 another", 0).unwrap();
        assert_eq!(FrozenNote::begin(directory.path()).unwrap().1, []);
    }
}
