//! A turn of the engine is short, whatever one tenant asks for: all others are heard in the next.

use plimsoll_core::{Class, Operation, Time};
use plimsoll_engine::{BufferClass, Finished, FrontEnd, Payload, Port, Submission};
use plimsoll_testkit::{BLOCK, PATIENCE, Served, memory, session};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

const VOLUME_BYTES: u64 = 64 << 20;

/// How many requests the front ends heard of: in all, and in the turn with most.
#[derive(Default)]
struct Heard {
    all: AtomicU64,
    most: AtomicU64,
}

/// Asks for something, and for more as soon as it has got it.
struct Greedy {
    operation: Operation,
    length: u32,
    /// Requests to begin with, and those that are left.
    at_once: u64,
    left: u64,
    under_way: u64,
    /// The turn in which it heard something last, and of how many requests.
    turn: (Time, u64),
    heard: Arc<Heard>,
    is_stopped: bool,
}

impl Greedy {
    fn ask(&mut self, port: &mut Port<'_>) {
        let Greedy { operation, length, .. } = *self;
        let payload = match operation {
            Operation::Read => port.take_read_payload(0, length).expect("it is in the volume"),
            _ => Payload::None,
        };
        let (token, class) = (self.left, Class::UNCLASSIFIED);
        port.submit(Submission { token, operation, offset: 0, length, is_forced: false, class, payload });
        self.left -= 1;
        self.under_way += 1;
    }
}

impl FrontEnd for Greedy {
    fn buffer_classes(&self) -> &[BufferClass] {
        &[BufferClass { bytes: BLOCK as u32, count: 1 }]
    }

    fn started(&mut self, port: &mut Port<'_>) {
        (0..self.at_once).for_each(|_| self.ask(port));
    }

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        assert_eq!(finished.result, Ok(()));
        port.give_payload(finished.payload);
        self.under_way -= 1;
        if self.left > 0 {
            self.ask(port);
        }
        let so_far = if self.turn.0 == port.now() { self.turn.1 } else { 0 };
        self.turn = (port.now(), so_far + 1);
        self.heard.most.fetch_max(so_far + 1, Ordering::Relaxed);
        self.heard.all.fetch_add(1, Ordering::Release);
    }

    fn turn_ended(&mut self, _: &mut Port<'_>) {}

    fn stop(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn cut(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn is_finished(&self) -> bool {
        self.is_stopped && self.under_way == 0
    }
}

/// The most requests of a volume in memory that a front end with so many of them hears of in a turn.
fn most_of_a_turn(operation: Operation, length: u32, at_once: u64, requests: u64) -> u64 {
    let served = Served::plain(vec![memory("v", VOLUME_BYTES, 0)]);
    let heard = Arc::new(Heard::default());
    let (turn, of_greedy) = ((Time::ZERO, 0), heard.clone());
    let (left, under_way, is_stopped) = (requests, 0, false);
    let greedy = Greedy { operation, length, at_once, left, under_way, turn, heard: of_greedy, is_stopped };
    served.engine.attach("v", session("greedy"), Box::new(greedy)).unwrap();
    served.wait_until("all answers", |_| heard.all.load(Ordering::Acquire) == requests);
    served.engine.shutdown(PATIENCE).unwrap();
    heard.most.load(Ordering::Relaxed)
}

/// Planted break that was seen red: a turn ends when nothing more comes of it.
/// Promise: volume-turns.
#[test]
fn a_client_that_asks_again_at_once_does_not_keep_the_thread() {
    let most = most_of_a_turn(Operation::Read, 64 << 10, 1, 10_000);
    assert!((1..=128).contains(&most), "{most} in one turn");
}

/// Planted break that was seen red: a turn takes whatever the scheduler lets go.
/// Promise: volume-turns.
#[test]
fn a_client_that_gives_much_back_at_once_does_not_keep_the_thread() {
    for operation in [Operation::Trim, Operation::WriteZeroes] {
        let most = most_of_a_turn(operation, VOLUME_BYTES as u32, 100, 100);
        assert!((1..=2).contains(&most), "{operation:?}: {most} in one turn");
    }
}

/// Its other end has vanished at the second look; a waiter hears of its own end.
struct Looking {
    looks: u32,
    is_cut: bool,
    #[allow(dead_code, reason = "whoever waits hears that it is dropped")]
    alive: Sender<()>,
}

impl FrontEnd for Looking {
    fn buffer_classes(&self) -> &[BufferClass] {
        &[BufferClass { bytes: 4096, count: 1 }]
    }

    fn started(&mut self, _: &mut Port<'_>) {}

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, _: &mut Port<'_>, _: Finished) {}

    fn turn_ended(&mut self, _: &mut Port<'_>) {}

    fn has_vanished(&mut self) -> bool {
        self.looks += 1;
        self.looks == 2
    }

    fn stop(&mut self, _: &mut Port<'_>) {}

    fn cut(&mut self, _: &mut Port<'_>) {
        self.is_cut = true;
    }

    fn is_finished(&self) -> bool {
        self.is_cut
    }
}

/// Planted break that was seen red: an engine that has nothing else to do does not wake up for it.
/// Promise: volume-vanished-client.
#[test]
fn a_vanished_peer_is_cut_off_though_nothing_happens() {
    let served = Served::plain(vec![memory("v", 1 << 20, 0)]);
    let (alive, dropped) = channel();
    served.engine.attach("v", session("looking"), Box::new(Looking { looks: 0, is_cut: false, alive })).unwrap();
    // A thread that asked the engine for its status would wake it.
    let end = dropped.recv_timeout(Duration::from_nanos(PATIENCE.as_nanos()));
    assert_eq!(end, Err(RecvTimeoutError::Disconnected));
}
