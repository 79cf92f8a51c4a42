//! What a front end can do on its engine.

use super::buffer::{Buffer, Lack};
use super::ring::Owner;
use super::seat::Seat;
use super::submission::{Finished, Payload, Submission};
use crate::backend::VolumeInfo;
use crate::path::conductor::Conductor;
use io_uring::squeue;
use plimsoll_core::Time;

/// A front end's access to its engine, for the length of one call.
pub struct Port<'call> {
    pub(super) conductor: &'call mut Conductor,
    pub(super) seat: &'call mut Seat,
}

impl Port<'_> {
    /// The time at which this turn began.
    pub fn now(&self) -> Time {
        self.conductor.ground.now
    }

    /// The volume that the front end serves.
    pub fn volume(&self) -> &VolumeInfo {
        &self.seat.info
    }

    /// A buffer for `bytes` bytes of data, if the front end has one left.
    ///
    /// Where there is no memory for one, [`FrontEnd::turn_ended`](super::FrontEnd::turn_ended) comes when it is worth
    /// another try.
    pub fn take_buffer(&mut self, bytes: u32) -> Option<Buffer> {
        match self.seat.arena.take(bytes) {
            Ok(buffer) => Some(buffer),
            Err(Lack::Slots) => None,
            Err(Lack::Memory) => {
                let now = self.now();
                self.conductor.memory.wait(now, self.seat);
                None
            }
        }
    }

    /// Takes a buffer back.
    pub fn give_buffer(&mut self, buffer: Buffer) {
        self.seat.arena.give(buffer);
    }

    /// Takes back what a finished request carried.
    pub fn give_payload(&mut self, payload: Payload) {
        if let Payload::Buffer { buffer, .. } = payload {
            self.seat.arena.give(buffer);
        }
    }

    /// Memory for a read of `length` bytes from `offset`: a buffer, or the bytes' place in a volume in memory. `None`
    /// if the front end has no buffer left; a read that lies outside of the volume gets [`Payload::None`] and will
    /// fail.
    pub fn take_read_payload(&mut self, offset: u64, length: u32) -> Option<Payload> {
        let is_inside = offset.checked_add(length.into()).is_some_and(|end| end <= self.seat.info.size_bytes);
        if !is_inside {
            return Some(Payload::None);
        }
        match self.conductor.volume_bytes(self.seat.volume, offset, length) {
            Some(bytes) => Some(Payload::Volume(bytes)),
            None => self.take_buffer(length).map(|buffer| Payload::Buffer { buffer, at: 0 }),
        }
    }

    /// The bytes that a read of this front end has brought. Nothing can change them while they are looked at. A buffer
    /// belongs to `finished`, and a volume in memory is written by the engine alone, which is borrowed meanwhile.
    pub fn read_bytes<'looked>(&'looked self, finished: &'looked Finished) -> &'looked [u8] {
        match finished.payload.as_ptr() {
            // SAFETY: the engine has checked that the payload has room for `length` bytes, and filled them; no other
            // code writes there as long as `self` is borrowed.
            Some(start) if finished.result.is_ok() => unsafe {
                std::slice::from_raw_parts(start, finished.length as usize)
            },
            _ => &[],
        }
    }

    /// Hands a request to the engine, which answers with
    /// [`FrontEnd::request_completed`](super::FrontEnd::request_completed) later, never before this returns. A request
    /// that the volume cannot do gets an error. Examples are one beyond its end or not on its blocks, a write to a
    /// read-only volume, or a payload that does not fit.
    pub fn submit(&mut self, submission: Submission) {
        self.seat.requests += 1;
        self.conductor.submit(self.seat, submission);
    }

    /// Claims `length` bytes from `offset`, whole blocks of the volume. The front end reads them, changes a part and
    /// writes them, in requests that it calls `token`.
    /// [`FrontEnd::request_completed`](super::FrontEnd::request_completed) hears of `token` when every other change of
    /// them is over; then others' changes wait until [`give_back_claim`](Self::give_back_claim). O(requests under way).
    pub fn claim(&mut self, token: u64, offset: u64, length: u64) {
        self.seat.requests += 1;
        self.conductor.claim(self.seat, token, offset, length);
    }

    /// Gives back what was claimed for `token`.
    pub fn give_back_claim(&mut self, token: u64) {
        self.conductor.give_back_claim(self.seat, token);
    }

    /// Puts an operation of the front end's own on the ring, which answers with
    /// [`FrontEnd::ring_completed`](super::FrontEnd::ring_completed).
    ///
    /// `tag` is the front end's name for it, below 2^24; one tag may be under way once at a time.
    ///
    /// # Safety
    /// Every address and descriptor in `entry` stays valid, and what the kernel writes to stays unused, until the
    /// operation completes. The engine helps: it keeps the front end until all of its operations have.
    pub unsafe fn push(&mut self, entry: squeue::Entry, tag: u32) {
        self.seat.operations += 1;
        // SAFETY: the caller's promise.
        unsafe { self.conductor.ring.push(entry, Owner::FrontEnd(self.seat.index, tag)) }
    }

    /// Asks the kernel to cancel the operation called `tag`. It completes all the same, with `ECANCELED` or its result.
    pub fn cancel(&mut self, tag: u32) {
        self.conductor.ring.cancel(Owner::FrontEnd(self.seat.index, tag));
    }

    /// Abandons the front end's requests. Those that have not reached a backend are dropped. They complete all the
    /// same, as `ECANCELED`. Later requests for bytes of the others wait for them.
    pub fn abandon_requests(&mut self) {
        let own = self.seat.index;
        self.conductor.abandon(|front_end, _| front_end == own);
        self.conductor.abandon_fetches(own);
    }

    /// The same of the requests that the front end calls by these names. O(requests and pieces under way of all front
    /// ends), however many they are; nothing if there are none.
    pub fn abandon_called(&mut self, tokens: &[u64]) {
        let own = self.seat.index;
        if !tokens.is_empty() {
            self.conductor.abandon(|front_end, token| front_end == own && tokens.contains(&token));
        }
    }

    /// Abandons all requests of the front ends with these [numbers](Self::number), which may go on.
    pub fn abandon_requests_of(&mut self, numbers: &[u32]) {
        if !numbers.is_empty() {
            self.conductor.abandon(|front_end, _| numbers.contains(&front_end));
        }
    }

    /// The front end's number on its engine, used again after it is gone.
    pub fn number(&self) -> u32 {
        self.seat.index
    }

    /// Waits until abandoned requests, of any front end, change the volume no more.
    /// [`FrontEnd::request_completed`](super::FrontEnd::request_completed) then hears of `token`.
    pub fn wait_for_abandoned(&mut self, token: u64) {
        self.seat.requests += 1;
        self.conductor.wait_for_abandoned(self.seat, token);
    }
}
