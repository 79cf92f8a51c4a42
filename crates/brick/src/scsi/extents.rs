//! Places of the unit: those that commands are at work on, and those that were given back.

use std::collections::BTreeMap;

/// Places that were given back and are remembered, at the most. Of more, the first is forgotten and counts as in use.
const RELEASED_MAX: usize = 4096;

/// A stretch of the volume. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

impl Extent {
    /// The byte after its last.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    fn overlaps(&self, other: &Extent) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

/// What commands of all sessions are changing now.
///
/// COMPARE AND WRITE promises that nobody writes between its comparison and its write. So whoever changes blocks says so
/// first, and is told to come again if somebody is comparing there.
#[derive(Clone, Debug, Default)]
pub(super) struct AtWork {
    list: Vec<(u64, Extent, bool)>,
    next: u64,
}

impl AtWork {
    /// Begins to change `extent`; `is_exclusive` allows nobody else there. `None` if somebody is in the way. O(commands
    /// that write now).
    pub(super) fn begin(&mut self, extent: Extent, is_exclusive: bool) -> Option<u64> {
        let is_in_the_way = |&(_, other, others_exclusive): &(u64, Extent, bool)| {
            (is_exclusive || others_exclusive) && other.overlaps(&extent)
        };
        if self.list.iter().any(is_in_the_way) {
            return None;
        }
        self.next += 1;
        self.list.push((self.next, extent, is_exclusive));
        Some(self.next)
    }

    pub(super) fn end(&mut self, number: u64) {
        self.list.retain(|&(other, ..)| other != number);
    }
}

/// What was given back with UNMAP or WRITE SAME and not written since: starts and ends that neither touch nor overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Released {
    ends: BTreeMap<u64, u64>,
}

impl Released {
    /// `extent` was given back. O(log n) and what it joins.
    pub(super) fn add(&mut self, extent: Extent) {
        if extent.length == 0 {
            return;
        }
        let (mut start, mut end) = (extent.offset, extent.end());
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back()
            && other_end >= start
        {
            self.ends.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
        if self.ends.len() > RELEASED_MAX {
            self.ends.pop_first();
        }
    }

    /// `extent` is written. O(log n) and what it touches; nothing while nothing is given back.
    pub(super) fn remove(&mut self, extent: Extent) {
        if extent.length == 0 {
            return;
        }
        while let Some((&start, &end)) = self.ends.range(..extent.end()).next_back()
            && end > extent.offset
        {
            self.ends.remove(&start);
            if end > extent.end() {
                self.ends.insert(extent.end(), end);
            }
            if start < extent.offset {
                self.ends.insert(start, extent.offset);
            }
            if self.ends.len() > RELEASED_MAX {
                self.ends.pop_first();
            }
        }
    }

    /// Whether the byte at `offset` is given back, and where that changes; `size` if it does not. O(log n).
    pub(super) fn at(&self, offset: u64, size: u64) -> (bool, u64) {
        if let Some((_, &end)) = self.ends.range(..=offset).next_back()
            && end > offset
        {
            return (true, end.min(size));
        }
        (false, self.ends.range(offset..).next().map_or(size, |(&start, _)| start.min(size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 64;

    proptest! {
        #[test]
        fn given_back_is_what_a_map_of_bytes_says(
            changes in prop::collection::vec((any::<bool>(), 0..SIZE, 0..20u64), 0..60),
        ) {
            let (mut released, mut oracle) = (Released::default(), [false; SIZE as usize]);
            for (gives_back, offset, length) in changes {
                let extent = Extent { offset, length: length.min(SIZE - offset) };
                if gives_back { released.add(extent) } else { released.remove(extent) }
                oracle[offset as usize..extent.end() as usize].fill(gives_back);
                let mut at = 0;
                while at < SIZE {
                    let (is_released, end) = released.at(at, SIZE);
                    prop_assert!(end > at);
                    prop_assert!(oracle[at as usize..end as usize].iter().all(|&byte| byte == is_released));
                    prop_assert!(end == SIZE || oracle[end as usize] != is_released);
                    at = end;
                }
            }
        }
    }

    #[test]
    fn nobody_writes_where_somebody_compares() {
        let mut at_work = AtWork::default();
        let extent = |offset| Extent { offset, length: 10 };
        let write = at_work.begin(extent(0), false).unwrap();
        assert!(at_work.begin(extent(5), false).is_some(), "writers do not exclude each other");
        assert!(at_work.begin(extent(9), true).is_none());
        let compare = at_work.begin(extent(20), true).unwrap();
        assert!(at_work.begin(extent(29), false).is_none());
        assert!(at_work.begin(extent(30), false).is_some());
        at_work.end(compare);
        at_work.end(write);
        assert!(at_work.begin(extent(29), false).is_some());
    }
}
