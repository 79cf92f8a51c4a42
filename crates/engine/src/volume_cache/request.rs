//! A request on its way through a cache, block by block, and the places of each session.

use super::super::submission::{Payload, Submission};
use crate::path::asker::Asker;
use crate::path::request::Request;
use plimsoll_cache::store::BLOCK_BYTES;
use plimsoll_core::{AccountId, Operation, Time};
use rustix::io::Errno;
use std::ops::Range;

/// Number of the block that stands for the flush of a forced write.
const FLUSH: u32 = u32::MAX;

/// The cache's name for a block of a request.
pub(super) fn token_of(request: u32, block: u32) -> u64 {
    (u64::from(request) << 32) | u64::from(block)
}

/// The name of the flush behind a forced write.
pub(super) fn flush_token_of(request: u32) -> u64 {
    token_of(request, FLUSH)
}

/// The request of a name.
pub(super) fn index_of(token: u64) -> u32 {
    (token >> 32) as u32
}

/// A part of a request that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPart {
    /// The block of the volume.
    pub block: u64,
    /// The first byte in it, and the byte behind the last.
    pub from: u16,
    pub to: u16,
    /// Where the block begins in the request.
    pub start: u32,
}

/// A request of a front end.
pub(super) struct CachedRequest {
    pub front_end: u32,
    pub session: AccountId,
    /// The account that its latency counts as.
    pub metered: AccountId,
    /// What was submitted.
    pub asked: Submission,
    pub arrived: Time,
    /// Bytes of the blocks that were submitted.
    pub submitted: u32,
    /// Something was submitted.
    pub is_begun: bool,
    /// Number of doubts when the first block was submitted that is answered before it is durable.
    pub loose_since: Option<u64>,
    /// Start of a range of it that is under way and took long to look up.
    pub range_at: Option<u32>,
    /// The flush behind a forced write was submitted.
    pub is_flushed: bool,
    /// Blocks under way.
    pub blocks: u32,
    /// What the store said last.
    pub store_error: Option<Errno>,
    pub error: Option<Errno>,
    pub is_abandoned: bool,
    /// Its number as an orphan: a write that was abandoned while the cache worked on it, until the cache is done with
    /// its blocks.
    pub orphan: Option<u64>,
    /// Blocks of failed store operations: the cache has heard of the failure, and the scheduler still has them.
    pub in_scheduler: u32,
}

impl CachedRequest {
    pub fn new((front_end, session): (u32, AccountId), asked: Submission, arrived: Time) -> CachedRequest {
        CachedRequest {
            front_end,
            session,
            metered: session,
            asked,
            arrived,
            submitted: 0,
            is_begun: false,
            loose_since: None,
            range_at: None,
            is_flushed: false,
            blocks: 0,
            store_error: None,
            error: None,
            is_abandoned: false,
            orphan: None,
            in_scheduler: 0,
        }
    }

    /// The same for a volume that has no cache any more.
    pub fn uncached(self, volume: u32) -> Request {
        let asker = Asker::FrontEnd(self.front_end, self.asked.token);
        let mut request = Request::new(asker, volume, self.session, self.asked, self.arrived);
        request.is_abandoned = self.is_abandoned;
        request
    }

    /// Whether every block was submitted, or need not be.
    pub fn is_submitted(&self) -> bool {
        self.is_begun && self.submitted == self.asked.length
    }

    /// Whether nothing of it is left to do, nor stands anywhere in its session's name.
    pub fn is_through(&self) -> bool {
        self.is_submitted() && self.blocks == 0 && self.in_scheduler == 0
    }

    /// The blocks of which it has a part.
    pub fn blocks(&self) -> Range<u64> {
        let end = self.asked.offset + u64::from(self.asked.length);
        self.asked.offset / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64)
    }

    /// Blocks that were not submitted, and one for a request that has none.
    pub fn blocks_left(&self) -> u32 {
        let BlockPart { from, start, .. } = self.next_part();
        let left = u64::from(from) + u64::from(self.asked.length - start);
        (left.div_ceil(BLOCK_BYTES as u64) as u32).max(1)
    }

    /// The whole blocks that are submitted next, if the next part is one.
    pub fn whole_blocks_left(&self) -> Option<Range<u64>> {
        let (begin, end) =
            (self.asked.offset + u64::from(self.submitted), self.asked.offset + u64::from(self.asked.length));
        let blocks = begin / BLOCK_BYTES as u64..end / BLOCK_BYTES as u64;
        (begin.is_multiple_of(BLOCK_BYTES as u64) && blocks.end > blocks.start).then_some(blocks)
    }

    /// The part that is submitted next.
    pub fn next_part(&self) -> BlockPart {
        self.part_at(self.submitted)
    }

    fn part_at(&self, start: u32) -> BlockPart {
        let at = self.asked.offset + u64::from(start);
        let from = (at % BLOCK_BYTES as u64) as u32;
        // A trim may end with the last number that a length can be.
        let to = from + (self.asked.length - start).min(BLOCK_BYTES as u32 - from);
        BlockPart { block: at / BLOCK_BYTES as u64, from: from as u16, to: to as u16, start }
    }

    /// The bytes of `part` of a write, or as many zeroes.
    pub fn bytes_of(&self, part: BlockPart) -> &[u8] {
        static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        let length = usize::from(part.to - part.from);
        match (self.asked.operation, self.asked.payload.as_ptr()) {
            // SAFETY: `check` found the payload to hold the whole request, of which this is a part, and no other code
            // has it until the request is answered.
            (Operation::Write, Some(data)) => unsafe {
                std::slice::from_raw_parts(data.add(part.start as usize), length)
            },
            _ => &ZEROES[..length],
        }
    }

    /// Puts what was read of the block that began at `start` where it belongs.
    pub fn take_read(&mut self, start: u32, data: &[u8]) {
        if let Payload::Buffer { buffer, at } = &mut self.asked.payload {
            let begin = *at as usize + start as usize;
            buffer.as_mut_slice()[begin..begin + data.len()].copy_from_slice(data);
        }
    }
}

/// Places for blocks under way: a session may have as many as are free.
pub(super) struct Places {
    places: u32,
    free: u32,
    taken: Vec<u32>,
}

impl Places {
    pub fn new(places: u32) -> Places {
        Places { places, free: places, taken: Vec::new() }
    }

    /// How many more `session` may have. Each that it takes is one less that is free.
    pub fn room(&self, session: AccountId) -> u32 {
        self.free.saturating_sub(self.taken_by(session)).div_ceil(2)
    }

    /// How many `session` has.
    pub fn taken_by(&self, session: AccountId) -> u32 {
        self.taken.get(session.index()).copied().unwrap_or(0)
    }

    /// How many all have.
    pub fn taken(&self) -> u32 {
        self.places - self.free
    }

    pub fn take(&mut self, session: AccountId) {
        if self.taken.len() <= session.index() {
            self.taken.resize(session.index() + 1, 0);
        }
        self.taken[session.index()] += 1;
        self.free -= 1;
    }

    pub fn give_back(&mut self, session: AccountId) {
        self.taken[session.index()] -= 1;
        self.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Class;

    fn request(operation: Operation, offset: u64, length: u32) -> CachedRequest {
        let (class, payload) = (Class::UNCLASSIFIED, Payload::None);
        let submission = Submission { token: 0, operation, offset, length, is_forced: false, class, payload };
        CachedRequest::new((0, AccountId::ROOT), submission, Time::ZERO)
    }

    #[test]
    fn a_request_is_cut_at_the_blocks() {
        let mut trim = request(Operation::Trim, 4096 + 512, 2 * 4096);
        let mut parts = Vec::new();
        while trim.submitted < trim.asked.length {
            let part = trim.next_part();
            trim.submitted += u32::from(part.to - part.from);
            parts.push((part.block, part.from, part.to, part.start));
        }
        assert_eq!(parts, [(1, 512, 4096, 0), (2, 0, 4096, 3584), (3, 0, 512, 7680)]);
        // Planted break: from + what is left of the length, which does not fit into 32 bits.
        let part = request(Operation::Trim, 512, 0xffff_fe00).next_part();
        assert_eq!((part.block, part.from, part.to, part.start), (0, 512, 4096, 0));
    }

    /// Promise: cache-places.
    #[test]
    fn a_waiting_session_leaves_places_to_others() {
        let mut places = Places::new(128);
        for session in (1..=3).map(AccountId) {
            let room = places.room(session);
            (0..room).for_each(|_| places.take(session));
            assert_eq!(places.room(session), 0);
        }
        assert_eq!(places.taken, [0, 64, 32, 16]);
        assert_eq!((places.room(AccountId(4)), places.taken()), (8, 112));
        places.give_back(AccountId(3));
        assert_eq!((places.room(AccountId(3)), places.room(AccountId(1))), (1, 0));
    }
}
