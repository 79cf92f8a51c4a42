//! Waiters for the same thing, in the order of their arrival, even if they waited for something else before.
//!
//! **Intuition.** A waiter that needs several things waits for one at a time, and moves on when it is there and another
//! is missing. If it joined each next line at the end, it might wait for ever. **Rule.** A new waiter gets a place, a
//! number larger than all before, and keeps it in every line.

use std::collections::VecDeque;

/// See the module's text. O(1) for a new waiter, O(waiting) for a waiter from another line.
pub struct WaitingLine<T> {
    waiting: VecDeque<(u64, T)>,
}

impl<T> WaitingLine<T> {
    /// The line is empty.
    pub const EMPTY: WaitingLine<T> = WaitingLine { waiting: VecDeque::new() };

    /// The waiter with the smallest place, and the place.
    pub fn first(&self) -> Option<&(u64, T)> {
        self.waiting.front()
    }

    /// A waiter joins; no two have the same place.
    pub fn join(&mut self, place: u64, who: T) {
        let at = match self.waiting.back() {
            Some(&(last, _)) if place < last => self.waiting.partition_point(|&(other, _)| other < place),
            _ => self.waiting.len(),
        };
        self.waiting.insert(at, (place, who));
    }

    /// The first one leaves.
    pub fn leave(&mut self) -> Option<(u64, T)> {
        self.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn leaves_in_the_order_of_places(places in proptest::collection::vec((0u64..1000, any::<bool>()), 0..60)) {
            let mut line = WaitingLine::EMPTY;
            let mut oracle = BTreeMap::new();
            for (place, leaves) in places {
                if oracle.insert(place, -(place as i64)).is_none() {
                    line.join(place, -(place as i64));
                }
                prop_assert_eq!(line.first().copied(), oracle.first_key_value().map(|(&place, &who)| (place, who)));
                if leaves {
                    prop_assert_eq!(line.leave(), oracle.pop_first());
                }
            }
            let left: Vec<_> = std::iter::from_fn(|| line.leave()).collect();
            prop_assert_eq!(left, oracle.into_iter().collect::<Vec<_>>());
        }
    }
}
