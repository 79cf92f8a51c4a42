//! Writes and trims that the store got, and how many are durable: by counting.

use super::operation::Target;
use super::outbox::{Own, OwnOperation};

/// The store's writes and flushes. The first write stands for all writes before the start.
pub(super) struct StoreSide {
    writes: u64,
    /// The last write that the flush under way makes durable.
    flushing: Option<u64>,
    flushed: u64,
    wanted: u64,
    /// The last write or trim past the cache that was acknowledged before it was durable. At first it stands for writes
    /// before the start.
    acknowledged: u64,
    /// The same, including those that a failed flush left in doubt.
    past: u64,
    doubts: u64,
    /// Whether a flush failed: reads may return data that the store has lost, until a crash shows that.
    has_lost: bool,
}

impl Default for StoreSide {
    fn default() -> StoreSide {
        StoreSide {
            writes: 1,
            flushing: None,
            flushed: 0,
            wanted: 0,
            acknowledged: 1,
            past: 1,
            doubts: 0,
            has_lost: false,
        }
    }
}

impl StoreSide {
    /// The last acknowledged write or trim past the cache that a flush must make durable. What the syncer copied is
    /// dirty in the cache until a flush of its own has succeeded, so no other flush waits for that.
    pub fn past(&self) -> u64 {
        self.past
    }

    /// Whether each write that ended is durable, as far as is known.
    pub fn is_flushed(&self) -> bool {
        self.flushed == self.writes && !self.has_lost
    }

    /// The number of durable writes.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    pub fn want(&mut self, writes: u64) {
        self.wanted = self.wanted.max(writes);
    }

    /// Another write ended: what it must wait for to be durable.
    pub fn wrote(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// The last one is acknowledged, and not durable.
    pub fn acknowledged(&mut self) {
        (self.acknowledged, self.past) = (self.writes, self.writes);
    }

    /// A flush has failed since the start.
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// See [`CacheStore::doubts`](super::CacheStore::doubts).
    pub fn doubts(&self) -> u64 {
        self.doubts
    }

    /// A flush failed. A device says so once: what it has lost, the next flush that succeeds says nothing of.
    fn flush_failed(&mut self) {
        (self.wanted, self.has_lost) = (self.flushed, true);
        if self.acknowledged > self.flushed {
            (self.doubts, self.acknowledged) = (self.doubts + 1, 0);
        }
    }

    /// Writes that ended.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// The last write that the flush under way makes durable; 0 without a flush.
    pub fn flushing(&self) -> u64 {
        self.flushing.unwrap_or(0)
    }

    /// Begins a flush if one is wanted and none is under way.
    pub fn begin_flush(&mut self) -> Option<OwnOperation> {
        if self.flushing.is_some() || self.wanted <= self.flushed {
            return None;
        }
        self.flushing = Some(self.writes);
        Some(OwnOperation::flush(Own::StoreFlush, Target::Store))
    }

    /// The flush under way ended. Answers the last write that is durable now; `None` after a failed one, which makes
    /// none durable.
    pub fn flush_ended(&mut self, has_succeeded: bool) -> Option<u64> {
        let flushed = self.flushing.take().expect("it was flushing");
        if !has_succeeded {
            self.flush_failed();
            return None;
        }
        self.flushed = flushed;
        Some(flushed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_makes_durable_what_ended_before_it_began() {
        let mut store = StoreSide::default();
        let write = store.wrote();
        assert_eq!(store.begin_flush(), None, "no request wants one");
        store.want(write);
        assert_eq!(store.begin_flush(), Some(OwnOperation::flush(Own::StoreFlush, Target::Store)));
        let late = store.wrote();
        store.want(late);
        assert_eq!((store.flushing(), store.begin_flush()), (write, None), "one is under way");
        assert_eq!((store.flush_ended(true), store.is_flushed()), (Some(write), false));
        assert!(store.begin_flush().is_some());
        assert_eq!((store.flush_ended(true), store.is_flushed()), (Some(late), true));
    }

    /// Planted break: each failed flush is a doubt, red.
    #[test]
    fn a_failed_flush_is_a_doubt_once_for_what_was_acknowledged() {
        let mut store = StoreSide::default();
        for (acknowledges, doubts) in [(false, 1), (false, 1), (true, 2), (false, 2)] {
            let write = store.wrote();
            if acknowledges {
                store.acknowledged();
            }
            store.want(write);
            assert!(store.begin_flush().is_some());
            assert_eq!((store.flush_ended(false), store.doubts(), store.has_lost()), (None, doubts, true));
            assert_eq!(store.begin_flush(), None, "until a request wants one again");
        }
        assert_eq!(store.past(), 4, "what was acknowledged last, durable or in doubt");
    }
}
