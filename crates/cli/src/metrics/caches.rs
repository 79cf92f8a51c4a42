//! Rows of the volumes' caches (docs/cache.md).

use super::emulation::EMULATION;
use super::metric::{
    A_DETAIL, A_SETTING, FOR_GRAPHS, MetricRow, SAID_BY_ANOTHER, Unit, counter, gauge, inside, label, plain,
};
use super::reading::Reading;
use super::section::Section;
use crate::control::caches::CacheEntry;
use plimsoll_core::Span;
use plimsoll_engine::status::{CacheClassStatus, CachePoolStatus, CacheStatus};

/// The cache before a volume.
pub static CACHE: Section<CacheStatus> = Section { rows: CACHE_ROWS };

/// Why `cache status` need not show a field.
const IN_FLUSH: &str = "`cache flush` says it where not all can be copied";

const CACHE_ROWS: &[MetricRow<CacheStatus>] = &[
    label("name", "cache", "the cache's name", |cache: &CacheStatus| (&cache.name).into()).column("cache"),
    plain("path", Unit::None, "its device or file", |cache: &CacheStatus| (&cache.path).into())
    .only_json(A_SETTING),
    plain("policy", Unit::None, "its policy", |cache: &CacheStatus| (&cache.policy).into()).column("policy"),
    plain("is_strict", Unit::None, "a write is answered only when it is durable", |cache: &CacheStatus| cache.writes.is_strict.into())
    .only_json(SAID_BY_ANOTHER),
    plain("semantics", Unit::None, "when a write is answered: `write-cache`, `strict` or `write-through`", |cache: &CacheStatus| {
        (&cache.writes.semantics).into()
    })
    .cell("semantics", semantics),
    gauge(
        "dirty_units_max",
        "cache_dirty_max_bytes",
        Unit::Blocks,
        "units that may be dirty at once; `null`: all",
        |cache: &CacheStatus| cache.writes.dirty_units_max.into(),
    )
    .column(">at most")
    .after("dirty"),
    plain("dirty_age_max_ns", Unit::Nanoseconds, "how long a unit may be dirty; `null`: for ever", |cache| {
        cache.writes.dirty_age_max_ns.into()
    }),
    plain(
        "idle_write_back_ns",
        Unit::Nanoseconds,
        "after how long without a request everything is written back; `null`: never",
        |cache| cache.writes.idle_write_back_ns.into(),
    ),
    gauge("is_working", "cache_working", Unit::None, "requests go through it; not while it begins or ends", |cache: &CacheStatus| {
        cache.is_working.into()
    })
    .cell("state", state)
    .after("past it"),
    gauge("has_failed", "cache_failed", Unit::None, "its device failed: writes are refused", |cache| {
        cache.has_failed.into()
    }),
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
    gauge(
        "waiting_requests",
        "cache_waiting_requests",
        Unit::None,
        "requests that wait for the cache to take them, or the last of their blocks",
        |cache: &CacheStatus| cache.waiting_requests.into(),
    )
    .only_json(A_DETAIL),
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
        |cache: &CacheStatus| cache.clean_passes.into(),
    )
    .only_json(A_DETAIL),
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
    counter("commits", "cache_commits_total", Unit::None, "blocks of the journal that were written", |cache: &CacheStatus| {
        cache.commits.into()
    })
    .only_json(FOR_GRAPHS),
    counter("snapshots", "cache_snapshots_total", Unit::None, "snapshots of the map that were written", |cache: &CacheStatus| {
        cache.snapshots.into()
    })
    .only_json(FOR_GRAPHS),
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
        |cache: &CacheStatus| cache.not_copied.into(),
    )
    .only_json(IN_FLUSH),
    plain(
        "not_copied_bytes",
        Unit::Bytes,
        "of these blocks the first thousand: the first byte of each range on the slow device, and the byte behind its last",
        |cache: &CacheStatus| Reading::from(cache.not_copied_bytes.as_slice()).unless_empty(),
    )
    .only_json(IN_FLUSH),
    gauge(
        "unreadable",
        "cache_unreadable_bytes",
        Unit::Blocks,
        "dirty units that are damaged now: neither written again nor trimmed since",
        |cache: &CacheStatus| cache.unreadable.into(),
    )
    .only_json(IN_FLUSH),
    plain(
        "unreadable_bytes",
        Unit::Bytes,
        "of these units a thousand: the first byte of each range of the volume, and the byte behind its last",
        |cache: &CacheStatus| Reading::from(cache.unreadable_bytes.as_slice()).unless_empty(),
    )
    .only_json(IN_FLUSH),
    gauge(
        "bad_units",
        "cache_bad_bytes",
        Unit::Blocks,
        "units that the cache's device cannot write: they hold nothing, and are tried again at the next start",
        |cache| cache.bad_units.into(),
    ),
    inside("emulation", &EMULATION, |cache: &CacheStatus| {
        cache.emulation.map(|emulation| EMULATION.object(&emulation)).into()
    }),
    inside("classes", &CACHE_CLASS, |cache: &CacheStatus| CACHE_CLASS.list(&cache.classes)),
    inside("pools", &CACHE_POOL, |cache: &CacheStatus| CACHE_POOL.list(&cache.pools).unless_empty()),
];

/// The classes that a cache has met, by number. A table of them needs the size of the whole cache in each, as
/// `cache_units`.
pub static CACHE_CLASS: Section<CacheClassStatus> = Section { rows: CACHE_CLASS_ROWS };

const CACHE_CLASS_ROWS: &[MetricRow<CacheClassStatus>] = &[
    label("number", "class", "the class's number", |class: &CacheClassStatus| class.number.into())
        .cell("class", |class| format!("{} {}", class.count("number"), class.text("name")).trim_end().to_owned()),
    plain("name", Unit::None, "its name in the scheme; empty if the scheme has none for it", |class| {
        (&class.name).into()
    }),
    gauge(
        "units",
        "cache_class_bytes",
        Unit::Blocks,
        "units in the policy's order: what is free, though still readable, is not counted",
        |class: &CacheClassStatus| class.units.into(),
    )
    .column(">size")
    .cell(">of it", |class| part(class, "units", "cache_units")),
    counter(
        "reads",
        "cache_read_blocks_total",
        Unit::None,
        "blocks that were read since the start",
        |class: &CacheClassStatus| class.reads.into(),
    )
    .column(">reads"),
    counter(
        "read_hits",
        "cache_read_hit_blocks_total",
        Unit::None,
        "those that were in the cache",
        |class: &CacheClassStatus| class.read_hits.into(),
    )
    .cell(">hits", |class| part(class, "read_hits", "reads")),
    counter(
        "writes",
        "cache_written_blocks_total",
        Unit::None,
        "blocks that were written since the start",
        |class: &CacheClassStatus| class.writes.into(),
    )
    .column(">writes"),
    counter(
        "write_hits",
        "cache_write_hit_blocks_total",
        Unit::None,
        "those that were in the cache",
        |class: &CacheClassStatus| class.write_hits.into(),
    )
    .cell(">hits", |class| part(class, "write_hits", "writes")),
];

/// The pools that may fill only a part of a cache.
pub static CACHE_POOL: Section<CachePoolStatus> = Section { rows: CACHE_POOL_ROWS };

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
pub static CACHED_VOLUME: Section<CacheEntry> = Section { rows: CACHED_VOLUME_ROWS };

const CACHED_VOLUME_ROWS: &[MetricRow<CacheEntry>] = &[
    plain("volume", Unit::None, "the volume", |entry| (&entry.volume).into()),
    plain("device", Unit::None, "its device, the slow one", |entry: &CacheEntry| (&entry.device).into())
        .only_json(SAID_BY_ANOTHER),
    inside("cache", &CACHE, |entry: &CacheEntry| CACHE.object(&entry.cache)),
];

/// When a write is acknowledged, and how long what is dirty may stay so.
fn semantics(cache: &Reading) -> String {
    let time = |field, what| cache.span(field).map_or(String::new(), |span: Span| format!(", {what} {span}"));
    let (age, idle) = (time("dirty_age_max_ns", "dirty for"), time("idle_write_back_ns", "idle for"));
    format!("{}{age}{idle}", cache.text("semantics"))
}

fn syncer(cache: &Reading) -> String {
    if cache.is("is_cleaning") || cache.is("is_syncer_awake") { "awake" } else { "asleep" }.to_owned()
}

fn state(cache: &Reading) -> String {
    let [clean, dirty, bad] = ["damaged_clean", "damaged_dirty", "bad_units"].map(|field| cache.count(field));
    match () {
        () if cache.is("has_failed") => "FAILED: reads only".to_owned(),
        () if !cache.is("is_working") => "begins or ends".to_owned(),
        () if clean + dirty > 0 => format!("works, {} blocks were DAMAGED, {dirty} lost", clean + dirty),
        () if bad > 0 => format!("works, {bad} units cannot be written"),
        () => "works".to_owned(),
    }
}

/// What part of `whole` a field is.
fn part(class: &Reading, field: &str, whole: &str) -> String {
    match class.count(whole) {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", class.count(field) as f64 / whole as f64 * 100.0),
    }
}
