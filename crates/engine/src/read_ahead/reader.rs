//! What a session reads ahead: its streams, and the slots in which their chunks lie.
//!
//! ```text
//!   Free --fetch--> UnderWay --ended--> Ready --handed out, passed, or its stream has gone--> Free
//!                      |  changed: its part is cut off      |
//!                      +--------------- failed -------------+--> Free
//! ```

use super::ReadAhead;
use super::streams::{Belongs, STREAMS_MAX, Stream, Streams};
use plimsoll_core::Time;

/// Fetches of a session without a waiting read that are under way at a time. Enough for a device to go on without a
/// pause, few enough to leave it to others.
const AHEAD_UNDER_WAY_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    UnderWay,
    Ready,
}

/// Room for one chunk.
#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    /// The stream that it was fetched for, if that is there still.
    stream: Option<usize>,
    /// First byte of the volume that is or will be in the slot's memory, and the number of bytes.
    base: u64,
    length: u32,
    /// What of these is as it is on the device: nothing that was changed since.
    from: u64,
    to: u64,
    /// Bytes that were handed out.
    used: u32,
    /// A read waited for it from the first.
    is_awaited: bool,
}

impl Slot {
    const FREE: Slot =
        Slot { state: State::Free, stream: None, base: 0, length: 0, from: 0, to: 0, used: 0, is_awaited: false };

    /// It was fetched for something.
    fn was_of_use(&self) -> bool {
        2 * self.used >= self.length
    }
}

/// How much of a read a reader has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Not all of it: it is read as if nothing were read ahead.
    Miss,
    /// All of it is in slots, or on its way there once this fetch, if there is one, has begun. [`Reader::hand_out`]
    /// says where.
    Hit(Option<Fetch>),
}

/// A chunk to be fetched into a slot. [`Reader::ended`] must follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) slot: u32,
    /// First byte in the volume.
    pub(crate) offset: u64,
    /// Bytes; at most a chunk.
    pub(crate) length: u32,
}

/// A part of a read that one slot has, or will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadSegment {
    pub(crate) slot: u32,
    /// First byte in the slot.
    pub(crate) at_in_slot: u32,
    /// First byte in what the read brings.
    pub(crate) at_in_read: u32,
    pub(crate) length: u32,
    /// The slot has it; otherwise it waits for the slot's fetch.
    pub(crate) is_ready: bool,
}

/// What became of bytes that were read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Bytes that were fetched.
    pub(crate) fetched_bytes: u64,
    /// Bytes that were handed out.
    pub(crate) used_bytes: u64,
    /// Bytes that were fetched and dropped before any read asked for them.
    pub(crate) wasted_bytes: u64,
}

impl Figures {
    pub(crate) fn add(&mut self, other: &Figures) {
        self.fetched_bytes += other.fetched_bytes;
        self.used_bytes += other.used_bytes;
        self.wasted_bytes += other.wasted_bytes;
    }
}

/// What a session reads ahead.
#[derive(Debug)]
pub(crate) struct Reader {
    streams: Streams,
    slots: Box<[Slot]>,
    chunk_bytes: u32,
    volume_bytes: u64,
    ahead_under_way: u32,
    figures: Figures,
}

impl Reader {
    /// Of a session of a volume of `volume_bytes`.
    pub(crate) fn new(settings: ReadAhead, volume_bytes: u64) -> Reader {
        Reader {
            streams: Streams::new(settings.chunk_bytes(), settings.window_max()),
            slots: vec![Slot::FREE; settings.slots() as usize].into(),
            chunk_bytes: settings.chunk_bytes(),
            volume_bytes,
            ahead_under_way: 0,
            figures: Figures::default(),
        }
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The client reads `length` bytes, inside of the volume. A read of a chunk or more is large already: it makes no
    /// stream.
    pub(crate) fn read(&mut self, now: Time, offset: u64, length: u32) -> Lookup {
        let end = offset + u64::from(length);
        let belongs = match length < self.chunk_bytes {
            true => self.streams.read(now, offset, length),
            false => Belongs::Nowhere,
        };
        if let Belongs::Begins(stream) = belongs
            && self.release(stream)
        {
            self.streams.distrust();
        }
        if self.first_missing(offset, end).is_none() {
            return Lookup::Hit(None);
        }
        let (Belongs::To(stream) | Belongs::Begins(stream)) = belongs else { return Lookup::Miss };
        self.retire_passed(now);
        self.make_room(now, stream);
        let missing = self.first_missing(offset, end).expect("no slot was filled");
        let fetch = self.fetch(stream, missing, end, true);
        fetch.map_or(Lookup::Miss, |fetch| Lookup::Hit(Some(fetch)))
    }

    /// Names each part of a read that was found [`Hit`](Lookup::Hit), in the order of its bytes.
    pub(crate) fn hand_out(&mut self, offset: u64, length: u32, mut part: impl FnMut(ReadSegment)) {
        let end = offset + u64::from(length);
        let mut at = offset;
        while at < end {
            let number = self.slot_at(at).expect("all of it was found");
            let slot = &mut self.slots[number];
            let length = (slot.to.min(end) - at) as u32;
            slot.used = slot.used.saturating_add(length);
            part(ReadSegment {
                slot: number as u32,
                at_in_slot: (at - slot.base) as u32,
                at_in_read: (at - offset) as u32,
                length,
                is_ready: slot.state == State::Ready,
            });
            at += u64::from(length);
            self.figures.used_bytes += u64::from(length);
            if slot.state == State::Ready && slot.used >= slot.length {
                self.retire(number);
            }
        }
    }

    /// The next fetch without a waiting read, for the stream with the least ahead.
    pub(crate) fn next_ahead(&mut self, now: Time) -> Option<Fetch> {
        if self.ahead_under_way >= AHEAD_UNDER_WAY_MAX {
            return None;
        }
        // A stream has what is ahead of it and the chunk that it is in.
        let window_max = (self.part_of_each(now) - 1).max(1);
        let wish = |number: usize| {
            let stream = self.streams.get(number)?;
            let from = self.covered_to(stream.ahead_to.max(stream.end()));
            let ahead = from - stream.end();
            // Begun when half a chunk less than the window is ahead.
            let half_chunks = 2 * u64::from(stream.window.min(window_max)) - 1;
            let is_wanted = from < self.volume_bytes && 2 * ahead < half_chunks * u64::from(self.chunk_bytes);
            is_wanted.then_some((ahead, number, from))
        };
        let (_, stream, from) = self.streams.numbers().filter_map(wish).min()?;
        self.retire_passed(now);
        self.make_room(now, stream);
        let fetch = self.fetch(stream, from, from + 1, false)?;
        self.ahead_under_way += 1;
        Some(fetch)
    }

    /// A fetch has ended. What waits for the slot has to be copied before.
    pub(crate) fn ended(&mut self, slot: u32, succeeded: bool) {
        let number = slot as usize;
        let Slot { stream, length, is_awaited, .. } = self.slots[number];
        self.ahead_under_way -= u32::from(!is_awaited);
        if !succeeded {
            self.slots[number] = Slot::FREE;
            if let Some(stream) = stream {
                // The client's own read is going to tell; what is there already stays for it.
                self.streams.end(stream);
                self.streams.distrust();
                self.slots.iter_mut().filter(|slot| slot.stream == Some(stream)).for_each(|slot| slot.stream = None);
            }
            return;
        }
        self.figures.fetched_bytes += u64::from(length);
        let slot = &mut self.slots[number];
        slot.state = State::Ready;
        if slot.used >= slot.length {
            self.retire(number);
        } else if slot.from >= slot.to {
            self.free(number);
        }
    }

    /// A range was written, trimmed or zeroed: earlier fetches of it are stale. O(slots).
    pub(crate) fn changed(&mut self, offset: u64, length: u32) {
        let end = offset + u64::from(length);
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            if slot.state == State::Free || end <= slot.from || slot.to <= offset {
                continue;
            }
            // A stream reads next what lies behind the change.
            if end < slot.to {
                slot.from = end;
            } else if slot.from < offset {
                slot.to = offset;
            } else {
                slot.to = slot.from;
            }
            if slot.from >= slot.to && slot.state == State::Ready {
                self.free(number);
            }
        }
    }

    /// Nothing more is to be read ahead: the session ends.
    pub(crate) fn close(&mut self) {
        (0..STREAMS_MAX).for_each(|stream| self.streams.end(stream));
        for number in 0..self.slots.len() {
            if self.slots[number].state == State::Ready {
                self.free(number);
            }
        }
    }

    /// The slot that has the byte at `offset`, or will have it.
    fn slot_at(&self, offset: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.state != State::Free && (slot.from..slot.to).contains(&offset))
    }

    /// The first byte from `offset` on that no slot has.
    fn covered_to(&self, offset: u64) -> u64 {
        std::iter::successors(Some(offset), |&at| self.slot_at(at).map(|slot| self.slots[slot].to))
            .last()
            .expect("there is a first")
    }

    fn first_missing(&self, offset: u64, end: u64) -> Option<u64> {
        Some(self.covered_to(offset)).filter(|&missing| missing < end)
    }

    /// Takes a slot for the part of the stream from `from` to at least `end`.
    fn fetch(&mut self, stream: usize, from: u64, end: u64, is_awaited: bool) -> Option<Fetch> {
        // Judgement on what it has passed may have ended it.
        self.streams.get(stream)?;
        let number = self.slots.iter().position(|slot| slot.state == State::Free)?;
        let next = self.slots.iter().filter(|slot| slot.state != State::Free && slot.from >= end);
        let next = next.map(|slot| slot.from).min().unwrap_or(self.volume_bytes);
        let to = (from + u64::from(self.chunk_bytes)).min(next).min(self.volume_bytes);
        let length = (to - from) as u32;
        let (state, base, of_stream) = (State::UnderWay, from, Some(stream));
        self.slots[number] = Slot { state, stream: of_stream, base, length, from, to, used: 0, is_awaited };
        let stream = self.streams.get_mut(stream).expect("just seen");
        stream.ahead_to = stream.ahead_to.max(to);
        Some(Fetch { slot: number as u32, offset: from, length })
    }

    /// Gives up slots that lie a chunk behind their streams, or belong to streams that are not read any more. If none
    /// is free, gives up those of streams that have failed.
    fn retire_passed(&mut self, now: Time) {
        let is_full = self.slots.iter().all(|slot| slot.state != State::Free);
        for number in 0..self.slots.len() {
            let Slot { state, stream, to, .. } = self.slots[number];
            let is_passed = match stream.and_then(|stream| self.streams.get(stream)) {
                Some(stream) => to + u64::from(self.chunk_bytes) <= stream.end() || self.streams.is_idle(now, stream),
                None => is_full,
            };
            if state == State::Ready && is_passed {
                self.retire(number);
            }
        }
    }

    /// Slots for each active stream: at least 2, since there are at most eight streams.
    fn part_of_each(&self, now: Time) -> u32 {
        self.slots.len() as u32 / self.streams.count(now).max(1)
    }

    /// If no slot is free, a stream with less than its part takes one from a stream with more than its part. It takes
    /// the one furthest ahead. Of several such streams, the one that was read longest ago gives it.
    fn make_room(&mut self, now: Time, stream: usize) {
        if self.slots.iter().any(|slot| slot.state == State::Free) {
            return;
        }
        let part = self.part_of_each(now);
        let mut held = [0; STREAMS_MAX];
        self.slots.iter().filter_map(|slot| slot.stream).for_each(|stream| held[stream] += 1);
        if held[stream] >= part {
            return;
        }
        let read_number = |number: &usize| self.streams.get(*number).map(Stream::read_number);
        let Some(other) = self.streams.numbers().filter(|&other| held[other] > part).min_by_key(read_number) else {
            return;
        };
        let is_his = |slot: &Slot| slot.state == State::Ready && slot.stream == Some(other);
        let his = (0..self.slots.len()).filter(|&number| is_his(&self.slots[number]));
        if let Some(furthest) = his.max_by_key(|&number| self.slots[number].base) {
            self.free(furthest);
        }
    }

    /// Frees a slot that is ready, and learns from what became of it.
    fn retire(&mut self, number: usize) {
        let slot = self.slots[number];
        self.free(number);
        match slot.stream {
            Some(stream) if slot.was_of_use() => self.streams.paid_off(stream),
            Some(stream) if self.streams.was_in_vain(stream) => drop(self.release(stream)),
            _ => {}
        }
    }

    /// Frees the ready slots of a stream that has ended. Slots under way then belong to no stream. Says whether some
    /// was of no use.
    fn release(&mut self, stream: usize) -> bool {
        let mut was_in_vain = false;
        for number in 0..self.slots.len() {
            let slot = &mut self.slots[number];
            if slot.state == State::Free || slot.stream != Some(stream) {
                continue;
            }
            slot.stream = None;
            was_in_vain |= !slot.was_of_use();
            if slot.state == State::Ready {
                self.free(number);
            }
        }
        was_in_vain
    }

    /// Empties a slot after its fetch has ended.
    fn free(&mut self, number: usize) {
        let Slot { length, used, .. } = std::mem::replace(&mut self.slots[number], Slot::FREE);
        self.figures.wasted_bytes += u64::from(length.saturating_sub(used));
    }
}

#[cfg(test)]
mod tests;
