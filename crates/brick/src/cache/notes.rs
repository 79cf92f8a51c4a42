//! Which volumes have a cache, noted where it outlives the daemon, the machine's memory and the configuration.
//!
//! As long as a volume has a cache, its slow device alone is not the volume: what is newest may be in the cache only. The cache's
//! superblock says so, but who takes `cache = "fast"` out of the configuration takes away the only way to it. So a note says it
//! too, on the side of the slow device: it is written before the cache is first used, and removed when the cache was given up with
//! everything in it on the slow device. A volume that has a note is served with that cache or not at all.
//!
//! A note is a file of its own, called after what the store is known by (`identity`), replaced as a whole and flushed. A volume in
//! memory has none: nothing of it outlives the daemon.

use super::identity::identity_of;
use crate::backend::{Backing, VolumeConfig};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Version of a note's format.
const VERSION: u32 = 1;

/// That a volume has a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheNote {
    version: u32,
    /// The volume's name, when it was written.
    pub volume: String,
    /// The cache's name.
    pub cache: String,
    /// The cache's device.
    pub path: PathBuf,
    /// Which cache it is: that of its superblock.
    uuid: [u8; 16],
}

impl CacheNote {
    /// That `volume` has the cache `uuid`, which is called `cache` and is on `path`.
    pub(super) fn new(volume: &str, cache: &str, path: &Path, uuid: [u8; 16]) -> CacheNote {
        // The next daemon may be started elsewhere.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        CacheNote { version: VERSION, volume: volume.to_owned(), cache: cache.to_owned(), path, uuid }
    }

    /// Whether the cache is on that device.
    pub(super) fn is_on(&self, path: &Path) -> bool {
        std::path::absolute(path).is_ok_and(|path| path == self.path)
    }

    /// Whether it is this cache that the volume has.
    pub(super) fn is_of(&self, uuid: &[u8; 16]) -> bool {
        self.uuid == *uuid
    }
}

/// A directory of notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheNotes {
    directory: PathBuf,
}

impl CacheNotes {
    /// Those in `directory`, which is made when the first is written.
    pub fn new(directory: PathBuf) -> CacheNotes {
        CacheNotes { directory }
    }

    /// Where the note of a volume is; `None` for one in memory.
    fn path_of(&self, volume: &VolumeConfig) -> io::Result<Option<PathBuf>> {
        let Backing::File { path, .. } = &volume.backing else { return Ok(None) };
        if !path.exists() {
            return Ok(None);
        }
        let name: String = identity_of(volume, 0)?.store.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(self.directory.join(format!("cache-of-{name}.json"))))
    }

    /// What is noted of a volume.
    ///
    /// # Errors
    /// The system's; or something is there that is no note.
    pub fn get(&self, volume: &VolumeConfig) -> io::Result<Option<CacheNote>> {
        let Some(path) = self.path_of(volume)? else { return Ok(None) };
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let wrong = |what: String| io::Error::other(format!("{} is no note of a cache: {what}", path.display()));
        let note: CacheNote = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match note.version {
            VERSION => Ok(Some(note)),
            other => Err(wrong(format!("its version is {other}, expected {VERSION}"))),
        }
    }

    /// Notes durably that a volume has a cache, if it does not stand there.
    pub(super) fn put(&self, volume: &VolumeConfig, note: &CacheNote) -> io::Result<()> {
        let Some(path) = self.path_of(volume)? else { return Ok(()) };
        if self.get(volume)?.as_ref() == Some(note) {
            return Ok(());
        }
        self.make_directory()?;
        let new = path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(note)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        File::open(&self.directory)?.sync_all()
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

    /// The volume has no cache any more; answers what was noted.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self, volume: &VolumeConfig) -> io::Result<Option<CacheNote>> {
        let note = self.get(volume)?;
        if let (Some(_), Some(path)) = (&note, self.path_of(volume)?) {
            std::fs::remove_file(path)?;
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(path: PathBuf) -> VolumeConfig {
        VolumeConfig {
            name: "v".into(),
            pool: "p".into(),
            backing: Backing::File { path, size_bytes: None, creates: false },
            start_bytes: 0,
            is_read_only: false,
        }
    }

    #[test]
    fn a_note_is_of_its_store_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let notes = CacheNotes::new(directory.path().join("not/yet/there"));
        let [one, other] = ["one", "other"].map(|name| {
            let path = directory.path().join(name);
            std::fs::write(&path, [1; 4096]).unwrap();
            volume(path)
        });
        assert_eq!(notes.get(&one).unwrap(), None);
        assert_eq!(notes.remove(&one).unwrap(), None);
        let note = CacheNote::new("v", "fast", Path::new("/dev/fast"), [7; 16]);
        notes.put(&one, &note).unwrap();
        notes.put(&one, &note).unwrap();
        assert_eq!((notes.get(&one).unwrap(), notes.get(&other).unwrap()), (Some(note.clone()), None));
        // Another path to the same file.
        let moved = directory.path().join("moved");
        std::fs::rename(directory.path().join("one"), &moved).unwrap();
        assert_eq!(notes.remove(&volume(moved.clone())).unwrap(), Some(note));
        assert_eq!(notes.get(&volume(moved)).unwrap(), None);
    }

    #[test]
    fn what_is_no_note_is_told_and_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let notes = CacheNotes::new(directory.path().to_owned());
        let path = directory.path().join("slow");
        std::fs::write(&path, [1; 4096]).unwrap();
        let volume = volume(path);
        notes.put(&volume, &CacheNote::new("v", "fast", Path::new("/dev/fast"), [7; 16])).unwrap();
        let file = notes.path_of(&volume).unwrap().unwrap();
        let other = std::fs::read_to_string(&file).unwrap().replace("\"version\":1", "\"version\":2");
        for text in ["", "{}", other.as_str()] {
            std::fs::write(&file, text).unwrap();
            let error = notes.get(&volume).unwrap_err().to_string();
            assert!(error.contains("is no note of a cache: "), "{error}");
        }
    }
}
