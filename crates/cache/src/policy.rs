//! What a cache leaves to a policy, and what a policy is made from.

use crate::access::Access;
use crate::aged_lists::AgedLists;
use crate::config::CacheConfig;
use crate::partition::{Among, Partition};
use crate::units::{UnitId, Units};
use plimsoll_core::Class;
use plimsoll_core::class::Admission;

/// Decides which blocks may come into a cache and which unit leaves next. It keeps every unit that it is given in an
/// order of its own, until it names it as a victim or is told that it is gone.
pub trait CachePolicy: Send + Sync {
    /// A block is going to be read or written, whether it is in the cache or not; `is_awake`: the syncer is.
    fn observed(&mut self, access: &Access, is_awake: bool) {
        let _ = (access, is_awake);
    }

    /// The host does not need `block` any more, whether it is in the cache or not.
    fn trimmed(&mut self, block: u64) {
        let _ = block;
    }

    /// Whether a block that is not in the cache may be taken into it.
    fn admission(&self, access: &Access) -> Admission;

    /// `unit` was filled with a block that was not in the cache.
    fn inserted(&mut self, units: &mut Units, partition: &Partition, unit: UnitId);

    /// `unit`, which was named as a victim, was used before it was given away: it is back.
    fn returned(&mut self, units: &mut Units, partition: &Partition, unit: UnitId);

    /// `unit` was read or written; its block is of `class`, which may be another one than before. The policy says so to
    /// `units`.
    fn accessed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId, class: Class);

    /// Takes the unit that leaves next out of the order.
    fn victim(&mut self, units: &mut Units, partition: &Partition, among: Among) -> Option<UnitId>;

    /// `unit`, which is in the order, holds nothing any more.
    fn removed(&mut self, units: &mut Units, partition: &Partition, unit: UnitId);

    /// The block of `from`, which is in the order, is in `to` now; `units` says the same of both. `to` takes the
    /// place of `from`.
    fn replaced(&mut self, units: &mut Units, partition: &Partition, from: UnitId, to: UnitId);

    /// `unit` was in the cache when it was last shut down; units are given in the order in which they would have left.
    fn restored(&mut self, units: &mut Units, partition: &Partition, unit: UnitId) {
        self.inserted(units, partition, unit);
    }

    /// In which of its group's lists such a unit stands.
    fn list_in_group(&self, class: Class, is_again: bool) -> usize;

    /// Its lists.
    fn lists(&self) -> &AgedLists;

    /// The same, for a start that fills all of them at once.
    fn lists_mut(&mut self) -> &mut AgedLists;

    /// How long ago `unit` was put in order, in units taken in.
    fn age(&self, units: &Units, unit: UnitId) -> u64 {
        self.lists().age(units, unit)
    }

    /// The block of `unit`, which was a victim, is no longer in the cache.
    fn forgotten(&mut self, units: &Units, unit: UnitId) {
        let _ = (units, unit);
    }

    /// Bytes that it takes beyond the units and a fixed amount.
    fn bytes(&self) -> usize {
        0
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
