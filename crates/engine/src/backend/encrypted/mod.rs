//! Volumes with bytes that are encrypted in their file or on their block device.
//!
//! **Intuition.** A thief of the disk, or of a copy of it, has noise. **Rule.** Each sector of 512 bytes is encrypted
//! by itself (AES-256-XTS, [`xts`]), with a key that is read from a file at the start ([`key`]). There is no header:
//! `cryptsetup` opens the file as a plain volume. Service threads do the work (`work`).
//! **Complication.** Without a header the file does not say which key is right, and a write with a wrong key destroys
//! data. So a note on the side ([`Notes`]) has a fingerprint of the key, from the first time that the volume is opened.
//! A volume that has one is opened with that key or not at all.
//!
//! A file in which nothing was ever written is right for any key: its note is replaced.

mod key;
mod xts;

pub use key::{KEY_BYTES, KEY_OPENED, KeyError, check as check_key};
pub use xts::{SECTOR_BYTES, SectorCipher};

use super::{VolumeConfig, VolumeError};
use crate::notes::{Note, Notes};
use crate::store_identity::random;
use key::{FINGERPRINT_BYTES, Key};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Version of a note's format.
const VERSION: u32 = 1;

/// How a volume is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Where its key is.
    pub key_file: PathBuf,
    /// The notes that say which key a volume has; `None`: a wrong key is not noticed.
    pub notes: Option<Notes>,
}

/// Which key a volume is encrypted with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyNote {
    version: u32,
    /// The volume's name, when it was written.
    volume: String,
    salt: [u8; 16],
    fingerprint: [u8; FINGERPRINT_BYTES],
}

impl Note for KeyNote {
    const ABOUT: &'static str = "key";
    const VERSION: u32 = VERSION;

    fn version(&self) -> u32 {
        self.version
    }
}

impl Encryption {
    /// Reads the key of `volume`.
    pub(super) fn key(&self, volume: &VolumeConfig) -> Result<Key, VolumeError> {
        Key::read(&self.key_file).map_err(|source| self.refused(volume, source))
    }

    /// The cipher of `volume`, which has the open file `file`, if `key` is its key.
    pub(super) fn cipher(&self, volume: &VolumeConfig, file: &File, key: &Key) -> Result<SectorCipher, VolumeError> {
        self.check(volume, file, key).map_err(|source| self.refused(volume, source))?;
        Ok(SectorCipher::new(key))
    }

    fn refused(&self, volume: &VolumeConfig, source: KeyError) -> VolumeError {
        VolumeError::Key { volume: volume.name.clone(), path: self.key_file.clone(), source }
    }

    /// Checks that `key` is the key of `volume`. A volume without a note gets one for this key.
    fn check(&self, volume: &VolumeConfig, file: &File, key: &Key) -> Result<(), KeyError> {
        let Some(notes) = &self.notes else { return Ok(()) };
        let system = |action| move |source| KeyError::System { action, source };
        let noted: Option<KeyNote> = notes.get(volume).map_err(system(
            "find the note of the volume that it belongs \
                                                                       to",
        ))?;
        if let Some(KeyNote { salt, fingerprint, .. }) = &noted
            && key.fingerprint(salt) == *fingerprint
        {
            return Ok(());
        }
        let is_empty = is_empty(file).map_err(system("find out whether the volume is empty"))?;
        if noted.is_some() && !is_empty {
            let note = notes
                .path_of::<KeyNote>(volume)
                .map_err(system(
                    "find the note of the volume that it belongs \
                                                                        to",
                ))?
                .unwrap_or_default();
            return Err(KeyError::Other { note });
        }
        if !is_empty {
            let (volume, key_file) = (&volume.name, self.key_file.display());
            tracing::warn!(
                volume,
                "no note says which key the volume was written with: from now on that is {key_file}; if reads return \
                 noise, the key is another one"
            );
        }
        let salt = random().map_err(system("draw a salt for it"))?;
        let fingerprint = key.fingerprint(&salt);
        let note = KeyNote { version: VERSION, volume: volume.name.clone(), salt, fingerprint };
        notes.put(volume, &note).map_err(system("note which volume it belongs to"))
    }
}

/// Whether nothing was ever written to a file, or all of it was given back. What cannot tell, block devices for
/// example, is taken for one that has something.
fn is_empty(file: &File) -> io::Result<bool> {
    match rustix::fs::seek(file, SeekFrom::Data(0)) {
        Err(Errno::NXIO) => Ok(true),
        Ok(_) | Err(Errno::INVAL) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Backing, Volume};
    use super::*;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::path::Path;

    fn key_file(directory: &Path, name: &str, factor: u8) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, std::array::from_fn::<u8, KEY_BYTES, _>(|at| at as u8 * factor)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn open(path: &Path, key_file: PathBuf, notes: &Notes) -> Result<Volume, VolumeError> {
        let encryption = Some(Encryption { key_file, notes: Some(notes.clone()) });
        let backing = Backing::File { path: path.to_owned(), size_bytes: Some(1 << 20), creates: true, encryption };
        Volume::open(VolumeConfig { name: "v".into(), pool: "p".into(), backing, start_bytes: 0, is_read_only: false })
    }

    /// Planted breaks: the note is not looked at; a note is replaced in any case.
    /// Promise: encrypted-key.
    #[test]
    fn another_key_than_the_one_that_a_volume_was_written_with_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let [right, wrong] =
            [("right", 1), ("wrong", 3)].map(|(name, factor)| key_file(directory.path(), name, factor));
        let notes = Notes::new(directory.path().join("notes"));
        let path = directory.path().join("v.img");
        // In an empty file any key is the right one.
        open(&path, wrong.clone(), &notes).unwrap();
        open(&path, right.clone(), &notes).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().write_all_at(&[1; 512], 4096).unwrap();
        open(&path, right.clone(), &notes).unwrap();
        let message = open(&path, wrong.clone(), &notes).err().expect("it is refused").to_string();
        let note = std::fs::read_dir(directory.path().join("notes")).unwrap().next().unwrap().unwrap().path();
        let expected = format!(
            "volume v: key file {}: it is not the key that the volume was written with, as {} says",
            wrong.display(),
            note.display()
        );
        assert_eq!(message, expected);
        open(&path, right.clone(), &notes).unwrap();
        // Of the key nothing is in the note.
        let noted = std::fs::read(&note).unwrap();
        assert!(noted.windows(4).all(|four| four != [0, 1, 2, 3]) && !noted.windows(8).any(|part| part == b"0,1,2,3,"));
        // Without a note, any key is taken as the right one, and the volume is held to it.
        std::fs::remove_file(&note).unwrap();
        open(&path, right.clone(), &notes).unwrap();
        assert!(open(&path, wrong, &notes).is_err());
    }

    #[test]
    fn a_key_that_is_refused_makes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let (path, notes) = (directory.path().join("v.img"), Notes::new(directory.path().join("notes")));
        let weak = key_file(directory.path(), "weak", 0);
        let message = open(&path, weak, &notes).err().expect("it is refused").to_string();
        assert!(message.contains("its halves are equal"), "{message}");
        assert!(!path.exists());
    }
}
