//! Records the requests to a device, for traces. A recording never delays clients.
//!
//! ```text
//!   engine's thread: Tap --- a queue of fixed length ---> any other thread: Recording
//!      request arrives, completes (two events)               pairs them, in the order of arrival
//! ```
//!
//! The engine neither allocates nor waits for a reader. The queue has its length from the start, and a request that
//! finds it full is not recorded, but counted.
//!
//! A request is recorded whole or not at all. Its completion may come long after its arrival, when the queue is full.
//! So the recorder takes an arrival only if there is room for it and for its completion. Completions of all earlier
//! recorded requests must fit, too.

use plimsoll_core::{BlockRequest, Class, Operation, Span, Time};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// Events of a request: it arrives, it completes.
const EVENTS_PER_REQUEST: u64 = 2;

/// A request as a scheduler gets it: a piece of a tenant's request, at most 256 KiB (more of trims and write-zeroes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// When the scheduler got it, since the engine started. No earlier than that of the request before.
    pub at: Time,
    /// The volume, by its number in [`Recording::volumes`](super::Recording::volumes).
    pub volume: u32,
    /// What was asked.
    pub operation: Operation,
    /// First byte on the device; that of the volume for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u32,
    /// What it is said to be.
    pub class: Class,
    /// Time until its completion, with the wait in the scheduler; `None` if it was under way at the end of the
    /// recording.
    pub latency: Option<Span>,
}

enum Event {
    Arrived { sequence: u64, request: RecordedRequest },
    Completed { sequence: u64, at: Time },
}

/// The counts that both ends share.
#[derive(Default)]
struct Counts {
    /// Events that the reader took.
    taken: AtomicU64,
    /// Requests that were not recorded.
    lost: AtomicU64,
}

/// The engine's end.
pub(super) struct Tap {
    events: SyncSender<Event>,
    counts: Arc<Counts>,
    capacity: u64,
    /// Events sent.
    sent: u64,
    /// Requests recorded that are still under way: each will send one more event.
    under_way: u64,
    /// Tells this recording from those before it on the same engine.
    pub(super) number: u32,
}

impl Tap {
    /// A request has come to the scheduler. Says whether it is recorded.
    pub(super) fn arrived(&mut self, now: Time, volume: u32, sequence: u64, block: &BlockRequest) -> bool {
        // Acquire: what was counted as taken has left its place in the queue.
        let waiting = self.sent - self.counts.taken.load(Ordering::Acquire);
        if waiting + self.under_way + EVENTS_PER_REQUEST > self.capacity {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let request = RecordedRequest {
            at: now,
            volume,
            operation: block.operation,
            offset: block.offset,
            length: block.length,
            class: block.class,
            latency: None,
        };
        self.under_way += 1;
        self.send(Event::Arrived { sequence, request });
        true
    }

    /// A request that was recorded is done.
    pub(super) fn completed(&mut self, now: Time, sequence: u64) {
        self.under_way -= 1;
        self.send(Event::Completed { sequence, at: now });
    }

    fn send(&mut self, event: Event) {
        // There is room. If the reader is gone, it is about to have the tap taken off.
        let _ = self.events.try_send(event);
        self.sent += 1;
    }
}

/// What comes out of the queue, put together.
pub(super) struct Source {
    events: Receiver<Event>,
    counts: Arc<Counts>,
    /// Arrived and not handed out, by their number, ascending.
    pending: VecDeque<(u64, RecordedRequest)>,
    pub(super) is_over: bool,
}

/// A tap and what comes out of it, for `capacity` events.
pub(super) fn connect(capacity: usize, number: u32) -> (Tap, Source) {
    let (events, received) = sync_channel(capacity);
    let counts = Arc::<Counts>::default();
    let tap = Tap { events, counts: counts.clone(), capacity: capacity as u64, sent: 0, under_way: 0, number };
    (tap, Source { events: received, counts, pending: VecDeque::new(), is_over: false })
}

impl Source {
    /// Requests that were not recorded because the reader was too slow.
    pub(super) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<RecordedRequest> {
        let mut taken = Vec::new();
        while taken.len() < count {
            match self.pending.front() {
                Some((_, request)) if request.latency.is_some() || self.is_over => {
                    taken.extend(self.pending.pop_front().map(|(_, request)| request));
                }
                _ if self.is_over => break,
                _ => match self.events.try_recv() {
                    Ok(event) => self.apply(event),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => self.is_over = true,
                },
            }
        }
        taken
    }

    fn apply(&mut self, event: Event) {
        self.counts.taken.fetch_add(1, Ordering::Release);
        match event {
            Event::Arrived { sequence, request } => self.pending.push_back((sequence, request)),
            Event::Completed { sequence, at } => {
                let found = self.pending.binary_search_by_key(&sequence, |&(sequence, _)| sequence);
                let (_, request) = &mut self.pending[found.expect("what completes has arrived")];
                request.latency = Some(at.since(request.at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::{AccountId, RequestId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const CAPACITY: usize = 16;

    #[derive(Clone, Debug)]
    enum Act {
        Arrive,
        /// Completes one of the requests under way: the one at this part of their list.
        Complete(usize),
        Take(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => Just(Act::Arrive),
            3 => (0usize..100).prop_map(Act::Complete),
            1 => (1usize..10).prop_map(Act::Take)
        ];
        prop::collection::vec(act, 0..200)
    }

    fn block(offset: u64) -> BlockRequest {
        BlockRequest::new(RequestId(0), AccountId::ROOT, Operation::Write, offset, 512, Time::ZERO)
    }

    proptest! {
        /// Beside it a list of all that was said to be recorded, with its latency as soon as it has one.
        #[test]
        fn what_is_recorded_comes_out_whole_and_in_order_and_the_rest_is_counted(acts in acts()) {
            let (mut tap, mut source) = connect(CAPACITY, 1);
            let (mut expected, mut under_way) = (BTreeMap::new(), Vec::new());
            let (mut lost, mut taken) = (0, Vec::new());
            for (step, act) in acts.into_iter().enumerate() {
                let now = Time::from_nanos(step as u64);
                match act {
                    Act::Arrive => {
                        let sequence = step as u64 * 3;
                        if tap.arrived(now, 7, sequence, &block(sequence * 512)) {
                            under_way.push((now, sequence));
                            expected.insert(sequence, (now, None));
                        } else {
                            lost += 1;
                        }
                    }
                    Act::Complete(part) if !under_way.is_empty() => {
                        let (arrived, sequence) = under_way.remove(part % under_way.len());
                        tap.completed(now, sequence);
                        expected.insert(sequence, (arrived, Some(now.since(arrived))));
                    }
                    Act::Complete(_) => {}
                    Act::Take(count) => taken.extend(source.take(count)),
                }
            }
            prop_assert_eq!(source.lost(), lost);
            prop_assert!(taken.iter().all(|request: &RecordedRequest| request.latency.is_some()), "while it goes on");
            drop(tap);
            while let request @ [_, ..] = &source.take(3)[..] {
                taken.extend(request);
            }
            prop_assert!(source.is_over);
            let expected: Vec<RecordedRequest> = expected.into_iter().map(|(sequence, (at, latency))| {
                let (operation, offset) = (Operation::Write, sequence * 512);
                RecordedRequest { at, volume: 7, operation, offset, length: 512, class: Class::UNCLASSIFIED, latency }
            }).collect();
            prop_assert_eq!(taken, expected);
        }
    }

    #[test]
    fn half_the_queue_is_kept_for_completions_and_room_comes_back() {
        let (mut tap, mut source) = connect(CAPACITY, 1);
        let arrived = |tap: &mut Tap, from: u64| {
            (from..from + 20).filter(|&sequence| tap.arrived(Time::ZERO, 0, sequence, &block(0))).count()
        };
        assert_eq!(arrived(&mut tap, 0), CAPACITY / 2);
        (0..8).for_each(|sequence| tap.completed(Time::ZERO, sequence));
        assert_eq!(arrived(&mut tap, 100), 0, "no reader is there");
        assert_eq!(source.take(100).len(), CAPACITY / 2);
        assert_eq!(arrived(&mut tap, 200), CAPACITY / 2);
        assert_eq!(source.lost(), 60 - 16);
    }
}
