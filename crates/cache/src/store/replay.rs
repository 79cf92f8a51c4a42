//! The journal at a start: which of its blocks follow one another, and their records.
//!
//! **The end and damage.** A block is written only when the one before it is durable, so behind the end there is no
//! newer one. If there is, the end is damage. The blocks *behind the damage* are then a run of their own, up to the
//! newest block. Each of its blocks proves the one before it. Its records need no earlier record: each names its block
//! and its unit, and what became of them later is recorded later.

use super::blocks::Blocks;
use super::bytes::{BLOCK_BYTES, Block};
use super::error::DeviceError;
use super::format::PAGES_AT_ONCE;
use super::journal::{self, Head, RECORDS, Record};
use super::reading::Unreadable;
use super::superblock::Superblock;

/// Between two blocks of the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalPosition {
    /// The number of the next one.
    pub sequence: u64,
    /// The checksum of the one before it.
    pub previous: u32,
}

/// Blocks that follow one another.
pub(super) struct Run {
    pub end: JournalPosition,
    pub blocks: u64,
    pub records: u64,
}

/// The journal's blocks as they are on the device.
pub(super) struct Ring {
    blocks: Vec<u8>,
    uuid: [u8; 16],
    start: JournalPosition,
    newest: u64,
}

impl Ring {
    pub fn read(
        device: &mut dyn Blocks,
        superblock: &Superblock,
        unreadable: &mut Unreadable,
    ) -> Result<Ring, DeviceError> {
        let layout = &superblock.layout;
        let count = layout.journal_blocks as usize;
        let mut blocks = vec![0; count * BLOCK_BYTES];
        for first in (0..count).step_by(PAGES_AT_ONCE) {
            let last = count.min(first + PAGES_AT_ONCE);
            let into = &mut blocks[first * BLOCK_BYTES..last * BLOCK_BYTES];
            unreadable.read(device, layout.journal_block(first as u64), into)?;
        }
        let start = JournalPosition { sequence: superblock.journal_sequence, previous: superblock.journal_previous };
        let mut ring = Ring { blocks, uuid: superblock.uuid, start, newest: 0 };
        let heads = (0..count).filter_map(|at| journal::head(ring.block(at), &ring.uuid));
        // No journal gets further than that: such a block is none of it, and the next one's number must fit a
        // superblock.
        ring.newest = heads.map(|head| head.sequence).filter(|&sequence| sequence < 1 << 62).max().unwrap_or(0);
        // An unreadable block behind the newest one may be newer.
        let is_unreadable = |sequence| unreadable.contains(layout.journal_block(sequence));
        let next = (ring.newest + 1).max(start.sequence);
        let behind = (next..start.sequence + ring.count()).take_while(|&sequence| is_unreadable(sequence));
        ring.newest = behind.last().unwrap_or(ring.newest);
        Ok(ring)
    }

    fn count(&self) -> u64 {
        (self.blocks.len() / BLOCK_BYTES) as u64
    }

    fn block(&self, at: usize) -> &Block {
        self.blocks[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].try_into().expect("a block")
    }

    fn in_place_of(&self, sequence: u64) -> &Block {
        self.block((sequence % self.count()) as usize)
    }

    /// The head of the block with that number, if it is there and whole.
    fn head(&self, sequence: u64) -> Option<Head> {
        journal::head(self.in_place_of(sequence), &self.uuid).filter(|head| head.sequence == sequence)
    }

    /// The first block that is newer than the map.
    pub fn start(&self) -> JournalPosition {
        self.start
    }

    /// Hands the records of each block in turn to `apply`, from `start` on, as long as each follows the block before.
    pub fn follow(&self, start: JournalPosition, mut apply: impl FnMut(&[Record])) -> Run {
        let mut records = Vec::with_capacity(RECORDS);
        let mut run = Run { end: start, blocks: 0, records: 0 };
        while let Some(head) = self.head(run.end.sequence).filter(|head| head.previous == run.end.previous) {
            records.clear();
            records.extend(journal::records(self.in_place_of(head.sequence), &head));
            apply(&records);
            run.records += records.len() as u64;
            run.blocks += 1;
            run.end = JournalPosition { sequence: head.sequence + 1, previous: head.checksum };
        }
        run
    }

    /// Blocks from `end` up to the newest: none, if `end` is the journal's.
    pub fn blocks_from(&self, end: &JournalPosition) -> u64 {
        (self.newest + 1).saturating_sub(end.sequence)
    }

    /// The position at which the proven blocks behind the damage at `end` begin. Nothing is proven if the block at
    /// `end` is whole but follows another one, if the newest block cannot be read, or if it has a number that the ring
    /// has no room for behind the map. Then these are blocks of another history of this cache, and it is unknown which
    /// one is true.
    pub fn behind(&self, end: &JournalPosition) -> Option<JournalPosition> {
        if self.newest >= self.start.sequence + self.count() {
            return None;
        }
        let mut first = self.head(self.newest)?;
        while first.sequence > end.sequence
            && let Some(before) = self.head(first.sequence - 1)
            && before.checksum == first.previous
        {
            first = before;
        }
        (first.sequence > end.sequence)
            .then_some(JournalPosition { sequence: first.sequence, previous: first.previous })
    }
}
