//! Any bytes as a FUSE request: the parser neither panics nor names bytes that did not come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_protocols::fuse::wire::{Call, PAYLOAD_BYTES_MAX, Request, WRITE_PREFIX_BYTES};

fuzz_target!(|bytes: &[u8]| match Request::parse(bytes).map(|request| request.call) {
    Ok(Call::Write { length, .. }) => assert_eq!(bytes.len(), WRITE_PREFIX_BYTES + length as usize),
    Ok(Call::Read { length, .. }) => assert!(length <= PAYLOAD_BYTES_MAX),
    Ok(_) => {}
    Err(error) => assert_eq!(error.reply().is_none(), bytes.len() < 40),
});
