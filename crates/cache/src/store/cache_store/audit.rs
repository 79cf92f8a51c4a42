//! Whether everything that a cache at work notes twice is noted the same. Tests ask after each step.

use super::CacheStore;
use crate::store::slots::{Slot, Step};
use crate::units::{State, UnitId};
use std::collections::BTreeMap;

impl CacheStore {
    /// Checks everything: the deciding half, the requests that have or wait for each block, copied units, units in
    /// limbo and dirty units. Between two calls of the host's. O(units + requests).
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn audit(&self) -> Result<(), String> {
        self.cache.audit()?;
        self.slots.audit()?;
        if !self.runnable.is_empty() {
            return Err(format!("{} requests could go on and do not", self.runnable.len()));
        }
        self.audit_jobs()?;
        self.audit_limbo()?;
        self.audit_marks()
    }

    /// Each unit being copied belongs to one slot, or waits for one flush.
    fn audit_jobs(&self) -> Result<(), String> {
        let victims = self.slots.slots.iter().filter(|slot| slot.step != Step::Vacant);
        let is_at_work = |slot: &&Slot| slot.step != Step::Lock && slot.job().is_some();
        if let Some(slot) = victims.clone().filter(is_at_work).find(|slot| self.cache.job(slot.unit) != slot.job()) {
            return Err(format!("unit {} is copied by a job that has ended", slot.unit.0));
        }
        let in_slots = victims.filter_map(|slot| slot.job());
        let mut jobs = BTreeMap::new();
        in_slots.chain(self.cleaner.waiting_jobs()).for_each(|job| *jobs.entry(job).or_insert(0) += 1);
        for unit in self.units().filter(|&unit| self.cache.is_being_cleaned(unit)) {
            let job = self.cache.job(unit).expect("it is being cleaned");
            let count = jobs.get(&job).copied().unwrap_or(0);
            if count != 1 {
                let block = self.cache.describe(unit).block;
                return Err(format!("{count} have job {job}, which is to copy unit {} of block {block}", unit.0));
            }
        }
        Ok(())
    }

    /// Each unit in limbo is written for a request, or was in use until a record is durable.
    fn audit_limbo(&self) -> Result<(), String> {
        let writes = self.slots.slots.iter().filter(|slot| slot.step == Step::WriteUnit && slot.is_relocated);
        let mut in_limbo: Vec<UnitId> = writes.map(|slot| slot.unit).chain(self.journal.freed()).collect();
        in_limbo.sort_unstable();
        match in_limbo.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("unit {} is in limbo twice", pair[0].0)),
            None if in_limbo.len() as u32 != self.cache.in_limbo => {
                Err(format!("{} units are in limbo, and {in_limbo:?} are known to be", self.cache.in_limbo))
            }
            None => Ok(()),
        }
    }

    /// What the store lacks is in the index, is not free, and is counted.
    fn audit_marks(&self) -> Result<(), String> {
        let is_dirty = |unit: &UnitId| self.marks.get(&self.cache.units, *unit).is_dirty;
        let mut count = 0;
        for unit in self.units().filter(is_dirty) {
            count += 1;
            let (block, state) = (self.cache.describe(unit).block, self.cache.units.state(unit));
            if self.cache.find(block) != Some(unit) {
                return Err(format!("dirty unit {} has block {block}, of which the index knows nothing", unit.0));
            }
            if state == State::Free {
                return Err(format!("unit {} of block {block} is free, and the store lacks it", unit.0));
            }
            if !self.cache.is_dirty(unit) && !self.cache.is_being_cleaned(unit) {
                return Err(format!("unit {} of block {block} is dirty on the device and not in memory", unit.0));
            }
        }
        let counted = self.marks.dirty_units;
        if counted != count { Err(format!("{count} units are dirty and {counted} are counted")) } else { Ok(()) }
    }

    fn units(&self) -> impl Iterator<Item = UnitId> {
        (0..self.superblock.layout.units).map(UnitId)
    }
}
