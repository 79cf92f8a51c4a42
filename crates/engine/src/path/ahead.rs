//! Reading ahead for the sessions of a volume: it drives `crate::read_ahead`.
//!
//! ```text
//!   Begin -> Reader::read ---+--> alone: pieces -> scheduler, as if there were no reading ahead
//!                            +--> here: copied out of slots; what is under way is waited for <--+
//!                            +--> a fetch: a request of the session -> scheduler -> slot --------+
//!   after pump, while no read waits: Reader::next_ahead --> a fetch, likewise
//!   a write, trim or write-zeroes --> Changes: reads of it go alone --> RequestDone: changed, cut off
//! ```
//!
//! **Rule.** A fetch is a request of the session that reads, so that whatever holds for the session's requests holds
//! for it: limit, share, books. A fetch without a waiting read reaches the scheduler under two conditions. No read
//! waits there for the device, and no request of its own session does. So it comes after every read that a client waits
//! for. A session that ends gives its fetches up.
//!
//! **Complication.** A fetch may fail although the waiting read would not, because another part of the chunk cannot be
//! read. So a read with a failed fetch is read again by itself, and what comes of that is the answer.
//!
//! A volume in memory has the bytes already. Reading ahead then obtains the device model's permission to hand them out.
//! Where tags name the causes of a block, nothing is read ahead: what is read ahead has no cause yet.

use super::asker::Asker;
use super::ground::Ground;
use super::next::Next;
use super::request::Request;
use super::table::Table;
use crate::backend::{Backend, Volume};
use crate::buffer::{Arena, Buffer, BufferClass};
use crate::by_volume::ByVolume;
use crate::read_ahead::{Changes, Fetch, Figures, Lookup, ReadAhead, ReadSegment, Reader};
use crate::slab::Slab;
use crate::status::ReadAheadStatus;
use crate::submission::{CacheBlock, Payload, Submission};
use plimsoll_core::{AccountId, Class, Operation};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;

/// Sessions of a volume that may read ahead at a time.
const PLACES: usize = 64;
/// Sessions that are considered for reading ahead in one go.
const LOOKS_MAX: usize = 16;

/// What is read ahead in a volume.
struct VolumeReadAhead {
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
    /// Memory of its slots; only with a place, and not if the volume itself is in memory.
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
    part: ReadSegment,
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
    unsafe fn copy(&self, part: &ReadSegment, target: *mut u8) {
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

/// Destination of a read that was found in slots; `None` if the bytes are in the volume itself.
fn target_of(request: &Request) -> Option<*mut u8> {
    match &request.asked.payload {
        Payload::Buffer { .. } => request.asked.payload.as_ptr().map(<*const u8>::cast_mut),
        _ => None,
    }
}

impl Session {
    /// Copies the available bytes of a read and remembers the missing ones. Says whether all were available.
    fn hand_out(&mut self, index: u32, request: &Request) -> bool {
        let Session { reader, memory, waiting, .. } = self;
        let mut is_whole = true;
        reader.hand_out(request.asked.offset, request.asked.length, |part| {
            match (part.is_ready, target_of(request), &*memory) {
                // SAFETY: a slot that is ready is not being filled; `check` found the payload to hold the whole
                // request.
                (true, Some(target), Some(memory)) => unsafe { memory.copy(&part, target) },
                (true, ..) => {}
                (false, ..) => {
                    is_whole = false;
                    waiting.push(WaitingPart { request: index, part });
                }
            }
        });
        is_whole
    }
}

impl VolumeReadAhead {
    fn new(settings: ReadAhead) -> VolumeReadAhead {
        let sessions = Slab::with_capacity(0);
        let (changes, closed) = (Changes::default(), Figures::default());
        let places = Vec::with_capacity(PLACES);
        VolumeReadAhead { settings, sessions, places, changes, closed }
    }

    /// Something has been written, trimmed or zeroed. O(places x slots).
    fn changed(&mut self, offset: u64, length: u32) {
        self.changes.end(offset, length);
        for &number in &self.places {
            self.sessions[number].reader.changed(offset, length);
        }
    }

    /// Gives a session a place, and memory if the volume is not in memory, unless it has them. Says whether it has them
    /// now. A pool gets one as long as it has fewer than are free (dynamic thresholds: Choudhury, Hahne, ToN 6(2),
    /// 1998). So it gets half of them at most, and never the last.
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

    fn status(&self) -> ReadAheadStatus {
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

/// What reading ahead has to know of a volume.
#[derive(Clone, Copy)]
pub(crate) struct AheadOf<'engine> {
    pub(crate) number: u32,
    pub(crate) volume: &'engine Volume,
    /// A cache stands before it.
    pub(crate) has_cache: bool,
    /// Whether tags name the causes of its blocks for the levels above.
    pub(crate) has_causes: bool,
}

/// Reading ahead in all volumes.
#[derive(Default)]
pub(crate) struct Ahead {
    volumes: ByVolume<VolumeReadAhead>,
    /// Sessions that may have something to read ahead: volume, number.
    wishing: VecDeque<(u32, u32)>,
    /// Front ends that waited for nothing but what was read ahead for them.
    pub(crate) through: Vec<u32>,
}

impl Ahead {
    /// Applies `settings` to a volume that no front end uses; `None`: no reading ahead.
    pub(crate) fn set(&mut self, volume: u32, settings: Option<ReadAhead>) {
        self.volumes.set(volume, settings.map(|settings| Box::new(VolumeReadAhead::new(settings))));
    }

    pub(crate) fn status(&self, volume: u32) -> Option<ReadAheadStatus> {
        self.volumes.get(volume).map(VolumeReadAhead::status)
    }

    /// A session begins to read through the front end at `front_end`. Answers its number if its volume is read ahead.
    /// `pool`: the account's.
    pub(crate) fn open_reader(
        &mut self,
        (volume, size_bytes): (u32, u64),
        front_end: u32,
        account: AccountId,
        pool: Option<AccountId>,
    ) -> Option<u32> {
        let ahead = self.volumes.get_mut(volume)?;
        Some(ahead.sessions.insert(Session {
            front_end,
            account,
            pool,
            reader: Reader::new(ahead.settings, size_bytes),
            has_place: false,
            memory: None,
            waiting: Vec::new(),
            fetches: 0,
            is_listed: false,
            is_closing: false,
        }))
    }

    /// Whether the session that leaves its seat has no fetch under way; gives up those that it has.
    pub(crate) fn is_through(&mut self, table: &mut Table, volume: u32, reader: Option<u32>) -> bool {
        let ahead = reader.zip(self.volumes.get_mut(volume));
        let session = ahead.and_then(|(number, ahead)| Some((number, ahead.sessions.get_mut(number)?)));
        let Some((number, session)) = session else { return true };
        if session.fetches > 0 && !std::mem::replace(&mut session.is_closing, true) {
            session.reader.close();
            give_up_fetches(table, volume, number);
            return false;
        }
        session.fetches == 0
    }

    /// A session reads no more, and nothing of it is under way.
    pub(crate) fn close_reader(&mut self, volume: u32, reader: Option<u32>) {
        let Some(number) = reader else { return };
        let Some(ahead) = self.volumes.get_mut(volume) else { return };
        let Some(mut session) = ahead.sessions.remove(number) else { return };
        session.reader.close();
        ahead.closed.add(session.reader.figures());
        ahead.places.retain(|&other| other != number);
    }

    /// Marks what is read ahead for the session that sits there as abandoned. O(sessions + requests).
    pub(crate) fn give_up_fetches_for(&mut self, table: &mut Table, front_end: u32) {
        for (volume, ahead) in self.volumes.iter() {
            if let Some((number, _)) = ahead.sessions.iter().find(|(_, other)| other.front_end == front_end) {
                give_up_fetches(table, volume, number);
            }
        }
    }

    /// A request goes to its volume: until it is done, what it writes, trims or zeroes is left to the device.
    #[inline]
    pub(crate) fn begin_change(&mut self, request: &Request) {
        let Submission { operation, offset, length, .. } = request.asked;
        if operation.is_write()
            && let Some(ahead) = self.volumes.get_mut(request.volume)
        {
            ahead.changes.begin(offset, length);
        }
    }

    /// A request is done, and no front end has heard of it: what it wrote, trimmed or zeroed is read anew.
    #[inline]
    pub(crate) fn change_done(&mut self, request: &Request) {
        let Submission { operation, offset, length, .. } = request.asked;
        if operation.is_write()
            && let Some(ahead) = self.volumes.get_mut(request.volume)
        {
            ahead.changed(offset, length);
        }
    }

    /// Takes a request of a session of a volume that is read ahead.
    pub(crate) fn read(&mut self, ground: &mut Ground, table: &mut Table, of: AheadOf<'_>, number: u32, index: u32) {
        let request = &table.requests[index];
        self.begin_change(request);
        let is_in_memory = matches!(of.volume.backend, Backend::Memory(_));
        // A volume in memory that had a cache a moment ago gets reads with buffers.
        let is_meant = request.asked.operation == Operation::Read && !of.has_causes;
        let is_meant = is_meant && is_in_memory == matches!(request.asked.payload, Payload::Volume(_));
        let Some(ahead) = self.volumes.get_mut(of.number) else { return ground.then(Next::Add(index)) };
        if !is_meant || ahead.changes.touch(request.asked.offset, request.asked.length) {
            return ground.then(Next::Add(index));
        }
        let found = ahead.sessions[number].reader.read(ground.now, request.asked.offset, request.asked.length);
        let fetch = match found {
            Lookup::Miss => return ground.then(Next::Add(index)),
            Lookup::Hit(fetch) => fetch,
        };
        if let Some(fetch) = fetch
            && !ahead.take_place(number, is_in_memory)
        {
            ahead.sessions[number].reader.ended(fetch.slot, false);
            return ground.then(Next::Add(index));
        }
        let class = request.asked.class;
        let is_whole = ahead.sessions[number].hand_out(index, request);
        if let Some(fetch) = fetch {
            ahead.begin_fetch(ground, table, of, number, fetch, class);
        }
        if is_whole {
            ground.then(Next::RequestDone(index));
        }
        self.list(of.number, number);
    }

    /// Remembers that a session may have something to read ahead.
    fn list(&mut self, volume: u32, number: u32) {
        let ahead = self.volumes.get_mut(volume);
        let Some(session) = ahead.and_then(|ahead| ahead.sessions.get_mut(number)) else { return };
        if !session.is_closing && !std::mem::replace(&mut session.is_listed, true) {
            self.wishing.push_back((volume, number));
        }
    }

    /// Begins one fetch without a waiting read, if no read waits for the device. Says whether it did. O(slots).
    ///
    /// `is_held_back`: what waits does so because the scheduler has named a time, and not for the device.
    pub(crate) fn fetch_one<'engine>(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        is_held_back: bool,
        volume_of: impl Fn(u32) -> Option<AheadOf<'engine>>,
    ) -> bool {
        for _ in 0..self.wishing.len().min(LOOKS_MAX) {
            if ground.reads.sum().waiting > 0 && !is_held_back {
                return false;
            }
            let Some((volume, number)) = self.wishing.pop_front() else { return false };
            let Some(of) = volume_of(volume) else { continue };
            let Some(ahead) = self.volumes.get_mut(volume) else { continue };
            let Some(session) = ahead.sessions.get_mut(number) else { continue };
            // A cache that came while the volume was used goes before what is read ahead.
            if of.has_cache || !session.has_place {
                session.is_listed = false;
                continue;
            }
            if ground.reads.of(session.account).waiting > 0 {
                self.wishing.push_back((volume, number));
                continue;
            }
            session.is_listed = false;
            let Some(fetch) = session.reader.next_ahead(ground.now) else { continue };
            ahead.begin_fetch(ground, table, of, number, fetch, Class::UNCLASSIFIED);
            self.list(volume, number);
            return true;
        }
        false
    }

    /// A fetch has ended: its waiting reads are answered, or go to the device by themselves.
    pub(crate) fn fetched(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        volume: u32,
        (number, slot): (u32, u32),
        error: Option<Errno>,
    ) {
        // A cache that begins waits for fetches, too, and no other request may come to it.
        ground.then(Next::CacheMoved(volume));
        let Some(ahead) = self.volumes.get_mut(volume) else { return };
        let session = &mut ahead.sessions[number];
        session.fetches -= 1;
        let Session { memory, waiting, .. } = session;
        if let (None, Some(memory)) = (error, &*memory) {
            for WaitingPart { request, part } in waiting.iter().filter(|waiting| waiting.part.slot == slot) {
                if let Some(target) = target_of(&table.requests[*request]) {
                    // SAFETY: the fetch has ended; `check` found the payload to hold the whole request.
                    unsafe { memory.copy(part, target) };
                }
            }
        }
        session.reader.ended(slot, error.is_none());
        if session.is_closing && session.fetches == 0 {
            self.through.push(session.front_end);
        }
        let waiting = &mut session.waiting;
        while let Some(place) = waiting.iter().position(|waiting| waiting.part.slot == slot) {
            let WaitingPart { request, .. } = waiting.swap_remove(place);
            if error.is_some() {
                waiting.retain(|other| other.request != request);
                read_alone(ground, table, request);
            } else if waiting.iter().all(|other| other.request != request) {
                ground.then(Next::RequestDone(request));
            }
        }
        self.list(volume, number);
    }
}

impl VolumeReadAhead {
    /// Begins to read a chunk, as a request of the session and of the class of the waiting read.
    fn begin_fetch(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        of: AheadOf<'_>,
        number: u32,
        fetch: Fetch,
        class: Class,
    ) {
        let Fetch { slot, offset, length } = fetch;
        let bytes = of.volume.bytes_in_memory(offset, length).filter(|_| !of.has_cache);
        let session = &mut self.sessions[number];
        session.fetches += 1;
        let payload = match (bytes, &mut session.memory) {
            (Some(bytes), _) => Payload::Volume(bytes),
            (None, Some(memory)) => Payload::Cache(CacheBlock(memory.slots[slot as usize].as_mut_ptr())),
            (None, None) => unreachable!("a session of a volume that is not in memory has got some with its place"),
        };
        let (token, operation, asker) = (0, Operation::Read, Asker::ReadAhead { session: number, slot });
        let submission = Submission { token, operation, offset, length, is_forced: false, class, payload };
        let request = Request::new(asker, of.number, session.account, submission, ground.now);
        ground.then(Next::Add(table.requests.insert(request)));
    }
}

/// Marks what is read ahead for a session as abandoned. O(requests).
fn give_up_fetches(table: &mut Table, volume: u32, number: u32) {
    for index in 0..table.requests.places() as u32 {
        let Some(request) = table.requests.get_mut(index) else { continue };
        let is_fetch = matches!(request.asker, Asker::ReadAhead { session, .. } if session == number);
        request.is_abandoned |= is_fetch && request.volume == volume;
    }
}

/// A fetch for a request failed: the request goes to the device by itself.
fn read_alone(ground: &mut Ground, table: &mut Table, index: u32) {
    let request = &mut table.requests[index];
    if request.is_abandoned {
        request.error = Some(Errno::CANCELED);
        return ground.then(Next::RequestDone(index));
    }
    ground.then(Next::Add(index));
}

#[cfg(test)]
mod tests;
