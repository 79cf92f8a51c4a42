//! Compares each model with what is known of the device that it stands for.
//!
//! A workload runs against the model in virtual time, closed loop: a fixed number of requests outstanding, each
//! replaced at the moment of its completion. The result is compared with the figure of the data sheet or paper.

use crate::random::Random;
use crate::{DeviceModel, DeviceRequest, build};
use plimsoll_core::{Operation, Span, Time};

/// By how much, as a fraction, a model may differ from the device.
const MARGIN: f64 = 0.05;
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

    /// Requests per second; the first tenth is not counted.
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
        let warm = self.requests / 10;
        for completed in 0..self.requests {
            if completed == warm {
                measured_from = now;
            }
            now = device.next_completion().unwrap_or(now);
            if device.complete(now).is_some() {
                submit(device, now);
            }
        }
        f64::from(self.requests - warm) / now.since(measured_from).max(Span::from_nanos(1)).as_secs_f64()
    }
}

/// One line of the table of what is known.
struct Known {
    model: &'static str,
    figure: &'static str,
    unit: &'static str,
    value: f64,
    source: &'static str,
    workload: Workload,
    /// What one request per second is in the unit of the figure.
    unit_per_request: f64,
}

const READ: Operation = Operation::Read;
const WRITE: Operation = Operation::Write;
const MEGABYTE: f64 = 1e6;
const KIB_128: u32 = 128 << 10;

static KNOWN: &[Known] = &[
    Known {
        model: "hdd.wd-aakx",
        figure: "sequential read, 128 KiB, 1 outstanding",
        unit: "MB/s",
        value: 138.0,
        source: "split-level paper, figure 14",
        workload: Workload::sequential(READ, KIB_128, 1, 3_000),
        unit_per_request: KIB_128 as f64 / MEGABYTE,
    },
    Known {
        model: "hdd.wd-aakx",
        figure: "sequential write, 128 KiB, 4 outstanding",
        unit: "MB/s",
        value: 138.0,
        source: "split-level paper, figure 14",
        workload: Workload::sequential(WRITE, KIB_128, 4, 3_000),
        unit_per_request: KIB_128 as f64 / MEGABYTE,
    },
    Known {
        model: "hdd.wd-aakx",
        figure: "random read, 4 KiB, 1 outstanding",
        unit: "IOPS",
        value: 1e3 / (8.9 + 60e3 / 7200.0 / 2.0),
        source: "data sheet: 1 / (average seek + half a revolution)",
        workload: Workload::random(READ, 4096, 1, 4_000),
        unit_per_request: 1.0,
    },
    Known {
        model: "hdd.deskstar-120",
        figure: "random read, 1 KiB, 10 outstanding",
        unit: "IOPS",
        value: 112.0,
        source: "Zygaria paper, section 5",
        workload: Workload::random(READ, 1024, 10, 4_000),
        unit_per_request: 1.0,
    },
    Known {
        model: "hdd.deskstar-120",
        figure: "sequential read, 128 KiB, 1 outstanding",
        unit: "MB/s",
        value: 56.0,
        source: "specification: sustained data rate",
        workload: Workload::sequential(READ, KIB_128, 1, 3_000),
        unit_per_request: KIB_128 as f64 / MEGABYTE,
    },
];

/// Requests for which the worst case is measured.
const WORST_CASE_REQUESTS: u32 = 4_000;

/// What the profile promises, beside what the model does: random requests of 4 KiB, as many outstanding as the profile
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
        let measured = known.workload.run(&mut *device) * known.unit_per_request;
        let Known { model, figure, unit, value, source, .. } = *known;
        Some(ValidationRow { model, figure, unit, known: value, measured, source, margin: MARGIN })
    });
    figures.chain(worst_case(entry.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
