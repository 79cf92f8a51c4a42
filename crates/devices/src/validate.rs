//! Compares each model with what is known of the device that it stands for.
//!
//! A workload runs against the model in virtual time, closed loop: a fixed number of requests outstanding, each
//! replaced at the moment of its completion. The result is compared with the figure of the data sheet or paper.

use crate::model::{DeviceModel, DeviceRequest};
use crate::random::Random;
use crate::registry::build;
use plimsoll_core::{Operation, Span, Time};

/// By how much, as a fraction, a model may differ from the device.
const MARGIN: f64 = 0.05;
/// The first part of the requests, one in so many, is not counted: until then write buffers fill.
const WARM_FRACTION: u32 = 4;
/// Seed of the workloads and of the models.
const SEED: u64 = 1;

/// One figure of one model, beside what is known.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidationRow {
    /// Name of the model.
    pub model: &'static str,
    /// What was measured.
    pub figure: &'static str,
    /// Unit of both values.
    pub unit: &'static str,
    /// What the device does.
    pub known: f64,
    /// What the model does.
    pub measured: f64,
    /// Where the known value comes from.
    pub source: &'static str,
    /// How far apart they may be, as a fraction of the known value.
    pub margin: f64,
}

impl ValidationRow {
    /// Whether the model is near enough to the device.
    pub fn holds(&self) -> bool {
        (self.measured - self.known).abs() <= self.margin * self.known
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    Random,
    Sequential,
}

/// A closed loop.
#[derive(Clone, Copy, Debug)]
struct Workload {
    operation: Operation,
    pattern: Pattern,
    length: u32,
    outstanding: u32,
    requests: u32,
}

impl Workload {
    const fn random(operation: Operation, length: u32, outstanding: u32, requests: u32) -> Workload {
        Workload { operation, pattern: Pattern::Random, length, outstanding, requests }
    }

    const fn sequential(operation: Operation, length: u32, outstanding: u32, requests: u32) -> Workload {
        Workload { operation, pattern: Pattern::Sequential, length, outstanding, requests }
    }

    /// Requests per second, once it is warm.
    fn run(&self, device: &mut dyn DeviceModel) -> f64 {
        let mut random = Random::new(SEED);
        let slots = device.profile().capacity_bytes / u64::from(self.length);
        let mut submitted = 0;
        let mut submit = |device: &mut dyn DeviceModel, now| {
            let slot = match self.pattern {
                Pattern::Random => random.below(slots),
                Pattern::Sequential => submitted % slots,
            };
            let offset = slot * u64::from(self.length);
            let (operation, length) = (self.operation, self.length);
            device.submit(now, DeviceRequest { token: submitted, operation, offset, length, is_forced: false });
            submitted += 1;
        };
        (0..self.outstanding).for_each(|_| submit(device, Time::ZERO));
        let (mut now, mut measured_from) = (Time::ZERO, Time::ZERO);
        let (mut completed, warm) = (0, self.requests / WARM_FRACTION);
        while completed < self.requests {
            let Some(next) = device.next_completion() else { break };
            now = next;
            while device.complete(now).is_some() {
                completed += 1;
                if completed == warm {
                    measured_from = now;
                }
                submit(device, now);
            }
        }
        f64::from(completed - warm) / now.since(measured_from).max(Span::from_nanos(1)).as_secs_f64()
    }
}

/// One line of the table of what is known.
struct Known {
    model: &'static str,
    figure: &'static str,
    value: f64,
    source: &'static str,
    workload: Workload,
}

impl Known {
    /// The unit of the figure, and what one request per second is in it.
    fn unit(&self) -> (&'static str, f64) {
        match self.workload.pattern {
            Pattern::Random => ("IOPS", 1.0),
            Pattern::Sequential => ("MB/s", f64::from(self.workload.length) / 1e6),
        }
    }
}

const fn known(
    model: &'static str,
    figure: &'static str,
    value: f64,
    source: &'static str,
    workload: Workload,
) -> Known {
    Known { model, figure, value, source, workload }
}

const READ: Operation = Operation::Read;
const WRITE: Operation = Operation::Write;
const RANDOM_READ_1: Workload = Workload::random(READ, 4096, 1, 4_000);
const RANDOM_READ_32: Workload = Workload::random(READ, 4096, 32, 20_000);
const RANDOM_WRITE_32: Workload = Workload::random(WRITE, 4096, 32, 20_000);
const STREAM_READ_1: Workload = Workload::sequential(READ, 128 << 10, 1, 4_000);
const STREAM_READ_4: Workload = Workload::sequential(READ, 128 << 10, 4, 4_000);
const STREAM_WRITE_4: Workload = Workload::sequential(WRITE, 128 << 10, 4, 4_000);
/// Four lanes of PCIe 3.0 at 8 GT/s, 128 of 130 bits, packets of 256 bytes with 26 bytes around them; MB/s.
const PCIE_3_X4: f64 = 8e3 * 4.0 / 8.0 * 128.0 / 130.0 * 256.0 / 282.0;

static KNOWN: &[Known] = &[
    known("hdd.wd-aakx", "sequential read", 138.0, "split-level paper, figure 14", STREAM_READ_1),
    known("hdd.wd-aakx", "sequential write, 4 outstanding", 138.0, "as reads: the same heads", STREAM_WRITE_4),
    known(
        "hdd.wd-aakx",
        "random read, 1 outstanding",
        1e3 / (8.9 + 25.0 / 6.0),
        "data sheet: average seek + half a revolution",
        RANDOM_READ_1,
    ),
    known(
        "hdd.deskstar-120",
        "random read of 1 KiB, 10 outstanding",
        112.0,
        "Zygaria paper, section 5",
        Workload::random(READ, 1024, 10, 4_000),
    ),
    known("hdd.deskstar-120", "sequential read", 56.0, "specification: sustained data rate", STREAM_READ_1),
    known("hdd.15k-sas", "sequential read", 204.0, "product manual: sustainable rate", STREAM_READ_1),
    known(
        "hdd.15k-sas",
        "random read, 1 outstanding",
        1e3 / (3.4 + 2.0),
        "product manual: average seek + half a revolution",
        RANDOM_READ_1,
    ),
    known("ssd.x25-m", "random read, 32 outstanding", 35_000.0, "data sheet", RANDOM_READ_32),
    known("ssd.x25-m", "random write, 32 outstanding", 6_600.0, "data sheet", RANDOM_WRITE_32),
    known("ssd.x25-m", "sequential read, 4 outstanding", 250.0, "data sheet", STREAM_READ_4),
    known("ssd.x25-m", "sequential write, 4 outstanding", 70.0, "data sheet", STREAM_WRITE_4),
    known("ssd.x25-e", "random read, 32 outstanding", 35_000.0, "data sheet", RANDOM_READ_32),
    known("ssd.x25-e", "random write, 32 outstanding", 3_300.0, "data sheet", RANDOM_WRITE_32),
    known("ssd.x25-e", "random read, 1 outstanding", 1e6 / 75.0, "data sheet: latency 75 us", RANDOM_READ_1),
    known("ssd.x25-e", "sequential read, 4 outstanding", 250.0, "data sheet", STREAM_READ_4),
    known("ssd.x25-e", "sequential write, 4 outstanding", 170.0, "data sheet", STREAM_WRITE_4),
    known(
        "nvme",
        "random read, 256 outstanding",
        740_000.0,
        "product brief",
        Workload::random(READ, 4096, 256, 100_000),
    ),
    known(
        "nvme",
        "sequential read, 32 outstanding",
        3_000.0,
        "product brief",
        Workload::sequential(READ, 128 << 10, 32, 10_000),
    ),
    known(
        "nvme.64th",
        "random read, 32 outstanding",
        740_000.0 / 64.0,
        "a 64th of nvme",
        Workload::random(READ, 4096, 32, 20_000),
    ),
    known(
        "raid1e-5",
        "random read, 50 outstanding",
        5.0 * 128.0,
        "5 times hdd.wd-aakx with 10 outstanding",
        Workload::random(READ, 4096, 50, 10_000),
    ),
    known(
        "raid1e-5",
        "random write, 50 outstanding",
        2.5 * 115.0,
        "2.5 times hdd.wd-aakx: each is written twice",
        Workload::random(WRITE, 4096, 50, 10_000),
    ),
    known(
        "raid1e-5",
        "sequential read",
        2.5 * 138.0,
        "2.5 times hdd.wd-aakx: every other row is a copy",
        STREAM_READ_1,
    ),
    known(
        "nvram-log",
        "sequential write, 8 outstanding",
        PCIE_3_X4,
        "PCIe 3.0: four lanes less the packets' headers",
        Workload::sequential(WRITE, 64 << 10, 8, 10_000),
    ),
];

/// Requests for which the worst case is measured.
const WORST_CASE_REQUESTS: u32 = 8_000;

/// The profile's promise beside the model's result. It is random requests of 4 KiB, as many outstanding as the profile
/// says, reads or writes, whichever are slower.
fn worst_case(model: &'static str) -> Option<ValidationRow> {
    let profile = build(model, SEED)?.profile().clone();
    let measure = |operation| {
        let mut device = build(model, SEED)?;
        Some(Workload::random(operation, 4096, profile.outstanding_max, WORST_CASE_REQUESTS).run(&mut *device))
    };
    Some(ValidationRow {
        model,
        figure: "profile: worst-case runs",
        unit: "IOPS",
        known: profile.worst_case_runs_per_second,
        measured: measure(READ)?.min(measure(WRITE)?),
        source: "device profile: what admission control promises",
        margin: MARGIN,
    })
}

/// Measures every known figure of the model called `model_name`; empty for a name that no model has. Takes well below
/// a second.
pub fn validate(model_name: &str) -> Vec<ValidationRow> {
    let Some(entry) = crate::models().iter().find(|entry| entry.name == model_name) else { return Vec::new() };
    let figures = KNOWN.iter().filter(|known| known.model == model_name).filter_map(|known| {
        let mut device = build(known.model, SEED)?;
        let (unit, unit_per_request) = known.unit();
        let measured = known.workload.run(&mut *device) * unit_per_request;
        let Known { model, figure, value, source, .. } = *known;
        Some(ValidationRow { model, figure, unit, known: value, measured, source, margin: MARGIN })
    });
    figures.chain(worst_case(entry.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: devices-known-figures.
    #[test]
    fn every_known_figure_is_met() {
        for model in crate::models() {
            let rows = validate(model.name);
            assert!(rows.len() > 1, "nothing is known of {}", model.name);
            for row in rows {
                println!("{:<18}{:<44}{:>10.1}{:>10.1} {}", row.model, row.figure, row.known, row.measured, row.unit);
                assert!(row.holds(), "{row:?}");
            }
        }
    }

    #[test]
    fn a_figure_that_is_too_far_off_does_not_hold() {
        let [row, ..] = &validate("hdd.wd-aakx")[..] else { panic!("no rows") };
        assert!(row.holds());
        assert!(!ValidationRow { known: row.measured * 1.06, ..row.clone() }.holds());
        assert!(!ValidationRow { known: row.measured * 0.94, ..row.clone() }.holds());
        assert_eq!(validate("hdd.unheard-of"), []);
    }
}
