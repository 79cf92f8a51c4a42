//! What is noted of volumes where it outlives the daemon, the machine's memory and the configuration.
//!
//! A note is a file of its own, called after what it is about and what the store is known by (`cache::identity`), replaced as a whole and
//! flushed. A volume in memory has none: nothing of it outlives the daemon.

use crate::backend::{Backing, VolumeConfig};
use crate::cache::store_of;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Something that is noted of a volume.
pub trait Note: Serialize + DeserializeOwned + PartialEq {
    /// What it is about, such as `cache`: the first word of its file's name.
    const ABOUT: &'static str;
    /// Version of its format.
    const VERSION: u32;

    /// The version that it was written with.
    fn version(&self) -> u32;
}

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
        let name: String = store_of(path)?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(self.directory.join(format!("{}-of-{name}.json", N::ABOUT))))
    }

    /// What is noted of a volume.
    ///
    /// # Errors
    /// The system's; or something is there that is no note.
    pub fn get<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        let Some(path) = self.path_of::<N>(volume)? else { return Ok(None) };
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let wrong = |what: String| io::Error::other(format!("{} is no note of a {}: {what}", path.display(), N::ABOUT));
        let note: N = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match note.version() {
            version if version == N::VERSION => Ok(Some(note)),
            other => Err(wrong(format!("its version is {other}, expected {}", N::VERSION))),
        }
    }

    /// Notes it durably, if it does not stand there.
    pub(crate) fn put<N: Note>(&self, volume: &VolumeConfig, note: &N) -> io::Result<()> {
        let Some(path) = self.path_of::<N>(volume)? else { return Ok(()) };
        if self.get::<N>(volume)?.as_ref() == Some(note) {
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

    /// It does not hold any more; answers what was noted.
    ///
    /// # Errors
    /// The system's.
    pub fn remove<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        let note = self.get::<N>(volume)?;
        if let (Some(_), Some(path)) = (&note, self.path_of::<N>(volume)?) {
            std::fs::remove_file(path)?;
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CacheNote;

    fn volume(path: PathBuf) -> VolumeConfig {
        VolumeConfig {
            name: "v".into(),
            pool: "p".into(),
            backing: Backing::File { path, size_bytes: None, creates: false, encryption: None },
            start_bytes: 0,
            is_read_only: false,
        }
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
        let note = CacheNote::new("v", "fast", Path::new("/dev/fast"), [7; 16]);
        notes.put(&one, &note).unwrap();
        notes.put(&one, &note).unwrap();
        assert_eq!((notes.get(&one).unwrap(), notes.get::<CacheNote>(&other).unwrap()), (Some(note.clone()), None));
        // Another path to the same file.
        let moved = directory.path().join("moved");
        std::fs::rename(directory.path().join("one"), &moved).unwrap();
        assert_eq!(notes.remove(&volume(moved.clone())).unwrap(), Some(note));
        assert_eq!(notes.get::<CacheNote>(&volume(moved)).unwrap(), None);
    }

    #[test]
    fn what_is_no_note_is_told_and_not_taken_for_none() {
        let directory = tempfile::tempdir().unwrap();
        let notes = Notes::new(directory.path().to_owned());
        let path = directory.path().join("slow");
        std::fs::write(&path, [1; 4096]).unwrap();
        let volume = volume(path);
        notes.put(&volume, &CacheNote::new("v", "fast", Path::new("/dev/fast"), [7; 16])).unwrap();
        let file = notes.path_of::<CacheNote>(&volume).unwrap().unwrap();
        let other = std::fs::read_to_string(&file).unwrap().replace("\"version\":1", "\"version\":2");
        for text in ["", "{}", other.as_str()] {
            std::fs::write(&file, text).unwrap();
            let error = notes.get::<CacheNote>(&volume).unwrap_err().to_string();
            assert!(error.contains("is no note of a cache: "), "{error}");
        }
    }
}
