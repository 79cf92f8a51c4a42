//! Calls with deadlines: held until their file is written, held until their turn, or under way.
//!
//! **Intuition.** A scheduler that holds calls must find the call with the earliest deadline among those it may let go.
//! It must also find the call that has waited long enough. **Rule.** Each call stands in one of three [lines](Line), in
//! each by deadline; while it is held, its patience counts too. **Complication.** A file is written as a whole, and
//! several calls may wait for it. So each waiting call is linked to the one that began to wait for the same file before
//! it.
//!
//! The first of a line is O(1), a change O(log5 calls), leaving the line of those that wait O(waiting for the file).
//! Nothing is allocated once as many calls were in it at once as ever are.

use crate::keyed_slab::KeyedSlab;
use crate::min_tree::{ABSENT, KEYS, MinTree};
use plimsoll_core::{CallId, FileId, Time};

/// The end of a list.
const NONE: u32 = u32::MAX;
/// The key by patience, in a tree of its own.
const PATIENCE: usize = 0;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Held until its file is written.
    Waiting = 0,
    /// Held until its turn.
    Ready = 1,
    /// The call is under way.
    UnderWay = 2,
}

/// A call, and what the scheduler keeps of it.
pub struct DeadlineCall<T> {
    /// The file.
    pub file: FileId,
    /// When it should be done.
    pub deadline: Time,
    /// When it should go on whatever it does to others.
    pub patience_ends: Time,
    /// What else is known of it.
    pub note: T,
    line: Line,
    /// The call that began to wait for the same file before.
    next_waiting: u32,
}

/// See the module's text. Calls are known by a place that they keep.
pub struct DeadlineCalls<T> {
    calls: KeyedSlab<CallId, DeadlineCall<T>>,
    by_deadline: MinTree,
    by_patience: MinTree,
    /// Places that the trees know.
    places: u32,
    /// By file, the call that began to wait for it last.
    waiting: KeyedSlab<FileId, u32>,
}

impl<T> Default for DeadlineCalls<T> {
    fn default() -> Self {
        let (by_deadline, by_patience) = (MinTree::default(), MinTree::default());
        DeadlineCalls {
            calls: KeyedSlab::default(),
            by_deadline,
            by_patience,
            places: 0,
            waiting: KeyedSlab::default(),
        }
    }
}

impl<T> DeadlineCalls<T> {
    /// Puts a new call into a line; answers with its place.
    pub fn insert(
        &mut self,
        id: CallId,
        line: Line,
        file: FileId,
        [deadline, patience_ends]: [Time; 2],
        note: T,
    ) -> u32 {
        let next_waiting = NONE;
        let place = self.calls.insert(id, DeadlineCall { file, deadline, patience_ends, note, line, next_waiting });
        if place == self.places {
            self.by_deadline.assign(place as usize, place);
            self.by_patience.assign(place as usize, place);
            self.places += 1;
        }
        self.stand(place, line);
        place
    }

    /// Where the call is, if it is here.
    pub fn find(&self, id: CallId) -> Option<u32> {
        self.calls.find(id)
    }

    /// A call by its place.
    pub fn get(&self, place: u32) -> &DeadlineCall<T> {
        self.calls.get(place)
    }

    /// Puts a call into another line and changes its note; answers with its number.
    pub fn move_to(&mut self, place: u32, line: Line, note: T) -> CallId {
        self.leave(place);
        let call = self.calls.get_mut(place);
        (call.line, call.note) = (line, note);
        self.stand(place, line);
        self.calls.key(place)
    }

    /// Takes a call out.
    pub fn remove(&mut self, place: u32) {
        self.leave(place);
        self.by_deadline.set(place as usize, [ABSENT; KEYS]);
        self.by_patience.set_one::<PATIENCE>(place as usize, ABSENT);
        self.calls.remove(place);
    }

    /// The earliest deadline of a line; [`Time::MAX`] if the line is empty.
    pub fn earliest(&self, line: Line) -> Time {
        Time::from_nanos(self.by_deadline.first(line as usize).key)
    }

    /// The call that has it.
    pub fn first(&self, line: Line) -> Option<u32> {
        let first = self.by_deadline.first(line as usize);
        (first.key != ABSENT).then_some(first.owner)
    }

    /// When the first of those that are held has been held for long enough; [`Time::MAX`] if none is.
    pub fn patience_ends(&self) -> Time {
        Time::from_nanos(self.by_patience.first(PATIENCE).key)
    }

    /// One that has been held for long enough.
    pub fn impatient(&self, now: Time) -> Option<u32> {
        (self.patience_ends() <= now).then_some(self.by_patience.first(PATIENCE).owner)
    }

    /// The call that began to wait for a file last.
    pub fn waiting_for(&self, file: FileId) -> Option<u32> {
        self.waiting.find(file).map(|list| *self.waiting.get(list))
    }

    /// Those that wait for a file are ready.
    pub fn stop_waiting_for(&mut self, file: FileId) {
        while let Some(place) = self.waiting_for(file) {
            self.leave(place);
            self.calls.get_mut(place).line = Line::Ready;
            self.stand(place, Line::Ready);
        }
    }

    fn stand(&mut self, place: u32, line: Line) {
        let call = self.calls.get_mut(place);
        let mut keys = [ABSENT; KEYS];
        keys[line as usize] = call.deadline.as_nanos();
        let patience_ends = if line == Line::UnderWay { Time::MAX } else { call.patience_ends };
        self.by_deadline.set(place as usize, keys);
        self.by_patience.set_one::<PATIENCE>(place as usize, patience_ends.as_nanos());
        if line == Line::Waiting {
            let list = self.waiting.find(call.file).unwrap_or_else(|| self.waiting.insert(call.file, NONE));
            call.next_waiting = std::mem::replace(self.waiting.get_mut(list), place);
        }
    }

    /// Takes a call that waits out of its file's list.
    fn leave(&mut self, place: u32) {
        let DeadlineCall { file, line, next_waiting: next, .. } = *self.calls.get(place);
        let Some(list) = self.waiting.find(file).filter(|_| line == Line::Waiting) else { return };
        let mut before = *self.waiting.get(list);
        if before == place && next == NONE {
            self.waiting.remove(list);
        } else if before == place {
            *self.waiting.get_mut(list) = next;
        } else {
            while self.calls.get(before).next_waiting != place {
                before = self.calls.get(before).next_waiting;
            }
            self.calls.get_mut(before).next_waiting = next;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and that turned the test red: a call under way is impatient; a call that stops waiting
    //! stays in its file's list; the middle of a list is cut off with what comes behind it.

    use super::*;
    use plimsoll_core::Span;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LINES: [Line; 3] = [Line::Waiting, Line::Ready, Line::UnderWay];

    /// A call of the obvious way: file, deadline, end of patience, line, and when it began to wait.
    type Entry = (FileId, Time, Time, Line, usize);

    proptest! {
        #[test]
        fn agrees_with_a_list(
            steps in proptest::collection::vec((0..12u64, 0..6usize, 0..3u64, 0..50u64, 0..50u64), 0..150),
        ) {
            let (mut calls, mut list) = (DeadlineCalls::default(), BTreeMap::<u64, Entry>::new());
            for (number, (id, what, file, deadline, patience)) in steps.into_iter().enumerate() {
                let at = |ms| Time::ZERO + Span::from_millis(ms) + Span::from_nanos(number as u64);
                let (file, line) = (FileId(file), LINES[what % 3]);
                match (calls.find(CallId(id)), what) {
                    (None, _) => {
                        let times = [at(deadline), at(patience)];
                        calls.insert(CallId(id), line, file, times, id);
                        list.insert(id, (file, times[0], times[1], line, number));
                    }
                    (Some(place), 0..3) => {
                        prop_assert_eq!((calls.get(place).note, calls.get(place).file), (id, list[&id].0));
                        prop_assert_eq!(calls.move_to(place, line, id), CallId(id));
                        let entry = list.get_mut(&id).unwrap();
                        (entry.3, entry.4) = (line, number);
                    }
                    (Some(place), 3) => {
                        calls.remove(place);
                        list.remove(&id);
                    }
                    (Some(_), _) => {
                        calls.stop_waiting_for(file);
                        let waiting = list.values_mut().filter(|entry| entry.0 == file && entry.3 == Line::Waiting);
                        waiting.for_each(|entry| entry.3 = Line::Ready);
                    }
                }
                let id_of = |place| calls.get(place).note;
                for line in LINES {
                    let first = list.iter().filter(|(_, entry)| entry.3 == line).min_by_key(|(_, entry)| entry.1);
                    prop_assert_eq!(calls.first(line).map(id_of), first.map(|(&id, _)| id));
                    prop_assert_eq!(calls.earliest(line), first.map_or(Time::MAX, |(_, entry)| entry.1));
                }
                for file in (0..3).map(FileId) {
                    let waiting = list.iter().filter(|(_, entry)| entry.0 == file && entry.3 == Line::Waiting);
                    let last = waiting.max_by_key(|(_, entry)| entry.4).map(|(&id, _)| id);
                    prop_assert_eq!(calls.waiting_for(file).map(id_of), last);
                }
                let held = list.iter().filter(|(_, entry)| entry.3 != Line::UnderWay);
                let first = held.min_by_key(|(_, entry)| entry.2);
                prop_assert_eq!(calls.patience_ends(), first.map_or(Time::MAX, |(_, entry)| entry.2));
                let now = Time::ZERO + Span::from_millis(25);
                let impatient = first.filter(|(_, entry)| entry.2 <= now).map(|(&id, _)| id);
                prop_assert_eq!(calls.impatient(now).map(id_of), impatient);
            }
        }
    }
}
