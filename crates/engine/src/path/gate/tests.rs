//! Pieces at the gate, with a scheduler that lets go as many as it is told to.

use super::*;
use crate::path::early_reads::{EARLY_MAX, REQUESTS_HELD_MAX};
use crate::path::samples::{front_end_request, ground, memory_seat, said};
use plimsoll_core::{AccountId, BlockRequest, Operation, Span};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Added(u64),
    Completed(u64, bool),
}

/// Lets go in the order of coming.
#[derive(Clone, Default)]
struct Counted {
    may_go: Arc<AtomicU32>,
    heard: Arc<Mutex<Vec<Heard>>>,
    queued: VecDeque<BlockRequest>,
}

impl Counted {
    fn take_heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

impl Scheduler for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }
    fn request_added(&mut self, _now: Time, request: BlockRequest) {
        self.heard.lock().unwrap().push(Heard::Added(request.id.0));
        self.queued.push_back(request);
    }
    fn next(&mut self, now: Time) -> Dispatch {
        if self.queued.is_empty() {
            return Dispatch::Nothing;
        }
        if self.may_go.load(Relaxed) == 0 {
            return Dispatch::NotBefore(now + Span::from_millis(1));
        }
        self.may_go.fetch_sub(1, Relaxed);
        Dispatch::Now(self.queued.pop_front().unwrap())
    }
    fn request_completed(&mut self, _now: Time, completion: &Completion) {
        self.heard.lock().unwrap().push(Heard::Completed(completion.id.0, completion.succeeded));
    }
}

struct World {
    ground: Ground,
    session: AccountId,
    table: Table,
    gate: Gate,
    scheduler: Counted,
}

impl World {
    fn new() -> World {
        let ((ground, session), scheduler) = (ground(), Counted::default());
        let (table, gate) = (Table::with_capacity(0), Gate::new(Box::new(scheduler.clone())));
        World { ground, session, table, gate, scheduler }
    }

    /// A request of one piece comes. Gives the piece.
    fn add(&mut self, operation: Operation) -> u32 {
        let request = front_end_request(&mut self.table, self.session, operation, 0, 4096);
        let piece = self.table.cut(&self.ground, &mut memory_seat(), request).unwrap();
        self.gate.add(&mut self.ground, &mut self.table, piece, 0);
        piece
    }

    /// Lets the scheduler let so many go. Gives what comes of each.
    fn let_go(&mut self, count: u32) -> Vec<Next> {
        self.scheduler.may_go.store(count, Relaxed);
        while let Some(id) = self.gate.next(self.ground.now) {
            self.gate.dispatched(&mut self.ground, &mut self.table, id.0 as u32);
        }
        said(&mut self.ground)
    }

    fn done(&mut self, piece: u32, error: Option<Errno>) {
        self.table.pieces[piece].error = error;
        self.table.pieces[piece].service = Some(Span::ZERO);
        self.gate.done(&mut self.ground, &mut self.table, piece);
    }

    fn go_early(&mut self, leaves_places: bool) -> Vec<Next> {
        let has_sent = self.gate.let_some_go_early(&mut self.ground, &mut self.table, leaves_places);
        let said = said(&mut self.ground);
        assert_eq!(has_sent, !said.is_empty());
        said
    }
}

/// Planted breaks: a piece is sent when it comes; its end is told to the scheduler twice.
#[test]
fn a_piece_is_added_let_go_and_completed_once_in_this_order() {
    let mut world = World::new();
    let pieces = [world.add(Operation::Read), world.add(Operation::Write)];
    assert_eq!(said(&mut world.ground), []);
    assert_eq!(world.let_go(1), [Next::Send(pieces[0])]);
    assert!(world.gate.ask_again.is_some(), "the other is held back");
    assert_eq!(world.let_go(5), [Next::Send(pieces[1])]);
    assert_eq!((world.gate.ask_again, world.ground.reads.sum().waiting), (None, 0));
    world.done(pieces[1], Some(Errno::IO));
    world.done(pieces[0], None);
    let [first, second] = pieces.map(u64::from);
    let (added, completed) = (Heard::Added, Heard::Completed);
    assert_eq!(
        world.scheduler.take_heard(),
        [added(first), added(second), completed(second, false), completed(first, true)]
    );
    assert_eq!(world.table.pieces.len(), 0);
}

/// Planted breaks: a read goes early where no tenant is held; an early read is settled before the scheduler lets it go;
/// it is sent a second time then.
#[test]
fn the_oldest_read_goes_early_when_too_many_wait_and_is_settled_when_the_scheduler_lets_it_go() {
    let mut world = World::new();
    let pieces: Vec<u32> = (0..=REQUESTS_HELD_MAX).map(|_| world.add(Operation::Read)).collect();
    assert_eq!(world.go_early(false), []);
    assert_eq!(world.go_early(true), [Next::Send(pieces[0])]);
    assert_eq!(world.go_early(true), []);
    world.done(pieces[0], None);
    assert_eq!((world.table.pieces.len(), world.ground.reads.sum().early), (pieces.len(), 1));
    world.scheduler.take_heard();
    assert_eq!(world.let_go(1), []);
    assert_eq!(world.scheduler.take_heard(), [Heard::Completed(pieces[0].into(), true)]);
    assert_eq!((world.table.pieces.len(), world.ground.reads.sum().early), (pieces.len() - 1, 0));
}

/// Planted break: a session that owes too much is charged for more.
#[test]
fn a_session_that_owes_too_much_is_not_charged_for_more_reads() {
    let mut world = World::new();
    (0..EARLY_MAX).for_each(|_| world.ground.reads.was_early(world.session));
    let (read, write) = (world.add(Operation::Read), world.add(Operation::Write));
    assert_eq!(world.scheduler.take_heard(), [Heard::Added(write.into())]);
    assert_eq!(world.go_early(false), [Next::Send(read)]);
    world.done(read, None);
    assert_eq!((world.table.pieces.len(), world.scheduler.take_heard()), (1, vec![]));
}

/// Planted breaks: what is at the device moves over, too; the end of it is told to the new scheduler; what went early
/// is owed for ever.
#[test]
fn what_waits_moves_over_to_another_scheduler_and_what_is_at_the_device_ends_without_it() {
    let mut world = World::new();
    let first = world.add(Operation::Write);
    assert_eq!(world.let_go(1), [Next::Send(first)]);
    let reads: Vec<u32> = (0..=REQUESTS_HELD_MAX).map(|_| world.add(Operation::Read)).collect();
    assert_eq!(world.go_early(true), [Next::Send(reads[0])]);
    world.done(reads[0], None);
    let mut other = Counted::default();
    world.gate.hand_over(&mut world.ground, &mut world.table, &mut other, |_| 0);
    world.gate.put(Box::new(other.clone()));
    world.scheduler = other;
    let moved: Vec<Heard> = reads[1..].iter().map(|&read| Heard::Added(read.into())).collect();
    assert_eq!(world.scheduler.take_heard(), moved);
    world.done(first, None);
    assert_eq!((world.scheduler.take_heard(), world.ground.reads.sum().early), (vec![], 0));
    assert_eq!(world.table.pieces.len(), reads.len() - 1);
}
