//! Any bytes, in pieces and with descriptors, at the socket for listeners.
#![no_main]

#[path = "../entries/gates.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::seccomp_state(bytes);
});
