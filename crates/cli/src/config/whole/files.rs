//! Files of volumes and caches: each has one that no other has.

use crate::config::sections::Sections;
use crate::config::{Backing, Problem, cache, quoted};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The target of a path: a file has several names with hard links, and a device with several nodes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    File {
        device: u64,
        inode: u64,
    },
    Device(u64),
    /// Nothing is there yet.
    Path(PathBuf),
}

impl Leads {
    fn of(path: &Path) -> Leads {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.file_type().is_block_device() => Leads::Device(metadata.rdev()),
            Ok(metadata) => Leads::File { device: metadata.dev(), inode: metadata.ino() },
            Err(_) => Leads::Path(path.to_owned()),
        }
    }
}

/// A volume or a cache has a file that no other has.
pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    let volumes = sections.volumes.iter().filter_map(|volume| match &volume.backing {
        Backing::File { path, .. } => Some((path.as_path(), format!("volume {:?}", volume.name), &volume.place)),
        Backing::Memory | Backing::CompressedMemory { .. } => None,
    });
    let caches = sections.caches.iter().filter(|cache| cache.place.is_understood(cache::FILE.name));
    let caches = caches.map(|cache| (cache.settings.path.as_path(), format!("cache {:?}", cache.name), &cache.place));
    let mut users: BTreeMap<Leads, String> = BTreeMap::new();
    for (path, user, place) in volumes.chain(caches) {
        match users.entry(Leads::of(path)) {
            Entry::Occupied(first) => {
                let got = format!("the file of {}, {}", first.get(), quoted(&path.to_string_lossy()));
                problems.push(place.problem("file", got, "a file of its own"));
            }
            Entry::Vacant(free) => {
                free.insert(user);
            }
        }
    }
}
