//! The functions of the language, each with its usage.

use super::answers::{Answer, each, fail, number, wanted};
use super::cached;
use super::runs::{RunOf, Runs, Turns, Window};
use crate::results::{PRIORITY_LEVELS, RunResult};
use crate::statistics;
use rhai::{Array, Dynamic, Engine, EvalAltResult};
use std::rc::Rc;

/// Units: figures are in bytes and seconds.
pub(super) const CONSTANTS: &[(&str, f64)] = &[
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("percent", 0.01),
];

/// Name and usage of each function.
const FUNCTIONS: &[(&str, &str)] = &[
    ("run", "run() or run(\"axis=value ...\")"),
    ("runs", "runs() or runs(\"axis=value ...\")"),
    ("sources", "sources(beginning)"),
    ("rate", "rate(source, kind) or rate(source, kind, from, to)"),
    ("rate_in_turns", "rate_in_turns(source, kind, first second, seconds, every so many)"),
    ("calls", "calls(source, kind) or calls(source, kind, from, to)"),
    ("bytes", "bytes(source, kind) or bytes(source, kind, from, to)"),
    ("count", "count(source, kind) or count(source, kind, from, to)"),
    ("latency", "latency(source, kind, part) or latency(source, kind, part, from, to)"),
    ("latency_mean", "latency_mean(source, kind) or latency_mean(source, kind, from, to)"),
    ("latencies", "latencies(source, kind) or latencies(source, kind, from, to)"),
    ("rate_by_second", "rate_by_second(source, kind) or rate_by_second(source, kind, from, to)"),
    ("calls_by_second", "calls_by_second(source, kind) or calls_by_second(source, kind, from, to)"),
    ("latency_by_second", "latency_by_second(source, kind) or latency_by_second(source, kind, from, to)"),
    ("ended", "ended(source)"),
    ("took", "took(source)"),
    ("read_hits", "read_hits(source) or read_hits(source, first class, last class)"),
    ("syncer_part", "syncer_part(source)"),
    ("contents", "contents(source, first class, last class)"),
    ("read_part", "read_part(source, first class, last class)"),
    ("write_part", "write_part(source, first class, last class)"),
    ("cpu_cores", "cpu_cores()"),
    ("device_busy", "device_busy()"),
    ("priority_share", "priority_share(level)"),
    ("tag_bytes_mean", "tag_bytes_mean()"),
    ("tag_bytes_max", "tag_bytes_max()"),
    ("far_lines", "far_lines()"),
    ("restarts", "restarts(times)"),
    ("consistency_points", "consistency_points()"),
    ("log_waits", "log_waits()"),
    ("last_below", "last_below(curve, y)"),
    ("least", "least(curve, points)"),
    ("most", "most(curve, points)"),
    ("mean", "mean(numbers)"),
    ("sum", "sum(numbers)"),
    ("min", "min(numbers)"),
    ("max", "max(numbers)"),
    ("standard_deviation", "standard_deviation(numbers)"),
    ("quantile", "quantile(numbers, part)"),
    ("share", "share(numbers)"),
    ("ratios", "ratios(numbers, of)"),
    ("lower", "lower(numbers, others)"),
    ("max_where_below", "max_where_below(numbers, others, limit)"),
    ("crossing", "crossing(numbers, heights, height)"),
    ("deviation", "deviation(numbers, ideals)"),
];

/// Parts of the calls at which a cumulative distribution is drawn.
const DISTRIBUTION_STEPS: usize = 200;

/// How `name` is to be used, if it is a function.
pub(super) fn usage(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(function, _)| *function == name).map(|(_, usage)| *usage)
}

pub(super) fn names() -> String {
    FUNCTIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

pub(super) fn constants() -> String {
    CONSTANTS.iter().map(|(name, _)| *name).chain(["paper", "x"]).collect::<Vec<_>>().join(", ")
}

/// The points of a curve.
#[derive(Clone, Debug)]
pub(super) struct Points(pub(super) Vec<(f64, f64)>);

fn points(list: Vec<(f64, f64)>) -> Dynamic {
    Dynamic::from(Points(list))
}

/// A figure with two arguments, with and without a window.
fn figure(
    engine: &mut Engine,
    name: &'static str,
    of: impl Fn(&RunOf, &str, &str, Window) -> Result<Dynamic, String> + Clone + 'static,
) {
    let with_window = of.clone();
    engine.register_fn(name, move |runs: &mut Runs, source: Dynamic, kind: &str| {
        each(runs, &source, None, &|run, source, window| of(run, source, kind, window))
    });
    engine.register_fn(name, move |runs: &mut Runs, source: Dynamic, kind: &str, from: Dynamic, to: Dynamic| {
        each(runs, &source, Some((from, to)), &|run, source, window| with_window(run, source, kind, window))
    });
}

pub(super) fn register(engine: &mut Engine, all: Rc<Vec<Rc<RunOf>>>) {
    engine.register_type_with_name::<Runs>("Runs").register_type_with_name::<Points>("Points");
    register_choice(engine, all);
    let number = |result: Result<f64, String>| result.map(Dynamic::from);
    figure(engine, "rate", move |run, source, kind, w| number(run.per_second(source, kind, w, |s| s.bytes)));
    figure(engine, "calls", move |run, source, kind, w| number(run.per_second(source, kind, w, |s| s.count)));
    figure(engine, "bytes", move |run, source, kind, w| number(run.sum(source, kind, w, |s| s.bytes)));
    figure(engine, "count", move |run, source, kind, w| number(run.sum(source, kind, w, |s| s.count)));
    figure(engine, "latency_mean", move |run, source, kind, w| number(run.latency_mean(source, kind, w)));
    figure(engine, "rate_by_second", |run, source, kind, w| {
        run.by_second(source, kind, w, |second| second.bytes as f64).map(points)
    });
    figure(engine, "calls_by_second", |run, source, kind, w| {
        run.by_second(source, kind, w, |second| second.count as f64).map(points)
    });
    figure(engine, "latency_by_second", |run, source, kind, w| {
        let mean = |second: &crate::results::Second| second.latency_sum_ns as f64 / second.count.max(1) as f64 / 1e9;
        run.by_second(source, kind, w, mean).map(points)
    });
    figure(engine, "latencies", |run, source, kind, w| {
        let part = |step: usize| step as f64 / DISTRIBUTION_STEPS as f64;
        let steps = (1..=DISTRIBUTION_STEPS).map(|step| Ok((run.latency(source, kind, part(step), w)?, part(step))));
        steps.collect::<Result<Vec<_>, String>>().map(points)
    });
    engine.register_fn("latency", |runs: &mut Runs, source: Dynamic, kind: &str, part: Dynamic| {
        let part = wanted(&part, "a part of the calls")?;
        each(runs, &source, None, &|run, source, w| run.latency(source, kind, part, w).map(Dynamic::from))
    });
    engine.register_fn(
        "latency",
        |runs: &mut Runs, source: Dynamic, kind: &str, part: Dynamic, from: Dynamic, to: Dynamic| {
            let part = wanted(&part, "a part of the calls")?;
            each(runs, &source, Some((from, to)), &|run, source, w| {
                run.latency(source, kind, part, w).map(Dynamic::from)
            })
        },
    );
    engine.register_fn(
        "rate_in_turns",
        |runs: &mut Runs, source: Dynamic, kind: &str, first: Dynamic, seconds: Dynamic, every: Dynamic| {
            let turns = turns(&first, &seconds, &every)?;
            each(runs, &source, None, &|run, source, w| run.rate_in_turns(source, kind, w, turns).map(Dynamic::from))
        },
    );
    engine.register_fn("ended", |runs: &mut Runs, source: Dynamic| {
        each(runs, &source, None, &|run, source, _| run.ended(source).map(Dynamic::from))
    });
    engine.register_fn("took", |runs: &mut Runs, source: Dynamic| {
        each(runs, &source, None, &|run, source, _| run.took(source).map(Dynamic::from))
    });
    register_machine(engine);
    register_restarts(engine);
    cached::register(engine);
    register_statistics(engine);
    register_pairs(engine);
}

fn turns(first: &Dynamic, seconds: &Dynamic, every: &Dynamic) -> Result<Turns, Box<EvalAltResult>> {
    let [first, seconds, every] = [first, seconds, every].map(|value| wanted(value, "seconds"));
    let turns = Turns { first: first? as u64, seconds: seconds? as u64, every: every? as u64 };
    match (1..=turns.every).contains(&turns.seconds) {
        true => Ok(turns),
        false => fail(format!("{} of every {} seconds, which are no turns", turns.seconds, turns.every)),
    }
}

fn of_all(runs: &Runs, of: impl Fn(&RunResult) -> f64) -> Answer {
    each(runs, &Dynamic::from(""), None, &|run, _, _| Ok(run.machine(&of)?.into()))
}

/// Figures of the whole machine.
fn register_machine(engine: &mut Engine) {
    type Of = fn(&RunResult) -> f64;
    let figures: [(&str, Of); 7] = [
        ("cpu_cores", |result| result.cpu_cores),
        ("device_busy", |result| result.device_busy),
        ("tag_bytes_mean", |result| result.tag_bytes_mean),
        ("tag_bytes_max", |result| result.tag_bytes_max),
        ("far_lines", |result| result.far_lines),
        ("consistency_points", |result| result.consistency_points),
        ("log_waits", |result| result.log_waits),
    ];
    for (name, of) in figures {
        engine.register_fn(name, move |runs: &mut Runs| of_all(runs, of));
    }
    engine.register_fn("priority_share", |runs: &mut Runs, level: i64| -> Answer {
        match usize::try_from(level).ok().filter(|&level| level < PRIORITY_LEVELS) {
            Some(level) => of_all(runs, |result| result.priority_shares[level]),
            None => fail(format!("priority {level}, which is not from 0 to {}", PRIORITY_LEVELS - 1)),
        }
    });
}

/// The part of the requests that were restarted so often.
fn register_restarts(engine: &mut Engine) {
    engine.register_fn("restarts", |runs: &mut Runs, times: i64| -> Answer {
        match usize::try_from(times).ok().filter(|&times| times < 4) {
            Some(times) => of_all(runs, |result| result.restarts[times]),
            None => fail(format!("{times} restarts, which is not 0, 1, 2 or 3 (and more)")),
        }
    });
}

fn register_choice(engine: &mut Engine, all: Rc<Vec<Rc<RunOf>>>) {
    fn one(all: &[Rc<RunOf>], selector: &str) -> Result<Runs, Box<EvalAltResult>> {
        let list = Runs::select(all, selector)?;
        if list.len() != 1 {
            return fail(format!("run(\"{selector}\"), which are {} variants; runs(...) takes several", list.len()));
        }
        Ok(Runs { list, is_one: true })
    }
    let names = all.first().map(|run| run.sources.clone()).unwrap_or_default();
    engine.register_fn("sources", move |beginning: &str| -> Answer {
        let named: Array =
            names.iter().filter(|name| name.starts_with(beginning)).map(|name| name.clone().into()).collect();
        match named.is_empty() {
            true => fail(format!("sources that begin with {beginning:?}, of which there are none")),
            false => Ok(named.into()),
        }
    });
    let (a, b, c, d) = (all.clone(), all.clone(), all.clone(), all);
    engine.register_fn("run", move |selector: &str| one(&a, selector));
    engine.register_fn("run", move || one(&b, ""));
    engine.register_fn("runs", move |selector: &str| -> Result<Runs, Box<EvalAltResult>> {
        Ok(Runs { list: Runs::select(&c, selector)?, is_one: false })
    });
    engine.register_fn("runs", move || Runs { list: d.to_vec(), is_one: false });
}

/// The numbers of an array, however it is nested.
fn flat(array: &Array) -> Result<Vec<f64>, Box<EvalAltResult>> {
    let mut numbers = Vec::new();
    for item in array {
        match item.read_lock::<Array>() {
            Some(inner) => numbers.extend(flat(&inner)?),
            None => numbers.push(wanted(item, "a number")?),
        }
    }
    Ok(numbers)
}

/// Multiplies each number of `value`; of points only the y.
fn scaled(value: &Dynamic, factor: f64) -> Answer {
    if let Some(number) = number(value) {
        return Ok((number * factor).into());
    }
    if let Some(points) = value.read_lock::<Points>() {
        return Ok(Dynamic::from(Points(points.0.iter().map(|&(x, y)| (x, y * factor)).collect())));
    }
    let Some(items) = value.read_lock::<Array>() else { return fail(format!("{value} times {factor}")) };
    Ok(items.iter().map(|item| scaled(item, factor)).collect::<Result<Array, _>>()?.into())
}

/// The better of two heights.
type Better = fn(f64, f64) -> f64;

/// The best mean of `length` consecutive points, of a curve or of each curve in an array.
fn extreme(value: &Dynamic, length: usize, better: Better) -> Answer {
    if let Some(points) = value.read_lock::<Points>() {
        let heights: Vec<f64> = points.0.iter().map(|point| point.1).collect();
        let best = statistics::moving_means(&heights, length).into_iter().reduce(better);
        return best.map_or_else(
            || fail(format!("a curve of {} points, in rows of {length}", heights.len())),
            |best| Ok(best.into()),
        );
    }
    let Some(curves) = value.read_lock::<Array>() else { return fail(format!("{value}, which is no curve")) };
    Ok(curves.iter().map(|curve| extreme(curve, length, better)).collect::<Result<Array, _>>()?.into())
}

/// What is done pair by pair.
fn register_pairs(engine: &mut Engine) {
    engine.register_fn("ratios", |array: Array, of: Array| -> Answer {
        let (numbers, of) = (flat(&array)?, flat(&of)?);
        match statistics::ratios(&numbers, &of) {
            Some(ratios) => Ok(ratios.into_iter().map(Dynamic::from).collect::<Array>().into()),
            None => fail("ratios of arrays that do not fit, or to 0".into()),
        }
    });
    engine.register_fn("lower", |array: Array, others: Array| -> Answer {
        let (numbers, others) = (flat(&array)?, flat(&others)?);
        if numbers.len() != others.len() {
            return fail("lower of arrays that do not fit".into());
        }
        let lower = numbers.into_iter().zip(others).map(|(number, other)| Dynamic::from(number.min(other)));
        Ok(lower.collect::<Array>().into())
    });
    engine.register_fn("max_where_below", |array: Array, others: Array, limit: Dynamic| -> Answer {
        let (numbers, others, limit) = (flat(&array)?, flat(&others)?, wanted(&limit, "a limit")?);
        if numbers.len() != others.len() {
            return fail("max_where_below of arrays that do not fit".into());
        }
        let counted = numbers.into_iter().zip(others).filter(|&(_, other)| other < limit);
        Ok(counted.map(|(number, _)| number).reduce(f64::max).unwrap_or(0.0).into())
    });
    engine.register_fn("crossing", |array: Array, heights: Array, height: Dynamic| -> Answer {
        let (numbers, heights, height) = (flat(&array)?, flat(&heights)?, wanted(&height, "a height")?);
        let answer = statistics::crossing(&numbers, &heights, height);
        answer.map_or_else(|| fail("crossing of arrays that do not fit".into()), |number| Ok(number.into()))
    });
}

fn register_statistics(engine: &mut Engine) {
    type Statistic = fn(&[f64]) -> Option<f64>;
    let statistics: [(&str, Statistic); 5] = [
        ("mean", statistics::mean),
        ("sum", |numbers| Some(numbers.iter().sum())),
        ("min", |numbers| numbers.iter().copied().reduce(f64::min)),
        ("max", |numbers| numbers.iter().copied().reduce(f64::max)),
        ("standard_deviation", statistics::standard_deviation),
    ];
    for (name, statistic) in statistics {
        engine.register_fn(name, move |array: Array| match statistic(&flat(&array)?) {
            Some(number) => Ok(Dynamic::from(number)),
            None => fail(format!("{name} of no numbers")),
        });
    }
    engine.register_fn("quantile", |array: Array, part: Dynamic| -> Answer {
        let answer = statistics::quantile(&flat(&array)?, wanted(&part, "a part")?);
        answer.map_or_else(|| fail("quantile of no numbers".into()), |number| Ok(number.into()))
    });
    engine.register_fn("share", |array: Array| -> Answer {
        let numbers = flat(&array)?;
        let sum: f64 = numbers.iter().sum();
        if sum == 0.0 {
            return fail("share of nothing".into());
        }
        Ok(numbers.into_iter().map(|number| Dynamic::from(number / sum)).collect::<Array>().into())
    });
    engine.register_fn("deviation", |values: Array, ideals: Array| -> Answer {
        let answer = statistics::deviation(&flat(&values)?, &flat(&ideals)?);
        answer.map_or_else(|| fail("deviation of arrays that do not fit, or from 0".into()), |number| Ok(number.into()))
    });
    engine.register_fn("last_below", |points: Points, y: Dynamic| -> Answer {
        let y = wanted(&y, "a height")?;
        match points.0.iter().rev().find(|point| point.1 < y).or(points.0.first()) {
            Some(point) => Ok(point.0.into()),
            None => fail("last_below of a curve without points".into()),
        }
    });
    for (name, better) in [("least", f64::min as Better), ("most", f64::max)] {
        engine.register_fn(name, move |points: Points, length: Dynamic| {
            extreme(&Dynamic::from(points), wanted(&length, "a number of points")? as usize, better)
        });
        engine.register_fn(name, move |curves: Array, length: Dynamic| {
            extreme(&curves.into(), wanted(&length, "a number of points")? as usize, better)
        });
    }
    // Arrays and points take part in arithmetic with a number, so that `rate(...) / MB` works for one and for many.
    engine.register_fn("/", |array: Array, divisor: f64| scaled(&array.into(), 1.0 / divisor));
    engine.register_fn("*", |array: Array, factor: f64| scaled(&array.into(), factor));
    engine.register_fn("/", |points: Points, divisor: f64| scaled(&Dynamic::from(points), 1.0 / divisor));
    engine.register_fn("*", |points: Points, factor: f64| scaled(&Dynamic::from(points), factor));
}
