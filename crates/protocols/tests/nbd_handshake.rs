//! The handshake byte for byte, every answer to every option, and what hostile clients get.

use plimsoll_protocols::nbd::handshake::{Ended, Handshake, HandshakeStep, Negotiated, OPTIONS_MAX};
use plimsoll_protocols::nbd::limits::OPTION_DATA_BYTES_MAX;
use plimsoll_protocols::nbd::option::{
    GREETING_BYTES, InfoKind, OPTION_REPLY_BYTES, OptionReplyKind, apply_info, decode_greeting, decode_option_reply,
    number, option, push_info_request,
};
use plimsoll_protocols::nbd::{ExportInfo, NbdError};
use proptest::prelude::*;

/// Fixed newstyle, no zeroes.
const CLIENT_FLAGS: [u8; 4] = [0, 0, 0, 3];
const STARTTLS: u32 = 5;

fn exports() -> Vec<ExportInfo> {
    let mut disk = ExportInfo::new("disk", 1 << 30);
    disk.description = "the tenant's disk".into();
    (disk.minimum_block_bytes, disk.features.flush) = (512, true);
    let hidden = ExportInfo { is_hidden: true, ..ExportInfo::new("told to one only", 4096) };
    vec![disk, hidden, ExportInfo::new("scratch", 4096)]
}

fn option_with(number: u32, data: &[u8]) -> Vec<u8> {
    [&option(number, data.len() as u32)[..], data].concat()
}

fn go(name: &str, kinds: &[InfoKind]) -> Vec<u8> {
    let mut data = Vec::new();
    push_info_request(&mut data, name, kinds);
    option_with(number::GO, &data)
}

/// What a client's bytes lead to: output, last step, and how many bytes were left alone.
fn converse(client: &[u8]) -> (Vec<u8>, HandshakeStep, usize) {
    let (exports, mut handshake, mut output, mut input) = (exports(), Handshake::new(), Vec::new(), client);
    loop {
        match handshake.advance(&mut input, &exports, &mut output) {
            HandshakeStep::NeedsBytes(missing) => {
                assert!(missing > 0, "no progress");
                if input.is_empty() {
                    return (output, HandshakeStep::NeedsBytes(missing), 0);
                }
            }
            step => return (output, step, input.len()),
        }
    }
}

fn after_flags(options: &[Vec<u8>]) -> Vec<u8> {
    [CLIENT_FLAGS.to_vec(), options.concat()].concat()
}

/// The kinds and data of the replies, and the options that they answer.
fn replies(mut output: &[u8]) -> Vec<(u32, OptionReplyKind, Vec<u8>)> {
    let mut replies = Vec::new();
    while let Some((header, rest)) = output.split_first_chunk::<OPTION_REPLY_BYTES>() {
        let reply = decode_option_reply(header).unwrap();
        let (data, rest) = rest.split_at(reply.data_bytes as usize);
        replies.push((reply.number, reply.kind, data.to_vec()));
        output = rest;
    }
    assert!(output.is_empty(), "{} bytes are no reply", output.len());
    replies
}

fn kinds(output: &[u8]) -> Vec<OptionReplyKind> {
    replies(output).into_iter().map(|(_, kind, _)| kind).collect()
}

fn negotiated(step: HandshakeStep) -> Negotiated {
    match step {
        HandshakeStep::Negotiated(negotiated) => *negotiated,
        other => panic!("{other:?}"),
    }
}

#[test]
fn go_is_answered_byte_for_byte() {
    assert_eq!(Handshake::greeting(), *b"NBDMAGICIHAVEOPT\x00\x03");
    assert_eq!(decode_greeting(&Handshake::greeting()), Ok(3));
    let client = b"\x00\x00\x00\x03IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0d\x00\x00\x00\x07scratch\x00\x00";
    let (output, step, left) = converse(client);
    let expected = [
        &b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c"[..],
        b"\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x01",
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00",
    ];
    assert_eq!(output, expected.concat());
    let negotiated = negotiated(step);
    assert_eq!((negotiated.export.name.as_str(), left), ("scratch", 0));
    assert!(!negotiated.structured_replies && !negotiated.block_size_known);
}

#[test]
fn everything_that_is_asked_for_is_told() {
    let all = [InfoKind::Export, InfoKind::Name, InfoKind::Description, InfoKind::BlockSize];
    let client = after_flags(&[option_with(number::STRUCTURED_REPLY, b""), go("disk", &all)]);
    let (output, step, _) = converse(&client);
    let mut told = ExportInfo::new("", 0);
    let replies = replies(&output);
    assert_eq!(replies.first().unwrap().1, OptionReplyKind::Acknowledged);
    assert_eq!(replies.last().unwrap().1, OptionReplyKind::Acknowledged);
    for (option, kind, data) in &replies[1..replies.len() - 1] {
        assert_eq!((*option, *kind), (number::GO, OptionReplyKind::Info));
        apply_info(&mut told, data);
    }
    assert_eq!(told, exports()[0]);
    assert_eq!(replies[1].2[10..], [0x00, 0x85], "flags, flush, unfragmented reads");
    let negotiated = negotiated(step);
    assert!(negotiated.structured_replies && negotiated.block_size_known);
    assert_eq!(negotiated.export, exports()[0]);
}

#[test]
fn what_a_client_sends_ahead_is_left_for_transmission() {
    let ahead = [after_flags(&[go("disk", &[])]), b"%`\x95\x13 a request and more".to_vec()].concat();
    let (_, step, left) = converse(&ahead);
    let agreed = negotiated(step);
    assert_eq!((agreed.export.name.as_str(), left), ("disk", 23));
    assert_eq!(agreed.export.minimum_block_bytes, 1, "nor does this one know the block sizes");
    let ahead = [after_flags(&[option_with(number::EXPORT_NAME, b"disk")]), b"%`\x95\x13".to_vec()].concat();
    assert_eq!(converse(&ahead).2, 4);
}

/// Promise: nbd-any-bytes.
#[test]
fn an_export_name_is_answered_without_a_header() {
    let name = option_with(number::EXPORT_NAME, b"disk");
    let (output, step, _) = converse(&after_flags(std::slice::from_ref(&name)));
    assert_eq!(output, [0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0x05]);
    let agreed = negotiated(step);
    assert!(!agreed.block_size_known);
    assert_eq!(
        agreed.export,
        ExportInfo { minimum_block_bytes: 1, ..exports()[0].clone() },
        "it may ask for any bytes"
    );
    let (output, step, _) = converse(&[&[0, 0, 0, 1], &name[..]].concat());
    assert_eq!((output.len(), output[10..].iter().any(|byte| *byte != 0)), (134, false));
    negotiated(step);
    let unknown = after_flags(&[option_with(number::EXPORT_NAME, b"dis")]);
    assert_eq!(converse(&unknown), (vec![], HandshakeStep::Ended(Ended::UnknownExport), 0));
}

#[test]
fn options_that_do_not_end_the_handshake() {
    use OptionReplyKind::{Acknowledged, Info, Invalid, Server, UnknownExport, Unsupported};
    let mut info = go("disk", &[InfoKind::BlockSize]);
    info[11] = number::INFO as u8;
    let client = after_flags(&[
        option_with(number::LIST, b""),
        option_with(number::LIST, b"x"),
        option_with(STARTTLS, b""),
        option_with(10, b"meta context"),
        option_with(4711, &[0; OPTION_DATA_BYTES_MAX]),
        go("nothing of the kind", &[]),
        info,
        option_with(number::STRUCTURED_REPLY, b"x"),
        option_with(number::STRUCTURED_REPLY, b""),
    ]);
    let (output, step, _) = converse(&client);
    assert_eq!(step, HandshakeStep::NeedsBytes(16));
    assert_eq!(
        kinds(&output),
        [
            vec![Server, Server, Acknowledged, Invalid, Unsupported, Unsupported, Unsupported, UnknownExport],
            vec![Info, Info, Acknowledged, Invalid, Acknowledged],
        ]
        .concat()
    );
    let listed = &replies(&output)[0].2;
    assert_eq!(listed[..], *b"\x00\x00\x00\x04diskthe tenant's disk");
    let listed = &replies(&output)[1].2;
    assert_eq!(listed[..], *b"\x00\x00\x00\x07scratch", "what is hidden is not listed");
    let (_, step, _) = converse(&after_flags(&[go("told to one only", &[])]));
    assert_eq!(negotiated(step).export.name, "told to one only", "and a client that knows its name has it");
    let (output, step, _) = converse(&after_flags(&[option_with(number::ABORT, b"goodbye")]));
    assert_eq!((kinds(&output), step), (vec![Acknowledged], HandshakeStep::Ended(Ended::Aborted)));
}

#[test]
fn lengths_that_contradict_each_other_are_invalid() {
    let good = [0, 0, 0, 4, b'd', b'i', b's', b'k', 0, 1, 0, 3];
    for end in 0..good.len() {
        let (output, step, _) = converse(&after_flags(&[option_with(number::GO, &good[..end])]));
        assert_eq!(
            (kinds(&output), step),
            (vec![OptionReplyKind::Invalid], HandshakeStep::NeedsBytes(16)),
            "{end} bytes"
        );
    }
    let longer = [&good[..], &[0]].concat();
    assert_eq!(kinds(&converse(&after_flags(&[option_with(number::GO, &longer)])).0), [OptionReplyKind::Invalid]);
    let huge_name = [&[0xff; 4][..], &good[4..]].concat();
    assert_eq!(kinds(&converse(&after_flags(&[option_with(number::GO, &huge_name)])).0), [OptionReplyKind::Invalid]);
    let long_name = go(&"n".repeat(4097), &[]);
    assert_eq!(kinds(&converse(&after_flags(&[long_name])).0), [OptionReplyKind::TooBig]);
}

#[test]
fn a_client_that_does_not_speak_the_protocol_is_cut_off() {
    let (output, step, _) = converse(&[0, 0, 0, 4]);
    assert_eq!((output, step), (vec![], HandshakeStep::Ended(Ended::UnknownClientFlags { got: 4 })));
    let mut wrong = after_flags(&[go("disk", &[])]);
    wrong[4] = b'X';
    let (output, step, left) = converse(&wrong);
    let magic_error = |step| matches!(step, HandshakeStep::Ended(Ended::Protocol(NbdError::BadMagic { .. })));
    assert!(output.is_empty() && magic_error(step) && left > 0);

    let too_long = [CLIENT_FLAGS.to_vec(), option(4711, OPTION_DATA_BYTES_MAX as u32 + 1).to_vec()].concat();
    let (output, step, _) = converse(&too_long);
    assert_eq!(kinds(&output), [OptionReplyKind::TooBig]);
    assert_eq!(
        step,
        HandshakeStep::Ended(Ended::OptionTooLong { number: 4711, got: 8193, allowed: 8192 }),
        "closed before the data has come"
    );
    let name_too_long = [CLIENT_FLAGS.to_vec(), option(number::EXPORT_NAME, 4097).to_vec()].concat();
    let (output, step, _) = converse(&name_too_long);
    assert_eq!(output, b"");
    assert_eq!(step, HandshakeStep::Ended(Ended::OptionTooLong { number: 1, got: 4097, allowed: 4096 }));
}

#[test]
fn ten_thousand_options_are_too_many() {
    let client = after_flags(&vec![option_with(number::LIST, b""); 10_000]);
    let (exports, mut handshake, mut input) = (exports(), Handshake::new(), &client[..]);
    let mut steps = 0;
    loop {
        let mut output = Vec::new();
        let step = handshake.advance(&mut input, &exports, &mut output);
        assert!(output.len() < 200, "one call answers one option: {} bytes", output.len());
        steps += 1;
        match step {
            HandshakeStep::NeedsBytes(_) => assert!(steps <= OPTIONS_MAX + 1),
            step => {
                assert_eq!((step, steps), (HandshakeStep::Ended(Ended::TooManyOptions), OPTIONS_MAX + 2));
                return;
            }
        }
    }
}

#[test]
fn a_truncated_handshake_waits_for_exactly_the_rest() {
    let client = after_flags(&[option_with(number::STRUCTURED_REPLY, b""), go("disk", &[InfoKind::BlockSize])]);
    for end in 0..client.len() {
        let (output, step, _) = converse(&client[..end]);
        let HandshakeStep::NeedsBytes(missing) = step else { panic!("{step:?} after {end} bytes") };
        assert!(missing <= client.len() - end, "asks for more than a message after {end} bytes");
        assert!(replies(&output).len() <= 1);
    }
    negotiated(converse(&client).1);
}

#[test]
fn a_greeting_that_is_none_is_noticed() {
    for at in 0..GREETING_BYTES - 2 {
        let mut bytes = Handshake::greeting();
        bytes[at] ^= 1;
        assert!(decode_greeting(&bytes).is_err(), "byte {at}");
    }
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(option_with(number::STRUCTURED_REPLY, b"")),
        Just(option_with(number::LIST, b"")),
        Just(option_with(number::ABORT, b"")),
        Just(option_with(number::EXPORT_NAME, b"scratch")),
        "[a-d]{0,2}|disk".prop_map(|name| go(&name, &[InfoKind::BlockSize])),
        (0u32..12, prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(number, data)| option_with(number, &data)),
        prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #[test]
    fn bytes_may_come_in_any_pieces(
        options in prop::collection::vec(any_option(), 0..6),
        piece_bytes in prop::collection::vec(1usize..30, 1..8),
    ) {
        let client = after_flags(&options);
        let (expected_output, expected_step, expected_left) = converse(&client);
        let (exports, mut handshake, mut output) = (exports(), Handshake::new(), Vec::new());
        let (mut at, mut step) = (0, HandshakeStep::NeedsBytes(4));
        for bytes in piece_bytes.iter().cycle() {
            let mut piece = &client[at..client.len().min(at + bytes)];
            let given = piece.len();
            step = handshake.advance(&mut piece, &exports, &mut output);
            at += given - piece.len();
            if at == client.len() || !matches!(step, HandshakeStep::NeedsBytes(_)) {
                break;
            }
        }
        prop_assert_eq!(output, expected_output);
        prop_assert_eq!(step, expected_step);
        prop_assert_eq!(client.len() - at, expected_left);
    }
}
