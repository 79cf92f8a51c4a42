//! Administration of a cache at work: status, another policy, cleaning everything, the end.

use super::{CacheStore, ClassCounters, Counters};
use crate::cache::Cache;
use crate::config::{CacheConfig, ConfigError};
use crate::policy::PolicyEntry;
use crate::store::bytes::BLOCK_BYTES;
use crate::store::marks::Mark;
use crate::store::operation::{Operation, Origin, Request, RequestKind, Semantics};
use crate::store::refused::NotCopied;
use crate::store::slots::{Slot, Step, TaskKind};
use crate::store::superblock::Superblock;
use crate::store::write_back::WriteBack;
use crate::units::UnitId;
use plimsoll_core::{Class, Time};

impl CacheStore {
    /// What `operation`, which is under way, is for.
    pub fn origin(&self, operation: &Operation) -> Origin {
        match self.slots.slots.get(operation.id as usize) {
            Some(slot) if matches!(slot.kind, TaskKind::Clean { .. }) => {
                Origin::Syncer(self.cache.find(slot.block).map_or(slot.class, |unit| self.cache.describe(unit).class))
            }
            Some(slot) => Origin::Request(slot.token, slot.class),
            None => Origin::Own,
        }
    }

    /// Number of failed flushes of the store while acknowledged writes or trims past the cache were not flushed. It is
    /// unknown which of them the store has, and the next successful flush does not say so: a device reports a loss
    /// once. So a session that flushes next and has not been told is to be told. With [`Semantics::Strict`] none is
    /// acknowledged before. Then there is one doubt at the most: for what was written before the start, perhaps without
    /// a cache, if the first flush fails.
    pub fn doubts(&self) -> u64 {
        self.store.doubts()
    }

    /// Operations have numbers below this.
    pub fn operations_max(&self) -> u32 {
        self.outbox.operations_max()
    }

    /// What happened so far to blocks of `class`.
    pub fn class_counters(&self, class: Class) -> ClassCounters {
        self.class_counters[usize::from(class.number())]
    }

    /// How often [`CacheStore::clean_all`] has looked at every unit and copied those that were dirty. What was written
    /// before that began, and not again, is on the store.
    pub fn clean_passes(&self) -> u64 {
        self.cleaner.passes
    }

    /// Whether everything is being cleaned. That ends when nothing is dirty, the rest cannot be read, or the store
    /// failed.
    pub fn is_cleaning_all(&self) -> bool {
        self.cleaner.is_cleaning_all()
    }

    /// Whether the dirty rest, after [everything was cleaned](Self::clean_all), cannot be read, or its record is not
    /// durable on a failed device. Not if the store failed.
    pub fn is_rest_unreadable(&self) -> bool {
        !self.cleaner.is_paused() && self.marks.dirty_units <= self.cleaner.unreadable
    }

    /// What is dirty stays so until the policy gives it up.
    pub fn clean_no_more(&mut self) {
        self.cleaner.clean_no_more();
    }

    /// Goes on after [`CacheStore::close`].
    pub fn resume(&mut self) {
        (self.is_closing, self.snapshot.all_recorded) = (false, false);
        self.drive();
    }

    /// Refuses writes from now on, as after a failure of the device: its owner knows that it is unreliable.
    pub fn refuse_writes(&mut self) {
        self.fail();
        self.drive();
    }

    /// The cache is never found again, whatever its device says: its owner has noted that elsewhere. So what is dirty
    /// may be [copied](Self::clean_all) though the device, which has failed, does not know where it is.
    pub fn note_given_up(&mut self) {
        self.journal.is_given_up = self.has_failed;
    }

    /// Whether the device of the cache failed, so that writes are refused.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The half that decides: contents by class, the syncer.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Units that the store lacks, so far as the device knows.
    pub fn dirty_units(&self) -> u32 {
        self.marks.dirty_units
    }

    /// Units that hold a block.
    pub fn used_units(&self) -> u32 {
        self.superblock.layout.units - self.cache.empty_units() - self.cache.bad_units()
    }

    /// The superblock that holds.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes that grow with the units.
    pub fn bytes(&self) -> usize {
        self.cache.bytes() + self.marks.bytes()
    }

    /// Goes on with another policy, scheme or bounds.
    ///
    /// # Errors
    /// What of `config` is out of range; nothing is changed then.
    pub fn set_policy(&mut self, config: &CacheConfig, policy: &PolicyEntry) -> Result<(), ConfigError> {
        self.cache.set_policy(config, policy)?;
        self.turns.set_pace(self.cache.units.count(), self.cache.watermark_low, self.slots.requests());
        self.drive();
        Ok(())
    }

    /// From now on writes are acknowledged so. Where nothing is to be dirty, what is so is copied to the store.
    pub fn set_semantics(&mut self, semantics: Semantics) {
        self.semantics = semantics;
        if semantics == Semantics::WriteThrough && self.marks.dirty_units > 0 {
            self.clean_all();
        }
    }

    /// Copies all dirty units to the store. [`CacheStore::dirty_units`] falls to 0, unless more is written meanwhile.
    pub fn clean_all(&mut self) {
        self.cleaner.clean_all();
        self.drive();
    }

    /// Writes a snapshot when all requests are answered, so that the next start reads no journal. The host submits
    /// nothing more.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.drive();
    }

    /// Whether there is nothing left to do.
    pub fn is_closed(&self) -> bool {
        let is_done =
            self.has_failed || (self.is_ready_to_close() && self.snapshot.all_recorded && self.is_snapshot_complete());
        self.is_closing && self.slots.is_idle() && is_done
    }

    /// Whether the last snapshot may begin: nothing is under way, and the store was flushed, or cannot be.
    pub(super) fn is_ready_to_close(&self) -> bool {
        let is_idle = self.is_closing && self.slots.is_idle() && self.cleaner.is_idle();
        is_idle && (self.store.is_flushed() || self.store.has_lost())
    }

    /// While requests come, not every unit that a read has brought is recorded. At the end all are: by the last
    /// snapshot, which says so without the journal. They may be as soon as the store is flushed, and they are durable
    /// before the snapshot holds. Once a close; O(units), and each page of the map is written once at the most.
    pub(super) fn record_what_reads_brought(&mut self) {
        if self.snapshot.all_recorded || !self.is_ready_to_close() {
            return;
        }
        self.snapshot.all_recorded = true;
        if !self.store.is_flushed() {
            return;
        }
        for unit in (0..self.superblock.layout.units).map(UnitId) {
            let mark = self.marks.get(&self.cache.units, unit);
            if !mark.is_recorded && self.cache.find(self.cache.describe(unit).block) == Some(unit) {
                self.change_mark(unit, Mark { is_recorded: true, ..mark });
            }
        }
    }

    /// From now on what is dirty is written back by these rules.
    pub fn set_write_back(&mut self, rules: WriteBack) {
        self.cleaner.sweeper.set_rules(rules);
        self.drive();
    }

    /// The rules by which what is dirty is written back early.
    pub fn write_back(&self) -> WriteBack {
        self.cleaner.sweeper.rules()
    }

    /// A request of a client comes.
    #[inline]
    pub fn asked(&mut self, now: Time) {
        self.cleaner.sweeper.asked(now);
    }

    /// Time has passed. Says when this is to be called again at the latest, if nothing else happens.
    pub fn tick(&mut self, now: Time) -> Option<Time> {
        if !self.cleaner.sweeper.depends_on_time() {
            return None;
        }
        if self.dirty_units() == 0 || self.is_closing {
            self.cleaner.sweeper.all_clean(now);
            return None;
        }
        if self.cleaner.tick(now, self.superblock.layout.units) {
            self.drive();
        }
        self.cleaner.sweeper.next_tick(now)
    }

    /// Units that the store refused since the last [`CacheStore::clean_all`]: they are in the cache, dirty.
    pub fn not_copied(&self) -> NotCopied {
        self.cleaner.refused.not_copied()
    }

    /// Dirty units that the cache's device has damaged, as far as a read or a pass has found them. O(units / 64) if
    /// there is any.
    pub fn damaged(&self) -> NotCopied {
        let is_dirty = |unit: &UnitId| self.marks.get(&self.cache.units, *unit).is_dirty;
        self.cleaner.damaged.dirty(|unit| Some(unit).filter(is_dirty).map(|unit| self.cache.describe(unit).block))
    }

    /// The damaged units that are new since the owner asked last, for its log. `None` while everything is being
    /// copied. For units that reads meet, each time when there is an eighth more: so a device that rots fills no log.
    pub fn take_newly_damaged(&mut self) -> Option<NotCopied> {
        if self.is_cleaning_all() { None } else { self.cleaner.damaged.take_news(self.counters.damaged_dirty) }
    }

    /// Units that the store refused in the last pass, for the owner's log. `None` during a pass, and for units that the
    /// owner has heard of.
    pub fn take_newly_refused(&mut self) -> Option<NotCopied> {
        if self.is_cleaning_all() { None } else { self.cleaner.refused.take_news() }
    }

    /// Units that the device cannot write. They hold nothing, and the next start tries them again.
    pub fn bad_units(&self) -> u32 {
        self.cache.bad_units()
    }

    /// Whether a write has to wait, because it would exceed the maximum of dirty units. Not if none of those becomes
    /// clean: the store or the device has failed then.
    pub(super) fn is_too_dirty(&self, request: &Request) -> bool {
        let Some(most) = self.cleaner.sweeper.rules().dirty_units_max else { return false };
        let is_loose = self.semantics != Semantics::WriteThrough && !self.is_closing && !self.has_failed;
        if request.kind != RequestKind::Write || !is_loose {
            return false;
        }
        let is_whole = request.from == 0 && usize::from(request.to) == BLOCK_BYTES;
        let adds = match self.is_cached(request.block) {
            Some(unit) => !self.marks.get(&self.cache.units, unit).is_dirty,
            None => is_whole,
        };
        if !adds || self.marks.dirty_units + self.requests_under_way() < most {
            return false;
        }
        let writes = |slot: &&Slot| {
            slot.kind == TaskKind::Write
                && !matches!(slot.step, Step::Vacant | Step::Answered | Step::Commit | Step::StoreFlush | Step::Around)
        };
        let writing = self.slots.slots.iter().filter(writes).count() as u32;
        let is_less_soon = writing > 0 || self.slots.cleaning() > 0 || self.cleaner.waiting() > 0;
        self.marks.dirty_units + writing >= most && is_less_soon
    }
}
