//! A client's bytes in transmission.
#![no_main]

#[path = "../entries/nbd.rs"]
#[allow(dead_code)] // The other targets' entries.
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::requests(bytes);
});
