//! The FUSE protocol against the kernel's own layout, hostile bytes, and a corpus that the fuzz target shares.

use plimsoll_protocols::fuse::error::WireError;
use plimsoll_protocols::fuse::limits::{PAYLOAD_BYTES_MAX, WRITE_PREFIX_BYTES};
use plimsoll_protocols::fuse::offer::{Offer, PROTOCOL_MINOR_NEWEST};
use plimsoll_protocols::fuse::reply::{FileAttributes, Reply};
use plimsoll_protocols::fuse::wire::{AllocateMode, Call, FuseRequest};
use proptest::prelude::*;
use rustix::io::Errno;
use std::path::Path;

/// Flags that Linux 6.18 offers in its first request, as captured.
const KERNEL_FLAGS: u32 = 0x73ff_fffb;

/// A request as the kernel lays it out: header, then `fields`.
fn request(opcode: u32, node: u64, fields: &[u8]) -> Vec<u8> {
    let length = 40 + fields.len() as u32;
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend(node.to_ne_bytes());
    bytes.extend([0; 16]);
    bytes.extend(fields);
    bytes
}

/// `struct fuse_read_in` and `struct fuse_write_in` begin alike and have 40 bytes.
fn transfer_fields(offset: u64, length: u32) -> Vec<u8> {
    let mut fields = vec![0; 40];
    fields[8..16].copy_from_slice(&offset.to_ne_bytes());
    fields[16..20].copy_from_slice(&length.to_ne_bytes());
    fields
}

fn init_fields(major: u32, minor: u32, flags: u32) -> Vec<u8> {
    [major, minor, 131_072, flags].iter().flat_map(|field| field.to_ne_bytes()).collect()
}

fn parsed(opcode: u32, fields: &[u8]) -> Call {
    FuseRequest::parse(&request(opcode, 1, fields)).expect("a well-formed request").call
}

fn u32_of(reply: &Reply, at: usize) -> u32 {
    u32::from_ne_bytes(reply.as_bytes()[at..at + 4].try_into().unwrap())
}

fn u64_of(reply: &Reply, at: usize) -> u64 {
    u64::from_ne_bytes(reply.as_bytes()[at..at + 8].try_into().unwrap())
}

#[test]
fn every_operation_is_recognised() {
    assert_eq!(parsed(3, &[0; 16]), Call::GetAttributes);
    assert_eq!(parsed(14, &[0; 8]), Call::Open);
    assert_eq!(parsed(15, &transfer_fields(8192, 4096)), Call::Read { offset: 8192, length: 4096 });
    assert_eq!(parsed(20, &[0; 16]), Call::Fsync);
    assert_eq!(parsed(25, &[0; 24]), Call::Flush);
    assert_eq!(parsed(18, &[0; 24]), Call::Release);
    assert_eq!(parsed(17, &[]), Call::Statistics);
    assert_eq!(parsed(38, &[]), Call::Destroy);
    for unanswered in [2, 36, 42] {
        assert_eq!(parsed(unanswered, &[0; 8]), Call::Unanswered);
    }
    for unsupported in [1, 22, 34, 39, 46, 50, 51, 9999] {
        assert_eq!(parsed(unsupported, &[0; 16]), Call::Unsupported { opcode: unsupported });
    }
    let offer = Offer { major: 7, minor: 44, flags: KERNEL_FLAGS };
    assert_eq!(parsed(26, &init_fields(7, 44, KERNEL_FLAGS)), Call::Initialize(offer));
}

#[test]
fn a_change_of_attributes_says_what_it_changes() {
    let change = |valid: u32, size: u64| {
        let mut fields = [0; 88];
        fields[0..4].copy_from_slice(&valid.to_ne_bytes());
        fields[16..24].copy_from_slice(&size.to_ne_bytes());
        parsed(4, &fields)
    };
    assert_eq!(change(1 << 3, 4096), Call::SetAttributes { size_bytes: Some(4096), changes_access: false });
    assert_eq!(change(1 << 5, 4096), Call::SetAttributes { size_bytes: None, changes_access: false });
    for access in [1 << 0, 1 << 1, 1 << 2] {
        assert_eq!(change(access, 0), Call::SetAttributes { size_bytes: None, changes_access: true });
    }
}

#[test]
fn holes_and_zeroes_are_told_apart() {
    let allocate = |mode: u32| {
        let mut fields = [0; 32];
        fields[8..16].copy_from_slice(&65_536u64.to_ne_bytes());
        fields[16..24].copy_from_slice(&(5u64 << 30).to_ne_bytes());
        fields[24..28].copy_from_slice(&mode.to_ne_bytes());
        match parsed(43, &fields) {
            Call::Allocate { mode, offset: 65_536, length: 0x1_4000_0000 } => mode,
            other => panic!("got {other:?}"),
        }
    };
    assert_eq!(allocate(0x03), AllocateMode::PunchHole);
    assert_eq!(allocate(0x10), AllocateMode::ZeroRange);
    assert_eq!(allocate(0x11), AllocateMode::ZeroRange);
    for other in [0x00, 0x01, 0x08, 0x12, 0x20, 0x40] {
        assert_eq!(allocate(other), AllocateMode::Other, "{other:#x}");
    }
}

#[test]
fn a_write_brings_exactly_its_payload() {
    let write = |announced: u32, brought: usize| {
        let mut fields = transfer_fields(4096, announced);
        fields.extend(vec![7; brought]);
        FuseRequest::parse(&request(16, 1, &fields))
    };
    assert_eq!(write(512, 512).map(|request| request.call), Ok(Call::Write { offset: 4096, length: 512 }));
    let expected = WRITE_PREFIX_BYTES + 512;
    for brought in [0, 511, 513] {
        let got = WRITE_PREFIX_BYTES + brought;
        assert_eq!(write(512, brought), Err(WireError::Body { unique: 77, opcode: 16, got, expected }));
    }
    let length = PAYLOAD_BYTES_MAX + 1;
    assert_eq!(write(length, length as usize), Err(WireError::Payload { unique: 77, length }));
}

#[test]
fn what_is_wrong_is_said_and_answered() {
    let errno_of = |error: WireError| u32_of(&Reply::refusal(&error).expect("a reply"), 4).wrapping_neg() as i32;
    let good = request(15, 1, &transfer_fields(0, 4096));
    for cut in 0..40 {
        let error = FuseRequest::parse(&good[..cut]).unwrap_err();
        assert_eq!(error, WireError::Header { got: cut });
        assert!(Reply::refusal(&error).is_none(), "no request to answer");
    }
    let error = FuseRequest::parse(&good[..79]).unwrap_err();
    assert_eq!(error.to_string(), "FUSE request 77 says that it has 80 bytes, got 79");
    assert_eq!(errno_of(error), Errno::INVAL.raw_os_error());
    let error = FuseRequest::parse(&request(15, 1, &[0; 39])).unwrap_err();
    assert_eq!(error.to_string(), "FUSE request 77 (operation 15) has 79 bytes, expected 80");
    assert_eq!(errno_of(error), Errno::INVAL.raw_os_error());
    let error = FuseRequest::parse(&request(15, 2, &transfer_fields(0, 4096))).unwrap_err();
    assert_eq!(error.to_string(), "FUSE request 77 is for node 2, the only one is 1");
    assert_eq!(errno_of(error), Errno::STALE.raw_os_error());
    let error = FuseRequest::parse(&request(15, 1, &transfer_fields(0, u32::MAX))).unwrap_err();
    assert_eq!(error.to_string(), "FUSE request 77 asks for 4294967295 bytes, allowed are at most 262144");
}

#[test]
fn the_versions_meet_at_the_older_one() {
    let minor_of = |minor| u32_of(&Reply::initialized(77, Offer { major: 7, minor, flags: KERNEL_FLAGS }).unwrap(), 20);
    assert_eq!(minor_of(PROTOCOL_MINOR_NEWEST + 6), PROTOCOL_MINOR_NEWEST);
    assert_eq!(minor_of(31), 31);
    let later = Reply::initialized(77, Offer { major: 8, minor: 0, flags: 0 }).unwrap();
    assert_eq!(u32_of(&later, 16), 7, "the kernel asks again with our major version");

    let reply = Reply::initialized(77, Offer { major: 7, minor: 38, flags: KERNEL_FLAGS }).unwrap();
    assert_eq!(reply.as_bytes().len(), 16 + 64);
    assert_eq!(u32_of(&reply, 28), 1 << 0 | 1 << 5 | 1 << 15 | 1 << 22);
    assert_eq!(u32_of(&reply, 36), PAYLOAD_BYTES_MAX);
    for (major, minor, flags) in [(7, 27, KERNEL_FLAGS), (6, 40, KERNEL_FLAGS), (7, 38, KERNEL_FLAGS & !(1 << 15))] {
        let error = Reply::initialized(77, Offer { major, minor, flags }).unwrap_err();
        assert_eq!(error, WireError::Version { unique: 77, major, minor, flags });
    }
}

#[test]
fn replies_have_the_layout_of_the_kernel() {
    let file = FileAttributes { size_bytes: 3 << 30, block_bytes: 4096 };
    let attributes = Reply::attributes(77, file);
    assert_eq!(attributes.as_bytes().len(), 16 + 104);
    assert_eq!((u32_of(&attributes, 0), u32_of(&attributes, 4), u64_of(&attributes, 8)), (120, 0, 77));
    assert_eq!(u64_of(&attributes, 32), 1, "node");
    assert_eq!(u64_of(&attributes, 40), 3 << 30, "size");
    assert_eq!(u64_of(&attributes, 48), (3 << 30) / 512, "blocks");
    assert_eq!(u32_of(&attributes, 92), 0o100_600, "mode");
    assert_eq!(u32_of(&attributes, 96), 1, "links");
    assert_eq!(u32_of(&attributes, 112), 4096, "block size");

    let opened = Reply::opened(77);
    assert_eq!((opened.as_bytes().len(), u32_of(&opened, 24)), (32, 0b100_0011));
    let written = Reply::written(77, 65_536);
    assert_eq!((written.as_bytes().len(), u32_of(&written, 16)), (24, 65_536));
    let data = Reply::data(77, 4096);
    assert_eq!((data.as_bytes().len(), u32_of(&data, 0)), (16, 16 + 4096));
    let statistics = Reply::statistics(77, file);
    assert_eq!((statistics.as_bytes().len(), u32_of(&statistics, 56)), (96, 4096));
    let error = Reply::error(77, Errno::NOSPC);
    assert_eq!((u32_of(&error, 0), u32_of(&error, 4) as i32, u64_of(&error, 8)), (16, -28, 77));
    assert_eq!(Reply::done(77).as_bytes().len(), 16);
}

/// The corpus of the fuzz target: `good-*` parse, `bad-*` are refused.
#[test]
fn the_corpus_is_what_its_names_say() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/fuse_request");
    let mut counts = (0, 0);
    for entry in std::fs::read_dir(&corpus).expect("the corpus is part of the repository") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let outcome = FuseRequest::parse(&std::fs::read(&path).unwrap());
        match outcome {
            Ok(_) => counts.0 += 1,
            Err(_) => counts.1 += 1,
        }
        assert_eq!(outcome.is_ok(), name.starts_with("good-"), "{name}: {outcome:?}");
    }
    assert!(counts.0 >= 15 && counts.1 >= 6, "{counts:?}");
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = FuseRequest::parse(&bytes) {
            prop_assert_eq!(Reply::refusal(&error).is_none(), bytes.len() < 40);
        }
    }

    /// Hostile fields behind a believable header: whatever parses stays inside the bytes that came.
    #[test]
    fn what_parses_is_within_bounds(opcode in 0u32..60, fields in proptest::collection::vec(any::<u8>(), 0..120)) {
        let bytes = request(opcode, 1, &fields);
        match FuseRequest::parse(&bytes) {
            Ok(FuseRequest { unique, call: Call::Write { length, .. } }) => {
                prop_assert_eq!((unique, WRITE_PREFIX_BYTES + length as usize), (77, bytes.len()));
            }
            Ok(FuseRequest { unique, call: Call::Read { length, .. } }) => {
                prop_assert_eq!((unique, length <= PAYLOAD_BYTES_MAX), (77, true));
            }
            Ok(FuseRequest { unique, .. }) => prop_assert_eq!(unique, 77),
            Err(error) => prop_assert!(Reply::refusal(&error).is_some()),
        }
    }

    #[test]
    fn transfers_keep_their_numbers(offset: u64, length in 0..=PAYLOAD_BYTES_MAX) {
        prop_assert_eq!(parsed(15, &transfer_fields(offset, length)), Call::Read { offset, length });
    }
}
