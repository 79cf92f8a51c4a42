//! Solid-state drives: a controller, many dies that work at once, and one link to the host.
//!
//! The intuition: three stations that a request passes. The controller takes one command at a time; the dies work in
//! parallel; the link carries one reply at a time. The bottleneck depends on the request. The controller or the link
//! limits small random reads, the dies limit small random writes, the link limits large transfers.
//!
//! ```text
//!   submit --> controller --> die 0 .. die n-1 --> link --> done
//!              one command    pages in parallel    in the order in which data is ready
//! ```
//!
//! The rule for writes: a write is done when its pages are in the drive's buffer. The buffer has room again when
//! earlier pages are programmed. So the buffer hides a burst, and a lasting load runs at the speed of the dies. Pages
//! go to the dies in turn, wherever they belong. A page that continues a recent write costs one program. A page
//! elsewhere also costs the copying and erasing that it will cause, charged at once as a longer program.
//!
//! The complication is reads that meet writes. A read does not wait for all programs queued at its die, only for the
//! operation in progress. It delays the rest by its own time.

use crate::model::{DeviceModel, DeviceRequest, Finished};
use crate::random::mix;
use plimsoll_core::{DeviceProfile, Operation, Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Bytes of a flash page as the host's requests are cut.
const PAGE_BYTES: u64 = 4096;
/// How many sequential writers the drive can tell apart.
const WRITE_STREAMS: usize = 32;

/// The figures of a solid-state drive. All must be positive. `docs/devices.md` tells those that were read in a document
/// from those that are as commonly quoted.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashParameters {
    /// The name in configurations.
    pub name: &'static str,
    /// Bytes that the host sees.
    pub capacity_bytes: u64,
    /// Dies, or channels, that work at once.
    pub dies: u64,
    /// What the controller spends on one command.
    pub command_ns: u64,
    /// What a die spends on reading a page.
    pub page_read_ns: u64,
    /// What the link carries, bytes per second.
    pub link_bytes_per_second: u64,
    /// Bytes per second of one sequential writer that lasts.
    pub sequential_write_bytes_per_second: u64,
    /// Random writes of 4 KiB per second that last.
    pub random_writes_per_second: u64,
    /// Bytes written that the drive holds before they are programmed.
    pub write_buffer_bytes: u64,
    /// The buffer survives a loss of power, so that a flush has nothing to wait for.
    pub is_buffer_durable: bool,
    /// Bytes per second of one sequential stream.
    pub sequential_bytes_per_second: f64,
    /// Random requests of 4 KiB per second with `outstanding_max` outstanding, reads or writes, whichever are slower.
    pub worst_case_runs_per_second: f64,
    /// Requests to keep at the drive.
    pub outstanding_max: u32,
}

/// Intel X25-M, 80 GB, 34 nm: the solid-state drive of the split-level paper (section 6).
pub const X25_M: FlashParameters = FlashParameters {
    name: "ssd.x25-m",
    capacity_bytes: 80_000_000_000,
    // Reviews and data sheet: ten flash channels.
    dies: 10,
    // Data sheet: 35,000 random reads of 4 KiB per second.
    command_ns: 1_000_000_000 / 35_000,
    // Data sheet: read latency 65 us = command 28.6 us + page 20 us + link 16.4 us.
    page_read_ns: 20_000,
    // Data sheet: 250 MB/s sequential read.
    link_bytes_per_second: 250_000_000,
    // Data sheet: 70 MB/s sequential write.
    sequential_write_bytes_per_second: 70_000_000,
    // Data sheet: 6,600 random writes of 4 KiB per second (80 GB).
    random_writes_per_second: 6_600,
    // The controller holds user data in 256 KB of its own memory (reviews; the DRAM holds its tables).
    write_buffer_bytes: 256 << 10,
    is_buffer_durable: false,
    sequential_bytes_per_second: 250e6,
    worst_case_runs_per_second: 6_600.0,
    outstanding_max: 32,
};

/// Intel X25-E, 32 GB: the cache of the Differentiated Storage Services paper (section 5.3).
pub const X25_E: FlashParameters = FlashParameters {
    name: "ssd.x25-e",
    capacity_bytes: 32_000_000_000,
    // Reviews and data sheet: ten flash channels.
    dies: 10,
    // Data sheet: 35,000 random reads of 4 KiB per second.
    command_ns: 1_000_000_000 / 35_000,
    // Data sheet: read latency 75 us = command 28.6 us + page 30 us + link 16.4 us.
    page_read_ns: 30_000,
    // Data sheet: 250 MB/s sequential read.
    link_bytes_per_second: 250_000_000,
    // Data sheet: 170 MB/s sequential write.
    sequential_write_bytes_per_second: 170_000_000,
    // Data sheet: 3,300 random writes of 4 KiB per second.
    random_writes_per_second: 3_300,
    // As the X25-M's: it has the same controller.
    write_buffer_bytes: 256 << 10,
    is_buffer_durable: false,
    sequential_bytes_per_second: 250e6,
    worst_case_runs_per_second: 3_300.0,
    outstanding_max: 32,
};

/// An NVMe drive of the class of the Samsung XS1715, the drive of the dynamic-throttling paper (section 2).
pub const NVME: FlashParameters = FlashParameters {
    name: "nvme",
    capacity_bytes: 1_600_000_000_000,
    // Not published; enough that random reads are limited by the link.
    dies: 128,
    // Below the link's 1,352 ns for 4 KiB, so that the link is the limit.
    command_ns: 1_000,
    // Not published; a usual time for reading a page of that flash, 80 us.
    page_read_ns: 80_000,
    // Product brief: 3 GB/s sequential read and 740,000 random reads of 4 KiB per second, which are 3.03 GB/s.
    link_bytes_per_second: 3_030_000_000,
    // Product class: 1.4 GB/s sequential write; not verified against a document.
    sequential_write_bytes_per_second: 1_400_000_000,
    // Product class: about 105,000 random writes of 4 KiB per second; not verified against a document.
    random_writes_per_second: 105_000,
    // Not published; enough to hide what dies need for one round.
    write_buffer_bytes: 4 << 20,
    // Enterprise drive with capacitors.
    is_buffer_durable: true,
    sequential_bytes_per_second: 3e9,
    worst_case_runs_per_second: 105_000.0,
    outstanding_max: 256,
};

/// An eighth of [`NVME`] at an eighth of its pace: what a machine of two processors can emulate in real time. All times
/// are eight times as long, and each part that the drive has several of is there an eighth as often. So each limit
/// comes from the same part as on the whole drive.
pub const NVME_64TH: FlashParameters = FlashParameters {
    name: "nvme.64th",
    capacity_bytes: NVME.capacity_bytes / 8,
    dies: NVME.dies / 8,
    // One controller, an eighth as wide and as fast.
    command_ns: NVME.command_ns * 64,
    page_read_ns: NVME.page_read_ns * 8,
    link_bytes_per_second: NVME.link_bytes_per_second / 64,
    sequential_write_bytes_per_second: NVME.sequential_write_bytes_per_second / 64,
    random_writes_per_second: NVME.random_writes_per_second / 64,
    write_buffer_bytes: NVME.write_buffer_bytes / 8,
    is_buffer_durable: NVME.is_buffer_durable,
    sequential_bytes_per_second: NVME.sequential_bytes_per_second / 64.0,
    worst_case_runs_per_second: NVME.worst_case_runs_per_second / 64.0,
    outstanding_max: NVME.outstanding_max / 8,
};

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// The reads it was given are done then.
    reads_until: Time,
    /// The programs it was given are done then.
    programs_until: Time,
}

/// A request with its data ready for the link, now or at a known time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Ready {
    at: Time,
    sequence: u64,
    token: u64,
    link_ns: u64,
}

/// A solid-state drive. Every call costs O(pages of the request + log outstanding).
#[derive(Clone, Debug)]
pub struct Flash {
    parameters: FlashParameters,
    profile: DeviceProfile,
    seed: u64,
    program_ns: u64,
    program_scattered_ns: u64,
    controller_until: Time,
    link_until: Time,
    dies: Vec<Die>,
    /// When each page of the buffer is programmed; the page to be replaced next is `pages_written` modulo its length.
    buffer: Vec<Time>,
    pages_written: u64,
    programs_until: Time,
    /// Where recent writes ended.
    write_ends: [u64; WRITE_STREAMS],
    write_end_next: usize,
    ready: BinaryHeap<Reverse<Ready>>,
    sequence: u64,
}

impl Flash {
    /// A drive with these parameters; the seed decides how pages are spread over the dies.
    pub fn new(parameters: &FlashParameters, seed: u64) -> Flash {
        let per_die = |per_second: u64| 1_000_000_000 * parameters.dies / per_second;
        Flash {
            profile: DeviceProfile {
                name: parameters.name.to_owned(),
                capacity_bytes: parameters.capacity_bytes,
                worst_case_runs_per_second: parameters.worst_case_runs_per_second,
                sequential_bytes_per_second: parameters.sequential_bytes_per_second,
                sequential_write_bytes_per_second: parameters.sequential_write_bytes_per_second as f64,
                write_settle: Span::ZERO,
                is_rotational: false,
                outstanding_max: parameters.outstanding_max,
            },
            seed: mix(seed),
            program_ns: PAGE_BYTES * per_die(1) / parameters.sequential_write_bytes_per_second,
            program_scattered_ns: per_die(parameters.random_writes_per_second),
            controller_until: Time::ZERO,
            link_until: Time::ZERO,
            dies: vec![Die::default(); parameters.dies as usize],
            buffer: vec![Time::ZERO; (parameters.write_buffer_bytes / PAGE_BYTES).max(1) as usize],
            pages_written: 0,
            programs_until: Time::ZERO,
            write_ends: [u64::MAX; WRITE_STREAMS],
            write_end_next: 0,
            ready: BinaryHeap::with_capacity(1024),
            sequence: 0,
            parameters: parameters.clone(),
        }
    }

    /// The die of a page: neighbours lie on different dies, and no stride of the host hits the same die each time.
    fn die_of(&self, page: u64) -> usize {
        let dies = self.parameters.dies;
        ((page % dies + mix(self.seed ^ (page / dies)) % dies) % dies) as usize
    }

    /// Reads the pages; returns when the last is there.
    fn read(&mut self, at: Time, first: u64, end: u64) -> Time {
        let page_read = Span::from_nanos(self.parameters.page_read_ns);
        let mut last = at;
        for page in first..end {
            let die = self.die_of(page);
            let die = &mut self.dies[die];
            let queued_ns = die.programs_until.since(at).as_nanos();
            let start = die.reads_until.max(at + Span::from_nanos(queued_ns % self.program_ns));
            die.reads_until = start + page_read;
            if queued_ns > 0 {
                die.programs_until += page_read;
            }
            last = last.max(die.reads_until);
        }
        last
    }

    /// Whether a write at `offset` continues a recent one; remembers where it ends.
    fn continues(&mut self, offset: u64, end: u64) -> bool {
        let stream = self.write_ends.iter().position(|&write_end| write_end == offset);
        let position = stream.unwrap_or_else(|| {
            self.write_end_next = (self.write_end_next + 1) % WRITE_STREAMS;
            self.write_end_next
        });
        self.write_ends[position] = end;
        stream.is_some()
    }

    /// Puts pages into the buffer and their programs onto the dies; returns when all are in the buffer and when all are
    /// programmed.
    fn write(&mut self, at: Time, pages: u64, is_continued: bool) -> (Time, Time) {
        let (mut buffered, mut programmed) = (at, at);
        for page in 0..pages {
            let is_scattered = page == 0 && !is_continued;
            let program_ns = if is_scattered { self.program_scattered_ns } else { self.program_ns };
            let slot = (self.pages_written % self.buffer.len() as u64) as usize;
            buffered = buffered.max(self.buffer[slot]);
            let die = &mut self.dies[(self.pages_written % self.parameters.dies) as usize];
            die.programs_until = die.programs_until.max(buffered) + Span::from_nanos(program_ns);
            self.buffer[slot] = die.programs_until;
            programmed = programmed.max(die.programs_until);
            self.pages_written += 1;
        }
        self.programs_until = self.programs_until.max(programmed);
        (buffered, programmed)
    }

    /// The reply that leaves the link next, and when.
    fn next_reply(&self) -> Option<(Time, &Ready)> {
        let Reverse(ready) = self.ready.peek()?;
        Some((self.link_until.max(ready.at) + Span::from_nanos(ready.link_ns), ready))
    }
}

impl DeviceModel for Flash {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.controller_until = self.controller_until.max(now) + Span::from_nanos(self.parameters.command_ns);
        let at = self.controller_until;
        let (offset, length) = (request.offset % self.parameters.capacity_bytes, u64::from(request.length));
        let end = (offset + length).min(self.parameters.capacity_bytes);
        let (first_page, end_page) = (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        let (at, moved_bytes) = match request.operation {
            Operation::Read => (self.read(at, first_page, end_page), length),
            Operation::Write => {
                let is_continued = self.continues(offset, end);
                let (buffered, programmed) = self.write(at, end_page.saturating_sub(first_page), is_continued);
                let is_waiting = request.is_forced && !self.parameters.is_buffer_durable;
                (if is_waiting { programmed } else { buffered }, length)
            }
            Operation::Flush if self.parameters.is_buffer_durable => (at, 0),
            Operation::Flush => (at.max(self.programs_until), 0),
            Operation::Trim | Operation::WriteZeroes => (at, 0),
        };
        let link_ns = moved_bytes * 1_000_000_000 / self.parameters.link_bytes_per_second;
        self.sequence += 1;
        self.ready.push(Reverse(Ready { at, sequence: self.sequence, token: request.token, link_ns }));
    }

    fn next_completion(&self) -> Option<Time> {
        self.next_reply().map(|(at, _)| at)
    }

    fn complete(&mut self, now: Time) -> Option<Finished> {
        let (at, ready) = self.next_reply().filter(|(at, _)| *at <= now)?;
        let token = ready.token;
        self.link_until = at;
        self.ready.pop();
        Some(Finished { token, at })
    }

    fn outstanding(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(token: u64, operation: Operation, offset: u64, length: u32) -> DeviceRequest {
        DeviceRequest { token, operation, offset, length, is_forced: false }
    }

    fn drain(device: &mut Flash) -> Vec<(u64, Time)> {
        std::iter::from_fn(|| {
            let done = device.complete(device.next_completion()?)?;
            Some((done.token, done.at))
        })
        .collect()
    }

    /// Reads, station by station. The controller takes them in turn, then the dies theirs, then the link takes them in
    /// the order in which they are ready.
    fn oracle(drive: &Flash, reads: &[(u64, u64, u64)]) -> Vec<(u64, Time)> {
        let parameters = &drive.parameters;
        let (mut controller_ns, mut link_ns, mut die_ns) = (0, 0, vec![0; parameters.dies as usize]);
        let mut ready = Vec::new();
        for (token, &(at_ns, page, pages)) in reads.iter().enumerate() {
            controller_ns = at_ns.max(controller_ns) + parameters.command_ns;
            let mut last_ns = controller_ns;
            for page in page..page + pages {
                let die = &mut die_ns[drive.die_of(page)];
                *die = controller_ns.max(*die) + parameters.page_read_ns;
                last_ns = last_ns.max(*die);
            }
            ready.push((last_ns, token as u64, pages * PAGE_BYTES));
        }
        ready.sort_unstable();
        let link = |(ready_ns, token, bytes): (u64, u64, u64)| {
            link_ns = ready_ns.max(link_ns) + bytes * 1_000_000_000 / parameters.link_bytes_per_second;
            (token, Time::from_nanos(link_ns))
        };
        ready.into_iter().map(link).collect()
    }

    proptest! {
        #[test]
        fn reads_pass_controller_dies_and_link(
            steps in proptest::collection::vec((0u64..100_000, 0u64..1_000_000, 1u64..40), 1..60), seed in any::<u64>(),
        ) {
            for parameters in [X25_E, NVME] {
                let mut drive = Flash::new(&parameters, seed);
                let mut now_ns = 0;
                let reads: Vec<_> = steps.iter().map(|&(pause_ns, page, pages)| {
                    now_ns += pause_ns;
                    (now_ns, page, pages)
                }).collect();
                let expected = oracle(&drive, &reads);
                for (token, &(at_ns, page, pages)) in reads.iter().enumerate() {
                    let read = request(token as u64, Operation::Read, page * PAGE_BYTES, (pages * PAGE_BYTES) as u32);
                    drive.submit(Time::from_nanos(at_ns), read);
                }
                prop_assert_eq!(drain(&mut drive), expected);
            }
        }

        #[test]
        fn neighbouring_pages_lie_on_different_dies(group in 0u64..1_000_000, seed in any::<u64>()) {
            let drive = Flash::new(&X25_M, seed);
            let mut dies: Vec<_> = (group * 10..group * 10 + 10).map(|page| drive.die_of(page)).collect();
            dies.sort_unstable();
            prop_assert_eq!(dies, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_stride_of_the_host_hits_the_same_die_each_time() {
        let drive = Flash::new(&X25_M, 1);
        for stride in [10, 16, 100, 256, 1024] {
            let mut hits = [0; 10];
            (0..1_000).for_each(|step| hits[drive.die_of(step * stride)] += 1);
            assert!(hits.iter().all(|&hits| hits > 50), "{stride}: {hits:?}");
        }
    }

    #[test]
    fn the_buffer_hides_a_burst_of_writes_but_not_a_flush_or_a_forced_write() {
        let mut drive = Flash::new(&X25_E, 1);
        for token in 0..64 {
            drive.submit(Time::ZERO, request(token, Operation::Write, token << 23, 4096));
        }
        drive.submit(Time::ZERO, request(64, Operation::Write, 900 << 20, 4096));
        let forced = DeviceRequest { is_forced: true, ..request(65, Operation::Write, 800 << 20, 4096) };
        drive.submit(Time::ZERO, forced);
        drive.submit(Time::ZERO, request(66, Operation::Flush, 0, 0));
        let finished = drain(&mut drive);
        let at = |token| finished.iter().find(|done| done.0 == token).unwrap().1.as_secs_f64();
        let program = 10.0 / 3_300.0;
        assert!(at(63) < program, "64 pages fit into 256 KiB: {}", at(63));
        assert!(at(64) >= program, "the next waits for the first program: {}", at(64));
        // Seven rounds over ten dies for 66 pages.
        assert!(at(65) >= 7.0 * program && at(66) >= at(65), "{} {}", at(65), at(66));
    }

    #[test]
    fn a_durable_buffer_has_nothing_to_flush() {
        let mut drive = Flash::new(&NVME, 1);
        let forced = DeviceRequest { is_forced: true, ..request(0, Operation::Write, 0, 4096) };
        drive.submit(Time::ZERO, forced);
        drive.submit(Time::ZERO, request(1, Operation::Flush, 0, 0));
        assert!(drain(&mut drive).iter().all(|(_, at)| *at < Time::from_nanos(10_000)));
    }

    #[test]
    fn a_read_waits_for_the_program_under_way_and_not_for_those_behind_it() {
        let mut drive = Flash::new(&X25_E, 1);
        for token in 0..64 {
            drive.submit(Time::ZERO, request(token, Operation::Write, token << 23, 4096));
        }
        let later = Time::from_nanos(3_000_000);
        while drive.complete(later).is_some() {}
        drive.submit(later, request(64, Operation::Read, 5 << 20, 4096));
        let latency = drain(&mut drive)[0].1.since(later);
        let alone = Span::from_micros(75);
        assert!(latency > alone && latency < alone + Span::from_nanos(drive.program_ns + 1_000), "{latency}");
    }
}
