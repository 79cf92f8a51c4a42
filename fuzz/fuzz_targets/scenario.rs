//! Any text as a scenario.
#![no_main]

#[path = "../entries/scenarios.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::scenario(bytes);
});
