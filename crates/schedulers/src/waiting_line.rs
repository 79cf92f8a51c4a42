//! Who waits until a debt is paid, in the order of when that was promised.
//!
//! **Intuition.** If all who wait for a balance had to see it paid, those who come back for more before anybody looked
//! would go into debt anew, and somebody could wait for ever. So whoever joins the line is told *until when at the latest*:
//! when the debt that he finds is paid. New debts are the problem of those who come later. **Rule.** The first in the line
//! is the one with the earliest promise; among equals, who came first. **Complication.** Debts can shrink, so the balance
//! may be zero before; then he who is first may have to join another line, where his promise keeps its place.

use plimsoll_core::Time;
use std::collections::VecDeque;

/// See the module's text. O(1) for those who join with the latest promise, O(waiting) for who does not, which is rare.
pub struct WaitingLine<T> {
    waiting: VecDeque<(Time, T)>,
}

impl<T> WaitingLine<T> {
    /// Nobody waits.
    pub const EMPTY: WaitingLine<T> = WaitingLine { waiting: VecDeque::new() };

    /// Until when the first one waits at the latest.
    pub fn first(&self) -> Option<Time> {
        self.waiting.front().map(|&(until, _)| until)
    }

    /// Somebody waits until then at the latest.
    pub fn join(&mut self, until: Time, who: T) {
        let place = match self.waiting.back() {
            Some(&(last, _)) if until < last => self.waiting.partition_point(|&(other, _)| other <= until),
            _ => self.waiting.len(),
        };
        self.waiting.insert(place, (until, who));
    }

    /// The first one leaves, with what he was promised.
    pub fn leave(&mut self) -> Option<(Time, T)> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Span;
    use proptest::prelude::*;

    proptest! {
        /// The oracle sorts everybody, and a sort keeps equals in their order.
        #[test]
        fn leaves_in_the_order_of_promises(promises in proptest::collection::vec(0u64..20, 0..60)) {
            let mut line = WaitingLine::EMPTY;
            let mut oracle = Vec::new();
            for (who, promise) in promises.into_iter().enumerate() {
                let until = Time::ZERO + Span::from_millis(promise);
                line.join(until, who);
                oracle.push((until, who));
            }
            oracle.sort_by_key(|&(until, _)| until);
            prop_assert_eq!(line.first(), oracle.first().map(|&(until, _)| until));
            let left: Vec<_> = std::iter::from_fn(|| line.leave()).collect();
            prop_assert_eq!(left, oracle);
        }
    }
}
