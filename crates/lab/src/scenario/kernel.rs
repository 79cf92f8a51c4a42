//! What memory, cores and kernel of a machine are like, and its scheduler: keys of `[machine]` and of `[guest.*]`.

use plimsoll_core::{ByteCount, Span};
use plimsoll_settings::{Problem, Section};
use plimsoll_sim::MachineConfig;
use plimsoll_sim::cache::PAGE_BYTES;

const CORES_MAX: u64 = 1024;
const REQUESTS_MAX: u64 = 1 << 20;
/// Longest request: what a device model takes without a thought. Bytes.
pub(super) const LENGTH_BYTES_MAX: u64 = 64 << 20;
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// Largest folio: what one entry of a page table's second level maps (`MAX_PAGECACHE_ORDER`).
const FOLIO_BYTES_MAX: u64 = 2 << 20;
const SIZE: &str = "a size such as \"16GiB\"";

pub(super) fn scheduler(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<&'static str> {
    section.choice("scheduler", &schedulers(), problems)
}

pub(super) fn schedulers() -> Vec<&'static str> {
    plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect()
}

/// The keys that say what memory, cores and kernel are like.
pub(super) fn kernel(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> MachineConfig {
    let mut config = MachineConfig::default();
    let is_memory = |size: &ByteCount| size.0 >= MEMORY_BYTES_MIN;
    set(&mut config.memory_bytes, section.quantity("memory", "a size of at least 16MiB", problems, is_memory), |s| s.0);
    set(&mut config.cores, section.integer("cores", 1..=CORES_MAX, problems), |n| n as u32);
    let percent = |section: &mut Section<'_>, key, problems: &mut Vec<Problem>| section.integer(key, 1..=100, problems);
    set(&mut config.dirty_ratio, percent(section, "dirty_ratio", problems), |n| n as u32);
    set(&mut config.dirty_background_ratio, percent(section, "dirty_background_ratio", problems), |n| n as u32);
    let span = |section: &mut Section<'_>, key, problems: &mut Vec<Problem>| {
        section.quantity(key, "a time above zero", problems, |span| *span > Span::ZERO)
    };
    set(&mut config.dirty_expire, span(section, "dirty_expire", problems), |s| s);
    set(&mut config.dirty_writeback_interval, span(section, "dirty_writeback_interval", problems), |s| s);
    set(&mut config.has_flusher, section.boolean("flusher", problems), |is| is);
    set(&mut config.has_stable_pages, section.boolean("stable_pages", problems), |is| is);
    let is_folio = |size: &ByteCount| size.0.is_power_of_two() && (PAGE_BYTES..=FOLIO_BYTES_MAX).contains(&size.0);
    const FOLIO: &str = "a power of two from 4KiB to 2MiB";
    set(&mut config.folio_bytes_max, section.quantity("folio_max", FOLIO, problems, is_folio), |s| s.0);
    set(&mut config.read_ahead_bytes, section.quantity("read_ahead", SIZE, problems, |_| true), |s: ByteCount| s.0);
    set(&mut config.cpu.call, span(section, "call_cost", problems), |s| s);
    set(&mut config.cpu.page_read, span(section, "page_read_cost", problems), |s| s);
    set(&mut config.cpu.page_write, span(section, "page_write_cost", problems), |s| s);
    let is_request = |size: &ByteCount| (4096..=LENGTH_BYTES_MAX).contains(&size.0) && size.0.is_multiple_of(4096);
    const REQUEST: &str = "a multiple of 4KiB from 4KiB to 64MiB";
    set(&mut config.request_bytes_max, section.quantity("request_max", REQUEST, problems, is_request), |s| s.0 as u32);
    set(&mut config.requests_max, section.integer("requests", 1..=REQUESTS_MAX, problems), |n| n as u32);
    config
}

/// Overwrites a default with what the file says, if it says anything.
fn set<T, V>(place: &mut T, value: Option<V>, convert: impl FnOnce(V) -> T) {
    if let Some(value) = value {
        *place = convert(value);
    }
}
