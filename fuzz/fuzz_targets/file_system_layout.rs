//! Any bytes as the beginning of a volume with a file system.
#![no_main]

#[path = "../entries/layouts.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::file_system_layout(bytes);
});
