//! Reading ahead for the sessions of a volume: it drives `crate::read_ahead`.
//!
//! ```text
//!   submit -> Reader::read --+--> alone: pieces -> scheduler, as if there were no reading ahead
//!                            +--> here: copied out of slots; what is under way is waited for <--+
//!                            +--> a fetch: a request of the session -> scheduler -> slot --------+
//!   after pump, while no read waits: Reader::next_ahead --> a fetch, likewise
//!   a write, trim or write-zeroes --> Changes: reads of it go alone --> request_done: changed, cut off
//! ```
//!
//! **Rule.** A fetch is a request of the session that reads, so that whatever holds for the session's requests holds
//! for it: limit, share, books. A fetch that no read waits for yet comes to the scheduler only while no read waits
//! there for the device, and none of its own session at all. So it comes after every read that a client waits for. A
//! session that ends gives its fetches up.
//!
//! **Complication.** A fetch may fail for reasons that are not those of the read that waits for it: another part of the
//! chunk cannot be read. So a read with a failed fetch is read again by itself, and what comes of that is the answer.
//!
//! In a volume in memory the bytes are there already, and what is read ahead is the permission of the device model to
//! hand them out. Where tags name the causes of a block, nothing is read ahead: what is read ahead has no cause yet.

use super::buffer::{Arena, Buffer, BufferClass};
use super::core::Core;
use super::error::EngineError;
use super::request::Request;
use super::seat::Seat;
use super::slab::Slab;
use super::status::ReadAheadStatus;
use super::submission::{CacheBlock, Payload, Submission};
use crate::backend::Backend;
use crate::path::asker::Asker;
use crate::read_ahead::{Changes, Fetch, Figures, Found, Part, ReadAhead, Reader};
use plimsoll_core::{AccountId, Class, Operation};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;

/// Sessions of a volume that may read ahead at a time.
const PLACES: usize = 64;
/// Sessions that are looked at in one go for what they would like to read ahead.
const LOOKS_MAX: usize = 16;

/// What sessions of all volumes would like, and which of them have ended.
#[derive(Default)]
pub(super) struct Wishes {
    /// Sessions that may have something to read ahead: volume, number.
    wishing: VecDeque<(u32, u32)>,
    /// Front ends that waited for nothing but what was read ahead for them.
    pub(super) through: Vec<u32>,
}

/// What is read ahead in a volume.
pub(super) struct VolumeReadAhead {
    settings: ReadAhead,
    sessions: Slab<Session>,
    /// Sessions that may read ahead: all others have nothing in their slots.
    places: Vec<u32>,
    /// Writes, trims and write-zeroes under way.
    changes: Changes,
    /// Figures of the sessions that have closed.
    closed: Figures,
}

/// A session that reads.
struct Session {
    front_end: u32,
    account: AccountId,
    /// The pool that the account is in.
    pool: Option<AccountId>,
    reader: Reader,
    /// It may read ahead: from its first stream on, if there was a place.
    has_place: bool,
    /// Of its slots; only with a place, and not where the volume itself is in memory.
    memory: Option<SlotMemory>,
    /// Parts of reads that wait for fetches.
    waiting: Vec<WaitingPart>,
    /// Fetches under way.
    fetches: u32,
    /// It stands among those that may have something to read ahead.
    is_listed: bool,
    is_closing: bool,
}

struct WaitingPart {
    request: u32,
    part: Part,
}

/// The bytes of a session's slots.
struct SlotMemory {
    arena: Arena,
    slots: Vec<Buffer>,
}

impl SlotMemory {
    fn new(settings: ReadAhead) -> io::Result<SlotMemory> {
        let (bytes, count) = (settings.chunk_bytes(), settings.slots() as u16);
        let mut arena = Arena::new(&[BufferClass { bytes, count }], None)?;
        let slots = (0..count).map(|_| arena.take(bytes).expect("as many as there are")).collect();
        Ok(SlotMemory { arena, slots })
    }

    /// Copies what a slot has of a read to where the read wants it.
    ///
    /// # Safety
    /// Nothing is being fetched into the slot, and the part lies in the bytes that begin at `target`.
    unsafe fn copy(&self, part: &Part, target: *mut u8) {
        let slot = &self.slots[part.slot as usize];
        debug_assert!((part.at_in_slot + part.length) as usize <= slot.capacity());
        // SAFETY: a part lies in its slot, and the caller vouches for the rest.
        unsafe {
            let source = slot.as_ptr().add(part.at_in_slot as usize);
            std::ptr::copy_nonoverlapping(source, target.add(part.at_in_read as usize), part.length as usize);
        }
    }
}

impl Drop for SlotMemory {
    fn drop(&mut self) {
        let SlotMemory { arena, slots } = self;
        slots.drain(..).for_each(|slot| arena.give(slot));
    }
}

/// Where a read that was found in slots wants its bytes; `None` where they are in the volume itself.
fn target_of(request: &Request) -> Option<*mut u8> {
    match &request.payload {
        Payload::Buffer { .. } => request.payload.as_ptr().map(<*const u8>::cast_mut),
        _ => None,
    }
}

impl Session {
    /// Copies what is there of a read and remembers what is not yet. Says whether all of it was.
    fn hand_out(&mut self, index: u32, request: &Request) -> bool {
        let Session { reader, memory, waiting, .. } = self;
        let mut is_whole = true;
        reader.hand_out(request.offset, request.length, |part| match (part.is_ready, target_of(request), &*memory) {
            // SAFETY: a slot that is ready is not being filled; `check` found the payload to hold the whole request.
            (true, Some(target), Some(memory)) => unsafe { memory.copy(&part, target) },
            (true, ..) => {}
            (false, ..) => {
                is_whole = false;
                waiting.push(WaitingPart { request: index, part });
            }
        });
        is_whole
    }
}

impl VolumeReadAhead {
    pub(super) fn new(settings: ReadAhead) -> VolumeReadAhead {
        let sessions = Slab::with_capacity(0);
        let (changes, closed) = (Changes::default(), Figures::default());
        let places = Vec::with_capacity(PLACES);
        VolumeReadAhead { settings, sessions, places, changes, closed }
    }

    /// Something has been written, trimmed or zeroed. O(places x slots).
    pub(super) fn changed(&mut self, offset: u64, length: u32) {
        self.changes.end(offset, length);
        for &number in &self.places {
            self.sessions[number].reader.changed(offset, length);
        }
    }

    /// Gives a session a place, and memory if the volume itself is none, unless it has them. Says whether it has them now. A pool
    /// gets one as long as it has fewer than are free (dynamic thresholds: Choudhury, Hahne, ToN 6(2), 1998): half of them at the
    /// most, and never the last.
    fn take_place(&mut self, number: u32, is_in_memory: bool) -> bool {
        let Session { has_place, pool, .. } = self.sessions[number];
        if has_place {
            return true;
        }
        let of_pool = self.places.iter().filter(|&&other| self.sessions[other].pool == pool).count();
        if of_pool >= PLACES - self.places.len() {
            return false;
        }
        if !is_in_memory {
            // Without memory everything goes on but reading ahead.
            let Ok(memory) = SlotMemory::new(self.settings) else { return false };
            self.sessions[number].memory = Some(memory);
        }
        self.sessions[number].has_place = true;
        self.places.push(number);
        true
    }

    pub(super) fn status(&self) -> ReadAheadStatus {
        let mut sum = self.closed;
        self.sessions.iter().for_each(|(_, session)| sum.add(session.reader.figures()));
        let memories = self.sessions.iter().filter(|(_, session)| session.memory.is_some()).count() as u64;
        ReadAheadStatus {
            bytes_max: self.settings.bytes().into(),
            memory_bytes: memories * self.settings.memory_bytes(),
            fetched_bytes: sum.fetched_bytes,
            used_bytes: sum.used_bytes,
            wasted_bytes: sum.wasted_bytes,
        }
    }
}

impl Core {
    /// Has `settings` hold for a volume that no front end uses; `None`: nothing is read ahead.
    pub(super) fn set_read_ahead(&mut self, name: &str, settings: Option<ReadAhead>) -> Result<(), EngineError> {
        let volume = self.volume(name)?;
        let seat = &mut self.volumes[volume];
        if seat.front_ends > 0 {
            return Err(EngineError::VolumeInUse { name: name.to_owned(), front_ends: seat.front_ends });
        }
        // What is in memory and not held back is there already.
        let is_slow = self.emulation.is_some() || !matches!(seat.volume.backend, Backend::Memory(_));
        seat.read_ahead = settings.filter(|_| is_slow).map(|settings| Box::new(VolumeReadAhead::new(settings)));
        Ok(())
    }

    /// A session begins to read, through the front end at `front_end`; its number, where its volume is read ahead.
    pub(super) fn open_reader(&mut self, volume: u32, front_end: u32, account: AccountId) -> Option<u32> {
        let seat = &mut self.volumes[volume];
        let ahead = seat.read_ahead.as_deref_mut()?;
        Some(ahead.sessions.insert(Session {
            front_end,
            account,
            pool: self.tree.get(account).and_then(|account| account.parent),
            reader: Reader::new(ahead.settings, seat.volume.info().size_bytes),
            has_place: false,
            memory: None,
            waiting: Vec::new(),
            fetches: 0,
            is_listed: false,
            is_closing: false,
        }))
    }

    /// Whether nothing is under way any more that was read ahead for the session that leaves its seat; if not, it is
    /// given up.
    pub(super) fn reader_is_through(&mut self, seat: &Seat) -> bool {
        let Some((number, session)) = self.session_of(seat) else { return true };
        if session.fetches > 0 && !std::mem::replace(&mut session.is_closing, true) {
            session.reader.close();
            self.give_up_fetches(seat.volume, number);
            return false;
        }
        session.fetches == 0
    }

    /// A session reads no more, and nothing of it is under way.
    pub(super) fn close_reader(&mut self, seat: &Seat) {
        let Some(number) = seat.reader else { return };
        let Some(ahead) = self.volumes[seat.volume].read_ahead.as_deref_mut() else { return };
        let Some(mut session) = ahead.sessions.remove(number) else { return };
        session.reader.close();
        ahead.closed.add(session.reader.figures());
        ahead.places.retain(|&other| other != number);
    }

    fn session_of(&mut self, seat: &Seat) -> Option<(u32, &mut Session)> {
        let number = seat.reader?;
        let ahead = self.volumes[seat.volume].read_ahead.as_deref_mut()?;
        Some((number, ahead.sessions.get_mut(number)?))
    }

    /// Marks what is read ahead for a session as abandoned. O(requests).
    fn give_up_fetches(&mut self, volume: u32, number: u32) {
        for index in 0..self.requests.places() as u32 {
            let Some(request) = self.requests.get_mut(index) else { continue };
            let is_fetch = matches!(request.asker, Asker::ReadAhead { session, .. } if session == number);
            request.is_abandoned |= is_fetch && request.volume == volume;
        }
    }

    /// The same, for the session that sits there. O(sessions + requests).
    pub(super) fn give_up_fetches_for(&mut self, front_end: u32) {
        for volume in 0..self.volumes.places() as u32 {
            let ahead = self.volumes.get(volume).and_then(|seat| seat.read_ahead.as_deref());
            let session = ahead.and_then(|ahead| ahead.sessions.iter().find(|(_, other)| other.front_end == front_end));
            if let Some((number, _)) = session {
                self.give_up_fetches(volume, number);
            }
        }
    }

    /// A request goes to its volume: until it is done, what it writes, trims or zeroes is left to the device.
    pub(super) fn begin_change(&mut self, index: u32) {
        let Request { operation, volume, offset, length, .. } = self.requests[index];
        if operation.is_write()
            && let Some(ahead) = self.volumes[volume].read_ahead.as_deref_mut()
        {
            ahead.changes.begin(offset, length);
        }
    }

    /// Takes a request of a session of a volume that is read ahead.
    pub(super) fn submit_to_reader(&mut self, number: u32, index: u32) {
        self.begin_change(index);
        let request = &self.requests[index];
        let volume = request.volume;
        let seat = &mut self.volumes[volume];
        let has_causes = seat.tags.is_some() && self.upper_levels.is_some();
        let is_in_memory = matches!(seat.volume.backend, Backend::Memory(_));
        // A volume in memory that had a cache a moment ago gets reads with buffers.
        let is_meant = request.operation == Operation::Read && !has_causes;
        let is_meant = is_meant && is_in_memory == matches!(request.payload, Payload::Volume(_));
        let Some(ahead) = seat.read_ahead.as_deref_mut() else { return self.add_pieces(index) };
        if !is_meant || ahead.changes.touch(request.offset, request.length) {
            return self.add_pieces(index);
        }
        let found = ahead.sessions[number].reader.read(self.now, request.offset, request.length);
        let fetch = match found {
            Found::Alone => return self.add_pieces(index),
            Found::Here(fetch) => fetch,
        };
        if let Some(fetch) = fetch
            && !ahead.take_place(number, is_in_memory)
        {
            ahead.sessions[number].reader.ended(fetch.slot, false);
            return self.add_pieces(index);
        }
        let class = request.class;
        let is_whole = ahead.sessions[number].hand_out(index, request);
        if let Some(fetch) = fetch {
            self.begin_fetch(volume, number, fetch, class);
        }
        if is_whole {
            self.request_done(index);
        }
        self.list(volume, number);
    }

    /// Remembers that a session may have something to read ahead.
    fn list(&mut self, volume: u32, number: u32) {
        let ahead = self.volumes[volume].read_ahead.as_deref_mut();
        let Some(session) = ahead.and_then(|ahead| ahead.sessions.get_mut(number)) else { return };
        if !session.is_closing && !std::mem::replace(&mut session.is_listed, true) {
            self.wishes.wishing.push_back((volume, number));
        }
    }

    /// Begins one fetch that no read waits for yet, if no read waits for the device. Says whether it did. O(slots).
    pub(super) fn read_ahead(&mut self) -> bool {
        for _ in 0..self.wishes.wishing.len().min(LOOKS_MAX) {
            // What waits although the scheduler has named a time is held back by a rule, and not for the device.
            let waits_for_device = self.ask_again.is_none() || self.bytes_left == 0;
            if self.reads.sum().waiting > 0 && waits_for_device {
                return false;
            }
            let Some((volume, number)) = self.wishes.wishing.pop_front() else { return false };
            let Some(seat) = self.volumes.get_mut(volume) else { continue };
            let ahead = seat.read_ahead.as_deref_mut();
            let Some(session) = ahead.and_then(|ahead| ahead.sessions.get_mut(number)) else { continue };
            // A cache that came while the volume was used goes before what is read ahead.
            if seat.cache.is_some() || !session.has_place {
                session.is_listed = false;
                continue;
            }
            if self.reads.of(session.account).waiting > 0 {
                self.wishes.wishing.push_back((volume, number));
                continue;
            }
            session.is_listed = false;
            let Some(fetch) = session.reader.next_ahead(self.now) else { continue };
            self.begin_fetch(volume, number, fetch, Class::UNCLASSIFIED);
            self.list(volume, number);
            return true;
        }
        false
    }

    /// Has a chunk read, as a request of the session, of the class that the read says which waits for it.
    fn begin_fetch(&mut self, volume: u32, number: u32, fetch: Fetch, class: Class) {
        let Fetch { slot, offset, length } = fetch;
        let bytes = self.volume_bytes(volume, offset, length);
        let Some(ahead) = self.volumes[volume].read_ahead.as_deref_mut() else { return };
        let session = &mut ahead.sessions[number];
        session.fetches += 1;
        let payload = match (bytes, &mut session.memory) {
            (Some(bytes), _) => Payload::Volume(bytes),
            (None, Some(memory)) => Payload::Cache(CacheBlock(memory.slots[slot as usize].as_mut_ptr())),
            (None, None) => unreachable!("a session whose volume is not in memory has got some with its place"),
        };
        let (token, operation, asker) = (0, Operation::Read, Asker::ReadAhead { session: number, slot });
        let submission = Submission { token, operation, offset, length, is_forced: false, class, payload };
        let request = Request::new(asker, volume, session.account, submission, self.now);
        let index = self.requests.insert(request);
        self.add_pieces(index);
    }

    /// A fetch has ended: a read that waits for it is answered, or reads by itself.
    pub(super) fn fetch_done(&mut self, volume: u32, number: u32, slot: u32, error: Option<Errno>) {
        // A cache that begins waits for fetches, too, and no other request may come to it.
        self.cache_has_work(volume);
        let Some(ahead) = self.volumes[volume].read_ahead.as_deref_mut() else { return };
        let session = &mut ahead.sessions[number];
        session.fetches -= 1;
        let mut waiting = std::mem::take(&mut session.waiting);
        if let (None, Some(memory)) = (error, &session.memory) {
            for WaitingPart { request, part } in waiting.iter().filter(|waiting| waiting.part.slot == slot) {
                if let Some(target) = target_of(&self.requests[*request]) {
                    // SAFETY: the fetch has ended; `check` found the payload to hold the whole request.
                    unsafe { memory.copy(part, target) };
                }
            }
        }
        session.reader.ended(slot, error.is_none());
        if session.is_closing && session.fetches == 0 {
            self.wishes.through.push(session.front_end);
        }
        while let Some(place) = waiting.iter().position(|waiting| waiting.part.slot == slot) {
            let WaitingPart { request, .. } = waiting.swap_remove(place);
            if error.is_some() {
                waiting.retain(|other| other.request != request);
                self.read_alone(request);
            } else if waiting.iter().all(|other| other.request != request) {
                self.request_done(request);
            }
        }
        let ahead = self.volumes[volume].read_ahead.as_deref_mut().expect("it was there a moment ago");
        ahead.sessions[number].waiting = waiting;
        self.list(volume, number);
    }

    /// What was read ahead for a request could not be read: it goes its own way.
    fn read_alone(&mut self, index: u32) {
        let request = &mut self.requests[index];
        if request.is_abandoned {
            request.error = Some(Errno::CANCELED);
            return self.request_done(index);
        }
        self.add_pieces(index);
    }
}
