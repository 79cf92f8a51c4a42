//! What a tenant sends: where, how much, how often, from when to when.

use crate::block::{Bio, BioEnd};
use plimsoll_core::{AccountId, Rate};
use plimsoll_core::{CauseSet, Class, Operation, Span, Time};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// Where the next request of a tenant goes.
#[derive(Clone, Debug)]
pub enum Places {
    /// Anywhere in these bytes, aligned to the request's length.
    Random(Range<u64>),
    /// One after the other through these bytes, then again from their start.
    Sequential(Range<u64>),
}

/// When the next request of a tenant comes.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// Some time after one of so many outstanding has completed.
    Closed {
        /// Requests kept outstanding.
        depth: u32,
        /// From a completion to the next request.
        think: Span,
    },
    /// At this rate in requests per second, evenly spaced, however many are outstanding.
    Open {
        /// Requests per second.
        per_second: f64,
    },
}

/// One tenant's load.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The session that it runs in.
    pub session: AccountId,
    /// Destination of the requests.
    pub places: Places,
    /// Bytes of a request.
    pub length: u32,
    /// Per cent of reads; the rest are writes.
    pub read_percent: u8,
    /// When requests come.
    pub arrivals: Arrivals,
    /// When it starts and stops.
    pub active: Range<Time>,
}

impl Workload {
    /// Random reads of 4 KiB over `places`, `depth` outstanding, all the time: a tenant that takes what it gets.
    pub fn greedy(session: AccountId, places: Range<u64>, depth: u32) -> Workload {
        Workload {
            session,
            places: Places::Random(places),
            length: 4096,
            read_percent: 100,
            arrivals: Arrivals::Closed { depth, think: Span::ZERO },
            active: Time::ZERO..Time::MAX,
        }
    }
}

/// A workload and where it stands.
pub(crate) struct Tenant {
    pub(crate) workload: Workload,
    random: Pcg64Mcg,
    position: u64,
    /// Requests sent, of an open arrival process.
    sent: u64,
}

impl Tenant {
    pub(crate) fn new(workload: Workload, seed: u64) -> Tenant {
        let position = match &workload.places {
            Places::Random(range) | Places::Sequential(range) => range.start,
        };
        Tenant { workload, random: Pcg64Mcg::new(u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5), position, sent: 0 }
    }

    pub(crate) fn is_active(&self, now: Time) -> bool {
        self.workload.active.contains(&now)
    }

    /// When the next request of an open arrival process comes.
    pub(crate) fn next_arrival(&self) -> Time {
        match self.workload.arrivals {
            Arrivals::Closed { .. } => Time::MAX,
            Arrivals::Open { per_second } => {
                let at = self.workload.active.start + Span::from_secs_f64(self.sent as f64 / per_second);
                if at < self.workload.active.end { at } else { Time::MAX }
            }
        }
    }

    /// One more of an open arrival process has come.
    pub(crate) fn count_arrival(&mut self) {
        self.sent += 1;
    }

    pub(crate) fn next_bio(&mut self) -> Bio {
        let length = u64::from(self.workload.length);
        let offset = match &self.workload.places {
            Places::Random(range) => {
                let places = ((range.end - range.start) / length).max(1);
                range.start + self.random.next_u64() % places * length
            }
            Places::Sequential(range) => {
                let offset = if self.position + length > range.end { range.start } else { self.position };
                self.position = offset + length;
                offset
            }
        };
        let is_read = self.random.next_u64() % 100 < u64::from(self.workload.read_percent);
        let operation = if is_read { Operation::Read } else { Operation::Write };
        Bio {
            session: self.workload.session,
            causes: CauseSet::EMPTY,
            class: Class::UNCLASSIFIED,
            operation,
            offset,
            length: self.workload.length,
            is_sync: is_read,
            is_forced: false,
            file: None,
            end: BioEnd::Nothing,
        }
    }
}

/// A reserve or limit in per cent of the device, as most experiments give them.
pub fn percent(percent: f64) -> Rate {
    Rate::DevicePercent(percent)
}
