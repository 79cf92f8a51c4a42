//! What a cache is made from, and what of it is out of range.

use crate::units::Pool;
use plimsoll_core::class::Scheme;
use std::fmt;

/// The high watermark of free units: one in this many units (ours; the paper does not say). So nearly all of the cache
/// is used, and a burst of a second or two of writes finds room.
pub const WATERMARK_HIGH_PARTS: u32 = 50;
/// The low watermark, in parts of the cache.
pub const WATERMARK_LOW_PARTS: u32 = 100;

/// What a cache is made from.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Units of 4 KiB on the fast device, 1 to 2^27 - 1.
    pub units: u32,
    /// Free units below which the syncer wakes up; at most the high watermark.
    pub watermark_low: u32,
    /// Free units at which it goes to sleep; at most `units`.
    pub watermark_high: u32,
    /// Whether a read may take a block in at all.
    pub promotes_reads: bool,
    /// The classes.
    pub scheme: Scheme,
    /// Pools that may fill only a part of the cache, above 0 to 1.
    pub pools: Vec<(Pool, f64)>,
    /// Whether the cache is kept on a device ([`store`](crate::store)). Then
    /// [`Cache::evict_free`](crate::Cache::evict_free) forgets a unit's block, and the unit is free only after
    /// [`Cache::release`](crate::Cache::release).
    pub is_on_device: bool,
    /// For hashes. A client that does not know it cannot choose blocks that meet in one bucket of the index. Where
    /// strangers choose the blocks, draw it at random.
    pub seed: u64,
}

impl CacheConfig {
    /// A cache of `units` with the usual watermarks, that promotes reads and has only the bounds of `scheme`.
    pub fn new(units: u32, scheme: Scheme) -> CacheConfig {
        let part = |parts: u32| (units / parts).max(1);
        CacheConfig {
            units,
            watermark_low: part(WATERMARK_LOW_PARTS),
            watermark_high: part(WATERMARK_HIGH_PARTS),
            promotes_reads: true,
            scheme,
            pools: Vec::new(),
            is_on_device: false,
            seed: 0,
        }
    }
}

/// What is wrong with a [`CacheConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it is.
    pub got: String,
    /// What it may be.
    pub allowed: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: got {}, allowed {}", self.field, self.got, self.allowed)
    }
}

impl std::error::Error for ConfigError {}
