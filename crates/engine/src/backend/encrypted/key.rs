//! The key of an encrypted volume: 64 bytes in a file that only its owner may read.
//!
//! It is never logged, shown or written, and wiped from memory once the ciphers are made of it. What is kept beside the
//! volume is a *fingerprint*: a keyed hash of a random salt. A key is 512 random bits, so no attacker finds it by
//! trying out fingerprints, however quick that is. A key that was made of a password is as weak as the password, here
//! as in the file itself.

use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::{FileType, Mode, OFlags};
use sha2::Sha256;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of a key: two of AES-256.
pub const KEY_BYTES: usize = 64;
/// Bytes of a fingerprint.
pub(super) const FINGERPRINT_BYTES: usize = 32;
/// Prefix of a fingerprint's input, so that no other program has a hash of the same bytes.
const FINGERPRINT_OF: &[u8] = b"plimsoll: the key of a volume";
/// Permissions that only others than the owner need.
const OF_OTHERS: u32 = 0o077;

/// What was tried of a key that this user may not open, or that is not there.
pub const KEY_OPENED: &str = "open it";

/// Why a key is not used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No regular file.
    #[error("it is no regular file")]
    Kind,
    /// Others may read or change it.
    #[error("others than its owner may use it (mode {mode:03o}), allowed is 600 or less; chmod 600 does that")]
    Open {
        /// Its permissions.
        mode: u32,
    },
    /// Not as long as a key.
    #[error("it has {bytes} bytes, allowed are exactly {KEY_BYTES}; to make one: head -c {KEY_BYTES} /dev/urandom")]
    Size {
        /// Bytes that it has.
        bytes: u64,
    },
    /// XTS with equal halves is not safe.
    #[error(
        "its halves are equal, allowed are {KEY_BYTES} random bytes; to make them: head -c {KEY_BYTES} /dev/urandom"
    )]
    Halves,
    /// The volume was written with another one.
    #[error("it is not the key that the volume was written with, as {} says", note.display())]
    Other {
        /// Where that is noted.
        note: std::path::PathBuf,
    },
}

/// A key; in one place, so that it is wiped wherever it was.
pub(crate) struct Key(Box<Zeroizing<[u8; KEY_BYTES]>>);

impl Key {
    /// A key that `fill` writes, if it is one.
    pub(super) fn filled(fill: impl FnOnce(&mut [u8; KEY_BYTES]) -> Result<(), KeyError>) -> Result<Key, KeyError> {
        let mut key = Key(Box::new(Zeroizing::new([0; KEY_BYTES])));
        fill(&mut key.0)?;
        let (first, second) = key.halves();
        if first == second { Err(KeyError::Halves) } else { Ok(key) }
    }

    /// The key in the file at `path`.
    pub(super) fn read(path: &Path) -> Result<Key, KeyError> {
        let system = |action| move |source| KeyError::System { action, source };
        // Opening a pipe waits for a writer otherwise.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| system(KEY_OPENED)(errno.into()))?;
        let mut file = File::from(file);
        let metadata = file.metadata().map_err(system("look at it"))?;
        if FileType::from_raw_mode(metadata.mode()) != FileType::RegularFile {
            return Err(KeyError::Kind);
        }
        let mode = metadata.mode() & 0o7777;
        if mode & OF_OTHERS != 0 {
            return Err(KeyError::Open { mode });
        }
        if metadata.len() != KEY_BYTES as u64 {
            return Err(KeyError::Size { bytes: metadata.len() });
        }
        Key::filled(|bytes| file.read_exact(bytes).map_err(system("read it")))
    }

    /// One for tests.
    #[cfg(test)]
    pub(super) fn of(key: [u8; KEY_BYTES]) -> Key {
        let copied = Key::filled(|bytes| {
            bytes.copy_from_slice(&key);
            Ok(())
        });
        copied.unwrap()
    }

    /// What encrypts blocks, and what makes tweaks.
    pub(super) fn halves(&self) -> (&[u8; KEY_BYTES / 2], &[u8; KEY_BYTES / 2]) {
        let (first, second) = self.0.split_at(KEY_BYTES / 2);
        (first.try_into().expect("a half"), second.try_into().expect("a half"))
    }

    /// What tells it from other keys, with this salt.
    pub(super) fn fingerprint(&self, salt: &[u8]) -> [u8; FINGERPRINT_BYTES] {
        let mut hash = Hmac::<Sha256>::new_from_slice(&self.0[..]).expect("a key of any length will do");
        hash.update(FINGERPRINT_OF);
        hash.update(salt);
        hash.finalize().into_bytes().into()
    }
}

/// Reads the key in the file at `path` and drops it.
///
/// # Errors
/// It is none that a volume is opened with.
pub fn check(path: &Path) -> Result<(), KeyError> {
    Key::read(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(bytes: &[u8], mode: u32) -> Result<Key, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Key::read(&path).map_err(|error| error.to_string())
    }

    /// Promise: encrypted-key.
    #[test]
    fn only_a_key_of_64_bytes_that_its_owner_alone_may_read_is_one() {
        let good: Vec<u8> = (0..64).collect();
        assert!(read(&good, 0o600).is_ok() && read(&good, 0o400).is_ok());
        let refused = |bytes: &[u8], mode| read(bytes, mode).err().expect("it is refused");
        for mode in [0o640, 0o604, 0o620, 0o610] {
            let message = refused(&good, mode);
            assert!(message.starts_with("others than its owner may use it (mode 6"), "{message}");
            assert!(message.ends_with("chmod 600 does that"), "{message}");
        }
        assert!(refused(&good[..63], 0o600).starts_with("it has 63 bytes, allowed are exactly 64"));
        assert!(refused(&[&good[..], b"\n"].concat(), 0o600).starts_with("it has 65 bytes, allowed are exactly 64"));
        assert!(refused(&[7; 64], 0o600).starts_with("its halves are equal"));
        assert_eq!(Key::read(Path::new("/dev/null")).err().unwrap().to_string(), "it is no regular file");
        assert!(Key::read(Path::new("/nowhere/key")).err().unwrap().to_string().starts_with("cannot open it: No such"));
    }

    #[test]
    fn a_fingerprint_is_of_one_key_and_one_salt() {
        let [one, other] = [1, 2].map(|factor| Key::of(std::array::from_fn(|at| at as u8 * factor)));
        assert_eq!(one.fingerprint(&[7; 16]), one.fingerprint(&[7; 16]));
        assert_ne!(one.fingerprint(&[7; 16]), other.fingerprint(&[7; 16]));
        assert_ne!(one.fingerprint(&[7; 16]), one.fingerprint(&[8; 16]));
    }
}
