//! Calls by path: they find, make, rename and remove files and directories; and sync.

use super::Process;
use crate::cache::{InodeNumber, PageRange};
use crate::calls::file::File;
use crate::calls::names::NameError;
use crate::fs::{Inode, InodeKind};
use plimsoll_core::{CallKind, Class};
use std::rc::Rc;

impl Process {
    /// Opens a file or directory that exists.
    ///
    /// # Errors
    /// If it does not.
    pub async fn open(&self, path: &str) -> Result<File, NameError> {
        let (entry, inode) = self.machine().names.borrow().find_existing(path)?;
        self.compute(self.machine().config.cpu.call).await;
        self.file_system().lookup(self.machine(), self.actor(), &entry.directory, &inode).await;
        Ok(File::new(self.clone(), inode))
    }

    /// Makes a file and opens it.
    ///
    /// # Errors
    /// If something has this name, or the directory does not exist.
    pub async fn create(&self, path: &str) -> Result<File, NameError> {
        let inode = self.make(path, InodeKind::File, CallKind::Create).await?;
        Ok(File::new(self.clone(), inode))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn mkdir(&self, path: &str) -> Result<(), NameError> {
        self.make(path, InodeKind::Directory, CallKind::MakeDirectory).await.map(|_| ())
    }

    async fn make(&self, path: &str, kind: InodeKind, call: CallKind) -> Result<Rc<Inode>, NameError> {
        let machine = self.machine();
        let entry = machine.names.borrow().find(path)?;
        let inode = machine.names.borrow_mut().add(kind);
        let call = self.enter(call, &inode, 0, 0).await;
        entry.directory.lock.acquire(&machine.executor).await;
        let is_taken = machine.names.borrow().find(path).is_ok_and(|entry| entry.inode.is_some());
        if !is_taken {
            machine.names.borrow_mut().link(entry.directory.number, &entry.name, inode.number);
            self.file_system().create(machine, self.actor(), &entry.directory, &inode).await;
        }
        entry.directory.lock.release(&machine.executor);
        self.leave(&call, 0);
        if is_taken {
            machine.names.borrow_mut().forget(inode.number);
            return Err(NameError::Exists { path: path.to_owned() });
        }
        Ok(inode)
    }

    /// Deletes a file, or a directory that is empty.
    ///
    /// # Errors
    /// If there is none, or it is a directory that is not empty.
    pub async fn unlink(&self, path: &str) -> Result<(), NameError> {
        let machine = self.machine();
        let (entry, inode) = machine.names.borrow().find_existing(path)?;
        if !machine.names.borrow().is_empty(inode.number) {
            return Err(NameError::Directory { path: path.to_owned(), problem: " that is not empty" });
        }
        let call = self.enter(CallKind::Unlink, &inode, 0, 0).await;
        entry.directory.lock.acquire(&machine.executor).await;
        let is_mine = machine
            .names
            .borrow()
            .find(path)
            .ok()
            .and_then(|now| now.inode)
            .is_some_and(|now| now.number == inode.number);
        if is_mine {
            machine.names.borrow_mut().unlink(entry.directory.number, &entry.name);
            self.delete(&entry.directory, &inode).await;
        }
        entry.directory.lock.release(&machine.executor);
        self.leave(&call, 0);
        if is_mine { Ok(()) } else { Err(NameError::Missing { path: path.to_owned() }) }
    }

    async fn delete(&self, directory: &Inode, inode: &Inode) {
        let machine = self.machine();
        inode.lock.acquire(&machine.executor).await;
        inode.set_deleted();
        machine.drop_pages(inode, 0).await;
        self.file_system().unlink(machine, self.actor(), directory, inode).await;
        machine.forget_inode(inode);
        inode.lock.release(&machine.executor);
    }

    /// Gives a file or directory another name; a file that has that name is replaced.
    ///
    /// # Errors
    /// If there is nothing to rename, or a directory would be replaced.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), NameError> {
        let machine = self.machine();
        let (source, inode) = machine.names.borrow().find_existing(from)?;
        let target = machine.names.borrow().find(to)?;
        if target.inode.as_ref().is_some_and(|replaced| replaced.kind == InodeKind::Directory) {
            return Err(NameError::Directory { path: to.to_owned(), problem: ", which is not replaced" });
        }
        let call = self.enter(CallKind::Rename, &inode, 0, 0).await;
        // By number, as Linux does, so that two renames do not wait for each other.
        let mut directories = [&source.directory, &target.directory];
        directories.sort_by_key(|directory| directory.number);
        directories[0].lock.acquire(&machine.executor).await;
        let is_across = directories[0].number != directories[1].number;
        if is_across {
            directories[1].lock.acquire(&machine.executor).await;
        }
        let replaced = target.inode.filter(|replaced| replaced.number != inode.number && !replaced.is_deleted());
        machine.names.borrow_mut().unlink(source.directory.number, &source.name);
        machine.names.borrow_mut().link(target.directory.number, &target.name, inode.number);
        self.file_system().rename(machine, self.actor(), &source.directory, &target.directory, &inode).await;
        if let Some(replaced) = replaced {
            self.delete(&target.directory, &replaced).await;
        }
        if is_across {
            directories[1].lock.release(&machine.executor);
        }
        directories[0].lock.release(&machine.executor);
        self.leave(&call, 0);
        Ok(())
    }

    /// What is in a directory, by name, each looked up (as `find` does with readdir and stat).
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn list(&self, path: &str) -> Result<Vec<String>, NameError> {
        let machine = self.machine();
        let directory = match path {
            "/" => machine.inode(InodeNumber::ROOT),
            path => machine.names.borrow().find_existing(path)?.1,
        };
        let entries = machine.names.borrow().list(directory.number);
        let mut names = Vec::with_capacity(entries.len());
        for (name, inode) in entries {
            self.compute(machine.config.cpu.call).await;
            self.file_system().lookup(machine, self.actor(), &directory, &inode).await;
            names.push(name);
        }
        Ok(names)
    }

    /// The names in a directory and what each is, read from the directory's own blocks alone (readdir).
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn read_names(&self, path: &str) -> Result<Vec<(String, InodeKind)>, NameError> {
        let machine = self.machine();
        let directory = match path {
            "/" => machine.inode(InodeNumber::ROOT),
            path => machine.names.borrow().find_existing(path)?.1,
        };
        self.file_system().read_directory(machine, self.actor(), &directory).await;
        let entries = machine.names.borrow().list(directory.number);
        self.compute(machine.config.cpu.call).await;
        Ok(entries.into_iter().map(|(name, inode)| (name, inode.kind)).collect())
    }

    /// Reads blocks of the device itself, past the file system: what a checker does. They are unclassified then
    /// (Differentiated Storage Services, section 4.2.1).
    pub async fn read_device(&self, pages: PageRange) {
        self.compute(self.machine().config.cpu.call).await;
        self.machine().read_blocks(self.actor(), pages, Class::UNCLASSIFIED).await;
        self.compute(self.machine().config.cpu.page_read * pages.count).await;
    }

    /// Makes everything durable that any process has written.
    pub async fn sync(&self) {
        let machine = self.machine();
        machine.write_all(self.actor()).await;
        self.file_system().sync_all(machine, self.actor()).await;
    }
}
