//! What becomes of requests that no front end waits for any more.
//!
//! **Intuition.** A client that has lost its connection connects again, and writes what was not answered once more, or
//! something newer. What it had asked for before must not come after that. The same holds for an initiator that has
//! aborted its commands.
//!
//! **Rule.** What no backend has yet is dropped: its pieces end when the scheduler lets them go. A write that a backend
//! is at work on cannot be taken back: it is an **orphan**. A request for some of its bytes waits until it is done. A
//! front end that wants to know that nothing comes any more waits for all orphans of the volume.
//!
//! **A request waits for earlier orphans only.** Orphans, requests that wait for them, and front ends that ask for
//! their end are numbered in order of arrival. None waits for a higher one: clients that go on writing and vanishing
//! keep no other client waiting. A write that becomes an orphan later was under way together with the request that
//! waits, and neither has to come first.
//!
//! **Complication.** A cache takes the requests for a block in the order of their coming, so no request has to wait
//! there. But what the cache has begun it ends, and a front end that wants to know that waits for it, too. What it
//! asked the volume for, and no backend has, it is told to have failed ([`volume_cache`](crate::volume_cache)).
//!
//! **Cost.** Nothing but a look at a length while there are no orphans. What is abandoned is looked for among all
//! requests and pieces under way. A request that comes takes O(log n + orphans in its way). The end of an orphan takes
//! O(log n + requests that it is in the way of). Here n is orphans and what waits for them ([`stretches`]).

pub(crate) mod stretches;

use super::ground::Ground;
use super::next::{Next, Orphan};
use super::request::{Piece, Request};
use super::table::Table;
use crate::submission::Submission;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use stretches::{Stretch, Stretches};

/// A request that waits for orphans.
struct WaitingRequest {
    request: u32,
    /// As in its front end's seat.
    reader: Option<u32>,
    /// How many it waits for.
    orphans: u32,
}

/// A front end that waits for the end of abandoned requests of a volume, and its name for that.
type Waiter = (u32, u64);

/// Writes that no front end waits for, and what waits for their end.
#[derive(Default)]
pub(crate) struct Orphans {
    /// How many numbers there were.
    numbers: u64,
    /// Pieces at backends.
    at_backends: Stretches<()>,
    held: Stretches<WaitingRequest>,
    /// All there are, those in caches too, by volume and number.
    open: BTreeSet<(u32, u64)>,
    /// By volume and number.
    waiters: BTreeMap<(u32, u64), Waiter>,
}

impl Orphans {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Has a request for these bytes wait for the orphans in its way. Says whether there are any.
    #[inline]
    fn hold(&mut self, stretch: Stretch, request: u32, reader: Option<u32>) -> bool {
        if self.at_backends.is_empty() {
            return false;
        }
        let orphans = self.at_backends.count(stretch);
        if orphans > 0 {
            let number = self.next_number();
            self.held.insert(stretch, number, WaitingRequest { request, reader, orphans });
        }
        orphans > 0
    }

    /// A piece was abandoned while a backend was at work on it. Gives its number.
    fn began(&mut self, stretch: Stretch) -> u64 {
        let number = self.began_in_cache(stretch.volume);
        self.at_backends.insert(stretch, number, ());
        number
    }

    /// A request of a cache was abandoned while the cache was at work on it. Gives its number.
    pub(crate) fn began_in_cache(&mut self, volume: u32) -> u64 {
        let number = self.next_number();
        self.open.insert((volume, number));
        number
    }

    /// A backend has done a piece. Gives the requests that wait for no other one, in the order of their coming.
    fn ended(&mut self, stretch: Stretch, number: u64) -> Vec<WaitingRequest> {
        self.open.remove(&(stretch.volume, number));
        self.at_backends.remove(stretch, number);
        self.held.take_of(stretch, |held_number, held| {
            // A request that came before it was abandoned does not wait for it.
            held.orphans -= u32::from(number < held_number);
            held.orphans == 0
        })
    }

    /// A waiter that waits for nothing on a volume any more. O(log n).
    fn next_waiter(&mut self, volume: u32) -> Option<Waiter> {
        let (&place, _) = self.waiters.range((volume, 0)..(volume + 1, 0)).next()?;
        let is_older = self.open.range((volume, 0)..place).next().is_some();
        if is_older { None } else { self.waiters.remove(&place) }
    }
}

/// The bytes of a request.
fn stretch_of(request: &Request) -> Stretch {
    let Submission { offset: start, length, .. } = request.asked;
    let volume = request.volume;
    Stretch { volume, start, end: start + u64::from(length) }
}

/// The bytes of a piece of a request.
fn stretch_of_piece(request: &Request, piece: &Piece) -> Stretch {
    let start = request.asked.offset + u64::from(piece.start);
    Stretch { volume: request.volume, start, end: start + u64::from(piece.length) }
}

impl Orphans {
    /// Has a request wait for the orphans in its way. Says whether there are any.
    #[inline]
    pub(crate) fn hold_request(&mut self, table: &Table, request: u32, reader: Option<u32>) -> bool {
        self.hold(stretch_of(&table.requests[request]), request, reader)
    }

    /// Marks requests as abandoned, by their front end and its name for them. Writes of theirs that a backend is at
    /// work on are orphans from now on. O(requests and pieces under way).
    pub(crate) fn abandon(&mut self, table: &mut Table, is_meant: impl Fn(u32, u64) -> bool) {
        let Table { requests, pieces, .. } = table;
        for index in 0..requests.places() as u32 {
            let Some(request) = requests.get_mut(index) else { continue };
            if request.asker.front_end().is_some_and(|(front_end, token)| is_meant(front_end, token)) {
                request.is_abandoned = true;
                request.cut_no_more();
            }
        }
        for index in 0..pieces.places() as u32 {
            let is_there = |piece: &&mut Piece| piece.waits.for_backend && piece.orphan.is_none();
            let Some(piece) = pieces.get_mut(index).filter(is_there) else { continue };
            let request = &requests[piece.request];
            if request.is_abandoned && request.asked.operation.is_write() {
                piece.orphan = Some(self.began(stretch_of_piece(request, piece)));
            }
        }
    }

    /// Takes out the requests that wait for orphans and are abandoned: they have failed.
    pub(crate) fn drop_abandoned(&mut self, table: &mut Table) -> impl Iterator<Item = u32> + use<> {
        let dropped = self.held.take_if(|held| table.requests[held.request].is_abandoned);
        dropped.iter().for_each(|held| table.requests[held.request].error = Some(Errno::CANCELED));
        dropped.into_iter().map(|held| held.request)
    }

    /// Tells a front end, by its own name for it, when requests that are abandoned now change `volume` no more.
    pub(crate) fn wait_for_abandoned(&mut self, ground: &mut Ground, volume: u32, waiter: Waiter) {
        let number = self.next_number();
        self.waiters.insert((volume, number), waiter);
        self.tell_waiters(ground, volume);
    }

    /// An orphan has ended: requests without another orphan to wait for begin, and front ends are told.
    pub(crate) fn orphan_ended(&mut self, ground: &mut Ground, orphan: Orphan) {
        let volume = match orphan {
            Orphan::AtBackend(stretch, number) => {
                for WaitingRequest { request, reader, .. } in self.ended(stretch, number) {
                    ground.then(Next::Begin { request, reader });
                }
                stretch.volume
            }
            Orphan::InCache { volume, number } => {
                self.open.remove(&(volume, number));
                volume
            }
        };
        self.tell_waiters(ground, volume);
    }

    fn tell_waiters(&mut self, ground: &mut Ground, volume: u32) {
        while let Some(waiter) = self.next_waiter(volume) {
            ground.tell(waiter);
        }
    }
}

/// Makes a piece that a backend has done no orphan any more. Gives what is to be said when all else about it is done.
#[inline]
pub(crate) fn take_orphan(table: &mut Table, piece: u32) -> Option<Orphan> {
    let number = table.pieces[piece].orphan.take()?;
    let (piece, request) = table.piece(piece);
    Some(Orphan::AtBackend(stretch_of_piece(request, piece), number))
}

#[cfg(test)]
mod tests;
