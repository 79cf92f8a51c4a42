//! Where each volume starts on its device.
//!
//! The place matters where a head moves: volumes side by side are cheaper to serve together than volumes at both ends
//! of a disk. A volume with `start` is put there. The others follow in the order of the file, each at the first free
//! place that is large enough.

use crate::config::volume::{SIZE, START};
use crate::config::{Device, Place, Problem, Volume};
use plimsoll_core::ByteCount;

/// O(volumes²) at the worst, for at most 1024.
pub(super) fn place(devices: &[Device], volumes: &mut [Volume], problems: &mut Vec<Problem>) {
    // A size or a start that was not understood proves nothing.
    let is_understood =
        |volume: &Volume| volume.place.is_understood(SIZE.name) && volume.place.is_understood(START.name);
    for device in devices {
        let mut taken: Vec<Stretch> = Vec::new();
        for volume in volumes
            .iter()
            .filter(|volume| volume.device == device.name && volume.is_start_fixed && is_understood(volume))
        {
            match fixed(device, volume, &taken) {
                Ok(stretch) => taken.push(stretch),
                Err(problem) => problems.push(problem),
            }
        }
        taken.sort_by_key(|stretch| stretch.start);
        let is_packed =
            |volume: &&mut Volume| volume.device == device.name && !volume.is_start_fixed && is_understood(volume);
        for volume in volumes.iter_mut().filter(is_packed) {
            match first_fit(device.profile.capacity_bytes, volume.size_bytes, &taken) {
                Ok(start) => {
                    volume.start_bytes = start;
                    let at = taken.partition_point(|stretch| stretch.start < start);
                    taken.insert(at, Stretch::of(volume));
                }
                Err(largest) => problems.push(too_large(device, &volume.place, volume.size_bytes, largest)),
            }
        }
    }
}

/// The bytes of a device that a volume takes.
struct Stretch {
    start: u64,
    end: u64,
    volume: String,
}

impl Stretch {
    fn of(volume: &Volume) -> Stretch {
        let end = volume.start_bytes.saturating_add(volume.size_bytes);
        Stretch { start: volume.start_bytes, end, volume: volume.name.clone() }
    }
}

fn fixed(device: &Device, volume: &Volume, taken: &[Stretch]) -> Result<Stretch, Problem> {
    let stretch = Stretch::of(volume);
    let capacity = device.profile.capacity_bytes;
    if stretch.end > capacity {
        let (end, capacity) = (ByteCount(stretch.end), ByteCount(capacity));
        let got = format!("{} to {}", ByteCount(stretch.start), end.beside(capacity));
        let allowed = format!("up to {}, the capacity of {}", capacity.beside(end), device.name);
        return Err(volume.place.problem(START.name, got, allowed));
    }
    match taken.iter().find(|other| stretch.start < other.end && other.start < stretch.end) {
        None => Ok(stretch),
        Some(other) => {
            let got = format!("{} to {}", ByteCount(stretch.start), ByteCount(stretch.end));
            let allowed = format!(
                "a place that volume {:?}, {} to {}, does not have",
                other.volume,
                ByteCount(other.start),
                ByteCount(other.end)
            );
            Err(volume.place.problem(START.name, got, allowed))
        }
    }
}

/// The lowest gap of at least `size`, or the size of the largest one.
fn first_fit(capacity: u64, size: u64, taken: &[Stretch]) -> Result<u64, u64> {
    let (mut free, mut largest) = (0, 0);
    for (start, end) in taken.iter().map(|stretch| (stretch.start, stretch.end)).chain([(capacity, capacity)]) {
        let gap = start.saturating_sub(free);
        if gap >= size {
            return Ok(free);
        }
        largest = largest.max(gap);
        free = free.max(end);
    }
    Err(largest)
}

fn too_large(device: &Device, place: &Place, size: u64, largest: u64) -> Problem {
    let capacity = ByteCount(device.profile.capacity_bytes);
    let (size, largest) = (ByteCount(size), ByteCount(largest));
    let allowed = format!("at most {}, the largest free piece of {} ({capacity})", largest.beside(size), device.name);
    place.problem(SIZE.name, size.beside(largest), allowed)
}
