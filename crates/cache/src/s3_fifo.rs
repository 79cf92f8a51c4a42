//! S3-FIFO: three queues, and no block moves when it is used. (Yang, Zhang, Qiu, Yue and Rashmi, *FIFO queues are all
//! you need for cache eviction*, SOSP 2023, section 4.)
//!
//! **The intuition.** Most blocks that come in are not used again. A *small* queue of a tenth of the cache lets them
//! leave soon, so that the *main* queue has nine tenths for those that are.
//!
//! **The rule.** A block that comes in goes into the small queue. Each use raises its frequency, up to 3. While the
//! small queue has a tenth of all units or more, its oldest unit is next. With a frequency of 2 or 3 it goes to the
//! main queue, with frequency 0. Otherwise it leaves, and its block goes into the *ghost* queue. Otherwise the oldest
//! unit of the main queue is next. If it was used it goes to the end of the queue with a frequency less by one; else it
//! leaves. A block of the ghost queue that comes back goes straight into the main queue. Classes are ignored but for
//! their bounds.
//!
//! **Differences from the paper.**
//!
//! - *The size* of which the small queue has a tenth is what is in the policy's order: the free hundredth of a cache is
//!   not. So a class or a pool at its bound gives up its units by the same rule.
//! - *Groups* with a bound have queues of their own, so that one of them can give up a unit without a search. Of
//!   several queues that may go next, the one with the oldest unit does.
//! - *A victim that is used* before its unit is given away comes into the main queue, as it would from among the
//!   ghosts.
//! - *Ghosts* are half as many as units, where the paper has as many as the main queue. The promise of 24 bytes a unit
//!   leaves one byte for each. Each is a hash of 8 bits in a set of eight, so one stranger in 32 passes for a ghost.
//! - *Looks* at units that stay are bounded for each victim: the next unit leaves then, whatever its frequency.
//! - *A restart* keeps the queue of each unit and its age; frequencies and ghosts begin at nothing.
//!
//! It takes nothing of [aged lists](crate::aged_lists): its queues are plain ones, and its bits are in the stamp.

use crate::ghosts::hash;
use crate::partition::{Among, Partition};
use crate::policy::{Anatomy, Arrival, BlockEvent, CachePolicy, PolicyConfig};
use crate::units::{List, UnitId, Units};
use plimsoll_core::{Class, prefetch};

/// The small queue's part of all units in order.
const SMALL_PARTS: u64 = 10;
/// The highest frequency.
const FREQUENCY_MAX: u32 = 3;
/// The frequency with which a unit goes from the small queue to the main one.
const FREQUENCY_MAIN: u32 = 2;
/// Ghosts, in parts of the units.
const GHOST_PARTS: u32 = 2;
/// Units that a search for a victim looks at, at the most.
const LOOKS_MAX: u32 = 4096;
/// A unit's stamp: two bits of frequency above its step, which wraps around after this many.
const STEPS_ROUND: u64 = 256;
/// Steps of age in the time in which a cache is filled once.
const STEPS: u32 = 64;

/// The blocks that left the small queue last, in a byte each.
pub struct GhostQueue {
    /// The names of eight blocks, the youngest in the lowest byte; 0 is none.
    sets: Vec<u64>,
    seed: u64,
}

impl GhostQueue {
    /// For so many blocks.
    pub fn new(count: u32, seed: u64) -> GhostQueue {
        GhostQueue { sets: vec![0; (count as usize).div_ceil(8).max(1)], seed }
    }

    #[inline]
    fn place(&self, block: u64) -> (usize, u64) {
        let hash = hash(block, self.seed);
        let set = ((hash >> 32) * self.sets.len() as u64) >> 32;
        (set as usize, (hash & 0xff).max(1))
    }

    /// `block` left; the oldest of its set is forgotten.
    #[inline]
    pub fn push(&mut self, block: u64) {
        let (set, name) = self.place(block);
        self.sets[set] = self.sets[set] << 8 | name;
    }

    /// Whether `block` left a short while ago; it is forgotten then.
    #[inline]
    pub fn take(&mut self, block: u64) -> bool {
        let (set, name) = self.place(block);
        let names = self.sets[set];
        let Some(shift) = (0..64).step_by(8).find(|shift| names >> shift & 0xff == name) else { return false };
        let younger = names & ((1 << shift) - 1);
        self.sets[set] = younger | (names >> shift >> 8) << shift;
        true
    }

    fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<u64>()
    }
}

/// The policy.
pub struct S3Fifo {
    /// The small queue of each group, and then the main queue of each.
    queues: Vec<List>,
    /// The step in which the oldest unit of each queue came, if it has one.
    oldest_steps: Vec<u64>,
    groups: usize,
    ghosts: GhostQueue,
    /// Units taken in, and units of a step.
    taken: u64,
    step: u64,
}

fn frequency(units: &Units, unit: UnitId) -> u32 {
    units.stamp(unit) / STEPS_ROUND as u32
}

fn set_frequency(units: &mut Units, unit: UnitId, frequency: u32) {
    let step = units.stamp(unit) % STEPS_ROUND as u32;
    units.set_stamp(unit, frequency * STEPS_ROUND as u32 + step);
}

impl S3Fifo {
    /// For the cache of `config`.
    pub fn new(config: &PolicyConfig<'_>) -> S3Fifo {
        let (units, queues) = (config.cache.units, config.groups * 2);
        S3Fifo {
            queues: vec![List::default(); queues],
            oldest_steps: vec![0; queues],
            groups: config.groups,
            ghosts: GhostQueue::new(units / GHOST_PARTS, config.cache.seed),
            taken: 0,
            step: u64::from((units / STEPS).max(1)),
        }
    }

    fn now(&self) -> u64 {
        self.taken / self.step
    }

    /// The queue in which `unit` is, or is to be.
    fn queue(&self, units: &Units, partition: &Partition, unit: UnitId) -> usize {
        let group = partition.group(units.class(unit), units.pool(unit));
        group + if units.is_again(unit) { self.groups } else { 0 }
    }

    /// Puts `unit` at the end of a queue, with a frequency.
    fn push(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, is_main: bool, frequency: u32) {
        units.set_again(unit, is_main);
        units.set_stamp(unit, (self.now() % STEPS_ROUND) as u32);
        set_frequency(units, unit, frequency);
        let at = self.queue(units, partition, unit);
        self.queues[at].push(units, unit);
        if self.queues[at].len() == 1 {
            self.oldest_steps[at] = self.now();
        }
    }

    /// The oldest unit of queue `at` changed: the new one entered in the same step or later.
    fn oldest_changed(&mut self, units: &Units, at: usize) {
        let Some(oldest) = self.queues[at].oldest() else { return };
        let (before, step) = (self.oldest_steps[at], u64::from(units.stamp(oldest)) % STEPS_ROUND);
        self.oldest_steps[at] = before + (step + STEPS_ROUND - before % STEPS_ROUND) % STEPS_ROUND;
    }

    /// Units in the small queues, or in the main ones, of the groups that are `among` those.
    fn count(&self, partition: &Partition, among: Among, is_main: bool) -> u64 {
        self.of(partition, among, is_main).map(|at| u64::from(self.queues[at].len())).sum()
    }

    fn of(&self, partition: &Partition, among: Among, is_main: bool) -> impl Iterator<Item = usize> {
        let first = if is_main { self.groups } else { 0 };
        (0..self.groups).filter(move |&group| partition.is_among(group, among)).map(move |group| first + group)
    }

    /// Takes the oldest unit of the small queues out, or of the main ones.
    fn pop(&mut self, units: &mut Units, partition: &Partition, among: Among, is_main: bool) -> Option<UnitId> {
        let held = self.of(partition, among, is_main).filter(|&at| !self.queues[at].is_empty());
        let at = held.min_by_key(|&at| self.oldest_steps[at])?;
        let unit = self.queues[at].pop(units);
        self.oldest_changed(units, at);
        unit
    }
}

impl CachePolicy for S3Fifo {
    fn heard(&mut self, event: &BlockEvent<'_>) {
        match *event {
            BlockEvent::Asked { access, .. } => prefetch(&self.ghosts.sets[self.ghosts.place(access.block).0]),
            BlockEvent::Forgotten { block, is_again: false } => self.ghosts.push(block),
            BlockEvent::Forgotten { .. } | BlockEvent::Trimmed { .. } => {}
        }
    }

    fn entered(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, arrival: Arrival) {
        self.taken += u64::from(arrival != Arrival::Returned);
        let is_main = match arrival {
            Arrival::New => self.ghosts.take(units.block(unit)),
            Arrival::Returned => true,
            Arrival::Restored => units.is_again(unit),
        };
        self.push(units, partition, unit, is_main, 0);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        let frequency = (frequency(units, unit) + 1).min(FREQUENCY_MAX);
        let group_of = |class| partition.group(class, units.pool(unit));
        if group_of(units.class(unit)) == group_of(class) {
            units.set_class(unit, class);
            return set_frequency(units, unit, frequency);
        }
        self.left(units, partition, unit, None);
        units.set_class(unit, class);
        self.push(units, partition, unit, units.is_again(unit), frequency);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        let (mut small, mut main) = (self.count(partition, among, false), self.count(partition, among, true));
        for _ in 0..LOOKS_MAX {
            if small + main == 0 {
                return None;
            }
            let is_main = small * SMALL_PARTS < small + main;
            let unit = self.pop(units, partition, among, is_main)?;
            let frequency = frequency(units, unit);
            match is_main {
                true if frequency > 0 => self.push(units, partition, unit, true, frequency - 1),
                false if frequency >= FREQUENCY_MAIN => {
                    self.push(units, partition, unit, true, 0);
                    (small, main) = (small - 1, main + 1);
                }
                _ => return Some(unit),
            }
        }
        let is_main = small * SMALL_PARTS < small + main;
        self.pop(units, partition, among, is_main)
    }

    fn left(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, successor: Option<UnitId>) {
        let at = self.queue(units, partition, unit);
        if let Some(successor) = successor {
            return self.queues[at].replace(units, unit, successor);
        }
        let was_oldest = self.queues[at].oldest() == Some(unit);
        self.queues[at].remove(units, unit);
        if was_oldest {
            self.oldest_changed(units, at);
        }
    }

    fn age(&self, units: &Units, unit: UnitId) -> u64 {
        let step = u64::from(units.stamp(unit)) % STEPS_ROUND;
        (self.now() % STEPS_ROUND + STEPS_ROUND - step) % STEPS_ROUND * self.step
    }

    fn anatomy(&self) -> Anatomy<'_> {
        Anatomy { lists: Some(&self.queues), bytes: self.ghosts.bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CacheConfig;
    use crate::units::Pool;
    use plimsoll_core::class::Scheme;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The policy without a cache: each unit is there, or has left.
    struct Alone {
        units: Units,
        partition: Partition,
        policy: S3Fifo,
    }

    impl Alone {
        fn new(count: u32) -> Alone {
            let config = CacheConfig::new(count, Scheme::default());
            Alone {
                units: Units::new(count),
                partition: Partition::new(count, &config.scheme, &[]).unwrap(),
                policy: S3Fifo::new(&PolicyConfig { cache: &config, groups: 1 }),
            }
        }

        fn enter(&mut self, unit: u32, block: u64) {
            self.units.fill(UnitId(unit), block, Class::UNCLASSIFIED, Pool::default());
            self.policy.entered(&mut self.units, &self.partition, UnitId(unit), Arrival::New);
        }

        fn access(&mut self, unit: u32, times: u32) {
            let class = Class::UNCLASSIFIED;
            (0..times).for_each(|_| self.policy.accessed(&mut self.units, &self.partition, UnitId(unit), class));
        }

        fn victim(&mut self) -> Option<u32> {
            self.policy.victim(&mut self.units, &self.partition, Among::All).map(|unit| unit.0)
        }

        fn forget(&mut self, block: u64) {
            self.policy.heard(&BlockEvent::Forgotten { block, is_again: false });
        }
    }

    /// Planted breaks, each red: one use is enough for the main queue; a unit keeps its frequency on the way there.
    #[test]
    fn two_uses_lead_from_the_small_queue_to_the_main_one_and_one_does_not() {
        let mut alone = Alone::new(20);
        (0..20).for_each(|unit| alone.enter(unit, u64::from(unit)));
        [(1, 1), (2, 3), (3, 2)].into_iter().for_each(|(unit, times)| alone.access(unit, times));
        let order: Vec<u32> = std::iter::from_fn(|| alone.victim()).collect();
        assert_eq!(order, [0, 1].into_iter().chain(4..20).chain([2, 3]).collect::<Vec<_>>());
    }

    /// Planted break: a unit of the main queue leaves though it was used, red.
    #[test]
    fn in_the_main_queue_each_use_is_worth_another_round() {
        let mut alone = Alone::new(3);
        for unit in 0..3 {
            alone.forget(u64::from(unit));
            alone.enter(unit, unit.into());
        }
        alone.access(0, 2);
        alone.access(1, 1);
        assert_eq!([(); 4].map(|()| alone.victim()), [Some(2), Some(1), Some(0), None]);
    }

    /// Planted break: a unit that came back as a ghost is in the small queue, red.
    #[test]
    fn what_comes_back_soon_stays_longer_than_what_is_new() {
        let mut alone = Alone::new(10);
        alone.forget(3);
        (0..10).for_each(|unit| alone.enter(unit, u64::from(unit)));
        let order = [(); 10].map(|()| alone.victim().unwrap());
        assert_eq!(order, [0, 1, 2, 4, 5, 6, 7, 8, 9, 3]);
    }

    /// Planted break: a search has no bound, red.
    #[test]
    fn a_search_ends_though_every_unit_was_used() {
        let mut alone = Alone::new(2 * LOOKS_MAX);
        for unit in 0..2 * LOOKS_MAX {
            alone.enter(unit, unit.into());
            alone.access(unit, FREQUENCY_MAX);
        }
        assert_eq!(alone.victim(), Some(LOOKS_MAX));
    }

    proptest! {
        /// Beside a queue of eight in which names stand. Planted break: what is taken stays, red.
        #[test]
        fn one_set_of_ghosts_is_a_queue_of_eight(
            steps in prop::collection::vec((0u64..20, any::<bool>()), 0..200), seed in any::<u64>(),
        ) {
            let (mut ghosts, mut slow) = (GhostQueue::new(8, seed), VecDeque::new());
            for (block, is_pushed) in steps {
                let name = ghosts.place(block).1;
                if is_pushed {
                    ghosts.push(block);
                    slow.push_front(name);
                    slow.truncate(8);
                } else {
                    let at = slow.iter().position(|&other| other == name);
                    prop_assert_eq!(ghosts.take(block), at.is_some());
                    at.map(|at| slow.remove(at));
                }
            }
        }
    }

    #[test]
    fn the_last_that_left_are_known_and_one_stranger_in_32_is() {
        let mut ghosts = GhostQueue::new(8192, 7);
        (0..8192).for_each(|block| ghosts.push(block));
        let strangers = (1 << 20..(1 << 20) + 10_000).filter(|&block| ghosts.take(block)).count();
        assert!(strangers < 400, "{strangers} of 10,000");
        let mut ghosts = GhostQueue::new(8192, 7);
        (0..8192).for_each(|block| ghosts.push(block));
        let known = (4096..8192).filter(|&block| ghosts.take(block)).count();
        assert!(known > 3800, "{known} of the younger half");
    }
}
