//! What a thread counted, second by second of real time.
//!
//! Which seconds count is known only when they are over, so each is kept by itself until the end. Latencies are in
//! classes half as wide as those of the results that they become.

use crate::results::{KINDS, Source};
use plimsoll_core::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Width of a class of latencies, as a fraction.
const CLASS_WIDTH: f64 = 0.005;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// Calls of one kind in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Calls {
    bytes: u64,
    /// Calls by class of latency.
    classes: BTreeMap<u16, u64>,
}

/// What one thread, or several, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenTally", try_from = "WrittenTally")]
pub(super) struct Tally {
    /// By the second in which calls returned, and kind.
    seconds: Vec<BTreeMap<&'static str, Calls>>,
    /// When the last thread ended by itself.
    pub(super) ended: Option<Span>,
}

/// A tally as one process writes it for another.
#[derive(Serialize, Deserialize)]
struct WrittenTally {
    seconds: Vec<BTreeMap<String, Calls>>,
    ended_ns: Option<u64>,
}

impl From<Tally> for WrittenTally {
    fn from(tally: Tally) -> WrittenTally {
        let second =
            |calls: BTreeMap<&'static str, Calls>| calls.into_iter().map(|(kind, calls)| (kind.to_owned(), calls));
        WrittenTally {
            seconds: tally.seconds.into_iter().map(|calls| second(calls).collect()).collect(),
            ended_ns: tally.ended.map(Span::as_nanos),
        }
    }
}

impl TryFrom<WrittenTally> for Tally {
    type Error = String;

    fn try_from(written: WrittenTally) -> Result<Tally, String> {
        let kind = |(name, calls): (String, Calls)| match KINDS.iter().find(|kind| **kind == name) {
            Some(kind) => Ok((*kind, calls)),
            None => Err(format!("{name:?}, which is no kind of call")),
        };
        let second = |calls: BTreeMap<String, Calls>| calls.into_iter().map(kind).collect();
        let seconds = written.seconds.into_iter().map(second).collect::<Result<_, String>>()?;
        Ok(Tally { seconds, ended: written.ended_ns.map(Span::from_nanos) })
    }
}

impl Tally {
    /// Counts a call that returned so long after the start.
    pub(super) fn record(&mut self, kind: &'static str, since_start: Span, latency: Span, bytes: u64) {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        let index = (since_start.as_nanos() / NS_PER_SECOND) as usize;
        if self.seconds.len() <= index {
            self.seconds.resize_with(index + 1, BTreeMap::default);
        }
        let calls = self.seconds[index].entry(kind).or_default();
        calls.bytes += bytes;
        let class = ((latency.as_nanos().max(1) as f64).ln() / CLASS_WIDTH.ln_1p()) as u16;
        *calls.classes.entry(class).or_default() += 1;
    }

    /// Takes in what another thread counted.
    pub(super) fn merge(&mut self, other: Tally) {
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize_with(other.seconds.len(), BTreeMap::default);
        }
        for (second, others) in self.seconds.iter_mut().zip(other.seconds) {
            for (kind, calls) in others {
                let mine = second.entry(kind).or_default();
                mine.bytes += calls.bytes;
                calls.classes.into_iter().for_each(|(class, count)| *mine.classes.entry(class).or_default() += count);
            }
        }
    }

    /// The figures of the seconds that count, one after the other.
    pub(super) fn source(&self, counts: &[bool]) -> Source {
        let mut source = Source::default();
        let counted = self.seconds.iter().zip(counts).filter(|&(_, &counts)| counts);
        for (index, (second, _)) in counted.enumerate() {
            let at = Time::from_nanos(index as u64 * NS_PER_SECOND);
            for (kind, calls) in second {
                let mut bytes = calls.bytes;
                for (&class, &count) in &calls.classes {
                    let latency = Span::from_nanos(((f64::from(class) + 0.5) * CLASS_WIDTH.ln_1p()).exp() as u64);
                    // Results have bytes by the second, whichever call moved them.
                    (0..count).for_each(|_| source.record(kind, at, latency, std::mem::take(&mut bytes)));
                }
            }
        }
        source.ended = self.ended.map(|ended| Time::ZERO + ended);
        source
    }
}

/// What a process counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tallies {
    pub(super) all: Tally,
    /// Units of sizes that are counted apart, by their source.
    pub(super) sized: BTreeMap<String, Tally>,
}

impl Tallies {
    /// Takes in what another thread counted.
    pub(super) fn merge(&mut self, other: Tallies) {
        self.all.merge(other.all);
        other.sized.into_iter().for_each(|(source, tally)| self.sized.entry(source).or_default().merge(tally));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::latency_quantile;

    #[test]
    fn another_process_can_send_it() {
        let mut tally = Tally { ended: Some(Span::from_millis(1700)), ..Tally::default() };
        tally.record("write", Span::from_millis(1500), Span::from_millis(10), 4096);
        tally.record("fsync", Span::from_millis(1600), Span::from_millis(30), 0);
        let text = serde_json::to_string(&tally).unwrap();
        assert_eq!(serde_json::from_str::<Tally>(&text).unwrap(), tally);
        let error = serde_json::from_str::<Tally>(&text.replace("fsync", "fsink")).unwrap_err();
        assert!(error.to_string().contains("\"fsink\", which is no kind of call"), "{error}");
    }

    #[test]
    fn threads_count_units_of_a_size_together() {
        let counted = |source: &str, seconds: u64| {
            let mut tallies = Tallies::default();
            let sized = tallies.sized.entry(source.to_owned()).or_default();
            sized.record("unit", Span::from_secs(seconds), Span::from_millis(10), 4096);
            tallies
        };
        let mut tallies = counted("server.read.4KiB", 0);
        for other in [counted("server.read.4KiB", 1), counted("server.write.4KiB", 1)] {
            tallies.merge(other);
        }
        let units = |source: &str| {
            let source = tallies.sized[source].source(&[true; 2]);
            source.series("unit").unwrap().window(0, 2).iter().map(|second| second.count).collect::<Vec<_>>()
        };
        assert_eq!(units("server.read.4KiB"), [1, 1]);
        assert_eq!(units("server.write.4KiB"), [0, 1]);
    }

    #[test]
    fn seconds_that_do_not_count_are_cut_out() {
        let mut tally = Tally::default();
        let mut other = Tally::default();
        let at = |seconds: u64| Span::from_millis(seconds * 1000 + 500);
        tally.record("write", at(0), Span::from_millis(10), 4096);
        tally.record("write", at(1), Span::from_millis(900), 1_000_000);
        other.record("write", at(2), Span::from_millis(20), 8192);
        other.record("fsync", at(2), Span::from_millis(30), 0);
        tally.merge(other);
        let source = tally.source(&[true, false, true]);
        let writes = source.series("write").unwrap();
        assert_eq!(writes.window(0, 9).iter().map(|second| second.bytes).collect::<Vec<_>>(), [4096, 8192]);
        let median = latency_quantile(writes.window(1, 2), 0.5).unwrap();
        assert!((median / 0.020 - 1.0).abs() < 0.015, "{median}");
        assert_eq!(source.series("fsync").unwrap().window(1, 2)[0].count, 1);
        assert!(tally.source(&[true]).series("fsync").is_none(), "what came after the end does not count");
    }
}
