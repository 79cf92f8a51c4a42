//! The servers of the request executor's paper (its Table 1).

use plimsoll_core::Span;

/// What a storage server is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Platform {
    /// Its name in scenarios.
    pub name: &'static str,
    /// Processors. One of them is for the rest of the system (section 2.2: 19 threads of 20 cores).
    pub cores: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Non-volatile memory for the log of writes, bytes. One half is filled while the other is flushed.
    pub log_bytes: u64,
    /// Drives at the back end.
    pub drives: u32,
    /// Their device model.
    pub drive: &'static str,
    /// Size of the flash cache, bytes; 0 where there is none.
    pub flash_cache_bytes: u64,
    /// Above this mean response time the paper takes a load for too much (sections 3.2, 3.1).
    pub response_time_max: Span,
}

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Table 1. Hard disks are 450 GB, 15,000 rpm, SAS: the model is a drive of that kind. Which SSDs of 400 GB, the paper
/// does not say: the model is an enterprise drive of a few years before (75 us a read).
pub const PLATFORMS: [Platform; 4] = [
    Platform {
        name: "low-end",
        cores: 4,
        memory_bytes: 16 * GIB,
        log_bytes: 2 * GIB,
        drives: 113,
        drive: "hdd.15k-sas",
        flash_cache_bytes: 512 * GIB,
        response_time_max: Span::from_millis(30),
    },
    Platform {
        name: "mid-range",
        cores: 12,
        memory_bytes: 96 * GIB,
        log_bytes: 4 * GIB,
        drives: 281,
        drive: "hdd.15k-sas",
        flash_cache_bytes: TIB,
        response_time_max: Span::from_millis(30),
    },
    Platform {
        name: "high-end",
        cores: 20,
        memory_bytes: 128 * GIB,
        log_bytes: 16 * GIB,
        drives: 281,
        drive: "hdd.15k-sas",
        flash_cache_bytes: 2 * TIB,
        response_time_max: Span::from_millis(30),
    },
    Platform {
        name: "all-flash",
        cores: 20,
        memory_bytes: 128 * GIB,
        log_bytes: 16 * GIB,
        drives: 113,
        drive: "ssd.x25-e",
        flash_cache_bytes: 0,
        response_time_max: Span::from_millis(10),
    },
];

/// The data that is used, of memory: 10 to 20 times (section 5.1); the middle.
const DATA_OF_MEMORY: f64 = 15.0;
/// The part of it that is found in a flash cache which could hold all of it: what was written since is not there.
/// Assumed.
const FLASH_HITS_MAX: f64 = 0.9;
/// The flash cache: one PCIe card.
pub(super) const FLASH_CACHE: &str = "nvme";

impl Platform {
    /// Request service threads.
    pub fn threads(&self) -> usize {
        self.cores as usize - 1
    }

    /// The part of what is missed in memory that the flash cache has.
    pub(super) fn flash_hits(&self) -> f64 {
        let data_bytes = self.memory_bytes as f64 * DATA_OF_MEMORY;
        (self.flash_cache_bytes as f64 / data_bytes).min(FLASH_HITS_MAX)
    }
}
