//! The cache: who is in which unit, and what happens next. See the crate's page for a unit's way.
//!
//! **An access** finds the block in a unit, or takes a free unit for it, or goes past the cache: because the policy refuses it,
//! because the class comes in only while the syncer sleeps, or because nobody is free.
//!
//! **The syncer** wakes up when fewer units are free than the low watermark, and sleeps when as many are free as the high one. Awake,
//! it takes the next units out of the policy's order. Clean ones are free at once. Dirty ones are handed out as
//! [`CleanJob`]s; the host copies them to the store and says [`Cache::cleaned`]. A free unit's block stays readable until
//! another gets the unit, oldest first, and returns into the order when it is used: so with all units clean the whole
//! cache is in the policy's order, free ones included.
//!
//! A block that is in the cache is read and written there, whatever its class: admission is about coming in.

use crate::index::{Index, UNITS_MAX};
use crate::partition::{Among, GROUPS_MAX, Partition};
use crate::policy::{CachePolicy, PolicyConfig, PolicyEntry};
use crate::units::{BLOCKS_MAX, List, Pool, State, UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, Scheme};
use std::collections::VecDeque;
use std::fmt;

/// The high watermark of free units, in parts of the cache (ours; the paper does not say): so little is nearly all cache, so
/// much is a burst of a second or two of writes.
pub const WATERMARK_HIGH_PARTS: u32 = 50;
/// The low watermark, in parts of the cache.
pub const WATERMARK_LOW_PARTS: u32 = 100;

/// What a cache is made from.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Units of 4 KiB on the fast device, 1 to 2^27 - 1.
    pub units: u32,
    /// Free units below which the syncer wakes up; at most the high watermark.
    pub watermark_low: u32,
    /// Free units at which it goes to sleep; at most `units`.
    pub watermark_high: u32,
    /// Whether a read may take a block in at all.
    pub promotes_reads: bool,
    /// The classes.
    pub scheme: Scheme,
    /// Pools that may fill only a part of the cache, above 0 to 1.
    pub pools: Vec<(Pool, f64)>,
    /// For hashes.
    pub seed: u64,
}

impl CacheConfig {
    /// A cache of `units` with the usual watermarks, that promotes reads and has no bounds beyond those of `scheme`.
    pub fn new(units: u32, scheme: Scheme) -> CacheConfig {
        let part = |parts: u32| (units / parts).max(1);
        CacheConfig {
            units,
            watermark_low: part(WATERMARK_LOW_PARTS),
            watermark_high: part(WATERMARK_HIGH_PARTS),
            promotes_reads: true,
            scheme,
            pools: Vec::new(),
            seed: 0,
        }
    }
}

/// What is wrong with a [`CacheConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it is.
    pub got: String,
    /// What it may be.
    pub allowed: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: got {}, allowed {}", self.field, self.got, self.allowed)
    }
}

impl std::error::Error for ConfigError {}

/// A read or a write of one unit's worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The block of the store, below 2^36.
    pub block: u64,
    /// What it is.
    pub class: Class,
    /// Whose it is.
    pub pool: Pool,
    /// Whether it is written.
    pub is_write: bool,
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The block is in this unit.
    Hit(UnitId),
    /// It was not in the cache and gets this unit: a write goes there, a read comes from the store and is copied there.
    Taken(UnitId),
    /// Past the cache: the policy or the class does not want it there.
    Refused,
    /// Past the cache: the syncer is awake, and its class waits for it to sleep.
    Busy,
    /// Past the cache: no unit is free.
    Full,
}

/// A unit that the host copies to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanJob {
    /// From.
    pub unit: UnitId,
    /// To.
    pub block: u64,
    /// What it is.
    pub class: Class,
    /// Whose it is.
    pub pool: Pool,
}

/// A cache's index and order.
pub struct Cache {
    units: Units,
    index: Index,
    empty: List,
    free: List,
    policy: Box<dyn CachePolicy>,
    partition: Partition,
    /// Victims that are dirty, in the order in which they left.
    to_clean: VecDeque<UnitId>,
    /// Of those the ones that the host copies.
    cleaning: u32,
    is_awake: bool,
    watermark_low: u32,
    watermark_high: u32,
    promotes_reads: bool,
}

/// The block of a unit that was trimmed while it was being copied.
const TRIMMED: u64 = BLOCKS_MAX - 1;

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// What of `config` is out of range.
    pub fn new(config: &CacheConfig, policy: &PolicyEntry) -> Result<Cache, ConfigError> {
        let error = |field, got: String, allowed: String| Err(ConfigError { field, got, allowed });
        if !(1..=UNITS_MAX).contains(&config.units) {
            return error("units", config.units.to_string(), format!("1 to {UNITS_MAX}"));
        }
        if !(1..=config.units).contains(&config.watermark_high) {
            return error("watermark_high", config.watermark_high.to_string(), format!("1 to {}", config.units));
        }
        if !(1..=config.watermark_high).contains(&config.watermark_low) {
            return error("watermark_low", config.watermark_low.to_string(), format!("1 to {}", config.watermark_high));
        }
        if let Some((pool, part)) = config.pools.iter().find(|(_, part)| !(*part > 0.0 && *part <= 1.0)) {
            return error("pools", format!("{part} for pool {}", pool.number()), "above 0 and at most 1".into());
        }
        let Some(partition) = Partition::new(config.units, &config.scheme, &config.pools) else {
            let got = format!("{} pools with a bound", config.pools.len());
            return error(
                "pools",
                got,
                format!("(classes with a bound + 1) x (pools with one + 1) up to {GROUPS_MAX}"),
            );
        };
        let (mut units, mut empty) = (Units::new(config.units), List::default());
        (0..config.units).for_each(|unit| empty.push(&mut units, UnitId(unit)));
        let groups = partition.groups();
        let made_from = PolicyConfig { units: config.units, groups, scheme: &config.scheme, seed: config.seed };
        Ok(Cache {
            units,
            index: Index::new(config.units, config.seed),
            empty,
            free: List::default(),
            policy: (policy.build)(&made_from),
            partition,
            to_clean: VecDeque::new(),
            cleaning: 0,
            is_awake: false,
            watermark_low: config.watermark_low,
            watermark_high: config.watermark_high,
            promotes_reads: config.promotes_reads,
        })
    }

    /// Bytes that grow with the units.
    pub fn bytes(&self) -> usize {
        self.units.bytes() + self.index.bytes() + self.policy.bytes()
    }

    /// Units that another block could get at once.
    pub fn free_units(&self) -> u32 {
        self.empty.len() + self.free.len()
    }

    /// Units of a class in the policy's order: what is free or being cleaned does not count.
    pub fn class_units(&self, class: Class) -> u32 {
        self.partition.class_units(class)
    }

    /// Units of a pool in the policy's order.
    pub fn pool_units(&self, pool: Pool) -> u32 {
        self.partition.pool_units(pool)
    }

    /// Whether the syncer is making room.
    pub fn is_syncer_awake(&self) -> bool {
        self.is_awake
    }

    /// Starts loading what an access to `block` will look at.
    #[inline]
    pub fn prefetch(&self, block: u64) {
        self.index.prefetch(block);
    }

    /// The unit of `block`, without using it.
    #[inline]
    pub fn find(&self, block: u64) -> Option<UnitId> {
        self.index.find(&self.units, block)
    }

    /// Whether the store lacks what `unit` holds.
    pub fn is_dirty(&self, unit: UnitId) -> bool {
        self.units.is_dirty(unit)
    }

    /// A block is read or written.
    pub fn access(&mut self, access: &Access) -> Outcome {
        debug_assert!(access.block < TRIMMED, "block {}", access.block);
        if let Some(unit) = self.index.find(&self.units, access.block) {
            if access.is_write {
                self.units.set_dirty(unit, true);
            }
            self.hit(unit, access.class);
            return Outcome::Hit(unit);
        }
        match self.policy.admission(access) {
            Admission::Never => return Outcome::Refused,
            _ if !access.is_write && !self.promotes_reads => return Outcome::Refused,
            Admission::WhileIdle if self.is_awake => return Outcome::Busy,
            Admission::Always | Admission::WhileIdle => {}
        }
        let Some(unit) = self.free_unit() else { return Outcome::Full };
        self.units.fill(unit, access.block, access.class, access.pool);
        self.units.set_dirty(unit, access.is_write);
        self.index.insert(access.block, unit);
        self.make_room(unit);
        self.policy.inserted(&mut self.units, &self.partition, unit);
        self.refill();
        Outcome::Taken(unit)
    }

    fn hit(&mut self, unit: UnitId, class: Class) {
        match self.units.state(unit) {
            State::InOrder => {
                let old = self.units.class(unit);
                self.policy.accessed(&mut self.units, &self.partition, unit, class);
                if old != class {
                    self.reclassified(unit, old, class);
                }
            }
            State::Cleaning | State::Wanted => {
                self.units.set_class(unit, class);
                self.units.set_state(unit, State::Wanted);
            }
            State::Free => {
                self.free.remove(&mut self.units, unit);
                self.units.set_class(unit, class);
                self.give_back(unit);
                self.refill();
            }
        }
    }

    /// A unit in order became one of another class: if that is beyond its bound now, it gives up its oldest.
    fn reclassified(&mut self, unit: UnitId, old: Class, class: Class) {
        let pool = self.units.pool(unit);
        self.partition.left(old, pool);
        self.partition.came(class, pool);
        while self.partition.is_beyond(class) {
            self.expel(Among::Class(class));
        }
    }

    /// `unit` comes into the order: who is at a bound gives a unit up first.
    fn make_room(&mut self, unit: UnitId) {
        let (class, pool) = (self.units.class(unit), self.units.pool(unit));
        while let Some(among) = self.partition.must_make_room(class, pool) {
            self.expel(among);
        }
        self.partition.came(class, pool);
        self.units.set_state(unit, State::InOrder);
    }

    /// A victim that was used after all is back in the order.
    fn give_back(&mut self, unit: UnitId) {
        self.make_room(unit);
        self.policy.returned(&mut self.units, &self.partition, unit);
    }

    /// The next unit leaves the order. False if there is none.
    fn expel(&mut self, among: Among) -> bool {
        let Some(unit) = self.policy.victim(&mut self.units, &self.partition, among) else { return false };
        self.partition.left(self.units.class(unit), self.units.pool(unit));
        if self.units.is_dirty(unit) {
            self.units.set_state(unit, State::Cleaning);
            self.to_clean.push_back(unit);
        } else {
            self.units.set_state(unit, State::Free);
            self.free.push(&mut self.units, unit);
        }
        true
    }

    fn free_unit(&mut self) -> Option<UnitId> {
        if let Some(unit) = self.empty.pop(&mut self.units) {
            return Some(unit);
        }
        let unit = self.free.pop(&mut self.units)?;
        self.policy.forgotten(&self.units, unit);
        self.index.remove(&self.units, self.units.block(unit));
        Some(unit)
    }

    /// Lets units leave until those that are free, or will be when they are clean, reach the high watermark.
    fn refill(&mut self) {
        let free = self.free_units();
        if free < self.watermark_low {
            self.is_awake = true;
        }
        if !self.is_awake {
            return;
        }
        while self.free_units() + self.to_clean.len() as u32 + self.cleaning < self.watermark_high {
            if !self.expel(Among::All) {
                break;
            }
        }
        self.is_awake = self.free_units() < self.watermark_high;
    }

    /// The next dirty unit that has to be written back, if there is one.
    pub fn clean_next(&mut self) -> Option<CleanJob> {
        let unit = self.to_clean.pop_front()?;
        self.units.set_dirty(unit, false);
        self.cleaning += 1;
        let units = &self.units;
        Some(CleanJob { unit, block: units.block(unit), class: units.class(unit), pool: units.pool(unit) })
    }

    /// The store has, durably, what a job was made for.
    pub fn cleaned(&mut self, unit: UnitId) {
        self.cleaning -= 1;
        if self.units.block(unit) == TRIMMED {
            self.empty.push(&mut self.units, unit);
        } else if self.units.is_dirty(unit) || self.units.state(unit) == State::Wanted {
            self.give_back(unit);
        } else {
            self.units.set_state(unit, State::Free);
            self.free.push(&mut self.units, unit);
        }
        self.refill();
    }

    /// The store could not take it: the unit is dirty as before and returns into the order.
    pub fn clean_failed(&mut self, unit: UnitId) {
        if self.units.block(unit) != TRIMMED {
            self.units.set_dirty(unit, true);
        }
        self.cleaned(unit);
    }

    /// Nobody needs `block` any more: its unit is empty at once, or when the host has finished copying it.
    pub fn trim(&mut self, block: u64) {
        let Some(unit) = self.index.find(&self.units, block) else { return };
        self.index.remove(&self.units, block);
        match self.units.state(unit) {
            State::InOrder => {
                self.policy.removed(&mut self.units, &self.partition, unit);
                self.partition.left(self.units.class(unit), self.units.pool(unit));
            }
            State::Free => self.free.remove(&mut self.units, unit),
            State::Cleaning | State::Wanted => match self.to_clean.iter().position(|&other| other == unit) {
                Some(at) => drop(self.to_clean.remove(at)),
                None => {
                    self.units.fill(unit, TRIMMED, Class::UNCLASSIFIED, Pool::default());
                    self.units.set_state(unit, State::Cleaning);
                    return;
                }
            },
        }
        self.empty.push(&mut self.units, unit);
    }
}
