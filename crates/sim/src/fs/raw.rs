//! `raw`: files are places on the device, given out once, one behind the other. No metadata, no journal.
//!
//! A file lies in extents of a fixed size, which it gets as it grows. A volume manager does so, or a database on a raw
//! device. It shows what the machine does without a file system, and how little a file system needs.

use super::{Actor, Extent, FileSystem, Inode, flush_bio};
use crate::cache::{PAGE_BYTES, PageRange};
use crate::machine::Machine;
use async_trait::async_trait;
use plimsoll_core::Class;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Pages of an extent: 1 GiB, so that large files are nearly in one piece.
const EXTENT_PAGES: u64 = (1 << 30) / PAGE_BYTES;

/// Files as extents of fixed size.
pub struct Raw {
    state: RefCell<RawState>,
    extent_pages: u64,
    extents_max: u64,
}

#[derive(Default)]
struct RawState {
    /// By file and extent within the file: which extent of the device.
    extents: BTreeMap<(u32, u64), u64>,
    free: Vec<u64>,
    next: u64,
}

impl Raw {
    /// On a device of so many bytes, in extents of 1 GiB.
    pub fn new(capacity_bytes: u64) -> Raw {
        Raw::with_extents(capacity_bytes, EXTENT_PAGES)
    }

    /// In extents of so many pages.
    pub fn with_extents(capacity_bytes: u64, extent_pages: u64) -> Raw {
        let extents_max = capacity_bytes / (extent_pages * PAGE_BYTES);
        Raw { state: RefCell::default(), extent_pages, extents_max }
    }

    fn place(&self, inode: &Inode, pages: PageRange, is_allocating: bool) -> Extent {
        let mut state = self.state.borrow_mut();
        let (number, within) = (pages.first / self.extent_pages, pages.first % self.extent_pages);
        let count = pages.count.min(self.extent_pages - within);
        let key = (inode.number.0, number);
        let found = state.extents.get(&key).copied();
        let extent = match found {
            Some(extent) => extent,
            None if !is_allocating => return Extent { device_offset: None, pages: count },
            None => {
                let extent = state.free.pop().unwrap_or(state.next);
                state.next = state.next.max(extent + 1);
                assert!(extent < self.extents_max, "the device is full: all {} extents are in use", self.extents_max);
                state.extents.insert(key, extent);
                extent
            }
        };
        let device_offset = Some((extent * self.extent_pages + within) * PAGE_BYTES);
        Extent { device_offset, pages: count }
    }

    fn release(&self, inode: &Inode, first_page: u64) {
        let mut state = self.state.borrow_mut();
        let first = (inode.number.0, first_page.div_ceil(self.extent_pages));
        let gone: Vec<_> = state.extents.range(first..=(inode.number.0, u64::MAX)).map(|(&key, _)| key).collect();
        for key in gone {
            let extent = state.extents.remove(&key).expect("just found");
            state.free.push(extent);
        }
    }
}

#[async_trait(?Send)]
impl FileSystem for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    async fn create(&self, _: &Machine, _: &Actor, _: &Inode, _: &Inode) {}

    async fn lookup(&self, _: &Machine, _: &Actor, _: &Inode, _: &Inode) {}

    async fn unlink(&self, _: &Machine, _: &Actor, _: &Inode, inode: &Inode) {
        self.release(inode, 0);
    }

    async fn rename(&self, _: &Machine, _: &Actor, _: &Inode, _: &Inode, _: &Inode) {}

    async fn truncate(&self, _: &Machine, _: &Actor, inode: &Inode, bytes: u64) {
        self.release(inode, bytes.div_ceil(PAGE_BYTES));
    }

    async fn preallocate(&self, _: &Machine, _: &Actor, inode: &Inode, pages: PageRange) {
        let mut first = pages.first;
        while first < pages.end() {
            let rest = PageRange { first, count: pages.end() - first };
            first += self.place(inode, rest, true).pages;
        }
    }

    async fn before_write(&self, _: &Machine, _: &Actor, _: &Inode, _: u64, _: u64) {}

    async fn map(&self, _: &Machine, _: &Actor, inode: &Inode, pages: PageRange) -> Extent {
        self.mapped(inode, pages)
    }

    fn mapped(&self, inode: &Inode, pages: PageRange) -> Extent {
        self.place(inode, pages, false)
    }

    async fn allocate(&self, _: &Machine, _: &Actor, inode: &Inode, pages: PageRange) -> Extent {
        self.place(inode, pages, true)
    }

    async fn sync(&self, machine: &Machine, actor: &Actor, _: &Inode, _: bool) {
        self.sync_all(machine, actor).await
    }

    async fn sync_all(&self, machine: &Machine, actor: &Actor) {
        machine.perform(flush_bio(actor)).await;
    }

    fn class_of_block(&self, _page: u64) -> Class {
        Class::UNCLASSIFIED
    }
}
