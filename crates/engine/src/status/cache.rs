//! How a volume's cache is, for people and programs.

use super::EmulationStatus;
use plimsoll_core::ByteCount;
use serde::{Deserialize, Serialize};

/// Ranges that a message names.
const RANGES_NAMED: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: u64 = plimsoll_cache::store::BLOCK_BYTES as u64;

/// What a cache has of one class, and how often it was of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheClassStatus {
    /// The class's number.
    pub number: u8,
    /// Its name in the scheme; empty if the scheme has none for it.
    pub name: String,
    /// Units of 4 KiB in the policy's order. Free units, though still readable, do not count.
    pub units: u32,
    /// Blocks that were read since the start.
    pub reads: u64,
    /// Those that were in the cache.
    pub read_hits: u64,
    /// Blocks that were written.
    pub writes: u64,
    /// Those that were in the cache.
    pub write_hits: u64,
}

/// What a cache has of a pool that may fill only a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePoolStatus {
    /// The path of its account.
    pub pool: String,
    /// Units of 4 KiB in the policy's order.
    pub units: u32,
    /// As many as there may be.
    pub units_max: u32,
}

/// How a cache deals with writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheWritesStatus {
    /// Whether a write is answered only when it is durable.
    pub is_strict: bool,
    /// When a write is answered: `write-cache`, `strict` or `write-through`.
    #[serde(default)]
    pub semantics: String,
    /// Units that may be dirty at once; `None`: all.
    #[serde(default)]
    pub dirty_units_max: Option<u32>,
    /// How long a unit may be dirty, nanoseconds; `None`: for ever.
    #[serde(default)]
    pub dirty_age_max_ns: Option<u64>,
    /// After how long without a request everything is written back, nanoseconds; `None`: never.
    #[serde(default)]
    pub idle_write_back_ns: Option<u64>,
}

/// A volume's cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// What people call it.
    pub name: String,
    /// Its device or file.
    pub path: String,
    /// Which block leaves next.
    pub policy: String,
    /// When a write is answered, and what may be dirty.
    #[serde(flatten)]
    pub writes: CacheWritesStatus,
    /// Requests go through it; not while it begins or ends.
    pub is_working: bool,
    /// Its device failed: writes are refused.
    pub has_failed: bool,
    /// Units of 4 KiB.
    pub units: u32,
    /// Units that hold a block.
    pub used_units: u32,
    /// Units with a block that the store lacks.
    pub dirty_units: u32,
    /// Units that another block could get; they are still readable.
    pub free_units: u32,
    /// How far writes of new blocks are paced, per cent. It is 0 while there is room for all, and 100 when they come as
    /// fast as the slow device takes them.
    pub paced_percent: u32,
    /// Requests that wait for the cache to take them, or the last of their blocks.
    pub waiting_requests: usize,
    /// The syncer makes room.
    pub is_syncer_awake: bool,
    /// Everything dirty is being copied to the store, because a command asked for it.
    pub is_cleaning: bool,
    /// How often everything dirty was copied so far.
    pub clean_passes: u64,
    /// Units that it copied to the store.
    pub cleaned: u64,
    /// Blocks that were written past the cache.
    pub writes_around: u64,
    /// Blocks of the journal that were written, and snapshots of the map.
    pub commits: u64,
    /// See there.
    pub snapshots: u64,
    /// Damaged units, each once: clean ones, which the store replaced, and dirty ones, which are lost.
    pub damaged_clean: u64,
    /// See there.
    pub damaged_dirty: u64,
    /// Blocks in the cache that the slow device failed to write in the last flush.
    #[serde(default)]
    pub not_copied: u64,
    /// The first thousand of these blocks, as ranges: the first byte of each on the slow device, and the byte behind
    /// its last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_copied_bytes: Vec<(u64, u64)>,
    /// Dirty units that are damaged now: neither written again nor trimmed since.
    #[serde(default)]
    pub unreadable: u64,
    /// A thousand of these units, as ranges: the first byte of each on the volume, and the byte behind its last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable_bytes: Vec<(u64, u64)>,
    /// Units that the cache's device cannot write. They hold nothing, and the next start tries them again.
    #[serde(default)]
    pub bad_units: u32,
    /// How true its device's emulation is; `None` where the device is a real one.
    pub emulation: Option<EmulationStatus>,
    /// Classes that were met, by number.
    pub classes: Vec<CacheClassStatus>,
    /// Pools with a bound, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<CachePoolStatus>,
}

/// `4 KiB, bytes 8192 to 12288`: at most [`RANGES_NAMED`] ranges, and how much more there is.
fn named(blocks: u64, bytes: &[(u64, u64)]) -> String {
    let shown = &bytes[..bytes.len().min(RANGES_NAMED)];
    let text: Vec<String> = shown.iter().map(|(from, to)| format!("{from} to {to}")).collect();
    let more = (blocks * BLOCK_BYTES).saturating_sub(shown.iter().map(|(from, to)| to - from).sum());
    let more = if more > 0 { format!(" and {} more", ByteCount(more)) } else { String::new() };
    format!("{}, bytes {}{more}", ByteCount(blocks * BLOCK_BYTES), text.join(", "))
}

/// The message that ranges of the cache of `volume` cannot be read, with the command that gives them up.
pub(crate) fn unreadable(volume: &str, blocks: u64, bytes: &[(u64, u64)]) -> String {
    let named = named(blocks, bytes);
    format!(
        "the cache cannot be read for {named} of volume {volume} (plimsoll cache detach {volume} --lost gives that up)"
    )
}

/// The message that the slow device fails writes of blocks from the cache.
pub(crate) fn refused(volume: &str, blocks: u64, bytes: &[(u64, u64)]) -> String {
    format!("the slow device fails writes of {} of volume {volume}, which stay in the cache", named(blocks, bytes))
}

impl CacheStatus {
    /// Why dirty blocks could not all be copied to the slow device, and what to do. Reasons are unreadable blocks of
    /// the cache and failed writes of the slow device.
    pub fn not_clean(&self, volume: &str) -> String {
        let dirty = ByteCount(u64::from(self.dirty_units) * BLOCK_BYTES);
        let mut why = Vec::new();
        if self.unreadable > 0 {
            why.push(unreadable(volume, self.unreadable, &self.unreadable_bytes));
        }
        if self.not_copied > 0 {
            why.push(refused(volume, self.not_copied, &self.not_copied_bytes));
        }
        if why.is_empty() || self.has_failed {
            why.push("a device failed, and the log says which".to_owned());
        }
        format!("{dirty} are not on the slow device: {}", why.join("; "))
    }
}
