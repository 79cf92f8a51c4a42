//! When a dirty unit is written back before it is needed: for the share of dirty units, for its age, or while no
//! requests come.
//!
//! **The rule.** A *sweep* goes over the units in their order and copies each that is dirty. Over three quarters of
//! `dirty_units_max` a sweep begins, and it ends at a half; a write that would make more dirty than the whole waits
//! for its turn. Each half of `age_max` a sweep begins: the next sweep meets units that become dirty right behind it.
//! While idle a sweep begins, and stops when a request comes.
//!
//! **The complication.** A look at so many units takes long, and a host may have other things to do. So a sweep looks
//! at some, and says when it wants to go on.

use plimsoll_core::{Span, Time};

/// Units that are looked at in one go, some tens of microseconds; and when the next ones are.
pub(super) const LOOKS: u32 = 16_384;
pub(super) const PAUSE: Span = Span::from_millis(1);

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

/// Reason a sweep goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
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
    pub rules: WriteBack,
    /// The sweep under way: why, and how many units it still has to look at.
    pub sweep: Option<(Reason, u32)>,
    /// The unit that is looked at next.
    pub next: u32,
    /// When the last one for the age began, and the last request came.
    pub aged_at: Time,
    pub asked_at: Time,
}
