//! Any bytes as a trace in a binary format.
#![no_main]

#[path = "../entries/traces.rs"]
#[allow(dead_code)] // The other target's entry.
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::binary(bytes);
});
