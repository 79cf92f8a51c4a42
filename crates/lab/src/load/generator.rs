//! One rate for some time: sends due requests, takes answers.
//!
//! **The rule.** A request's latency runs from when it was due. The reason for which it was sent later does not matter.
//! The server may have had its maximum of requests, it may have taken no more bytes, or this process may have had no
//! processor. All requests that are due in the *window* count. At its end no new ones come, and the rest are waited
//! for. **The complication.** Far above the peak that would take for ever. A request without an answer ten seconds
//! after the window counts with its wait until then.

use super::LoadError;
use super::mix::Request;
use hdrhistogram::Histogram;
use plimsoll_core::{Span, Time};

/// How long requests of the window are waited for after it.
const PATIENCE: Span = Span::from_secs(10);
/// So long without any answer is the end.
const SILENCE_MAX: Span = Span::from_secs(30);
/// How often the caller hears how far it is.
const PROGRESS_INTERVAL: Span = Span::from_millis(100);
/// Digits that latencies are kept with.
const DIGITS: u8 = 3;

/// The target. It has *slots*, numbered from 0, of which each takes one request at a time.
pub(super) trait Connection {
    /// Bytes that it has.
    fn size_bytes(&self) -> u64;

    /// The time.
    fn now(&self) -> Time;

    /// Processor time that this thread has used.
    fn processor_time(&self) -> Span;

    /// Sends a request, at the latest with the next `wait`.
    fn submit(&mut self, slot: u32, request: &Request) -> Result<(), LoadError>;

    /// Waits until something is answered, and at most so long; tells the slots that are free again.
    fn wait(&mut self, at_most: Span, done: &mut Vec<u32>) -> Result<(), LoadError>;

    /// Nothing has been answered for so long.
    fn silent(&self, silence: Span, under_way: u32) -> LoadError;
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    /// Requests that are due before do not count.
    pub warm_up: Span,
    /// Those that are due in the time after it do.
    pub window: Span,
    /// Requests under way at the most.
    pub slots: u32,
}

/// Latencies of reads or writes.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    pub histogram_ns: Histogram<u64>,
    sum_ns: u128,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { histogram_ns: Histogram::new(DIGITS).expect("so many digits are allowed"), sum_ns: 0 }
    }
}

impl Latencies {
    fn record(&mut self, latency: Span) {
        self.histogram_ns.record(latency.as_nanos()).expect("it grows");
        self.sum_ns += u128::from(latency.as_nanos());
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram_ns.len()
    }

    /// Exactly, not by the histogram's steps; 0 without any.
    pub(super) fn mean(&self) -> Span {
        Span::from_nanos((self.sum_ns / u128::from(self.count().max(1))) as u64)
    }

    pub(super) fn add(&mut self, other: &Latencies) {
        self.histogram_ns.add(&other.histogram_ns).expect("it grows");
        self.sum_ns += other.sum_ns;
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadOutcome {
    /// Of requests that were due in the window.
    pub reads: Latencies,
    pub writes: Latencies,
    /// Requests that were answered in the window, whenever they were due.
    pub answered: u64,
    /// Their bytes.
    pub answered_bytes: u64,
    /// Of the window's requests, those without an answer ten seconds after it.
    pub unfinished: u64,
    /// How late the window's requests were sent, together.
    pub sent_late: Span,
    /// Processor time of the generator, part of a processor from the beginning to the end.
    pub busy: f64,
}

struct LoadRun<'a> {
    connection: &'a mut dyn Connection,
    outcome: LoadOutcome,
    origin: Time,
    begin: Time,
    end: Time,
    free: Vec<u32>,
    /// By slot, what is under way.
    sent: Vec<Option<Request>>,
}

impl Course {
    /// Sends requests until the window is over; `progress` hears which part of the time has passed.
    pub(super) fn run(
        &self,
        connection: &mut dyn Connection,
        requests: impl Iterator<Item = Request>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<LoadOutcome, LoadError> {
        let (origin, busy_before) = (connection.now(), connection.processor_time());
        let begin = origin + self.warm_up;
        let end = begin + self.window;
        let free = (0..self.slots).rev().collect();
        let sent = vec![None; self.slots as usize];
        let mut run = LoadRun { connection, outcome: LoadOutcome::default(), origin, begin, end, free, sent };
        run.until_done(requests, progress)?;
        let passed = run.connection.now().since(origin).as_secs_f64();
        let busy = run.connection.processor_time().saturating_sub(busy_before).as_secs_f64();
        run.outcome.busy = busy / passed.max(f64::MIN_POSITIVE);
        Ok(run.outcome)
    }
}

impl LoadRun<'_> {
    fn until_done(
        &mut self,
        requests: impl Iterator<Item = Request>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<(), LoadError> {
        let (origin, end) = (self.origin, self.end);
        let mut requests = requests.take_while(|request| origin + request.due < end).peekable();
        let (mut done, mut heard, mut told) = (Vec::new(), origin, origin);
        loop {
            let mut now = self.connection.now();
            while let Some(&slot) = self.free.last()
                && let Some(request) = requests.next_if(|request| origin + request.due <= now)
            {
                self.free.pop();
                self.send(slot, request, now)?;
                now = self.connection.now();
            }
            let under_way = self.sent.len() - self.free.len();
            if (under_way == 0 && requests.peek().is_none()) || now >= end + PATIENCE {
                break;
            }
            let next = requests.peek().filter(|_| !self.free.is_empty()).map(|request| origin + request.due);
            let until = next.unwrap_or(Time::MAX).min(now + PROGRESS_INTERVAL);
            self.connection.wait(until.since(now), &mut done)?;
            now = self.connection.now();
            if under_way == 0 || !done.is_empty() {
                heard = now;
            } else if now.since(heard) >= SILENCE_MAX {
                return Err(self.connection.silent(SILENCE_MAX, under_way as u32));
            }
            done.drain(..).for_each(|slot| self.answered(slot, now));
            if now.since(told) >= PROGRESS_INTERVAL {
                told = now;
                progress((now.since(origin).as_secs_f64() / end.since(origin).as_secs_f64()).min(1.0));
            }
        }
        self.give_up(requests);
        Ok(())
    }

    fn send(&mut self, slot: u32, request: Request, now: Time) -> Result<(), LoadError> {
        let due = self.origin + request.due;
        if due >= self.begin {
            self.outcome.sent_late += now.since(due);
        }
        self.sent[slot as usize] = Some(request);
        self.connection.submit(slot, &request)
    }

    fn answered(&mut self, slot: u32, now: Time) {
        let Some(request) = self.sent[slot as usize].take() else { return };
        self.free.push(slot);
        if now >= self.begin && now < self.end {
            self.outcome.answered += 1;
            self.outcome.answered_bytes += u64::from(request.length);
        }
        self.count(&request, now);
    }

    /// A request's latency is known, if it counts.
    fn count(&mut self, request: &Request, now: Time) -> bool {
        let due = self.origin + request.due;
        if due < self.begin {
            return false;
        }
        let latencies = if request.is_read { &mut self.outcome.reads } else { &mut self.outcome.writes };
        latencies.record(now.since(due));
        true
    }

    /// What is left counts with what it has waited until now.
    fn give_up(&mut self, unsent: impl Iterator<Item = Request>) {
        let now = self.connection.now();
        let under_way: Vec<Request> = self.sent.iter_mut().filter_map(Option::take).collect();
        for request in under_way.into_iter().chain(unsent) {
            self.outcome.unfinished += u64::from(self.count(&request, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Mix;
    use std::collections::VecDeque;

    /// One request after the other, each for as long; in virtual time.
    struct Server {
        now: Time,
        service: Span,
        /// From when to when it does nothing.
        stop: (Time, Time),
        /// When each slot is done.
        queue: VecDeque<(Time, u32)>,
        submitted: u64,
        under_way_max: usize,
    }

    impl Server {
        fn new(service: Span, stop_seconds: (u64, u64)) -> Server {
            let at = |seconds| Time::ZERO + Span::from_secs(seconds);
            let stop = (at(stop_seconds.0), at(stop_seconds.1));
            Server { now: Time::ZERO, service, stop, queue: VecDeque::new(), submitted: 0, under_way_max: 0 }
        }
    }

    impl Connection for Server {
        fn size_bytes(&self) -> u64 {
            1 << 30
        }

        fn now(&self) -> Time {
            self.now
        }

        fn processor_time(&self) -> Span {
            Span::ZERO
        }

        fn submit(&mut self, slot: u32, _request: &Request) -> Result<(), LoadError> {
            let begins = self.queue.back().map_or(self.now, |last| last.0.max(self.now));
            let ends = begins + self.service;
            let is_stopped = ends > self.stop.0 && ends < self.stop.1;
            self.queue.push_back((if is_stopped { self.stop.1 } else { ends }, slot));
            self.submitted += 1;
            self.under_way_max = self.under_way_max.max(self.queue.len());
            Ok(())
        }

        fn wait(&mut self, at_most: Span, done: &mut Vec<u32>) -> Result<(), LoadError> {
            let until = self.now + at_most;
            self.now = self.queue.front().map_or(until, |first| first.0.min(until));
            while self.queue.front().is_some_and(|first| first.0 <= self.now) {
                done.extend(self.queue.pop_front().map(|first| first.1));
            }
            Ok(())
        }

        fn silent(&self, silence: Span, under_way: u32) -> LoadError {
            LoadError::Silence { target: "server".into(), silence, under_way }
        }
    }

    fn run(server: &mut Server, per_second: f64, slots: u32) -> Result<LoadOutcome, LoadError> {
        let mix: Mix = "read random 4KiB".parse().unwrap();
        let requests = mix.requests(server.size_bytes(), per_second, 1)?;
        let course = Course { warm_up: Span::from_secs(1), window: Span::from_secs(10), slots };
        course.run(server, requests, &mut |_| {})
    }

    /// The server stops for one second of ten: a tenth of the requests come in that second, and wait half of it on
    /// average. A client that waits for answers before it sends sees one slow request.
    /// Promise: lab-load-stops.
    #[test]
    fn a_server_that_stops_shows_however_few_requests_are_under_way() {
        for slots in [1, 4, 1000] {
            let mut server = Server::new(Span::from_millis(1), (5, 6));
            let outcome = run(&mut server, 200.0, slots).unwrap();
            let at = |part| Span::from_nanos(outcome.reads.histogram_ns.value_at_quantile(part)).as_secs_f64();
            assert!((0.85..1.3).contains(&at(0.99)), "{slots}: {}", at(0.99));
            assert!((0.3..0.7).contains(&at(0.94)), "{slots}: {}", at(0.94));
            assert!(at(0.5) < 0.01, "{slots}: {}", at(0.5));
            assert!((0.05..0.09).contains(&outcome.reads.mean().as_secs_f64()), "{slots}: {}", outcome.reads.mean());
            assert!(server.under_way_max <= slots as usize);
        }
    }

    /// Promise: lab-load-stops.
    #[test]
    fn as_many_are_sent_as_the_rate_says_though_the_server_is_slower() {
        for (service, slots) in [(Span::from_micros(10), 1000), (Span::from_millis(6), 8)] {
            let mut server = Server::new(service, (0, 0));
            let outcome = run(&mut server, 200.0, slots).unwrap();
            // 2000 expected in the window, 200 before it; the deviations of such counts are 45 and 14.
            assert!(outcome.reads.count().abs_diff(2000) < 180, "{}", outcome.reads.count());
            assert!(server.submitted.abs_diff(2200) < 200, "{}", server.submitted);
            assert_eq!(outcome.unfinished, 0);
        }
    }

    #[test]
    fn an_overload_shows_in_what_was_answered_and_ends() {
        let mut server = Server::new(Span::from_millis(50), (0, 0));
        let outcome = run(&mut server, 200.0, 100).unwrap();
        // 20 a second: 200 in the window, 200 in the ten seconds after it, the others are given up.
        assert!(outcome.answered.abs_diff(200) <= 1, "{}", outcome.answered);
        assert_eq!(outcome.answered_bytes, outcome.answered * 4096, "what was given up moved nothing");
        assert!(outcome.reads.count().abs_diff(2000) < 180);
        assert!(outcome.unfinished > 1300, "{}", outcome.unfinished);
        assert!(outcome.reads.mean() > Span::from_secs(8));
    }

    #[test]
    fn a_server_that_never_answers_again_is_left() {
        let mut server = Server::new(Span::from_millis(1), (2, 1000));
        let mix: Mix = "read random 4KiB".parse().unwrap();
        let requests = mix.requests(server.size_bytes(), 100.0, 1).unwrap();
        let course = Course { warm_up: Span::ZERO, window: Span::from_secs(100), slots: 16 };
        let error = course.run(&mut server, requests, &mut |_| {}).unwrap_err().to_string();
        assert_eq!(error, "server: no answer for 30 s, with 16 requests under way");
    }
}
