//! When what is dirty is written back before its unit is needed: by its share, by its age, or while nobody asks for anything.
//!
//! **The rule.** A *sweep* goes over the units in their order and copies each that is dirty. Over three quarters of `dirty_units_max` one begins
//! and ends at a half; a write that would make more dirty than the whole waits for its turn. Of `age_max` one begins each half: what becomes
//! dirty right behind it is met by the next. While idle one begins, and stops when a request comes.
//!
//! **The complication.** Of so many units a look at all takes long, and a host may have other things to do. So a sweep looks at some, and says
//! when it wants to go on.

use super::layout::BLOCK_BYTES;
use super::machine::{CacheStore, Request, RequestKind, Semantics};
use super::slots::{Kind, Step};
use crate::units::UnitId;
use plimsoll_core::{Span, Time};

/// Units that are looked at in one go, some tens of microseconds; and when the next ones are.
const LOOKS: u32 = 16_384;
const PAUSE: Span = Span::from_millis(1);

/// When to write back early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBack {
    /// Units that may be dirty at once, at least 1; `None`: all.
    pub dirty_units_max: Option<u32>,
    /// How long a unit may be dirty, while the store takes what is asked of it in half of that; `None`: for ever.
    pub age_max: Option<Span>,
    /// After how long without a request everything is written back; `None`: never.
    pub idle_after: Option<Span>,
}

/// Why a sweep goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// So many are dirty.
    Share,
    /// Some may be old.
    Age,
    /// Nobody asks for anything.
    Idle,
}

/// What is written back early.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    pub rules: WriteBack,
    /// The sweep under way: why, and how many units it still has to look at.
    sweep: Option<(Why, u32)>,
    /// The unit that is looked at next.
    next: u32,
    /// When the last one for the age began, and the last request came.
    aged_at: Time,
    asked_at: Time,
}

impl CacheStore {
    /// From now on what is dirty is written back by these rules.
    pub fn set_write_back(&mut self, rules: WriteBack) {
        self.sweeper.rules = rules;
        self.sweeper.sweep = None;
        self.drive();
    }

    /// The rules by which what is dirty is written back early.
    pub fn write_back(&self) -> WriteBack {
        self.sweeper.rules
    }

    /// A request of a client comes.
    #[inline]
    pub fn asked(&mut self, now: Time) {
        self.sweeper.asked_at = now;
        if matches!(self.sweeper.sweep, Some((Why::Idle, _))) {
            self.sweeper.sweep = None;
        }
    }

    /// Time has passed. Says when this is to be called again at the latest, if nothing else happens.
    pub fn tick(&mut self, now: Time) -> Option<Time> {
        let WriteBack { age_max, idle_after, .. } = self.sweeper.rules;
        if age_max.is_none() && idle_after.is_none() && self.sweeper.sweep.is_none() {
            return None;
        }
        if self.dirty_units() == 0 || self.is_closing {
            self.sweeper.aged_at = now;
            return None;
        }
        let (aged_at, asked_at) = (self.sweeper.aged_at, self.sweeper.asked_at);
        let half = age_max.map(|age| Span::from_nanos(age.as_nanos() / 2));
        let aged = half.map(|half| aged_at + half);
        let idle = idle_after.map(|after| asked_at + after);
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        let units = self.superblock.layout.units;
        if is_due(aged) {
            (self.sweeper.sweep, self.sweeper.aged_at) = (Some((Why::Age, units)), now);
            self.cleaner.resume();
        } else if is_due(idle) && self.sweeper.sweep.is_none() && !self.cleaner.is_paused() {
            self.sweeper.sweep = Some((Why::Idle, units));
        }
        if self.cleaner.is_paused() {
            // The store failed: the next request has it tried again, or the next half of an age.
            self.sweeper.sweep = None;
        }
        if self.sweeper.sweep.is_some() {
            self.drive();
        }
        let later = half.map(|half| self.sweeper.aged_at + half);
        let soon = self.sweeper.sweep.map(|_| now + PAUSE);
        let idle = idle.map(|idle| idle.max(now + idle_after.unwrap_or(PAUSE)));
        [later, idle, soon].into_iter().flatten().min()
    }

    /// How many units may be dirty before a sweep begins, and are when it ends.
    fn marks_of_share(&self) -> Option<(u32, u32)> {
        let most = self.sweeper.rules.dirty_units_max?;
        Some((most - most.div_ceil(4), most / 2))
    }

    /// The next unit that a sweep copies. O([`LOOKS`]).
    pub(super) fn next_of_sweep(&mut self) -> Option<u64> {
        if let (None, Some((high, _))) = (self.sweeper.sweep, self.marks_of_share())
            && self.dirty_at_rest() > high
        {
            self.sweeper.sweep = Some((Why::Share, self.superblock.layout.units));
        }
        let units = self.superblock.layout.units;
        for _ in 0..LOOKS {
            let (why, left) = self.sweeper.sweep?;
            let is_enough = match (why, self.marks_of_share()) {
                (Why::Share, Some((_, low))) => self.dirty_at_rest() <= low,
                (Why::Share, None) => true,
                (Why::Age | Why::Idle, _) => false,
            };
            if left == 0 || is_enough {
                self.sweeper.sweep = None;
                return None;
            }
            self.sweeper.sweep = Some((why, left - 1));
            let unit = UnitId(self.sweeper.next);
            self.sweeper.next = (unit.0 + 1) % units;
            if self.marks.get(&self.cache.units, unit).is_dirty && !self.cache.is_being_cleaned(unit) {
                return Some(self.cache.describe(unit).block);
            }
        }
        None
    }

    /// Units that are dirty and that nobody copies.
    fn dirty_at_rest(&self) -> u32 {
        let copying = self.slots.cleaning() + self.cleaner.waiting();
        self.marks.dirty_units.saturating_sub(copying as u32)
    }

    /// Whether a write has to wait, because one unit more would be dirty than may be. Not if none of those becomes clean: the store or the
    /// device has failed then.
    pub(super) fn is_too_dirty(&self, request: &Request) -> bool {
        let Some(most) = self.sweeper.rules.dirty_units_max else { return false };
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
        let writes = |slot: &&super::slots::Slot| {
            slot.kind == Kind::Write
                && !matches!(slot.step, Step::Vacant | Step::Answered | Step::Commit | Step::StoreFlush | Step::Around)
        };
        let writing = self.slots.slots.iter().filter(writes).count() as u32;
        let is_less_soon = writing > 0 || self.slots.cleaning() > 0 || self.cleaner.waiting() > 0;
        self.marks.dirty_units + writing >= most && is_less_soon
    }
}
