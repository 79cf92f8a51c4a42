//! Operations that the host has not taken yet, and their numbers.
//!
//! An operation of a slot has the slot's number: a slot has one at a time. Above the slots come the operations of the
//! cache's own, each kind of which is under way once at the most.

use super::bytes::BLOCK_BYTES;
use super::operation::{Action, Operation, Target};
use std::collections::VecDeque;

/// Pages of the map that are on their way at once.
pub(super) const PAGES: usize = 8;

/// What an operation of the cache's own is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// The next block of the journal.
    Journal,
    /// A flush of the fast device.
    CacheFlush,
    /// A flush of the store.
    StoreFlush,
    Superblock,
    /// A page of the map, in the buffer of that number.
    Page(usize),
}

impl Own {
    /// Numbers above those of the slots.
    pub const COUNT: u32 = 4 + PAGES as u32;

    fn number(self) -> u32 {
        match self {
            Own::Journal => 0,
            Own::CacheFlush => 1,
            Own::StoreFlush => 2,
            Own::Superblock => 3,
            Own::Page(at) => 4 + at as u32,
        }
    }

    fn numbered(number: u32) -> Own {
        match number {
            0 => Own::Journal,
            1 => Own::CacheFlush,
            2 => Own::StoreFlush,
            3 => Own::Superblock,
            page => Own::Page(page as usize - 4),
        }
    }
}

/// An operation of the cache's own, before it has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnOperation {
    pub own: Own,
    pub target: Target,
    pub action: Action,
    /// The block that is written.
    pub block: u64,
}

impl OwnOperation {
    pub fn flush(own: Own, target: Target) -> OwnOperation {
        OwnOperation { own, target, action: Action::Flush, block: 0 }
    }

    /// A write of `block` of the fast device.
    pub fn write(own: Own, block: u64) -> OwnOperation {
        OwnOperation { own, target: Target::Cache, action: Action::Write, block }
    }
}

/// The operations, the next one first.
pub(super) struct Outbox {
    operations: VecDeque<Operation>,
    /// Slots, above which the cache's own numbers begin.
    slots: u32,
}

impl Outbox {
    /// Allocates for all operations that there can be at once.
    pub fn new(slots: u32) -> Outbox {
        Outbox { operations: VecDeque::with_capacity(slots as usize * 2), slots }
    }

    /// Numbers of operations are below this.
    pub fn operations_max(&self) -> u32 {
        self.slots + Own::COUNT
    }

    /// What the cache's own operation `id` is for; the slot of another one.
    pub fn owner(&self, id: u32) -> Result<Own, usize> {
        id.checked_sub(self.slots).map_or(Err(id as usize), |own| Ok(Own::numbered(own)))
    }

    pub fn next(&mut self) -> Option<Operation> {
        self.operations.pop_front()
    }

    /// Hands out an operation of the cache's own.
    pub fn push_own(&mut self, operation: OwnOperation) {
        let OwnOperation { own, target, action, block } = operation;
        let length_bytes = if action == Action::Write { BLOCK_BYTES as u32 } else { 0 };
        let (id, offset_bytes) = (self.slots + own.number(), block * BLOCK_BYTES as u64);
        self.operations.push_back(Operation { id, target, action, offset_bytes, length_bytes });
    }

    /// Hands out the operation of slot `at`.
    pub fn push(&mut self, at: usize, target: Target, action: Action, offset_bytes: u64, length_bytes: u32) {
        self.operations.push_back(Operation { id: at as u32, target, action, offset_bytes, length_bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: the numbers of pages begin at that of the superblock, red.
    #[test]
    fn numbers_lead_back_to_what_operations_are_for() {
        let all = [Own::Journal, Own::CacheFlush, Own::StoreFlush, Own::Superblock];
        let all: Vec<Own> = all.into_iter().chain((0..PAGES).map(Own::Page)).collect();
        let mut outbox = Outbox::new(5);
        all.iter().for_each(|&own| outbox.push_own(OwnOperation::write(own, 3)));
        for (at, &own) in all.iter().enumerate() {
            let operation = outbox.next().unwrap();
            assert_eq!((operation.id, outbox.owner(operation.id)), (5 + at as u32, Ok(own)));
            assert_eq!((operation.offset_bytes, operation.length_bytes), (3 * 4096, 4096));
            assert!(operation.id < outbox.operations_max());
        }
        assert_eq!((outbox.owner(4), outbox.next()), (Err(4), None));
        outbox.push(4, Target::Store, Action::Trim, 8192, 4096);
        outbox.push_own(OwnOperation::flush(Own::StoreFlush, Target::Store));
        let ids = [(); 2].map(|()| outbox.next().map(|operation| (operation.id, operation.length_bytes)));
        assert_eq!(ids, [Some((4, 4096)), Some((7, 0))]);
    }
}
