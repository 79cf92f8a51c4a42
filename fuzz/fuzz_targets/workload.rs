//! Any text as a workload.
#![no_main]

#[path = "../entries/workloads.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::workload(bytes);
});
