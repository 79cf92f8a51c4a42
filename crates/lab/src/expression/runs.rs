//! Variants as expressions see them: found by their labels, asked for figures.

use crate::results::{CallSeries, KINDS, RunResult, Second, latency_quantile};
use plimsoll_sim::cached_volume::CacheFigures;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// A variant and the results of one seed of it.
#[derive(Clone, Debug)]
pub struct RunOf {
    /// Axis and value, in the order of the axes.
    pub labels: Vec<(String, String)>,
    /// Processes and tenants of the variant.
    pub sources: BTreeSet<String>,
    /// From where figures count unless they say otherwise: the end of the warm-up to the end.
    pub window: Window,
    /// What was measured.
    pub outcome: Outcome,
}

/// What came of a variant with one seed.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Nothing yet; every figure is 1.
    Rehearsed,
    /// Its figures.
    Measured(Arc<RunResult>),
    /// It was not run, and why; so is whatever asks for a figure of it.
    NotRun(String),
}

impl Outcome {
    /// The number that stands for its course, if it was measured on a host that can repeat it.
    pub fn hash(&self) -> Option<u64> {
        match self {
            Outcome::Measured(result) => result.hash,
            Outcome::Rehearsed | Outcome::NotRun(_) => None,
        }
    }
}

/// What the errors of figures begin with that were not measured because a variant was not run.
pub const NOT_RUN: &str = "not run: ";

/// Whole seconds, the last not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First second.
    pub from: usize,
    /// Second after the last.
    pub to: usize,
}

/// Seconds that come again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    /// The first of the first turn.
    pub(super) first: u64,
    /// How long a turn is.
    pub(super) seconds: u64,
    /// From one's first to the next one's; at least as long.
    pub(super) every: u64,
}

impl Turns {
    fn has(self, second: u64) -> bool {
        second.checked_sub(self.first).is_some_and(|since| since % self.every < self.seconds)
    }
}

/// Variants that were chosen.
#[derive(Clone, Debug)]
pub struct Runs {
    pub(super) list: Vec<Rc<RunOf>>,
    /// Chosen by `run`: figures are numbers; by `runs`: arrays.
    pub(super) is_one: bool,
}

impl Runs {
    /// The variants that have all labels of `selector`, such as `scheduler=cfq size=4KiB`; texts with spaces go in
    /// quotes: `load='random read'`.
    pub(super) fn select(all: &[Rc<RunOf>], selector: &str) -> Result<Vec<Rc<RunOf>>, String> {
        let wanted = labels(selector)?;
        for (axis, value) in &wanted {
            let known: BTreeSet<&str> = all.iter().flat_map(|run| run.label(axis)).collect();
            if known.is_empty() {
                let axes =
                    all.first().map_or(Vec::new(), |run| run.labels.iter().map(|(axis, _)| axis.as_str()).collect());
                let axes = if axes.is_empty() { "none".to_owned() } else { axes.join(", ") };
                return Err(format!("run(\"{selector}\"), where no variant has a {axis:?}; there are {axes}"));
            }
            if !known.contains(value.as_str()) {
                let known: Vec<&str> =
                    all.iter().flat_map(|run| run.label(axis)).fold(Vec::new(), |mut list, value| {
                        if !list.contains(&value) {
                            list.push(value);
                        }
                        list
                    });
                return Err(format!("{axis}={value}, which is not among {}", known.join(", ")));
            }
        }
        let has = |run: &&Rc<RunOf>| wanted.iter().all(|(axis, value)| run.label(axis) == Some(value));
        Ok(all.iter().filter(has).cloned().collect())
    }
}

/// Splits `a=b c='d e'` into its pairs.
fn labels(selector: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = selector.trim();
    while !rest.is_empty() {
        let wrong = || format!("run(\"{selector}\"), which is not like run(\"axis=value\")");
        let (axis, after) = rest.split_once('=').ok_or_else(wrong)?;
        let (value, after) = match after.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').ok_or_else(wrong)?,
            None => after.split_once(' ').unwrap_or((after, "")),
        };
        pairs.push((axis.trim().to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    Ok(pairs)
}

impl RunOf {
    /// What the variant has on this axis.
    pub fn label(&self, axis: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == axis).map(|(_, value)| value.as_str())
    }

    /// The figures; `None` at the rehearsal.
    fn measured(&self) -> Result<Option<&RunResult>, String> {
        match &self.outcome {
            Outcome::Rehearsed => Ok(None),
            Outcome::Measured(result) => Ok(Some(result)),
            Outcome::NotRun(reason) => {
                let labels: Vec<_> = self.labels.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
                Err(format!("{NOT_RUN}{}: {reason}", labels.join(" ")))
            }
        }
    }

    fn check_source(&self, source: &str) -> Result<(), String> {
        if self.sources.contains(source) {
            return Ok(());
        }
        let known: Vec<&str> = self.sources.iter().map(String::as_str).collect();
        Err(format!("{source:?}, which is no process or tenant; there are {}", known.join(", ")))
    }

    /// The seconds of `window` that anything of this kind returned in; `None` at the rehearsal.
    fn seconds(&self, source: &str, kind: &str, window: Window) -> Result<Option<&[Second]>, String> {
        self.check_source(source)?;
        if !KINDS.contains(&kind) {
            return Err(format!("{kind:?}, which is no kind of call; there are {}", KINDS.join(", ")));
        }
        if window.from >= window.to {
            return Err(format!("from {} to {}, which is no time", window.from, window.to));
        }
        let Some(result) = self.measured()? else { return Ok(None) };
        let series = result.sources.get(source).and_then(|source| source.series(kind));
        Ok(Some(series.map_or(&[], |series: &CallSeries| series.window(window.from, window.to))))
    }

    /// A sum over the window, for each second of it.
    pub(super) fn per_second(
        &self,
        source: &str,
        kind: &str,
        window: Window,
        of: fn(&Second) -> u64,
    ) -> Result<f64, String> {
        let sum = self.sum(source, kind, window, of)?;
        Ok(sum / (window.to - window.from) as f64)
    }

    /// A sum over the window.
    pub(super) fn sum(&self, source: &str, kind: &str, window: Window, of: fn(&Second) -> u64) -> Result<f64, String> {
        let seconds = self.seconds(source, kind, window)?;
        Ok(seconds.map_or(1.0, |seconds| seconds.iter().map(of).sum::<u64>() as f64))
    }

    /// Bytes per second in those seconds of the window that are in `turns`.
    pub(super) fn rate_in_turns(&self, source: &str, kind: &str, window: Window, turns: Turns) -> Result<f64, String> {
        let seconds = self.by_second(source, kind, window, |second| second.bytes as f64)?;
        let inside = seconds.iter().filter(|(at, _)| turns.has(*at as u64));
        let (count, sum) = inside.fold((0u64, 0.0), |(count, sum), (_, bytes)| (count + 1, sum + bytes));
        if count == 0 {
            Err(format!("seconds {} and so on, of which none is measured", turns.first))
        } else {
            Ok(sum / count as f64)
        }
    }

    /// One value for each second of the window.
    pub(super) fn by_second(
        &self,
        source: &str,
        kind: &str,
        window: Window,
        of: fn(&Second) -> f64,
    ) -> Result<Vec<(f64, f64)>, String> {
        let seconds = self.seconds(source, kind, window)?;
        let value = |index: usize| match seconds {
            Some(seconds) => seconds.get(index).map_or(0.0, of),
            None => 1.0,
        };
        Ok((window.from..window.to).map(|second| (second as f64 + 0.5, value(second - window.from))).collect())
    }

    /// The latency that the part `fraction` of the calls does not exceed, seconds.
    pub(super) fn latency(&self, source: &str, kind: &str, fraction: f64, window: Window) -> Result<f64, String> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(format!("the part {fraction} of the calls, which is not from 0 to 1"));
        }
        let Some(seconds) = self.seconds(source, kind, window)? else { return Ok(1.0) };
        latency_quantile(seconds, fraction).ok_or_else(|| nothing(source, kind, window))
    }

    /// The mean latency, seconds.
    pub(super) fn latency_mean(&self, source: &str, kind: &str, window: Window) -> Result<f64, String> {
        let Some(seconds) = self.seconds(source, kind, window)? else { return Ok(1.0) };
        let (count, sum) = seconds.iter().fold((0, 0), |(count, sum), s| (count + s.count, sum + s.latency_sum_ns));
        if count == 0 { Err(nothing(source, kind, window)) } else { Ok(sum as f64 / count as f64 / 1e9) }
    }

    /// When the last process of this name ended, seconds.
    pub(super) fn ended(&self, source: &str) -> Result<f64, String> {
        self.check_source(source)?;
        let Some(result) = self.measured()? else { return Ok(1.0) };
        let ended = result.sources.get(source).and_then(|source| source.ended);
        ended.map(|at| at.as_secs_f64()).ok_or_else(|| format!("{source:?}, which had not ended"))
    }

    /// How long the processes of this name took, seconds.
    pub(super) fn took(&self, source: &str) -> Result<f64, String> {
        let ended = self.ended(source)?;
        let Some(result) = self.measured()? else { return Ok(1.0) };
        let started = result.sources.get(source).and_then(|source| source.started);
        started.map(|at| ended - at.as_secs_f64()).ok_or_else(|| format!("{source:?}, of which no start was noted"))
    }

    /// A figure of the cache while a process or utility ran.
    pub(super) fn cache(&self, source: &str, of: impl Fn(&RunResult, &CacheFigures) -> f64) -> Result<f64, String> {
        self.check_source(source)?;
        let Some(result) = self.measured()? else { return Ok(1.0) };
        let figures = result.cache.get(source);
        figures.map(|figures| of(result, figures)).ok_or_else(|| format!("{source:?}, which has no cache below it"))
    }

    /// A figure of the whole machine.
    pub(super) fn machine(&self, of: impl Fn(&RunResult) -> f64) -> Result<f64, String> {
        Ok(self.measured()?.map_or(1.0, of))
    }
}

fn nothing(source: &str, kind: &str, window: Window) -> String {
    format!("no {kind} of {source:?} that returned from {} s to {} s", window.from, window.to)
}
