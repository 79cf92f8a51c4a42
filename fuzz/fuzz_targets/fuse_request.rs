//! Any bytes as a FUSE request: the parser neither panics nor names bytes that did not come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_protocols::fuse::limits::{PAYLOAD_BYTES_MAX, WRITE_PREFIX_BYTES};
use plimsoll_protocols::fuse::reply::Reply;
use plimsoll_protocols::fuse::wire::{Call, FuseRequest};

fuzz_target!(|bytes: &[u8]| match FuseRequest::parse(bytes).map(|request| request.call) {
    Ok(Call::Write { length, .. }) => assert_eq!(bytes.len(), WRITE_PREFIX_BYTES + length as usize),
    Ok(Call::Read { length, .. }) => assert!(length <= PAYLOAD_BYTES_MAX),
    Ok(_) => {}
    Err(error) => assert_eq!(Reply::refusal(&error).is_none(), bytes.len() < 40),
});
