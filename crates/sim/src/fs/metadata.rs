//! Metadata blocks: pages of [`InodeNumber::DEVICE`], for file systems to read, pin, dirty and write.

use super::{Actor, class_of};
use crate::block::{Bio, BioEnd, Plug};
use crate::cache::{InodeNumber, PAGE_BYTES, PageRange, PageSpan, frames};
use crate::executor::wait::Group;
use crate::machine::Machine;
use plimsoll_core::{CauseSet, Class, Operation};

impl Machine {
    /// Brings a metadata block into memory and waits for it; the reader's session waits, its causes pay.
    pub async fn read_block(&self, actor: &Actor, page: u64) {
        loop {
            let flags = self.cache.borrow_mut().touch(InodeNumber::DEVICE, page);
            match flags {
                Some(flags) if flags & frames::LOCKED == 0 => return,
                Some(_) => self.wait_page(InodeNumber::DEVICE, page).await,
                None => {
                    self.reserve_memory(1).await;
                    let is_absent = self.cache.borrow().flags(InodeNumber::DEVICE, page).is_none();
                    if is_absent {
                        self.cache.borrow_mut().insert(InodeNumber::DEVICE, page, frames::LOCKED);
                        let pages = PageRange { first: page, count: 1 };
                        self.submit(self.block_bio(actor, Operation::Read, pages, true, None)).await;
                    }
                }
            }
        }
    }

    /// Brings blocks of the device into memory, those that are not there in as few requests as possible, and waits for
    /// all.
    pub async fn read_blocks(&self, actor: &Actor, pages: PageRange, class: Class) {
        let (mut plug, group) = (Plug::default(), Group::default());
        self.reserve_memory(pages.count).await;
        for page in pages.first..pages.end() {
            let flags = self.cache.borrow_mut().touch(InodeNumber::DEVICE, page);
            if flags.is_none() {
                self.cache.borrow_mut().insert(InodeNumber::DEVICE, page, frames::LOCKED);
                let pages = PageRange { first: page, count: 1 };
                group.add();
                let bio = self.block_bio(actor, Operation::Read, pages, true, Some(group.clone()));
                plug.add(Bio { class, ..bio });
            }
        }
        self.unplug(&mut plug).await;
        group.wait(&self.executor).await;
        let is_locked =
            |page| self.cache.borrow().flags(InodeNumber::DEVICE, page).is_some_and(|f| f & frames::LOCKED != 0);
        for page in pages.first..pages.end() {
            while is_locked(page) {
                self.wait_page(InodeNumber::DEVICE, page).await;
            }
        }
    }

    /// Puts a metadata block into memory without reading it: it is new, and whatever the device has is not needed.
    pub async fn create_block(&self, page: u64) {
        self.reserve_memory(1).await;
        let mut cache = self.cache.borrow_mut();
        if cache.flags(InodeNumber::DEVICE, page).is_none() {
            cache.insert(InodeNumber::DEVICE, page, 0);
        }
    }

    /// Keeps a block that is in memory there, or lets it go again.
    pub fn set_block_pinned(&self, page: u64, is_pinned: bool) {
        self.cache.borrow_mut().set_pinned(InodeNumber::DEVICE, page, is_pinned);
    }

    /// Tells the scheduler that a metadata block was changed for `causes`, before it is dirty for the flusher. A
    /// journal does so when a block joins a transaction. `previous` are the causes that had joined with it before.
    pub fn announce_block(&self, page: u64, causes: &CauseSet, previous: &CauseSet) {
        self.announce_dirtied(InodeNumber::DEVICE, PageRange { first: page, count: 1 }, causes, previous.clone());
    }

    /// Takes a dirty block away from the flusher, because it changes again and must not be written before that is
    /// committed. Answers the causes that had dirtied it.
    pub fn withdraw_block(&self, page: u64) -> CauseSet {
        let mut cache = self.cache.borrow_mut();
        let causes = cache.withdraw(InodeNumber::DEVICE, page);
        cache.causes.set(causes).clone()
    }

    /// Tells the scheduler that a metadata block, changed for `causes`, will not be written.
    pub fn announce_block_freed(&self, page: u64, causes: &CauseSet) {
        if !causes.is_empty() {
            self.announce_freed(InodeNumber::DEVICE, PageRange { first: page, count: 1 }, causes);
        }
    }

    /// Hands a block in memory to the flusher, dirty for `causes`, without telling the scheduler again: what a journal
    /// does after the commit.
    pub fn dirty_block(&self, page: u64, causes: &CauseSet) {
        let pages = PageRange { first: page, count: 1 };
        let mut cache = self.cache.borrow_mut();
        let causes = cache.causes.number(causes);
        cache.dirty_pages(InodeNumber::DEVICE, pages, causes, &mut Vec::new());
        drop(cache);
        self.note_inode_dirty(InodeNumber::DEVICE);
    }

    /// Writes those of `blocks` that are dirty, neighbours merged, and waits until the device has them (checkpoint).
    pub async fn write_blocks(&self, actor: &Actor, blocks: &[u64], is_sync: bool) {
        let (mut plug, group) = (Plug::default(), Group::default());
        for &page in blocks {
            while self.cache.borrow().flags(InodeNumber::DEVICE, page).is_some_and(|f| f & frames::WRITEBACK != 0) {
                self.wait_page(InodeNumber::DEVICE, page).await;
            }
            let pages = PageRange { first: page, count: 1 };
            let is_dirty = self.cache.borrow().flags(InodeNumber::DEVICE, page).is_some_and(|f| f & frames::DIRTY != 0);
            if is_dirty {
                let causes = self.cache.borrow_mut().begin_writeback(InodeNumber::DEVICE, pages);
                let actor = Actor::proxy(actor.session, causes);
                group.add();
                plug.add(self.block_bio(&actor, Operation::Write, pages, is_sync, Some(group.clone())));
            }
        }
        self.unplug(&mut plug).await;
        group.wait(&self.executor).await;
    }

    fn block_bio(
        &self,
        actor: &Actor,
        operation: Operation,
        pages: PageRange,
        is_sync: bool,
        group: Option<Group>,
    ) -> Bio {
        let device = self.inode(InodeNumber::DEVICE);
        let span = PageSpan { inode: InodeNumber::DEVICE, pages, causes: actor.causes.clone() };
        Bio {
            session: actor.session,
            causes: actor.causes.clone(),
            class: class_of(&*self.file_system, &device, pages.first),
            operation,
            offset: pages.first * PAGE_BYTES,
            length: (pages.count * PAGE_BYTES) as u32,
            is_sync,
            is_forced: false,
            file: Some(InodeNumber::DEVICE.file()),
            end: BioEnd::Pages(span, group),
        }
    }
}
