//! A recorded trace through every policy of the cache, at several sizes at once.
//!
//! The trace is read twice, in bounded memory: once for the size of its volumes and the number of blocks, once for all
//! caches together. A cache sees blocks only; time does not pass between two of them.
//!
//! **The syncer** writes back two units for each accessed block, while it is awake. It keeps up with any load, but a
//! burst of writes keeps it busy for a while. During that time the classes that enter while it sleeps bypass the cache.
//! A real store is slower in a burst and faster in a pause.

mod footprint;

pub use footprint::{Footprint, FootprintError};

use crate::picture::{Drawing, DrawnPanel, DrawnSeries, Point};
use crate::scenario::{PanelKind, Scale};
use plimsoll_cache::{ANNOUNCED_AHEAD, Access, Cache, CacheConfig, ConfigError, Outcome, PolicyEntry, Pool};
use plimsoll_core::Class;
use plimsoll_core::class::{CLASSES, Scheme};
use plimsoll_settings::scheme::NamedScheme;
use plimsoll_traces::{Reader, TraceError};
use serde::Serialize;
use thiserror::Error;

/// Units that the syncer writes back for each block accessed, while it is awake.
const CLEANED_PER_ACCESS: u32 = 2;
/// Blocks that one cache sees before the next one's turn. So its data stays in the processor's caches.
const BATCH: usize = 4096;

/// How large a cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheSize {
    /// A part of the blocks that the trace touches, above 0.
    Part(f64),
    /// Bytes, at least a unit.
    Bytes(u64),
}

/// What is compared.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Sizes, at least one.
    pub sizes: Vec<CacheSize>,
    /// Policies, at least one.
    pub policies: Vec<&'static PolicyEntry>,
    /// What the trace's classes are.
    pub scheme: NamedScheme,
    /// Whether reads take blocks in.
    pub promotes_reads: bool,
    /// Bytes of a unit, a power of two.
    pub unit_bytes: u64,
}

/// Why there is no report.
#[derive(Debug, Error)]
pub enum CacheReplayError {
    /// The trace is wrong.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Its volumes are more than a cache can stand before.
    #[error(transparent)]
    Footprint(#[from] FootprintError),
    /// A cache that cannot be.
    #[error("a cache of {units} units: {problem}")]
    Cache {
        /// Its size.
        units: u64,
        /// What is wrong with it.
        problem: String,
    },
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct CacheReport {
    /// The scheme of classes.
    pub classes: String,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Blocks read and written, each as often as it was.
    pub accesses: u64,
    /// Of them the written ones.
    pub writes: u64,
    /// Different blocks: exactly below 65,536, else within two hundredths.
    pub blocks: u64,
    /// A row for each size and policy.
    pub rows: Vec<CacheRow>,
}

/// One cache. A per cent of nothing is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct CacheRow {
    /// Its policy.
    pub policy: &'static str,
    /// Its units.
    pub units: u32,
    /// The same in per cent of the trace's different blocks.
    pub size_percent: Option<f64>,
    /// Per cent of the blocks read and written that were in it.
    pub hit_percent: Option<f64>,
    /// Per cent of the blocks read that were in it.
    pub read_hit_percent: Option<f64>,
    /// Per cent of the blocks written that were in it.
    pub write_hit_percent: Option<f64>,
    /// Per cent of the blocks that were not in it and did not come in.
    pub past_percent: Option<f64>,
    /// Per cent of all moved blocks that the syncer moved: out of the cache and to the store, two for each cleaned
    /// unit.
    pub syncer_percent: Option<f64>,
    /// Units written back.
    pub cleaned: u64,
    /// By class, those that were met.
    pub classes: Vec<ClassRow>,
}

/// One class in one cache. A per cent of nothing is `None`.
#[derive(Clone, Debug, Serialize)]
pub struct ClassRow {
    /// Its number.
    pub number: u8,
    /// Its name, or the number where the scheme has none.
    pub class: String,
    /// Blocks read and written.
    pub accesses: u64,
    /// Per cent of them that were in the cache.
    pub hit_percent: Option<f64>,
    /// Units that it has at the end.
    pub units: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    accesses: u64,
    hits: u64,
}

impl Count {
    fn percent(&self) -> Option<f64> {
        percent(self.hits, self.accesses)
    }
}

/// `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

/// A cache and what it has seen.
struct Run {
    policy: &'static str,
    units: u32,
    cache: Cache,
    classes: [Count; CLASSES],
    /// Reads, writes.
    kinds: [Count; 2],
    past: u64,
    cleaned: u64,
}

impl Run {
    fn batch(&mut self, accesses: &[Access]) {
        for (at, access) in accesses.iter().enumerate() {
            if let Some(later) = accesses.get(at + ANNOUNCED_AHEAD) {
                self.cache.announce(later.block);
            }
            let outcome = self.cache.access(access);
            let is_hit = u64::from(matches!(outcome, Outcome::Hit(_)));
            let is_past = !matches!(outcome, Outcome::Hit(_) | Outcome::Taken(_));
            let (class, kind) = (usize::from(access.class.number()), usize::from(access.is_write));
            for count in [&mut self.classes[class], &mut self.kinds[kind]] {
                count.accesses += 1;
                count.hits += is_hit;
            }
            self.past += u64::from(is_past);
            for _ in 0..CLEANED_PER_ACCESS {
                let Some(job) = self.cache.clean_next() else { break };
                self.cache.cleaned(job.unit);
                self.cleaned += 1;
            }
        }
    }

    fn row(&self, blocks: u64, scheme: &Scheme) -> CacheRow {
        let [reads, writes] = self.kinds;
        let accesses = reads.accesses + writes.accesses;
        let moved = self.cleaned * 2;
        let classes = self.classes.iter().enumerate().filter(|(_, count)| count.accesses > 0).map(|(number, count)| {
            let class = Class::new(number as u8).expect("as many as there are");
            ClassRow {
                number: class.number(),
                class: scheme.entry(class).map_or_else(|| number.to_string(), |entry| entry.name.clone()),
                accesses: count.accesses,
                hit_percent: count.percent(),
                units: self.cache.class_units(class),
            }
        });
        CacheRow {
            policy: self.policy,
            units: self.units,
            size_percent: percent(u64::from(self.units), blocks),
            hit_percent: percent(reads.hits + writes.hits, accesses),
            read_hit_percent: reads.percent(),
            write_hit_percent: writes.percent(),
            past_percent: percent(self.past, accesses),
            syncer_percent: percent(moved, moved + accesses),
            cleaned: self.cleaned,
            classes: classes.collect(),
        }
    }
}

/// Replays the trace that `open` opens, twice; `progress` is told after each some how many blocks were replayed of how
/// many.
///
/// # Errors
/// What is wrong with the trace or the options.
pub fn replay_cache(
    open: impl Fn() -> Result<Reader, TraceError>,
    options: &CacheOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<CacheReport, CacheReplayError> {
    let footprint = Footprint::of(open()?, options.unit_bytes)?;
    let blocks = footprint.blocks();
    let mut runs = runs(options, blocks)?;
    let mut batch: Vec<Access> = Vec::with_capacity(BATCH);
    let (mut done, mut writes) = (0, 0);
    let mut replay = |batch: &mut Vec<Access>| {
        runs.iter_mut().for_each(|run| run.batch(batch));
        done += batch.len() as u64;
        batch.clear();
        progress(done, footprint.accesses());
    };
    for record in open()? {
        let record = record?;
        let (class, is_write) = (record.class, record.operation.is_write());
        for block in footprint.blocks_of(&record) {
            writes += u64::from(is_write);
            batch.push(Access { block, class, pool: Pool::default(), is_write });
            if batch.len() == BATCH {
                replay(&mut batch);
            }
        }
    }
    replay(&mut batch);
    Ok(CacheReport {
        classes: options.scheme.name.clone(),
        unit_bytes: options.unit_bytes,
        accesses: footprint.accesses(),
        writes,
        blocks,
        rows: runs.iter().map(|run| run.row(blocks, &options.scheme.scheme)).collect(),
    })
}

fn runs(options: &CacheOptions, blocks: u64) -> Result<Vec<Run>, CacheReplayError> {
    let mut runs = Vec::new();
    for size in &options.sizes {
        let units = match size {
            CacheSize::Part(part) => ((blocks as f64 * part) as u64).max(1),
            CacheSize::Bytes(bytes) => bytes / options.unit_bytes,
        };
        for policy in &options.policies {
            let wrong = |problem: String| CacheReplayError::Cache { units, problem };
            let fitting = u32::try_from(units).map_err(|_| wrong("allowed are at most 134217727".into()))?;
            let mut config = CacheConfig::new(fitting, options.scheme.scheme.clone());
            config.promotes_reads = options.promotes_reads;
            let cache = Cache::new(&config, policy).map_err(|problem: ConfigError| wrong(problem.to_string()))?;
            let (classes, kinds) = Default::default();
            runs.push(Run { policy: policy.name, units: fitting, cache, classes, kinds, past: 0, cleaned: 0 });
        }
    }
    Ok(runs)
}

/// A figure of a cache.
type Value = fn(&CacheRow) -> Option<f64>;

/// The curves of misses and of the syncer's part over the size, a line for each policy.
pub fn drawing(report: &CacheReport, title: &str) -> Drawing {
    const KINDS: [(&str, Value); 3] = [
        ("reads that miss", |row| Some(100.0 - row.read_hit_percent?)),
        ("writes that miss", |row| Some(100.0 - row.write_hit_percent?)),
        ("blocks moved that the syncer moved", |row| row.syncer_percent),
    ];
    let is_there = |kind: usize| match kind {
        0 => report.writes < report.accesses,
        _ => report.writes > 0,
    };
    let panels = KINDS.iter().enumerate().filter(|(kind, _)| is_there(*kind)).map(|(_, (label, value))| {
        let mut series: Vec<DrawnSeries> = Vec::new();
        for row in &report.rows {
            let (Some(x), Some(y)) = (row.size_percent, value(row)) else { continue };
            let point = Point { x, y, half_width: None };
            match series.iter_mut().find(|series| series.label == row.policy) {
                Some(series) => series.points.push(point),
                None => series.push(DrawnSeries { label: row.policy.into(), points: vec![point], paper: vec![] }),
            }
        }
        series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        DrawnPanel {
            title: (*label).into(),
            kind: PanelKind::Curve,
            x: Scale { label: "cache, per cent of the blocks that are touched".into(), is_log: false },
            y: Scale { label: "per cent".into(), is_log: false },
            over: Vec::new(),
            series,
        }
    });
    Drawing { title: title.to_owned(), panels: panels.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_cache::policies;
    use plimsoll_traces::ReadOptions;

    /// 40 rounds over 100 blocks of volume 0, and after each block one of volume 1 that is written and never seen
    /// again.
    fn open() -> Result<Reader, TraceError> {
        let lines = (0..40 * 100).map(|number: u64| {
            let (block, other) = (number % 100 * 8, number * 8);
            format!("0,{block},4096,R,{number}.0\n1,{other},4096,W,{number}.5\n")
        });
        let text: String = lines.collect();
        Reader::new("test.spc", std::io::Cursor::new(text), ReadOptions::default())
    }

    fn options(sizes: &[CacheSize]) -> CacheOptions {
        CacheOptions {
            sizes: sizes.to_vec(),
            policies: policies().iter().collect(),
            scheme: plimsoll_settings::scheme::load("ext4").unwrap(),
            promotes_reads: true,
            unit_bytes: 4096,
        }
    }

    /// Promise: lab-replay-cache.
    #[test]
    fn hits_writes_and_the_syncers_work_are_counted() {
        let last = std::cell::Cell::new((0, 0));
        let report =
            replay_cache(open, &options(&[CacheSize::Bytes(400 * 4096)]), &|done, all| last.set((done, all))).unwrap();
        assert_eq!((report.accesses, report.writes, report.blocks), (8000, 4000, 4100));
        assert_eq!(last.get(), (8000, 8000));
        for row in &report.rows {
            // The loop of 100 blocks and as many written ones fit into 400 units.
            assert_eq!((row.read_hit_percent, row.write_hit_percent), (Some(97.5), Some(0.0)), "{}", row.policy);
            assert_eq!((row.hit_percent, row.past_percent), (Some(48.75), Some(0.0)));
            // What was written has left, but for what the cache still holds.
            assert!((3600..=4000).contains(&row.cleaned), "{}", row.cleaned);
            let syncer = row.cleaned as f64 * 2.0 / (row.cleaned as f64 * 2.0 + 8000.0) * 100.0;
            assert!((row.syncer_percent.unwrap() - syncer).abs() < 1e-9);
            assert_eq!((row.classes.len(), row.classes[0].class.as_str()), (1, "unclassified"));
        }
    }

    #[test]
    fn without_promotion_reads_go_past() {
        let options = CacheOptions { promotes_reads: false, ..options(&[CacheSize::Part(0.1)]) };
        let report = replay_cache(open, &options, &|_, _| ()).unwrap();
        for row in &report.rows {
            assert_eq!((row.units, row.read_hit_percent, row.past_percent), (410, Some(0.0), Some(50.0)));
        }
    }

    #[test]
    fn the_picture_has_a_curve_for_each_policy() {
        let report = replay_cache(open, &options(&[CacheSize::Part(0.1), CacheSize::Part(0.01)]), &|_, _| ()).unwrap();
        let drawing = drawing(&report, "test");
        assert_eq!(drawing.panels.len(), 3);
        for panel in &drawing.panels {
            assert_eq!(panel.series.len(), policies().len());
            assert!(panel.series.iter().all(|series| series.points[0].x < series.points[1].x));
        }
    }
}
