//! What is noted of volumes where it outlives the daemon, the machine's memory and the configuration.
//!
//! A note is a file of its own, called after what it is about and what the store is known by (`cache::identity`),
//! replaced as a whole and flushed. A volume in memory has none: nothing of it outlives the daemon.
//!
//! **Another directory has other notes.** So a note that must not be missed lies beside the store, too, if that is a
//! regular file. It is in an extended attribute, with what the file is known by, since a copy may have its attributes.
//! Where the two differ, the attribute holds: it goes with the store, and a directory may have been out of use
//! meanwhile. A block device has no place for one.
//!
//! **A loop device has the bytes of a file.** So such a note of a loop device lies beside its file, with the offset in
//! the attribute's name. It holds for the file, too, and a note of the file holds for each loop device on it.

use crate::backend::{Backing, VolumeConfig};
use crate::cache::{store_of, store_of_loop};
use crate::occupied::beneath::file_beneath;
use plimsoll_linux::durable::{remove_file, replace_file};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Something that is noted of a volume.
pub trait Note: Serialize + DeserializeOwned + PartialEq {
    /// What it is about, such as `cache`: the first word of its file's name.
    const ABOUT: &'static str;
    /// Version of its format.
    const VERSION: u32;

    /// Whether it lies beside a store that is a regular file, too.
    const LIES_ON_STORE: bool = false;

    /// The version that it was written with: from 1 to [`VERSION`](Self::VERSION) all can be read.
    fn version(&self) -> u32;
}

/// A note beside its store, and of which store it is.
#[derive(Serialize, Deserialize)]
struct OnStore<N> {
    store: String,
    note: N,
}

/// Most bytes of a note in an attribute.
const ATTRIBUTE_BYTES_MAX: usize = 4096;
/// Most bytes of the names of a file's attributes (XATTR_LIST_MAX).
const ATTRIBUTE_NAMES_BYTES_MAX: usize = 65_536;

/// A directory of notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notes {
    directory: PathBuf,
}

impl Notes {
    /// Those in `directory`, which is made when the first is written.
    pub fn new(directory: PathBuf) -> Notes {
        Notes { directory }
    }

    /// Where the note of a volume is; `None` for one in memory.
    pub(crate) fn path_of<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<PathBuf>> {
        let Backing::File { path, .. } = &volume.backing else { return Ok(None) };
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(self.path_of_store::<N>(&store_of(path)?)))
    }

    fn path_of_store<N: Note>(&self, store: &[u8; 16]) -> PathBuf {
        self.directory.join(format!("{}-of-{}.json", N::ABOUT, hex(store)))
    }

    /// Where the notes of others with the same bytes are: of the file of a loop device, or of a loop device on all of a
    /// file.
    fn paths_of_others<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Vec<PathBuf>> {
        let Backing::File { path, .. } = &volume.backing else { return Ok(Vec::new()) };
        let store = match file_beneath(path) {
            _ if !N::LIES_ON_STORE => None,
            Some((file, _)) => Some(store_of(&file)?),
            None if path.is_file() => Some(store_of_loop(&path.canonicalize()?)),
            None => None,
        };
        Ok(store.map(|store| self.path_of_store::<N>(&store)).into_iter().collect())
    }

    /// What is noted of a volume.
    ///
    /// # Errors
    /// The system's; or something is there that is no note.
    pub fn get<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        let mut found = self.in_directory(volume)?;
        for path in self.paths_of_others::<N>(volume)? {
            found = found.or(read_note(&path)?);
        }
        for attribute in attributes::<N>(volume)?.iter().rev() {
            found = on_store(attribute)?.or(found);
        }
        Ok(found)
    }

    /// What is noted beside the store of another file, of which this one is a copy, or which was moved here from
    /// another file system.
    ///
    /// # Errors
    /// The system's; or something is there that is no note.
    pub fn of_its_original<N: Note>(volume: &VolumeConfig) -> io::Result<Option<N>> {
        let own = attributes::<N>(volume)?.into_iter().find(|attribute| attribute.is_own);
        let read = own.map_or(Ok(None), |attribute| read_attribute::<N>(&attribute))?;
        Ok(read.and_then(|(note, is_of_this_file)| (!is_of_this_file).then_some(note)))
    }

    /// Takes away what is noted there.
    pub(crate) fn remove_of_its_original<N: Note>(volume: &VolumeConfig) -> io::Result<Option<N>> {
        let note = Notes::of_its_original::<N>(volume)?;
        if note.is_some() {
            attributes::<N>(volume)?.iter().filter(|attribute| attribute.is_own).try_for_each(remove_from_store)?;
        }
        Ok(note)
    }

    fn in_directory<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        self.path_of::<N>(volume)?.map_or(Ok(None), |path| read_note(&path))
    }

    /// Notes it durably, if it does not stand there.
    pub(crate) fn put<N: Note>(&self, volume: &VolumeConfig, note: &N) -> io::Result<()> {
        let Some(path) = self.path_of::<N>(volume)? else { return Ok(()) };
        let own = attributes::<N>(volume)?.into_iter().next().filter(|attribute| attribute.is_own);
        if let Some(attribute) = own
            && on_store::<N>(&attribute)?.as_ref() != Some(note)
        {
            put_on_store(&attribute, note, &volume.name)?;
        }
        if self.in_directory::<N>(volume)?.as_ref() == Some(note) {
            return Ok(());
        }
        self.write(&path, &serde_json::to_vec(note)?)
    }

    /// Writes a file durably: as a whole, or not at all.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_directory()?;
        replace_file(path, bytes)
    }

    fn given_up_path(&self, cache: &[u8; 16]) -> PathBuf {
        self.directory.join(format!("given-up-{}", hex(cache)))
    }

    /// Notes durably, and for ever, that the cache of this uuid was given up.
    pub(crate) fn give_up(&self, cache: &[u8; 16]) -> io::Result<()> {
        match self.is_given_up(cache)? {
            true => Ok(()),
            false => self.write(&self.given_up_path(cache), b""),
        }
    }

    /// Whether the cache of this uuid was given up.
    pub(crate) fn is_given_up(&self, cache: &[u8; 16]) -> io::Result<bool> {
        self.given_up_path(cache).try_exists()
    }

    /// Makes the directory durably: a note in one that is gone after a power loss would be no note.
    fn make_directory(&self) -> io::Result<()> {
        let mut missing = self.directory.ancestors().take_while(|path| !path.exists()).collect::<Vec<_>>();
        while let Some(path) = missing.pop().filter(|path| !path.as_os_str().is_empty()) {
            std::fs::create_dir(path).or_else(|error| if path.is_dir() { Ok(()) } else { Err(error) })?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent)?.sync_all()?;
        }
        Ok(())
    }

    /// It does not hold any more; answers what was noted.
    ///
    /// # Errors
    /// The system's.
    pub fn remove<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        let note = self.get::<N>(volume)?;
        for attribute in attributes::<N>(volume)? {
            if on_store::<N>(&attribute)?.is_some() {
                remove_from_store(&attribute)?;
            }
        }
        let others = self.paths_of_others::<N>(volume)?;
        for path in self.path_of::<N>(volume)?.into_iter().chain(others) {
            if read_note::<N>(&path)?.is_some() {
                remove_file(&path)?;
            }
        }
        Ok(note)
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The note, if this program knows its version.
fn known<N: Note>(note: N) -> Result<N, String> {
    match note.version() {
        version if (1..=N::VERSION).contains(&version) => Ok(note),
        other => Err(format!("its version is {other}, expected 1 to {}", N::VERSION)),
    }
}

/// The note in a file of a directory of notes.
fn read_note<N: Note>(path: &Path) -> io::Result<Option<N>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let wrong = |what: String| io::Error::other(format!("{} is no note of a {}: {what}", path.display(), N::ABOUT));
    let note: N = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    known(note).map(Some).map_err(wrong)
}

/// An attribute of a regular file in which a note lies.
struct Attribute {
    file: PathBuf,
    name: String,
    /// Whether it is this volume's, and not that of another one with the same bytes.
    is_own: bool,
}

/// The attributes in which a note of a volume may lie: its own one first, if there is one.
fn attributes<N: Note>(volume: &VolumeConfig) -> io::Result<Vec<Attribute>> {
    let Backing::File { path, .. } = &volume.backing else { return Ok(Vec::new()) };
    let of_file = format!("user.plimsoll.{}", N::ABOUT);
    let of_loops = format!("{of_file}.from-");
    let beneath = file_beneath(path);
    let of = |file: &Path, name: String, is_own: bool| Attribute { file: file.to_owned(), name, is_own };
    Ok(match beneath {
        _ if !N::LIES_ON_STORE => Vec::new(),
        Some((file, extent)) => {
            vec![of(&file, format!("{of_loops}{}", extent.begin), true), of(&file, of_file, false)]
        }
        None if path.is_file() => {
            let mut found = vec![of(path, of_file, true)];
            let names = attribute_names(path)?.into_iter().filter(|name| name.starts_with(&of_loops));
            found.extend(names.map(|name| of(path, name, false)));
            found
        }
        None => Vec::new(),
    })
}

/// The names of all attributes of a file, as far as this user may see them.
fn attribute_names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![0_u8; ATTRIBUTE_NAMES_BYTES_MAX];
    let length = match rustix::fs::listxattr(path, &mut names[..]) {
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return Ok(Vec::new()),
        length => length?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    Ok(names.filter_map(|name| std::str::from_utf8(name).ok()).map(str::to_owned).collect())
}

/// The note that lies beside the store. One of another file, of which this is a copy, is none.
fn on_store<N: Note>(attribute: &Attribute) -> io::Result<Option<N>> {
    let Some((note, is_of_this_file)) = read_attribute(attribute)? else { return Ok(None) };
    Ok(is_of_this_file.then_some(note))
}

/// The note in an attribute, and whether it is of this file: a file that was copied, or moved to another file system,
/// is another one.
fn read_attribute<N: Note>(attribute: &Attribute) -> io::Result<Option<(N, bool)>> {
    let Attribute { file, name, .. } = attribute;
    let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = match rustix::fs::getxattr(file, name, &mut bytes[..]) {
        // Not there; or the file system has none, or this user may not see them.
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return Ok(None),
        length => length?,
    };
    let wrong = |what: String| {
        let path = file.display();
        io::Error::other(format!("the attribute {name} of {path} is no note of a {}: {what}", N::ABOUT))
    };
    let OnStore { store, note } = serde_json::from_slice(&bytes[..length]).map_err(|error| wrong(error.to_string()))?;
    let is_of_this_file = store == hex(&store_of(file)?);
    known(note).map(|note| Some((note, is_of_this_file))).map_err(wrong)
}

/// Puts the note beside the store, durably, where there is a place for it.
fn put_on_store<N: Note>(attribute: &Attribute, note: &N, volume: &str) -> io::Result<()> {
    let Attribute { file, name, .. } = attribute;
    let bytes = serde_json::to_vec(&OnStore { store: hex(&store_of(file)?), note })?;
    match rustix::fs::setxattr(file, name, &bytes, XattrFlags::empty()) {
        Ok(()) => File::open(file)?.sync_all(),
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::RANGE) => {
            tracing::info!(volume, "its file has no place for a note: it stands in the notes directory only");
            // What stands there may say something else, and would hold.
            remove_from_store(attribute)
        }
        Err(errno) => Err(errno.into()),
    }
}

fn remove_from_store(attribute: &Attribute) -> io::Result<()> {
    match rustix::fs::removexattr(&attribute.file, &attribute.name) {
        Ok(()) => File::open(&attribute.file)?.sync_all(),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheNote;
    use plimsoll_cache::store::{Layout, Superblock};

    fn volume(path: PathBuf) -> VolumeConfig {
        VolumeConfig {
            name: "v".into(),
            pool: "p".into(),
            backing: Backing::File { path, size_bytes: None, creates: false, encryption: None },
            start_bytes: 0,
            is_read_only: false,
        }
    }

    fn note() -> CacheNote {
        let layout = Layout::of_device(1024).unwrap();
        let superblock = Superblock {
            uuid: [7; 16],
            store: [1; 16],
            store_blocks: 1,
            layout,
            starts: 3,
            generation: 5,
            journal_sequence: 1,
            journal_previous: 0,
            map_digest: 0,
            is_ready: true,
        };
        CacheNote::new("v", "fast", Path::new("/dev/fast"), &superblock)
    }

    /// Promise: notes-note.
    #[test]
    fn a_note_goes_with_its_file_to_another_directory_and_not_with_a_copy() {
        let directory = tempfile::tempdir().unwrap();
        let [here, there] = ["here", "there"].map(|name| Notes::new(directory.path().join(name)));
        let [one, copy] = ["one", "copy"].map(|name| directory.path().join(name));
        std::fs::write(&one, [1; 4096]).unwrap();
        let volume_of = volume;
        let volume = volume_of(one.clone());
        if rustix::fs::setxattr(&one, "user.try", b"", XattrFlags::empty()) == Err(Errno::NOTSUP) {
            return eprintln!("not run: no extended attributes on this file system");
        }
        here.put(&volume, &note()).unwrap();
        assert_eq!(there.get(&volume).unwrap(), Some(note()));
        let copied = std::process::Command::new("cp").args(["--preserve=xattr"]).args([&one, &copy]).status().unwrap();
        assert!(copied.success());
        assert_eq!(there.get::<CacheNote>(&volume_of(copy)).unwrap(), None);
        // What was taken away there does not stand here any more beside the store; here it does.
        assert_eq!(there.remove(&volume).unwrap(), Some(note()));
        assert_eq!(there.get::<CacheNote>(&volume).unwrap(), None);
        assert_eq!(here.get(&volume).unwrap(), Some(note()));
        let renamed: CacheNote =
            serde_json::from_str(&serde_json::to_string(&note()).unwrap().replace("\"v\"", "\"w\"")).unwrap();
        there.put(&volume, &renamed).unwrap();
        assert_eq!(here.get(&volume).unwrap(), Some(renamed), "the last word");
    }

    #[test]
    fn a_note_of_version_1_is_read() {
        let text =
            r#"{"version":1,"volume":"v","cache":"fast","path":"/dev/fast","uuid":[7,7,7,7,7,7,7,7,7,7,7,7,7,7,7,7]}"#;
        assert_eq!(known(serde_json::from_str::<CacheNote>(text).unwrap()).map(|note| note.volume).as_deref(), Ok("v"));
    }

    /// Promise: notes-given-up.
    #[test]
    fn what_was_given_up_is_known_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::new(directory.path().join("notes"));
        assert!(!notes.is_given_up(&[1; 16]).unwrap());
        notes.give_up(&[1; 16]).unwrap();
        notes.give_up(&[1; 16]).unwrap();
        assert!(notes.is_given_up(&[1; 16]).unwrap() && !notes.is_given_up(&[2; 16]).unwrap());
    }

    #[test]
    fn a_note_is_of_its_store_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::new(directory.path().join("not/yet/there"));
        let [one, other] = ["one", "other"].map(|name| {
            let path = directory.path().join(name);
            std::fs::write(&path, [1; 4096]).unwrap();
            volume(path)
        });
        assert_eq!(notes.get::<CacheNote>(&one).unwrap(), None);
        assert_eq!(notes.remove::<CacheNote>(&one).unwrap(), None);
        let note = note();
        notes.put(&one, &note).unwrap();
        notes.put(&one, &note).unwrap();
        assert_eq!((notes.get(&one).unwrap(), notes.get::<CacheNote>(&other).unwrap()), (Some(note.clone()), None));
        // Another path to the same file.
        let moved = directory.path().join("moved");
        std::fs::rename(directory.path().join("one"), &moved).unwrap();
        assert_eq!(notes.remove(&volume(moved.clone())).unwrap(), Some(note));
        assert_eq!(notes.get::<CacheNote>(&volume(moved)).unwrap(), None);
    }

    /// Promise: notes-required-cache.
    #[test]
    fn what_is_no_note_is_told_and_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::new(directory.path().to_owned());
        let path = directory.path().join("slow");
        std::fs::write(&path, [1; 4096]).unwrap();
        let volume = volume(path);
        notes.put(&volume, &note()).unwrap();
        let file = notes.path_of::<CacheNote>(&volume).unwrap().unwrap();
        let other = std::fs::read_to_string(&file).unwrap().replace("\"version\":2", "\"version\":3");
        for text in ["", "{}", other.as_str()] {
            std::fs::write(&file, text).unwrap();
            let error = notes.get::<CacheNote>(&volume).unwrap_err().to_string();
            assert!(error.contains("is no note of a cache: "), "{error}");
        }
    }
}
