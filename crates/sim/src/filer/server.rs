//! The server: threads, queues, and what happens when.

use super::FilerConfig;
use super::back_end::{BackEnd, DriveNumber};
use super::chance::Chance;
use super::log::{DRIVE_WRITE_BYTES, FilerLog, OPERATIONS};
use super::request::{Origin, Request, Requests};
use crate::executor::STEPS_MAX;
use plimsoll_core::{Span, Time};
use plimsoll_executor::{Adaptive, Arrival, Kind, LowSorts, QUEUES, Queue, Queues, Selector, Turn, Waiting};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Work between two checkpoints of a request. It is the shortest slice of the paper but the maintenance queue's
/// (section 4.2), so that a short request is never preempted.
const CHECKPOINT: Span = Span::from_micros(300);

/// What came of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FilerFigures {
    /// Requests of clients that were done after no, one, two, and three or more restarts.
    pub restarts: [u64; 4],
    /// Requests of clients that were preempted.
    pub preempted: u64,
    /// Turns of threads.
    pub turns: u64,
    /// Time that threads ran requests or took turns, over all threads.
    pub busy: Span,
    /// Consistency points that began.
    pub consistency_points: u64,
    /// Writes that found the log full.
    pub log_waits: u64,
    /// A number that stands for the whole course.
    pub hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FilerEvent {
    /// A client sends a request.
    Arrival,
    /// What the thread runs has got to its end or to where it is stopped.
    Stop(usize),
    /// A drive may have done something.
    Drive(DriveNumber),
}

/// A service thread.
struct Thread {
    selector: Selector,
    chance: Chance,
    /// What it has seen, where that decides.
    adaptive: Option<Adaptive>,
    /// What it drew, and when its slice of that ends.
    turn: Turn,
    slice_ends: Time,
    /// The slot of what it runs, and for how long.
    runs: u32,
    ran: Span,
}

/// A storage server, its clients and its drives.
pub struct Filer {
    config: FilerConfig,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, FilerEvent)>>,
    events_set: u64,
    slots: Vec<Request>,
    free: Vec<u32>,
    queues: Queues<u32>,
    /// Where the adaptive rule decides: the sorts that wait low, as the thread had it that chose last.
    low: LowSorts,
    threads: Vec<Thread>,
    idle: Vec<usize>,
    back_end: BackEnd,
    log: FilerLog,
    requests: Requests,
    arrivals: Chance,
    places: Chance,
    figures: FilerFigures,
}

/// Called when a client's request is done: what it did, when it was sent, its bytes.
pub type Done<'d> = &'d mut dyn FnMut(Kind, Time, Time, u32);

impl Filer {
    /// A server with nothing to do yet.
    pub fn new(config: FilerConfig) -> Filer {
        let seed = config.seed;
        let threads = (0..config.platform.threads()).map(|number| Thread {
            selector: Selector::new(config.policy.weights),
            chance: Chance::new(seed, 100 + number as u64),
            adaptive: config.is_adaptive.then(Adaptive::default),
            turn: Turn::new(Queue::High, [0; QUEUES], &config.policy, None),
            slice_ends: Time::ZERO,
            runs: 0,
            ran: Span::ZERO,
        });
        let threads: Vec<Thread> = threads.collect();
        let mut filer = Filer {
            now: Time::ZERO,
            events: BinaryHeap::new(),
            events_set: 0,
            slots: Vec::new(),
            free: Vec::new(),
            queues: Queues::default(),
            low: LowSorts::default(),
            idle: (0..threads.len()).collect(),
            threads,
            back_end: BackEnd::new(&config.platform, seed),
            log: FilerLog::new(config.platform.log_bytes, &mut Chance::new(seed, 1)),
            requests: Requests::new(&config),
            arrivals: Chance::new(seed, 3),
            places: Chance::new(seed, 4),
            figures: FilerFigures::default(),
            config,
        };
        filer.schedule_arrival();
        filer
    }

    /// Goes on until `end`.
    ///
    /// # Panics
    /// If a great many events happen at one instant: time stands still.
    pub fn run_until(&mut self, end: Time, done: Done<'_>) {
        let mut steps = 0;
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            steps = if at > self.now { 0 } else { steps + 1 };
            assert!(steps <= STEPS_MAX, "{steps} events of the server at {at:?} and no time passes: {event:?}");
            self.now = at;
            self.happen(event, done);
        }
        self.now = end;
    }

    /// What was counted since the beginning.
    pub fn figures(&self) -> FilerFigures {
        FilerFigures { consistency_points: self.log.points(), ..self.figures }
    }

    /// Calls `each` for every request of a client that is not done: what it does, when it was sent, its bytes.
    pub fn unfinished(&self, each: &mut dyn FnMut(Kind, Time, u32)) {
        let mut is_free = vec![false; self.slots.len()];
        self.free.iter().for_each(|&slot| is_free[slot as usize] = true);
        let unfinished =
            self.slots.iter().zip(is_free).filter(|(request, is_free)| !is_free && request.origin == Origin::Client);
        unfinished.for_each(|(request, _)| each(request.kind, request.arrived, request.length));
    }

    fn at(&mut self, time: Time, event: FilerEvent) {
        self.events_set += 1;
        self.events.push(Reverse((time, self.events_set, event)));
    }

    fn schedule_arrival(&mut self) {
        let next = self.now + self.arrivals.exponential(Span::from_secs_f64(1.0 / self.config.per_second));
        self.at(next, FilerEvent::Arrival);
    }

    fn happen(&mut self, event: FilerEvent, done: Done<'_>) {
        match event {
            FilerEvent::Arrival => {
                let (request, read_ahead) = self.requests.client(self.now);
                self.come(request);
                if let Some(request) = read_ahead {
                    self.come(request);
                }
                self.schedule_arrival();
            }
            FilerEvent::Stop(thread) => self.stop(thread, done),
            FilerEvent::Drive(number) => self.look_at(number),
        }
    }

    /// A new request.
    fn come(&mut self, request: Request) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = request;
                slot
            }
            None => {
                self.slots.push(request);
                self.slots.len() as u32 - 1
            }
        };
        self.put(slot, Arrival::New);
    }

    /// Puts a request where the policy says, and wakes a thread.
    fn put(&mut self, slot: u32, arrival: Arrival) {
        let request = &mut self.slots[slot as usize];
        request.came = arrival;
        let queue = match self.config.is_adaptive {
            true => self.low.queue(request.kind, arrival),
            false => self.config.policy.queue(request.kind, arrival),
        };
        self.queues.put(queue, Waiting { request: slot, deadline: None, since: self.now });
        if let Some(thread) = self.idle.pop() {
            self.turn(thread);
        }
    }

    /// A thread draws a queue, or sleeps if all are empty.
    fn turn(&mut self, number: usize) {
        let depths = self.queues.depths();
        let thread = &mut self.threads[number];
        let ticket = thread.chance.ticket();
        thread.selector.set_weights(self.log.weights(self.config.policy.weights));
        let Some(queue) = thread.selector.draw(depths, ticket) else {
            self.idle.push(number);
            return;
        };
        self.figures.turns += 1;
        let begins = self.now + self.config.costs.turn;
        thread.turn = Turn::new(queue, depths, &self.config.policy, thread.adaptive.as_ref());
        thread.slice_ends = begins + thread.turn.slice;
        let waiting = self.queues.take(queue).expect("a queue that was drawn is not empty");
        self.run(number, waiting.request, begins);
    }

    /// A thread runs a request from `begins` on, until the end of its run or the first checkpoint after the time that
    /// it has.
    fn run(&mut self, number: usize, slot: u32, begins: Time) {
        let ends = self.run_ends(number, slot, begins);
        let thread = &mut self.threads[number];
        let request = &mut self.slots[slot as usize];
        let stop = ends.since(begins).as_nanos().div_ceil(CHECKPOINT.as_nanos()).max(1) * CHECKPOINT.as_nanos();
        let ran = Span::from_nanos(stop).min(request.left);
        request.left -= ran;
        (thread.runs, thread.ran) = (slot, ran);
        let stops = begins + ran;
        self.figures.busy += stops.since(self.now);
        self.figures.hash = (self.figures.hash ^ stops.as_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        self.at(stops, FilerEvent::Stop(number));
    }

    /// When what a thread begins to run has to stop: with its slice, or earlier if the adaptive rule says so.
    fn run_ends(&self, number: usize, slot: u32, begins: Time) -> Time {
        let Thread { slice_ends, adaptive, .. } = &self.threads[number];
        match adaptive {
            Some(adaptive) if self.slots[slot as usize].kind != Kind::Maintenance => {
                (*slice_ends).min(begins + adaptive.run_max(self.queues.depths()))
            }
            _ => *slice_ends,
        }
    }

    /// What a thread ran has stopped: it goes on with the next of the queue, or takes another turn.
    fn stop(&mut self, number: usize, done: Done<'_>) {
        let Thread { runs: slot, ran, .. } = self.threads[number];
        let request = self.slots[slot as usize];
        self.observe(number, &request, ran);
        self.after_run(slot, done);
        let Thread { turn, slice_ends, .. } = self.threads[number];
        let may_give_way = turn.queue != Queue::Maintenance || self.config.maintenance_gives_way;
        let gives_way = may_give_way && turn.gives_way(|| self.queues.depths());
        let next = if self.now < slice_ends && !gives_way { self.queues.take(turn.queue) } else { None };
        match next {
            Some(waiting) => self.run(number, waiting.request, self.now),
            None => self.turn(number),
        }
    }

    /// What was run counts for where others wait, and for how long.
    fn observe(&mut self, number: usize, request: &Request, ran: Span) {
        let again = self.comes_again(request);
        if let Some(adaptive) = &mut self.threads[number].adaptive
            && adaptive.observe(request.kind, request.came, ran, again)
        {
            self.low = adaptive.low();
        }
    }

    /// How a client's request will come to a queue after its run; `None` if it is done.
    fn comes_again(&self, request: &Request) -> Option<Arrival> {
        let waits_for_log = request.kind == Kind::Write && self.log.is_full();
        match (request.left > Span::ZERO, request.is_done() && !waits_for_log) {
            (true, _) => Some(Arrival::Preempted),
            (false, false) => Some(Arrival::Resumed),
            (false, true) => None,
        }
    }

    fn after_run(&mut self, slot: u32, done: Done<'_>) {
        let request = &mut self.slots[slot as usize];
        if request.left > Span::ZERO {
            request.preempted = request.preempted.saturating_add(1);
            self.put(slot, Arrival::Preempted);
        } else if !request.is_done() {
            let (length, token) = (request.length.max(4096), u64::from(slot));
            request.transfers_left = 1;
            let (number, call) = self.back_end.read(self.now, token, length, &mut self.places);
            self.call(number, call);
        } else if request.origin == Origin::ConsistencyPoint {
            self.write_operation(slot);
        } else if request.kind == Kind::Write {
            self.append(slot, done);
        } else {
            self.end(slot, done);
        }
    }

    /// The writes of a consistency point's operation.
    fn write_operation(&mut self, slot: u32) {
        let length = self.slots[slot as usize].length;
        let writes = length.div_ceil(DRIVE_WRITE_BYTES).max(1);
        self.slots[slot as usize].transfers_left = writes;
        for _ in 0..writes {
            let (number, call) = self.back_end.write(self.now, u64::from(slot), DRIVE_WRITE_BYTES);
            self.call(number, call);
        }
    }

    /// A write goes into the log, or waits for room.
    fn append(&mut self, slot: u32, done: Done<'_>) {
        if self.log.is_full() {
            self.figures.log_waits += 1;
            self.slots[slot as usize].suspensions_left += 1;
            self.log.waiting.push(slot);
            return;
        }
        if self.log.append(self.slots[slot as usize].length) {
            self.begin_consistency_point();
        }
        self.end(slot, done);
    }

    fn begin_consistency_point(&mut self) {
        for _ in 0..OPERATIONS {
            let request = self.requests.operation(self.now, self.log.operation_bytes());
            self.come(request);
        }
        for slot in std::mem::take(&mut self.log.waiting) {
            self.resume(slot);
        }
    }

    fn resume(&mut self, slot: u32) {
        self.slots[slot as usize].resume();
        self.put(slot, Arrival::Resumed);
    }

    fn call(&mut self, number: DriveNumber, at: Option<Time>) {
        if let Some(at) = at {
            self.at(at, FilerEvent::Drive(number));
        }
    }

    /// Takes from a drive what it has done.
    fn look_at(&mut self, number: DriveNumber) {
        if !self.back_end.is_due(number, self.now) {
            return;
        }
        while let Some(token) = self.back_end.done(number, self.now) {
            self.transferred(token as u32);
        }
        let call = self.back_end.again(number);
        self.call(number, call);
    }

    fn transferred(&mut self, slot: u32) {
        let request = &mut self.slots[slot as usize];
        request.transfers_left -= 1;
        if request.transfers_left > 0 {
            return;
        }
        if request.origin != Origin::ConsistencyPoint {
            self.resume(slot);
            return;
        }
        self.free.push(slot);
        if self.log.operation_done() {
            self.begin_consistency_point();
        }
    }

    /// A request is done.
    fn end(&mut self, slot: u32, done: Done<'_>) {
        let request = self.slots[slot as usize];
        self.free.push(slot);
        if request.origin == Origin::Client {
            let restarts = usize::from(request.suspended) + usize::from(request.preempted);
            self.figures.restarts[restarts.min(3)] += 1;
            self.figures.preempted += u64::from(request.preempted > 0);
            done(request.kind, request.arrived, self.now, request.length);
        }
    }
}
