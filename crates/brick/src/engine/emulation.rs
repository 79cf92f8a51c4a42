//! A device model in real time: each reply is held back until the model says that a real device would be done.
//!
//! The model's schedule is absolute. A thread that wakes up late answers late, but the next request is not later for it;
//! so the emulated rate is the model's, and lateness is measured, reported, and never accumulates.

use hdrhistogram::Histogram;
use plimsoll_core::{Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};

/// The share of replies that may be later than the bound, in parts: the slowest hundredth.
const LATENESS_QUANTILE: f64 = 0.99;
/// Lateness is recorded up to this; more counts as this.
const LATENESS_MAX: Span = Span::from_secs(60);

/// A model and how late it was answered.
pub(crate) struct Emulation {
    model: Box<dyn DeviceModel>,
    lateness_bound: Span,
    lateness_ns: Histogram<u64>,
}

impl Emulation {
    pub(crate) fn new(model: Box<dyn DeviceModel>, lateness_bound: Span) -> Emulation {
        let lateness_ns =
            Histogram::new_with_bounds(1_000, LATENESS_MAX.as_nanos(), 2).expect("constant bounds are valid");
        Emulation { model, lateness_bound, lateness_ns }
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
        self.lateness_ns.saturating_record(now.since(finished.at).as_nanos());
        Some(finished.token)
    }

    /// How late the slowest hundredth of replies was at the least.
    pub(crate) fn lateness_p99(&self) -> Span {
        Span::from_nanos(self.lateness_ns.value_at_quantile(LATENESS_QUANTILE))
    }

    /// Whether that is more than the bound: the emulation was not true.
    pub(crate) fn is_late(&self) -> bool {
        self.lateness_p99() > self.lateness_bound
    }
}
