//! Results of a run: calls, bytes and latencies of each second, by source (processes or tenants of one name) and kind
//! of call.
//!
//! Latencies are counted in classes of 1 % width, for each second by itself, so that any window of time has its own
//! percentiles. A second rarely has more than a hundred classes, so a long run stays small.

use plimsoll_core::{Span, Time};
use plimsoll_sim::cached_volume::CacheFigures;
use std::collections::BTreeMap;

/// Width of a class of latencies, as a fraction: percentiles are exact to half of it.
const CLASS_WIDTH: f64 = 0.01;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// What is counted. `unit` is what a user waits for (a transaction, an append with its fsync); `all` is every other
/// kind together.
pub const KINDS: &[&str] = &[
    "read",
    "write",
    "flush",
    "fsync",
    "fdatasync",
    "create",
    "open",
    "mkdir",
    "unlink",
    "rename",
    "truncate",
    "attributes",
    "stat",
    "list",
    "unit",
    "all",
];

/// The source that the clients of a filer are.
pub const CLIENTS: &str = "clients";

/// Priority levels of the best-effort class: 0 (highest) to 7.
pub const PRIORITY_LEVELS: usize = 8;

/// One run of one variant with one seed.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    /// A hash of the course of the run; `None` on a host without exact repetition.
    pub hash: Option<u64>,
    /// By the name of the source.
    pub sources: BTreeMap<String, Source>,
    /// Cores that the processes kept busy, on average.
    pub cpu_cores: f64,
    /// Part of the time in which the device had something to do, 0 to 1.
    pub device_busy: f64,
    /// Part of the requests that the scheduler was handed in the name of sessions of each priority level, 0 to 1.
    pub priority_shares: [f64; PRIORITY_LEVELS],
    /// Bytes that the tags of dirty pages took, on average.
    pub tag_bytes_mean: f64,
    /// Bytes that the tags of dirty pages took at the most, preparation of the files included.
    pub tag_bytes_max: f64,
    /// The cache's figures while processes and each utility ran, by their names; none without a cache.
    pub cache: BTreeMap<String, CacheFigures>,
    /// Units of the cache.
    pub cache_units: u64,
    /// Lines of memory that came from another NUMA node for the throttling layer's locks, for each request.
    pub far_lines: f64,
    /// Part of the requests of a filer's clients that were done after no, one, two, three and more restarts.
    pub restarts: [f64; 4],
    /// Consistency points of a filer that began.
    pub consistency_points: f64,
    /// Writes of a filer's clients that found its log full, and waited for a consistency point to end.
    pub log_waits: f64,
}

/// The figures of the processes or tenants of one name.
#[derive(Clone, Debug, Default)]
pub struct Source {
    kinds: BTreeMap<&'static str, CallSeries>,
    /// When the first of them started; `None` where it was not noted.
    pub started: Option<Time>,
    /// When the last of them ended; `None` while one runs.
    pub ended: Option<Time>,
}

/// One kind of call, by the second in which each returned.
#[derive(Clone, Debug, Default)]
pub struct CallSeries {
    seconds: Vec<Second>,
}

/// What happened in one second.
#[derive(Clone, Debug, Default)]
pub struct Second {
    /// Calls that returned.
    pub count: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Sum of their latencies, nanoseconds.
    pub latency_sum_ns: u64,
    /// The longest of them, nanoseconds.
    pub latency_ns_max: u64,
    /// Class and calls in it, by class.
    classes: Vec<(u16, u32)>,
}

fn class(latency_ns: u64) -> u16 {
    ((latency_ns.max(1) as f64).ln() / CLASS_WIDTH.ln_1p()).floor() as u16
}

/// The latency in the middle of a class, nanoseconds.
fn class_middle_ns(class: u16) -> f64 {
    ((f64::from(class) + 0.5) * CLASS_WIDTH.ln_1p()).exp()
}

impl Source {
    /// Counts a call that returned at `now`.
    ///
    /// # Panics
    /// If `kind` is not one of [`KINDS`].
    pub fn record(&mut self, kind: &'static str, now: Time, latency: Span, bytes: u64) {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        self.kinds.entry(kind).or_default().record(now, latency, bytes);
        if kind != "unit" {
            self.kinds.entry("all").or_default().record(now, latency, bytes);
        }
    }

    /// The figures of one kind; `None` if no such call returned.
    pub fn series(&self, kind: &str) -> Option<&CallSeries> {
        self.kinds.get(kind)
    }
}

impl CallSeries {
    fn record(&mut self, now: Time, latency: Span, bytes: u64) {
        let index = (now.as_nanos() / NS_PER_SECOND) as usize;
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, Second::default);
        }
        let (second, latency_ns) = (&mut self.seconds[index], latency.as_nanos());
        second.count += 1;
        second.bytes += bytes;
        second.latency_sum_ns += latency_ns;
        second.latency_ns_max = second.latency_ns_max.max(latency_ns);
        let class = class(latency_ns);
        match second.classes.binary_search_by_key(&class, |&(class, _)| class) {
            Ok(at) => second.classes[at].1 += 1,
            Err(at) => second.classes.insert(at, (class, 1)),
        }
    }

    /// The seconds from `from` to `to` (not included); those after the last call are left out.
    pub fn window(&self, from: usize, to: usize) -> &[Second] {
        let end = to.min(self.seconds.len());
        &self.seconds[from.min(end)..end]
    }
}

/// The latency in seconds that the part `fraction` (0 to 1) of the calls in `seconds` does not exceed; `None` without
/// calls.
pub fn latency_quantile(seconds: &[Second], fraction: f64) -> Option<f64> {
    let mut classes: BTreeMap<u16, u64> = BTreeMap::new();
    for &(class, count) in seconds.iter().flat_map(|second| &second.classes) {
        *classes.entry(class).or_default() += u64::from(count);
    }
    let total: u64 = classes.values().sum();
    let rank = ((fraction.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
    let mut seen = 0;
    let found = classes.into_iter().find(|&(_, count)| {
        seen += count;
        seen >= rank
    })?;
    let longest_ns = seconds.iter().map(|second| second.latency_ns_max).max()? as f64;
    Some(class_middle_ns(found.0).min(longest_ns) / 1e9)
}

/// When something was busy: periods, merged as they are added in the order of their ends.
#[derive(Debug, Default)]
pub struct BusyTime {
    periods: Vec<(Time, Time)>,
}

impl BusyTime {
    /// Adds a period that ends no earlier than those before it. Amortised O(1).
    pub fn add(&mut self, start: Time, end: Time) {
        let mut start = start;
        while let Some(&(earlier, until)) = self.periods.last() {
            if until < start {
                break;
            }
            start = start.min(earlier);
            self.periods.pop();
        }
        self.periods.push((start, end));
    }

    /// How long it was busy in all.
    pub fn total(&self) -> Span {
        self.periods.iter().map(|&(start, end)| end.since(start)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn seconds_keep_what_returned_in_them() {
        let mut source = Source::default();
        source.record("read", at(999), Span::from_millis(10), 4096);
        source.record("read", at(1000), Span::from_millis(30), 8192);
        source.record("unit", at(1000), Span::from_millis(40), 0);
        let reads = source.series("read").unwrap();
        assert_eq!(reads.window(0, 1).iter().map(|second| second.bytes).sum::<u64>(), 4096);
        assert_eq!(reads.window(1, 99)[0].bytes, 8192);
        assert_eq!(reads.window(5, 99).len(), 0);
        assert_eq!(source.series("all").unwrap().window(1, 2)[0].count, 1, "a unit is no call");
        assert!(source.series("fsync").is_none());
    }

    proptest! {
        #[test]
        fn percentiles_are_within_a_class_of_the_sorted_list(
            latencies in prop::collection::vec(1u64..10_000_000_000, 1..200), fraction in 0.0f64..=1.0
        ) {
            let mut source = Source::default();
            for (index, &latency) in latencies.iter().enumerate() {
                source.record("read", at(index as u64 * 37), Span::from_nanos(latency), 1);
            }
            let got = latency_quantile(source.series("read").unwrap().window(0, 100), fraction).unwrap() * 1e9;
            let exact = crate::statistics::quantile(&latencies.iter().map(|&ns| ns as f64).collect::<Vec<_>>(), fraction);
            let ratio = got / exact.unwrap();
            prop_assert!((0.99..=1.01).contains(&ratio), "{got} for {exact:?}");
        }

        #[test]
        fn busy_time_is_the_union(mut periods in prop::collection::vec((0u64..300, 1u64..40), 0..40)) {
            periods.sort_by_key(|&(start, length)| start + length);
            let (mut busy, mut slots) = (BusyTime::default(), [false; 400]);
            for &(start, length) in &periods {
                busy.add(at(start), at(start + length));
                slots[start as usize..(start + length) as usize].fill(true);
            }
            prop_assert_eq!(busy.total(), Span::from_millis(slots.iter().filter(|&&is| is).count() as u64));
        }
    }
}
