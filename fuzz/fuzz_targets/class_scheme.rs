//! Any text as a scheme of classes.
#![no_main]

#[path = "../entries/schemes.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::class_scheme(bytes);
});
