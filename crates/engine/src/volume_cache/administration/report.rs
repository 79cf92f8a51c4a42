//! How a volume's cache is: what it tells its users and the log.

use crate::cache::semantics_name;
use crate::status::{CacheClassStatus, CachePoolStatus, CacheStatus, CacheWritesStatus, refused, unreadable};
use crate::volume_cache::VolumeCache;
use crate::volume_cache::lifecycle::Phase;
use plimsoll_cache::store::{NotCopied, Semantics};
use plimsoll_core::class::CLASSES;
use plimsoll_core::{Class, Span};

/// Bytes of a block.
const BLOCK_BYTES: u64 = plimsoll_cache::store::BLOCK_BYTES as u64;

fn in_bytes(what: &NotCopied) -> Vec<(u64, u64)> {
    what.ranges.iter().map(|range| (range.start * BLOCK_BYTES, range.end * BLOCK_BYTES)).collect()
}

impl VolumeCache {
    /// Logs what could not be copied, once each.
    pub(super) fn log_what_is_not_copied(&mut self, volume: &str) {
        let cache = &self.settings.name;
        if let Some(news) = self.machine.take_newly_damaged() {
            tracing::error!(cache, "{}", unreadable(volume, news.blocks, &in_bytes(&news)));
        }
        if let Some(news) = self.machine.take_newly_refused() {
            tracing::error!(cache, "{}", refused(volume, news.blocks, &in_bytes(&news)));
        }
    }

    pub(crate) fn status(&self) -> CacheStatus {
        let (machine, settings) = (&self.machine, &self.settings);
        let (cache, counters, not_copied) = (machine.cache(), machine.counters(), machine.not_copied());
        let damaged = machine.damaged();
        let write_back = machine.write_back();
        let classes = (0..CLASSES as u8).filter_map(|number| {
            let class = Class::new(number)?;
            let (units, counts) = (cache.class_units(class), machine.class_counters(class));
            let name = settings.scheme.entry(class).map_or(String::new(), |entry| entry.name.clone());
            let is_met = units > 0 || counts.reads + counts.writes > 0;
            is_met.then_some(CacheClassStatus {
                number,
                name,
                units,
                reads: counts.reads,
                read_hits: counts.read_hits,
                writes: counts.writes,
                write_hits: counts.write_hits,
            })
        });
        let pools = self.pools.iter().map(|(path, pool)| CachePoolStatus {
            pool: path.to_owned(),
            units: cache.pool_units(pool),
            units_max: cache.pool_units_max(pool),
        });
        CacheStatus {
            name: settings.name.clone(),
            path: settings.path.display().to_string(),
            policy: settings.policy.name.to_owned(),
            writes: CacheWritesStatus {
                is_strict: settings.semantics == Semantics::Strict,
                semantics: semantics_name(settings.semantics).to_owned(),
                dirty_units_max: write_back.dirty_units_max,
                dirty_age_max_ns: write_back.age_max.map(Span::as_nanos),
                idle_write_back_ns: write_back.idle_after.map(Span::as_nanos),
            },
            is_working: self.lifecycle.phase == Phase::Working,
            has_failed: machine.has_failed(),
            units: machine.superblock().layout.units,
            used_units: machine.used_units(),
            dirty_units: machine.dirty_units(),
            free_units: cache.free_units(),
            paced_percent: machine.paced_percent(),
            waiting_requests: self.waiting.len(),
            is_syncer_awake: cache.is_syncer_awake(),
            is_cleaning: machine.is_cleaning_all(),
            clean_passes: machine.clean_passes(),
            cleaned: counters.cleaned,
            writes_around: counters.writes_around,
            commits: counters.commits,
            snapshots: counters.snapshots,
            damaged_clean: counters.damaged_clean,
            damaged_dirty: counters.damaged_dirty,
            not_copied: not_copied.blocks,
            not_copied_bytes: in_bytes(&not_copied),
            unreadable: damaged.blocks,
            unreadable_bytes: in_bytes(&damaged),
            bad_units: machine.bad_units(),
            emulation: self.fast.emulation_status(),
            classes: classes.collect(),
            pools: pools.collect(),
        }
    }
}
