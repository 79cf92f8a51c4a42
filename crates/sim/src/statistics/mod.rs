//! The experience of processes: for each name and kind of call, the calls, bytes and times, and the calls of each
//! second.

use hdrhistogram::Histogram;
use plimsoll_core::{CallKind, Span, Time};
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Significant digits of latencies: within 1 %.
const LATENCY_DIGITS: u8 = 2;
/// Longest latency that is told apart: an hour, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
const KINDS: usize = 10;

/// All processes' statistics.
#[derive(Default)]
pub struct Statistics {
    by_name: RefCell<BTreeMap<String, Rc<ProcessStatistics>>>,
    threads: Cell<u32>,
    started: Cell<u32>,
    ended: Cell<u32>,
}

impl Statistics {
    /// Those of all processes of this name together.
    ///
    /// # Panics
    /// If no process of this name was started.
    pub fn of(&self, name: &str) -> Rc<ProcessStatistics> {
        self.by_name.borrow().get(name).unwrap_or_else(|| panic!("no process {name:?} was started")).clone()
    }

    /// Processes that have not ended.
    pub fn running(&self) -> u32 {
        self.started.get() - self.ended.get()
    }

    /// Knows one thread more; answers with its number, how many of its name came before, and where it keeps its
    /// figures.
    pub(crate) fn add_thread(&self, name: &str) -> (u32, u64, Rc<ProcessStatistics>) {
        self.threads.set(self.threads.get() + 1);
        let statistics = self.by_name.borrow_mut().entry(name.to_owned()).or_default().clone();
        let twins = statistics.processes.get();
        statistics.processes.set(twins + 1);
        (self.threads.get(), twins, statistics)
    }

    pub(crate) fn start_process(&self) {
        self.started.set(self.started.get() + 1);
    }

    pub(crate) fn end_process(&self) {
        self.ended.set(self.ended.get() + 1);
    }
}

/// The figures of the processes of one name.
#[derive(Default)]
pub struct ProcessStatistics {
    processes: Cell<u64>,
    kinds: RefCell<[Option<Box<CallStatistics>>; KINDS]>,
}

/// What happened in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Calls that returned.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
}

/// The figures of one kind of call.
pub struct CallStatistics {
    /// Calls that returned.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// From entry to return, nanoseconds.
    pub latency_ns: Histogram<u64>,
    /// By the second in which they returned.
    pub seconds: Vec<Second>,
}

impl Default for CallStatistics {
    fn default() -> CallStatistics {
        let latency_ns = Histogram::new_with_max(LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are in range");
        CallStatistics { count: 0, bytes: 0, latency_ns, seconds: Vec::new() }
    }
}

impl CallStatistics {
    /// Bytes a second over the seconds from `from` to `to` (not included).
    pub fn bytes_per_second(&self, from: usize, to: usize) -> f64 {
        self.seconds.iter().take(to).skip(from).map(|second| second.bytes).sum::<u64>() as f64 / (to - from) as f64
    }

    /// Calls a second over the seconds from `from` to `to` (not included).
    pub fn calls_per_second(&self, from: usize, to: usize) -> f64 {
        self.seconds.iter().take(to).skip(from).map(|second| second.count).sum::<u64>() as f64 / (to - from) as f64
    }

    /// The latency that this part of the calls, in per cent, does not exceed.
    pub fn percentile(&self, percent: f64) -> Span {
        Span::from_nanos(self.latency_ns.value_at_quantile(percent / 100.0))
    }
}

impl ProcessStatistics {
    /// The figures of one kind of call; `None` if none returned.
    pub fn calls(&self, kind: CallKind) -> Option<Ref<'_, CallStatistics>> {
        Ref::filter_map(self.kinds.borrow(), |kinds| kinds[kind as usize].as_deref()).ok()
    }

    /// Bytes that calls of this kind moved.
    pub fn bytes(&self, kind: CallKind) -> u64 {
        self.calls(kind).map_or(0, |calls| calls.bytes)
    }

    /// Calls of this kind that returned.
    pub fn count(&self, kind: CallKind) -> u64 {
        self.calls(kind).map_or(0, |calls| calls.count)
    }

    pub(crate) fn record(&self, kind: CallKind, now: Time, latency: Span, bytes: u64) {
        let mut kinds = self.kinds.borrow_mut();
        let calls = kinds[kind as usize].get_or_insert_default();
        calls.count += 1;
        calls.bytes += bytes;
        calls.latency_ns.saturating_record(latency.as_nanos().max(1));
        let second = (now.as_nanos() / Span::from_secs(1).as_nanos()) as usize;
        if calls.seconds.len() <= second {
            calls.seconds.resize(second + 1, Second::default());
        }
        calls.seconds[second].count += 1;
        calls.seconds[second].bytes += bytes;
    }
}
