//! Notes of volumes with a cache. They outlive the daemon, the machine's memory and the configuration.
//!
//! As long as a volume has a cache, its slow device alone is not the volume: what is newest may be in the cache only.
//! The cache's superblock says so. But the way to it is lost if an operator removes `cache = "fast"` from the
//! configuration. So a note says it too, on the side of the slow device. It is written before the cache is first used,
//! and removed when the cache was given up with everything in it on the slow device. A volume that has a note is served
//! with that cache or not at all.
//!
//! **A cache that leaves.** A detach gives the cache up on its device and removes the note, and a daemon may be killed
//! between the two. So the note says first that everything is on the slow device ([`Leaving`]). The next start then
//! finishes what was begun.

use crate::notes::{Note, Remains};
use plimsoll_cache::store::Superblock;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of a note's format. Version 1 had neither starts nor generation.
const VERSION: u32 = 2;

/// Why a cache is given up. All of its data is on the slow device, and nothing of the volume is written before the
/// cache is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leaving {
    /// A detach: the volume goes on without a cache.
    Detach,
    /// The volume gets another one in the same place.
    Resize {
        /// Bytes of the new one.
        size_bytes: u64,
    },
}

/// The note that a volume has a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheNote {
    pub(super) version: u32,
    /// The volume's name, when it was written.
    pub volume: String,
    /// The cache's name.
    pub cache: String,
    /// The cache's device.
    pub path: PathBuf,
    /// Which cache it is: that of its superblock.
    pub(super) uuid: [u8; 16],
    /// How often it had begun when this was written. What has begun less often is a copy from before.
    #[serde(default)]
    pub(super) starts: u64,
    /// Which map it had. What has an older one is a copy from before.
    #[serde(default)]
    pub(super) generation: u64,
    /// The name that the slow device's content has for itself, if the device is known by path only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<String>,
    /// Why the cache is given up, or will be at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
}

impl CacheNote {
    /// The note that `volume` has the cache of this superblock, called `cache` and on `path`.
    pub(crate) fn new(volume: &str, cache: &str, path: &Path, superblock: &Superblock) -> CacheNote {
        // The next daemon may be started elsewhere.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let Superblock { uuid, starts, generation, .. } = *superblock;
        CacheNote {
            version: VERSION,
            volume: volume.to_owned(),
            cache: cache.to_owned(),
            path,
            uuid,
            starts,
            generation,
            content: None,
            leaving: None,
        }
    }

    /// Why this note is not about a volume of that name, if it is not: two slow devices may have the same identity.
    pub fn why_not_of(&self, volume: &str) -> Option<String> {
        let CacheNote { cache, path, .. } = self;
        (self.volume != volume).then(|| {
            format!(
                "its slow device is noted as that of volume {:?}, and cache {cache:?} of that volume, on {}, was not \
                 detached (if both are the same volume, forget the cache under that name)",
                self.volume,
                path.display()
            )
        })
    }

    /// Whether it is this cache that the volume has.
    pub(super) fn is_of(&self, uuid: &[u8; 16]) -> bool {
        self.uuid == *uuid
    }
}

impl Note for CacheNote {
    const ABOUT: &'static str = "cache";
    const VERSION: u32 = VERSION;
    const LIES_ON_STORE: bool = true;

    fn version(&self) -> u32 {
        self.version
    }

    /// A damaged note of another cache, or of a later start, has data that this note lacks. The word that a cache
    /// leaves counts for the same start only. A cache that has started again since has data of its own.
    fn stands_for(&self, remains: &Remains) -> bool {
        let (uuid, starts) = (remains.bytes("uuid"), remains.number("starts"));
        let is_of_this_start = uuid == Some(self.uuid) && starts == Some(self.starts);
        uuid.is_none_or(|uuid| self.is_of(&uuid))
            && starts.is_none_or(|starts| starts <= self.starts)
            && remains.number("generation").is_none_or(|generation| generation <= self.generation)
            && (self.leaving.is_none() || is_of_this_start)
    }
}
