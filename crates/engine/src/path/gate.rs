//! The scheduler between requests and the device: pieces enter it, and leave when it lets them go.
//!
//! ```text
//!   Add -> add --+--> scheduler.request_added ... next -> dispatched --+--> Send
//!                +--> uncharged -------------------> go early ---------+
//!   PieceDone -> settle -> scheduler.request_completed
//! ```
//!
//! A piece is added, dispatched and completed once, in this order. What the scheduler is not asked about, and what goes
//! before it lets it go, has [`early_reads`](super::early_reads).

use super::early_reads::{EarlyReads, NO_SCHEDULER, begins_to_wait, is_charged, waits_no_more};
use super::ground::Ground;
use super::next::Next;
use super::request::Piece;
use super::table::Table;
use plimsoll_core::{Completion, Dispatch, RequestId, Scheduler, Time};

/// A scheduler, and the pieces that go past it.
pub(crate) struct Gate {
    scheduler: Box<dyn Scheduler>,
    /// How many schedulers there were before this one.
    number: u32,
    /// When the scheduler wants to be asked again.
    pub(crate) ask_again: Option<Time>,
    early: EarlyReads,
}

impl Gate {
    pub(crate) fn new(scheduler: Box<dyn Scheduler>) -> Gate {
        Gate { scheduler, number: 0, ask_again: None, early: EarlyReads::default() }
    }

    pub(crate) fn scheduler(&self) -> &dyn Scheduler {
        &*self.scheduler
    }

    pub(crate) fn scheduler_mut(&mut self) -> &mut dyn Scheduler {
        &mut *self.scheduler
    }

    /// A piece comes, of a volume that begins at `volume_start` bytes of the device.
    #[inline]
    pub(crate) fn add(&mut self, ground: &mut Ground, table: &mut Table, index: u32, volume_start: u64) {
        let (piece, request) = table.piece(index);
        let block = piece.block_request(index, request, volume_start);
        if let Some(tap) = &mut ground.tap
            && tap.arrived(ground.now, request.volume, piece.sequence, &block)
        {
            piece.recording = Some(tap.number);
        }
        ground.meters.piece_queued(piece.session);
        if is_charged(ground, table, index) {
            begins_to_wait(ground, table, index);
            self.scheduler.request_added(ground.now, block);
        } else {
            self.early.go_uncharged(ground, table, index);
        }
    }

    /// What the scheduler lets go next. `None`: nothing, until something comes or it wants to be asked again.
    #[inline]
    pub(crate) fn next(&mut self, now: Time) -> Option<RequestId> {
        self.ask_again = match self.scheduler.next(now) {
            Dispatch::Now(block) => return Some(block.id),
            Dispatch::NotBefore(time) => Some(time),
            Dispatch::Nothing => None,
        };
        None
    }

    /// The scheduler has let a piece go: it goes to the device, unless it went there long ago.
    #[inline]
    pub(crate) fn dispatched(&mut self, ground: &mut Ground, table: &mut Table, index: u32) {
        let piece = &mut table.pieces[index];
        piece.dispatched_by = Some(self.number);
        ground.meters.piece_dispatched(piece.session);
        if piece.is_early {
            self.early_is_let_go(ground, table, index);
        } else {
            waits_no_more(ground, table, index);
            ground.then(Next::Send(index));
        }
    }

    /// Sends what goes past the scheduler ([`EarlyReads::go`]). Says whether there was anything.
    pub(crate) fn let_some_go_early(&mut self, ground: &mut Ground, table: &mut Table, leaves_places: bool) -> bool {
        self.early.go(ground, table, leaves_places)
    }

    /// The scheduler lets a piece go that went long ago.
    fn early_is_let_go(&mut self, ground: &mut Ground, table: &mut Table, index: u32) {
        let piece = &table.pieces[index];
        ground.reads.is_early_no_more(piece.session);
        if piece.service.is_some() {
            self.settle(ground, table, index);
        }
    }

    /// The device has done a piece. Once the scheduler has let it go, that is the last of it.
    #[inline]
    pub(crate) fn done(&mut self, ground: &mut Ground, table: &mut Table, index: u32) {
        if table.pieces[index].dispatched_by.is_some() {
            self.settle(ground, table, index);
        }
    }

    /// The scheduler has let a piece go and the device has done it: that is the last of it.
    #[inline]
    fn settle(&mut self, ground: &mut Ground, table: &mut Table, index: u32) {
        let piece = table.pieces.remove(index).expect("a piece ends once");
        ground.meters.piece_completed(piece.session, &piece.tag.causes, piece.runs, piece.length);
        // A scheduler that was switched on after the dispatch never had this piece.
        if piece.dispatched_by == Some(self.number) {
            let completion = Completion {
                id: RequestId(u64::from(index)),
                session: piece.session,
                runs: piece.runs,
                service: piece.service.expect("a piece that has ended was done"),
                succeeded: piece.error.is_none(),
            };
            self.scheduler.request_completed(ground.now, &completion);
        }
    }

    /// Another scheduler takes over. Waiting requests move to it in their order of arrival; those at the device
    /// complete without it. `start_of` says where a volume begins on the device.
    pub(crate) fn hand_over(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        scheduler: &mut dyn Scheduler,
        start_of: impl Fn(u32) -> u64,
    ) {
        self.forgive_early(ground, table);
        let mut queued: Vec<_> = table.pieces.iter().filter(|(_, piece)| piece.dispatched_by.is_none()).collect();
        queued.sort_unstable_by_key(|(_, piece)| piece.sequence);
        for (index, piece) in queued {
            let request = &table.requests[piece.request];
            scheduler.request_added(ground.now, piece.block_request(index, request, start_of(request.volume)));
        }
    }

    /// Puts another scheduler in charge, after it was [handed over](Self::hand_over) what waits.
    pub(crate) fn put(&mut self, scheduler: Box<dyn Scheduler>) {
        self.scheduler = scheduler;
        self.number += 1;
    }

    /// A new scheduler never had the pieces that went early: no account pays for them any more.
    fn forgive_early(&mut self, ground: &mut Ground, table: &mut Table) {
        let is_early = |(_, piece): &(u32, &Piece)| piece.is_early && piece.dispatched_by.is_none();
        let early: Vec<u32> = table.pieces.iter().filter(is_early).map(|(index, _)| index).collect();
        for index in early {
            let piece = &mut table.pieces[index];
            piece.dispatched_by = Some(NO_SCHEDULER);
            ground.meters.piece_dispatched(piece.session);
            self.early_is_let_go(ground, table, index);
        }
    }
}

#[cfg(test)]
mod tests;
