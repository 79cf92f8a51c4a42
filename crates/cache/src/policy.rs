//! What a cache leaves to a policy, and what a policy is made from.
//!
//! A policy may be any structure that knows which units it has. A policy must answer four questions of a unit (it
//! [entered](CachePolicy::entered), [was used](CachePolicy::accessed), [left](CachePolicy::left), how
//! [old](CachePolicy::age) it is) and name [victims](CachePolicy::victim). All else has a default.

use crate::access::Access;
use crate::aged_lists::AtOnce;
use crate::config::CacheConfig;
use crate::partition::{Among, Partition};
use crate::units::{List, UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::Admission;

/// Something that happens to a block, whether the block is in the cache or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEvent<'a> {
    /// The block is going to be read or written.
    Asked {
        /// How.
        access: &'a Access,
        /// Whether the syncer is awake.
        is_awake: bool,
    },
    /// The host does not need the block any more.
    Trimmed {
        /// The block.
        block: u64,
    },
    /// The block was in a victim, and leaves the cache now: another block gets its unit.
    Forgotten {
        /// The block.
        block: u64,
        /// What the policy has said of the unit with [`Units::set_again`].
        is_again: bool,
    },
}

/// Why a unit comes into a policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The unit was filled with a block that was not in the cache.
    New,
    /// The unit was a victim, and was used, or could not be written back, before another block got it.
    Returned,
    /// The unit was in the cache at the last shutdown, or in another policy's order. Units are given in the order in
    /// which they would have left. What [`Units::is_again`] says is kept from then.
    Restored,
}

/// What a policy is made of, beside its fixed part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anatomy<'a> {
    /// The lists through [`Units`] with all of its units, so that an audit can check their links; `None` if the policy
    /// keeps its units otherwise.
    pub lists: Option<&'a [List]>,
    /// Bytes that grow with the units.
    pub bytes: usize,
}

/// Decides which blocks may come into a cache and which unit leaves next. It keeps every unit that it is given in its
/// own order, until it names it as a victim or hears that it is gone.
///
/// While a unit is in the order, its links, its stamp and its second-use bit ([`Units`]) are the policy's.
pub trait CachePolicy: Send + Sync {
    /// Gets each access before its outcome is known, trims, and victims without a block.
    fn heard(&mut self, event: &BlockEvent<'_>) {
        let _ = event;
    }

    /// Whether a block that is not in the cache may be taken into it.
    fn admission(&self, access: &Access) -> Admission {
        let _ = access;
        Admission::Always
    }

    /// `unit` comes into the order.
    fn entered(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, arrival: Arrival);

    /// `unit`, which is in the order, was read or written. Its block is of `class`, which may differ from before. The
    /// policy says so to `units`.
    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class);

    /// Takes the next unit to leave out of the order; `None` if no unit is `among` those.
    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId>;

    /// `unit`, which is in the order, leaves it otherwise. It holds nothing any more, or its block is in `successor`
    /// now, which takes its place. `units` says the same of both.
    fn left(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, successor: Option<UnitId>);

    /// Age of `unit` in the order, in units taken in. All ages above the cache's size count alike. A device's map has
    /// it, so that a start [restores](Arrival::Restored) units by age: older ones first. The map asks of victims, too,
    /// as long as their blocks are not [forgotten](BlockEvent::Forgotten).
    fn age(&self, units: &Units, unit: UnitId) -> u64;

    /// What it is made of.
    fn anatomy(&self) -> Anatomy<'_> {
        Anatomy::default()
    }

    /// Its lists, if they can be filled all at once. So a start with millions of units is quick. Without that, units
    /// are restored one by one.
    fn at_once(&mut self) -> Option<AtOnce<'_>> {
        None
    }
}

/// What a policy is made from.
#[derive(Clone, Copy, Debug)]
pub struct PolicyConfig<'a> {
    /// The cache.
    pub cache: &'a CacheConfig,
    /// Groups of units with bounds.
    pub groups: usize,
}

/// One line of the registry.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// The name in configurations.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Makes one.
    pub build: fn(&PolicyConfig<'_>) -> Box<dyn CachePolicy>,
}
