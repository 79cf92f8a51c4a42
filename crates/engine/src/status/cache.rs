//! How a volume's cache is, for people and programs.

use super::EmulationStatus;
use plimsoll_core::ByteCount;

/// Ranges that a message names.
const RANGES_NAMED: usize = 8;
/// Bytes of a block.
const BLOCK_BYTES: u64 = plimsoll_cache::store::BLOCK_BYTES as u64;

/// What a cache has of one class, and how often it was of use.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePoolStatus {
    /// The path of its account.
    pub pool: String,
    /// Units of 4 KiB in the policy's order.
    pub units: u32,
    /// As many as there may be.
    pub units_max: u32,
}

/// How a cache deals with writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWritesStatus {
    /// Whether a write is answered only when it is durable.
    pub is_strict: bool,
    /// When a write is answered: `write-cache`, `strict` or `write-through`.
    pub semantics: String,
    /// Units that may be dirty at once; `None`: all.
    pub dirty_units_max: Option<u32>,
    /// How long a unit may be dirty, nanoseconds; `None`: for ever.
    pub dirty_age_max_ns: Option<u64>,
    /// After how long without a request everything is written back, nanoseconds; `None`: never.
    pub idle_write_back_ns: Option<u64>,
}

/// A volume's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// What people call it.
    pub name: String,
    /// Its device or file.
    pub path: String,
    /// Which block leaves next.
    pub policy: String,
    /// When a write is answered, and what may be dirty.
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
    /// Blocks that the slow device refused when everything dirty was last copied: they are in the cache.
    pub not_copied: u64,
    /// Of those the first thousand: the first byte of each range on the slow device, and the byte behind its last.
    pub not_copied_bytes: Vec<(u64, u64)>,
    /// Dirty units that are damaged now: neither written again nor trimmed since.
    pub unreadable: u64,
    /// Of those a thousand: the first byte of each range of the volume, and the byte behind its last.
    pub unreadable_bytes: Vec<(u64, u64)>,
    /// Units that the cache's device cannot write: they hold nothing, and are tried again at the next start.
    pub bad_units: u32,
    /// How true its device's emulation is; `None` where the device is a real one.
    pub emulation: Option<EmulationStatus>,
    /// Classes that were met, by number.
    pub classes: Vec<CacheClassStatus>,
    /// Pools with a bound, by name.
    pub pools: Vec<CachePoolStatus>,
}

/// How many blocks, and the first byte and the byte behind the last of ranges of some of them.
pub type BlockRanges<'a> = (u64, &'a [(u64, u64)]);

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

/// Why `dirty_units` could not be copied to the slow device: what cannot be read of the cache of `volume`, what the
/// slow device refuses, and what can be done.
pub fn not_clean(
    volume: &str,
    dirty_units: u64,
    cannot_read: BlockRanges<'_>,
    not_copied: BlockRanges<'_>,
    has_failed: bool,
) -> String {
    let mut why = Vec::new();
    if cannot_read.0 > 0 {
        why.push(unreadable(volume, cannot_read.0, cannot_read.1));
    }
    if not_copied.0 > 0 {
        why.push(refused(volume, not_copied.0, not_copied.1));
    }
    if why.is_empty() || has_failed {
        why.push("a device failed, and the log says which".to_owned());
    }
    format!("{} are not on the slow device: {}", ByteCount(dirty_units * BLOCK_BYTES), why.join("; "))
}

impl CacheStatus {
    /// Why not all that is dirty could be copied to the slow device ([`not_clean`]).
    pub fn not_clean(&self, volume: &str) -> String {
        let cannot_read = (self.unreadable, &self.unreadable_bytes[..]);
        let not_copied = (self.not_copied, &self.not_copied_bytes[..]);
        not_clean(volume, self.dirty_units.into(), cannot_read, not_copied, self.has_failed)
    }
}
