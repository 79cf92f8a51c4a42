//! What the machine is like. The defaults are the split-level paper's machine (section 5) with Linux's own settings.

use crate::cache::PAGE_BYTES;
use plimsoll_core::{AccountId, Span};

/// The kernel's clock, ticks a second (`CONFIG_HZ` as distributions have it). What it counts in ticks is coarse: pauses
/// of throttled writers, times of inodes.
pub const TICKS_PER_SECOND: u64 = 250;
/// One tick of it.
pub const TICK: Span = Span::from_millis(1000 / TICKS_PER_SECOND);
const KIB: u64 = 1024;
const GIB: u64 = 1 << 30;

/// The machine and its kernel.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Bytes of memory for the page cache (split-level paper, section 5: 16 GB).
    pub memory_bytes: u64,
    /// Cores (split-level paper, section 5: eight).
    pub cores: u32,
    /// What calls and pages cost of a core's time.
    pub cpu: CpuCosts,
    /// Per cent of memory dirty from which the flusher writes (`vm.dirty_background_ratio`).
    pub dirty_background_ratio: u32,
    /// Per cent of memory that dirty pages never pass: dirtiers wait (`vm.dirty_ratio`).
    pub dirty_ratio: u32,
    /// Age at which dirty pages are written whatever their number (`vm.dirty_expire_centisecs`).
    pub dirty_expire: Span,
    /// How often the flusher looks for them (`vm.dirty_writeback_centisecs`).
    pub dirty_writeback_interval: Span,
    /// Whether the kernel writes dirty pages by itself; off where a scheduler owns writeback (split-level paper, 4.2).
    pub has_flusher: bool,
    /// Whether a page must not change while it is written (Linux 3.0 to 3.8 for all devices; later only for devices
    /// that ask for it).
    pub has_stable_pages: bool,
    /// Bytes of memory that a write takes and dirties in one piece (a folio), a power of two and at least a page. It is
    /// a page in older kernels; 2 MiB in XFS since Linux 5.18 and in ext4 since 6.16 (`mapping_max_folio_size`).
    pub folio_bytes_max: u64,
    /// Read-ahead at the most, bytes (`read_ahead_kb`); 0 for none.
    pub read_ahead_bytes: u64,
    /// Longest request, bytes (`max_sectors_kb`: 512 in Linux 3.2, 1280 today).
    pub request_bytes_max: u32,
    /// Requests of each kind, synchronous and asynchronous, that the block layer has (`nr_requests`).
    pub requests_max: u32,
    /// The sessions of the kernel's own tasks.
    pub accounts: KernelAccounts,
}

/// Sessions of the kernel's tasks; a scheduler that knows priorities sees theirs.
#[derive(Clone, Copy, Debug)]
pub struct KernelAccounts {
    /// The flusher's.
    pub flusher: AccountId,
    /// The journal's.
    pub journal: AccountId,
}

/// Processor time, measured on a machine of the 2020s (a cached rewrite of 4 KiB on ext4 takes 1.3 us). The paper's
/// cores at 1.4 GHz take about three times as long.
#[derive(Clone, Copy, Debug)]
pub struct CpuCosts {
    /// Entry and return of a call, and what it does once.
    pub call: Span,
    /// For each page read from the cache: finding and copying it.
    pub page_read: Span,
    /// For each page written into the cache.
    pub page_write: Span,
}

impl Default for CpuCosts {
    fn default() -> CpuCosts {
        CpuCosts { call: Span::from_nanos(300), page_read: Span::from_nanos(500), page_write: Span::from_nanos(1000) }
    }
}

impl Default for MachineConfig {
    fn default() -> MachineConfig {
        MachineConfig {
            seed: 1,
            memory_bytes: 16 * GIB,
            cores: 8,
            cpu: CpuCosts::default(),
            dirty_background_ratio: 10,
            dirty_ratio: 20,
            dirty_expire: Span::from_secs(30),
            dirty_writeback_interval: Span::from_secs(5),
            has_flusher: true,
            has_stable_pages: false,
            folio_bytes_max: PAGE_BYTES,
            read_ahead_bytes: 128 * KIB,
            request_bytes_max: 512 * KIB as u32,
            requests_max: 128,
            accounts: KernelAccounts { flusher: AccountId::ROOT, journal: AccountId::ROOT },
        }
    }
}
