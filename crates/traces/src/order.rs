//! Records in order of time, however they stand in the file.
//!
//! A scheduler's host goes forward in time, but traces are often written by completion (SYSTOR'17) or merged from many
//! machines. (In the known sample of Tencent's, a record stands up to 25,640 records after its place.) So a window of
//! records waits, and the earliest goes first; records of the same time keep the order of the file. The window bounds
//! the memory. A record that is later than the window allows is an error that names it. To hand it out would let time
//! run backwards, and to move it would change the trace silently.

use crate::fault::Fault;
use crate::record::TraceRecord;
use plimsoll_core::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The window of [`Order::default`], records: 2.5 times what the worst trace that we know needs (see above), at 64
/// bytes each.
pub const WINDOW_RECORDS: usize = 65_536;

/// In which order records are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By time; a record may stand up to `window_records` records after its place in the file.
    Sorted {
        /// How many records wait at the most; at least 1.
        window_records: usize,
    },
    /// As they stand in the file, times going forwards and backwards.
    AsRecorded,
}

impl Default for Order {
    /// By time, over a window of [`WINDOW_RECORDS`].
    fn default() -> Order {
        Order::Sorted { window_records: WINDOW_RECORDS }
    }
}

impl Order {
    pub(crate) fn window_records(self) -> usize {
        match self {
            Order::Sorted { window_records } => window_records.max(1),
            Order::AsRecorded => 1,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    sequence: u64,
    record: TraceRecord,
}

impl Waiting {
    fn key(&self) -> (Time, u64) {
        (self.record.at, self.sequence)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The records that wait.
#[derive(Debug)]
pub(crate) struct Window {
    order: Order,
    waiting: BinaryHeap<Reverse<Waiting>>,
    sequence: u64,
    /// The time of the last record that was handed out.
    reached: Time,
}

impl Window {
    pub fn new(order: Order) -> Window {
        Window { order, waiting: BinaryHeap::new(), sequence: 0, reached: Time::ZERO }
    }

    /// Whether the next record must be handed out before another comes in.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.order.window_records()
    }

    /// Takes in the next record of the file.
    pub fn push(&mut self, record: TraceRecord) -> Result<(), Fault> {
        if record.at < self.reached && self.order != Order::AsRecorded {
            return Err(Fault::Unordered {
                late: self.reached.since(record.at),
                window_records: self.order.window_records(),
            });
        }
        self.waiting.push(Reverse(Waiting { sequence: self.sequence, record }));
        self.sequence += 1;
        Ok(())
    }

    /// Hands out the earliest record.
    pub fn pop(&mut self) -> Option<TraceRecord> {
        let Reverse(Waiting { record, .. }) = self.waiting.pop()?;
        self.reached = record.at;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Operation;
    use proptest::prelude::*;

    fn through(window: &mut Window, times: &[u64]) -> (Vec<TraceRecord>, Option<usize>) {
        let mut out = Vec::new();
        for (number, &at) in times.iter().enumerate() {
            while window.is_full() {
                out.extend(window.pop());
            }
            let record = TraceRecord::new(Time::from_nanos(at), Operation::Read, number as u64, 1);
            if window.push(record).is_err() {
                return (out, Some(number));
            }
        }
        out.extend(std::iter::from_fn(|| window.pop()));
        (out, None)
    }

    /// The window beside what it stands for: a stable sort of everything, refused where a record stands behind a whole
    /// window of later ones.
    fn oracle(window_records: usize, times: &[u64]) -> Result<Vec<u64>, usize> {
        for (number, at) in times.iter().enumerate() {
            if times[..number].iter().filter(|before| *before > at).count() >= window_records.max(1) {
                return Err(number);
            }
        }
        let mut numbers: Vec<_> = (0..times.len() as u64).collect();
        numbers.sort_by_key(|number| times[*number as usize]);
        Ok(numbers)
    }

    proptest! {
        #[test]
        fn a_window_sorts_or_names_the_record_that_is_too_late(
            times in prop::collection::vec(0u64..30, 0..60),
            window_records in 0usize..20,
        ) {
            let (out, failed) = through(&mut Window::new(Order::Sorted { window_records }), &times);
            prop_assert!(out.is_sorted_by_key(|record| record.at));
            let numbers: Vec<_> = out.iter().map(|record| record.offset).collect();
            match oracle(window_records, &times) {
                Ok(expected) => prop_assert_eq!((numbers, failed), (expected, None)),
                Err(number) => prop_assert_eq!(failed, Some(number)),
            }
        }

        #[test]
        fn as_recorded_changes_nothing(times in prop::collection::vec(0u64..30, 0..60)) {
            let (out, failed) = through(&mut Window::new(Order::AsRecorded), &times);
            prop_assert_eq!(failed, None);
            prop_assert!(out.iter().map(|record| record.offset).eq(0..times.len() as u64));
        }
    }
}
