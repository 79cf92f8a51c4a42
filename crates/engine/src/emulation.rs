//! A device model in real time: each reply waits until a real device would be done.
//!
//! The model's schedule is absolute. A thread that wakes up late answers late, but the next request is not later for
//! it. So the emulated rate is the model's, and lateness is measured, reported, and never accumulates.
//!
//! A virtual machine that its host stops for a moment answers a burst of replies late and is true again afterwards. So
//! replies are also counted, all and the late ones. A measurement takes the difference over each stretch and leaves out
//! those in which the emulation was not true ([`EmulationStatus::was_true_since`]).

use super::status::EmulationStatus;
use hdrhistogram::Histogram;
use plimsoll_core::{Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};

/// The quantile that is reported: the slowest hundredth begins here.
const LATENESS_QUANTILE: f64 = 0.99;
/// Lateness is recorded up to this; more counts as this.
const LATENESS_MAX: Span = Span::from_secs(60);

/// A model and how late it was answered.
pub(crate) struct Emulation {
    model: Box<dyn DeviceModel + Send>,
    lateness_bound: Span,
    lateness_ns: Histogram<u64>,
    late_replies: u64,
}

impl Emulation {
    pub(crate) fn new(model: Box<dyn DeviceModel + Send>, lateness_bound: Span) -> Emulation {
        let lateness_ns =
            Histogram::new_with_bounds(1_000, LATENESS_MAX.as_nanos(), 2).expect("constant bounds are valid");
        Emulation { model, lateness_bound, lateness_ns, late_replies: 0 }
    }

    pub(crate) fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.model.submit(now, request);
    }

    pub(crate) fn next_completion(&self) -> Option<Time> {
        self.model.next_completion()
    }

    /// The token of the earliest request that is done by `now`, if any.
    pub(crate) fn complete(&mut self, now: Time) -> Option<u64> {
        let finished = self.model.complete(now)?;
        let lateness = now.since(finished.at);
        self.lateness_ns.saturating_record(lateness.as_nanos());
        self.late_replies += u64::from(lateness > self.lateness_bound);
        Some(finished.token)
    }

    pub(crate) fn status(&self) -> EmulationStatus {
        EmulationStatus {
            replies: self.lateness_ns.len(),
            late_replies: self.late_replies,
            lateness_ns_bound: self.lateness_bound.as_nanos(),
            lateness_ns_p99: self.lateness_ns.value_at_quantile(LATENESS_QUANTILE),
        }
    }
}
