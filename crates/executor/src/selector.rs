//! The choice of a free thread's queue: a lottery by weight among those that are not empty (section 2.3), with a bound.
//!
//! **Rule.** Each queue that is not empty has as many tickets as its weight; the ticket that is drawn wins.
//! **Complication.** Chance passes the maintenance queue over for 44 turns in a row once in a hundred times, and while
//! it does, the log fills. So a queue that was not empty and passed over as often as [`Selector::PASSED_OVER_MAX`]
//! times its due is drawn at once. With the default weights that changes one draw in two thousand.

use crate::{QUEUES, Queue};

/// Draws queues for one thread.
#[derive(Clone, Debug)]
pub struct Selector {
    weights: [u32; QUEUES],
    /// Turns in a row in which a queue was not empty and another one was drawn.
    passed_over: [u32; QUEUES],
}

impl Selector {
    /// How much longer than on average a queue may be passed over.
    pub const PASSED_OVER_MAX: u32 = 5;

    /// A selector for queues with these weights.
    ///
    /// # Panics
    /// If a weight is zero: its queue would never be drawn.
    pub fn new(weights: [u32; QUEUES]) -> Selector {
        assert!(weights.iter().all(|&weight| weight > 0), "weights {weights:?}, allowed 1 and more");
        Selector { weights, passed_over: [0; QUEUES] }
    }

    /// Other weights from the next draw on.
    ///
    /// # Panics
    /// As of [`new`](Self::new).
    pub fn set_weights(&mut self, weights: [u32; QUEUES]) {
        *self = Selector { passed_over: self.passed_over, ..Selector::new(weights) };
    }

    /// Most turns before a queue that is not empty is drawn, if all others are never empty.
    pub fn turns_max(&self, queue: Queue) -> u32 {
        let sum: u32 = self.weights.iter().sum();
        Selector::PASSED_OVER_MAX * sum.div_ceil(self.weights[queue.index()]) + QUEUES as u32
    }

    /// Draws one of the queues that are not empty; `None` if all are. `chance` is any number, every one equally likely.
    /// O(1).
    pub fn draw(&mut self, depths: [u32; QUEUES], chance: u32) -> Option<Queue> {
        let is_there = |queue: &Queue| depths[queue.index()] > 0;
        let sum: u32 = Queue::ALL.into_iter().filter(is_there).map(|queue| self.weights[queue.index()]).sum();
        if sum == 0 {
            self.passed_over = [0; QUEUES];
            return None;
        }
        let drawn = self.overdue(sum, depths).unwrap_or_else(|| self.winner(sum, depths, chance));
        for queue in Queue::ALL {
            let passed_over = &mut self.passed_over[queue.index()];
            *passed_over = if queue == drawn || !is_there(&queue) { 0 } else { *passed_over + 1 };
        }
        Some(drawn)
    }

    /// The queue that was passed over for longest beyond what it may be.
    fn overdue(&self, sum: u32, depths: [u32; QUEUES]) -> Option<Queue> {
        let overdue = Queue::ALL.into_iter().filter(|queue| {
            let at = queue.index();
            depths[at] > 0 && self.passed_over[at] >= Selector::PASSED_OVER_MAX * sum.div_ceil(self.weights[at])
        });
        overdue.max_by_key(|queue| self.passed_over[queue.index()])
    }

    fn winner(&self, sum: u32, depths: [u32; QUEUES], chance: u32) -> Queue {
        // A number below `sum`: multiplied and shifted, so that no ticket is likelier by more than 2^-32.
        let mut ticket = ((u64::from(chance) * u64::from(sum)) >> 32) as u32;
        for queue in Queue::ALL {
            let weight = self.weights[queue.index()];
            if depths[queue.index()] == 0 {
                continue;
            }
            if ticket < weight {
                return queue;
            }
            ticket -= weight;
        }
        unreachable!("tickets are fewer than the weights of queues that are not empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_core::Rng;
    use rand_pcg::Pcg64;

    fn count(selector: &mut Selector, depths: [u32; QUEUES], turns: u32, seed: u128) -> [u32; QUEUES] {
        let mut random = Pcg64::new(seed, 0xa02b_dbf7_bb3c_0a7a_c28f_a16a_64ab_f960);
        let mut drawn = [0; QUEUES];
        for _ in 0..turns {
            drawn[selector.draw(depths, random.next_u32()).unwrap().index()] += 1;
        }
        drawn
    }

    #[test]
    fn queues_are_drawn_as_their_weights() {
        const TURNS: u32 = 100_000;
        let mut selector = Selector::new([60, 30, 10]);
        let near = |drawn: [u32; QUEUES], expected: [f64; QUEUES]| {
            for (drawn, expected) in drawn.into_iter().zip(expected) {
                let part = f64::from(drawn) / f64::from(TURNS);
                assert!((part - expected).abs() < 0.01, "{part} of {expected}");
            }
        };
        near(count(&mut selector, [9, 9, 9], TURNS, 1), [0.6, 0.3, 0.1]);
        near(count(&mut selector, [0, 9, 9], TURNS, 2), [0.0, 0.75, 0.25]);
        near(count(&mut selector, [0, 0, 1], TURNS, 3), [0.0, 0.0, 1.0]);
        assert_eq!(selector.draw([0, 0, 0], 7), None);
        selector.set_weights([10, 10, 20]);
        near(count(&mut selector, [1, 1, 1], TURNS, 4), [0.25, 0.25, 0.5]);
    }

    proptest! {
        /// Planted break: without `overdue`.
        /// Promise: executor-queues.
        #[test]
        fn no_queue_is_passed_over_for_longer_than_the_bound(
            weights in prop::array::uniform3(1_u32..200),
            chances in prop::collection::vec(prop_oneof![Just(0), Just(u32::MAX), any::<u32>()], 1..5_000),
        ) {
            let mut selector = Selector::new(weights);
            let mut waited = [0; QUEUES];
            for chance in chances {
                let drawn = selector.draw([1, 1, 1], chance).unwrap();
                for queue in Queue::ALL {
                    let waited = &mut waited[queue.index()];
                    *waited = if queue == drawn { 0 } else { *waited + 1 };
                    prop_assert!(*waited <= selector.turns_max(queue), "{queue:?} for {waited} turns, {weights:?}");
                }
            }
        }

        #[test]
        fn only_queues_that_are_not_empty_are_drawn(
            depths in prop::collection::vec(prop::array::uniform3(0_u32..2), 1..200), chance in any::<u32>(),
        ) {
            let mut selector = Selector::new([60, 30, 10]);
            for (turn, depths) in depths.into_iter().enumerate() {
                let drawn = selector.draw(depths, chance.wrapping_mul(turn as u32 + 1));
                prop_assert_eq!(drawn.is_some(), depths != [0; QUEUES]);
                prop_assert!(drawn.is_none_or(|queue| depths[queue.index()] > 0));
            }
        }
    }
}
