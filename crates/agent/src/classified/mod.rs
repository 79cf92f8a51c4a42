//! Classes that applications say of their files, for the blocks of a volume's engine.
//!
//! ```text
//!   application: fstat, (device, inode, class) --> socket  ->  server: allowed? ->  FileClasses  <-  VolumeTags: inode of a block
//!                                                                deletions  ->  forgotten
//! ```
//!
//! A class belongs to an inode, since that is what the tags know of a block. **The file's owner and root may say it**;
//! so no user classifies another's files. The server finds the owner by opening the inode on the volume itself. It
//! takes no descriptor, since that may lead to a file system that never answers a stat or a close.
//!
//! **Bounds.** [`FILES_MAX`] files of a volume have a class at a time, [`FILES_PER_USER_MAX`] by the words of one user
//! other than root. A file that is deleted is forgotten, before its inode can be another file's for more than a moment.

mod deletions;
mod server;
mod table;

pub use server::{ClassServer, ClassifiedMount};

use plimsoll_core::Class;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use table::{ClassTable, INODE_MAX};

/// Files of a volume of which something is said at a time.
pub const FILES_MAX: usize = 1 << 16;
/// Of these, by the words of one user other than root.
pub const FILES_PER_USER_MAX: usize = FILES_MAX / 4;

const ROOT: u32 = 0;

/// What was said of a volume's files. Any thread may ask at any time.
pub struct FileClasses {
    table: ClassTable,
    /// Which user said it of which inode. Its holder is the table's writer.
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    said_by: BTreeMap<u64, u32>,
    files_of: BTreeMap<u32, usize>,
}

impl Default for FileClasses {
    fn default() -> FileClasses {
        FileClasses { table: ClassTable::new(FILES_MAX), books: Mutex::default() }
    }
}

impl FileClasses {
    /// What was said of a file; `None` if nothing was.
    pub fn class(&self, inode: u64) -> Option<Class> {
        let class = self.table.class(inode);
        (class != Class::UNCLASSIFIED).then_some(class)
    }

    /// How many files something is said of.
    pub fn len(&self) -> usize {
        self.books().said_by.len()
    }

    /// Whether nothing is said of any file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `user` says the class of a file, if it may; unclassified takes back an earlier class.
    ///
    /// # Errors
    /// `NOSPC` if too many files have a class already; `INVAL` if there are no such inodes.
    pub fn say(&self, inode: u64, class: Class, user: u32) -> Result<(), Errno> {
        if inode == 0 || inode > INODE_MAX {
            return Err(Errno::INVAL);
        }
        if class == Class::UNCLASSIFIED {
            self.forget(inode);
            return Ok(());
        }
        let mut books = self.books();
        let said_before = books.said_by.get(&inode).copied();
        let is_new_of_user = said_before != Some(user);
        let files_of_user = books.files_of.get(&user).copied().unwrap_or(0);
        let is_full = said_before.is_none() && books.said_by.len() >= FILES_MAX;
        if is_full || is_new_of_user && user != ROOT && files_of_user >= FILES_PER_USER_MAX {
            return Err(Errno::NOSPC);
        }
        if !self.table.set(inode, class) {
            return Err(Errno::NOSPC);
        }
        books.forget(inode);
        books.said_by.insert(inode, user);
        *books.files_of.entry(user).or_default() += 1;
        Ok(())
    }

    /// Nothing is said of a file any more.
    pub fn forget(&self, inode: u64) {
        let mut books = self.books();
        if books.forget(inode) {
            self.table.set(inode, Class::UNCLASSIFIED);
        }
    }

    /// Nothing is said of any file any more.
    pub fn forget_all(&self) {
        let mut books = self.books();
        for inode in std::mem::take(&mut *books).said_by.into_keys() {
            self.table.set(inode, Class::UNCLASSIFIED);
        }
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Whether something had been said of it.
    fn forget(&mut self, inode: u64) -> bool {
        let Some(user) = self.said_by.remove(&inode) else { return false };
        if let Some(files) = self.files_of.get_mut(&user) {
            *files -= 1;
            if *files == 0 {
                self.files_of.remove(&user);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: u8 = 25;

    #[test]
    fn a_file_has_the_class_that_was_said_last() {
        let classes = FileClasses::default();
        let class = |number| Class::new(number).unwrap();
        assert_eq!(classes.class(12), None);
        classes.say(12, class(INDEX), 1000).unwrap();
        classes.say(13, class(INDEX), 1000).unwrap();
        classes.say(12, class(23), ROOT).unwrap();
        assert_eq!((classes.class(12), classes.class(13), classes.len()), (Some(class(23)), Some(class(INDEX)), 2));
        classes.say(12, Class::UNCLASSIFIED, 1000).unwrap();
        assert_eq!((classes.class(12), classes.len()), (None, 1));
        classes.forget_all();
        assert!(classes.is_empty() && classes.class(13).is_none());
        assert_eq!(classes.say(0, class(INDEX), ROOT), Err(Errno::INVAL));
        assert_eq!(classes.say(INODE_MAX + 1, class(INDEX), ROOT), Err(Errno::INVAL));
    }

    /// Broken on purpose and seen red: a file that is classified again is counted again.
    /// Promise: classes-owner.
    #[test]
    fn a_user_has_a_quarter_of_the_room_and_root_the_rest() {
        let classes = FileClasses::default();
        let class = Class::new(INDEX).unwrap();
        let (quarter, all) = (FILES_PER_USER_MAX as u64, FILES_MAX as u64);
        for _ in 0..2 {
            (1..=quarter).for_each(|inode| classes.say(inode, class, 1000).unwrap());
        }
        assert_eq!(classes.say(quarter + 1, class, 1000), Err(Errno::NOSPC));
        (quarter + 1..=all).for_each(|inode| classes.say(inode, class, ROOT).unwrap());
        assert_eq!(classes.say(all + 1, class, ROOT), Err(Errno::NOSPC));
        classes.forget(1);
        classes.say(all + 1, class, 1000).unwrap();
        assert!((2..=all + 1).all(|inode| classes.class(inode) == Some(class)));
    }
}
