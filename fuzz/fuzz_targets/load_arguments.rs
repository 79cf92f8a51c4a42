//! Any text as the arguments of a load.
#![no_main]

#[path = "../entries/loads.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::load_arguments(bytes);
});
