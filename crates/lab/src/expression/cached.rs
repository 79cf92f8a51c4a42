//! Figures of the cache before a machine's device.

use super::answers::{Answer, each, fail, wanted};
use super::runs::Runs;
use plimsoll_core::class::CLASSES;
use plimsoll_sim::cached_volume::{CacheFigures, ClassCounts};
use rhai::{Dynamic, Engine};

/// One count of a class.
type ClassCount = fn(&ClassCounts) -> u64;

/// Classes from one number to another.
#[derive(Clone, Copy)]
struct Range {
    first: usize,
    last: usize,
}

impl Range {
    const ALL: Range = Range { first: 0, last: CLASSES - 1 };

    fn of(first: &Dynamic, last: &Dynamic) -> Result<Range, Box<rhai::EvalAltResult>> {
        let (first, last) = (wanted(first, "a class")?, wanted(last, "a class")?);
        match first >= 0.0 && first <= last && last < CLASSES as f64 {
            true => Ok(Range { first: first as usize, last: last as usize }),
            false => fail(format!("classes {first} to {last}, which are not from 0 to {}", CLASSES - 1)),
        }
    }

    fn sum(self, figures: &CacheFigures, of: ClassCount) -> u64 {
        figures.classes[self.first..=self.last].iter().map(of).sum()
    }
}

fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

fn read_hits(runs: &mut Runs, source: &Dynamic, range: Range) -> Answer {
    let hits = move |figures: &CacheFigures| {
        part(range.sum(figures, |counts| counts.read_hits), range.sum(figures, |counts| counts.reads))
    };
    each(runs, source, None, &|run, source, _| run.cache(source, |_, figures| hits(figures)).map(Dynamic::from))
}

pub(super) fn register(engine: &mut Engine) {
    engine.register_fn("read_hits", |runs: &mut Runs, source: Dynamic| read_hits(runs, &source, Range::ALL));
    engine.register_fn("read_hits", |runs: &mut Runs, source: Dynamic, first: Dynamic, last: Dynamic| {
        read_hits(runs, &source, Range::of(&first, &last)?)
    });
    engine.register_fn("syncer_part", |runs: &mut Runs, source: Dynamic| {
        each(runs, &source, None, &|run, source, _| {
            run.cache(source, |_, figures| figures.syncer_part()).map(Dynamic::from)
        })
    });
    engine.register_fn("contents", |runs: &mut Runs, source: Dynamic, first: Dynamic, last: Dynamic| {
        let range = Range::of(&first, &last)?;
        each(runs, &source, None, &|run, source, _| {
            let held = run.cache(source, |result, figures| part(range.sum(figures, |c| c.units), result.cache_units));
            held.map(Dynamic::from)
        })
    });
    let parts: [(&str, ClassCount); 2] = [("read_part", |counts| counts.reads), ("write_part", |counts| counts.writes)];
    for (name, count) in parts {
        engine.register_fn(name, move |runs: &mut Runs, source: Dynamic, first: Dynamic, last: Dynamic| {
            let range = Range::of(&first, &last)?;
            each(runs, &source, None, &|run, source, _| {
                let of = |figures: &CacheFigures| part(range.sum(figures, count), figures.sum(count));
                run.cache(source, |_, figures| of(figures)).map(Dynamic::from)
            })
        });
    }
}
