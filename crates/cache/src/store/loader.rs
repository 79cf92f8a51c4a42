//! Filling a cache with what its device says, before it serves a request.
//!
//! It takes four steps, each of which goes through memory in order as far as it can. The pages fill the units; then the
//! index is made over all units at once. The journal's records are applied one after the other. All units go into their
//! lists at once, by age. What the journal changed is the youngest.
//!
//! A unit's stamp is its rank meanwhile: 0 for the unit that would leave first.

use super::journal::{Change, Record};
use super::map::{AGES, ENTRIES, Entry, PageHead};
use super::marks::{Mark, Marks, MarksPart, is_recorded};
use super::pages::Pages;
use crate::cache::Cache;
use crate::config::{CacheConfig, ConfigError};
use crate::policy::PolicyEntry;
use crate::threads::threads_for;
use crate::units::{Held, Part, UnitId};

/// The rank of a unit that the journal changed, above all ages of pages.
pub(super) const RANK_OF_CHANGED: u32 = AGES as u32;
/// The rank of a unit that a record behind damage in the journal changed.
pub(super) const RANK_OF_PROVEN: u32 = RANK_OF_CHANGED + 1;
/// Ranks that there are.
const RANKS: usize = RANK_OF_PROVEN as usize + 1;

pub(super) struct Loader {
    cache: Cache,
    marks: Marks,
    /// For each page, the block of the journal that was open when it was made.
    sequences: Vec<u64>,
    store_blocks: u64,
    /// How many threads work at once.
    pub threads: usize,
}

/// A run of pages, to be filled by one thread.
pub(super) struct Shelf<'a> {
    part: Part<'a>,
    marks: MarksPart<'a>,
    store_blocks: u64,
    /// Units that the store lacks.
    pub dirty_units: u32,
}

impl Shelf<'_> {
    /// Its first page, and how many there are.
    pub fn pages(&self) -> (u32, u32) {
        let units = self.part.units();
        (units.start / ENTRIES as u32, (units.end - units.start).div_ceil(ENTRIES as u32))
    }

    /// A page says that its unit `unit` holds this.
    #[inline]
    pub fn place(&mut self, unit: UnitId, entry: &Entry) {
        let &Entry { block, class, pool, is_dirty, is_again, age, checksum } = entry;
        if block >= self.store_blocks || !self.part.units().contains(&unit.0) {
            return;
        }
        let mark = self.marks.set(unit, Mark { checksum, is_recorded: true, is_dirty });
        let stamp = u32::from(AGES - 1 - age);
        self.part.fill(unit, &Held { block, class, pool, is_dirty, is_again, stamp, mark });
        self.dirty_units += u32::from(is_dirty);
    }
}

impl Loader {
    pub fn new(config: &CacheConfig, policy: &PolicyEntry, store_blocks: u64) -> Result<Loader, ConfigError> {
        let pages = config.units.div_ceil(ENTRIES as u32) as usize;
        Ok(Loader {
            cache: Cache::without_lists(config, policy)?,
            marks: Marks::new(config.units),
            sequences: vec![0; pages],
            store_blocks,
            threads: threads_for(config.units),
        })
    }

    /// All pages, so many in each shelf.
    pub fn shelves(&mut self, pages: usize) -> impl Iterator<Item = Shelf<'_>> {
        let (each, store_blocks) = (pages * ENTRIES, self.store_blocks);
        let parts = self.cache.units.parts_mut(each).zip(self.marks.parts_mut(each));
        parts.map(move |(part, marks)| Shelf { part, marks, store_blocks, dirty_units: 0 })
    }

    /// A page was read.
    pub fn note_page(&mut self, head: &PageHead) {
        self.sequences[head.page as usize] = head.sequence;
    }

    /// In the units of a shelf were so many that the store lacks.
    pub fn add_dirty(&mut self, units: u32) {
        self.marks.dirty_units += units;
    }

    /// Nothing is known of the units of a page. For before [`Loader::index_all`].
    pub fn clear_page(&mut self, page: u32) {
        let first = page * ENTRIES as u32;
        let last = (first + ENTRIES as u32).min(self.cache.units.count());
        (first..last).for_each(|unit| self.marks.clear(&mut self.cache.units, UnitId(unit)));
    }

    /// All pages were read. If two of them claim a block, the later page is right. Of pages that were made at once it
    /// is the one with the higher number. The other one counts as changed: what it says must not come back when the
    /// block has left the unit in which it is.
    pub fn index_all(&mut self, pages: &mut Pages) {
        let (units, sequences) = (&self.cache.units, &self.sequences);
        let made = |unit: UnitId| (sequences[Pages::of_unit(unit) as usize], unit);
        let prefers = |held: UnitId, unit: UnitId| made(held) < made(unit);
        let is_held = |unit: UnitId| is_recorded(units.mark(unit));
        for loser in self.cache.index.fill(units, is_held, &prefers, self.threads) {
            self.marks.clear(&mut self.cache.units, loser);
            pages.set_changed(Pages::of_unit(loser));
        }
    }

    fn clear(&mut self, unit: UnitId) {
        let cache = &mut self.cache;
        if is_recorded(cache.units.mark(unit)) {
            cache.index.remove(cache.index.home(cache.units.block(unit)), unit);
            self.marks.clear(&mut cache.units, unit);
        }
    }

    /// Forgets what is in each unit that is of a lower rank. Answers how many these were, and how many of them the
    /// store lacks.
    pub fn forget_below(&mut self, rank: u32) -> (u32, u32) {
        let (mut forgotten, dirty_units) = (0, self.marks.dirty_units);
        for unit in (0..self.cache.units.count()).map(UnitId) {
            if is_recorded(self.cache.units.mark(unit)) && self.cache.units.stamp(unit) < rank {
                self.clear(unit);
                forgotten += 1;
            }
        }
        (forgotten, dirty_units - self.marks.dirty_units)
    }

    /// Does again what a block of the journal says, one record after the other. What it changes is of that rank.
    pub fn apply(&mut self, records: &[Record], pages: &mut Pages, rank: u32) {
        let units = self.cache.units.count();
        let is_sound = |record: &&Record| record.unit.0 < units && record.block < self.store_blocks;
        // Prefetches for the records, in two steps: the second needs the memory that the first brings.
        for record in records.iter().filter(is_sound) {
            self.cache.index.prefetch(self.cache.index.home(record.block));
            self.cache.units.prefetch(record.unit);
            self.marks.prefetch(record.unit);
            pages.prefetch(Pages::of_unit(record.unit));
        }
        for record in records.iter().filter(is_sound) {
            self.cache.index.prefetch(self.cache.index.home(self.cache.units.block(record.unit)));
            self.cache.find(record.block).inspect(|&other| self.cache.units.prefetch(other));
        }
        let sound: Vec<&Record> = records.iter().filter(is_sound).collect();
        sound.into_iter().for_each(|record| self.apply_one(record, pages, rank));
    }

    fn apply_one(&mut self, record: &Record, pages: &mut Pages, rank: u32) {
        let &Record { change, block, class, pool, unit, checksum } = record;
        pages.set_changed(Pages::of_unit(unit));
        if change == Change::Invalid {
            return self.clear(unit);
        }
        let other = self.cache.find(block);
        if let Some(other) = other {
            pages.set_changed(Pages::of_unit(other));
            self.clear(other);
        }
        self.clear(unit);
        let cache = &mut self.cache;
        cache.units.fill(unit, block, class, pool);
        cache.units.set_dirty(unit, change == Change::Dirty);
        cache.units.set_again(unit, other.is_some());
        cache.units.set_stamp(unit, rank);
        cache.index.insert(cache.index.home(block), unit);
        let mark = Mark { checksum, is_recorded: true, is_dirty: change == Change::Dirty };
        self.marks.set(&mut cache.units, unit, mark);
    }

    /// The cache, with every unit in its policy's order.
    pub fn finish(mut self) -> (Cache, Marks) {
        self.cache.list_all(RANKS, is_recorded, self.threads);
        (self.cache, self.marks)
    }
}
