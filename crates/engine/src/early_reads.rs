//! Reads that go to the device before the scheduler lets them.
//!
//! **Intuition.** Held reads should wait at their gates ([`super::held_reads`]). But a tenant that has no gate, or
//! passes by it, can still fill the places of a loop device and stall all others.
//!
//! **The rule.** When more than [`REQUESTS_HELD_MAX`] requests wait, the oldest of the account with most goes
//! **early**.
//!
//! **The complication.** An early read is answered when the device has done it. But the scheduler still has to hear of
//! its end: the read completes when the scheduler lets it go. So each request is still added, dispatched and completed
//! once and in this order, and every charge is made. An account that had something early pays before it gets more. An
//! account that owes [`EARLY_MAX`] pieces is not charged for more until it has paid some: memory is finite, and it
//! waits anyway.
//!
//! Nothing but a comparison while few wait; finding what goes early is O(accounts + requests + pieces under way).

use super::core::Core;
use super::seat::Seat;
use plimsoll_core::Operation;

/// Requests that may wait for the scheduler, of all accounts together. Of the loop device's 128 places a quarter is
/// left to the accounts that are not held.
pub const REQUESTS_HELD_MAX: u32 = 96;
/// Pieces that an account may have had early before it is charged for no more. Each is remembered until the scheduler lets
/// it go.
pub const EARLY_MAX: u32 = 4096;
/// Stands for the scheduler of pieces that no scheduler was asked about. No count of schedulers comes so far.
const NO_SCHEDULER: u32 = u32::MAX;

/// Pieces that go to the device without asking the scheduler.
#[derive(Default)]
pub(super) struct EarlyReads {
    /// Pieces to be sent that the scheduler is not asked about.
    uncharged: Vec<u32>,
    /// An account owes too much, and the log has it.
    has_warned: bool,
}

impl Core {
    /// Tells the levels above which accounts have reads that wait, if there are any levels.
    pub(super) fn tell_of_reads(&mut self) {
        if let Some(levels) = &mut self.upper_levels {
            levels.reads_held(self.now, &self.reads);
        }
    }

    /// A piece goes into the scheduler.
    pub(super) fn begins_to_wait(&mut self, index: u32) {
        let piece = &self.pieces[index];
        let request = &mut self.requests[piece.request];
        request.pieces_waiting += 1;
        if request.operation == Operation::Read && request.pieces_waiting == 1 {
            self.reads.began_to_wait(request.metered);
            if piece.start == 0 {
                self.reads.arrived(request.metered);
            }
        }
    }

    /// A piece waits for the scheduler no more.
    pub(super) fn waits_no_more(&mut self, index: u32) {
        let request = &mut self.requests[self.pieces[index].request];
        request.pieces_waiting -= 1;
        if request.operation == Operation::Read && request.pieces_waiting == 0 {
            self.reads.waits_no_more(request.metered);
        }
    }

    /// Leaves places to accounts that are not held. Only on a mounted volume with tenants: every other front end may
    /// have as many requests as it likes.
    pub(super) fn let_some_go_early(&mut self) {
        while let Some(index) = self.early.uncharged.pop() {
            self.send(index);
        }
        while self.upper_levels.is_some() && self.reads.sum().waiting > REQUESTS_HELD_MAX {
            let Some(account) = self.reads.longest() else { return };
            let waits = self.requests.iter().filter(|(_, request)| {
                request.operation == Operation::Read && request.pieces_waiting > 0 && request.metered == account
            });
            let Some((oldest, _)) = waits.min_by_key(|(_, request)| request.arrived) else { return };
            self.request_goes_early(oldest);
        }
    }

    fn request_goes_early(&mut self, request: u32) {
        let waits = self
            .pieces
            .iter()
            .filter(|(_, piece)| piece.request == request && piece.dispatched_by.is_none() && !piece.is_early);
        let waits: Vec<u32> = waits.map(|(index, _)| index).collect();
        for index in waits {
            self.waits_no_more(index);
            let piece = &mut self.pieces[index];
            piece.is_early = true;
            self.reads.was_early(piece.session);
            self.send(index);
        }
    }

    /// The scheduler lets a piece go that went long ago.
    pub(super) fn early_is_let_go(&mut self, index: u32) {
        let piece = &self.pieces[index];
        self.reads.is_early_no_more(piece.session);
        if piece.service.is_some() {
            self.settle(index);
        }
    }

    /// Whether the scheduler still has pieces of a seat's that were answered: its account stays until they are let go.
    pub(super) fn owes_early(&self, seat: &Seat) -> bool {
        self.reads.of(seat.session).early > 0
    }

    /// Whether a new piece goes into the scheduler: not if its account owes too much already.
    pub(super) fn is_charged(&self, index: u32) -> bool {
        let piece = &self.pieces[index];
        self.requests[piece.request].operation != Operation::Read || self.reads.of(piece.session).early < EARLY_MAX
    }

    /// A piece goes to the device that no scheduler was asked about.
    pub(super) fn goes_uncharged(&mut self, index: u32) {
        let piece = &mut self.pieces[index];
        if !std::mem::replace(&mut self.early.has_warned, true) {
            let path = self.tree.path(piece.session);
            tracing::warn!("{path:?} reads past its gates and owes {EARLY_MAX} requests: more are not charged to it");
        }
        piece.dispatched_by = Some(NO_SCHEDULER);
        self.meters.piece_dispatched(piece.session);
        self.early.uncharged.push(index);
    }

    /// Another scheduler will be in charge, which never had what went early: no account pays for that any more.
    pub(super) fn forgive_early(&mut self) {
        let early = self.pieces.iter().filter(|(_, piece)| piece.is_early && piece.dispatched_by.is_none());
        let early: Vec<u32> = early.map(|(index, _)| index).collect();
        for index in early {
            let piece = &mut self.pieces[index];
            piece.dispatched_by = Some(NO_SCHEDULER);
            self.meters.piece_dispatched(piece.session);
            self.early_is_let_go(index);
        }
    }
}
