//! Stretches of volumes, found by what they have bytes in common with.
//!
//! **Rule.** They stand in the order of volume, size and start, sizes as powers of two. Of one size, those that reach
//! into a stretch begin in it, or less than that power before it: they stand side by side. Finding them is O(log n) for
//! each size that there is (33 at the most, few in truth), and O(1) for each that is found.
//!
//! **Complication.** One with a length that is no power of two may begin there and end before the stretch. Such
//! neighbours are looked at, too.

use std::collections::BTreeMap;

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) volume: u32,
    /// Its first byte, and the byte after its last.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Stretch {
    /// The power of two that it is as long as, or shorter.
    fn size(&self) -> u32 {
        (self.end - self.start).next_power_of_two().trailing_zeros()
    }

    /// Key of an entry: volume, size, start, number.
    fn place(&self, number: u64) -> Place {
        (self.volume, self.size(), self.start, number)
    }
}

pub(crate) type Place = (u32, u32, u64, u64);

/// Values by stretch and number.
pub(crate) struct Stretches<T> {
    /// With the byte after each one's last.
    by_place: BTreeMap<Place, (u64, T)>,
    /// How many there are of each size.
    of_size: Vec<u32>,
    /// How many were looked at.
    #[cfg(test)]
    pub(crate) looks: u64,
}

impl<T> Default for Stretches<T> {
    fn default() -> Stretches<T> {
        Stretches {
            by_place: BTreeMap::new(),
            of_size: Vec::new(),
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl<T> Stretches<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    /// Adds one, not empty, by a number that no other has. O(log n).
    pub(crate) fn insert(&mut self, stretch: Stretch, number: u64, value: T) {
        let size = stretch.size() as usize;
        if self.of_size.len() <= size {
            self.of_size.resize(size + 1, 0);
        }
        self.of_size[size] += 1;
        self.by_place.insert(stretch.place(number), (stretch.end, value));
    }

    /// O(log n).
    pub(crate) fn remove(&mut self, stretch: Stretch, number: u64) -> Option<T> {
        self.take(stretch.place(number))
    }

    fn take(&mut self, place: Place) -> Option<T> {
        let (_, value) = self.by_place.remove(&place)?;
        self.of_size[place.1 as usize] -= 1;
        Some(value)
    }

    /// Calls `visit` with the place of each that has bytes in common with `stretch`.
    pub(crate) fn visit(&mut self, stretch: Stretch, mut visit: impl FnMut(Place, &mut T)) {
        if stretch.start == stretch.end {
            return;
        }
        let sizes = self.of_size.iter().enumerate().filter(|(_, count)| **count > 0);
        for (size, _) in sizes {
            let first = (stretch.start + 1).saturating_sub(1 << size);
            let place_at = |start| (stretch.volume, size as u32, start, 0);
            for (place, (end, value)) in self.by_place.range_mut(place_at(first)..place_at(stretch.end)) {
                #[cfg(test)]
                {
                    self.looks += 1;
                }
                if *end > stretch.start {
                    visit(*place, value);
                }
            }
        }
    }

    /// How many have bytes in common with `stretch`.
    pub(crate) fn count(&mut self, stretch: Stretch) -> u32 {
        let mut count = 0;
        self.visit(stretch, |_, _| count += 1);
        count
    }

    /// Takes out the entries that overlap `stretch` and that `is_over` by number. Answers them in order of number.
    pub(crate) fn take_of(&mut self, stretch: Stretch, mut is_over: impl FnMut(u64, &mut T) -> bool) -> Vec<T> {
        let mut over = Vec::new();
        self.visit(stretch, |place, value| {
            if is_over(place.3, value) {
                over.push(place);
            }
        });
        self.take_all(over)
    }

    /// The same of all. O(n).
    pub(crate) fn take_if(&mut self, mut is_over: impl FnMut(&T) -> bool) -> Vec<T> {
        let over = self.by_place.iter().filter(|(_, (_, value))| is_over(value));
        let over = over.map(|(place, _)| *place).collect();
        self.take_all(over)
    }

    fn take_all(&mut self, mut places: Vec<Place>) -> Vec<T> {
        places.sort_unstable_by_key(|place| place.3);
        places.into_iter().filter_map(|place| self.take(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stretch(length_min: u64) -> impl Strategy<Value = Stretch> {
        let length = prop_oneof![length_min..20, Just(64), Just(1 << 32)];
        (0..2u32, 0..100u64, length).prop_map(|(volume, start, length)| Stretch { volume, start, end: start + length })
    }

    proptest! {
        /// Planted breaks that were seen red: the first place that is looked at is one too late; the volume is of no
        /// account.
        #[test]
        fn it_finds_what_a_look_at_all_finds(
            stretches in prop::collection::vec((stretch(1), any::<bool>()), 0..40),
            asked in stretch(0),
        ) {
            let (mut tree, mut all) = (Stretches::default(), Vec::new());
            for (number, (stretch, stays)) in (0..).zip(stretches) {
                tree.insert(stretch, number, number);
                match stays {
                    true => all.push((number, stretch)),
                    false => prop_assert_eq!(tree.remove(stretch, number), Some(number)),
                }
            }
            let has_bytes_of = |other: &Stretch| {
                other.volume == asked.volume && (other.start.max(asked.start) < other.end.min(asked.end))
            };
            let expected: Vec<u64> =
                all.iter().filter(|(_, other)| has_bytes_of(other)).map(|(number, _)| *number).collect();
            prop_assert_eq!(tree.count(asked), expected.len() as u32);
            prop_assert_eq!(tree.take_of(asked, |_, _| true), expected);
            let left = tree.take_if(|_| true);
            prop_assert!(left.len() + tree.count(asked) as usize <= all.len() && tree.is_empty());
        }
    }
}
