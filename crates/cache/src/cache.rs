//! The cache: which block is in which unit, and what happens next. See the crate's page for a unit's way.
//!
//! **An access** finds the block in a unit, or takes a free unit for it, or bypasses the cache. It bypasses the cache
//! if the policy refuses it, if the class enters only while the syncer sleeps, or if no unit is free.
//!
//! **The syncer** wakes up when fewer units are free than the low watermark, and sleeps when as many are free as the
//! high one. Awake, it takes the next units out of the policy's order. Clean ones are free at once. Dirty ones are
//! handed out as [`CleanJob`]s; the host copies them to the store and says [`Cache::cleaned`]. A free unit's block
//! stays readable until another block gets the unit, oldest first. If it is used before, it returns into the order. So
//! with all units clean the whole cache is in the policy's order, free units included.
//!
//! A block that is in the cache is read and written there, whatever its class: admission is about coming in.

mod audit;
mod listing;
mod placement;

use crate::access::Access;
use crate::announced::Announced;
use crate::config::{CacheConfig, ConfigError};
use crate::index::{ENTRIES_FILLED, ENTRIES_FILLED_ON_DEVICE, Index};
use crate::partition::{Among, Partition};
use crate::policy::{Arrival, BlockEvent, CachePolicy, PolicyEntry};
use crate::rules::Rules;
use crate::units::{BLOCKS_MAX, List, Pool, State, UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::Admission;

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The block is in this unit.
    Hit(UnitId),
    /// The block was not in the cache and gets this unit. A write goes there; a read comes from the store and is copied
    /// there.
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
    /// The pool that it belongs to.
    pub pool: Pool,
}

/// A unit that the host copies to the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaning {
    pub unit: UnitId,
    /// The number of the job, which no other job ever has.
    pub job: u64,
}

/// A cache's index and order.
pub struct Cache {
    pub(crate) units: Units,
    pub(crate) index: Index,
    pub(crate) empty: List,
    pub(crate) free: List,
    pub(crate) policy: Box<dyn CachePolicy>,
    pub(crate) partition: Partition,
    /// Victims that are dirty, in the order in which they left.
    pub(crate) to_clean: List,
    /// Units that the host copies.
    pub(crate) cleaning: Vec<Cleaning>,
    /// Jobs so far.
    jobs: u64,
    /// Dirty victims that cannot be copied. They stay here until they are used.
    pub(crate) aside: List,
    /// Units that cannot be written: they hold nothing, and no block gets one.
    pub(crate) bad: List,
    /// Units that hold nothing and may not be given away yet.
    pub(crate) in_limbo: u32,
    /// Units so far that left the order clean, and so were free at once.
    pub(crate) given_up_clean: u64,
    announced: Announced,
    is_awake: bool,
    pub(crate) watermark_low: u32,
    pub(crate) watermark_high: u32,
    promotes_reads: bool,
    is_on_device: bool,
}

/// Least number of free units below which the syncer of a cache on a device wakes up. One unit is kept for writes of
/// cached blocks; if the syncer woke up only without it, it would never wake up.
const WATERMARK_ON_DEVICE_MIN: u32 = 2;

/// The block of a unit that was trimmed while it was being copied.
pub(crate) const TRIMMED: u64 = BLOCKS_MAX - 1;

/// The low watermark and the high one.
fn watermarks(config: &CacheConfig, is_on_device: bool) -> (u32, u32) {
    let least = if is_on_device { WATERMARK_ON_DEVICE_MIN } else { 1 };
    (config.watermark_low.max(least), config.watermark_high.max(least))
}

impl Cache {
    /// An empty cache.
    ///
    /// # Errors
    /// What of `config` is out of range.
    pub fn new(config: &CacheConfig, policy: &PolicyEntry) -> Result<Cache, ConfigError> {
        let mut cache = Cache::without_lists(config, policy)?;
        (0..config.units).for_each(|unit| cache.empty.push(&mut cache.units, UnitId(unit)));
        Ok(cache)
    }

    /// A cache with all units outside of all lists, also of the list of empty units.
    pub(crate) fn without_lists(config: &CacheConfig, policy: &PolicyEntry) -> Result<Cache, ConfigError> {
        let rules = Rules::new(config, policy)?;
        let (watermark_low, watermark_high) = watermarks(config, config.is_on_device);
        let filled = if config.is_on_device { ENTRIES_FILLED_ON_DEVICE } else { ENTRIES_FILLED };
        let (units, index) = (Units::new(config.units), Index::new(config.units, filled, config.seed));
        Ok(Cache {
            announced: Announced::new(&index, &units),
            units,
            index,
            empty: List::default(),
            free: List::default(),
            policy: rules.policy,
            partition: rules.partition,
            to_clean: List::default(),
            cleaning: Vec::new(),
            jobs: 0,
            aside: List::default(),
            bad: List::default(),
            in_limbo: 0,
            given_up_clean: 0,
            is_awake: false,
            watermark_low,
            watermark_high,
            promotes_reads: config.promotes_reads,
            is_on_device: config.is_on_device,
        })
    }

    /// Starts again with another policy, bounds and watermarks, and the present content. Units leave the old order as
    /// they would have, and enter the new one so. `config.units` has no effect.
    ///
    /// # Errors
    /// What of `config` is out of range; nothing is changed then.
    pub fn set_policy(&mut self, config: &CacheConfig, policy: &PolicyEntry) -> Result<(), ConfigError> {
        let rules = Rules::new(&CacheConfig { units: self.units.count(), ..config.clone() }, policy)?;
        let mut order = List::default();
        while let Some(unit) = self.policy.victim(&mut self.units, &self.partition, Among::All) {
            order.push(&mut self.units, unit);
        }
        (self.policy, self.partition) = (rules.policy, rules.partition);
        (self.watermark_low, self.watermark_high) = watermarks(config, self.is_on_device);
        self.promotes_reads = config.promotes_reads;
        while let Some(unit) = order.pop(&mut self.units) {
            self.restore(unit);
        }
        self.refill();
        Ok(())
    }

    /// Puts `unit`, which is in no list, into the order with the state it had when it lost its place.
    pub(crate) fn restore(&mut self, unit: UnitId) {
        self.make_room(unit);
        self.policy.entered(&mut self.units, &self.partition, unit, Arrival::Restored);
    }

    /// Bytes that grow with the units.
    pub fn bytes(&self) -> usize {
        self.units.bytes() + self.index.bytes() + self.policy.anatomy().bytes
    }

    /// Units that another block could get, at once or after the device has forgotten their content.
    pub fn free_units(&self) -> u32 {
        self.empty.len() + self.free.len() + self.in_limbo
    }

    /// Units of a class in the policy's order. Free units and units being cleaned do not count.
    pub fn class_units(&self, class: Class) -> u32 {
        self.partition.class_units(class)
    }

    /// Units of a pool in the policy's order.
    pub fn pool_units(&self, pool: Pool) -> u32 {
        self.partition.pool_units(pool)
    }

    /// The units that a pool may have at most; `u32::MAX` without a bound.
    pub fn pool_units_max(&self, pool: Pool) -> u32 {
        self.partition.pool_units_max(pool)
    }

    /// Whether the syncer is making room.
    pub fn is_syncer_awake(&self) -> bool {
        self.is_awake
    }

    /// Announces an access to `block`, [`ANNOUNCED_AHEAD`] accesses from now: starts loading the memory that it needs.
    /// A host that reads ahead announces each block in turn.
    #[inline]
    pub fn announce(&mut self, block: u64) {
        let Cache { announced, index, units, .. } = self;
        announced.push(index, units, block);
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
        self.observe(access);
        self.enter(access)
    }

    /// The policy hears of each access once, whatever its outcome.
    pub(crate) fn observe(&mut self, access: &Access) {
        self.policy.heard(&BlockEvent::Asked { access, is_awake: self.is_awake });
    }

    /// An access of which the policy has heard.
    pub(crate) fn enter(&mut self, access: &Access) -> Outcome {
        debug_assert!(access.block < TRIMMED, "block {}", access.block);
        let home = self.index.home(access.block);
        if let Some(unit) = self.index.find_at(home, &self.units, access.block) {
            self.hit(unit, access);
            return Outcome::Hit(unit);
        }
        if let Some(outcome) = self.turned_away(access) {
            return outcome;
        }
        let Some(unit) = self.free_unit() else { return Outcome::Full };
        self.units.fill(unit, access.block, access.class, access.pool);
        self.units.set_dirty(unit, access.is_write);
        self.index.insert(home, unit);
        self.make_room(unit);
        self.policy.entered(&mut self.units, &self.partition, unit, Arrival::New);
        self.refill();
        Outcome::Taken(unit)
    }

    /// Why a block that is not in the cache may not come in, if so.
    pub(crate) fn turned_away(&self, access: &Access) -> Option<Outcome> {
        match self.policy.admission(access) {
            Admission::Never => Some(Outcome::Refused),
            _ if !access.is_write && !self.promotes_reads => Some(Outcome::Refused),
            Admission::WhileIdle if self.is_awake => Some(Outcome::Busy),
            Admission::Always | Admission::WhileIdle => None,
        }
    }

    fn hit(&mut self, unit: UnitId, access: &Access) {
        let (state, class) = (self.units.state(unit), access.class);
        if matches!(state, State::Free | State::Aside) {
            self.take_out(unit);
            self.units.set_state(unit, State::InOrder);
        }
        if access.is_write {
            self.units.set_dirty(unit, true);
        }
        match state {
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
            State::Free | State::Aside => {
                self.units.set_class(unit, class);
                self.give_back(unit);
                self.refill();
            }
        }
    }

    /// A unit in the order changed its class. If that class is beyond its bound now, it gives up its oldest unit.
    fn reclassified(&mut self, unit: UnitId, old: Class, class: Class) {
        let pool = self.units.pool(unit);
        self.partition.left(old, pool);
        self.partition.came(class, pool);
        while self.partition.is_beyond(class) {
            self.expel(Among::Class(class));
        }
    }

    /// `unit` enters the order. A class or pool at its bound gives up a unit first.
    pub(crate) fn make_room(&mut self, unit: UnitId) {
        let (class, pool) = (self.units.class(unit), self.units.pool(unit));
        while let Some(among) = self.partition.must_make_room(class, pool) {
            self.expel(among);
        }
        self.partition.came(class, pool);
        self.units.set_state(unit, State::InOrder);
    }

    /// A victim that was used after all is back in the order.
    pub(crate) fn give_back(&mut self, unit: UnitId) {
        self.make_room(unit);
        self.policy.entered(&mut self.units, &self.partition, unit, Arrival::Returned);
    }

    /// The next unit leaves the order. False if there is none.
    pub(crate) fn expel(&mut self, among: Among) -> bool {
        let Some(unit) = self.policy.victim(&mut self.units, &self.partition, among) else { return false };
        self.partition.left(self.units.class(unit), self.units.pool(unit));
        if self.units.is_dirty(unit) {
            self.units.set_state(unit, State::Cleaning);
            self.to_clean.push(&mut self.units, unit);
        } else {
            self.given_up_clean += 1;
            self.units.set_state(unit, State::Free);
            self.free.push(&mut self.units, unit);
        }
        true
    }

    fn free_unit(&mut self) -> Option<UnitId> {
        if let Some(unit) = self.empty.pop(&mut self.units) {
            return Some(unit);
        }
        if self.is_on_device {
            return None;
        }
        let unit = self.free.pop(&mut self.units)?;
        if let Some(next) = self.free.oldest() {
            // The block that will be taken out of the index next.
            self.index.prefetch(self.index.home(self.units.block(next)));
        }
        self.forget(unit);
        Some(unit)
    }

    /// The block of `unit`, which was free, leaves the cache.
    #[inline]
    pub(crate) fn forget(&mut self, unit: UnitId) {
        let (block, is_again) = (self.units.block(unit), self.units.is_again(unit));
        self.policy.heard(&BlockEvent::Forgotten { block, is_again });
        self.index.remove(self.index.home(block), unit);
    }

    /// Lets units leave until free units, with those that become free when they are clean, reach the high watermark.
    pub(crate) fn refill(&mut self) {
        let free = self.free_units();
        if free < self.watermark_low {
            self.is_awake = true;
        }
        if !self.is_awake {
            return;
        }
        while self.free_units() + self.to_clean.len() + (self.cleaning.len() as u32) < self.watermark_high {
            if !self.expel(Among::All) {
                break;
            }
        }
        self.is_awake = self.free_units() < self.watermark_high;
    }

    /// The next dirty unit that has to be written back, if there is one.
    pub fn clean_next(&mut self) -> Option<CleanJob> {
        let unit = self.to_clean.pop(&mut self.units)?;
        self.units.set_dirty(unit, false);
        self.jobs += 1;
        self.cleaning.push(Cleaning { unit, job: self.jobs });
        let units = &self.units;
        Some(CleanJob { unit, block: units.block(unit), class: units.class(unit), pool: units.pool(unit) })
    }

    /// The store has, durably, what a job was made for.
    pub fn cleaned(&mut self, unit: UnitId) {
        let at = self.cleaning.iter().position(|job| job.unit == unit).expect("a unit that is clean was being cleaned");
        self.cleaning.swap_remove(at);
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

    /// The host does not need `block` any more. Its unit is empty at once, or when the host has finished copying it.
    pub fn trim(&mut self, block: u64) {
        self.policy.heard(&BlockEvent::Trimmed { block });
        let Some(unit) = self.index.find(&self.units, block) else { return };
        self.index.remove(self.index.home(block), unit);
        if self.is_being_cleaned(unit) {
            self.units.fill(unit, TRIMMED, Class::UNCLASSIFIED, Pool::default());
            self.units.set_state(unit, State::Cleaning);
            return;
        }
        self.take_out(unit);
        self.empty.push(&mut self.units, unit);
    }

    /// Takes `unit`, which is not being copied, out of whatever it is in.
    pub(crate) fn take_out(&mut self, unit: UnitId) {
        match self.units.state(unit) {
            State::InOrder => {
                self.policy.left(&mut self.units, &self.partition, unit, None);
                self.partition.left(self.units.class(unit), self.units.pool(unit));
            }
            State::Free => self.free.remove(&mut self.units, unit),
            State::Aside => self.aside.remove(&mut self.units, unit),
            State::Cleaning | State::Wanted => self.to_clean.remove(&mut self.units, unit),
        }
    }
}
