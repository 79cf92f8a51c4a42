//! Who waits for the same thing, in the order in which they came, even if they waited for something else before.
//!
//! **Intuition.** Who needs several things at once waits for one of them at a time, and moves on when it is there and
//! another one is missing. If that meant the end of another line each time, he might wait for ever. **Rule.** Whoever
//! comes is given a place, a number larger than all before, and keeps it in whatever line he waits.

use std::collections::VecDeque;

/// See the module's text. O(1) for who came last, O(waiting) for who has waited elsewhere before.
pub struct WaitingLine<T> {
    waiting: VecDeque<(u64, T)>,
}

impl<T> WaitingLine<T> {
    /// Nobody waits.
    pub const EMPTY: WaitingLine<T> = WaitingLine { waiting: VecDeque::new() };

    /// Whose place is the smallest, and the place.
    pub fn first(&self) -> Option<&(u64, T)> {
        self.waiting.front()
    }

    /// Somebody waits; no two have the same place.
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
