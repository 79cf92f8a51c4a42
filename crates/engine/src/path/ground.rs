//! State that every stage uses: the time, the books, and the two lists that stages write to.

use super::next::{Agenda, Next};
use crate::held_reads::HeldReads;
use crate::meter::Meters;
use crate::observed::Books;
use crate::submission::{Finished, Payload};
use crate::tap::Tap;
use plimsoll_core::{AccountTree, Operation, Scheduler, Time};

/// Bytes that this thread copies, zeroes or gives back in a turn, for volumes in memory, before it handles other
/// events. The piece that reaches the bound is included. To copy them to memory that was never written takes less than
/// two milliseconds. The one larger piece, of a trim (16 MiB), takes as long. What is in the processor's caches takes a
/// tenth of that.
pub(crate) const TURN_BYTES_MAX: u64 = 4 << 20;

/// The time, the books, the next steps, and the answers for front ends.
pub(crate) struct Ground {
    /// When this turn began.
    pub(crate) now: Time,
    /// Bytes that the thread may still work on in this turn.
    pub(crate) bytes_left: u64,
    pub(crate) tree: AccountTree,
    pub(crate) meters: Meters,
    /// The recorder of what comes and goes.
    pub(crate) tap: Option<Tap>,
    /// Reads that the scheduler keeps back.
    pub(crate) reads: HeldReads,
    agenda: Agenda,
    /// Requests that are done, with their front ends, not yet handed out.
    pub(crate) answers: Vec<(u32, Finished)>,
}

impl Ground {
    pub(crate) fn new(now: Time, tree: AccountTree, answers_expected: usize) -> Ground {
        Ground {
            now,
            bytes_left: TURN_BYTES_MAX,
            meters: Meters::new(now),
            tree,
            tap: None,
            reads: HeldReads::default(),
            agenda: Agenda::default(),
            answers: Vec::with_capacity(answers_expected),
        }
    }

    /// A turn begins.
    pub(crate) fn begin_turn(&mut self, now: Time) {
        (self.now, self.bytes_left) = (now, TURN_BYTES_MAX);
    }

    /// Says what is to be done next.
    #[inline]
    pub(crate) fn then(&mut self, next: Next) {
        self.agenda.push(next);
    }

    /// Whether no step is to be taken.
    #[inline]
    pub(crate) fn has_no_step(&self) -> bool {
        self.agenda.is_empty()
    }

    /// Takes the next step, if there is one.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<Next> {
        self.agenda.take()
    }

    /// Tells a front end that the event that it calls by this name has come.
    pub(crate) fn tell(&mut self, (front_end, token): (u32, u64)) {
        let (operation, payload) = (Operation::Flush, Payload::None);
        self.answers.push((front_end, Finished { token, operation, length: 0, result: Ok(()), payload }));
    }

    /// The books that hear of a request that is only seen, together with the scheduler.
    pub(crate) fn books<'engine>(&'engine mut self, scheduler: &'engine mut dyn Scheduler) -> Books<'engine> {
        let Ground { meters, tap, reads, tree, .. } = self;
        Books { scheduler, meters, tap: tap.as_mut(), reads, tree }
    }
}
