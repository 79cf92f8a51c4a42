//! Notes in extended attributes of regular files: of a store, and of the file beneath a loop device.

use super::format::{Note, OnStore, decode_on_store, hex, unreadable};
use crate::backend::{Backing, VolumeConfig};
use crate::occupied::beneath::file_beneath;
use crate::store_identity::store_of;
use plimsoll_linux::files::open_regular;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Most bytes of a note in an attribute.
pub(super) const ATTRIBUTE_BYTES_MAX: usize = 4096;
/// Most bytes of the names of a file's attributes (XATTR_LIST_MAX).
const ATTRIBUTE_NAMES_BYTES_MAX: usize = 65_536;

/// An attribute of a regular file in which a note lies.
pub(super) struct Attribute {
    pub(super) file: PathBuf,
    pub(super) name: String,
    /// Whether it is this volume's, and not that of another one with the same bytes.
    pub(super) is_own: bool,
    /// Whether the note is of exactly these bytes, and not of a larger part of the file or of another file.
    pub(super) is_exact: bool,
}

/// The attributes that may have a note of a volume: its own one first, if there is one.
pub(super) fn attributes<N: Note>(volume: &VolumeConfig) -> io::Result<Vec<Attribute>> {
    let Backing::File { path, .. } = &volume.backing else { return Ok(Vec::new()) };
    let of_file = format!("user.plimsoll.{}", N::ABOUT);
    let of_loops = format!("{of_file}.from-");
    let beneath = file_beneath(path);
    let of = |file: &Path, name: String, is_own, is_exact| Attribute { file: file.to_owned(), name, is_own, is_exact };
    Ok(match beneath {
        _ if !N::LIES_ON_STORE => Vec::new(),
        Some((file, extent)) => {
            let of_loop = of(&file, format!("{of_loops}{}", extent.begin), true, true);
            vec![of_loop, of(&file, of_file, false, extent.begin == 0)]
        }
        None if path.is_file() => {
            let mut found = vec![of(path, of_file, true, true)];
            let names = attribute_names(path)?.into_iter().filter(|name| name.starts_with(&of_loops));
            found.extend(names.map(|name| {
                let is_exact = name.ends_with(".from-0");
                of(path, name, false, is_exact)
            }));
            found
        }
        None => Vec::new(),
    })
}

/// Names of all attributes of a file that this user may see.
fn attribute_names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![0_u8; ATTRIBUTE_NAMES_BYTES_MAX];
    let length = match rustix::fs::listxattr(path, &mut names[..]) {
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return Ok(Vec::new()),
        length => length?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    Ok(names.filter_map(|name| std::str::from_utf8(name).ok()).map(str::to_owned).collect())
}

/// The note in an attribute, and whether it is of this file. A copied file, or one moved to another file system, is
/// another file.
pub(super) fn read_attribute<N: Note>(attribute: &Attribute) -> io::Result<Option<(N, bool)>> {
    let Attribute { file, name, .. } = attribute;
    let place = format!("the attribute {name} of {}", file.display());
    let mut bytes = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = match rustix::fs::getxattr(file, name, &mut bytes[..]) {
        // Not there; or the file system has none, or this user may not see them.
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => return Ok(None),
        length => length.map_err(|errno| unreadable::<N>(&place, errno.into()))?,
    };
    let OnStore { store, note } = decode_on_store(&place, &bytes[..length])?;
    Ok(Some((note, store == hex(&store_of(file)?))))
}

/// Puts the note beside the store, durably, where there is a place for it.
pub(super) fn put_on_store<N: Note>(attribute: &Attribute, note: &N, volume: &str) -> io::Result<()> {
    let Attribute { file, name, .. } = attribute;
    let bytes = serde_json::to_vec(&OnStore { store: hex(&store_of(file)?), note })?;
    match rustix::fs::setxattr(file, name, &bytes, XattrFlags::empty()) {
        Ok(()) => open_regular(file)?.sync_all(),
        Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::RANGE) => {
            tracing::info!(volume, "its file has no place for a note: it stands in the notes directory only");
            // What stands there may say something else, and would hold.
            remove_from_store(attribute)
        }
        Err(errno) => Err(errno.into()),
    }
}

pub(super) fn remove_from_store(attribute: &Attribute) -> io::Result<()> {
    match rustix::fs::removexattr(&attribute.file, &attribute.name) {
        Ok(()) => open_regular(&attribute.file)?.sync_all(),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
