//! Operations of the deciding half that only a cache on a device needs.
//!
//! On a device, a unit cannot simply be given to another block: the device must first have forgotten what was in it. So
//! a unit goes the long way. [`Cache::evict_free`] forgets the block of the oldest free unit, the host makes that
//! durable, and [`Cache::release`] says that the unit can be used. Between the two it is *in limbo*.
//!
//! A rewritten block must not overwrite its old version, because a crash half-way would leave neither. It goes to an
//! empty unit ([`Cache::take_empty`]), and [`Cache::relocate`] switches.

use crate::cache::{Cache, CleanJob};
use crate::policy::BlockEvent;
use crate::units::{State, UnitId};

impl Cache {
    /// Units that can be given away now.
    pub fn empty_units(&self) -> u32 {
        self.empty.len()
    }

    /// Units that hold nothing, given away already or not.
    pub fn unused_units(&self) -> u32 {
        self.empty.len() + self.in_limbo
    }

    /// Units that have left the order, are dirty, and will be free.
    pub fn leaving_units(&self) -> u32 {
        self.to_clean.len() + self.cleaning.len() as u32
    }

    /// An empty unit, for the caller until it relocates a block to it or [`Cache::release`]s it.
    pub fn take_empty(&mut self) -> Option<UnitId> {
        let unit = self.empty.pop(&mut self.units)?;
        self.in_limbo += 1;
        Some(unit)
    }

    /// The free unit that would be given away next, and its block.
    pub fn next_free(&self) -> Option<(UnitId, u64)> {
        let unit = self.free.oldest()?;
        Some((unit, self.units.block(unit)))
    }

    /// The unit of [`Cache::next_free`] is in use, or the store lacks its content: it returns into the order.
    pub fn keep_next_free(&mut self, is_dirty: bool) {
        if let Some(unit) = self.free.pop(&mut self.units) {
            self.units.set_state(unit, State::InOrder);
            self.units.set_dirty(unit, is_dirty);
            self.give_back(unit);
            self.refill();
        }
    }

    /// Forgets what is in the unit that [`Cache::next_free`] names: it is in limbo.
    pub fn evict_free(&mut self) -> Option<CleanJob> {
        let unit = self.free.pop(&mut self.units)?;
        let was = self.describe(unit);
        self.forget(unit);
        self.in_limbo += 1;
        Some(was)
    }

    /// A unit in limbo can be given away.
    pub fn release(&mut self, unit: UnitId) {
        self.in_limbo -= 1;
        self.empty.push(&mut self.units, unit);
    }

    /// A unit in limbo cannot be written: no block gets it any more.
    pub fn set_bad(&mut self, unit: UnitId) {
        self.in_limbo -= 1;
        self.bad.push(&mut self.units, unit);
        self.refill();
    }

    /// Units that cannot be written.
    pub fn bad_units(&self) -> u32 {
        self.bad.len()
    }

    /// Whether the store has refused `unit`, or it cannot be read: it waits for a request that uses it.
    pub fn is_aside(&self, unit: UnitId) -> bool {
        self.units.state(unit) == State::Aside
    }

    /// `block` was written to `to`, which came from [`Cache::take_empty`], and is there now. The unit in which it was
    /// is in limbo.
    ///
    /// # Panics
    /// If the block is not in the cache.
    pub fn relocate(&mut self, block: u64, to: UnitId) -> UnitId {
        let from = self.find(block).expect("a block that is relocated is there");
        self.index.replace(self.index.home(block), from, to);
        let state = self.units.state(from);
        if matches!(state, State::Free | State::Aside) {
            self.take_out(from);
            self.units.set_state(from, State::InOrder);
        }
        self.units.copy(from, to);
        self.units.set_dirty(to, true);
        if let Some(job) = self.cleaning.iter_mut().find(|job| job.unit == from) {
            job.unit = to;
            return from;
        }
        match state {
            State::InOrder => self.policy.left(&mut self.units, &self.partition, from, Some(to)),
            State::Cleaning | State::Wanted => self.to_clean.replace(&mut self.units, from, to),
            // What is dirty now is not free any more.
            State::Free | State::Aside => {
                self.give_back(to);
                self.refill();
            }
        }
        from
    }

    /// Forgets `block`: its unit is in limbo, also if it was being cleaned. The host need not report the end of that.
    pub fn remove(&mut self, block: u64) -> Option<UnitId> {
        self.policy.heard(&BlockEvent::Trimmed { block });
        let unit = self.find(block)?;
        self.index.remove(self.index.home(block), unit);
        match self.cleaning.iter().position(|job| job.unit == unit) {
            Some(at) => drop(self.cleaning.swap_remove(at)),
            None => self.take_out(unit),
        }
        self.in_limbo += 1;
        Some(unit)
    }

    /// Whether the host copies `unit`.
    pub fn is_being_cleaned(&self, unit: UnitId) -> bool {
        self.job(unit).is_some()
    }

    /// The number of the job by which the host copies `unit`, if it does. A job ends when it is done or has failed, or
    /// when the block is forgotten. Another job for the same unit or block has another number.
    pub fn job(&self, unit: UnitId) -> Option<u64> {
        self.cleaning.iter().find(|job| job.unit == unit).map(|job| job.job)
    }

    /// The content of `unit`, which is being cleaned, cannot be read, or the store refuses it. The unit leaves the way
    /// free for others, and returns into the order when it is used. False if `max` are aside already: then it is still
    /// being cleaned.
    pub fn set_aside_of(&mut self, unit: UnitId, max: u32) -> bool {
        if self.units.is_dirty(unit) || self.units.state(unit) == State::Wanted {
            // A request uses it.
            self.clean_failed(unit);
            return true;
        }
        if self.aside.len() >= max {
            return false;
        }
        self.cleaning.retain(|job| job.unit != unit);
        self.units.set_dirty(unit, true);
        self.units.set_state(unit, State::Aside);
        self.aside.push(&mut self.units, unit);
        self.refill();
        true
    }

    /// The same of a unit that cannot be read. False if so many are aside that it is not the unit that is bad but the
    /// device.
    pub fn set_aside(&mut self, unit: UnitId) -> bool {
        self.set_aside_of(unit, self.watermark_high)
    }

    /// The store has the content of `unit` without a job. The unit stays where it is, or is free if it was aside.
    pub fn set_clean(&mut self, unit: UnitId) {
        if self.units.state(unit) != State::Aside {
            return self.units.set_dirty(unit, false);
        }
        self.aside.remove(&mut self.units, unit);
        self.units.set_state(unit, State::InOrder);
        self.units.set_dirty(unit, false);
        self.units.set_state(unit, State::Free);
        self.free.push(&mut self.units, unit);
    }

    /// What is in `unit`.
    pub fn describe(&self, unit: UnitId) -> CleanJob {
        let units = &self.units;
        CleanJob { unit, block: units.block(unit), class: units.class(unit), pool: units.pool(unit) }
    }
}
