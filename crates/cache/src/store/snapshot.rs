//! Snapshots of the map while requests go on, which bound the length of the journal.
//!
//! ```text
//!   begin: which block of the journal is next         all pages that have changed, into the slots that do not hold
//!   commit: whatever a page says is in the journal    flush: the pages are durable
//!   superblock 0, flush, superblock 1, flush          the journal before the beginning is not needed any more
//! ```
//!
//! **The map paces the journal.** While pages are written, the journal may have used as much of its rest as the
//! snapshot has written of the map. So no request finds it full: its next block waits for a few pages, and not for all.
//!
//! What matters is that the first two lines come before the third. A page may have a change that is not durable in the
//! journal yet, and would be ahead of the data then. When the superblock says that the page holds, it is not.

use super::bytes::{BLOCK_BYTES, Block};
use super::commit::Journal;
use super::layout::{BLOCKS_KEPT, Layout};
use super::map::PageHead;
use super::outbox::{Own, OwnOperation, PAGES};
use super::pages::Pages;
use super::slots::AlignedBlock;
use super::superblock::Superblock;

/// A snapshot begins when so many parts of the journal are in use.
const JOURNAL_PARTS: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnapshotPhase {
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
    phase: SnapshotPhase,
    pub pages: Box<[AlignedBlock]>,
    pub superblock: AlignedBlock,
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
        let page = AlignedBlock([0; BLOCK_BYTES]);
        Snapshot {
            phase: SnapshotPhase::Idle,
            pages: vec![page.clone(); PAGES].into(),
            superblock: page,
            vacant: (0..PAGES).collect(),
            sequence: 0,
            previous: 0,
            next: None,
            all_recorded: false,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.phase == SnapshotPhase::Idle
    }

    /// Whether the map says everything, so that a start reads nothing of the journal.
    pub fn is_complete(&self, journal: &Journal, pages: &Pages) -> bool {
        self.is_idle() && journal.is_empty() && pages.changed() == 0
    }

    /// Number of the first block of the journal that may not be written yet. `start` is the first that is needed.
    pub fn journal_end(&self, start: u64, layout: &Layout) -> u64 {
        let all = start + u64::from(layout.journal_blocks);
        // The last blocks are kept for the end of a snapshot, which makes room.
        let end = all - BLOCKS_KEPT;
        match self.phase {
            SnapshotPhase::Commit { .. } => all,
            SnapshotPhase::Pages { next } => {
                let from = self.sequence;
                from + end.saturating_sub(from) * u64::from(next) / u64::from(layout.map_pages())
            }
            _ => end,
        }
    }

    /// Whether so much of the journal is in use that a snapshot begins.
    pub fn is_due(journal: &Journal, layout: &Layout) -> bool {
        journal.sequence - journal.start >= u64::from(layout.journal_blocks) / JOURNAL_PARTS
    }

    /// Begins a snapshot, which replaces what the journal says so far.
    pub fn begin(&mut self, journal: &Journal) {
        (self.sequence, self.previous) = (journal.sequence, journal.previous);
        self.phase = SnapshotPhase::Pages { next: 0 };
    }

    /// Goes on with the snapshot under way. `encode` writes a page as everything is now, `hand_out` takes operations.
    /// Answers the superblock that holds, when the snapshot is done.
    pub fn go_on(
        &mut self,
        journal: &mut Journal,
        pages: &mut Pages,
        superblock: &Superblock,
        encode: impl FnMut(PageHead, &mut Block),
        mut hand_out: impl FnMut(OwnOperation),
    ) -> Option<Superblock> {
        if let SnapshotPhase::Pages { next } = self.phase {
            self.write_pages(next, journal, pages, superblock, encode, &mut hand_out);
        }
        if let SnapshotPhase::Commit { records } = self.phase
            && journal.committed() >= records
        {
            self.phase = SnapshotPhase::Flush { flush: journal.want_flush() };
        }
        match self.phase {
            SnapshotPhase::Flush { flush } if journal.flushes_done() >= flush => {
                let next = Superblock {
                    generation: superblock.generation + 1,
                    journal_sequence: self.sequence,
                    journal_previous: self.previous,
                    map_digest: pages.digest(),
                    ..*superblock
                };
                self.superblock.0 = next.encode();
                self.next = Some(next);
                hand_out(self.write_superblock(0));
            }
            SnapshotPhase::SuperblockFlush { slot: 0, flush } if journal.flushes_done() >= flush => {
                hand_out(self.write_superblock(1));
            }
            SnapshotPhase::SuperblockFlush { flush, .. } if journal.flushes_done() >= flush => {
                self.phase = SnapshotPhase::Idle;
                return Some(self.next.take().expect("one was written"));
            }
            _ => {}
        }
        None
    }

    fn write_pages(
        &mut self,
        mut next: u32,
        journal: &mut Journal,
        pages: &mut Pages,
        superblock: &Superblock,
        mut encode: impl FnMut(PageHead, &mut Block),
        hand_out: &mut impl FnMut(OwnOperation),
    ) {
        let count = superblock.layout.map_pages();
        while !self.vacant.is_empty() && next < count {
            let Some(page) = pages.take_changed(next) else {
                next = count;
                break;
            };
            next = page + 1;
            let at = self.vacant.pop().expect("there is one");
            let generation = superblock.generation + 1;
            encode(PageHead { generation, page, sequence: journal.sequence }, &mut self.pages[at].0);
            let block = pages.next_block(&superblock.layout, page);
            let slot = pages.next_slot(page);
            pages.set_valid(page, generation, slot);
            hand_out(OwnOperation::write(Own::Page(at), block));
        }
        self.phase = SnapshotPhase::Pages { next };
        if next == count && self.vacant.len() == PAGES {
            let records = journal.appended();
            journal.want(records);
            self.phase = SnapshotPhase::Commit { records };
        }
    }

    /// The page in buffer `at` was written, or could not be.
    pub fn page_ended(&mut self, at: usize) {
        self.vacant.push(at);
    }

    fn write_superblock(&mut self, slot: u64) -> OwnOperation {
        self.phase = SnapshotPhase::Superblock { slot };
        OwnOperation::write(Own::Superblock, slot)
    }

    pub fn superblock_written(&mut self, journal: &mut Journal) {
        let SnapshotPhase::Superblock { slot } = self.phase else { unreachable!("no superblock was being written") };
        self.phase = SnapshotPhase::SuperblockFlush { slot, flush: journal.want_flush() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::map::ENTRIES;
    use crate::store::operation::Target;

    /// A cache with a map of so many pages.
    fn superblock(pages: u32) -> Superblock {
        Superblock {
            uuid: [1; 16],
            store: [2; 16],
            store_blocks: 1000,
            layout: Layout { units: pages * ENTRIES as u32, journal_blocks: 64 },
            starts: 1,
            generation: 4,
            journal_sequence: 10,
            journal_previous: 0,
            map_digest: 0,
            is_ready: true,
        }
    }

    /// A snapshot, step by step, and what it is made from.
    struct Bench {
        snapshot: Snapshot,
        journal: Journal,
        pages: Pages,
        superblock: Superblock,
    }

    impl Bench {
        fn new(pages: u32, changed: &[u32]) -> Bench {
            let superblock = superblock(pages);
            let mut bench = Bench {
                snapshot: Snapshot::new(),
                journal: Journal::new(10, 42, 99, 4),
                pages: Pages::new(&superblock),
                superblock,
            };
            changed.iter().for_each(|&page| bench.pages.set_changed(page));
            bench.snapshot.begin(&bench.journal);
            bench
        }

        /// The operations of the next step, and the superblock that holds.
        fn go_on(&mut self) -> (Vec<Own>, Option<Superblock>) {
            let Bench { snapshot, journal, pages, superblock } = self;
            let (mut owns, mut heads) = (Vec::new(), Vec::new());
            let holds = snapshot.go_on(
                journal,
                pages,
                superblock,
                |head, _| heads.push((head.page, head.generation, head.sequence)),
                |operation| owns.push(operation.own),
            );
            assert!(heads.iter().all(|&(_, generation, sequence)| (generation, sequence) == (5, 42)), "{heads:?}");
            assert_eq!(heads.len(), owns.iter().filter(|own| matches!(own, Own::Page(_))).count());
            (owns, holds)
        }

        fn flush(&mut self) {
            let flush = self.journal.begin_flush(u64::MAX, &[1; 16]);
            assert_eq!(flush, Some(OwnOperation::flush(Own::CacheFlush, Target::Cache)));
            self.journal.flushed(|_| {});
            assert_eq!(self.journal.write_block(&self.superblock.layout), None);
        }
    }

    /// Planted breaks, each red: the second superblock is not written; pages that were not written count as written.
    #[test]
    fn pages_then_a_flush_then_one_superblock_after_the_other() {
        let mut bench = Bench::new(3, &[0, 2]);
        let (owns, _) = bench.go_on();
        assert_eq!(owns, [Own::Page(7), Own::Page(6)]);
        bench.snapshot.page_ended(7);
        assert_eq!(bench.go_on(), (vec![], None), "a page is on its way");
        assert_eq!(bench.journal.begin_flush(u64::MAX, &[1; 16]), None, "and no flush is for it");
        bench.snapshot.page_ended(6);
        assert_eq!(bench.go_on(), (vec![], None), "the pages wait for a flush");
        for _ in 0..2 {
            bench.flush();
            assert_eq!(bench.go_on(), (vec![Own::Superblock], None));
            bench.snapshot.superblock_written(&mut bench.journal);
            assert_eq!(bench.go_on(), (vec![], None));
        }
        bench.flush();
        let (owns, holds) = bench.go_on();
        let holds = holds.expect("the snapshot is done");
        assert_eq!((owns, holds.generation, holds.journal_sequence, holds.journal_previous), (vec![], 5, 42, 99));
        assert_eq!((holds.map_digest, bench.snapshot.is_idle()), (bench.pages.digest(), true));
    }

    /// Planted break: while pages are written, the journal may use all that is left of the ring, red.
    #[test]
    fn the_journal_goes_as_far_as_the_snapshot_is_through_the_map() {
        let changed: Vec<u32> = (0..20).collect();
        let mut bench = Bench::new(20, &changed);
        let (layout, start, end) = (bench.superblock.layout, 10, 10 + 64 - BLOCKS_KEPT);
        assert_eq!(bench.snapshot.journal_end(start, &layout), 42);
        assert_eq!(bench.go_on().0.len(), PAGES);
        assert_eq!(bench.snapshot.journal_end(start, &layout), 42 + (end - 42) * 8 / 20);
        assert_eq!(Snapshot::new().journal_end(start, &layout), end);
        assert!(Snapshot::is_due(&bench.journal, &layout));
        assert!(!Snapshot::is_due(&Journal::new(10, 41, 0, 4), &layout));
    }
}
