//! Snapshots of the map, while requests go on, so that the journal need not be longer than it is.
//!
//! ```text
//!   begin: which block of the journal is next         all pages that have changed, into the slots that do not hold
//!   commit: whatever a page says is in the journal    flush: the pages are durable
//!   superblock 0, flush, superblock 1, flush          the journal before the beginning is not needed any more
//! ```
//!
//! **The journal is paced by the map.** While the pages are written, the journal may be as far through what is left of
//! it as the snapshot is through the map. So no request finds it full: its next block waits for a few pages, and not
//! for all.
//!
//! The order of the first two lines with the third is what matters: a page may say what the journal was not yet told
//! durably, and would be ahead of the data then. When the superblock says that the page holds, it is not.

use super::bytes::{BLOCK_BYTES, Block};
use super::contents::encode_page;
use super::layout::BLOCKS_KEPT;
use super::machine::CacheStore;
use super::map::PageHead;
use super::operation::{Action, Target};
use super::slots::Page;
use super::superblock::Superblock;

/// Pages that are on their way at once.
pub(super) const PAGES: usize = 8;
/// A snapshot begins when so many parts of the journal are in use.
const JOURNAL_PARTS: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The next page to be looked at.
    Pages {
        next: u32,
    },
    /// Until so many records are durable.
    Commit {
        records: u64,
    },
    /// Until so many flushes are done.
    Flush {
        flush: u64,
    },
    Superblock {
        slot: u64,
    },
    SuperblockFlush {
        slot: u64,
        flush: u64,
    },
}

pub(super) struct Snapshot {
    phase: Phase,
    pub pages: Box<[Page]>,
    pub superblock: Page,
    /// Buffers that no operation writes.
    vacant: Vec<usize>,
    sequence: u64,
    previous: u32,
    /// What the superblock is going to say.
    next: Option<Superblock>,
    /// What reads have brought in was recorded for the last snapshot.
    pub all_recorded: bool,
}

impl Snapshot {
    pub fn new() -> Snapshot {
        let page = Page([0; BLOCK_BYTES]);
        Snapshot {
            phase: Phase::Idle,
            pages: vec![page.clone(); PAGES].into(),
            superblock: page,
            vacant: (0..PAGES).collect(),
            sequence: 0,
            previous: 0,
            next: None,
            all_recorded: false,
        }
    }
}

impl CacheStore {
    /// Whether the map says everything, so that a start reads nothing of the journal.
    pub(super) fn is_snapshot_complete(&self) -> bool {
        let journal = &self.journal;
        let is_empty = journal.sequence == journal.start && journal.appended() == journal.committed();
        self.snapshot.phase == Phase::Idle && is_empty && self.pages.changed() == 0
    }

    /// The number of the first block of the journal that may not be written yet.
    pub(super) fn journal_end(&self) -> u64 {
        let layout = &self.superblock.layout;
        let all = self.journal.start + u64::from(layout.journal_blocks);
        // The last blocks are kept for the end of a snapshot, which makes room.
        let end = all - BLOCKS_KEPT;
        match self.snapshot.phase {
            Phase::Commit { .. } => all,
            Phase::Pages { next } => {
                let from = self.snapshot.sequence;
                from + end.saturating_sub(from) * u64::from(next) / u64::from(layout.map_pages())
            }
            _ => end,
        }
    }

    fn begins_snapshot(&self) -> bool {
        let journal = &self.journal;
        let is_closing = self.is_ready_to_close();
        let is_last = is_closing && journal.appended() == journal.committed() && !self.is_snapshot_complete();
        let ring = u64::from(self.superblock.layout.journal_blocks);
        is_last || journal.sequence - journal.start >= ring / JOURNAL_PARTS
    }

    /// Goes on with the snapshot, or begins one if it is time.
    pub(super) fn drive_snapshot(&mut self) {
        if self.has_failed {
            return;
        }
        if self.is_closing {
            self.journal.want_all();
            self.record_what_reads_brought();
        }
        if self.snapshot.phase == Phase::Idle && self.begins_snapshot() {
            (self.snapshot.sequence, self.snapshot.previous) = (self.journal.sequence, self.journal.previous);
            self.snapshot.phase = Phase::Pages { next: 0 };
        }
        if let Phase::Pages { next } = self.snapshot.phase {
            self.write_pages(next);
        }
        if let Phase::Commit { records } = self.snapshot.phase
            && self.journal.committed() >= records
        {
            self.snapshot.phase = Phase::Flush { flush: self.journal.want_flush() };
        }
        match self.snapshot.phase {
            Phase::Flush { flush } if self.journal.flushes_done() >= flush => {
                let next = Superblock {
                    generation: self.superblock.generation + 1,
                    journal_sequence: self.snapshot.sequence,
                    journal_previous: self.snapshot.previous,
                    map_digest: self.pages.digest(),
                    ..self.superblock
                };
                self.snapshot.superblock.0 = next.encode();
                self.snapshot.next = Some(next);
                self.write_superblock(0);
            }
            Phase::SuperblockFlush { slot: 0, flush } if self.journal.flushes_done() >= flush => {
                self.write_superblock(1)
            }
            Phase::SuperblockFlush { flush, .. } if self.journal.flushes_done() >= flush => {
                self.superblock = self.snapshot.next.take().expect("one was written");
                self.journal.start = self.superblock.journal_sequence;
                self.counters.snapshots += 1;
                self.snapshot.phase = Phase::Idle;
                // In a shutdown, the next snapshot may be due: for the records that the journal got meanwhile.
                self.drive_snapshot();
            }
            _ => {}
        }
    }

    fn write_pages(&mut self, mut next: u32) {
        let pages = self.superblock.layout.map_pages();
        while !self.snapshot.vacant.is_empty() && next < pages {
            let Some(page) = self.pages.take_changed(next) else {
                next = pages;
                break;
            };
            next = page + 1;
            let at = self.snapshot.vacant.pop().expect("there is one");
            let generation = self.superblock.generation + 1;
            let head = PageHead { generation, page, sequence: self.journal.sequence };
            let image: &mut Block = &mut self.snapshot.pages[at].0;
            encode_page(&self.cache, &self.marks, &self.superblock.uuid, head, image);
            let block = self.pages.next_block(&self.superblock.layout, page);
            let slot = self.pages.next_slot(page);
            self.pages.set_valid(page, generation, slot);
            self.own_operation(Self::PAGES + at as u32, Target::Cache, Action::Write, block);
        }
        self.snapshot.phase = Phase::Pages { next };
        if next == pages && self.snapshot.vacant.len() == PAGES {
            let records = self.journal.appended();
            self.journal.want(records);
            self.snapshot.phase = Phase::Commit { records };
        }
    }

    pub(super) fn page_written(&mut self, at: usize, has_succeeded: bool) {
        self.snapshot.vacant.push(at);
        if !has_succeeded {
            self.fail();
        }
    }

    fn write_superblock(&mut self, slot: u64) {
        self.snapshot.phase = Phase::Superblock { slot };
        self.own_operation(Self::SUPERBLOCK, Target::Cache, Action::Write, slot);
    }

    pub(super) fn superblock_written(&mut self, has_succeeded: bool) {
        if !has_succeeded {
            return self.fail();
        }
        let Phase::Superblock { slot } = self.snapshot.phase else { unreachable!("no superblock was being written") };
        self.snapshot.phase = Phase::SuperblockFlush { slot, flush: self.journal.want_flush() };
    }
}
