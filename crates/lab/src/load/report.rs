//! What comes of a load: a row for each rate, and a picture of latency over rate.

use super::generator::{Latencies, LoadOutcome};
use crate::picture::{self, Drawing, DrawnPanel, DrawnSeries, Point};
use crate::scenario::{PanelKind, Scale};
use plimsoll_core::Span;
use serde::Serialize;

const MILLIS_PER_SECOND: f64 = 1e3;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The target, as on the command line.
    pub target: String,
    /// Bytes that it has.
    pub size_bytes: u64,
    /// With what.
    pub mix: String,
    /// The mean latency above which a rate is too much.
    pub latency_max_seconds: f64,
    /// How long each rate counted.
    pub window_seconds: f64,
    /// What places and times were drawn from.
    pub seed: u64,
    /// The highest measured rate with a mean below that bound.
    pub peak_per_second: Option<f64>,
    /// By rate, ascending.
    pub rows: Vec<LoadRow>,
}

/// One rate. Latencies run from when a request was due.
#[derive(Clone, Debug, Serialize)]
pub struct LoadRow {
    /// Requests a second that were due on average.
    pub offered_per_second: f64,
    /// Requests a second that were answered in the window.
    pub answered_per_second: f64,
    /// Bytes a second that were read and written by these.
    pub bytes_per_second: f64,
    /// Requests that were due in the window.
    pub requests: u64,
    /// Of these, those without an answer ten seconds after it; their latency counts until then.
    pub unfinished: u64,
    /// Mean latency; `None`, as all latencies, without any request.
    pub mean_seconds: Option<f64>,
    /// Latency that half of the requests were below.
    pub p50_seconds: Option<f64>,
    /// Likewise nine of ten.
    pub p90_seconds: Option<f64>,
    /// Likewise 99 of 100.
    pub p99_seconds: Option<f64>,
    /// Likewise 999 of 1000.
    pub p999_seconds: Option<f64>,
    /// The longest.
    pub longest_seconds: Option<f64>,
    /// Reads alone.
    pub reads: PartRow,
    /// Writes alone.
    pub writes: PartRow,
    /// Mean lateness of sending, in seconds: as many requests as allowed were under way, or the generator was late.
    pub sent_late_mean_seconds: Option<f64>,
    /// Processors that the generator used, 0 to 1; near 1 it was it that was measured.
    pub generator_busy: f64,
}

/// Reads or writes of a rate.
#[derive(Clone, Debug, Serialize)]
pub struct PartRow {
    /// Requests that were due in the window.
    pub requests: u64,
    /// Mean latency; `None`, as the next, without any.
    pub mean_seconds: Option<f64>,
    /// Latency that 99 of 100 were below.
    pub p99_seconds: Option<f64>,
}

fn quantile(latencies: &Latencies, part: f64) -> Option<f64> {
    let value = || Span::from_nanos(latencies.histogram_ns.value_at_quantile(part)).as_secs_f64();
    (latencies.count() > 0).then(value)
}

fn mean(latencies: &Latencies) -> Option<f64> {
    (latencies.count() > 0).then(|| latencies.mean().as_secs_f64())
}

impl PartRow {
    fn new(latencies: &Latencies) -> PartRow {
        PartRow { requests: latencies.count(), mean_seconds: mean(latencies), p99_seconds: quantile(latencies, 0.99) }
    }
}

impl LoadRow {
    pub(super) fn new(offered_per_second: f64, window: Span, outcome: &LoadOutcome) -> LoadRow {
        let mut all = outcome.reads.clone();
        all.add(&outcome.writes);
        let seconds = window.as_secs_f64();
        LoadRow {
            offered_per_second,
            answered_per_second: outcome.answered as f64 / seconds,
            requests: all.count(),
            unfinished: outcome.unfinished,
            bytes_per_second: outcome.answered_bytes as f64 / seconds,
            mean_seconds: mean(&all),
            p50_seconds: quantile(&all, 0.5),
            p90_seconds: quantile(&all, 0.9),
            p99_seconds: quantile(&all, 0.99),
            p999_seconds: quantile(&all, 0.999),
            longest_seconds: quantile(&all, 1.0),
            reads: PartRow::new(&outcome.reads),
            writes: PartRow::new(&outcome.writes),
            sent_late_mean_seconds: (all.count() > 0).then(|| outcome.sent_late.as_secs_f64() / all.count() as f64),
            generator_busy: outcome.busy,
        }
    }
}

impl LoadReport {
    /// Mean and 99th percentile over the rate, with the bound, as SVG.
    pub fn svg(&self) -> String {
        let series = |label: &str, of: fn(&LoadRow) -> Option<f64>| {
            let point = |row: &LoadRow| {
                Some(Point { x: row.offered_per_second, y: of(row)? * MILLIS_PER_SECOND, half_width: None })
            };
            let points = self.rows.iter().filter_map(point).collect();
            DrawnSeries { label: label.to_owned(), points, paper: Vec::new() }
        };
        let bound = self.latency_max_seconds * MILLIS_PER_SECOND;
        let at_bound = |row: &LoadRow| Point { x: row.offered_per_second, y: bound, half_width: None };
        let ends = self.rows.first().into_iter().chain(self.rows.last());
        let label = format!("{} mean", Span::from_secs_f64(self.latency_max_seconds));
        let bound = DrawnSeries { label, points: ends.map(at_bound).collect(), paper: Vec::new() };
        let panel = DrawnPanel {
            title: self.mix.clone(),
            kind: PanelKind::Curve,
            x: Scale { label: "requests a second, offered".to_owned(), is_log: false },
            y: Scale { label: "latency from when it was due, ms".to_owned(), is_log: true },
            over: Vec::new(),
            series: vec![series("mean", |row| row.mean_seconds), series("p99", |row| row.p99_seconds), bound],
        };
        let drawing = Drawing { title: self.target.clone(), panels: vec![panel] };
        picture::svg(&drawing).expect("there is a panel")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: 0.0, as it was.
    /// Promise: lab-null.
    #[test]
    fn json_has_null_for_what_was_not_measured() {
        let row = LoadRow::new(1.0, Span::from_secs(1), &LoadOutcome::default());
        let json = serde_json::to_value(&row).unwrap();
        let keys =
            ["mean", "p50", "p90", "p99", "p999", "longest", "sent_late_mean"].map(|key| format!("{key}_seconds"));
        for key in keys {
            assert!(json[&key].is_null() && json.get(&key).is_some(), "{key}: {json}");
        }
        assert!(json["reads"]["mean_seconds"].is_null() && json["writes"]["p99_seconds"].is_null(), "{json}");
        assert_eq!((&json["requests"], &json["answered_per_second"]), (&0.into(), &0.0.into()), "those were counted");
    }
}
