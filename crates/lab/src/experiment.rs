//! All runs of a scenario, and what comes of them.
//!
//! Every variant runs with every seed. Each such run is a job of its own, and as many run at once as there are
//! processors. Results are put where they belong, so their order does not matter. Then each row is measured for each
//! seed, over all variants of that seed: what is compared had the same chances.

use crate::claim::{Claim, ClaimOn, readable};
use crate::expression::{Context, Expression, NOT_RUN, Outcome, RunOf};
use crate::host::{Host, HostError};
use crate::picture::{Drawing, DrawnPanel, DrawnSeries, Point, place};
use crate::results::RunResult;
use crate::scenario::{Panel, PanelKind, Row, Scenario, Series};
use crate::statistics::{Estimate, mean};
use serde::Serialize;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What came of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// The host's name.
    pub host: &'static str,
    /// How many seeds, 1 up to this.
    pub seeds: u32,
    /// What was changed from the command line, as `key=value`.
    pub settings: Vec<String>,
    /// Why it was not run; `None` if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// What was measured.
    pub rows: Vec<ReportRow>,
    /// The course of each run, one number each.
    pub hashes: Vec<VariantHashes>,
    /// The figure.
    #[serde(skip)]
    pub drawing: Drawing,
}

/// The runs of one variant.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct VariantHashes {
    /// Its labels.
    pub variant: String,
    /// In hexadecimal, seed by seed; empty on a host that cannot be repeated exactly.
    pub hashes: Vec<String>,
}

/// One row.
#[derive(Clone, Debug, Serialize)]
pub struct ReportRow {
    /// Its key in the scenario.
    pub name: String,
    /// In words.
    pub title: String,
    /// The mean over the seeds; `None` if it could not be measured.
    pub measured: Option<f64>,
    /// Half of the 95 % confidence interval; `None` with one seed.
    pub interval: Option<f64>,
    /// Seed by seed.
    pub by_seed: Vec<f64>,
    /// Unit of all of them.
    pub unit: String,
    /// The paper's value.
    pub paper: Option<f64>,
    /// The claim in words; `None` where the row only informs.
    pub claim: Option<String>,
    /// Whether the claim holds; `None` without one, and where it was not run.
    pub holds: Option<bool>,
    /// Where the paper's value or the bound comes from.
    pub source: String,
    /// Which variant it asks for that was not run, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Report {
    /// The report of a scenario that `host` cannot run.
    pub fn not_run(scenario: &Scenario, host: &'static str, reason: &str) -> Report {
        Report {
            scenario: scenario.name.clone(),
            host,
            seeds: 0,
            settings: Vec::new(),
            not_run: Some(reason.to_owned()),
            rows: Vec::new(),
            hashes: Vec::new(),
            drawing: Drawing::default(),
        }
    }

    /// The claims of which nothing is known, because something that they ask for was not run.
    pub fn unknown(&self) -> impl Iterator<Item = &ReportRow> {
        self.rows.iter().filter(|row| row.claim.is_some() && row.not_run.is_some())
    }

    /// The claims that do not hold.
    pub fn failed(&self) -> impl Iterator<Item = &ReportRow> {
        self.rows.iter().filter(|row| row.holds == Some(false))
    }
}

impl ReportRow {
    /// The measured value with its interval, for people.
    pub fn measured_text(&self) -> String {
        match (self.measured, self.interval) {
            (None, _) => "-".to_owned(),
            (Some(measured), None) => readable(measured),
            (Some(measured), Some(interval)) => format!("{} ± {}", readable(measured), readable(interval)),
        }
    }
}

/// How many runs `scenario` takes with so many seeds.
pub fn run_count(scenario: &Scenario, seeds: u32) -> u64 {
    scenario.variants.len() as u64 * u64::from(seeds)
}

/// Runs all variants of `scenario` with the seeds 1 to `seeds`. Calls `finished` after each run, on any thread.
///
/// # Errors
/// The first run that failed, in the order of seeds and variants.
pub fn run(
    scenario: &Scenario,
    host: &dyn Host,
    seeds: u32,
    finished: &(dyn Fn() + Sync),
) -> Result<Report, HostError> {
    let by_seed = run_all(scenario, host, seeds, finished)?;
    // Where some can be run, what asks for the others is not run; where none can, the scenario is not.
    if let Some(reason) = not_run(&by_seed) {
        return Err(HostError::NotRun(reason));
    }
    let contexts: Vec<Context> = by_seed.iter().map(|results| context(scenario, results)).collect();
    let rows = scenario.rows.iter().map(|row| measure(row, &contexts)).collect();
    let panels = scenario.panels.iter().map(|panel| drawn(panel, &contexts)).collect();
    let hashes = scenario.variants.iter().enumerate().map(|(index, variant)| VariantHashes {
        variant: variant.labels.iter().map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(" "),
        hashes: by_seed.iter().filter_map(|results| Some(format!("{:016x}", results[index].hash()?))).collect(),
    });
    Ok(Report {
        scenario: scenario.name.clone(),
        host: host.name(),
        seeds,
        settings: Vec::new(),
        not_run: None,
        rows,
        hashes: hashes.collect(),
        drawing: Drawing { title: format!("{}: {}", scenario.name, scenario.title), panels },
    })
}

/// Why none of the runs was run, if so.
fn not_run(by_seed: &[Vec<Outcome>]) -> Option<String> {
    let all = || by_seed.iter().flatten();
    let reasons = all().map(|outcome| match outcome {
        Outcome::NotRun(reason) => Some(reason),
        Outcome::Measured(_) | Outcome::Rehearsed => None,
    });
    reasons.collect::<Option<Vec<_>>>()?.first().copied().cloned()
}

/// The results of every variant, for each seed.
fn run_all(
    scenario: &Scenario,
    host: &dyn Host,
    seeds: u32,
    finished: &(dyn Fn() + Sync),
) -> Result<Vec<Vec<Outcome>>, HostError> {
    let variants = scenario.variants.len();
    let jobs = variants * seeds as usize;
    let results: Vec<Mutex<Option<Result<RunResult, HostError>>>> = (0..jobs).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = results.get(job) else { break };
            let (variant, seed) = (&scenario.variants[job % variants], (job / variants) as u64 + 1);
            let result = host.run(&variant.setup, seed);
            *place.lock().expect("no holder panics") = Some(result);
            finished();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut all = Vec::with_capacity(jobs);
    for result in results {
        all.push(match result.into_inner().expect("no holder panicked").expect("every job was done") {
            Ok(result) => Outcome::Measured(Arc::new(result)),
            Err(HostError::NotRun(reason)) => Outcome::NotRun(reason),
            Err(error) => return Err(error),
        });
    }
    Ok(all.chunks(variants).map(<[_]>::to_vec).collect())
}

/// What expressions see of one seed.
fn context(scenario: &Scenario, outcomes: &[Outcome]) -> Context {
    let runs = scenario.variants.iter().zip(outcomes).map(|(variant, outcome)| {
        Rc::new(RunOf {
            labels: variant.labels.clone(),
            sources: variant.setup.sources(),
            window: variant.setup.window(),
            outcome: outcome.clone(),
        })
    });
    Context { runs: Rc::new(runs.collect()), ..Context::default() }
}

fn measure(row: &Row, contexts: &[Context]) -> ReportRow {
    let values: Result<Vec<f64>, String> = contexts.iter().map(|context| finite(&row.measure, context)).collect();
    // A bound may depend on what was measured; then each seed has its own, and the first stands for them in the table.
    let bounds: Option<Result<Vec<f64>, String>> = row.claim.as_ref().map(|claim| {
        contexts.iter().map(|context| finite(&claim.bound, &Context { paper: row.paper, ..context.clone() })).collect()
    });
    let problem = values.as_ref().err().cloned().or_else(|| bounds.as_ref()?.as_ref().err().cloned());
    let values = values.unwrap_or_default();
    let bound = bounds.and_then(Result::ok).and_then(|bounds| mean(&bounds));
    let claim = row
        .claim
        .as_ref()
        .zip(bound)
        .map(|(claim, bound)| (Claim { relation: claim.relation, bound, margin: claim.margin }, claim.on));
    let estimate = Estimate::of(&values);
    let (not_run, problem): (Option<String>, Option<String>) = match problem {
        Some(text) if text.starts_with(NOT_RUN) => (Some(text[NOT_RUN.len()..].to_owned()), None),
        problem => (None, problem),
    };
    let holds = (row.claim.is_some() && not_run.is_none())
        .then(|| claim.is_some_and(|(claim, on)| claim.holds_on(&values, on)));
    let claim = claim.map(|(claim, on)| match on {
        ClaimOn::EverySeed => claim.to_string(),
        _ => format!("{claim}, on {}", on.name()),
    });
    ReportRow {
        name: row.name.clone(),
        title: row.title.clone(),
        measured: estimate.map(|estimate| estimate.mean),
        interval: estimate.and_then(|estimate| estimate.half_width),
        by_seed: values,
        unit: row.unit.clone(),
        paper: row.paper,
        claim: claim.or_else(|| row.claim.as_ref().map(|_| "-".to_owned())),
        holds,
        source: row.source.clone(),
        not_run,
        problem,
    }
}

fn finite(expression: &Expression, context: &Context) -> Result<f64, String> {
    let value = expression.number(context)?;
    if value.is_finite() { Ok(value) } else { Err("a division by zero".to_owned()) }
}

fn drawn(panel: &Panel, contexts: &[Context]) -> DrawnPanel {
    let series = panel.series.iter().map(|series| {
        let points = match panel.kind {
            PanelKind::Curve => curve(series, contexts),
            PanelKind::Lines | PanelKind::Bars => values(panel, series, contexts),
        };
        DrawnSeries { label: series.label.clone(), points, paper: series.paper.clone() }
    });
    DrawnPanel {
        title: panel.title.clone(),
        kind: panel.kind,
        x: panel.x.clone(),
        y: panel.y.clone(),
        over: panel.over.clone(),
        series: series.collect(),
    }
}

/// A value for each place. Places without a measurable value are left out.
fn values(panel: &Panel, series: &Series, contexts: &[Context]) -> Vec<Point> {
    let points = panel.over.iter().enumerate().filter_map(|(index, x)| {
        let of_seed = |context: &Context| finite(&series.y, &Context { x: Some(x.clone()), ..context.clone() }).ok();
        let values: Vec<f64> = contexts.iter().filter_map(of_seed).collect();
        let estimate = Estimate::of(&values)?;
        let at = if panel.kind == PanelKind::Lines { place(x)? } else { index as f64 };
        Some(Point { x: at, y: estimate.mean, half_width: estimate.half_width })
    });
    points.collect()
}

/// The mean of the seeds' curves, point by point.
fn curve(series: &Series, contexts: &[Context]) -> Vec<Point> {
    let curves: Vec<Vec<(f64, f64)>> = contexts.iter().filter_map(|context| series.y.points(context).ok()).collect();
    let shortest = curves.iter().map(Vec::len).min().unwrap_or(0);
    let point = |index: usize| {
        let of = |axis: fn(&(f64, f64)) -> f64| {
            mean(&curves.iter().map(|curve| axis(&curve[index])).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        Point { x: of(|point| point.0), y: of(|point| point.1), half_width: None }
    };
    (0..shortest).map(point).collect()
}
