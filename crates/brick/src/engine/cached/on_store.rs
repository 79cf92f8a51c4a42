//! What a cache asks of its volume: requests like any other.
//!
//! **The rule.** A cache works in blocks of 4 KiB, and a disk does not: 128 KiB that are read in sequence and are not in the cache are
//! 32 operations and should be one request. So operations that come one after the other, lie one behind the other on the store and in
//! memory, and are for the same session, class and purpose make one request, up to the largest piece that the scheduler sees. Nothing
//! waits for company: what the cache asks for at once is looked at, and no more.
//!
//! **The complication.** If such a request fails, what failed may be one block of somebody else. So each block is asked for by itself
//! then, and has its own answer.

use super::super::core::Core;
use super::super::front_end::{CacheBlock, Payload, Submission};
use super::super::request::{Request, TRANSFER_PIECE_BYTES_MAX};
use super::{OF_CACHE, VolumeCache, request};
use plimsoll_cache::store::{Action, BLOCK_BYTES, Operation, Origin};
use plimsoll_core::{AccountId, Class, Operation as Asked};
use rustix::io::Errno;

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
}

impl Purpose {
    fn of(cache: &VolumeCache, operation: &Operation) -> Purpose {
        let origin = cache.machine.origin(operation);
        let (session, class, client) = match origin {
            Origin::Request(token, class) => {
                let request = &cache.requests[request::index_of(token)];
                (request.session, class, Some(request.operation))
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
        Purpose { session, class, asked, is_maintenance: matches!(origin, Origin::Syncer(_)) }
    }
}

impl Core {
    /// Adds an operation to the run that was begun, or makes a request of that and begins another.
    pub(super) fn add_to_run(
        &mut self,
        volume: u32,
        cache: &mut VolumeCache,
        run: Option<StoreRun>,
        operation: &Operation,
    ) -> StoreRun {
        let purpose = Purpose::of(cache, operation);
        let alone = StoreRun { first: *operation, last: *operation, count: 1, purpose };
        let Some(mut run) = run else { return alone };
        let goes_on = run.purpose == purpose && cache.machine.goes_on(&run.last, operation);
        if !goes_on || run.count == RUN_OPERATIONS_MAX {
            self.begin_on_store(volume, cache, &run);
            return alone;
        }
        (run.last, run.count) = (*operation, run.count + 1);
        run
    }

    /// Makes a request of a run.
    pub(super) fn begin_on_store(&mut self, volume: u32, cache: &mut VolumeCache, run: &StoreRun) {
        let StoreRun { first, count, purpose, .. } = run;
        let Purpose { session, class, asked, is_maintenance } = *purpose;
        let payload = match first.action {
            Action::Read | Action::Write if *count > 1 => {
                Payload::Cache(CacheBlock(cache.machine.buffer_of_run(first, *count)))
            }
            Action::Read | Action::Write => Payload::Cache(CacheBlock(cache.machine.buffer(first).as_mut_ptr())),
            Action::Trim | Action::Flush => Payload::None,
        };
        let submission = Submission {
            token: u64::from(first.id),
            operation: asked,
            offset: first.offset_bytes,
            length: first.length_bytes * count,
            is_forced: false,
            class,
            payload,
        };
        let mut request = Request::new(OF_CACHE, volume, session, submission, self.now);
        request.is_maintenance = is_maintenance;
        let index = self.requests.insert(request);
        self.add_pieces(index);
    }

    /// The volume has done a request of its cache, of `length` bytes, whose first operation is `first`.
    pub(in crate::engine) fn store_request_completed(
        &mut self,
        volume: u32,
        first: u32,
        length: u32,
        error: Option<Errno>,
    ) {
        let Some(mut cache) = self.volumes[volume].cache.take() else { return };
        let length_of_first = cache.operations[first as usize].map_or(0, |operation| operation.length_bytes);
        let count = length.checked_div(length_of_first).unwrap_or(1);
        for id in first..first + count {
            match (error, cache.operations[id as usize]) {
                (Some(_), Some(operation)) if count > 1 => {
                    let purpose = Purpose::of(&cache, &operation);
                    let alone = StoreRun { first: operation, last: operation, count: 1, purpose };
                    self.begin_on_store(volume, &mut cache, &alone);
                }
                _ => cache.ended.push((id, error.map_or(Ok(()), Err))),
            }
        }
        self.volumes[volume].cache = Some(cache);
        self.cache_has_work(volume);
    }
}
