//! From requests to blocks of the cache, and from its answers back.

use super::super::block_tags::{BlockTags, session_of};
use super::lifecycle::Phase;
use super::pools::BoundedPools;
use super::request::{BlockPart, CachedRequest, flush_token_of, index_of, token_of};
use super::waiting::{Got, session_of_line};
use super::{VolumeCache, shares};
use plimsoll_cache::Pool;
use plimsoll_cache::store::{BLOCK_BYTES, Failure, Origin, Request as BlockRequest, RequestKind, Target};
use plimsoll_core::{AccountId, AccountTree, Class, Operation};
use rustix::io::Errno;

/// Blocks that are submitted together at the most: 128 KiB.
const BATCH_BLOCKS: u32 = 32;

/// Blocks of a range that costs nothing to look up.
const RANGE_BLOCKS_SMALL: u32 = 256;

/// Tells the session and class of a block.
struct Attribution<'core> {
    tags: Option<&'core dyn BlockTags>,
    tree: &'core AccountTree,
}

impl Attribution<'_> {
    /// The session and class of a block of a request.
    fn of(&self, request: &CachedRequest, block: u64) -> (AccountId, Class) {
        let Some(tags) = self.tags.filter(|_| matches!(request.asked.operation, Operation::Read | Operation::Write))
        else {
            return (request.session, request.asked.class);
        };
        let tag = tags.tag(request.asked.operation, block * BLOCK_BYTES as u64);
        let class = if request.asked.class == Class::UNCLASSIFIED { tag.class } else { request.asked.class };
        (session_of(&tag.causes, request.session), class)
    }
}

impl VolumeCache {
    /// Submits blocks of waiting requests: O(lines log lines), and nothing as long as the cache has no room. Says
    /// whether it submitted any.
    pub(super) fn submit_blocks(&mut self, tree: &AccountTree, tags: Option<&dyn BlockTags>) -> bool {
        let attribution = Attribution { tags, tree };
        let (round, mut has_submitted) = (self.waiting.round(), false);
        for &line in &round {
            let got = self.submit_line(line, &attribution);
            has_submitted |= got.blocks > 0;
            self.looked.push((line, got));
        }
        if has_submitted && round.len() > 1 {
            self.shares.begin(tree, round.iter().map(|&line| session_of_line(line)));
        }
        for (line, got) in self.looked.drain(..) {
            let cost = match round.len() {
                1 => shares::ALONE,
                _ if got.blocks == 0 => 0,
                _ => self.shares.cost(tree, session_of_line(line)),
            };
            self.waiting.charge(line, got, cost);
        }
        self.waiting.looked_at(round);
        has_submitted
    }

    /// Submits what can be of the requests in a line. Says what that was.
    fn submit_line(&mut self, line: u32, attribution: &Attribution<'_>) -> Got {
        let mut got = Got::default();
        while let Some(index) = self.waiting.first(line) {
            if self.requests[index].is_abandoned {
                self.give_up(index);
            }
            self.submit(index, attribution, &mut got);
            if !self.requests[index].is_submitted() {
                break;
            }
            self.waiting.leave(line);
        }
        got
    }

    /// The rest of a request is abandoned.
    fn give_up(&mut self, index: u32) {
        let request = &mut self.requests[index];
        request.error.get_or_insert(Errno::CANCELED);
        (request.is_begun, request.submitted) = (true, request.asked.length);
        if request.is_through() {
            self.done.push(index);
        }
    }

    /// How many blocks of a request are submitted together; 0 if it waits. Neighbours that come together are one
    /// request of the store, so blocks are not submitted one by one, as places become free. It waits for as many
    /// consecutive places as it has blocks left, with two bounds. One is [`BATCH_BLOCKS`]; the other is the places that
    /// come back without other sessions: its own, and those with an answer that was taken. So it never waits for
    /// another session.
    fn batch(&self, index: u32) -> u32 {
        let request = &self.requests[index];
        let wanted = request.blocks_left().min(BATCH_BLOCKS);
        let room = self.machine.room().min(self.places.room(request.session));
        let answered = self.machine.requests_under_way().saturating_sub(self.places.taken());
        let will_come = self.places.taken_by(request.session) + answered;
        let needed = wanted.min(will_come);
        let is_scattered = room < needed || (needed > 1 && self.machine.room_together(needed) < needed);
        if is_scattered { 0 } else { room.min(wanted) }
    }

    /// Submits blocks of a request until there is no room, and adds them to its line's count.
    fn submit(&mut self, index: u32, attribution: &Attribution<'_>, got: &mut Got) {
        let mut batch = 0;
        loop {
            let request = &self.requests[index];
            let is_held = self.lifecycle.phase != Phase::Working && !request.is_begun && !request.is_flushed;
            if is_held || request.is_submitted() {
                return;
            }
            if !request.is_begun && self.let_past(index, attribution) {
                return;
            }
            if batch == 0 {
                batch = self.batch(index);
                if batch == 0 {
                    return;
                }
                self.machine.expect(batch);
            }
            if let Some(count) = self.range(index) {
                if count == 0 || !self.submit_range(index, count) {
                    return;
                }
                (got.blocks, batch) = (got.blocks + 1, batch - 1);
                continue;
            }
            let request = &mut self.requests[index];
            let store_blocks = self.machine.superblock().store_blocks;
            let (block, data_of) = next_block(request, index, store_blocks, attribution, &mut self.pools);
            let data = match data_of {
                Some(part) if block.kind == RequestKind::Write => request.bytes_of(part),
                _ => &[],
            };
            let is_taken = self.machine.submit(&block, data);
            if !is_taken {
                got.takes_turns = self.machine.refused_for_turn().then_some(true).or(got.takes_turns);
                return;
            }
            let took_unit = self.machine.wanted_unit();
            got.takes_turns = Some(took_unit);
            let request = &mut self.requests[index];
            request.is_begun = true;
            if self.settings.semantics.is_loose() {
                request.loose_since.get_or_insert(self.machine.doubts());
            }
            request.blocks += 1;
            request.submitted += u32::from(block.to - block.from);
            self.places.take(request.session);
            (got.blocks, got.units) = (got.blocks + 1, got.units + u32::from(took_unit));
            batch -= 1;
        }
    }

    /// Number of consecutive whole blocks of a trim that the cache does not have, if there are several: they become one
    /// request of the store. One of the larger ranges of a request is looked up at a time, so that no turn of the
    /// thread takes long. The answer is 0 if it waits for that.
    fn range(&mut self, index: u32) -> Option<u32> {
        let request = &self.requests[index];
        let is_trim = matches!(request.asked.operation, Operation::Trim | Operation::WriteZeroes);
        let blocks = request.whole_blocks_left().filter(|_| is_trim && !request.is_flushed)?;
        let blocks = blocks.start..blocks.end.min(self.machine.superblock().store_blocks);
        if blocks.end <= blocks.start + 1 {
            return None;
        }
        if request.range_at.is_some() {
            return Some(0);
        }
        Some(self.machine.free_run(blocks)).filter(|&count| count > 1)
    }

    /// Submits so many whole blocks of a trim at once.
    fn submit_range(&mut self, index: u32, count: u32) -> bool {
        let (doubts, is_loose) = (self.machine.doubts(), self.settings.semantics.is_loose());
        let request = &mut self.requests[index];
        let part = request.next_part();
        if !self.machine.submit_trim(token_of(index, part.start), part.block, count, request.asked.class) {
            return false;
        }
        if request.submitted == 0 {
            request.metered = request.session;
        }
        request.is_begun = true;
        if is_loose {
            request.loose_since.get_or_insert(doubts);
        }
        request.range_at = (count > RANGE_BLOCKS_SMALL).then_some(part.start);
        request.blocks += 1;
        request.submitted += count * BLOCK_BYTES as u32;
        self.places.take(request.session);
        true
    }

    /// Lets a read bypass the cache if the cache has and wants none of it. The read is the volume's then, in pieces as
    /// large as they are without a cache, which need no places.
    fn let_past(&mut self, index: u32, attribution: &Attribution<'_>) -> bool {
        let VolumeCache { machine, requests, pools, .. } = self;
        let request = &mut requests[index];
        let attribution = |block| {
            let (session, class) = attribution.of(request, block);
            (class, pools.of(attribution.tree, session))
        };
        if request.asked.operation != Operation::Read || !machine.let_past(request.blocks(), attribution) {
            return false;
        }
        (request.is_begun, request.submitted) = (true, request.asked.length);
        self.past.push(index);
        true
    }

    /// An operation of the cache ended.
    pub(super) fn operation_ended(&mut self, id: u32, result: Result<(), Errno>) {
        let operation = self.operations.take(id);
        if let (Err(errno), Target::Store) = (result, operation.target)
            && let Origin::Request(token, _) = self.machine.origin(&operation)
            && let Some(request) = self.requests.get_mut(index_of(token))
        {
            request.store_error = Some(errno);
        }
        let doubts = self.machine.doubts();
        self.machine.completed(id, result.is_ok());
        if let (Err(errno), true) = (result, self.machine.doubts() > doubts) {
            let cache = &self.settings.name;
            tracing::error!(cache, error = %errno, "a flush of the slow device failed: data that was written past the \
                                                    cache may be lost");
        }
    }

    /// Takes what the cache has answered. Says whether there was anything.
    pub(super) fn take_answers(&mut self) -> bool {
        let VolumeCache { machine, requests, places, doubts, done, ended_orphans, .. } = self;
        let doubts_so_far = machine.doubts();
        let (mut has_taken, mut to_flush) = (false, None);
        while machine.next_answer(|token, failure, data| {
            let index = index_of(token);
            let request = &mut requests[index];
            places.give_back(request.session);
            request.blocks -= 1;
            request.range_at.take_if(|at| *at == token as u32);
            match failure {
                None if request.asked.operation == Operation::Read => request.take_read(token as u32, data),
                None => {}
                Some(failure) => drop(request.error.get_or_insert(errno_of(failure, request.store_error))),
            }
            let is_heard = request.asked.operation == Operation::Flush && !request.is_abandoned;
            if is_heard && doubts.tell_since(request.session, doubts_so_far) {
                request.error.get_or_insert(Errno::IO);
            }
            if request.blocks == 0 {
                ended_orphans.extend(request.orphan.take());
            }
            if request.is_through() {
                let loose_since =
                    request.loose_since.filter(|_| request.asked.is_forced && request.asked.operation.is_write());
                if loose_since.is_some_and(|before| before < doubts_so_far) {
                    // The store was to be flushed meanwhile and could not, and says so only once.
                    doubts.tell_since(request.session, doubts_so_far);
                    request.error.get_or_insert(Errno::IO);
                }
                match loose_since.is_some() && request.error.is_none() && !request.is_flushed {
                    true => to_flush = Some(index),
                    false => done.push(index),
                }
            }
        }) {
            has_taken = true;
            if let Some(index) = to_flush.take() {
                // The place that the last block has just given back.
                let request = &mut requests[index];
                request.is_flushed = true;
                request.blocks = 1;
                places.take(request.session);
                let flush = flush_request(flush_token_of(index), request.asked.class);
                if !machine.submit(&flush, &[]) {
                    // There is no room: the rest of the request is its flush.
                    request.blocks = 0;
                    places.give_back(request.session);
                    request.is_begun = false;
                    self.waiting.push_flush(request.session, index);
                }
            }
        }
        has_taken
    }
}

fn flush_request(token: u64, class: Class) -> BlockRequest {
    let (kind, pool) = (RequestKind::Flush, Pool::default());
    BlockRequest { token, kind, block: 0, from: 0, to: 0, class, pool }
}

/// The next block of a request for the cache, and the part of the request that it is.
fn next_block(
    request: &mut CachedRequest,
    index: u32,
    store_blocks: u64,
    attribution: &Attribution<'_>,
    pools: &mut BoundedPools,
) -> (BlockRequest, Option<BlockPart>) {
    if request.asked.operation == Operation::Flush || request.is_flushed {
        let token = if request.is_flushed { flush_token_of(index) } else { token_of(index, 0) };
        return (flush_request(token, request.asked.class), None);
    }
    let part = request.next_part();
    let (session, class) = attribution.of(request, part.block);
    if request.submitted == 0 {
        request.metered = session;
    }
    let is_whole = part.from == 0 && usize::from(part.to) == BLOCK_BYTES && part.block < store_blocks;
    let kind = match request.asked.operation {
        Operation::Read => RequestKind::Read,
        Operation::Trim | Operation::WriteZeroes if is_whole => RequestKind::Trim,
        _ => RequestKind::Write,
    };
    let token = token_of(index, part.start);
    let (from, to) = (part.from, part.to);
    let pool = pools.of(attribution.tree, session);
    (BlockRequest { token, kind, block: part.block, from, to, class, pool }, Some(part))
}

/// What a front end hears.
fn errno_of(failure: Failure, store_error: Option<Errno>) -> Errno {
    match failure {
        Failure::Store => store_error.unwrap_or(Errno::IO),
        Failure::Device | Failure::Damaged => Errno::IO,
    }
}
