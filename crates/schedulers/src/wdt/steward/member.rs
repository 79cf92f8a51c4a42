//! A container as the steward sees it: what it may do, what it did, and the accounts of what it had too much.
//!
//! **Rule.** What a container used beyond what it was allowed it owes, and pays in the next period. A container is
//! **ahead** if it takes all that it may and had more than its share of the sum of such containers. It gives half of
//! that back in the next period. A container that had less may have more. So a second in which the device did less, or
//! caps were others, costs no container its share.
//!
//! **Complication.** A container that took less than it might either could not have more, or did not want it. Which it
//! was is known when it takes all that it may again: until then what was had is not accounted for. A container that
//! does not in three periods did not want it.

use super::super::governor::PERIOD;
use plimsoll_core::Span;

/// Never less, so that nothing waits for minutes: a page a second. Bytes a second.
const CAP_MIN: f64 = 4096.0;
/// Part of its share that a container that only reads may write, and the other way round, until it is split anew.
const SPLIT_MIN: f64 = 1.0 / 8.0;
/// A container that uses this part of a cap is held by it: the kernel's throttle lets go in slices.
const HELD_PART: f64 = 0.9;
/// Part of what it is ahead that a container gives back in a period: an odd period is not answered by another one.
const GIVEN_BACK_PART: f64 = 1.0 / 2.0;
/// Part of its budget that it gives back in a period at the most, or has beyond it.
const GIVEN_BACK_MAX: f64 = 1.0 / 4.0;
/// A container that took less than it might for more periods did not want more.
const UNHELD_PERIODS_MAX: u32 = 2;
/// Part of what it was ahead that is forgotten in a period in which it does not want more.
const FORGOTTEN_PART: f64 = 1.0 / 2.0;

/// What a container did between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes.
    pub read_bytes: u64,
    /// Bytes.
    pub written_bytes: u64,
}

/// What a container may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes a second.
    pub read_bytes_per_second: u64,
    /// Bytes a second.
    pub write_bytes_per_second: u64,
}

impl Used {
    /// Bytes that were read or written.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    pub(super) fn add(&mut self, other: Used) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// The part of reads.
    pub(super) fn split(&self) -> Option<f64> {
        (self.bytes() > 0).then(|| self.read_bytes as f64 / self.bytes() as f64)
    }

    pub(super) fn is_held_by(&self, caps: Option<Caps>, span: Span) -> bool {
        let reaches = |bytes: u64, cap: u64| bytes as f64 >= cap as f64 * span.as_secs_f64() * HELD_PART;
        caps.is_some_and(|caps| {
            reaches(self.read_bytes, caps.read_bytes_per_second)
                || reaches(self.written_bytes, caps.write_bytes_per_second)
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) weight: u32,
    /// The part of reads by which it is split.
    pub(super) split: f64,
    pub(super) caps: Option<Caps>,
    /// Bytes a second that its weight brings it in this period.
    pub(super) budget: f64,
    /// What it was allowed in this period, without what it owes.
    pub(super) allowed_bytes: f64,
    /// What it used beyond that in periods before.
    owed_bytes: f64,
    /// In this period.
    pub(super) used: Used,
    /// In the last period.
    pub(super) is_held: bool,
    /// Periods since it was.
    unheld_periods: u32,
    /// In the last period, bytes a second, if it was held then and no container came.
    pub(super) was_held_at: Option<f64>,
    /// Bytes that it used more in the last period than in the one before, if it was held then.
    pub(super) gained_bytes: f64,
    /// In this period.
    pub(super) has_asked: bool,
    /// What it had beyond its share; negative if it had less.
    ahead_bytes: f64,
    /// The same of periods in which a container may not have wanted more.
    unsettled_bytes: f64,
}

impl Member {
    pub(super) fn new(weight: u32) -> Member {
        Member {
            weight,
            split: 0.5,
            caps: None,
            budget: 0.0,
            allowed_bytes: 0.0,
            owed_bytes: 0.0,
            used: Used::default(),
            is_held: false,
            unheld_periods: UNHELD_PERIODS_MAX + 1,
            was_held_at: None,
            gained_bytes: 0.0,
            has_asked: false,
            ahead_bytes: 0.0,
            unsettled_bytes: 0.0,
        }
    }

    /// After a period: what was used beyond what was allowed is owed, a period's at the most.
    pub(super) fn settle(&mut self) {
        let allowed = std::mem::take(&mut self.allowed_bytes);
        let owed = self.owed_bytes + self.used.bytes() as f64 - allowed;
        self.owed_bytes = if self.caps.is_some() { owed.clamp(0.0, allowed) } else { 0.0 };
    }

    pub(super) fn begin_period(&mut self) {
        self.has_asked = false;
        self.split = std::mem::take(&mut self.used).split().unwrap_or(self.split);
    }

    /// Bytes a second that it is allowed: its budget but for what it gives back or gets.
    pub(super) fn planned(&self) -> f64 {
        let most = self.budget * GIVEN_BACK_MAX;
        self.budget - (self.ahead_bytes * GIVEN_BACK_PART / PERIOD.as_secs_f64()).clamp(-most, most)
    }

    fn payable_bytes_per_second(&self) -> f64 {
        self.planned() - self.owed_bytes / PERIOD.as_secs_f64()
    }

    /// What it may do in a period in which it pays what it owes.
    pub(super) fn payable(&self) -> Caps {
        let all = self.payable_bytes_per_second();
        let part = |part: f64| (all * part.max(SPLIT_MIN)).max(CAP_MIN) as u64;
        Caps { read_bytes_per_second: part(self.split), write_bytes_per_second: part(1.0 - self.split) }
    }

    /// What it would have used of its budget if it had neither paid nor been paid: what it `used` is a part of what it
    /// might.
    pub(super) fn measured(&self, used: i64) -> i64 {
        let scale = self.budget / self.payable_bytes_per_second().max(1.0);
        (used as f64 * if self.caps.is_some() { scale.clamp(0.5, 2.0) } else { 1.0 }) as i64
    }

    fn wants_more(&self) -> bool {
        self.unheld_periods <= UNHELD_PERIODS_MAX
    }
}

/// After a period: a container with more than its share of the sum of those that want more is ahead by that. If a
/// container has come, shares were not the same throughout, and it is not accounted for. O(members).
pub(super) fn keep_accounts(members: &mut [Option<Member>], somebody_came: bool) {
    let mut is_void = somebody_came;
    for member in members.iter_mut().flatten() {
        let wanted_more = member.wants_more();
        member.unheld_periods = if member.is_held { 0 } else { member.unheld_periods.saturating_add(1) };
        is_void |= wanted_more && !member.wants_more();
    }
    let those = || members.iter().flatten().filter(|member| member.wants_more());
    let are_all_held = those().all(|member| member.is_held);
    let weight: f64 = those().map(|member| f64::from(member.weight)).sum();
    // All accounts together are zero: what containers that want no more were ahead is dropped.
    let had: f64 = those().map(|member| member.used.bytes() as f64 + member.ahead_bytes).sum();
    for member in members.iter_mut().flatten() {
        if is_void {
            member.unsettled_bytes = 0.0;
        } else if member.wants_more() {
            member.unsettled_bytes += member.used.bytes() as f64 - had * f64::from(member.weight) / weight;
            if are_all_held {
                let most = member.budget * PERIOD.as_secs_f64();
                let ahead = member.ahead_bytes + std::mem::take(&mut member.unsettled_bytes);
                member.ahead_bytes = ahead.clamp(-most, most);
            }
        }
        if !member.wants_more() {
            member.ahead_bytes *= 1.0 - FORGOTTEN_PART;
        }
    }
}
