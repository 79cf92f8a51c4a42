//! Names: the tree of directories, and inodes by number.
//!
//! Paths are absolute and plain: `/mail/inbox/17`. Which blocks a directory takes is the file system's business; here
//! is only what the kernel's cache of names knows, which always knows everything.

use crate::cache::InodeNumber;
use crate::fs::{Inode, InodeKind};
use std::collections::BTreeMap;
use std::rc::Rc;
use thiserror::Error;

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Nothing has this name.
    #[error("{path}: there is no such file or directory")]
    Missing {
        /// The path.
        path: String,
    },
    /// Something has this name already.
    #[error("{path}: exists already")]
    Exists {
        /// The path.
        path: String,
    },
    /// The last part before the name is not a directory, or the path is not absolute.
    #[error("{path}: not in a directory, allowed are absolute paths such as \"/mail/17\"")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// A directory that is not empty, or a directory where a file is needed.
    #[error("{path}: is a directory{problem}")]
    Directory {
        /// The path.
        path: String,
        /// What about it.
        problem: &'static str,
    },
}

/// A name in a directory.
pub(crate) struct Entry {
    pub(crate) directory: Rc<Inode>,
    pub(crate) name: String,
    pub(crate) inode: Option<Rc<Inode>>,
}

/// Inodes and their names.
pub(crate) struct Names {
    inodes: Vec<Option<Rc<Inode>>>,
    entries: BTreeMap<(InodeNumber, String), InodeNumber>,
}

impl Names {
    /// Without any; the first two that are added are the device and the root.
    pub(crate) fn new() -> Names {
        Names { inodes: Vec::new(), entries: BTreeMap::new() }
    }

    pub(crate) fn inode(&self, number: InodeNumber) -> Rc<Inode> {
        self.inodes[number.0 as usize].clone().expect("an inode that exists")
    }

    /// An inode that may have been deleted.
    pub(crate) fn get(&self, number: InodeNumber) -> Option<Rc<Inode>> {
        self.inodes.get(number.0 as usize)?.clone()
    }

    /// Every inode, by number.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<Inode>> {
        self.inodes.iter().flatten()
    }

    /// Makes an inode without a name.
    pub(crate) fn add(&mut self, kind: InodeKind) -> Rc<Inode> {
        let inode = Rc::new(Inode::new(InodeNumber(self.inodes.len() as u32), kind));
        self.inodes.push(Some(inode.clone()));
        inode
    }

    /// What `path` means.
    pub(crate) fn find(&self, path: &str) -> Result<Entry, NameError> {
        let not_a_directory = || NameError::NotADirectory { path: path.to_owned() };
        let (parent, name) = path.rsplit_once('/').ok_or_else(not_a_directory)?;
        if name.is_empty() {
            return Err(not_a_directory());
        }
        let mut directory = InodeNumber::ROOT;
        for part in parent.split('/').skip(1) {
            directory = *self.entries.get(&(directory, part.to_owned())).ok_or_else(not_a_directory)?;
        }
        let directory = self.inode(directory);
        if directory.kind != InodeKind::Directory || !path.starts_with('/') {
            return Err(not_a_directory());
        }
        let key = (directory.number, name.to_owned());
        let inode = self.entries.get(&key).map(|&number| self.inode(number));
        Ok(Entry { directory, name: key.1, inode })
    }

    /// What `path` means, if it exists.
    pub(crate) fn find_existing(&self, path: &str) -> Result<(Entry, Rc<Inode>), NameError> {
        let entry = self.find(path)?;
        let inode = entry.inode.clone().ok_or_else(|| NameError::Missing { path: path.to_owned() })?;
        Ok((entry, inode))
    }

    pub(crate) fn link(&mut self, directory: InodeNumber, name: &str, inode: InodeNumber) {
        self.entries.insert((directory, name.to_owned()), inode);
    }

    pub(crate) fn unlink(&mut self, directory: InodeNumber, name: &str) {
        self.entries.remove(&(directory, name.to_owned()));
    }

    /// Forgets an inode without a name, when nothing of it is in memory any more.
    pub(crate) fn forget(&mut self, inode: InodeNumber) {
        self.inodes[inode.0 as usize] = None;
    }

    pub(crate) fn is_empty(&self, directory: InodeNumber) -> bool {
        self.entries.range((directory, String::new())..).next().is_none_or(|((parent, _), _)| *parent != directory)
    }

    /// The inodes in a directory, by name.
    pub(crate) fn list(&self, directory: InodeNumber) -> Vec<(String, Rc<Inode>)> {
        let entries = self.entries.range((directory, String::new())..);
        entries
            .take_while(|((parent, _), _)| *parent == directory)
            .map(|((_, name), &number)| (name.clone(), self.inode(number)))
            .collect()
    }
}
