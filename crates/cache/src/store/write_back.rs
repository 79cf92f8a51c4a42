//! When a dirty unit is written back early: for the part of dirty units, for its age, or without requests.
//!
//! **The rule.** A *sweep* goes over the units in their order and copies each that is dirty. Over three quarters of
//! `dirty_units_max` a sweep begins, and it ends at a half. A write beyond the maximum waits for its turn. Each half of
//! `age_max` a sweep begins: the next sweep meets units that become dirty right behind it. While idle a sweep begins,
//! and stops when a request comes.
//!
//! **The complication.** A look at so many units takes long, and a host may have other things to do. So a sweep looks
//! at some, and says when it wants to go on.

use crate::units::UnitId;
use plimsoll_core::{Span, Time};

/// Units that a sweep examines in one go, some tens of microseconds, and the time to the next ones.
const LOOKS: u32 = 16_384;
const PAUSE: Span = Span::from_millis(1);

/// When to write back early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBack {
    /// Units that may be dirty at once, at least 1; `None`: all.
    pub dirty_units_max: Option<u32>,
    /// How long a unit may be dirty, if the store answers within half of that; `None`: for ever.
    pub age_max: Option<Span>,
    /// After how long without a request everything is written back; `None`: never.
    pub idle_after: Option<Span>,
}

/// Reason for which a sweep continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Too many units are dirty.
    Share,
    /// Some dirty units may be old.
    Age,
    /// No requests come.
    Idle,
}

/// What is written back early.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    rules: WriteBack,
    /// The sweep under way: why, and how many units it still has to look at.
    sweep: Option<(Reason, u32)>,
    /// The unit that is looked at next.
    next: u32,
    /// When the last one for the age began, and the last request came.
    aged_at: Time,
    asked_at: Time,
}

impl Sweeper {
    pub fn rules(&self) -> WriteBack {
        self.rules
    }

    /// Goes on by other rules; a sweep under way ends.
    pub fn set_rules(&mut self, rules: WriteBack) {
        (self.rules, self.sweep) = (rules, None);
    }

    /// A request of a client comes.
    #[inline]
    pub fn asked(&mut self, now: Time) {
        self.asked_at = now;
        if matches!(self.sweep, Some((Reason::Idle, _))) {
            self.sweep = None;
        }
    }

    /// Whether time makes a difference.
    pub fn depends_on_time(&self) -> bool {
        self.rules.age_max.is_some() || self.rules.idle_after.is_some() || self.sweep.is_some()
    }

    /// Nothing is dirty, or may become so.
    pub fn all_clean(&mut self, now: Time) {
        self.aged_at = now;
    }

    fn half_age(&self) -> Option<Span> {
        self.rules.age_max.map(|age| Span::from_nanos(age.as_nanos() / 2))
    }

    fn idle_at(&self) -> Option<Time> {
        self.rules.idle_after.map(|after| self.asked_at + after)
    }

    /// Begins what is due in a cache of so many units. `is_paused` says that the store failed. The next request, or the
    /// next half of an age, tries again; until then no sweep continues. Answers whether one does.
    pub fn tick(&mut self, now: Time, units: u32, is_paused: &mut bool) -> bool {
        let is_due = |due: Option<Time>| due.is_some_and(|due| due <= now);
        if is_due(self.half_age().map(|half| self.aged_at + half)) {
            (self.sweep, self.aged_at) = (Some((Reason::Age, units)), now);
            *is_paused = false;
        } else if is_due(self.idle_at()) && self.sweep.is_none() && !*is_paused {
            self.sweep = Some((Reason::Idle, units));
        }
        if *is_paused {
            self.sweep = None;
        }
        self.sweep.is_some()
    }

    /// When the next tick is to come, at the latest.
    pub fn next_tick(&self, now: Time) -> Option<Time> {
        let later = self.half_age().map(|half| self.aged_at + half);
        let soon = self.sweep.map(|_| now + PAUSE);
        let idle = self.idle_at().map(|idle| idle.max(now + self.rules.idle_after.unwrap_or(PAUSE)));
        [later, idle, soon].into_iter().flatten().min()
    }

    /// How many units may be dirty before a sweep begins, and are when it ends.
    fn marks_of_share(&self) -> Option<(u32, u32)> {
        let most = self.rules.dirty_units_max?;
        Some((most - most.div_ceil(4), most / 2))
    }

    /// Whether there is a sweep, or may be one for the share.
    pub fn may_sweep(&self) -> bool {
        self.sweep.is_some() || self.rules.dirty_units_max.is_some()
    }

    /// The next block of a sweep, in a cache of so many units of which `dirty_at_rest` are dirty and not being copied.
    /// `block_at_rest` answers the block of such a unit. O(units that are looked at in one go).
    pub fn next_block(
        &mut self,
        units: u32,
        dirty_at_rest: impl Fn() -> u32,
        block_at_rest: impl Fn(UnitId) -> Option<u64>,
    ) -> Option<u64> {
        if let (None, Some((high, _))) = (self.sweep, self.marks_of_share())
            && dirty_at_rest() > high
        {
            self.sweep = Some((Reason::Share, units));
        }
        let (why, _) = self.sweep?;
        let is_enough = match (why, self.marks_of_share()) {
            (Reason::Share, Some((_, low))) => dirty_at_rest() <= low,
            (Reason::Share, None) => true,
            (Reason::Age | Reason::Idle, _) => false,
        };
        for _ in 0..LOOKS {
            let (why, left) = self.sweep?;
            if left == 0 || is_enough {
                self.sweep = None;
                return None;
            }
            self.sweep = Some((why, left - 1));
            let unit = UnitId(self.next);
            self.next = (unit.0 + 1) % units;
            if let Some(block) = block_at_rest(unit) {
                return Some(block);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: u32 = 100;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// The blocks that sweeps copy while so many units are dirty at first, and each copied one is clean.
    fn swept(sweeper: &mut Sweeper, dirty: Vec<u32>) -> Vec<u64> {
        let (dirty, mut blocks) = (std::cell::RefCell::new(dirty), Vec::new());
        let block_of = |unit: UnitId| dirty.borrow().contains(&unit.0).then_some(u64::from(unit.0));
        while let Some(block) = sweeper.next_block(UNITS, || dirty.borrow().len() as u32, block_of) {
            dirty.borrow_mut().retain(|&unit| u64::from(unit) != block);
            blocks.push(block);
        }
        blocks
    }

    /// Planted break: a sweep for the share goes on until nothing is dirty, red.
    #[test]
    fn above_three_quarters_of_the_share_it_copies_down_to_a_half() {
        let mut sweeper = Sweeper::default();
        sweeper.set_rules(WriteBack { dirty_units_max: Some(40), ..WriteBack::default() });
        assert_eq!(swept(&mut sweeper, (10..40).collect()), [0u64; 0], "thirty are three quarters");
        assert_eq!(swept(&mut sweeper, (10..41).collect()), (10..21).collect::<Vec<u64>>());
        assert_eq!(swept(&mut sweeper, (0..31).collect())[0], 21, "the next sweep goes on where that one ended");
        assert!(!sweeper.depends_on_time());
    }

    #[test]
    fn each_half_of_an_age_a_sweep_begins_even_if_the_store_failed() {
        let mut sweeper = Sweeper::default();
        sweeper.set_rules(WriteBack { age_max: Some(Span::from_millis(100)), ..WriteBack::default() });
        sweeper.all_clean(at(1000));
        let mut is_paused = true;
        assert!(!sweeper.tick(at(1049), UNITS, &mut is_paused) && is_paused);
        assert_eq!(sweeper.next_tick(at(1049)), Some(at(1050)));
        assert!(sweeper.tick(at(1050), UNITS, &mut is_paused) && !is_paused);
        assert_eq!(swept(&mut sweeper, vec![5, 99]), [5, 99]);
        assert_eq!(sweeper.next_tick(at(1050)), Some(at(1100)));
        is_paused = true;
        assert!(!sweeper.tick(at(1060), UNITS, &mut is_paused));
    }

    /// Planted break: a request does not end the sweep, red.
    #[test]
    fn while_idle_a_sweep_goes_on_until_a_request_comes() {
        let mut sweeper = Sweeper::default();
        sweeper.set_rules(WriteBack { idle_after: Some(Span::from_millis(10)), ..WriteBack::default() });
        let mut is_paused = false;
        sweeper.asked(at(5));
        assert!(!sweeper.tick(at(14), UNITS, &mut is_paused));
        assert!(sweeper.tick(at(15), UNITS, &mut is_paused));
        assert_eq!(sweeper.next_tick(at(15)), Some(at(16)), "it may have looked at a part only");
        sweeper.asked(at(15));
        assert_eq!(swept(&mut sweeper, vec![5]), [0u64; 0]);
        assert_eq!(sweeper.next_tick(at(15)), Some(at(25)));
    }
}
