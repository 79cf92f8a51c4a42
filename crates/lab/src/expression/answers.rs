//! What the functions of the language answer with, and how they refuse an argument.

use super::runs::{RunOf, Runs, Window};
use rhai::{Array, Dynamic, EvalAltResult};

pub(super) type Answer = Result<Dynamic, Box<EvalAltResult>>;

/// What is asked of one variant and one source.
type Figure<'f> = &'f dyn Fn(&RunOf, &str, Window) -> Result<Dynamic, String>;

/// The number that `value` is, if it is one.
pub(super) fn number(value: &Dynamic) -> Option<f64> {
    value.as_float().ok().or_else(|| value.as_int().ok().map(|whole| whole as f64))
}

pub(super) fn fail<T>(message: String) -> Result<T, Box<EvalAltResult>> {
    Err(message.into())
}

pub(super) fn wanted(value: &Dynamic, what: &str) -> Result<f64, Box<EvalAltResult>> {
    number(value).map_or_else(|| fail(format!("{value} as {what}, which is no number")), Ok)
}

/// Answers for each run and each source: a number, or an array where there are several.
pub(super) fn each(runs: &Runs, source: &Dynamic, window: Option<(Dynamic, Dynamic)>, figure: Figure<'_>) -> Answer {
    let given = match window {
        None => None,
        Some((from, to)) => {
            let second = |value: &Dynamic| Ok::<_, Box<EvalAltResult>>(wanted(value, "a second")?.max(0.0) as usize);
            Some(Window { from: second(&from)?, to: second(&to)? })
        }
    };
    let of_run = |run: &RunOf| -> Answer {
        let window = given.unwrap_or(run.window);
        let one = |source: &Dynamic| match source.clone().into_immutable_string() {
            Ok(name) => figure(run, &name, window).map_err(Into::into),
            Err(_) => fail(format!("{source} as a source, which is no text")),
        };
        match source.read_lock::<Array>() {
            Some(sources) => Ok(sources.iter().map(one).collect::<Result<Array, _>>()?.into()),
            None => one(source),
        }
    };
    match (runs.is_one, &runs.list[..]) {
        (true, [run]) => of_run(run),
        _ => Ok(runs.list.iter().map(|run| of_run(run)).collect::<Result<Array, _>>()?.into()),
    }
}
