//! A request on its way through the server.

use super::chance::Chance;
use super::workload::{FilerWorkload, RequestStream};
use super::{Costs, FilerConfig};
use plimsoll_core::{Span, Time};
use plimsoll_executor::{Arrival, Kind};

/// Bytes that are read ahead at once. Assumed.
pub(super) const READ_AHEAD_BYTES: u32 = 256 << 10;

/// The client that wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Client,
    ReadAhead,
    ConsistencyPoint,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) origin: Origin,
    pub(super) kind: Kind,
    pub(super) arrived: Time,
    /// How it came to its queue.
    pub(super) came: Arrival,
    /// Bytes.
    pub(super) length: u32,
    /// Processor time of each of its runs, if it is not preempted.
    run: Span,
    /// What is left of this one.
    pub(super) left: Span,
    /// How often it will lack something yet.
    pub(super) suspensions_left: u8,
    /// How often it was suspended.
    pub(super) suspended: u8,
    /// How often it was preempted.
    pub(super) preempted: u8,
    /// Transfers of drives that it waits for.
    pub(super) transfers_left: u32,
}

impl Request {
    fn new(origin: Origin, kind: Kind, arrived: Time, length: u32, total: Span, suspensions: u8) -> Request {
        let run = Span::from_nanos((total.as_nanos() / (u64::from(suspensions) + 1)).max(1));
        Request {
            origin,
            kind,
            arrived,
            came: Arrival::New,
            length,
            run,
            left: run,
            suspensions_left: suspensions,
            suspended: 0,
            preempted: 0,
            transfers_left: 0,
        }
    }

    /// What it lacked is there: the next run begins.
    pub(super) fn resume(&mut self) {
        self.suspended += 1;
        self.suspensions_left -= 1;
        self.left = self.run;
    }

    /// Whether its last run is over.
    pub(super) fn is_done(&self) -> bool {
        self.left == Span::ZERO && self.suspensions_left == 0
    }
}

/// Where requests come from.
pub(super) struct Requests {
    workload: FilerWorkload,
    costs: Costs,
    /// Bytes that sequential readers have read since something was read ahead.
    read_bytes: u32,
    chance: Chance,
    operations: Chance,
}

fn cost(costs: &Costs, length: u32) -> Span {
    costs.request + Span::from_secs_f64(costs.kib.as_secs_f64() * f64::from(length) / 1024.0)
}

impl Requests {
    pub(super) fn new(config: &FilerConfig) -> Requests {
        let chance = |purpose| Chance::new(config.seed, purpose);
        Requests {
            workload: config.workload,
            costs: config.costs,
            read_bytes: 0,
            chance: chance(2),
            operations: chance(5),
        }
    }

    /// The next request of a client, and what is read ahead because of it.
    pub(super) fn client(&mut self, now: Time) -> (Request, Option<Request>) {
        let stream = *self.stream();
        let length = self.length(&stream);
        let suspensions = if stream.is_suspended { self.suspensions() } else { 0 };
        let total = self.chance.log_normal(cost(&self.costs, length), self.costs.deviation);
        let request = Request::new(Origin::Client, stream.kind, now, length, total, suspensions);
        let is_read_ahead = stream.is_sequential && stream.kind == Kind::Read;
        (request, if is_read_ahead { self.read_ahead(now, length) } else { None })
    }

    fn stream(&mut self) -> &'static RequestStream {
        let streams = self.workload.streams;
        let mut left = self.chance.fraction();
        let is_it = |stream: &&RequestStream| {
            left -= stream.part;
            left < 0.0
        };
        streams.iter().find(is_it).unwrap_or(&streams[streams.len() - 1])
    }

    fn length(&mut self, stream: &RequestStream) -> u32 {
        let mut left = self.chance.fraction();
        let is_it = |size: &&(u32, f64)| {
            left -= size.1;
            left < 0.0
        };
        stream.sizes.iter().find(is_it).unwrap_or(&stream.sizes[0]).0
    }

    /// How often a request lacks something that may lack it.
    fn suspensions(&mut self) -> u8 {
        let mut left = self.chance.fraction() * self.workload.suspended_part();
        for (index, part) in self.workload.restarts.iter().enumerate() {
            left -= part;
            if left < 0.0 {
                return index as u8 + 1;
            }
        }
        0
    }

    fn read_ahead(&mut self, now: Time, length: u32) -> Option<Request> {
        self.read_bytes += length;
        if self.read_bytes < READ_AHEAD_BYTES {
            return None;
        }
        self.read_bytes -= READ_AHEAD_BYTES;
        let total = self.chance.log_normal(cost(&self.costs, READ_AHEAD_BYTES), self.costs.deviation);
        Some(Request::new(Origin::ReadAhead, Kind::Read, now, READ_AHEAD_BYTES, total, 1))
    }

    /// An operation of a consistency point, which waits for its writes at the end.
    pub(super) fn operation(&mut self, now: Time, length: u32) -> Request {
        let total = self.operations.exponential(self.costs.operation);
        Request::new(Origin::ConsistencyPoint, Kind::Maintenance, now, length, total, 0)
    }
}
