//! The choice between two ways of [`credit`](crate::credit): two small caches tell which has cheaper misses.
//!
//! **The intuition.** No way of weighing a class's priority against age is right everywhere. On a file server, strict
//! priorities more than halve the time. On a machine that seldom reads metadata again, they cost half as many misses
//! more. But both can be tried at once on paper. Two *shadows*, caches without data, see the accesses to a sample of
//! all blocks. Their size is smaller by the same factor (Waldspurger et al., *Efficient MRC construction with SHARDS*,
//! FAST 2015). One always goes the strict way, the other always the level one. The cache goes the way of the shadow
//! that does better.
//!
//! **The rule.** The cache begins on the strict way, because the scheme says what is more important. It leaves that way
//! as soon as misses surely cost more there ([`MissCosts`]), and returns when they surely cost less. A class with
//! blocks that leave the strict shadow unused is not taken in, where the scheme leaves that open ([`Stays`]).
//!
//! **Surely**: the difference is greater than [`SURE_DEVIATIONS`] standard deviations. Misses come in runs and not one
//! by one, so what is taken for independent is the difference over a batch of misses. What is older than two turnovers
//! of a shadow counts for a quarter at the most.
//!
//! **The complication.** A shadow's syncer is never behind. Where a class comes in only while the syncer sleeps, the
//! cache's syncer is asked. Shadows are empty at a start, also at one that finds the cache full. Until they are full
//! they have the same hits, and nothing changes.

use crate::access::Access;
use crate::cache::{Cache, Outcome};
use crate::config::CacheConfig;
use crate::ghosts::hash;
use crate::miss_costs::MissCosts;
use crate::policy::PolicyEntry;
use crate::selective::Selective;
use crate::stays::Stays;
use plimsoll_core::Class;

/// Units of a shadow as a part of the cache's. Two shadows of 22.8 bytes a unit take less than a tenth of a byte a
/// cached unit.
const SHADOW_PARTS: u32 = 512;
/// Least units of a shadow. A cache with no more is its own sample.
const SHADOW_UNITS_MIN: u32 = 2048;
/// Standard deviations that are not a chance.
pub const SURE_DEVIATIONS: f64 = 3.0;
/// Batches of misses in a turnover of a shadow.
const BATCHES: u32 = 256;
/// Turnovers of both shadows together after which what was counted counts half.
const TURNOVERS: f64 = 4.0;

/// What priorities are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// An endless credit: all units of a lower priority leave before the first of a higher one.
    Strict,
    /// A part of the cache's size.
    Level,
}

impl Way {
    /// The way of a cache of which nothing is known.
    pub const START: Way = Way::Strict;
}

static STRICT: PolicyEntry = PolicyEntry {
    name: "strict",
    summary: "credit, the strict way, which is the paper's",
    build: |config| Box::new(Selective::new(config)),
};

/// A difference between the two ways: the strict one's surplus in all, and the squares of its surplus in each batch.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    sum: f64,
    squares: f64,
    of_batch: f64,
}

impl Difference {
    fn end_batch(&mut self) {
        self.sum += self.of_batch;
        self.squares += self.of_batch * self.of_batch;
        self.of_batch = 0.0;
    }

    /// A sum of halves has a quarter of the variance.
    fn halve(&mut self) {
        (self.sum, self.squares) = (self.sum / 2.0, self.squares / 4.0);
    }

    fn is_surely_more(&self) -> bool {
        self.sum > SURE_DEVIATIONS * self.squares.sqrt()
    }

    fn is_surely_less(&self) -> bool {
        -self.sum > SURE_DEVIATIONS * self.squares.sqrt()
    }
}

/// How the two ways did lately, and what follows.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Units of a shadow.
    units: f64,
    /// Misses of both ways.
    misses: f64,
    batch_misses_max: f64,
    batch_misses: f64,
    cost_more: Difference,
}

impl Tally {
    /// For shadows of `units`.
    pub fn new(units: u32) -> Tally {
        Tally {
            units: units.into(),
            misses: 0.0,
            batch_misses_max: (units / BATCHES).max(1).into(),
            batch_misses: 0.0,
            cost_more: Difference::default(),
        }
    }

    /// Counts an access with the outcome under each way. A miss costs `cost`.
    pub fn count(&mut self, is_strict_hit: bool, is_level_hit: bool, cost: f64) {
        let [strict, level] = [is_strict_hit, is_level_hit].map(|is_hit| f64::from(u8::from(!is_hit)));
        self.misses += strict + level;
        self.batch_misses += strict + level;
        self.cost_more.of_batch += (strict - level) * cost;
        if self.batch_misses >= self.batch_misses_max {
            self.batch_misses = 0.0;
            self.cost_more.end_batch();
        }
        if self.misses >= TURNOVERS * self.units {
            self.misses /= 2.0;
            self.cost_more.halve();
        }
    }

    /// The way to go for a cache that goes `way`.
    pub fn way_after(&self, way: Way) -> Way {
        if self.cost_more.is_surely_more() {
            Way::Level
        } else if self.cost_more.is_surely_less() {
            Way::Strict
        } else {
            way
        }
    }
}

/// The shadows, and what was learned from them.
pub struct Duel {
    strict: Cache,
    level: Cache,
    costs: MissCosts,
    tally: Tally,
    /// Of blocks in the strict shadow.
    stays: Stays,
    seed: u64,
    /// Blocks with a hash up to that are in the sample.
    hash_max: u64,
    way: Way,
}

impl Duel {
    /// For the cache of `config`. `level` makes the policy of the level way's shadow.
    pub fn new(config: &CacheConfig, level: &PolicyEntry) -> Duel {
        let units = config.units.min(SHADOW_UNITS_MIN.max(config.units / SHADOW_PARTS));
        let shadow = CacheConfig {
            promotes_reads: config.promotes_reads,
            pools: config.pools.clone(),
            // Another one than the sample is taken by.
            seed: config.seed.wrapping_add(1),
            ..CacheConfig::new(units, config.scheme.clone())
        };
        let shadow = |entry| Cache::new(&shadow, entry).expect("as the cache itself");
        let part = f64::from(units) / f64::from(config.units);
        Duel {
            strict: shadow(&STRICT),
            level: shadow(level),
            costs: MissCosts::default(),
            tally: Tally::new(units),
            stays: Stays::new(units),
            seed: config.seed,
            hash_max: (part * u64::MAX as f64) as u64,
            way: Way::START,
        }
    }

    fn is_in_sample(&self, block: u64) -> bool {
        hash(block, self.seed) <= self.hash_max
    }

    /// The way to go after `access`. `is_busy`: its class enters only while the syncer sleeps, and the syncer is awake.
    #[inline]
    pub fn observed(&mut self, access: &Access, is_busy: bool) -> Way {
        self.costs.observed(access.block, access.class);
        if self.is_in_sample(access.block) {
            self.try_both(access, is_busy);
        }
        self.way
    }

    fn try_both(&mut self, access: &Access, is_busy: bool) {
        let outcomes = [&mut self.strict, &mut self.level].map(|shadow| outcome(shadow, access, is_busy));
        let hits = outcomes.map(|outcome| matches!(outcome, Outcome::Hit(_)));
        if hits[0] || matches!(outcomes[0], Outcome::Taken(_)) {
            self.stays.observed(access.class, hits[0], self.strict.class_units(access.class));
        }
        self.tally.count(hits[0], hits[1], self.costs.of(access.class));
        self.way = self.tally.way_after(self.way);
    }

    /// Whether the strict way does better without blocks of `class`, which leave again without a use.
    pub fn is_in_vain(&self, class: Class) -> bool {
        self.way == Way::Strict && self.stays.are_in_vain(class)
    }

    /// The host does not need `block` any more.
    pub fn trimmed(&mut self, block: u64) {
        if self.is_in_sample(block) {
            [&mut self.strict, &mut self.level].into_iter().for_each(|shadow| shadow.trim(block));
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.strict.bytes() + self.level.bytes()
    }
}

fn outcome(shadow: &mut Cache, access: &Access, is_busy: bool) -> Outcome {
    if is_busy && shadow.find(access.block).is_none() {
        return Outcome::Busy;
    }
    let outcome = shadow.access(access);
    while let Some(job) = shadow.clean_next() {
        shadow.cleaned(job.unit);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credit::LEVEL;
    use crate::units::Pool;
    use plimsoll_core::Class;
    use plimsoll_core::class::{ClassEntry, Scheme};

    const UNITS: u32 = 8192;
    /// A class with a priority higher than `DATA`.
    const SMALL: u8 = 1;
    const DATA: u8 = 2;

    fn duel() -> Duel {
        let mut scheme = Scheme::default();
        for (number, priority) in [(SMALL, 3), (DATA, 4)] {
            scheme.set(ClassEntry::new(Class::new(number).unwrap(), &format!("class-{number}"), priority));
        }
        Duel::new(&CacheConfig::new(UNITS, scheme), &LEVEL)
    }

    struct Load {
        duel: Duel,
        /// The next block that was never used.
        fresh: u64,
    }

    impl Load {
        fn read(&mut self, block: u64, class: u8) -> Way {
            let access = Access { block, class: Class::new(class).unwrap(), pool: Pool::default(), is_write: false };
            self.duel.observed(&access, false)
        }

        fn read_fresh(&mut self, class: u8) {
            self.fresh += 1;
            self.read(self.fresh, class);
        }

        /// Small files are read again, but only after more data than the cache has room for.
        fn important_ones_come_back(&mut self) -> Way {
            for _ in 0..4 {
                for file in 0..4000 {
                    self.read(file * 10, SMALL);
                }
                (0..3 * UNITS).for_each(|_| self.read_fresh(DATA));
            }
            self.duel.way
        }

        /// Data is read again soon, small files never.
        fn important_ones_do_not_come_back(&mut self) -> Way {
            for turn in 0..6 * u64::from(UNITS) {
                self.read_fresh(SMALL);
                self.read(1_000_000 + turn % 3000, DATA);
            }
            self.duel.way
        }
    }

    /// Promise: cache-credit-way.
    #[test]
    fn it_changes_its_way_when_what_is_used_again_changes() {
        let mut load = Load { duel: duel(), fresh: 10_000_000 };
        assert_eq!(load.read(0, SMALL), Way::Strict, "nothing is known yet");
        assert_eq!(load.important_ones_come_back(), Way::Strict);
        assert_eq!(load.important_ones_do_not_come_back(), Way::Level);
        assert_eq!(load.important_ones_come_back(), Way::Strict);
    }

    #[test]
    fn the_sample_is_a_part_of_all_blocks_and_the_whole_of_a_small_cache() {
        let of = |units| Duel::new(&CacheConfig::new(units, Scheme::default()), &LEVEL);
        let (small, large) = (of(SHADOW_UNITS_MIN), of(SHADOW_UNITS_MIN * 4));
        assert!((0..100_000).all(|block| small.is_in_sample(block)));
        let sampled = (0..100_000).filter(|&block| large.is_in_sample(block)).count();
        assert!((24_000..26_000).contains(&sampled), "{sampled} of 100,000");
        assert_eq!(large.level.empty_units(), SHADOW_UNITS_MIN);
    }

    /// Plays `turn` so often: hits under the strict and the level way, and the cost of a miss.
    fn tally(units: u32, turns: usize, turn: &[(bool, bool, f64)]) -> Tally {
        let mut tally = Tally::new(units);
        for _ in 0..turns {
            turn.iter().for_each(|&(is_strict_hit, is_level_hit, cost)| tally.count(is_strict_hit, is_level_hit, cost));
        }
        tally
    }

    /// Promise: cache-credit-way.
    #[test]
    fn the_way_is_that_whose_misses_cost_less() {
        let (strict_misses, level_misses, both_miss) = ((false, true), (true, false), (false, false));
        let ways = |turns: &[_]| {
            let turns: Vec<_> = turns.iter().map(|&((strict, level), cost)| (strict, level, cost)).collect();
            let tally = tally(2048, 500, &turns);
            [Way::Strict, Way::Level].map(|way| tally.way_after(way))
        };
        let dear = (level_misses, 400.0);
        assert_eq!(ways(&[dear, (both_miss, 1.0)]), [Way::Strict; 2]);
        assert_eq!(ways(&[dear, (strict_misses, 1.0), (strict_misses, 1.0)]), [Way::Strict; 2], "more of cheaper ones");
        assert_eq!(ways(&[(strict_misses, 400.0), (level_misses, 1.0)]), [Way::Level; 2], "dearer ones");
        assert_eq!(
            ways(&[(strict_misses, 9.0), (level_misses, 9.0)]),
            [Way::Strict, Way::Level],
            "the leaving block \
                                                                                                   goes on"
        );
    }

    /// Promise: cache-credit-way.
    #[test]
    fn a_run_of_misses_is_one_chance_and_not_many() {
        let batch = 65_536 / BATCHES as usize;
        let one_run = [vec![(false, true, 9.0); batch / 2], vec![(false, false, 9.0); batch / 2]].concat();
        assert_eq!(tally(65_536, 1, &one_run).way_after(Way::Strict), Way::Strict);
        assert_eq!(tally(65_536, 20, &one_run).way_after(Way::Strict), Way::Level);
    }

    #[test]
    fn what_was_long_ago_counts_for_little() {
        let mut tally = tally(2048, 40_000, &[(true, false, 9.0)]);
        assert_eq!(tally.way_after(Way::Level), Way::Strict);
        (0..12_000).for_each(|_| tally.count(false, true, 9.0));
        assert_eq!(tally.way_after(Way::Strict), Way::Level);
    }
}
