//! How fast blocks may come in when something must leave for them.
//!
//! **The intuition.** The fast device takes writes faster than the slow one takes what must leave for them. If every
//! write got a unit as long as there is one, a burst would end abruptly. The last unit is gone at full speed, and from
//! then on every write waits. So units become dearer the fewer are free, and writes slow down long before the last one.
//!
//! **The rule.** A unit costs `(low - free) / half`. `low` is the mark at which the syncer wakes up; `half` is half of
//! the distance from there to the units that are *kept*. The cost is nothing at `low`, one half-way, nearly two at the
//! end. Each unit that leaves, copied to the store or given up clean, pays one. A new block is given a unit as long as
//! less than one is owed.
//!
//! **What follows**, in whatever order things happen (property test below):
//!
//! 1. The next block waits for two units to leave at the most: while the store works, no write is frozen.
//! 2. With `free` units, `half / (low - free)` blocks enter for each that leaves. So the rate falls from any rate at
//!    `low` to the store's own half-way, without a step. If more want to come than that, it stays there.
//!
//! There is no clock in it and no estimate of a rate: it counts. What the store has copied is free only after a flush,
//! so a price alone could give away the last unit. Some units are kept for that, and no new block is given those.

/// What is owed, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    low: u32,
    kept: u32,
    /// The price of one unit, in the parts in which `owed` counts.
    half: u64,
    owed: u64,
    /// Units that had left so far, at the last look.
    left: u64,
}

impl Pace {
    /// `kept` is at least 1.
    pub fn new(low: u32, kept: u32) -> Pace {
        Pace { low, kept, half: u64::from(low.saturating_sub(kept) / 2).max(1), owed: 0, left: 0 }
    }

    /// Units that no new block gets. Writes of cached blocks need another unit until their record is durable, and must
    /// not wait for the store.
    pub fn kept(&self) -> u32 {
        self.kept
    }

    fn price(&self, free: u32) -> u64 {
        u64::from(self.low.saturating_sub(free))
    }

    /// Cost of a unit with `free` free ones, per cent of one that leaves, 0 to 100.
    pub fn percent(&self, free: u32) -> u32 {
        (self.price(free) * 100 / self.half).min(100) as u32
    }

    /// Whether one of `free` units may be taken, when `left` had left since the start.
    pub fn may_take(&mut self, free: u32, left: u64) -> bool {
        let paid = (left - self.left).saturating_mul(self.half);
        (self.left, self.owed) = (left, self.owed.saturating_sub(paid));
        free >= self.low || self.owed < self.half
    }

    /// One of `free` is taken.
    pub fn take(&mut self, free: u32) {
        self.owed += self.price(free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A block tries to come in, a unit leaves, or what left before becomes free: some time later, or never.
        ///
        /// Planted break that was seen red: what is owed is forgotten when something leaves.
        /// Promise: cache-overload.
        #[test]
        fn the_next_block_waits_for_two_at_most_and_no_more_come_than_was_paid_for(
            low in 1u32..60, kept in 1u32..30, events in prop::collection::vec(0u32..12, 1..800),
        ) {
            let kept = kept.min(low / 2).max(1);
            let mut pace = Pace::new(low, kept);
            let (mut free, mut left, mut waits_since) = (low + 3, 0u64, None);
            // Since the start, in parts of one.
            let (mut asked, mut paid) = (0u64, 0u64);
            for event in events {
                match event {
                    0..3 => (left, paid) = (left + 1, paid + pace.half),
                    3..5 => free = (free + 1).min(2 * low),
                    _ if free <= kept => {}
                    _ if pace.may_take(free, left) => {
                        asked += pace.price(free);
                        prop_assert!(asked < paid + 3 * pace.half, "{} asked, {} paid, {} is one", asked, paid, pace.half);
                        pace.take(free);
                        (free, waits_since) = (free - 1, None);
                    }
                    _ => {
                        prop_assert!(free < low, "it costs nothing, and no request gets any");
                        let since = *waits_since.get_or_insert(left);
                        prop_assert!(left < since + 2, "{} left, and the next request still waits", left - since);
                    }
                }
            }
        }

        /// The store takes one at a time and every block wants to come. From full speed, each unit that leaves lets in
        /// fewer than the one before, until it is one for one, half-way. There it stays.
        ///
        /// Planted break that was seen red: a unit costs nothing.
        /// Promise: cache-overload.
        #[test]
        fn it_goes_smoothly_from_any_rate_to_that_of_the_store(low in 40u32..4000, kept in 1u32..20) {
            let mut pace = Pace::new(low, kept);
            let mut free = low;
            let mut came: Vec<u32> = Vec::new();
            for left in 0..u64::from(low) * 4 {
                let before = free;
                while pace.may_take(free, left) && free > kept {
                    pace.take(free);
                    free -= 1;
                }
                came.push(before - free);
                free += 1;
            }
            prop_assert!(came.windows(2).skip(1).all(|pair| pair[1] <= pair[0] + 1), "{:?}", came);
            let half_way = low - pace.half as u32;
            prop_assert!(free.abs_diff(half_way) <= 2, "{} are free, half-way is {}", free, half_way);
            prop_assert!(came[came.len() - 20..].iter().sum::<u32>().abs_diff(20) <= 1, "{:?}", came);
        }
    }
}
