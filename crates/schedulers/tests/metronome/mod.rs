//! A device of exactly known speed, and the service that its tenants got.

use plimsoll_core::*;
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use plimsoll_schedulers::{Entry, Promise, Reach, Target, registry};
use plimsoll_sim::block::Served;
use std::collections::VecDeque;

/// Its bytes.
pub const DISK: std::ops::Range<u64> = 0..1 << 30;

/// Serves one request after the other, each in the same time, or each byte in the same time.
pub struct Metronome {
    profile: DeviceProfile,
    /// Time that a request takes, and a byte of it.
    span_per_request: Span,
    span_per_byte: f64,
    queue: VecDeque<(u64, u32)>,
    done_at: Time,
}

impl Metronome {
    /// Every request, however long, takes `1 / requests_per_second`: moving is all that costs.
    pub fn new(requests_per_second: f64, outstanding_max: u32) -> Metronome {
        let profile = DeviceProfile {
            name: "metronome".into(),
            capacity_bytes: DISK.end,
            worst_case_runs_per_second: requests_per_second,
            sequential_bytes_per_second: 1e8,
            sequential_write_bytes_per_second: 1e8,
            write_settle: Span::ZERO,
            is_rotational: false,
            outstanding_max,
        };
        let span_per_request = Span::from_secs_f64(1.0 / requests_per_second);
        Metronome { profile, span_per_request, span_per_byte: 0.0, queue: VecDeque::new(), done_at: Time::MAX }
    }

    /// A run of 32 KiB takes `1 / runs_per_second`, however many requests it comes in: moving costs nothing.
    #[allow(dead_code, reason = "each test crate uses a part of this module")]
    pub fn of_bytes(runs_per_second: f64, outstanding_max: u32) -> Metronome {
        let span_per_byte = 1e9 / runs_per_second / units::RUN_BYTES_MAX as f64;
        Metronome { span_per_request: Span::ZERO, span_per_byte, ..Metronome::new(runs_per_second, outstanding_max) }
    }

    fn service(&self, length: u32) -> Span {
        self.span_per_request + Span::from_nanos((self.span_per_byte * f64::from(length)) as u64)
    }
}

impl DeviceModel for Metronome {
    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }
    fn submit(&mut self, now: Time, request: DeviceRequest) {
        if self.queue.is_empty() {
            self.done_at = now + self.service(request.length);
        }
        self.queue.push_back((request.token, request.length));
    }
    fn next_completion(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(self.done_at)
    }
    fn complete(&mut self, now: Time) -> Option<Finished> {
        let at = self.next_completion().filter(|&at| at <= now)?;
        let (token, _) = self.queue.pop_front()?;
        self.done_at = at + self.queue.front().map_or(Span::ZERO, |&(_, length)| self.service(length));
        Some(Finished { token, at })
    }
    fn outstanding(&self) -> usize {
        self.queue.len()
    }
}

/// A time of the run.
pub fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

/// Completions of `tenant` in the window of `length_s` seconds from `start_s`.
pub fn completed(served: &[Served], tenant: usize, start_s: f64, length_s: f64) -> f64 {
    let window = at(start_s)..at(start_s + length_s);
    served.iter().filter(|one| one.tenant == tenant && window.contains(&one.completed)).count() as f64
}

/// So much of the device, and nothing else.
#[allow(dead_code, reason = "each test crate uses a part of this module")]
pub fn reserve(percent: f64) -> Allocation {
    Allocation { reserve: Rate::DevicePercent(percent), ..Allocation::default() }
}

/// The schedulers that keep `promise` to every account of volumes: the strict laws hold for them.
#[allow(dead_code, reason = "each test crate uses a part of this module")]
pub fn keepers(promise: Promise) -> impl Iterator<Item = &'static Entry> {
    registry()
        .iter()
        .filter(move |entry| entry.kept(promise, Target::Volumes).is_some_and(|kept| kept.reach == Reach::All))
}
