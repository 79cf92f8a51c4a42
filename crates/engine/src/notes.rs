//! Notes about volumes that outlive the daemon, the machine's memory and the configuration.
//!
//! A note is a file, named after its subject and the identity of the store (`cache::identity`). It is replaced as a
//! whole and flushed. A volume in memory has none: nothing of it outlives the daemon.
//!
//! **Another directory has other notes.** So a note that must not be missed lies beside the store, too, if that is a
//! regular file. It is in an extended attribute, with what the file is known by, since a copy may have its attributes.
//! Where the two differ, the attribute holds: it goes with the store, and a directory may have been out of use
//! meanwhile. A block device has no place for one.
//!
//! **A damaged copy.** A copy may be damaged: truncated, no JSON, unreadable, no regular file. Another copy that is
//! whole stands for it if it names the same cache and is not older, as far as the damaged one can be read
//! ([`Remains`](format::Remains)). When the cache is used, the log names the damaged place, and the copy is written
//! there again; a refusal writes nothing. A damaged copy of which nothing can be read counts as one that is not there.
//! Where no whole copy is left, nothing is known: that is an error ([`DamagedNote`]), and never the absence of a note.
//!
//! **A loop device has the bytes of a file.** So such a note of a loop device lies beside its file, with the offset in
//! the attribute's name. It holds for the file, too, and a note of the file holds for each loop device on it.

mod attributes;
mod format;
#[cfg(test)]
mod tests;

pub use format::{DamagedNote, Note, Remains};

use crate::backend::{Backing, VolumeConfig};
use crate::occupied::beneath::file_beneath;
use crate::store_identity::{store_of, store_of_loop};
use attributes::{Attribute, attributes, put_on_store, read_attribute, remove_from_store};
use format::{decode, hex, unreadable};
use plimsoll_linux::durable::{remove_file, replace_file};
use plimsoll_linux::files::read_regular;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

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

    /// Places of notes of other stores with the same bytes: of a loop device's file, or of a loop device on all of a
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

    /// Places of a note of a volume; the place that takes precedence comes first.
    fn places<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Vec<NotePlace>> {
        let attributes = attributes::<N>(volume)?.into_iter().map(NotePlace::Attribute);
        let files = self.path_of::<N>(volume)?.into_iter().chain(self.paths_of_others::<N>(volume)?);
        Ok(attributes.chain(files.map(NotePlace::File)).collect())
    }

    /// Every whole note of this kind in the directory. O(notes).
    ///
    /// # Errors
    /// The system's, if the directory is there and cannot be read.
    pub(crate) fn all<N: Note>(&self) -> io::Result<Vec<N>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let beginning = format!("{}-of-", N::ABOUT);
        let is_note = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            name.starts_with(beginning.as_bytes()) && name.ends_with(b".json") && path.is_file()
        };
        let paths = entries.flatten().map(|entry| entry.path()).filter(is_note);
        Ok(paths.filter_map(|path| decode(&path.display().to_string(), &read_regular(&path).ok()?).ok()).collect())
    }

    /// What is noted of a volume. Nothing is written: a damaged copy for which another one stands is passed over.
    ///
    /// # Errors
    /// The system's; no copy is whole, or none stands for a damaged one ([`DamagedNote`]); or a newer program wrote a
    /// copy.
    pub fn get<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        Ok(self.whole_and_damaged(volume)?.0)
    }

    /// Writes a damaged copy of a note again, for which another one stands. A cache that is not refused has its note
    /// mended; a refusal changes nothing.
    ///
    /// # Errors
    /// As [`get`](Self::get). A copy that cannot be written again is told in the log.
    pub(crate) fn mend<N: Note>(&self, volume: &VolumeConfig) -> io::Result<()> {
        let (Some(note), damaged) = self.whole_and_damaged::<N>(volume)? else { return Ok(()) };
        for (place, damage) in damaged {
            let volume = &volume.name;
            tracing::warn!(volume, "{damage}: another copy of the note is whole, holds, and is written there again");
            if let Err(error) = self.put_at(&place, &note, volume) {
                tracing::warn!(volume, %error, "the note cannot be written again to {place}");
            }
        }
        Ok(())
    }

    /// The note that holds, and the damaged copies for which it stands.
    fn whole_and_damaged<N: Note>(&self, volume: &VolumeConfig) -> io::Result<(Option<N>, DamagedCopies)> {
        let (mut whole, mut damaged) = (None::<N>, Vec::new());
        for place in self.places::<N>(volume)? {
            match place.read::<N>() {
                Ok(note) => whole = whole.or(note),
                Err(error) if DamagedNote::behind(&error).is_some() => damaged.push((place, error)),
                Err(error) => return Err(error),
            }
        }
        let stands_for = |error: &io::Error| {
            let note = whole.as_ref();
            note.is_some_and(|note| DamagedNote::behind(error).is_some_and(|damage| note.stands_for(&damage.remains)))
        };
        match damaged.iter().position(|(_, error)| !stands_for(error)) {
            Some(at) => Err(damaged.swap_remove(at).1),
            None => Ok((whole, damaged)),
        }
    }

    /// The note beside another file's store, of which this file is a copy, or which was moved here from another file
    /// system.
    ///
    /// # Errors
    /// The system's; or something is there that is no note.
    pub fn of_its_original<N: Note>(volume: &VolumeConfig) -> io::Result<Option<N>> {
        let own = attributes::<N>(volume)?.into_iter().find(|attribute| attribute.is_own);
        let read = own.map_or(Ok(None), |attribute| read_attribute::<N>(&attribute))?;
        Ok(read.and_then(|(note, is_of_this_file)| (!is_of_this_file).then_some(note)))
    }

    /// Every whole note of exactly the bytes of a volume, under any identity of its store. That is this file before a
    /// move, a loop device on all of it, or the file of a loop device.
    ///
    /// # Errors
    /// The system's, or a newer program wrote a note.
    pub(crate) fn of_same_bytes<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Vec<N>> {
        let (mut notes, attributes) = (Vec::new(), attributes::<N>(volume)?);
        let Backing::File { path, .. } = &volume.backing else { return Ok(notes) };
        let read =
            attributes.iter().filter(|attribute| attribute.is_exact).map(|attribute| read_attribute::<N>(attribute));
        let of_attributes = read.map(|read| Ok(read?.map(|(note, _)| note)));
        let others = match file_beneath(path) {
            Some((_, extent)) if extent.begin > 0 => Vec::new(),
            _ => self.paths_of_others::<N>(volume)?,
        };
        for note in of_attributes.chain(others.iter().map(|path| read_note(path))) {
            match note {
                // A damaged note bears no witness.
                Err(error) if DamagedNote::behind(&error).is_some() => {}
                note => notes.extend(note?),
            }
        }
        Ok(notes)
    }

    /// Takes away what is noted there.
    pub(crate) fn remove_of_its_original<N: Note>(volume: &VolumeConfig) -> io::Result<Option<N>> {
        let note = Notes::of_its_original::<N>(volume)?;
        if note.is_some() {
            attributes::<N>(volume)?.iter().filter(|attribute| attribute.is_own).try_for_each(remove_from_store)?;
        }
        Ok(note)
    }

    /// Notes it durably, if it does not stand there. Where one of its places cannot be written, nothing is noted: a
    /// place that had no note has none again.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn put<N: Note>(&self, volume: &VolumeConfig, note: &N) -> io::Result<()> {
        let Some(path) = self.path_of::<N>(volume)? else { return Ok(()) };
        let own = attributes::<N>(volume)?.into_iter().next().filter(|attribute| attribute.is_own);
        let mut new = Vec::new();
        for place in own.map(NotePlace::Attribute).into_iter().chain([NotePlace::File(path)]) {
            match self.put_if_missing(&place, note, &volume.name) {
                Ok(is_new) => new.extend(is_new.then_some(place)),
                Err(error) => {
                    // The first failure is the one to tell.
                    let _ = new.iter().try_for_each(|place| self.remove_at(place));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Notes it at a place, if it does not stand there. Says whether no note stood there before.
    fn put_if_missing<N: Note>(&self, place: &NotePlace, note: &N, volume: &str) -> io::Result<bool> {
        let (there, is_new) = match place.read::<N>() {
            Err(error) if DamagedNote::behind(&error).is_some() => (None, false),
            read => {
                let there = read?;
                let is_new = there.is_none();
                (there, is_new)
            }
        };
        if there.as_ref() != Some(note) {
            self.put_at(place, note, volume)?;
        }
        Ok(is_new)
    }

    fn put_at<N: Note>(&self, place: &NotePlace, note: &N, volume: &str) -> io::Result<()> {
        match place {
            NotePlace::Attribute(attribute) => put_on_store(attribute, note, volume),
            NotePlace::File(path) => self.write(path, &serde_json::to_vec(note)?),
        }
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

    fn without_path(&self, volume: &VolumeConfig, cache: &[u8; 16]) -> io::Result<Option<PathBuf>> {
        let Backing::File { path, .. } = &volume.backing else { return Ok(None) };
        Ok(Some(self.directory.join(format!("without-{}-of-{}", hex(cache), hex(&store_of(path)?)))))
    }

    /// Notes durably that the store of `volume` is served without the cache of this uuid, which stays as it is.
    pub(crate) fn serve_without(&self, volume: &VolumeConfig, cache: &[u8; 16]) -> io::Result<()> {
        self.without_path(volume, cache)?.map_or(Ok(()), |path| self.write(&path, b""))
    }

    /// Whether that is noted.
    pub(crate) fn is_served_without(&self, volume: &VolumeConfig, cache: &[u8; 16]) -> io::Result<bool> {
        self.without_path(volume, cache)?.map_or(Ok(false), |path| path.try_exists())
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

    /// Removes a note and its damaged copies. Answers the former note, as far as it can be read.
    ///
    /// # Errors
    /// The system's.
    pub fn remove<N: Note>(&self, volume: &VolumeConfig) -> io::Result<Option<N>> {
        let mut found = None;
        for place in self.places::<N>(volume)? {
            let note = match place.read::<N>() {
                Err(error) if DamagedNote::behind(&error).is_some() => None,
                Ok(None) => continue,
                read => read?,
            };
            self.remove_at(&place)?;
            found = found.or(note);
        }
        Ok(found)
    }

    /// Takes away the copies that are damaged: another one, which is whole, holds without them.
    pub(crate) fn remove_damaged<N: Note>(&self, volume: &VolumeConfig) -> io::Result<()> {
        let places = self.places::<N>(volume)?.into_iter();
        let is_damaged =
            |place: &NotePlace| place.read::<N>().is_err_and(|error| DamagedNote::behind(&error).is_some());
        places.filter(is_damaged).try_for_each(|place| self.remove_at(&place))
    }

    fn remove_at(&self, place: &NotePlace) -> io::Result<()> {
        match place {
            NotePlace::Attribute(attribute) => remove_from_store(attribute),
            NotePlace::File(path) => remove_file(path),
        }
    }
}

/// Copies of a note that are damaged, each with its damage.
type DamagedCopies = Vec<(NotePlace, io::Error)>;

/// A place where a note may lie.
enum NotePlace {
    /// Beside the store.
    Attribute(Attribute),
    /// A file of the directory.
    File(PathBuf),
}

impl NotePlace {
    /// The note that is there. One of another file, of which this is a copy, is none.
    fn read<N: Note>(&self) -> io::Result<Option<N>> {
        match self {
            NotePlace::Attribute(attribute) => {
                let read = read_attribute(attribute)?;
                Ok(read.and_then(|(note, is_of_this_file)| is_of_this_file.then_some(note)))
            }
            NotePlace::File(path) => read_note(path),
        }
    }
}

impl fmt::Display for NotePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotePlace::Attribute(Attribute { file, name, .. }) => {
                write!(formatter, "the attribute {name} of {}", file.display())
            }
            NotePlace::File(path) => write!(formatter, "{}", path.display()),
        }
    }
}

/// The note in a file of a directory of notes.
fn read_note<N: Note>(path: &Path) -> io::Result<Option<N>> {
    let place = path.display().to_string();
    let text = match read_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| unreadable::<N>(&place, error))?,
    };
    decode(&place, &text).map(Some)
}
