//! Rows of the volumes' caches (docs/cache.md).

use super::metric::{MetricRow, Unit, counter, gauge, json_only, label, plain};
use super::section::Section;
use crate::control::caches::CacheEntry;
use plimsoll_core::Span;
use plimsoll_engine::status::{CacheClassStatus, CachePoolStatus, CacheStatus};

/// The cache before a volume.
pub static CACHE: Section<CacheStatus> =
    Section { places: &["status.devices[].volumes[].cache", "caches[].cache"], rows: CACHE_ROWS };

const CACHE_ROWS: &[MetricRow<CacheStatus>] = &[
    label("name", "cache", "the cache's name", |cache: &CacheStatus| (&cache.name).into()).column("cache"),
    plain("path", Unit::None, "its device or file", |cache| (&cache.path).into()),
    plain("policy", Unit::None, "its policy", |cache: &CacheStatus| (&cache.policy).into()).column("policy"),
    plain("semantics", Unit::None, "when a write is answered: `write-cache`, `strict` or `write-through`", |cache: &CacheStatus| {
        (&cache.writes.semantics).into()
    })
    .cell("semantics", semantics),
    plain("is_strict", Unit::None, "a write is answered only when it is durable", |cache| cache.writes.is_strict.into()),
    plain("dirty_age_max_ns", Unit::Nanoseconds, "how long a unit may be dirty; `null`: for ever", |cache| {
        cache.writes.dirty_age_max_ns.into()
    }),
    plain(
        "idle_write_back_ns",
        Unit::Nanoseconds,
        "after how long without a request everything is written back; `null`: never",
        |cache| cache.writes.idle_write_back_ns.into(),
    ),
    gauge("units", "cache_size_bytes", Unit::Blocks, "its size; a unit is a block of 4 KiB", |cache: &CacheStatus| cache.units.into())
        .column(">size"),
    gauge("used_units", "cache_used_bytes", Unit::Blocks, "units that hold a block", |cache: &CacheStatus| cache.used_units.into())
        .column(">used"),
    gauge(
        "dirty_units",
        "cache_dirty_bytes",
        Unit::Blocks,
        "units with a block that the slow device does not have yet",
        |cache: &CacheStatus| cache.dirty_units.into(),
    )
    .column(">dirty"),
    gauge(
        "dirty_units_max",
        "cache_dirty_max_bytes",
        Unit::Blocks,
        "units that may be dirty at once; `null`: all",
        |cache: &CacheStatus| cache.writes.dirty_units_max.into(),
    )
    .column(">at most"),
    gauge(
        "free_units",
        "cache_free_bytes",
        Unit::Blocks,
        "units without a block, or with one that may be replaced at any time; reads still find that block",
        |cache: &CacheStatus| cache.free_units.into(),
    )
    .column(">free"),
    gauge(
        "paced_percent",
        "cache_paced_ratio",
        Unit::Percent,
        "how far writes of new blocks are paced: 0 while there is room for all of them, 100 when as many come in as the slow \
         device takes",
        |cache: &CacheStatus| cache.paced_percent.into(),
    )
    .column(">paced"),
    gauge("is_syncer_awake", "cache_syncer_awake", Unit::None, "the syncer makes room", |cache: &CacheStatus| {
        cache.is_syncer_awake.into()
    })
    .cell("syncer", syncer),
    gauge(
        "is_cleaning",
        "cache_cleaning",
        Unit::None,
        "everything dirty is being copied to the slow device, because a command asked for it",
        |cache| cache.is_cleaning.into(),
    ),
    counter(
        "clean_passes",
        "cache_clean_passes_total",
        Unit::None,
        "how often everything dirty was copied so far",
        |cache| cache.clean_passes.into(),
    ),
    counter("cleaned", "cache_cleaned_bytes_total", Unit::Blocks, "units copied to the slow device", |cache: &CacheStatus| {
        cache.cleaned.into()
    })
    .column(">copied"),
    counter(
        "writes_around",
        "cache_written_around_bytes_total",
        Unit::Blocks,
        "blocks that were written past the cache",
        |cache: &CacheStatus| cache.writes_around.into(),
    )
    .column(">past it"),
    gauge("is_working", "cache_working", Unit::None, "requests go through it; not while it begins or ends", |cache: &CacheStatus| {
        cache.is_working.into()
    })
    .cell("state", state),
    gauge("has_failed", "cache_failed", Unit::None, "its device failed: writes are refused", |cache| {
        cache.has_failed.into()
    }),
    gauge(
        "waiting_requests",
        "cache_waiting_requests",
        Unit::None,
        "requests that wait for the cache to take them, or the last of their blocks",
        |cache| cache.waiting_requests.into(),
    ),
    counter("commits", "cache_commits_total", Unit::None, "blocks of the journal that were written", |cache| {
        cache.commits.into()
    }),
    counter("snapshots", "cache_snapshots_total", Unit::None, "snapshots of the map that were written", |cache| {
        cache.snapshots.into()
    }),
    counter(
        "damaged_clean",
        "cache_damaged_clean_bytes_total",
        Unit::Blocks,
        "clean units that were damaged, each once: the slow device replaced them",
        |cache| cache.damaged_clean.into(),
    ),
    counter(
        "damaged_dirty",
        "cache_damaged_dirty_bytes_total",
        Unit::Blocks,
        "dirty units that were damaged, each once: they are lost",
        |cache| cache.damaged_dirty.into(),
    ),
    gauge(
        "not_copied",
        "cache_not_copied_bytes",
        Unit::Blocks,
        "blocks that the slow device refused when everything dirty was last copied: they are in the cache",
        |cache| cache.not_copied.into(),
    ),
    json_only(
        "not_copied_bytes",
        Unit::Bytes,
        "the first thousand of these blocks, as ranges: the first byte of each on the slow device, and the byte \
         behind its last",
    ),
    gauge(
        "unreadable",
        "cache_unreadable_bytes",
        Unit::Blocks,
        "dirty units that are damaged now: neither written again nor trimmed since",
        |cache| cache.unreadable.into(),
    ),
    json_only(
        "unreadable_bytes",
        Unit::Bytes,
        "a thousand of these units, as ranges: the first byte of each on the volume, and the byte behind its last",
    ),
    gauge(
        "bad_units",
        "cache_bad_bytes",
        Unit::Blocks,
        "units that the cache's device cannot write: they hold nothing, and are tried again at the next start",
        |cache| cache.bad_units.into(),
    ),
];

/// A class in a cache, and how many units the whole cache has.
pub struct ClassInCache {
    /// The class.
    pub class: CacheClassStatus,
    /// The cache's units.
    pub cache_units: u32,
}

impl ClassInCache {
    /// The classes of `cache`.
    pub fn of(cache: &CacheStatus) -> Vec<ClassInCache> {
        cache.classes.iter().map(|class| ClassInCache { class: class.clone(), cache_units: cache.units }).collect()
    }
}

/// The classes that a cache has met, by number.
pub static CACHE_CLASS: Section<ClassInCache> = Section {
    places: &["status.devices[].volumes[].cache.classes[]", "caches[].cache.classes[]"],
    rows: CACHE_CLASS_ROWS,
};

const CACHE_CLASS_ROWS: &[MetricRow<ClassInCache>] = &[
    label("number", "class", "the class's number", |of: &ClassInCache| of.class.number.into())
        .cell("class", |of| format!("{} {}", of.class.number, of.class.name).trim_end().to_owned()),
    plain("name", Unit::None, "its name in the scheme; empty if the scheme has none for it", |of| {
        (&of.class.name).into()
    }),
    gauge(
        "units",
        "cache_class_bytes",
        Unit::Blocks,
        "units in the policy's order; free units, though still readable, do not count",
        |of: &ClassInCache| of.class.units.into(),
    )
    .column(">size")
    .cell(">of it", |of| part(of.class.units.into(), of.cache_units.into())),
    counter(
        "reads",
        "cache_read_blocks_total",
        Unit::None,
        "blocks that were read since the start",
        |of: &ClassInCache| of.class.reads.into(),
    )
    .column(">reads"),
    counter(
        "read_hits",
        "cache_read_hit_blocks_total",
        Unit::None,
        "those that were in the cache",
        |of: &ClassInCache| of.class.read_hits.into(),
    )
    .cell(">hits", |of| part(of.class.read_hits, of.class.reads)),
    counter(
        "writes",
        "cache_written_blocks_total",
        Unit::None,
        "blocks that were written since the start",
        |of: &ClassInCache| of.class.writes.into(),
    )
    .column(">writes"),
    counter(
        "write_hits",
        "cache_write_hit_blocks_total",
        Unit::None,
        "those that were in the cache",
        |of: &ClassInCache| of.class.write_hits.into(),
    )
    .cell(">hits", |of| part(of.class.write_hits, of.class.writes)),
];

/// The pools that may fill only a part of a cache.
pub static CACHE_POOL: Section<CachePoolStatus> =
    Section { places: &["status.devices[].volumes[].cache.pools[]", "caches[].cache.pools[]"], rows: CACHE_POOL_ROWS };

const CACHE_POOL_ROWS: &[MetricRow<CachePoolStatus>] = &[
    label("pool", "account", "the path of its account", |pool: &CachePoolStatus| (&pool.pool).into()).column("pool"),
    gauge("units", "cache_pool_bytes", Unit::Blocks, "units in the policy's order", |pool: &CachePoolStatus| {
        pool.units.into()
    })
    .column(">size"),
    gauge("units_max", "cache_pool_max_bytes", Unit::Blocks, "as many as there may be", |pool: &CachePoolStatus| {
        pool.units_max.into()
    })
    .column(">at most"),
];

/// The volumes' caches, as `cache_list` has them.
pub static CACHED_VOLUME: Section<CacheEntry> = Section { places: &["caches[]"], rows: CACHED_VOLUME_ROWS };

const CACHED_VOLUME_ROWS: &[MetricRow<CacheEntry>] = &[
    plain("volume", Unit::None, "the volume", |entry| (&entry.volume).into()),
    plain("device", Unit::None, "its device, the slow one", |entry| (&entry.device).into()),
];

/// When a write is acknowledged, and how long what is dirty may stay so.
fn semantics(cache: &CacheStatus) -> String {
    let time = |nanoseconds: Option<u64>, what: &str| {
        nanoseconds.map_or(String::new(), |nanoseconds| format!(", {what} {}", Span::from_nanos(nanoseconds)))
    };
    let (age, idle) =
        (time(cache.writes.dirty_age_max_ns, "dirty for"), time(cache.writes.idle_write_back_ns, "idle for"));
    format!("{}{age}{idle}", cache.writes.semantics)
}

fn syncer(cache: &CacheStatus) -> String {
    if cache.is_cleaning || cache.is_syncer_awake { "awake" } else { "asleep" }.to_owned()
}

fn state(cache: &CacheStatus) -> String {
    let damaged = cache.damaged_clean + cache.damaged_dirty;
    match () {
        () if cache.has_failed => "FAILED: reads only".to_owned(),
        () if !cache.is_working => "begins or ends".to_owned(),
        () if damaged > 0 => format!("works, {damaged} blocks were DAMAGED, {} lost", cache.damaged_dirty),
        () if cache.bad_units > 0 => format!("works, {} units cannot be written", cache.bad_units),
        () => "works".to_owned(),
    }
}

fn part(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 / whole as f64 * 100.0),
    }
}
