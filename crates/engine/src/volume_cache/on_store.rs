//! What a cache asks of its volume: requests like any other.
//!
//! **The rule.** A cache works in blocks of 4 KiB, and a disk does not. 128 KiB that are read in sequence and are not
//! in the cache are 32 operations and should be one request. So operations become one request if they are consecutive
//! in order, on the store and in memory. They must also be of the same session, class and purpose. The request grows up
//! to the largest piece that the scheduler sees. Nothing waits for company here: what the cache asks for at once is
//! looked at, and no more. It asks for neighbours at once because the code that submits blocks (`VolumeCache::batch`)
//! and its syncer see to it.
//!
//! **The complication.** If such a request fails, perhaps only one session's block failed. So each block is asked for
//! by itself then, and has its own answer.
//!
//! **Abandoned requests.** What was asked for only on behalf of abandoned requests is dropped as long as no backend has
//! it. The cache hears at once that it failed, so that its block is free and no request waits for another session's
//! limit. The scheduler cannot forget a request; it lets it go when it likes, which then ends without a backend. Until
//! then the request it was for is not answered, because its session has something in the scheduler.

use super::super::submission::{CacheBlock, Payload, Submission};
use super::{VolumeCache, request};
use crate::path::asker::Asker;
use crate::path::ground::Ground;
use crate::path::next::Next;
use crate::path::request::{Request, TRANSFER_PIECE_BYTES_MAX};
use crate::path::table::Table;
use plimsoll_cache::store::{Action, BLOCK_BYTES, Operation, Origin};
use plimsoll_core::{AccountId, Class, Operation as Asked};
use rustix::io::Errno;
use std::ops::Range;

/// Operations of one request at the most.
const RUN_OPERATIONS_MAX: u32 = TRANSFER_PIECE_BYTES_MAX / BLOCK_BYTES as u32;

/// Operations on the store that make one request.
pub(super) struct StoreRun {
    first: Operation,
    last: Operation,
    count: u32,
    purpose: Purpose,
}

/// What operations of one request have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Purpose {
    session: AccountId,
    class: Class,
    asked: Asked,
    is_maintenance: bool,
    /// No request waits for it any more, and it need not be done.
    is_abandoned: bool,
}

impl Purpose {
    fn of(cache: &VolumeCache, operation: &Operation) -> Purpose {
        let origin = cache.machine.origin(operation);
        let (session, class, client) = match origin {
            Origin::Request(token, class) => {
                let request = &cache.requests[request::index_of(token)];
                (request.session, class, Some(request.asked.operation))
            }
            Origin::Syncer(class) => (cache.session, class, None),
            Origin::Own => (cache.session, Class::UNCLASSIFIED, None),
        };
        let asked = match operation.action {
            Action::Read => Asked::Read,
            Action::Write => Asked::Write,
            Action::Trim if client == Some(Asked::WriteZeroes) => Asked::WriteZeroes,
            Action::Trim => Asked::Trim,
            Action::Flush => Asked::Flush,
        };
        let is_maintenance = matches!(origin, Origin::Syncer(_));
        Purpose { session, class, asked, is_maintenance, is_abandoned: cache.is_abandoned(operation) }
    }
}

impl VolumeCache {
    /// Adds an operation to the current run, or makes a request of that run and begins another.
    pub(super) fn add_to_run(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        volume: u32,
        run: Option<StoreRun>,
        operation: &Operation,
    ) -> StoreRun {
        let purpose = Purpose::of(self, operation);
        let alone = StoreRun { first: *operation, last: *operation, count: 1, purpose };
        let Some(mut run) = run else { return alone };
        let goes_on = run.purpose == purpose && self.machine.goes_on(&run.last, operation);
        if !goes_on || run.count == RUN_OPERATIONS_MAX {
            self.begin_on_store(ground, table, volume, &run);
            return alone;
        }
        (run.last, run.count) = (*operation, run.count + 1);
        run
    }

    /// Makes a request of a run.
    pub(super) fn begin_on_store(&mut self, ground: &mut Ground, table: &mut Table, volume: u32, run: &StoreRun) {
        let StoreRun { first, count, purpose, .. } = run;
        let Purpose { session, class, asked, is_maintenance, is_abandoned } = *purpose;
        if is_abandoned {
            let ids = first.id..first.id + count;
            return self.operations.ended.extend(ids.map(|id| (id, Err(Errno::CANCELED))));
        }
        let payload = match first.action {
            Action::Read | Action::Write if *count > 1 => {
                Payload::Cache(CacheBlock(self.machine.buffer_of_run(first, *count)))
            }
            Action::Read | Action::Write => Payload::Cache(CacheBlock(self.machine.buffer(first).as_mut_ptr())),
            Action::Trim | Action::Flush => Payload::None,
        };
        let submission = Submission {
            token: 0,
            operation: asked,
            offset: first.offset_bytes,
            length: first.length_bytes * count,
            is_forced: false,
            class,
            payload,
        };
        let mut request = Request::new(Asker::Cache(first.id), volume, session, submission, ground.now);
        request.is_maintenance = is_maintenance;
        ground.then(Next::Add(table.requests.insert(request)));
    }

    /// The volume has done a request of its cache, of `length` bytes. `first` is its first operation.
    pub(crate) fn store_request_completed(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        volume: u32,
        (first, length): (u32, u32),
        error: Option<Errno>,
    ) {
        let ids = self.operations_of(first, length);
        let is_run = ids.len() > 1;
        for id in ids {
            match (error, self.operations.get(id)) {
                (Some(_), Some(operation)) if is_run => {
                    let purpose = Purpose::of(self, &operation);
                    let alone = StoreRun { first: operation, last: operation, count: 1, purpose };
                    self.begin_on_store(ground, table, volume, &alone);
                }
                _ => self.operations.ended.push((id, error.map_or(Ok(()), Err))),
            }
        }
    }

    /// Gives up an operation of the store under a request of this cache's volume. All requests that it is for must be
    /// abandoned, and no backend may have it.
    pub(crate) fn drop_on_store(&mut self, index: u32, request: &mut Request) {
        let is_in_scheduler = request.pieces == request.pieces_waiting;
        let Asker::Cache(first) = request.asker else { return };
        if request.is_abandoned || !is_in_scheduler {
            return;
        }
        let Some(dropped) = self.give_up_operations(first, request.asked.length) else { return };
        self.dropped.insert(index, dropped);
        request.is_abandoned = true;
        request.cut_no_more();
        // The cache may use its block for something else.
        request.asked.payload = Payload::None;
    }

    /// The scheduler has let a request go that was dropped.
    pub(crate) fn dropped_store_request_ended(&mut self, index: u32) {
        for dropped in self.dropped.remove(&index).expect("what is abandoned was dropped") {
            let request = &mut self.requests[dropped];
            request.in_scheduler -= 1;
            if request.is_through() {
                self.done.push(dropped);
            }
        }
    }

    /// Numbers of the operations that made a request of `length` bytes. `first` is the first one.
    fn operations_of(&self, first: u32, length: u32) -> Range<u32> {
        let length_of_first = self.operations.get(first).map_or(0, |operation| operation.length_bytes);
        first..first + length.checked_div(length_of_first).unwrap_or(1)
    }

    /// Whether an operation changes the store for a request that was abandoned.
    fn is_abandoned(&self, operation: &Operation) -> bool {
        let is_change = matches!(operation.action, Action::Write | Action::Trim);
        is_change && self.asker(operation).is_some_and(|asker| self.requests[asker].is_abandoned)
    }

    /// The request that an operation is for; the syncer and the cache itself have none.
    fn asker(&self, operation: &Operation) -> Option<u32> {
        match self.machine.origin(operation) {
            Origin::Request(token, _) => Some(request::index_of(token)),
            Origin::Syncer(_) | Origin::Own => None,
        }
    }

    /// Ends the operations of a request of the store as failed, if all are abandoned. Gives the requests they were for.
    fn give_up_operations(&mut self, first: u32, length: u32) -> Option<Vec<u32>> {
        let ids = self.operations_of(first, length);
        let mut askers = Vec::with_capacity(ids.len());
        for operation in ids.clone().map(|id| self.operations.get(id)) {
            let operation = operation.filter(|operation| self.is_abandoned(operation))?;
            askers.push(self.asker(&operation)?);
        }
        self.operations.ended.extend(ids.map(|id| (id, Err(Errno::CANCELED))));
        askers.iter().for_each(|&asker| self.requests[asker].in_scheduler += 1);
        Some(askers)
    }
}
