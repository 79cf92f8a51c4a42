//! Any blocks as the start of a cache's device.
#![no_main]

#[path = "../entries/cache.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::cache_metadata(bytes);
});
