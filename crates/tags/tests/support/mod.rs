//! What the tests of tags share: a file system on a loop device, writers that are processes of their own, and the truth
//! about each page that they wrote.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

mod cgroup;
mod extents;
mod jobs;
mod rig;

pub use cgroup::Cgroup;
pub use jobs::{Writer, serve_as_writer};
pub use rig::{FILE_SYSTEMS, Frozen, Rig, can_run, run};

use extents::extents;
use plimsoll_core::AccountId;
use plimsoll_tags::{BLOCK_BYTES, Tag, Tags};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub fn mask(accounts: &[AccountId]) -> u64 {
    accounts.iter().map(|account| 1u64 << account.0).sum()
}

/// The accounts that really wrote each page.
#[derive(Default)]
pub struct Truth(BTreeMap<PathBuf, BTreeMap<u64, u64>>);

impl Truth {
    pub fn add(&mut self, path: &Path, pages: impl Iterator<Item = u64>, account: AccountId) {
        let file = self.0.entry(path.to_owned()).or_default();
        pages.for_each(|page| *file.entry(page).or_default() |= 1 << account.0);
    }

    /// Compares with the tag of every block that the pages are on.
    pub fn compare(&self, tags: &Tags) -> Score {
        let (table, mut score) = (tags.table(), Score::default());
        for (path, pages) in &self.0 {
            for extent in extents(path) {
                for offset in (0..extent.bytes).step_by(BLOCK_BYTES as usize) {
                    let page = (extent.logical + offset) / BLOCK_BYTES;
                    let Some(expected) = pages.get(&page) else { continue };
                    let tag = table.tag((extent.physical + offset) / BLOCK_BYTES);
                    score.enter(*expected, &tag);
                }
            }
        }
        score
    }
}

/// How well tags met the truth, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    pub exact: u64,
    /// All causes, and more.
    pub more: u64,
    /// Some of the causes, no others.
    pub fewer: u64,
    /// Others.
    pub wrong: u64,
    pub unknown: u64,
}

impl Score {
    pub fn enter(&mut self, expected: u64, tag: &Tag) {
        let counter = match tag.causes_mask {
            got if got == expected => &mut self.exact,
            0 => &mut self.unknown,
            got if got & expected == expected => &mut self.more,
            got if got & !expected == 0 => &mut self.fewer,
            _ => &mut self.wrong,
        };
        *counter += 1;
    }

    pub fn blocks(&self) -> u64 {
        self.exact + self.more + self.fewer + self.wrong + self.unknown
    }

    pub fn is_exact(&self) -> bool {
        self.exact == self.blocks() && self.exact > 0
    }
}

impl fmt::Display for Score {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Score { exact, more, fewer, wrong, unknown } = self;
        let blocks = self.blocks();
        write!(out, "{blocks} blocks: {exact} exact, {more} more, {fewer} fewer, {wrong} wrong, {unknown} unknown")
    }
}

/// The tags of everything that was written from `since_ns` to `until_ns`, by class.
pub fn written(tags: &Tags, blocks: u64, since_ns: u64, until_ns: u64) -> Vec<(u64, Tag)> {
    let table = tags.table();
    let tags = (0..blocks).map(|block| (block, table.tag(block)));
    tags.filter(|(_, tag)| tag.is_write && (since_ns..=until_ns).contains(&tag.time_ns)).collect()
}

/// Bytes of files that were written so far.
pub fn data_bytes(tags: &mut Tags) -> u64 {
    let accounts = tags.accounts();
    let of_accounts =
        accounts.list().unwrap().into_iter().map(|info| accounts.counters(info.account).unwrap().data_bytes);
    of_accounts.sum::<u64>() + accounts.unknown().unwrap().data_bytes
}

/// Repeats `body`, which needs pages to stay dirty, until the kernel wrote nothing back meanwhile: other work on
/// the machine makes it do so at any time. `false`, which is said, if it always did.
pub fn undisturbed<T>(subject: &mut T, rig: impl Fn(&mut T) -> &mut Rig, mut body: impl FnMut(&mut T)) -> bool {
    const TRIES: u32 = 30;
    for number in 0..TRIES {
        // The kernel's flusher has its fits: later ones wait longer for its rest.
        let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: i64::from(number) * 10_000_000 };
        let _ = rustix::thread::nanosleep(&pause);
        rig(subject).sync();
        let before = data_bytes(&mut rig(subject).tags);
        body(subject);
        if data_bytes(&mut rig(subject).tags) == before {
            return true;
        }
    }
    println!("not run: the kernel wrote back what should have stayed dirty, {TRIES} times");
    false
}

pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
