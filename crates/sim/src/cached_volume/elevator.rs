//! The queue of the slow device, below the cache: the part of CFQ that decides how the syncer, the flusher and readers
//! share it.
//!
//! The paper's cache is a layer of Linux's RAID driver. So the kernel's scheduler (2.6.34: CFQ) is below it, where
//! writes of the flusher and of the syncer meet the reads of processes. The rules: reads go at once. Writes wait in two
//! queues, the host's and the syncer's, which take turns; few of them are at the device while a process reads.

use plimsoll_core::{DeviceProfile, Operation, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished};
use std::collections::VecDeque;

/// Writes at the device at once: the commands that a SATA disk takes (native command queueing).
const WRITES_MAX: usize = 32;
/// Writes at the device while a process reads (`cfq_may_dispatch`: half of `cfq_quantum`, which is 8).
const WRITES_BESIDE_READS_MAX: usize = 4;
/// A process counts as reading so long after its last read (`cfq_slice_idle`).
const READING: Span = Span::from_millis(8);

/// The source of the writes in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Writer {
    Host,
    Syncer,
}

/// A device with that queue before it.
pub struct Elevator {
    device: Box<dyn DeviceModel>,
    /// The host's and the syncer's.
    waiting: [VecDeque<DeviceRequest>; 2],
    /// The source with the next turn.
    turn: usize,
    writes: usize,
    reads: usize,
    last_read: Option<Time>,
    /// Which tokens are writes, by token; tokens are small numbers.
    is_write: Vec<bool>,
}

impl Elevator {
    /// The queue before `device`.
    pub fn new(device: Box<dyn DeviceModel>) -> Elevator {
        let waiting = [VecDeque::new(), VecDeque::new()];
        Elevator { device, waiting, turn: 0, writes: 0, reads: 0, last_read: None, is_write: Vec::new() }
    }

    /// Takes a request of `writer` at `now`.
    pub(crate) fn submit_for(&mut self, now: Time, request: DeviceRequest, writer: Writer) {
        let (token, is_write) = (request.token as usize, request.operation == Operation::Write);
        if self.is_write.len() <= token {
            self.is_write.resize(token + 1, false);
        }
        self.is_write[token] = is_write;
        if is_write {
            self.waiting[writer as usize].push_back(request);
        } else {
            self.reads += 1;
            self.device.submit(now, request);
        }
        self.dispatch(now);
    }

    fn reading_until(&self) -> Option<Time> {
        self.last_read.map(|at| at + READING)
    }

    fn is_read_from(&self, now: Time) -> bool {
        self.reads > 0 || self.reading_until().is_some_and(|until| now < until)
    }

    fn dispatch(&mut self, now: Time) {
        let max = if self.is_read_from(now) { WRITES_BESIDE_READS_MAX } else { WRITES_MAX };
        while self.writes < max {
            let mut next = self.waiting[self.turn].pop_front();
            if next.is_some() {
                self.turn = 1 - self.turn;
            } else {
                next = self.waiting[1 - self.turn].pop_front();
            }
            let Some(request) = next else { break };
            self.writes += 1;
            self.device.submit(now, request);
        }
    }

    fn has_waiting(&self) -> bool {
        self.waiting.iter().any(|queue| !queue.is_empty())
    }
}

impl DeviceModel for Elevator {
    fn profile(&self) -> &DeviceProfile {
        self.device.profile()
    }

    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.submit_for(now, request, Writer::Host);
    }

    fn next_completion(&self) -> Option<Time> {
        // When no process reads any more, more writes may go.
        let idle = self.reading_until().filter(|_| self.reads == 0 && self.has_waiting());
        [self.device.next_completion(), idle].into_iter().flatten().min()
    }

    fn complete(&mut self, now: Time) -> Option<Finished> {
        if self.reads == 0 && self.reading_until().is_some_and(|until| until <= now) {
            self.last_read = None;
            self.dispatch(now);
        }
        let done = self.device.complete(now)?;
        if self.is_write[done.token as usize] {
            self.writes -= 1;
        } else {
            self.reads -= 1;
            self.last_read = Some(done.at);
        }
        self.dispatch(done.at);
        Some(done)
    }

    fn outstanding(&self) -> usize {
        self.device.outstanding() + self.waiting.iter().map(VecDeque::len).sum::<usize>()
    }
}
