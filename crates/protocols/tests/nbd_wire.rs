//! Requests and replies byte for byte, what is refused with which error, and that nothing makes a decoder panic.

use plimsoll_protocols::nbd::limits::PAYLOAD_BYTES_MAX;
use plimsoll_protocols::nbd::wire::{
    ChunkKind, REQUEST_BYTES, ReplyHeader, error_chunk, error_offset_chunk, none_chunk, offset_data_chunk,
    offset_hole_chunk, simple_reply,
};
use plimsoll_protocols::nbd::{Command, CommandFlags, Errno, ExportInfo, NbdError, Request};
use proptest::prelude::*;

const COOKIE: u64 = 0x0102_0304_0506_0708;

/// Bytes from their hexadecimal digits; spaces are passed over.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn request(command: Command, flags: CommandFlags, offset: u64, length: u32) -> Request {
    Request { flags, command, cookie: COOKIE, offset, length }
}

fn everything_on(name: &str, size_bytes: u64) -> ExportInfo {
    let mut export = ExportInfo::new(name, size_bytes);
    export.set_transmission_flags(0xffff);
    export.is_read_only = false;
    export
}

#[test]
fn a_request_is_28_bytes_in_network_order() {
    let bytes = request(Command::WriteZeroes, CommandFlags::FUA.with(CommandFlags::NO_HOLE), 0x1000, 0x200).encode();
    assert_eq!(
        bytes.to_vec(),
        hex("25609513 0003 0006 0102030405060708 0000000000001000 00000200"),
        "magic, flags, command, cookie, offset, length"
    );
}

#[test]
fn replies_are_as_in_the_specification() {
    for (bytes, expected) in [
        (simple_reply(COOKIE, Ok(())).to_vec(), "67446698 00000000 0102030405060708"),
        (simple_reply(COOKIE, Err(Errno::NoSpace)).to_vec(), "67446698 0000001c 0102030405060708"),
        (none_chunk(COOKIE).to_vec(), "668e33ef 0001 0000 0102030405060708 00000000"),
        (
            offset_data_chunk(COOKIE, true, 0x2000, 0x1000).to_vec(),
            "668e33ef 0001 0001 0102030405060708 00001008 0000000000002000",
        ),
        (
            offset_hole_chunk(COOKIE, false, 0x2000, 0x1000).to_vec(),
            "668e33ef 0000 0002 0102030405060708 0000000c 0000000000002000 00001000",
        ),
        (
            error_chunk(COOKIE, true, Errno::InputOutput).to_vec(),
            "668e33ef 0001 8001 0102030405060708 00000006 00000005 0000",
        ),
        (
            error_offset_chunk(COOKIE, false, Errno::Overflow, 0x2000).to_vec(),
            "668e33ef 0000 8002 0102030405060708 0000000e 0000004b 0000 0000000000002000",
        ),
    ] {
        assert_eq!(bytes, hex(expected), "{expected}");
    }
}

#[test]
fn what_is_not_a_request_closes_the_connection() {
    let mut bytes = request(Command::Read, CommandFlags::NONE, 0, 512).encode();
    bytes[0] = 0x26;
    assert_eq!(
        Request::decode(&bytes).unwrap_err().to_string(),
        "a request begins with 0x26609513, expected 0x25609513"
    );
    let longest = request(Command::Write, CommandFlags::NONE, 0, PAYLOAD_BYTES_MAX);
    assert_eq!(Request::decode(&longest.encode()), Ok(longest));
    let longer = request(Command::Write, CommandFlags::NONE, 0, PAYLOAD_BYTES_MAX + 1);
    assert_eq!(
        Request::decode(&longer.encode()).unwrap_err().to_string(),
        "a write of 33554433 bytes, allowed are 33554432"
    );
    let read = request(Command::Read, CommandFlags::NONE, 0, u32::MAX);
    assert_eq!(Request::decode(&read.encode()), Ok(read), "only a payload is too long");
}

/// Promise: nbd-long-zeroes.
#[test]
fn every_refusal_has_its_error() {
    use Command::*;
    const END: u64 = 1 << 20;
    const NONE: CommandFlags = CommandFlags::NONE;
    let mut export = everything_on("a", END);
    export.minimum_block_bytes = 512;
    export.maximum_block_bytes = 64 * 1024;
    let expect = |export: &ExportInfo, command, flags, offset, length, expected: Result<(), Errno>| {
        let request = request(command, flags, offset, length);
        assert_eq!(request.check(export), expected, "{request:?}");
    };
    for command in [Read, Write, Trim, Cache, WriteZeroes] {
        let beyond = if matches!(command, Write | WriteZeroes) { Errno::NoSpace } else { Errno::InvalidArgument };
        expect(&export, command, NONE, 0, 512, Ok(()));
        expect(&export, command, CommandFlags::FUA, END - 512, 512, Ok(()));
        expect(&export, command, NONE, END, 512, Err(beyond));
        expect(&export, command, NONE, END - 512, 1024, Err(beyond));
        expect(&export, command, NONE, u64::MAX - 511, 512, Err(beyond));
        expect(&export, command, NONE, 0, 0, Err(Errno::InvalidArgument));
        expect(&export, command, NONE, 1, 512, Err(Errno::InvalidArgument));
        expect(&export, command, NONE, 0, 513, Err(Errno::InvalidArgument));
        expect(&export, command, CommandFlags(1 << 15), 0, 512, Err(Errno::InvalidArgument));
        // The maximum block size bounds payloads: nbdcopy zeroes as much at once as a hole is long.
        let too_long = if matches!(command, Read | Write) { Err(Errno::InvalidArgument) } else { Ok(()) };
        expect(&export, command, NONE, 0, 64 * 1024 + 512, too_long);
    }
    expect(&export, Read, CommandFlags::DF, 0, 512, Ok(()));
    expect(&export, Read, CommandFlags::DF, 0, 64 * 1024 + 512, Err(Errno::Overflow));
    expect(&export, WriteZeroes, CommandFlags::FAST_ZERO, 0, 64 * 1024 + 512, Ok(()));
    expect(&export, Write, CommandFlags::DF, 0, 512, Err(Errno::InvalidArgument));
    expect(&export, Read, CommandFlags::NO_HOLE, 0, 512, Err(Errno::InvalidArgument));
    expect(&export, Flush, NONE, 0, 0, Ok(()));
    expect(&export, Flush, NONE, 512, 0, Err(Errno::InvalidArgument));
    expect(&export, Flush, NONE, 0, 512, Err(Errno::InvalidArgument));
    expect(&export, Unknown(7), NONE, 0, 512, Err(Errno::InvalidArgument));
    expect(&export, Disconnect, CommandFlags(0xffff), 1, 1, Ok(()));

    export.is_read_only = true;
    for command in [Write, Trim, WriteZeroes] {
        expect(&export, command, NONE, END, 512, Err(Errno::NotPermitted));
    }
    expect(&export, Read, NONE, 0, 512, Ok(()));

    let bare = ExportInfo::new("bare", END);
    for command in [Flush, Trim, Cache, WriteZeroes] {
        expect(&bare, command, NONE, 0, if command == Flush { 0 } else { 512 }, Err(Errno::InvalidArgument));
    }
    expect(&bare, Write, CommandFlags::FUA, 0, 512, Err(Errno::InvalidArgument));
    export.is_read_only = false;
    export.features.fast_zero = false;
    expect(&export, WriteZeroes, CommandFlags::FAST_ZERO, 0, 512, Err(Errno::InvalidArgument));
}

#[test]
fn a_chunk_of_the_wrong_length_closes_the_connection() {
    for (kind, wrong, right) in [(0u16, 1u32, 0u32), (1, 8, 9), (2, 11, 12), (0x8001, 5, 6), (0x8002, 13, 14)] {
        let mut bytes = none_chunk(COOKIE);
        bytes[6..8].copy_from_slice(&kind.to_be_bytes());
        bytes[16..20].copy_from_slice(&wrong.to_be_bytes());
        assert_eq!(ReplyHeader::decode(&bytes), Err(NbdError::BadChunk { kind, got: wrong }));
        bytes[16..20].copy_from_slice(&right.to_be_bytes());
        assert!(ReplyHeader::decode(&bytes).is_ok(), "{kind:#x}");
    }
    let mut not_last = none_chunk(COOKIE);
    not_last[5] = 0;
    assert_eq!(ReplyHeader::decode(&not_last), Err(NbdError::BadChunk { kind: 0, got: 0 }));
    let mut unknown_error = error_chunk(COOKIE, true, Errno::InputOutput);
    unknown_error[7] = 0x77;
    let decoded = ReplyHeader::decode(&unknown_error).unwrap().unwrap().0;
    let expected = ReplyHeader::Chunk { cookie: COOKIE, is_last: true, kind: ChunkKind::Error, payload_bytes: 6 };
    assert_eq!(decoded, expected, "an unknown kind of error is an error");
}

#[test]
fn errors_go_over_the_wire_and_come_from_the_system() {
    let all = [
        Errno::NotPermitted,
        Errno::InputOutput,
        Errno::OutOfMemory,
        Errno::InvalidArgument,
        Errno::NoSpace,
        Errno::Overflow,
        Errno::NotSupported,
        Errno::Shutdown,
    ];
    for errno in all {
        assert_eq!(Errno::from_wire(errno as u32), Some(errno));
    }
    assert_eq!(all.map(|errno| errno as u32), [1, 5, 12, 22, 28, 75, 95, 108], "the specification's numbers");
    assert_eq!(Errno::from_wire(0), None);
    assert_eq!(Errno::from_wire(4711), Some(Errno::InvalidArgument));
    for (system, errno) in [
        (libc::EIO, Errno::InputOutput),
        (libc::EDQUOT, Errno::NoSpace),
        (libc::EFBIG, Errno::NoSpace),
        (libc::EROFS, Errno::NotPermitted),
        (libc::ENODEV, Errno::InputOutput),
    ] {
        assert_eq!(Errno::from_system(system), errno);
    }
}

proptest! {
    #[test]
    fn requests_survive_the_wire(flags: u16, number: u16, cookie: u64, offset: u64, length: u32) {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&hex("25609513"));
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(number % 10).to_be_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&offset.to_be_bytes());
        bytes[24..].copy_from_slice(&length.to_be_bytes());
        match Request::decode(&bytes) {
            Ok(request) => {
                prop_assert_eq!(request.encode(), bytes);
                prop_assert_eq!((request.flags.0, request.cookie), (flags, cookie));
                prop_assert_eq!((request.offset, request.length), (offset, length));
            }
            Err(error) => {
                prop_assert_eq!(error, NbdError::PayloadTooLong { got: length });
                prop_assert!(number % 10 == 1 && length > PAYLOAD_BYTES_MAX);
            }
        }
    }

    #[test]
    fn what_is_accepted_lies_within_the_export(
        number in 0u16..7,
        offset in prop_oneof![0u64..20_000, any::<u64>(), u64::MAX - 20_000..u64::MAX],
        length in prop_oneof![0u32..20_000, any::<u32>()],
        blocks in 0u64..40,
        shift in 0u32..10,
    ) {
        let mut bytes = request(Command::Read, CommandFlags::NONE, offset, length).encode();
        bytes[7] = number as u8;
        let Ok(request) = Request::decode(&bytes) else { return Ok(()) };
        let mut export = everything_on("a", blocks << shift);
        export.minimum_block_bytes = 1 << shift;
        let is_ok = request.check(&export).is_ok();
        // The obvious way, in numbers that cannot overflow.
        let end = u128::from(offset) + u128::from(length);
        let is_inside = length > 0 && end <= u128::from(blocks << shift);
        let is_aligned = offset % (1 << shift) == 0 && length % (1 << shift) == 0;
        let expected = match request.command {
            Command::Disconnect => true,
            Command::Flush => offset == 0 && length == 0,
            _ => is_inside && is_aligned,
        };
        prop_assert_eq!(is_ok, expected);
    }

    #[test]
    fn no_bytes_make_the_reply_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), magic in 0usize..3) {
        let mut bytes = bytes;
        let magic: &[u8] = [&b""[..], &[0x67, 0x44, 0x66, 0x98], &[0x66, 0x8e, 0x33, 0xef]][magic];
        bytes.splice(..magic.len().min(bytes.len()), magic.iter().copied());
        if let Ok(Some((_, taken))) = ReplyHeader::decode(&bytes) {
            prop_assert!(taken <= bytes.len());
            for short in 0..taken {
                prop_assert_eq!(ReplyHeader::decode(&bytes[..short]), Ok(None));
            }
        }
    }
}
