//! WDT where another throttle holds the requests: the kernel's, which knows caps and no weights.
//!
//! **Intuition.** What a container used is seen, and caps hold it. So the scheduler's predictor and distributor say how
//! many credits a window brings. A container's cap is the credits of its windows of a second.
//!
//! **Rule.** A look ends a window: what containers used is noted. Each second budgets are predicted anew from what the
//! heaviest used ([`Governor`]), and become caps. A container's cap is split between reads and writes as it read and
//! wrote last. If it turns from reading to writing, the cap is split anew at its next look.
//!
//! **Complication.** The device's queue is not seen, so no window can end early. These stand in for that.
//! * No container has a cap while fewer than two are active. The first TotalCredit is the use of two or more together
//!   in the first second in which no other comes.
//! * TotalCredit is never less than what all used together, and shrinks while none is held.
//! * Every tenth second is a **trial** if a container is held: caps are a little higher for all. So is a second after
//!   two in which all together do less than they once did. If some use their additional credits and all together do
//!   more, the device has room. TotalCredit grows by the part of the step that was used, and the next trial, at once,
//!   goes twice as far. But what the device once did it does with the TotalCredit it had then. If others lose what
//!   these take, the device is full, and what the heaviest uses is what it can have.
//! * A second in which the device does less, or a trial, costs the heaviest: the others' caps are what they were. What
//!   they had beyond their shares of what all had is kept as an account, and half of it is in the next second's caps.
//!   Whether the heaviest wanted more in it is known only when it takes all that it may again. If it does not in three
//!   seconds, it did not want more.
//! * If none takes more, either none wants more or the device is full. It may be full of requests of containers far
//!   below their caps, as after it became slower. So next caps are a little lower. If others take what the held
//!   containers lose by that, TotalCredit is too high. It falls, at once and twice as far each time, until it is what
//!   the device does.
//! * A new container has a share from the next window on, and others' caps are lower from then on.
//! * A throttle lets more through than its cap: the kernel's rounds up to whole requests whenever a cap is new. That is
//!   owed, and the next cap is lower for it.
//! * A container that used less than half of its budget in a window while others are held does not ask for its share.
//!   It is no measure for the others however heavy it is.

mod member;

use super::governor::{Governor, PERIOD};
use super::throttle::{CREDITS_PER_SECTOR, Throttle};
use member::Member;
pub use member::{Caps, Used};
use plimsoll_core::{Span, Time};

/// Caps that no container reaches are none. Bytes a second.
const CAP_NONE: f64 = 1e12;
/// A cap is split anew at once if its part of reads has changed by so much.
const SPLIT_SHIFT: f64 = 1.0 / 4.0;
/// A container that uses less than this part of its budget does not ask for its share.
const ASKING_PART: f64 = 0.5;
/// Seconds between trials of a device that was full.
const TRIAL_EVERY: u32 = 10;
/// Increase of caps in a trial. It is so little that ratios keep within 2 % over ten seconds. The other two are maxima:
/// if the device does less than it did, and when it has shown that it can do more.
const TRIAL_STEP: f64 = 1.0 / 32.0;
const TRIAL_STEP_FAR: f64 = 1.0 / 4.0;
const TRIAL_STEP_MAX: f64 = 1.0 / 2.0;
/// The first step of a trial with lower caps.
const LOWERING_STEP: f64 = -1.0 / 4.0;
/// A container that uses this part of a step wants more than it had.
const WANTING_PART: f64 = 1.0 / 2.0;
/// The device has room if this part of what was taken was not lost by others.
const ROOM_PART: f64 = 1.0 / 2.0;
/// If others lost this part of what was taken, they want it.
const LOST_PART: f64 = 1.0 / 8.0;
/// While no container is held this part of TotalCredit is left each second: what the device can do is not known then.
const FREE_PART: f64 = 0.8;
/// A device does less than it did if so much is missing: more than a second's figures differ by.
const FULL_MARGIN: f64 = 0.03;
/// While new containers come none has a cap, for so many seconds at the most.
const FREE_PERIODS_MAX: u32 = 3;
const SECTOR_BYTES: f64 = 512.0;

/// A second in which caps are higher, to see whether more is done for it; or lower, to see whether less is.
#[derive(Clone, Copy, Debug)]
struct Trial {
    step: f64,
    /// Bytes a second of all before.
    used: f64,
    /// TotalCredit with which the device once did more, if that is looked for. Bytes a second.
    total_max: Option<f64>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Steward {
    throttle: Throttle,
    governor: Governor,
    /// By container.
    members: Vec<Option<Member>>,
    /// Not yet, at first.
    looked: Option<Time>,
    period_began: Time,
    trial: Option<Trial>,
    /// The last trial showed that the device can do more.
    has_room: bool,
    until_trial: u32,
    until_lowering: u32,
    is_lowering_due: bool,
    /// Weight of those that have come in this period.
    joined: u64,
    /// Seconds since a second one came in which no container had a cap.
    free_periods: u32,
    /// Bytes a second of all together when the device was full last, or no container had a cap.
    full: f64,
    /// TotalCredit then; no end if that was not enough to do it again. Bytes a second.
    total_when_full: f64,
    /// All together have done less than that for a period that was no trial.
    did_less: bool,
    anybody_is_held: bool,
}

impl Default for Steward {
    fn default() -> Steward {
        Steward {
            throttle: Throttle::default(),
            governor: Governor::for_periods(),
            members: Vec::new(),
            looked: None,
            period_began: Time::ZERO,
            trial: None,
            has_room: false,
            until_trial: 0,
            until_lowering: 0,
            is_lowering_due: false,
            joined: 0,
            free_periods: 0,
            full: 0.0,
            total_when_full: f64::MAX,
            did_less: false,
            anybody_is_held: false,
        }
    }
}

impl Steward {
    /// A container comes, with a weight of 1 to 10,000. Answers with its number and what it may do until the next
    /// update.
    pub fn join(&mut self, weight: u32) -> (usize, Option<Caps>) {
        let free = self.members.iter().position(Option::is_none);
        let container = free.unwrap_or(self.members.len());
        self.throttle.open(container, weight);
        if free.is_none() {
            self.members.push(None);
        }
        let member = Member::new(weight);
        self.members[container] = Some(member);
        (container, self.set_split(container, member.split))
    }

    /// A container has gone; its number is free.
    pub fn leave(&mut self, container: usize) {
        self.throttle.set_weight(container, 0);
        self.members[container] = None;
    }

    /// When to look next.
    pub fn next_look(&self) -> Time {
        self.governor.window_ends()
    }

    /// TotalCredit, bytes a second; `None` while no container has a cap.
    pub fn total_bytes_per_second(&self) -> Option<f64> {
        let total = bytes_per_second(self.governor.total_sectors());
        (total < CAP_NONE).then_some(total)
    }

    /// Takes what containers did since the last look; answers with caps that are new.
    ///
    /// # Panics
    /// If a container is named that has not joined.
    pub fn look(&mut self, now: Time, uses: &[(usize, Used)]) -> Vec<(usize, Option<Caps>)> {
        let Some(looked) = self.looked.replace(now) else {
            // The first look: what was done is of an unknown time.
            self.governor.end_due(now, &self.throttle);
            self.period_began = now;
            return Vec::new();
        };
        let span = now.since(looked);
        let mut changed = Vec::new();
        for &(container, used) in uses {
            let asks = self.asks(container, used, span);
            let member = self.members[container].as_mut().expect("a container that is looked at has joined");
            member.used.add(used);
            member.has_asked |= asks;
            if used.bytes() > 0 {
                self.throttle.note_used(container, if asks { member.measured(credits(used.bytes())) } else { 0 });
            }
            let (caps, before) = (member.caps, member.split);
            if let Some(split) = used.split().filter(|split| caps.is_some() && (split - before).abs() > SPLIT_SHIFT) {
                changed.push((container, self.set_split(container, split)));
            }
        }
        for member in self.members.iter_mut().flatten() {
            member.allowed_bytes += member.planned() * span.as_secs_f64();
        }
        let (total, joined) = (bytes_per_second(self.governor.total_sectors()), self.throttle.weight_joined());
        if !self.governor.end_due(now, &self.throttle) {
            return changed;
        }
        let somebody_came = std::mem::replace(&mut self.joined, joined) != joined;
        if self.governor.is_new_period() {
            self.end_period(now, total);
            self.members.iter_mut().flatten().for_each(Member::begin_period);
            self.joined = 0;
        } else if somebody_came {
            // A new container has a share, which others had before; what they do now is no answer to a trial.
            self.trial = None;
        } else {
            return changed;
        }
        (0..self.members.len()).filter_map(|one| Some((one, self.set_split(one, self.members[one]?.split)))).collect()
    }

    /// Whether a container asks for its share of a window.
    fn asks(&self, container: usize, used: Used, span: Span) -> bool {
        let budget = self.throttle.budget(container) as f64 * windows(span);
        used.bytes() > 0 && (!self.anybody_is_held || credits(used.bytes()) as f64 >= budget * ASKING_PART)
    }

    /// What the device can do, seen from what happened in this period, in which containers had `total` bytes a second.
    fn end_period(&mut self, now: Time, total: f64) {
        let span = now.since(std::mem::replace(&mut self.period_began, now));
        let rate = |member: &Member| member.used.bytes() as f64 / span.as_secs_f64();
        let members = || self.members.iter().flatten();
        let used: f64 = members().map(rate).sum();
        let active = || members().filter(|member| member.used.bytes() > 0);
        let (active, weight) = (active().count(), active().map(|member| u64::from(member.weight)).sum());
        let step = self.trial.map_or(0.0, |trial| trial.step);
        // How much more those took that wanted more than they had; in a trial downwards, how much those lost that had
        // all they might.
        let taken: f64 = members()
            .filter_map(|member| Some((rate(member), member.was_held_at?)))
            .map(|(rate, before)| ((rate - before) * step.signum(), before))
            .filter(|(taken, before)| *taken >= before * step.abs() * WANTING_PART)
            .map(|(taken, _)| taken)
            .sum();
        let asking = self.members.iter().enumerate().filter_map(|(container, member)| Some((container, (*member)?)));
        let asking = asking.filter(|(_, member)| member.has_asked);
        let heaviest = asking.max_by_key(|(container, member)| (member.weight, std::cmp::Reverse(*container)));
        let heaviest = heaviest.map(|(container, _)| container);
        self.governor.measure(heaviest, weight, &self.throttle);
        for member in self.members.iter_mut().flatten() {
            let rate = rate(member);
            member.is_held = member.used.is_held_by(member.caps, span);
            member.gained_bytes = member.was_held_at.map_or(0.0, |before| (rate - before) * span.as_secs_f64());
            member.was_held_at = (member.is_held && self.joined == 0).then_some(rate);
            member.settle();
        }
        member::keep_accounts(&mut self.members, self.joined != 0);
        self.anybody_is_held = self.members.iter().flatten().any(|member| member.is_held);
        let heaviest_is_held = heaviest.is_some_and(|one| self.members[one].is_some_and(|member| member.is_held));
        let total_min = if active < 2 {
            (self.trial, self.has_room, self.is_lowering_due) = (None, false, false);
            (self.until_trial, self.free_periods) = (0, 0);
            f64::MAX
        } else if total >= CAP_NONE {
            // No container was held, and what was given says nothing. What new containers used in this second is not
            // all they can.
            self.free_periods += 1;
            let is_known = self.joined == 0 || self.free_periods > FREE_PERIODS_MAX;
            (self.full, self.total_when_full) = (used, used);
            return self.set_total(if is_known { used } else { f64::MAX });
        } else {
            self.try_for_more(used, taken, total, heaviest_is_held)
        };
        if bytes_per_second(self.governor.total_sectors()) < total_min {
            self.set_total(total_min);
        }
    }

    fn set_total(&mut self, total: f64) {
        self.governor.set_total(sectors_per_window(total), &self.throttle);
    }

    /// Judges the trial that was, if any, and begins the next one if it is time. Answers with the least TotalCredit.
    /// All in bytes a second: what all `used`, what those that wanted more have `taken` in the trial, and what there
    /// was in all.
    fn try_for_more(&mut self, used: f64, taken: f64, total: f64, heaviest_is_held: bool) -> f64 {
        let (mut total_min, mut step) = (used, TRIAL_STEP);
        // By how much it could do more if it does what it did.
        let missing = self.full / used.max(f64::MIN_POSITIVE) - 1.0;
        let does_less = missing > FULL_MARGIN;
        self.did_less &= does_less;
        if !does_less {
            self.total_when_full = total;
        }
        self.until_trial = self.until_trial.saturating_sub(1);
        self.until_lowering = self.until_lowering.saturating_sub(1);
        if let Some(trial) = self.trial.take() {
            // A second in which caps were others is no measure of what the heaviest can have.
            total_min = used.max(total);
            if trial.step < 0.0 {
                (total_min, step) = self.judge_lowering(trial, used, taken, total);
            } else if taken > 0.0 {
                (total_min, step) = self.judge(trial, used, taken, total, missing);
            } else {
                // No container wanted more, or none could have more.
                self.has_room = false;
                self.until_trial = 1;
                self.is_lowering_due = self.until_lowering == 0 && total * (1.0 + LOWERING_STEP) > used;
            }
        } else if !self.anybody_is_held {
            self.has_room = false;
            total_min = used.max(total * FREE_PART);
        } else if std::mem::take(&mut self.is_lowering_due) {
            (step, self.until_trial, total_min) = (LOWERING_STEP, 0, used.max(total));
        } else if self.has_room {
            total_min = used.max(total);
        } else if does_less && std::mem::replace(&mut self.did_less, true) {
            // From what the governor makes of a second that was no trial.
            step = missing.clamp(TRIAL_STEP, TRIAL_STEP_FAR);
            self.has_room = true;
        }
        if self.anybody_is_held && (self.has_room || self.until_trial == 0) {
            // Where the heaviest takes all that it may, what the device did when it was full is no more than it does.
            let full = if heaviest_is_held && !does_less && step > 0.0 { self.full } else { 0.0 };
            let total_max = does_less.then(|| self.total_when_full.max(total_min));
            self.trial = Some(Trial { step, used: used.max(full), total_max });
        }
        total_min
    }

    /// What a trial showed in which some have taken more. Answers with the least TotalCredit, and the next step.
    fn judge(&mut self, trial: Trial, used: f64, taken: f64, total: f64, missing: f64) -> (f64, f64) {
        self.until_trial = TRIAL_EVERY - 1;
        let part = (used - trial.used) / taken;
        self.has_room = false;
        if part < ROOM_PART {
            self.full = used;
            return (used.max(total), TRIAL_STEP);
        }
        if self.lost() > taken * LOST_PART {
            // It does more, and is full with that.
            return (used, TRIAL_STEP);
        }
        self.has_room = true;
        let mut step = (trial.step * 2.0).min(TRIAL_STEP_MAX);
        if missing > 0.0 || trial.total_max.is_some() {
            step = step.min(missing.max(TRIAL_STEP));
        }
        self.total_when_full = f64::MAX;
        let grown = total * (1.0 + (trial.step * part).min(trial.step));
        (used.max(grown.min(trial.total_max.unwrap_or(f64::MAX))), step)
    }

    /// What a trial showed in which caps were lower. Answers with the least TotalCredit, and the next step.
    fn judge_lowering(&mut self, trial: Trial, used: f64, lost: f64, total: f64) -> (f64, f64) {
        let is_full = lost > 0.0 && trial.used - used <= lost * (1.0 - ROOM_PART);
        if !is_full {
            (self.until_trial, self.until_lowering) = (1, TRIAL_EVERY);
            return (used.max(total), TRIAL_STEP);
        }
        self.full = used;
        let total = used.max(total * (1.0 + trial.step));
        self.set_total(total);
        // Not so far that the device must idle.
        let step = (trial.step * 2.0).max(-TRIAL_STEP_MAX).max((1.0 - TRIAL_STEP) * used / total - 1.0);
        (self.until_trial, self.until_lowering) = if total > used { (0, 0) } else { (TRIAL_EVERY - 1, TRIAL_EVERY) };
        (total, step)
    }

    /// How much less the containers held in the period before used in this one, bytes a second.
    fn lost(&self) -> f64 {
        self.members.iter().flatten().map(|member| -member.gained_bytes.min(0.0)).sum::<f64>() / PERIOD.as_secs_f64()
    }

    fn set_split(&mut self, container: usize, split: f64) -> Option<Caps> {
        let is_capped = self.total_bytes_per_second().is_some();
        let sectors = self.throttle.budget(container) as f64 / CREDITS_PER_SECTOR as f64;
        let budget = bytes_per_second(sectors) * (1.0 + self.trial.map_or(0.0, |trial| trial.step));
        let member = self.members[container].as_mut()?;
        (member.split, member.budget) = (split, budget);
        member.caps = is_capped.then(|| member.payable());
        member.caps
    }
}

fn credits(bytes: u64) -> i64 {
    (bytes as f64 / SECTOR_BYTES * CREDITS_PER_SECTOR as f64) as i64
}

fn windows(span: Span) -> f64 {
    span.as_secs_f64() / super::governor::WINDOW.as_secs_f64()
}

fn sectors_per_window(bytes_per_second: f64) -> f64 {
    bytes_per_second / SECTOR_BYTES * super::governor::WINDOW.as_secs_f64()
}

fn bytes_per_second(sectors_per_window: f64) -> f64 {
    sectors_per_window * SECTOR_BYTES / super::governor::WINDOW.as_secs_f64()
}

#[cfg(test)]
mod tests;
