//! What an initiator sends, PDU by PDU, logins among it.
#![no_main]

#[path = "../entries/iscsi.rs"]
#[allow(dead_code)] // The other target's entry.
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    entries::pdus(bytes);
});
