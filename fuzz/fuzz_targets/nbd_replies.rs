//! A server's bytes in transmission, as our client reads them.
#![no_main]

#[path = "../entries/nbd.rs"]
#[allow(dead_code)] // The other targets' entries.
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::replies(bytes);
});
