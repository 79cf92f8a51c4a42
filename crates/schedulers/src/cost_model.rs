//! What an I/O costs a device, in *normalised bytes*: the bytes that the device could have moved in sequence meanwhile.
//!
//! **Intuition.** A disk spends its time on moving bytes and on moving its arm. A caller that moves the arm for 10 ms
//! has used as much of it as one that reads 1.4 MB in sequence. So that is the cost of a random 4 KiB (split-level
//! paper, section 5.3: "1 MB of random I/O may be counted as 10 MB").
//!
//! **Rule.** [`CostModel`] is for requests at the block level. A request that begins at the end of the one before costs
//! its bytes. Any other also costs the positioning, which grows with the square root of the distance. [`DirtyModel`] is
//! for pages as they become dirty, when their place is not known yet. It is the same, with offsets in the file instead
//! of places on the disk. Solid-state drives have no arm. A read costs its bytes and at least a minimum. A write costs
//! its bytes as often as the drive must move them. It costs more if it does not continue a recent one (paper: "simpler
//! models could be used on SSD").
//!
//! **Complication.** Two streams that take turns both lose their sequence. Each pays for its own way there.
//! [`Cost::is_resumed`] says that a stream was interrupted at all, so that a scheduler can charge the account that
//! interrupted it.
//!
//! Everything follows from the [`DeviceProfile`] and the constants below, so the models are estimates, within a factor
//! that the tests state for each known drive. All steps are O(1) and allocate nothing.

use plimsoll_core::{BlockRequest, DeviceProfile, FileId, Operation};

/// Bytes of the requests that `worst_case_runs_per_second` was measured with (`HddParameters`, `FlashParameters`).
const WORST_CASE_BYTES: f64 = 4096.0;
/// With n requests to choose from, a disk serves n to this power as many as with one. Fitted to data sheets'
/// positioning times and to the measured rates of `hdd.wd-aakx`, `hdd.deskstar-120` and `hdd.15k-sas` at 10
/// outstanding: 1.5 to 1.6.
const QUEUE_GAIN_POWER: f64 = 0.2;
/// The part of a mean positioning that does not depend on the distance: half a revolution and settling. From the data
/// sheets of the same drives: 0.40 to 0.48.
const FIXED_PART: f64 = 0.45;
/// One over the mean square root of the distance between two random places on a line of length 1: that is 8/15.
const MEAN_ROOT_INVERSE: f64 = 15.0 / 8.0;
/// Least cost of a read on a solid-state drive, bytes: 250 MB/s over 35,000 reads a second (Intel X25-M and X25-E data
/// sheets). On `nvme` it would be 4 KiB.
const FLASH_READ_BYTES_MIN: f64 = 7143.0;
/// Streams that are remembered while others interrupt them, and places where one may begin. A disk's buffer has 8
/// segments, a drive's controller tells 32 writers apart (`FlashParameters`).
const STREAMS: usize = 16;
/// Files with a remembered last dirtied page; a power of two. 16 KiB in all.
const FILES: usize = 1024;

/// What tells one device from another.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Device {
    /// Cost of a positioning in bytes: a fixed part, and a part for each square root of the distance in bytes. It is
    /// divided by the gain if the drive has a queue to choose from. A write that a call waits for, more by what the
    /// head settles longer.
    Disk { fixed_bytes: f64, bytes_per_root: f64, queue_gain: f64, settle_bytes: f64 },
    /// What a byte costs that is written: how much longer the drive takes than to read it. Bytes that a write costs
    /// which continues nothing.
    Flash { write_amplification: f64, scattered_write_bytes: f64 },
}

impl Device {
    fn new(profile: &DeviceProfile) -> Device {
        let bytes_per_run = profile.sequential_bytes_per_second / profile.worst_case_runs_per_second;
        if !profile.is_rotational {
            let write_amplification =
                (profile.sequential_bytes_per_second / profile.sequential_write_bytes_per_second).max(1.0);
            let scattered_write_bytes = (bytes_per_run - WORST_CASE_BYTES * write_amplification).max(0.0);
            return Device::Flash { write_amplification, scattered_write_bytes };
        }
        let queue_gain = f64::from(profile.outstanding_max.max(1)).powf(QUEUE_GAIN_POWER);
        let positioning_bytes = (bytes_per_run * queue_gain - WORST_CASE_BYTES).max(0.0);
        let root_max = (profile.capacity_bytes.max(1) as f64).sqrt();
        Device::Disk {
            fixed_bytes: positioning_bytes * FIXED_PART,
            bytes_per_root: positioning_bytes * (1.0 - FIXED_PART) * MEAN_ROOT_INVERSE / root_max,
            queue_gain,
            settle_bytes: profile.write_settle.as_secs_f64() * profile.sequential_bytes_per_second,
        }
    }

    /// What moving the bytes costs.
    fn transfer(&self, length: u64, is_write: bool) -> f64 {
        match self {
            Device::Disk { .. } => length as f64,
            Device::Flash { write_amplification, .. } if is_write => length as f64 * write_amplification,
            Device::Flash { .. } => (length as f64).max(FLASH_READ_BYTES_MIN),
        }
    }

    /// Cost of going from `from` to `to`, for one of many requests that the drive may order. A disk may also just wait
    /// while a gap passes by.
    fn positioning(&self, from: u64, to: u64, is_write: bool, is_queued: bool) -> f64 {
        match *self {
            Device::Disk { fixed_bytes, bytes_per_root, queue_gain, settle_bytes } => {
                let distance = from.abs_diff(to) as f64;
                let alone = fixed_bytes + bytes_per_root * distance.sqrt();
                let moved = match (is_queued, is_write) {
                    (true, _) => alone / queue_gain,
                    (false, true) => alone + settle_bytes,
                    (false, false) => alone,
                };
                if to >= from { moved.min(distance) } else { moved }
            }
            Device::Flash { scattered_write_bytes, .. } if is_write && from != to => scattered_write_bytes,
            Device::Flash { .. } => 0.0,
        }
    }
}

/// What a request costs, in normalised bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// For moving its bytes.
    pub transfer: u64,
    /// For going where they are.
    pub positioning: u64,
    /// It continues a stream that other requests interrupted: without them there would have been no positioning.
    pub is_resumed: bool,
}

/// Ends of streams that may continue: one table for places where something ended, one for streams that continued.
/// Requests at random places fill the first over and over and leave the second alone.
#[derive(Clone, Debug)]
struct Streams {
    ends: [[u64; STREAMS]; 2],
    next: [usize; 2],
}

const CANDIDATES: usize = 0;
const CONTINUED: usize = 1;
/// No request begins there.
const NOWHERE: u64 = u64::MAX;

impl Streams {
    const EMPTY: Streams = Streams { ends: [[NOWHERE; STREAMS]; 2], next: [0; 2] };

    /// A request covers the bytes from `offset` to `end`. Answers whether it continues a stream.
    fn goes_on(&mut self, offset: u64, end: u64) -> bool {
        if let Some(place) = self.ends[CONTINUED].iter_mut().find(|place| **place == offset) {
            *place = end;
            return true;
        }
        let candidate = self.ends[CANDIDATES].iter_mut().find(|place| **place == offset);
        let is_continued = candidate.map(|place| *place = NOWHERE).is_some();
        let table = if is_continued { CONTINUED } else { CANDIDATES };
        self.ends[table][self.next[table]] = end;
        self.next[table] = (self.next[table] + 1) % STREAMS;
        is_continued
    }
}

/// The model for requests at the block level, in the order in which they are dispatched (split-level paper, sections
/// 5.1 and 5.3). O(1): it looks at 32 places.
#[derive(Clone, Debug)]
pub struct CostModel {
    device: Device,
    /// Where the last request ended: where a disk's head is.
    head: u64,
    /// The most that a write has paid for positioning since the last flush; `None` if there was none.
    unflushed: Option<f64>,
    streams: Streams,
}

impl CostModel {
    /// A model of this device, its head at the beginning.
    pub fn new(device: &DeviceProfile) -> CostModel {
        CostModel { device: Device::new(device), head: 0, unflushed: None, streams: Streams::EMPTY }
    }

    /// What a request costs that is dispatched now, in normalised bytes: see [`cost`](Self::cost).
    pub fn charge(&mut self, request: &BlockRequest) -> u64 {
        let cost = self.cost(request);
        cost.transfer + cost.positioning
    }

    /// What a request costs that is dispatched now, part by part. Trims are only noted by a device. A write that must
    /// be durable when it completes (`is_forced`) waits for the platter even if it continues at the head. It pays the
    /// fixed part of a positioning. A flush makes a disk wait for the platter, too. It pays as much of that part as no
    /// write has paid since the flush before. That is nothing for writes elsewhere, and all of it for a journal's
    /// commit block. Its place has passed by while the blocks before it were made durable. Writes that no call waits
    /// for (`is_sync` is false) come many at a time, so a disk is quicker with each.
    pub fn cost(&mut self, request: &BlockRequest) -> Cost {
        if request.operation == Operation::Flush {
            return Cost { positioning: self.flush().round() as u64, ..Cost::default() };
        }
        if request.operation == Operation::Trim || request.length == 0 {
            return Cost::default();
        }
        let (is_write, offset) = (request.operation.is_write(), request.offset);
        // A drive without a head tells its writers apart, and reads disturb none of them.
        let is_disk = matches!(self.device, Device::Disk { .. });
        let goes_on = (is_disk || is_write) && self.streams.goes_on(offset, request.end());
        let from = match self.device {
            Device::Disk { .. } => self.head,
            Device::Flash { .. } if goes_on => offset,
            Device::Flash { .. } => NOWHERE,
        };
        let is_queued = is_write && !request.is_sync && !request.is_forced;
        let mut positioning = self.device.positioning(from, offset, is_write, is_queued);
        if let (Device::Disk { fixed_bytes, .. }, true) = (self.device, request.is_forced) {
            positioning = positioning.max(fixed_bytes);
        }
        self.head = request.end();
        if is_write {
            self.unflushed = Some(self.unflushed.map_or(positioning, |most| most.max(positioning)));
        }
        Cost {
            transfer: self.device.transfer(u64::from(request.length), is_write).round() as u64,
            positioning: positioning.round() as u64,
            is_resumed: goes_on && from != offset,
        }
    }

    fn flush(&mut self) -> f64 {
        match (self.unflushed.take(), self.device) {
            (Some(paid), Device::Disk { fixed_bytes, .. }) => (fixed_bytes - paid).max(0.0),
            _ => 0.0,
        }
    }
}

/// The preliminary model for pages as they become dirty, by how scattered their offsets are within the file
/// (split-level paper, section 5.3). O(1), with memory for the last place in each of 1024 files. Two files that share
/// an entry look more scattered than they are; the dispatch of their requests corrects that.
#[derive(Clone, Debug)]
pub struct DirtyModel {
    device: Device,
    /// By the file's number modulo the size: the file, and where the last dirtied pages ended.
    last_ends: Box<[(FileId, u64)]>,
}

impl DirtyModel {
    /// A model of this device that has seen no file.
    pub fn new(device: &DeviceProfile) -> DirtyModel {
        DirtyModel { device: Device::new(device), last_ends: vec![(FileId(NOWHERE), 0); FILES].into() }
    }

    /// Probable cost of writing `length` bytes of `file` from `offset`, which become dirty now, in normalised bytes.
    pub fn charge(&mut self, file: FileId, offset: u64, length: u64) -> u64 {
        let slot = &mut self.last_ends[file.0 as usize % FILES];
        // The first pages of a file need a positioning of unknown distance: from their own end, the least there is.
        let from = if slot.0 == file { slot.1 } else { offset + length };
        *slot = (file, offset + length);
        (self.device.transfer(length, true) + self.device.positioning(from, offset, true, true)).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{AccountId, RequestId, Span, Time};
    use plimsoll_devices::DeviceRequest;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn profile(is_rotational: bool) -> DeviceProfile {
        DeviceProfile {
            name: "device".into(),
            capacity_bytes: 400 * GIB,
            worst_case_runs_per_second: 100.0,
            sequential_bytes_per_second: 1e8,
            sequential_write_bytes_per_second: if is_rotational { 1e8 } else { 4e7 },
            write_settle: Span::from_millis(1),
            is_rotational,
            outstanding_max: 1,
        }
    }

    fn request(operation: Operation, offset: u64, length: u32) -> BlockRequest {
        BlockRequest::new(RequestId(0), AccountId(1), operation, offset, length, Time::ZERO)
    }

    /// The model again, from the whole history of requests and without its tables.
    fn oracle(profile: &DeviceProfile, history: &[BlockRequest]) -> Cost {
        let moves = |request: &&BlockRequest| {
            request.length > 0 && !matches!(request.operation, Operation::Flush | Operation::Trim)
        };
        let (last, before) = history.split_last().unwrap();
        if last.operation == Operation::Flush {
            let since = before.iter().rposition(|request| request.operation == Operation::Flush).map_or(0, |at| at + 1);
            let writes =
                (since..before.len()).filter(|&at| before[at].operation == Operation::Write && moves(&&before[at]));
            let most = writes.map(|at| oracle(profile, &history[..=at]).positioning).max();
            let mean = profile.sequential_bytes_per_second / profile.worst_case_runs_per_second
                * f64::from(profile.outstanding_max).powf(0.2)
                - 4096.0;
            let owed = most.map_or(0.0, |most| 0.45 * mean - most as f64).max(0.0);
            let positioning = if profile.is_rotational { owed.round() as u64 } else { 0 };
            return Cost { positioning, ..Cost::default() };
        }
        if !moves(&last) {
            return Cost::default();
        }
        let is_write = last.operation != Operation::Read;
        let is_seen = |request: &&BlockRequest| profile.is_rotational || request.operation != Operation::Read;
        // What goes on is taken out of the one and stands in the other. Of each only the last sixteen count, and of
        // equals the one with the number of the least remainder.
        let (mut candidates, mut streams) = (Vec::<Option<u64>>::new(), Vec::<Option<u64>>::new());
        let find = |ends: &[Option<u64>], offset| {
            let recent = ends.len().saturating_sub(16)..ends.len();
            recent.filter(|&number| ends[number] == Some(offset)).min_by_key(|number| number % 16)
        };
        let mut goes_on = false;
        for request in history.iter().filter(moves).filter(is_seen) {
            let (stream, candidate) = (find(&streams, request.offset), find(&candidates, request.offset));
            goes_on = stream.or(candidate).is_some();
            match (stream, candidate) {
                (Some(number), _) => streams[number] = Some(request.end()),
                (None, Some(number)) => {
                    candidates[number] = None;
                    streams.push(Some(request.end()));
                }
                (None, None) => candidates.push(Some(request.end())),
            }
        }
        let second = profile.sequential_bytes_per_second;
        let per_run = second / profile.worst_case_runs_per_second;
        let length = f64::from(last.length);
        if !profile.is_rotational {
            let scattered = if is_write && !goes_on { per_run - 2.5 * 4096.0 } else { 0.0 };
            let transfer = if is_write { 2.5 * length } else { length.max(7143.0) };
            return Cost {
                transfer: transfer.round() as u64,
                positioning: scattered.round() as u64,
                is_resumed: false,
            };
        }
        let head = before.iter().rfind(moves).map_or(0, BlockRequest::end) as f64;
        let (to, mean) = (last.offset as f64, per_run * f64::from(profile.outstanding_max).powf(0.2) - 4096.0);
        let distance = (to - head).abs() / profile.capacity_bytes as f64;
        let is_queued = is_write && !last.is_sync && !last.is_forced;
        let gain = if is_queued { f64::from(profile.outstanding_max).powf(0.2) } else { 1.0 };
        let settled = if is_write && !is_queued { 1e5 } else { 0.0 };
        let moved = mean * (0.45 + 0.55 * distance.sqrt() * 15.0 / 8.0) / gain + settled;
        let mut positioning = if to >= head { moved.min(to - head) } else { moved };
        if last.is_forced {
            positioning = positioning.max(0.45 * mean);
        }
        let is_resumed = goes_on && to != head;
        Cost { transfer: length as u64, positioning: positioning.round() as u64, is_resumed }
    }

    fn any_request() -> impl Strategy<Value = BlockRequest> {
        use Operation::*;
        let operation = prop_oneof![4 => Just(Read), 4 => Just(Write), 1 => Just(Flush), 1 => Just(Trim)];
        (operation, 0u64..12, 0u32..3, any::<bool>()).prop_map(|(operation, place, pages, is_forced)| BlockRequest {
            is_forced,
            ..request(operation, place * 4096, pages * 4096)
        })
    }

    proptest! {
        #[test]
        fn costs_follow_from_the_history(
            requests in proptest::collection::vec(any_request(), 1..120), is_rotational in any::<bool>(),
        ) {
            let profile = DeviceProfile { outstanding_max: 10, ..profile(is_rotational) };
            let mut model = CostModel::new(&profile);
            for (count, request) in requests.iter().enumerate() {
                let (cost, expected) = (model.cost(request), oracle(&profile, &requests[..=count]));
                prop_assert!(cost.positioning.abs_diff(expected.positioning) <= 1, "{cost:?}, {expected:?}");
                prop_assert_eq!(cost, Cost { positioning: cost.positioning, ..expected });
            }
        }

        #[test]
        fn dirtying_costs_as_scattered_as_the_offsets_are(
            writes in proptest::collection::vec((0u64..4, 0u64..200, 1u64..8), 1..60), is_rotational in any::<bool>(),
        ) {
            let profile = DeviceProfile { outstanding_max: 10, ..profile(is_rotational) };
            let mut model = DirtyModel::new(&profile);
            for (count, &(file, page, pages)) in writes.iter().enumerate() {
                let (offset, length) = (page << 12, pages << 12);
                let last = writes[..count].iter().rfind(|write| write.0 == file);
                let from = last.map_or(offset + length, |&(_, page, pages)| (page + pages) << 12);
                // As a request would be charged, if files were disks.
                let mut disk = CostModel::new(&profile);
                disk.cost(&request(Operation::Write, from - 4096, 4096));
                let expected = disk.charge(&request(Operation::Write, offset, length as u32));
                prop_assert_eq!(model.charge(FileId(file), offset, length), expected);
            }
        }
    }

    #[test]
    fn random_requests_cost_what_the_disk_could_have_streamed_meanwhile() {
        let mut model = CostModel::new(&profile(true));
        assert_eq!(model.charge(&request(Operation::Read, 0, 1 << 20)), MIB);
        assert_eq!(model.charge(&request(Operation::Read, MIB, 1 << 20)), MIB, "in sequence");
        assert_eq!(model.charge(&request(Operation::Read, 2 * MIB + 4096, 4096)), 8192, "a gap passes by");
        // 10 ms at 100 MB/s are a megabyte; the nearest place costs 45 % of it.
        let near = model.charge(&request(Operation::Read, MIB, 4096));
        let far = model.charge(&request(Operation::Read, 399 * GIB, 4096));
        assert!((450_000..470_000).contains(&near) && (1_400_000..1_500_000).contains(&far), "{near} {far}");
        assert_eq!(model.charge(&request(Operation::Flush, 0, 0)), 0);
        let forced = BlockRequest { is_forced: true, ..request(Operation::Write, 399 * GIB + 4096, 4096) };
        assert!(model.charge(&forced) > 440_000, "waits for the platter");
    }

    #[test]
    fn an_interrupted_stream_is_known_however_many_random_requests_come_between() {
        let mut model = CostModel::new(&profile(true));
        (0..2).for_each(|n| assert!(!model.cost(&request(Operation::Read, n * MIB, 1 << 20)).is_resumed));
        for n in 0..1000 {
            let random = request(Operation::Write, (n * 7919 % 300) * GIB + MIB / 2, 4096);
            assert!(!model.cost(&random).is_resumed);
        }
        let resumed = model.cost(&request(Operation::Read, 2 * MIB, 1 << 20));
        assert!(resumed.is_resumed && resumed.positioning > 0);
        assert!(!model.cost(&request(Operation::Read, 3 * MIB, 1 << 20)).is_resumed);
    }

    /// What a load takes on a drive's model, as bytes that it could have streamed, over what it is charged. `places`
    /// are served so many at a time.
    fn real_over_charged(
        name: &str,
        operation: Operation,
        is_sync: bool,
        length: u32,
        places: &[u64],
        depth: usize,
    ) -> f64 {
        let mut device = plimsoll_devices::build(name, 1).unwrap();
        let profile = device.profile().clone();
        let mut model = CostModel::new(&profile);
        let (mut now, mut charged, mut started) = (Time::ZERO, 0, 0);
        while device.outstanding() > 0 || started < places.len() {
            while device.outstanding() < depth && started < places.len() {
                charged += model.charge(&BlockRequest { is_sync, ..request(operation, places[started], length) });
                let (token, offset) = (started as u64, places[started]);
                device.submit(now, DeviceRequest { token, operation, offset, length, is_forced: false });
                started += 1;
            }
            now = now.max(device.next_completion().unwrap());
            while device.complete(now).is_some() {}
        }
        let seconds = now.since(Time::ZERO).as_nanos() as f64 / Span::from_secs(1).as_nanos() as f64;
        seconds * profile.sequential_bytes_per_second / charged as f64
    }

    fn scattered(count: u64, below: u64) -> Vec<u64> {
        let place = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (0..count).map(|n| place(n + 1) % (below / 4096) * 4096).collect()
    }

    const DISKS: [&str; 3] = ["hdd.wd-aakx", "hdd.deskstar-120", "hdd.15k-sas"];

    fn capacity(name: &str) -> u64 {
        plimsoll_devices::build(name, 1).unwrap().profile().capacity_bytes
    }

    #[track_caller]
    fn assert_within(what: &str, ratio: f64, from: f64, to: f64) {
        assert!((from..=to).contains(&ratio), "{what}: takes {ratio:.2} of what it is charged");
    }

    /// Promise: split-costs.
    #[test]
    fn known_disks_take_what_is_charged() {
        let sequence: Vec<u64> = (0..2000).map(|n| n * MIB / 4).collect();
        for name in DISKS {
            for operation in [Operation::Read, Operation::Write] {
                let ratio =
                    |length, places: &[u64], depth| real_over_charged(name, operation, true, length, places, depth);
                assert_within(name, ratio(256 << 10, &sequence, 2), 0.95, 1.05);
                assert_within(name, ratio(4096, &scattered(2000, capacity(name)), 1), 0.90, 1.10);
                assert_within(name, ratio(4096, &scattered(2000, 10 * GIB), 1), 0.80, 1.10);
            }
        }
    }

    #[test]
    fn known_disks_order_unawaited_writes() {
        for name in DISKS {
            // As the flusher sends them: sorted, 32 at a time.
            let mut batches = scattered(2048, 10 * GIB);
            batches.chunks_mut(32).for_each(<[u64]>::sort_unstable);
            let ratio = |places: &[u64]| real_over_charged(name, Operation::Write, false, 4096, places, 10);
            assert_within(name, ratio(&scattered(2000, capacity(name))), 0.85, 1.10);
            assert_within(name, ratio(&batches), 0.85, 1.15);
        }
    }

    #[test]
    fn known_solid_state_drives_take_what_is_charged() {
        let sequence: Vec<u64> = (0..2000).map(|n| n * MIB / 4).collect();
        for (name, depth) in [("ssd.x25-m", 32), ("ssd.x25-e", 32), ("nvme", 256)] {
            let ratio =
                |operation, length, places: &[u64]| real_over_charged(name, operation, false, length, places, depth);
            let places = scattered(20_000, capacity(name));
            assert_within(name, ratio(Operation::Read, 256 << 10, &sequence), 0.95, 1.05);
            assert_within(name, ratio(Operation::Write, 256 << 10, &sequence), 0.95, 1.05);
            assert_within(name, ratio(Operation::Write, 4096, &places), 0.95, 1.05);
            // One figure for the reads of all drives: right within a factor of two.
            assert_within(name, ratio(Operation::Read, 4096, &places), 0.5, 1.05);
        }
    }
}
