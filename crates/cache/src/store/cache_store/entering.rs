//! Blocks that come in, each in its turn ([`Turns`](crate::store::turns::Turns)), and units for them.
//!
//! A write that has to wait is not taken at all. It has no slot, so it delays no request, least of all reads of cached
//! blocks. A read never waits for a unit: it goes past the cache.
//!
//! **The complication.** A write that waited for another request on its block may find that another block took its unit
//! meanwhile. The write has a slot, and waits in it.

use super::CacheStore;
use crate::access::Access;
use crate::cache::Outcome;
use crate::store::bytes::BLOCK_BYTES;
use crate::store::cleaner::ready_units;
use crate::store::operation::{Action, Request, RequestKind, Semantics};
use crate::store::slots::Step;
use crate::store::turns::{Supply, Turn};
use crate::units::Pool;
use plimsoll_core::Class;
use std::ops::Range;

impl CacheStore {
    fn turn(&mut self) -> Turn {
        self.turns.turn(&Supply {
            free: self.cache.free_units(),
            unused: self.cache.unused_units(),
            empty: self.cache.empty_units(),
            // What has left the order and is dirty is being copied, unless the store failed.
            is_leaving: self.cache.leaving_units() > 0 && !self.cleaner.is_paused() && !self.is_closing,
            left: self.cache.given_up_clean + self.cleaner.copied_victims,
        })
    }

    /// Whether a request would take a unit, and has to come again for it.
    pub(super) fn must_wait(&mut self, request: &Request) -> bool {
        let Request { kind, block, from, to, class, pool, .. } = *request;
        if self.is_too_dirty(request) {
            if !std::mem::replace(&mut self.turns.is_awaited, true) {
                self.drive();
            }
            self.turns.is_awaited = self.is_too_dirty(request);
            if self.turns.is_awaited {
                return true;
            }
        }
        let is_whole = from == 0 && usize::from(to) == BLOCK_BYTES;
        let is_refused = self.has_failed
            || self.is_closing
            || self.semantics == Semantics::WriteThrough
            || block >= self.superblock.store_blocks;
        if kind != RequestKind::Write || !is_whole || is_refused || self.cache.find(block).is_some() {
            return false;
        }
        if self.cache.turned_away(&Access { block, class, pool, is_write: true }).is_some() {
            return false;
        }
        self.turns.wanted_unit = true;
        if self.turn() == Turn::Later && !std::mem::replace(&mut self.turns.is_awaited, true) {
            // What was copied is flushed sooner now.
            self.drive();
        }
        self.turns.is_awaited = self.turn() == Turn::Later;
        self.turns.is_awaited
    }

    /// Whether there are units for what is read.
    fn may_take_for_reads(&mut self) -> bool {
        let is_pressed = self.turns.is_awaited && self.cache.free_units() < self.cache.watermark_low;
        !self.journal.is_crowded() && !is_pressed && self.turn() == Turn::Now
    }

    /// Whether a read of `blocks` bypasses the cache: none of them is there or under way, nor would be taken in.
    /// `owner_of` gives the class and pool of each block. Then it is counted, and the host asks the store for it as if
    /// there were no cache. A request that writes one of the blocks meanwhile runs at the same time as the read, so
    /// either version is right. O(blocks + places).
    pub fn let_past(&mut self, blocks: Range<u64>, mut owner_of: impl FnMut(u64) -> (Class, Pool)) -> bool {
        // A hit pays for no more than that.
        if self.is_cached(blocks.start).is_some() {
            return false;
        }
        let mut access_to = |block| {
            let (class, pool) = owner_of(block);
            Access { block, class, pool, is_write: false }
        };
        let has_units = !self.has_failed && self.may_take_for_reads();
        // Block by block: what is taken in is seen at the first.
        let mut concerns_us = |block| {
            self.is_cached(block).is_some() || (has_units && self.cache.turned_away(&access_to(block)).is_none())
        };
        if blocks.clone().any(&mut concerns_us) || self.slots.is_any_locked(&blocks) {
            return false;
        }
        for access in blocks.map(access_to) {
            if access.block < self.superblock.store_blocks {
                self.cache.observe(&access);
            }
            self.class_counters[usize::from(access.class.number())].reads += 1;
            self.counters.read_misses += 1;
        }
        true
    }

    /// Reads or writes a block in the cache, or takes it in if there is a unit.
    pub(super) fn access_in_turn(&mut self, access: &Access) -> Outcome {
        let free = self.cache.free_units();
        if self.cache.find(access.block).is_none() {
            if let Some(outcome) = self.cache.turned_away(access) {
                return outcome;
            }
            let may_take = match access.is_write {
                // It waited for its turn before it was taken.
                true => self.cache.unused_units() > self.turns.kept(),
                false => self.may_take_for_reads(),
            };
            if !may_take {
                return Outcome::Full;
            }
        }
        let outcome = self.cache.enter(access);
        if matches!(outcome, Outcome::Taken(_)) {
            self.turns.take(free);
        }
        outcome
    }

    /// Takes in a written block that the store has, if there is a unit.
    pub(super) fn enter_clean(&mut self, access: &Access) -> Outcome {
        if let Some(outcome) = self.cache.turned_away(access) {
            return outcome;
        }
        if !self.may_take_for_reads() {
            return Outcome::Full;
        }
        let free = self.cache.free_units();
        let outcome = self.cache.enter(access);
        if let Outcome::Taken(unit) = outcome {
            self.cache.set_clean(unit);
            self.turns.take(free);
        }
        outcome
    }

    /// Writes a block that is not in the cache into a new unit, or past the cache.
    pub(super) fn write_new(&mut self, at: usize) {
        let slot = self.slots.slots[at];
        let is_whole = slot.from == 0 && usize::from(slot.to) == BLOCK_BYTES;
        if is_whole && slot.block < self.superblock.store_blocks {
            match self.access_in_turn(&self.access(at, true)) {
                Outcome::Taken(unit) => {
                    self.counters.writes_taken += 1;
                    return self.unit_operation(at, Step::WriteUnit, Action::Write, unit);
                }
                Outcome::Full if !self.is_closing && slot.tries == 0 && self.turn() == Turn::Later => {
                    return self.wait_for_unit(at);
                }
                _ => {}
            }
        }
        self.counters.writes_around += 1;
        self.around(at);
    }

    /// Makes the request wait for a unit.
    pub(super) fn wait_for_unit(&mut self, at: usize) {
        if self.has_failed {
            return self.refuse(at);
        }
        self.slots.slots[at].step = Step::Unit;
        self.turns.is_unit_wanted = true;
        self.journal.want_all();
    }

    /// Whether no unit is left for writes of cached blocks: the units that were kept for them are bad. A write that
    /// waits has its block, and a copy may wait for just that.
    pub(super) fn is_out_of_units(&self) -> bool {
        self.cache.unused_units() == 0 && self.cache.bad_units() > 0
    }

    /// Keeps some units ready.
    pub(super) fn make_ready(&mut self) {
        if self.has_failed {
            return;
        }
        let ready = ready_units(self.superblock.layout.units);
        let mut tries = self.slots.slots.len();
        while self.cache.unused_units() < ready && self.journal.has_room_for_own() {
            let Some((unit, block)) = self.cache.next_free() else { break };
            // Data that only the cache has is not given away, even if the unit counts as free.
            let is_dirty = self.marks.get(&self.cache.units, unit).is_dirty;
            // A slot has the block, and may be stuck: a request behind it does not wait for that.
            if is_dirty || self.slots.is_locked(block) {
                if tries == 0 {
                    break;
                }
                tries -= 1;
                self.cache.keep_next_free(is_dirty);
                continue;
            }
            let Some(was) = self.cache.evict_free() else { break };
            self.cleaner.forget(was.unit);
            self.record_forgotten(&was);
        }
        if self.cache.empty_units() < ready.div_ceil(2) {
            self.journal.want_all();
        }
        self.give_units();
    }

    /// Continues a request that waits for a unit, if there is one: another unit for a cached block, or a block's first.
    pub(super) fn give_units(&mut self) {
        if !self.turns.is_unit_wanted {
            return;
        }
        let has_empty = self.cache.empty_units() > 0;
        let has_own = has_empty && self.cache.unused_units() > self.turns.kept();
        // Where no unit is about to leave, as the others are bad or the store takes nothing, the write goes past the
        // cache.
        let may_come = self.is_closing || has_own || self.turn() == Turn::Never;
        let is_out = self.is_out_of_units();
        self.turns.is_unit_wanted = false;
        for (at, slot) in self.slots.slots.iter().enumerate().filter(|(_, slot)| slot.step == Step::Unit) {
            match if slot.is_relocated { has_empty || is_out } else { may_come } {
                true => self.runnable.push_back(at as u32),
                false => self.turns.is_unit_wanted = true,
            }
        }
    }

    /// How far writes of new blocks are paced, per cent. It is 0 while there is room for all, and 100 when they come as
    /// fast as the store takes them.
    pub fn paced_percent(&self) -> u32 {
        self.turns.percent(self.cache.free_units())
    }
}
