//! Reads that go to the device before the scheduler lets them.
//!
//! **Intuition.** Held reads should wait at their gates ([`HeldReads`](crate::HeldReads)). But a tenant that has no
//! gate, or passes by it, can still fill the places of a loop device and stall all others.
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

use super::ground::Ground;
use super::next::Next;
use super::request::Piece;
use super::table::Table;
use plimsoll_core::Operation;

/// Requests that may wait for the scheduler, of all accounts together. Of the loop device's 128 places a quarter is
/// left to the accounts that are not held.
pub const REQUESTS_HELD_MAX: u32 = 96;
/// Pieces that an account may have had early before it is charged for no more. Each is remembered until the scheduler
/// lets it go.
pub const EARLY_MAX: u32 = 4096;
/// Stands for the scheduler of pieces that no scheduler was asked about. No count of schedulers comes so far.
pub(crate) const NO_SCHEDULER: u32 = u32::MAX;

/// Pieces that go to the device without asking the scheduler.
#[derive(Default)]
pub(crate) struct EarlyReads {
    /// Pieces to be sent that the scheduler is not asked about.
    uncharged: Vec<u32>,
    /// An account owes too much, and the log has it.
    has_warned: bool,
}

/// A piece goes into the scheduler.
#[inline]
pub(crate) fn begins_to_wait(ground: &mut Ground, table: &mut Table, index: u32) {
    let (piece, request) = table.piece(index);
    request.pieces_waiting += 1;
    if request.asked.operation == Operation::Read && request.pieces_waiting == 1 {
        ground.reads.began_to_wait(request.metered);
        if piece.start == 0 {
            ground.reads.arrived(request.metered);
        }
    }
}

/// A piece waits for the scheduler no more.
#[inline]
pub(crate) fn waits_no_more(ground: &mut Ground, table: &mut Table, index: u32) {
    let (_, request) = table.piece(index);
    request.pieces_waiting -= 1;
    if request.asked.operation == Operation::Read && request.pieces_waiting == 0 {
        ground.reads.waits_no_more(request.metered);
    }
}

/// Whether a new piece goes into the scheduler: not if its account owes too much already.
#[inline]
pub(crate) fn is_charged(ground: &Ground, table: &Table, index: u32) -> bool {
    let is_read = table.request_of(index).asked.operation == Operation::Read;
    !is_read || ground.reads.of(table.pieces[index].session).early < EARLY_MAX
}

impl EarlyReads {
    /// Sends pieces that the scheduler is not asked about. Where `leaves_places`, sends reads that wait, until few
    /// enough wait: only a mounted volume with tenants needs places for accounts that are not held. Says whether
    /// anything was sent.
    pub(crate) fn go(&mut self, ground: &mut Ground, table: &mut Table, leaves_places: bool) -> bool {
        let mut has_sent = !self.uncharged.is_empty();
        while let Some(index) = self.uncharged.pop() {
            ground.then(Next::Send(index));
        }
        while leaves_places && ground.reads.sum().waiting > REQUESTS_HELD_MAX {
            let Some(account) = ground.reads.longest() else { break };
            let waits = table.requests.iter().filter(|(_, request)| {
                request.asked.operation == Operation::Read && request.pieces_waiting > 0 && request.metered == account
            });
            let Some((oldest, _)) = waits.min_by_key(|(_, request)| request.arrived) else { break };
            send_early(ground, table, oldest);
            has_sent = true;
        }
        has_sent
    }

    /// A piece goes to the device that no scheduler was asked about.
    pub(crate) fn go_uncharged(&mut self, ground: &mut Ground, table: &mut Table, index: u32) {
        let piece = &mut table.pieces[index];
        if !std::mem::replace(&mut self.has_warned, true) {
            let path = ground.tree.path(piece.session);
            tracing::warn!(
                "{path:?} reads without waiting at its gates and owes for {EARLY_MAX} requests: more are \
                            not charged to it"
            );
        }
        piece.dispatched_by = Some(NO_SCHEDULER);
        ground.meters.piece_dispatched(piece.session);
        self.uncharged.push(index);
    }
}

/// Sends the pieces of a request that wait for the scheduler.
fn send_early(ground: &mut Ground, table: &mut Table, request: u32) {
    let is_waiting =
        |(_, piece): &(u32, &Piece)| piece.request == request && piece.dispatched_by.is_none() && !piece.is_early;
    let waits: Vec<u32> = table.pieces.iter().filter(is_waiting).map(|(index, _)| index).collect();
    for index in waits {
        waits_no_more(ground, table, index);
        let piece = &mut table.pieces[index];
        piece.is_early = true;
        ground.reads.was_early(piece.session);
        ground.then(Next::Send(index));
    }
}
