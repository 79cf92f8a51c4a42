//! When a tenant is frozen, and for how long: the pure part of the freezer.
//!
//! **Intuition.** A closed gate says that a tenant owes something. The scheduler closes it while the tenant's balance
//! is negative, and opens it when the debt is paid. A program that waits at the gate moves nothing meanwhile. A program
//! that passes by goes on moving bytes, and only that is a reason to freeze its tenant.
//!
//! ```text
//!             bytes moved though a gate is closed
//!   running -----------------------------------------> frozen
//!           <-----------------------------------------
//!             all gates open, or frozen for long enough
//! ```
//!
//! **Rule.** A tenant with open gates is never frozen. Bytes that move within [`GRACE`] of the closing prove nothing: a
//! call that began before may move them. A freeze lasts until the debt is paid, and at first [`FREEZE_MIN`] at most.
//! Then the tenant runs for [`THAW_MIN`] at least, so that it hears signals and answers peers. It is frozen again only
//! if it moves bytes again.
//!
//! **Complication.** Memory is written faster than a disk. A program that writes 2 GB/s moves 4 MB in [`THAW_MIN`].
//! With a limit of 5 MB/s it owes 800 ms for that, and freezes of 100 ms would never catch up. So a tenant that uses a
//! thaw to move bytes makes its next freeze four times as long as it may be, [`FREEZE_MAX`] at most. Debts that are
//! paid much sooner make it shorter again.
//!
//! A tenant that was seen to pass by a gate of writes is frozen as soon as that gate closes. That holds for [`KNOWN`]
//! after it was last seen to.

use plimsoll_core::{Span, Time};

/// How long a freeze may last at first, and the least that it may.
pub const FREEZE_MIN: Span = Span::from_millis(100);
/// How long a freeze may last at the most.
pub const FREEZE_MAX: Span = Span::from_secs(10);
/// How long a tenant runs at least between two freezes.
pub const THAW_MIN: Span = Span::from_millis(2);
/// For so long after a gate closed, calls that began before may move bytes.
pub const GRACE: Span = Span::from_millis(5);
/// For so long a tenant is known to pass by its gates.
pub const KNOWN: Span = Span::from_secs(10);
/// How much longer a freeze may last after a thaw that was used to move bytes.
const GROWTH: u64 = 4;
/// How much shorter after a debt that was paid in less than the [`GROWTH`]th part of the longest freeze.
const SHRINKING: u64 = 2;

/// The gates of a tenant that this law looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldClass {
    /// Of writes.
    Writes,
    /// Of reads.
    Reads,
}

/// What is to be done to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreezeOrder {
    /// It is stopped.
    Freeze,
    /// It goes on.
    Thaw,
}

/// The law of one tenant: see the [module's text](self). Each function is O(1).
#[derive(Clone, Debug)]
pub struct FreezeLaw {
    /// Since when a gate is closed, by class.
    closed: [Option<Time>; 2],
    is_frozen: bool,
    /// When it was frozen, or thawed.
    since: Time,
    /// It was frozen since all its gates were open.
    was_frozen: bool,
    /// Bytes moved that should not have.
    has_moved: bool,
    /// How long a freeze may last.
    freeze_max: Span,
    /// Until when it is known to pass by the gate of writes.
    known_until: Time,
}

impl Default for FreezeLaw {
    fn default() -> FreezeLaw {
        FreezeLaw {
            closed: [None; 2],
            is_frozen: false,
            since: Time::ZERO,
            was_frozen: false,
            has_moved: false,
            freeze_max: FREEZE_MIN,
            known_until: Time::ZERO,
        }
    }
}

impl FreezeLaw {
    /// A gate is closed, or open.
    pub fn gate(&mut self, now: Time, class: HeldClass, is_closed: bool) {
        let closed = &mut self.closed[class as usize];
        *closed = is_closed.then(|| closed.unwrap_or(now));
        if !self.owes() {
            (self.was_frozen, self.has_moved) = (false, false);
        }
    }

    /// Whether a gate is closed.
    pub fn owes(&self) -> bool {
        self.closed.iter().any(Option::is_some)
    }

    /// Whether it is frozen by this law.
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// The tenant moved bytes at `at`, by a call that the gate of `class` should have held.
    pub fn moved(&mut self, at: Time, class: HeldClass) {
        let Some(closed) = self.closed[class as usize] else { return };
        // What a freeze interrupted ends after it began, and what it moves until then is charged.
        if self.is_frozen {
            return;
        }
        let from = if self.was_frozen { self.since.max(closed) } else { closed + GRACE };
        if at > from {
            self.has_moved = true;
            if class == HeldClass::Writes {
                self.known_until = at + KNOWN;
            }
        }
    }

    /// What is to be done now, if anything.
    pub fn decide(&mut self, now: Time) -> Option<FreezeOrder> {
        if self.is_frozen {
            let lasted = now.since(self.since);
            if self.owes() && lasted < self.freeze_max {
                return None;
            }
            if lasted < part_of(self.freeze_max, GROWTH) {
                self.freeze_max = part_of(self.freeze_max, SHRINKING).max(FREEZE_MIN);
            }
            (self.is_frozen, self.since) = (false, now);
            return Some(FreezeOrder::Thaw);
        }
        if !self.has_reason(now) || now < self.may_freeze_at() {
            return None;
        }
        if self.was_frozen {
            self.freeze_max = (self.freeze_max * GROWTH).min(FREEZE_MAX);
        }
        (self.is_frozen, self.was_frozen, self.has_moved, self.since) = (true, true, false, now);
        Some(FreezeOrder::Freeze)
    }

    fn has_reason(&self, now: Time) -> bool {
        let passes_by = now < self.known_until && !self.was_frozen && self.closed[HeldClass::Writes as usize].is_some();
        self.owes() && (self.has_moved || passes_by)
    }

    fn may_freeze_at(&self) -> Time {
        self.since + THAW_MIN
    }

    /// Another program has thawed the tenant, which has its reason: it runs from now on as after a thaw of ours.
    pub fn overruled(&mut self, now: Time) {
        if self.is_frozen {
            (self.is_frozen, self.since) = (false, now);
        }
    }

    /// When [`decide`](Self::decide) may have something to say without another event.
    pub fn at(&self, now: Time) -> Option<Time> {
        if self.is_frozen {
            return Some(self.since + self.freeze_max);
        }
        self.has_reason(now).then(|| self.may_freeze_at().max(now))
    }
}

fn part_of(span: Span, divisor: u64) -> Span {
    Span::from_nanos(span.as_nanos() / divisor)
}

#[cfg(test)]
mod tests;
