//! What the store was told, and what of it is durable: by counting.

/// The store's writes and flushes. The first write stands for all writes before the start.
pub(super) struct StoreSide {
    pub(super) writes: u64,
    /// The last write that the flush under way makes durable.
    pub(super) flushing: Option<u64>,
    pub(super) flushed: u64,
    pub(super) wanted: u64,
    /// The last write or trim past the cache that was acknowledged before it was durable; at first what was written
    /// before the start.
    acknowledged: u64,
    /// The same, including those that a failed flush left in doubt.
    past: u64,
    doubts: u64,
    /// A flush failed: what is read there may be what the store has lost, until a crash shows that.
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
    /// The last write or trim that a flush must make durable: it was acknowledged and went past the cache. What the
    /// syncer copied is dirty in the cache until a flush of its own has succeeded, so no other flush waits for that.
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

    /// See [`CacheStore::doubts`](super::machine::CacheStore::doubts).
    pub fn doubts(&self) -> u64 {
        self.doubts
    }

    /// A flush failed. A device says so once: what it has lost, the next flush that succeeds says nothing of.
    pub fn flush_failed(&mut self) {
        (self.wanted, self.has_lost) = (self.flushed, true);
        if self.acknowledged > self.flushed {
            (self.doubts, self.acknowledged) = (self.doubts + 1, 0);
        }
    }
}
