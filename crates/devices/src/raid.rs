//! RAID-1E: mirrored striping over any number of disks, also an odd one.
//!
//! The intuition: a stripe goes over all disks, and a copy of it follows, moved on by one disk. So every piece is on
//! two neighbouring disks, and every disk carries as many originals as copies.
//!
//! ```text
//!            disk 0   1   2   3   4
//!   row 0         a   b   c   d   e
//!   row 1         e'  a'  b'  c'  d'      copies of row 0, one disk to the right
//!   row 2         f   g   h   i   j
//!   row 3         j'  f'  g'  h'  i'
//! ```
//!
//! The rule: a read goes to the one of the two disks with fewer requests. A write goes to both and is done when both
//! are; a flush goes to all. A request that crosses the border of a piece is cut there.
//!
//! The complication: when a write to two disks will be done is not known while its second half still waits in a disk's
//! queue. So [`next_completion`](DeviceModel::next_completion) may name an earlier moment, at which only a half is
//! done.

use crate::hdd::{Hdd, parameters::HddParameters};
use crate::model::{DeviceModel, DeviceRequest, Finished};
use crate::random::mix;
use plimsoll_core::{DeviceProfile, Operation, Span, Time};
use std::collections::VecDeque;

/// The figures of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Raid1eParameters {
    /// The name in configurations.
    pub name: &'static str,
    /// Number of disks, at least 3.
    pub disks: u64,
    /// What each of them is.
    pub disk: HddParameters,
    /// Bytes of a piece: contiguous on one disk.
    pub stripe_unit_bytes: u64,
    /// Bytes per second of one sequential reader.
    pub sequential_bytes_per_second: f64,
    /// Random requests of 4 KiB per second with `outstanding_max` outstanding, reads or writes, whichever are slower.
    pub worst_case_runs_per_second: f64,
    /// Requests to keep at the array.
    pub outstanding_max: u32,
}

/// The five-disk array of the Differentiated Storage Services paper (section 5.3). The paper does not name the disks;
/// these are desktop disks of its time.
pub const RAID1E_5: Raid1eParameters = Raid1eParameters {
    name: "raid1e-5",
    disks: 5,
    disk: crate::hdd::parameters::WD_AAKX,
    // Default of LSI controllers.
    stripe_unit_bytes: 64 << 10,
    sequential_bytes_per_second: 345e6,
    worst_case_runs_per_second: 279.0,
    // Ten for each disk.
    outstanding_max: 50,
};

/// A request of the host with parts at the disks.
#[derive(Clone, Copy, Debug)]
struct Parent {
    token: u64,
    parts: u32,
}

/// A RAID-1E array. Every call costs O(disks) and O(parts) times what the call costs at one disk.
#[derive(Clone, Debug)]
pub struct Raid1e {
    profile: DeviceProfile,
    stripe_unit_bytes: u64,
    disks: Vec<Hdd>,
    parents: Vec<Parent>,
    parents_free: Vec<u64>,
    finished: VecDeque<Finished>,
}

impl Raid1e {
    /// An array with these parameters; the seed decides where the platters stand, each disk's elsewhere.
    pub fn new(parameters: &Raid1eParameters, seed: u64) -> Raid1e {
        let disks: Vec<_> =
            (0..parameters.disks).map(|disk| Hdd::new(&parameters.disk, mix(seed).wrapping_add(disk))).collect();
        let rows = parameters.disk.capacity_bytes / parameters.stripe_unit_bytes / 2;
        Raid1e {
            profile: DeviceProfile {
                name: parameters.name.to_owned(),
                capacity_bytes: rows * parameters.disks * parameters.stripe_unit_bytes,
                worst_case_runs_per_second: parameters.worst_case_runs_per_second,
                sequential_bytes_per_second: parameters.sequential_bytes_per_second,
                sequential_write_bytes_per_second: parameters.sequential_bytes_per_second,
                write_settle: Span::from_micros(parameters.disk.seek.write_settle_us),
                is_rotational: true,
                outstanding_max: parameters.outstanding_max,
            },
            stripe_unit_bytes: parameters.stripe_unit_bytes,
            disks,
            parents: Vec::with_capacity(256),
            parents_free: Vec::with_capacity(256),
            finished: VecDeque::with_capacity(256),
        }
    }

    /// Where byte `offset` of the array is kept: disk and byte on it, of the original and of the copy.
    pub fn places(&self, offset: u64) -> [(usize, u64); 2] {
        let disks = self.disks.len() as u64;
        let (unit, in_unit) = (offset / self.stripe_unit_bytes, offset % self.stripe_unit_bytes);
        let (row, disk) = (unit / disks, unit % disks);
        let byte = 2 * row * self.stripe_unit_bytes + in_unit;
        [(disk as usize, byte), (((disk + 1) % disks) as usize, byte + self.stripe_unit_bytes)]
    }

    /// Collects what the disks have done by `now`, in the order of time.
    fn advance(&mut self, now: Time) {
        let earliest = |disk: &Hdd| disk.next_completion().unwrap_or(Time::MAX);
        while let Some(disk) = self.disks.iter_mut().min_by_key(|disk| earliest(disk))
            && let Some(part) = disk.complete(now)
        {
            let parent = &mut self.parents[part.token as usize];
            parent.parts -= 1;
            if parent.parts == 0 {
                self.parents_free.push(part.token);
                self.finished.push_back(Finished { token: parent.token, at: part.at });
            }
        }
    }

    fn submit_part(&mut self, now: Time, slot: u64, disk: usize, part: DeviceRequest) {
        self.parents[slot as usize].parts += 1;
        self.disks[disk].submit(now, DeviceRequest { token: slot, ..part });
    }

    fn submit_data(&mut self, now: Time, slot: u64, request: &DeviceRequest) {
        let mut offset = request.offset % self.profile.capacity_bytes;
        let end = (offset + u64::from(request.length)).min(self.profile.capacity_bytes);
        while offset < end {
            let length = (self.stripe_unit_bytes - offset % self.stripe_unit_bytes).min(end - offset);
            let places = self.places(offset);
            let part = |offset| DeviceRequest { offset, length: length as u32, ..request.clone() };
            if request.operation.is_write() {
                places.iter().for_each(|&(disk, byte)| self.submit_part(now, slot, disk, part(byte)));
            } else {
                let [original, copy] = places;
                let is_copy_freer = self.disks[copy.0].outstanding() < self.disks[original.0].outstanding();
                let (disk, byte) = if is_copy_freer { copy } else { original };
                self.submit_part(now, slot, disk, part(byte));
            }
            offset += length;
        }
    }
}

impl DeviceModel for Raid1e {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.advance(now);
        let slot = self.parents_free.pop().unwrap_or_else(|| {
            self.parents.push(Parent { token: 0, parts: 0 });
            self.parents.len() as u64 - 1
        });
        self.parents[slot as usize] = Parent { token: request.token, parts: 0 };
        if request.operation == Operation::Flush || request.length == 0 {
            (0..self.disks.len()).for_each(|disk| self.submit_part(now, slot, disk, request.clone()));
        } else {
            self.submit_data(now, slot, &request);
        }
    }

    fn next_completion(&self) -> Option<Time> {
        let finished = self.finished.front().map(|finished| finished.at);
        finished.or_else(|| self.disks.iter().filter_map(Hdd::next_completion).min())
    }

    fn complete(&mut self, now: Time) -> Option<Finished> {
        self.advance(now);
        self.finished.pop_front()
    }

    fn outstanding(&self) -> usize {
        self.parents.len() - self.parents_free.len() + self.finished.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn array(disks: u64) -> Raid1e {
        Raid1e::new(&Raid1eParameters { disks, ..RAID1E_5 }, 1)
    }

    fn finish(array: &mut Raid1e) -> Vec<Finished> {
        let mut finished = Vec::new();
        while let Some(at) = array.next_completion() {
            finished.extend(std::iter::from_fn(|| array.complete(at)));
        }
        finished
    }

    #[test]
    fn no_piece_shares_its_place_and_the_copy_is_on_the_next_disk() {
        for disks in 3..9 {
            let array = array(disks);
            let mut taken = BTreeSet::new();
            for unit in 0..20 * disks {
                let [original, copy] = array.places(unit * array.stripe_unit_bytes);
                assert_eq!(copy.0 as u64, (original.0 as u64 + 1) % disks);
                assert!(taken.insert(original) && taken.insert(copy), "unit {unit} of {disks} disks");
            }
            // As many pieces as there is room for: nothing is wasted.
            assert_eq!(taken.iter().map(|(_, byte)| byte / array.stripe_unit_bytes).max(), Some(39));
        }
    }

    #[test]
    fn the_last_byte_lies_on_its_disks() {
        let array = array(5);
        let disk_bytes = array.disks[0].profile().capacity_bytes;
        for (_, byte) in array.places(array.profile.capacity_bytes - 1) {
            assert!(byte < disk_bytes && byte + 3 * array.stripe_unit_bytes > disk_bytes, "{byte}");
        }
    }

    proptest! {
        #[test]
        fn a_write_is_done_when_the_last_of_its_copies_is(offset in 0u64..1 << 40, length in 1u32..300_000) {
            let request = DeviceRequest { token: 9, operation: Operation::Write, offset, length, is_forced: false };
            let mut whole = array(5);
            whole.submit(Time::ZERO, request.clone());
            let finished = finish(&mut whole);
            let mut disks = array(5).disks;
            let (mut at, end) = (offset % whole.profile.capacity_bytes, offset % whole.profile.capacity_bytes + u64::from(length));
            while at < end.min(whole.profile.capacity_bytes) {
                let length = (whole.stripe_unit_bytes - at % whole.stripe_unit_bytes).min(end - at) as u32;
                for (disk, offset) in whole.places(at) {
                    disks[disk].submit(Time::ZERO, DeviceRequest { offset, length, ..request.clone() });
                }
                at += u64::from(length);
            }
            let mut last = Time::ZERO;
            for disk in &mut disks {
                while let Some(at) = disk.next_completion() {
                    prop_assert!(disk.complete(at).is_some());
                    last = last.max(at);
                }
            }
            prop_assert_eq!(finished, vec![Finished { token: 9, at: last }]);
        }
    }

    #[test]
    fn reads_spread_over_both_copies() {
        let mut array = array(5);
        let read =
            |token| DeviceRequest { token, operation: Operation::Read, offset: 0, length: 4096, is_forced: false };
        (0..10).for_each(|token| array.submit(Time::ZERO, read(token)));
        let outstanding: Vec<_> = array.disks.iter().map(Hdd::outstanding).collect();
        assert_eq!(outstanding, [5, 5, 0, 0, 0]);
        assert_eq!(finish(&mut array).len(), 10);
    }
}
