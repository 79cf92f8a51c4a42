//! Filling a cache with what its device says, before it serves anybody.
//!
//! Units are kept by age in sixteen lists. At the end they enter the policy's order, oldest first; what the journal changed is the
//! youngest.

use super::journal::{Change, Record};
use super::map::{AGES, ENTRIES, Entry, PageHead};
use super::marks::{Mark, Marks};
use super::pages::Pages;
use crate::cache::Cache;
use crate::config::{CacheConfig, ConfigError};
use crate::policy::PolicyEntry;
use crate::units::{List, UnitId};

pub(super) struct Loader {
    cache: Cache,
    marks: Marks,
    by_age: [List; AGES as usize],
    /// For each page, the block of the journal that was open when it was made.
    sequences: Vec<u64>,
    store_blocks: u64,
}

impl Loader {
    pub fn new(config: &CacheConfig, policy: &PolicyEntry, store_blocks: u64) -> Result<Loader, ConfigError> {
        let pages = config.units.div_ceil(ENTRIES as u32) as usize;
        Ok(Loader {
            cache: Cache::new(config, policy)?,
            marks: Marks::new(config.units),
            by_age: [List::default(); AGES as usize],
            sequences: vec![0; pages],
            store_blocks,
        })
    }

    pub fn prefetch(&self, block: u64) {
        self.cache.prefetch(block);
    }

    /// A page says that `unit` holds this.
    pub fn place_from_page(&mut self, unit: UnitId, entry: &Entry, head: &PageHead) {
        self.sequences[head.page as usize] = head.sequence;
        if let Some(other) = self.cache.find(entry.block)
            && self.sequences[Pages::of_unit(other) as usize] > head.sequence
        {
            return;
        }
        self.place(unit, entry);
    }

    fn place(&mut self, unit: UnitId, entry: &Entry) {
        if entry.block >= self.store_blocks {
            return;
        }
        self.clear(unit);
        if let Some(other) = self.cache.find(entry.block) {
            self.clear(other);
        }
        let cache = &mut self.cache;
        cache.empty.remove(&mut cache.units, unit);
        cache.units.fill(unit, entry.block, entry.class, entry.pool);
        cache.units.set_dirty(unit, entry.is_dirty);
        cache.units.set_again(unit, entry.is_again);
        cache.units.set_stamp(unit, u32::from(entry.age));
        cache.index.insert(entry.block, unit);
        self.by_age[usize::from(entry.age)].push(&mut cache.units, unit);
        let mark = Mark { checksum: entry.checksum, is_recorded: true, is_dirty: entry.is_dirty };
        self.marks.set(&mut cache.units, unit, mark);
    }

    fn clear(&mut self, unit: UnitId) {
        let cache = &mut self.cache;
        if !self.marks.get(&cache.units, unit).is_recorded {
            return;
        }
        let (block, age) = (cache.units.block(unit), cache.units.stamp(unit));
        cache.index.remove(&cache.units, block);
        self.by_age[age as usize].remove(&mut cache.units, unit);
        cache.empty.push(&mut cache.units, unit);
        self.marks.clear(&mut cache.units, unit);
    }

    /// Nothing is known of the units of a page.
    pub fn clear_page(&mut self, page: u32) {
        let first = page * ENTRIES as u32;
        let last = (first + ENTRIES as u32).min(self.cache.units.count());
        (first..last).for_each(|unit| self.clear(UnitId(unit)));
    }

    /// Does again what a record says.
    pub fn apply(&mut self, record: &Record, pages: &mut Pages, units: u32) {
        let &Record { change, block, class, pool, unit, checksum } = record;
        if unit.0 >= units || block >= self.store_blocks {
            return;
        }
        pages.set_changed(Pages::of_unit(unit));
        if change == Change::Invalid {
            self.clear(unit);
            return;
        }
        if let Some(other) = self.cache.find(block) {
            pages.set_changed(Pages::of_unit(other));
        }
        let is_again = self.cache.find(block).is_some();
        let is_dirty = change == Change::Dirty;
        self.place(unit, &Entry { block, class, pool, is_dirty, is_again, age: 0, checksum });
    }

    /// The cache, with every unit in its policy's order.
    pub fn finish(mut self) -> (Cache, Marks) {
        for list in self.by_age.iter_mut().rev() {
            while let Some(unit) = list.pop(&mut self.cache.units) {
                self.cache.restore(unit);
            }
        }
        self.cache.refill();
        (self.cache, self.marks)
    }
}
