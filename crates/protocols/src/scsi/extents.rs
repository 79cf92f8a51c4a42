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

/// What a command does to its extent.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// It writes, and others may, too.
    Writes,
    /// It writes what it has compared: no other command may.
    Compares,
    /// It gives these places back.
    Releases(Released),
}

/// What commands of all sessions are changing now.
///
/// COMPARE AND WRITE promises that no command writes between its comparison and its write. So a command that changes
/// blocks says so first, and is told to come again if another one is comparing there.
///
/// Of a block that is written and given back at the same time it is unknown which the store did last. So data does not
/// count as given back if a write touches it that begins before the release has ended. Nor does it if the write had not
/// ended when the release began.
#[derive(Clone, Debug, Default)]
pub(super) struct AtWork {
    list: Vec<(u64, Extent, Change)>,
    next: u64,
    /// The last one of which [`has_new`](Self::has_new) has told.
    told: u64,
}

impl AtWork {
    /// Begins to change `extent`. `None` if another command is in the way. O(commands that change something now).
    pub(super) fn begin(&mut self, extent: Extent, mut change: Change) -> Option<u64> {
        let is_alone = |change: &Change| matches!(change, Change::Compares);
        let is_in_the_way = |(_, other, others): &(u64, Extent, Change)| {
            (is_alone(&change) || is_alone(others)) && other.overlaps(&extent)
        };
        if self.list.iter().any(is_in_the_way) {
            return None;
        }
        for (_, other, others) in &mut self.list {
            match (&mut change, others) {
                (Change::Releases(_), Change::Releases(_)) => {}
                (Change::Releases(released), _) => released.remove(*other),
                (_, Change::Releases(released)) => released.remove(extent),
                _ => {}
            }
        }
        self.next += 1;
        self.list.push((self.next, extent, change));
        Some(self.next)
    }

    /// Whether a change is under way that had not begun when this was asked last. O(commands that change something
    /// now).
    pub(super) fn has_new(&mut self) -> bool {
        let told = std::mem::replace(&mut self.told, self.next);
        self.list.iter().any(|&(number, ..)| number > told)
    }

    /// A change is over: what it gave back and no command wrote meanwhile.
    pub(super) fn end(&mut self, number: u64) -> Released {
        let place = self.list.iter().position(|&(other, ..)| other == number);
        match place.map(|place| self.list.swap_remove(place)) {
            Some((.., Change::Releases(released))) => released,
            _ => Released::default(),
        }
    }
}

/// Ranges given back with UNMAP or WRITE SAME and not written since: starts and ends that neither touch nor overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Released {
    ends: BTreeMap<u64, u64>,
}

impl FromIterator<Extent> for Released {
    fn from_iter<I: IntoIterator<Item = Extent>>(extents: I) -> Released {
        let mut released = Released::default();
        extents.into_iter().for_each(|extent| released.add(extent));
        released
    }
}

impl Released {
    /// The places, in their order.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.ends.iter().map(|(&offset, &end)| Extent { offset, length: end - offset })
    }

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

    /// What one of two sessions does: when it begins, when the store does it, when it ends, whether it gives back,
    /// where.
    type BeginAt = ([u8; 3], bool, u64, u64);

    fn commands() -> impl Strategy<Value = Vec<BeginAt>> {
        let times = any::<[u8; 3]>().prop_map(|mut times| {
            times.sort_unstable();
            times
        });
        prop::collection::vec((times, any::<bool>(), 0..SIZE - 20, 1..20u64), 1..12)
    }

    proptest! {
        /// Planted break that was seen red: what is written while it is being given back counts as given back.
        /// Promise: iscsi-lba-status.
        #[test]
        fn what_counts_as_given_back_reads_as_zero_whatever_came_first(commands in commands()) {
            let mut events: Vec<(u8, usize, usize)> = Vec::new();
            for (number, (times, ..)) in commands.iter().enumerate() {
                events.extend(times.iter().enumerate().map(|(stage, &time)| (time, number, stage)));
            }
            events.sort_unstable();
            let (mut at_work, mut released) = (AtWork::default(), Released::default());
            let mut store = [1u8; SIZE as usize];
            let mut tickets = vec![0; commands.len()];
            for (_, number, stage) in events {
                let (_, gives_back, offset, length) = commands[number];
                let extent = Extent { offset, length };
                match stage {
                    0 if gives_back => {
                        tickets[number] = at_work.begin(extent, Change::Releases([extent].into_iter().collect())).unwrap();
                    }
                    0 => {
                        tickets[number] = at_work.begin(extent, Change::Writes).unwrap();
                        released.remove(extent);
                    }
                    1 => store[offset as usize..extent.end() as usize].fill(u8::from(!gives_back)),
                    _ => at_work.end(tickets[number]).extents().for_each(|extent| released.add(extent)),
                }
                let is_zero = |extent: Extent| {
                    store[extent.offset as usize..extent.end() as usize].iter().all(|&byte| byte == 0)
                };
                prop_assert!(released.extents().all(is_zero));
            }
        }
    }

    /// Promise: iscsi-compare-and-write.
    #[test]
    fn no_write_enters_blocks_that_a_compare_has() {
        let mut at_work = AtWork::default();
        let extent = |offset| Extent { offset, length: 10 };
        let write = at_work.begin(extent(0), Change::Writes).unwrap();
        assert!(at_work.begin(extent(5), Change::Writes).is_some(), "writers do not exclude each other");
        assert!(at_work.begin(extent(9), Change::Compares).is_none());
        let compare = at_work.begin(extent(20), Change::Compares).unwrap();
        assert!(at_work.begin(extent(29), Change::Writes).is_none());
        assert!(at_work.begin(extent(29), Change::Releases(Released::default())).is_none());
        assert!(at_work.begin(extent(30), Change::Writes).is_some());
        at_work.end(compare);
        at_work.end(write);
        assert!(at_work.begin(extent(29), Change::Writes).is_some());
    }
}
