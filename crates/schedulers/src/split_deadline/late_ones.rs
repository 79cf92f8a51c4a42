//! How often an fsync may go on that makes others late.
//!
//! **Intuition.** Without room for one more commit, an fsync that is under way at another's commit is late, and so may
//! be the next one. No order helps, only the number. And a promise is kept that 99 of 100 find kept. **Rule.** Between
//! two that make others late, so many calls with a promise return that the two late ones are less than one of
//! 100. **Complication.** An account with a promise may do nothing: then it is a second.
//!
//! O(1).

use plimsoll_core::{Span, Time};

/// Between two that make two of the others late each, so many return: less than one of 100 is late.
const RETURNS_APART: u32 = 256;
/// The longest time between two. Ours: what an appender with 256 fsyncs a second takes for them.
const APART_MAX: Span = Span::from_secs(1);

/// See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LateOnes {
    /// Fsyncs with a promise that returned since the last that made others late.
    returned: u32,
    last: Time,
}

impl LateOnes {
    /// An fsync with a promise has returned.
    pub(super) fn returned(&mut self) {
        self.returned = self.returned.saturating_add(1);
    }

    /// Whether one may go on that makes others late. Those of one moment share a commit.
    pub(super) fn may_go(&self, now: Time) -> bool {
        self.returned >= RETURNS_APART || now >= self.may_go_at() || now == self.last
    }

    /// When one may go on whichever calls return until then.
    pub(super) fn may_go_at(&self) -> Time {
        self.last + APART_MAX
    }

    /// One begins.
    pub(super) fn gone(&mut self, now: Time) {
        *self = LateOnes { returned: 0, last: now };
    }
}
