//! Which write may take a unit: new blocks come in only as fast as others leave ([`Pace`](super::pace::Pace)).
//!
//! A write that has to wait is not taken at all: it has no slot, so it stands in no request's way, least of all in that
//! of reads of what is in the cache. A read never waits for a unit: it goes past the cache.
//!
//! **The complication.** A write that waited for another request on its block may find that another block took its unit
//! meanwhile. The write has a slot, and waits in it.
//!
//! **A write that waits, waits for something.** A write is told to come again only if units leave, or are free and the
//! journal is about to say so. In both cases an operation is under way, and when it has ended the host asks again. If
//! nothing leaves, because the store fails, the write goes past the cache and hears of it.

use super::bytes::BLOCK_BYTES;
use super::cleaner::ready_units;
use super::machine::CacheStore;
use super::operation::{Action, Request, RequestKind, Semantics};
use super::pace::Pace;
use super::slots::Step;
use crate::access::Access;
use crate::cache::{Cache, Outcome};
use crate::units::Pool;
use plimsoll_core::Class;
use std::ops::Range;

/// What a block that is not in the cache may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// A unit.
    Now,
    /// A unit later.
    Later,
    /// No write: no unit is about to leave.
    Never,
}

/// The pace of a cache that has so many requests at once. Units are kept for them, but no more than half of those that
/// are always ready, and of those with which the syncer wakes up.
pub(super) fn pace_of(cache: &Cache, requests: u32) -> Pace {
    let (low, ready) = (cache.watermark_low, ready_units(cache.units.count()));
    Pace::new(low, requests.min(low / 2).min(ready / 2).max(1))
}

impl CacheStore {
    fn turn(&mut self) -> Turn {
        let (free, unused) = (self.cache.free_units(), self.cache.unused_units());
        // What has left the order and is dirty is being copied, unless the store failed.
        let is_leaving = self.cache.leaving_units() > 0 && !self.cleaner.is_paused() && !self.is_closing;
        if unused <= self.pace.kept() {
            // What is free is being made ready.
            return if is_leaving || free > unused { Turn::Later } else { Turn::Never };
        }
        let left = self.cache.given_up_clean + self.cleaner.copied_victims;
        if is_leaving && !self.pace.may_take(free, left) {
            return Turn::Later;
        }
        if self.cache.empty_units() > 0 { Turn::Now } else { Turn::Later }
    }

    /// Whether a request is going to take a unit, and has to come again for it.
    pub(super) fn must_wait(&mut self, request: &Request) -> bool {
        let Request { kind, block, from, to, class, pool, .. } = *request;
        if self.is_too_dirty(request) {
            if !std::mem::replace(&mut self.is_turn_awaited, true) {
                self.drive();
            }
            self.is_turn_awaited = self.is_too_dirty(request);
            if self.is_turn_awaited {
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
        self.pace.wanted_unit = true;
        if self.turn() == Turn::Later && !std::mem::replace(&mut self.is_turn_awaited, true) {
            // What was copied is flushed sooner now.
            self.drive();
        }
        self.is_turn_awaited = self.turn() == Turn::Later;
        self.is_turn_awaited
    }

    /// Whether there are units for what is read.
    fn may_take_for_reads(&mut self) -> bool {
        let is_pressed = self.is_turn_awaited && self.cache.free_units() < self.cache.watermark_low;
        !self.journal.is_crowded() && !is_pressed && self.turn() == Turn::Now
    }

    /// Whether a read of `blocks` goes past the cache: none of them is there or under way, nor would be taken in;
    /// `whose` says what each block is. Then it is counted, and the host asks the store for it as if there were no
    /// cache. A request that writes one of the blocks meanwhile runs at the same time as the read, so either version is
    /// right. O(blocks + places).
    pub fn let_past(&mut self, blocks: Range<u64>, mut whose: impl FnMut(u64) -> (Class, Pool)) -> bool {
        // A hit pays for no more than that.
        if self.is_cached(blocks.start).is_some() {
            return false;
        }
        let mut access_to = |block| {
            let (class, pool) = whose(block);
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

    /// Reads or writes a block in the cache, or takes it in if there is a unit for it.
    pub(super) fn access_in_turn(&mut self, access: &Access) -> Outcome {
        let free = self.cache.free_units();
        if self.cache.find(access.block).is_none() {
            if let Some(outcome) = self.cache.turned_away(access) {
                return outcome;
            }
            let may_take = match access.is_write {
                // It waited for its turn before it was taken.
                true => self.cache.unused_units() > self.pace.kept(),
                false => self.may_take_for_reads(),
            };
            if !may_take {
                return Outcome::Full;
            }
        }
        let outcome = self.cache.enter(access);
        if matches!(outcome, Outcome::Taken(_)) {
            self.pace.take(free);
        }
        outcome
    }

    /// Takes in a block that the store has, and that was written, if there is a unit for it.
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
            self.pace.take(free);
        }
        outcome
    }

    /// Writes a block that is not in the cache into a unit of its own, or past the cache.
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

    /// The request goes on when there is a unit for it.
    pub(super) fn wait_for_unit(&mut self, at: usize) {
        if self.has_failed {
            return self.refuse(at);
        }
        self.slots.slots[at].step = Step::Unit;
        self.is_unit_wanted = true;
        self.journal.want_all();
    }

    /// No unit goes round among the writes of what is in the cache: the ones that were kept for them are bad. A write
    /// that waits has its block, and a copy may wait for just that.
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
            self.record_forgotten(was.unit, was.block, was.class, was.pool);
        }
        if self.cache.empty_units() < ready.div_ceil(2) {
            self.journal.want_all();
        }
        self.give_units();
    }

    /// Lets a request that waits for a unit go on, if there is one for it: another for a block that has one, or a
    /// block's first.
    pub(super) fn give_units(&mut self) {
        if !self.is_unit_wanted {
            return;
        }
        let has_empty = self.cache.empty_units() > 0;
        let has_own = has_empty && self.cache.unused_units() > self.pace.kept();
        // Where no unit is about to leave, as the others are bad or the store takes nothing, the write goes past the
        // cache.
        let may_come = self.is_closing || has_own || self.turn() == Turn::Never;
        let is_out = self.is_out_of_units();
        self.is_unit_wanted = false;
        for (at, slot) in self.slots.slots.iter().enumerate().filter(|(_, slot)| slot.step == Step::Unit) {
            match if slot.is_relocated { has_empty || is_out } else { may_come } {
                true => self.runnable.push_back(at as u32),
                false => self.is_unit_wanted = true,
            }
        }
    }

    /// How far writes of new blocks are paced, per cent: 0 as long as there is room for all of them, 100 when as many
    /// come in as the store takes.
    pub fn paced_percent(&self) -> u32 {
        self.pace.percent(self.cache.free_units())
    }
}
