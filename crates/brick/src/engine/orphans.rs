//! What becomes of requests that nobody waits for any more.
//!
//! **Intuition.** A client that has lost its connection connects again, and writes what was not answered once more, or something newer.
//! What it had asked for before must not come after that. The same holds for an initiator that has aborted its commands.
//!
//! **Rule.** What no backend has yet is dropped: its pieces end when the scheduler lets them go. A write that a backend is at work on cannot be
//! taken back: it is an **orphan**, and whoever asks for some of its bytes waits until it is done. Who wants to know that nothing
//! comes any more waits for all orphans of the volume.
//!
//! **Complication.** A cache takes the requests for a block in the order of their coming, so nobody has to wait there; but what it
//! has begun it ends, and whoever wants to know that waits for it, too.
//!
//! Nothing but a look at a length while there are no orphans. What is abandoned is looked for among all requests and pieces under way.

use super::core::Core;
use super::front_end::{Finished, Payload};
use super::request::Piece;
use plimsoll_core::Operation;
use rustix::io::Errno;

/// A piece of a write that nobody waits for, at a backend.
struct Orphan {
    piece: u32,
    volume: u32,
    /// Its first byte in the volume, and the byte after its last.
    start: u64,
    end: u64,
}

/// A request that waits for orphans.
struct Held {
    request: u32,
    /// As in its front end's seat.
    reader: Option<u32>,
}

/// Somebody who waits until nothing that was abandoned comes to a volume any more.
struct Waiter {
    volume: u32,
    front_end: u32,
    token: u64,
}

/// Writes that nobody waits for, and who waits for their end.
#[derive(Default)]
pub(super) struct Orphans {
    at_backends: Vec<Orphan>,
    /// Of each request in a cache the volume.
    in_caches: Vec<u32>,
    held: Vec<Held>,
    waiters: Vec<Waiter>,
}

impl Orphans {
    /// Whether an orphan has some of these bytes. O(orphans).
    pub(super) fn are_in_the_way(&self, volume: u32, offset: u64, length: u32) -> bool {
        let end = offset + u64::from(length);
        self.at_backends.iter().any(|orphan| orphan.volume == volume && orphan.start < end && offset < orphan.end)
    }

    fn has_any_of(&self, volume: u32) -> bool {
        self.at_backends.iter().any(|orphan| orphan.volume == volume) || self.in_caches.contains(&volume)
    }

    /// A request of a cache, abandoned while the cache was at work on it.
    pub(super) fn began_in_cache(&mut self, volume: u32) {
        self.in_caches.push(volume);
    }
}

impl Core {
    /// Has a request wait for the orphans in its way.
    pub(super) fn hold(&mut self, request: u32, reader: Option<u32>) {
        self.orphans.held.push(Held { request, reader });
    }

    /// Marks requests as wanted by nobody, by their front end and its name for them. O(requests and pieces under way).
    pub(super) fn abandon(&mut self, is_meant: impl Fn(u32, u64) -> bool) {
        for index in 0..self.requests.places() as u32 {
            let Some(request) = self.requests.get_mut(index) else { continue };
            if is_meant(request.front_end, request.token) {
                request.is_abandoned = true;
                request.cut_no_more();
            }
        }
        for index in 0..self.pieces.places() as u32 {
            let is_there = |piece: &&mut Piece| piece.waits.for_backend && !piece.is_orphan;
            let Some(piece) = self.pieces.get_mut(index).filter(is_there) else { continue };
            let request = &self.requests[piece.request];
            if request.is_abandoned && request.operation.is_write() {
                piece.is_orphan = true;
                let start = request.offset + u64::from(piece.start);
                let end = start + u64::from(piece.length);
                self.orphans.at_backends.push(Orphan { piece: index, volume: request.volume, start, end });
            }
        }
        self.drop_held();
        self.abandon_in_caches(is_meant);
    }

    /// Ends the requests that wait for orphans and are wanted by nobody.
    fn drop_held(&mut self) {
        let held = std::mem::take(&mut self.orphans.held);
        let (dropped, held) = held.into_iter().partition(|held| self.requests[held.request].is_abandoned);
        self.orphans.held = held;
        for Held { request, .. } in dropped {
            self.begin_change(request);
            self.requests[request].error = Some(Errno::CANCELED);
            self.request_done(request);
        }
    }

    /// Tells the front end at `front_end`, as of a request that it calls `token`, when nothing that was abandoned comes to `volume` any more.
    pub(super) fn wait_for_abandoned(&mut self, volume: u32, front_end: u32, token: u64) {
        self.orphans.waiters.push(Waiter { volume, front_end, token });
        self.tell_waiters();
    }

    /// A backend has done an orphan, whose piece may be another one's by now.
    pub(super) fn orphan_ended(&mut self, piece: u32) {
        self.orphans.at_backends.retain(|orphan| orphan.piece != piece);
        let held = std::mem::take(&mut self.orphans.held);
        let (held, free) = held.into_iter().partition(|held: &Held| {
            let request = &self.requests[held.request];
            self.orphans.are_in_the_way(request.volume, request.offset, request.length)
        });
        self.orphans.held = held;
        for Held { request, reader } in free {
            self.begin(request, reader);
        }
        self.tell_waiters();
    }

    /// A cache has done a request that was abandoned on its way.
    pub(super) fn orphan_ended_in_cache(&mut self, volume: u32) {
        let place = self.orphans.in_caches.iter().position(|&other| other == volume).expect("what ends has begun");
        self.orphans.in_caches.swap_remove(place);
        self.tell_waiters();
    }

    fn tell_waiters(&mut self) {
        let waiters = std::mem::take(&mut self.orphans.waiters);
        for waiter in waiters {
            if self.orphans.has_any_of(waiter.volume) {
                self.orphans.waiters.push(waiter);
                continue;
            }
            let Waiter { front_end, token, .. } = waiter;
            let (operation, payload) = (Operation::Flush, Payload::None);
            self.finished.push((front_end, Finished { token, operation, length: 0, result: Ok(()), payload }));
        }
    }
}

#[cfg(test)]
mod tests;
