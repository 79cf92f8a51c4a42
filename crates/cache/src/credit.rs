//! Age against credit: between plain LRU, which knows nothing of its units, and strict priorities, which never forget
//! one.
//!
//! **The intuition.** Under LRU a unit has one life: as long as the cache takes to be filled once. A block that was
//! used again, and a block of an important class, deserve a longer one, but not an endless one. So each has a *credit*,
//! in units taken in: it may grow older than the others by so much before it leaves. (The idea is GreedyDual's: Young,
//! *Algorithmica* 11, 1994.)
//!
//! **The rule.** The unit leaves with the highest age less credit. What a priority is worth depends on which of two
//! *ways* the cache goes. In the *strict* one it is worth an endless age, as in the paper's selective eviction. In the
//! *level* one it is worth a tenth of the cache's size, and then hardly anything is lost against LRU. Both need the
//! same lists, so that a change of ways costs nothing. Trying both on a sample ([`duel`](crate::duel)) decides between
//! them. There it is seen, too, which classes leave without having been used: they are not taken in.
//!
//! In the level way repeated use is worth something. How much is learned, as in ARC (Megiddo and Modha, FAST 2003),
//! from units that left a short while ago. If a block that was used once comes back soon, it was sent away too early,
//! and the credit shrinks. If a block that was used again comes back soon, it needed a longer credit, and the credit
//! grows.
//!
//! **The complication.** A read ahead of a sequential reader, or a program's second look, is no second use. A unit
//! counts as used again if it is used at an age of at least a 32nd of the cache's size. Before, it keeps its place. A
//! block that comes back from among the ghosts counts as used again.
//!
//! The ghosts remember a tenth of the cache's size and no more, so that they speak of what a *little* longer life would
//! have changed. Each changes the credit by less than a unit. Longer memories and larger steps have more hits on most
//! traces. Where a loop just fits into the cache they lost up to 9 % against LRU, these 0.6 %
//! (`docs/cache-policies.md`). In the strict way repeated use has no credit. With one, the paper's file server had as
//! many hits, was 3 % slower, and its tar 30 %.

use crate::access::Access;
use crate::aged_lists::{AgedLists, AtOnce};
use crate::duel::{Duel, Way};
use crate::ghosts::Ghosts;
use crate::partition::{Among, Partition};
use crate::policy::{Anatomy, Arrival, BlockEvent, CachePolicy, PolicyConfig, PolicyEntry};
use crate::selective::ClassRules;
use crate::units::{UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, PRIORITIES};

/// Credit of a priority in the level way, as a part of the cache's size. Chosen on `hplajw` and on two runs of TPC-H,
/// from a tenth, a fifth, a quarter, a third, a half and all of it. With a tenth tables left for indexes that were
/// being made.
const PRIORITY_PARTS: i64 = 4;
/// What a priority is worth in the strict way: more than any age.
const PRIORITY_ENDLESS: i64 = 1 << 40;
/// Least age of a second use, as a part of the cache's size. Chosen on the public traces, from 0, 0.03, 0.05 and 0.1.
const AGAIN_PARTS: u64 = 32;
/// Ghosts of each kind, as a part of the cache's size; chosen from 0.1, 0.2, 0.25, 0.5 and 1.
const GHOST_PARTS: u32 = 10;
/// Halves of a unit by which one ghost changes the credit of repeated use. Chosen from half a unit, 1, 2, 4, 8, 16 and
/// 32.
const LEARNED_HALVES: i64 = 1;
/// What repeated use may be worth at the most, in sizes of the cache.
const AGAIN_SIZES_MAX: i64 = 3;
/// Lists of used once and used again.
const SEGMENTS: usize = 2;

/// Credit on the level way for ever.
pub(crate) static LEVEL: PolicyEntry =
    PolicyEntry { name: "level", summary: "credit, the level way", build: |config| Box::new(Credit::level(config)) };

/// The policy.
pub struct Credit {
    way: Way,
    /// Says which way, if there is a choice.
    duel: Option<Box<Duel>>,
    lists: AgedLists,
    rules: ClassRules,
    /// Ghosts of blocks used once, and of blocks used again.
    ghosts: Ghosts,
    units: i64,
    /// What repeated use is worth, in halves of a unit.
    again_halves: i64,
}

/// In which of its group's lists a unit stands.
fn list_in_group(rules: &ClassRules, class: Class, is_again: bool) -> usize {
    rules.priority(class) * SEGMENTS + usize::from(is_again)
}

impl Credit {
    /// For the cache of `config`.
    pub fn new(config: &PolicyConfig<'_>) -> Credit {
        let level = Credit::level(config);
        if level.rules.has_one_priority() {
            return level;
        }
        Credit { way: Way::START, duel: Some(Box::new(Duel::new(config.cache, &LEVEL))), ..level }
    }

    /// The same, going the level way for ever.
    pub fn level(config: &PolicyConfig<'_>) -> Credit {
        let cache = config.cache;
        Credit {
            way: Way::Level,
            duel: None,
            lists: AgedLists::new(cache.units, config.groups, usize::from(PRIORITIES) * SEGMENTS),
            rules: ClassRules::new(&cache.scheme),
            ghosts: Ghosts::new(cache.units / GHOST_PARTS, cache.seed),
            units: i64::from(cache.units),
            again_halves: 0,
        }
    }

    fn place(&self, units: &Units, partition: &Partition, unit: UnitId) -> (usize, usize) {
        let class = units.class(unit);
        let list = list_in_group(&self.rules, class, units.is_again(unit));
        (partition.group(class, units.pool(unit)), list)
    }

    fn push(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        let (group, list) = self.place(units, partition, unit);
        self.lists.push(units, group, list, unit);
    }

    /// A block that came back soon would not have had to leave.
    fn learn(&mut self, was_again: bool) {
        if self.way == Way::Strict {
            return;
        }
        let change = if was_again { LEARNED_HALVES } else { -LEARNED_HALVES };
        self.again_halves = (self.again_halves + change).clamp(0, AGAIN_SIZES_MAX * self.units * 2);
    }
}

impl CachePolicy for Credit {
    fn heard(&mut self, event: &BlockEvent<'_>) {
        match (*event, &mut self.duel) {
            (BlockEvent::Asked { access, is_awake }, Some(duel)) => {
                let is_busy = is_awake && self.rules.admission(access) == Admission::WhileIdle;
                self.way = duel.observed(access, is_busy);
            }
            (BlockEvent::Trimmed { block }, Some(duel)) => duel.trimmed(block),
            (BlockEvent::Forgotten { block, is_again }, _) => self.ghosts.push(block, is_again),
            (BlockEvent::Asked { .. } | BlockEvent::Trimmed { .. }, None) => {}
        }
    }

    fn admission(&self, access: &Access) -> Admission {
        self.ghosts.prefetch(access.block);
        let admission = self.rules.admission(access);
        let is_in_vain = |duel: &Duel| admission == Admission::WhileIdle && duel.is_in_vain(access.class);
        if self.duel.as_deref().is_some_and(is_in_vain) { Admission::Never } else { admission }
    }

    fn entered(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, arrival: Arrival) {
        match arrival {
            Arrival::New => {
                self.lists.grow_older();
                let came_back = self.ghosts.take(units.block(unit));
                if let Some(was_again) = came_back {
                    self.learn(was_again);
                }
                units.set_again(unit, came_back.is_some());
            }
            Arrival::Returned => {
                self.learn(units.is_again(unit));
                units.set_again(unit, true);
            }
            Arrival::Restored => self.lists.grow_older(),
        }
        self.push(units, partition, unit);
    }

    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class) {
        let is_second = units.is_again(unit) || self.lists.age(units, unit) >= self.units as u64 / AGAIN_PARTS;
        if self.way == Way::Level && !is_second && units.class(unit) == class {
            return;
        }
        self.left(units, partition, unit, None);
        units.set_class(unit, class);
        units.set_again(unit, is_second);
        self.push(units, partition, unit);
    }

    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId> {
        let (way, again, size) = (self.way, self.again_halves / 2, self.units);
        self.lists.pop(units, partition, among, |list| {
            let higher = i64::from(PRIORITIES) - 1 - (list / SEGMENTS) as i64;
            match way {
                Way::Strict => higher * PRIORITY_ENDLESS,
                Way::Level => higher * size / PRIORITY_PARTS + if list % SEGMENTS == 1 { again } else { 0 },
            }
        })
    }

    fn left(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, successor: Option<UnitId>) {
        let (group, list) = self.place(units, partition, unit);
        self.lists.take(units, group, list, unit, successor);
    }

    fn age(&self, units: &Units, unit: UnitId) -> u64 {
        self.lists.age(units, unit)
    }

    fn anatomy(&self) -> Anatomy<'_> {
        let bytes = self.ghosts.bytes() + self.duel.as_ref().map_or(0, |duel| duel.bytes());
        Anatomy { lists: Some(self.lists.all()), bytes }
    }

    fn at_once(&mut self) -> Option<AtOnce<'_>> {
        let rules = &self.rules;
        Some(AtOnce::new(&mut self.lists, |class, is_again| list_in_group(rules, class, is_again)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Outcome};
    use crate::config::CacheConfig;
    use crate::units::Pool;
    use plimsoll_core::class::{ClassEntry, Scheme};

    /// A database makes an index: more of it passes than the cache is large, and its tables stay. Planted break: a
    /// priority is worth a tenth.
    #[test]
    fn what_passes_by_does_not_send_away_what_is_twelve_priorities_higher() {
        const UNITS: u32 = 1000;
        let [table, index] = [24, 25].map(|number| Class::new(number).unwrap());
        let mut scheme = Scheme::default();
        scheme.set(ClassEntry::new(table, "table", 0));
        scheme.set(ClassEntry::new(index, "index", 12));
        let mut cache = Cache::new(&CacheConfig::new(UNITS, scheme), &LEVEL).unwrap();
        let mut read = |block, class| {
            let outcome = cache.access(&Access { block, class, pool: Pool::default(), is_write: false });
            matches!(outcome, Outcome::Hit(_))
        };
        let tables = 0..u64::from(UNITS / 2);
        tables.clone().for_each(|block| _ = read(block, table));
        (0..u64::from(UNITS) * 5 / 2).for_each(|block| _ = read(1 << 20 | block, index));
        assert!(tables.clone().all(|block| read(block, table)), "two and a half caches have passed");
        (0..u64::from(UNITS) * 4).for_each(|block| _ = read(1 << 21 | block, index));
        assert!(!tables.clone().any(|block| read(block, table)), "four more: an unused block leaves in the end");
    }

    #[test]
    fn what_repeated_use_is_worth_is_learned_on_the_level_way_only() {
        let mut scheme = Scheme::default();
        scheme.set(ClassEntry::new(Class::new(1).unwrap(), "important", 0));
        let cache = CacheConfig::new(100, scheme);
        let config = PolicyConfig { cache: &cache, groups: 1 };
        let learned = |mut credit: Credit| {
            (0..10).for_each(|_| credit.learn(true));
            (credit.way, credit.again_halves)
        };
        assert_eq!(learned(Credit::new(&config)), (Way::Strict, 0));
        assert_eq!(learned(Credit::level(&config)), (Way::Level, 10));
    }
}
