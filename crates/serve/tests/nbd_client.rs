//! The client: replies in any order and any pieces, servers that lie, and pipelining without a deadlock.

mod nbd_support;

use nbd_support::{memory_export, serve_memory};
use plimsoll_core::Span;
use plimsoll_protocols::nbd::handshake::HandshakeStep;
use plimsoll_protocols::nbd::replies::{Completed, Progress, Replies};
use plimsoll_protocols::nbd::wire::{
    REQUEST_BYTES, error_chunk, error_offset_chunk, none_chunk, offset_data_chunk, offset_hole_chunk, simple_reply,
};
use plimsoll_protocols::nbd::{Command, CommandFlags, Errno, Handshake, NbdError, Negotiated};
use plimsoll_serve::nbd::Client;
use plimsoll_serve::nbd::client::{ClientError, ClientOptions};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

/// What the replies in `bytes` amount to, given in pieces: completions, and what each tag's buffer holds.
fn digest(
    replies: &mut Replies,
    bytes: &[u8],
    piece_bytes: usize,
    buffers: &mut [Vec<u8>],
) -> Result<Vec<Completed>, NbdError> {
    let mut completions = Vec::new();
    for mut piece in bytes.chunks(piece_bytes) {
        while let Progress::Completed(completed) = replies.advance(&mut piece, &mut |tag, at, bytes| {
            buffers[tag as usize][at as usize..][..bytes.len()].copy_from_slice(bytes);
        })? {
            completions.push(completed);
        }
        assert!(piece.is_empty());
    }
    Ok(completions)
}

/// Two reads of 100 bytes at 1000 and 2000 and a write are under way; their cookies.
fn three_under_way(replies: &mut Replies) -> [u64; 3] {
    [(Command::Read, 1000), (Command::Read, 2000), (Command::Write, 0)]
        .into_iter()
        .enumerate()
        .map(|(tag, (command, offset))| replies.begin(tag as u32, command, offset, 100).unwrap())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
}

fn data_chunk(cookie: u64, is_last: bool, offset: u64, data: &[u8]) -> Vec<u8> {
    [&offset_data_chunk(cookie, is_last, offset, data.len() as u32)[..], data].concat()
}

fn error_with_text(cookie: u64) -> Vec<u8> {
    let mut bytes = error_chunk(cookie, true, Errno::NoSpace).to_vec();
    bytes[19] += 4;
    bytes[25] = 4;
    [bytes, b"full".to_vec()].concat()
}

proptest! {
    #[test]
    fn replies_may_come_in_any_order_and_pieces(piece_bytes in 1usize..300, is_structured: bool) {
        let mut replies = Replies::new(3);
        let [first, second, write] = three_under_way(&mut replies);
        let bytes = if is_structured {
            [
                data_chunk(second, false, 2060, &[3; 40]),
                error_with_text(write),
                data_chunk(first, true, 1000, &[1; 100]),
                offset_hole_chunk(second, false, 2000, 10).to_vec(),
                data_chunk(second, false, 2010, &[2; 50]),
                none_chunk(second).to_vec(),
            ].concat()
        } else {
            let second_data = [vec![0; 10], vec![2; 50], vec![3; 40]].concat();
            [
                &simple_reply(write, Err(Errno::NoSpace))[..],
                &simple_reply(first, Ok(())), &[1; 100],
                &simple_reply(second, Ok(())), &second_data,
            ].concat()
        };
        let mut buffers = vec![vec![9; 100]; 3];
        let completions = digest(&mut replies, &bytes, piece_bytes, &mut buffers).unwrap();
        prop_assert_eq!(completions, [
            Completed { tag: 2, result: Err(Errno::NoSpace) },
            Completed { tag: 0, result: Ok(()) },
            Completed { tag: 1, result: Ok(()) },
        ]);
        prop_assert_eq!(&buffers[0], &vec![1; 100]);
        prop_assert_eq!(&buffers[1], &[vec![0; 10], vec![2; 50], vec![3; 40]].concat());
        prop_assert_eq!(replies.under_way_count(), 0);
    }

    #[test]
    fn no_server_makes_the_client_panic_or_write_outside_of_a_request(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u16..4, is_error: bool, tag in 0u32..4, piece_bytes in 1usize..64,
    ) {
        let header = [
            &[0x66, 0x8e, 0x33, 0xef, 0, 1][..],
            &(kind | u16::from(is_error) << 15).to_be_bytes(),
            &(u64::from(tag) | 1 << 32).to_be_bytes(),
        ].concat();
        let prefix = header.len().min(bytes.len());
        bytes[..prefix].copy_from_slice(&header[..prefix]);
        let mut replies = Replies::new(3);
        three_under_way(&mut replies);
        // The buffers' bounds are the oracle: data outside of a request would panic in `digest`.
        let _ = digest(&mut replies, &bytes, piece_bytes, &mut [vec![0; 100], vec![0; 100], vec![]]);
    }
}

/// What a server sends, from the three cookies.
type Lie = fn([u64; 3]) -> Vec<u8>;

#[test]
fn a_server_that_lies_is_caught() {
    let lies: &[(&str, Lie)] = &[
        ("belongs to no request", |_| simple_reply(0, Ok(())).to_vec()),
        ("belongs to no request", |[_, _, write]| [simple_reply(write, Ok(())); 2].concat()),
        ("outside of what was asked for", |[first, ..]| data_chunk(first, true, 999, &[0; 10])),
        ("outside of what was asked for", |[first, ..]| data_chunk(first, true, 1091, &[0; 10])),
        ("outside of what was asked for", |[first, ..]| data_chunk(first, true, u64::MAX, &[0; 10])),
        ("outside of what was asked for", |[_, _, write]| data_chunk(write, true, 0, &[0; 10])),
        ("outside of what was asked for", |[first, ..]| offset_hole_chunk(first, true, 1000, 101).to_vec()),
        ("more data than was asked for", |[first, ..]| data_chunk(first, false, 1000, &[0; 60]).repeat(2)),
        ("without all of its data", |[first, ..]| data_chunk(first, true, 1000, &[0; 99])),
        ("without all of its data", |[first, ..]| none_chunk(first).to_vec()),
        ("a simple reply after chunks", |[first, ..]| {
            [data_chunk(first, false, 1000, &[0; 60]), simple_reply(first, Ok(())).to_vec()].concat()
        }),
        ("a text longer than its chunk", |[first, ..]| {
            let mut bytes = error_chunk(first, true, Errno::InputOutput);
            bytes[25] = 1;
            bytes.to_vec()
        }),
        ("error number 0", |[first, ..]| {
            let mut bytes = error_chunk(first, true, Errno::InputOutput);
            bytes[23] = 0;
            bytes.to_vec()
        }),
        ("a reply begins with 0x68656c6c", |_| b"hello, world, who are you".to_vec()),
    ];
    for (expected, lie) in lies {
        let mut replies = Replies::new(3);
        let bytes = lie(three_under_way(&mut replies));
        let mut buffers = vec![vec![0; 100]; 3];
        let error = digest(&mut replies, &bytes, 7, &mut buffers).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}, expected {expected}");
    }
}

#[test]
fn an_error_with_an_offset_fails_the_read_and_its_data_may_be_short() {
    let mut replies = Replies::new(3);
    let [first, ..] = three_under_way(&mut replies);
    let bytes =
        [data_chunk(first, false, 1000, &[1; 50]), error_offset_chunk(first, true, Errno::InputOutput, 1050).to_vec()];
    let completions = digest(&mut replies, &bytes.concat(), 1, &mut [vec![0; 100]]).unwrap();
    assert_eq!(completions, [Completed { tag: 0, result: Err(Errno::InputOutput) }]);
    assert_eq!(replies.begin(0, Command::Read, 0, 1).map(|cookie| cookie != first), Some(true), "a new generation");
    assert_eq!(replies.begin(0, Command::Read, 0, 1), None, "under way");
    assert_eq!(replies.begin(3, Command::Read, 0, 1), None, "too large");
}

/// Conducts the server's half of a handshake over a stream.
fn shake_hands(stream: &mut UnixStream, exports: &[plimsoll_protocols::nbd::ExportInfo]) -> Negotiated {
    stream.write_all(&Handshake::greeting()).unwrap();
    let (mut handshake, mut output, mut buffer) = (Handshake::new(), Vec::new(), vec![]);
    loop {
        let step = handshake.advance(&mut &buffer[..], exports, &mut output);
        stream.write_all(&output).unwrap();
        output.clear();
        match step {
            HandshakeStep::NeedsBytes(missing) => {
                buffer.resize(missing, 0);
                stream.read_exact(&mut buffer).unwrap();
            }
            HandshakeStep::Negotiated(negotiated) => return *negotiated,
            HandshakeStep::Ended(ended) => panic!("{ended}"),
        }
    }
}

/// A client and a server with memory at the two ends of a socket pair; the server ends when the client does.
fn connected(size_bytes: usize, options: &ClientOptions) -> (Client, JoinHandle<()>) {
    let (near, mut far) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let (export, memory) = memory_export("memory", size_bytes);
        let negotiated = shake_hands(&mut far, &[export]);
        serve_memory(far.into(), &negotiated, &memory).unwrap();
    });
    (Client::over(near.into(), options).unwrap(), server)
}

#[test]
fn every_command_goes_there_and_back_with_and_without_structured_replies() {
    for structured_replies in [false, true] {
        let (mut client, server) =
            connected(1 << 20, &ClientOptions { structured_replies, ..ClientOptions::default() });
        assert_eq!((client.export().name.as_str(), client.export().size_bytes), ("memory", 1 << 20));
        let pattern: Vec<u8> = (0..10_001).map(|index| (index % 251) as u8).collect();
        client.write(777, &pattern, false).unwrap();
        client.write(777, &pattern[..1], true).unwrap();
        client.flush().unwrap();
        let mut read = vec![9; 10_003];
        client.read(776, &mut read).unwrap();
        assert_eq!(read, [&[0], &pattern[..], &[0]].concat());
        client.write_zeroes(778, 9_999, CommandFlags::NO_HOLE).unwrap();
        client.trim(0, 100).unwrap();
        client.read(776, &mut read).unwrap();
        assert!(read[2..10_001].iter().all(|byte| *byte == 0) && read[10_001] == pattern[10_000]);
        let beyond = client.write(1 << 20, &[1], false).unwrap_err();
        assert!(matches!(beyond, ClientError::Answered(Errno::NoSpace)), "{beyond}");
        let beyond = client.read((1 << 20) - 1, &mut [0; 2]).unwrap_err();
        assert!(matches!(beyond, ClientError::Answered(Errno::InvalidArgument)), "{beyond}");
        client.flush().unwrap();
        client.disconnect().unwrap();
        server.join().unwrap();
    }
}

/// Red if what was submitted is not sent first, and if the end of the time counts as an answer.
#[test]
fn a_client_can_wait_for_an_answer_or_for_the_end_of_a_time() {
    let (mut client, server) = connected(1 << 20, &ClientOptions::default());
    assert!(!client.wait(Span::from_millis(1)).unwrap(), "nothing is under way");
    client.submit(0, Command::Read, CommandFlags::NONE, 0, 512).unwrap();
    assert!(client.wait(Span::from_secs(60)).unwrap());
    assert_eq!(client.receive(|_, _, _| {}).unwrap(), Completed { tag: 0, result: Ok(()) });
    client.disconnect().unwrap();
    server.join().unwrap();
}

/// A server that takes nothing more until its reply was received. Red if a client that waits sends first and receives
/// then.
#[test]
fn a_client_with_more_to_send_than_the_server_takes_receives_meanwhile() {
    const DEPTH: u32 = 256;
    const BYTES: usize = 64 * 1024;
    let (near, mut far) = UnixStream::pair().unwrap();
    let (is_received, received) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        shake_hands(&mut far, &[memory_export("memory", BYTES).0]);
        let mut request = [0; REQUEST_BYTES + BYTES];
        far.read_exact(&mut request).unwrap();
        let cookie = u64::from_be_bytes(request[8..16].try_into().unwrap());
        far.write_all(&simple_reply(cookie, Ok(()))).unwrap();
        received.recv().unwrap();
    });
    let options = ClientOptions { depth_max: DEPTH, structured_replies: false, ..ClientOptions::default() };
    let mut client = Client::over(near.into(), &options).unwrap();
    for tag in 0..DEPTH {
        client.submit_write(tag, CommandFlags::NONE, 0, &[7; BYTES]).unwrap();
    }
    assert!(client.wait(Span::from_secs(60)).unwrap());
    assert_eq!(client.receive(|_, _, _| {}).unwrap(), Completed { tag: 0, result: Ok(()) });
    is_received.send(()).unwrap();
    server.join().unwrap();
}

#[test]
fn a_deep_queue_of_large_requests_does_not_block_against_a_server_that_waits_for_its_replies() {
    const DEPTH: u32 = 64;
    const BYTES: u32 = 128 * 1024;
    let options = ClientOptions { depth_max: DEPTH, ..ClientOptions::default() };
    let (mut client, server) = connected((DEPTH * BYTES) as usize, &options);
    for tag in 0..DEPTH {
        let offset = u64::from(tag / 2 * BYTES);
        match tag % 2 {
            0 => client.submit_write(tag, CommandFlags::NONE, offset, &[tag as u8; BYTES as usize]).unwrap(),
            _ => client.submit(tag, Command::Read, CommandFlags::NONE, offset, BYTES).unwrap(),
        }
    }
    let busy = client.flush().unwrap_err();
    assert!(matches!(busy, ClientError::Busy { under_way: DEPTH }), "{busy}");
    let bad = client.submit(DEPTH, Command::Flush, CommandFlags::NONE, 0, 0).unwrap_err();
    assert!(matches!(bad, ClientError::BadTag { tag: DEPTH, .. }), "{bad}");
    let mut received_bytes = 0;
    for _ in 0..DEPTH {
        let completed = client
            .receive(|tag, _, bytes| {
                assert!(tag % 2 == 1 && bytes.iter().all(|byte| u32::from(*byte) == tag - 1));
                received_bytes += bytes.len();
            })
            .unwrap();
        assert_eq!(completed.result, Ok(()));
    }
    assert_eq!(received_bytes, (DEPTH / 2 * BYTES) as usize);
    let nothing = client.receive(|_, _, _| {}).unwrap_err();
    assert!(matches!(nothing, ClientError::NothingUnderWay), "{nothing}");
    client.disconnect().unwrap();
    server.join().unwrap();
}

#[test]
fn a_refusal_a_hang_up_and_silence_are_errors() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        far.write_all(&Handshake::greeting()).unwrap();
        let mut handshake = Handshake::new();
        let (mut output, mut byte) = (Vec::new(), [0; 1]);
        while far.read(&mut byte).unwrap() > 0 {
            handshake.advance(&mut &byte[..], &[], &mut output);
            far.write_all(&output).unwrap();
            output.clear();
        }
    });
    let error = Client::over(near.into(), &ClientOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the server refused option 7 (UnknownExport)");
    server.join().unwrap();

    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    let error = Client::over(near.into(), &ClientOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "receiving: the server closed the connection");

    let (near, _silent) = UnixStream::pair().unwrap();
    let options = ClientOptions { timeout: Span::from_millis(20), ..ClientOptions::default() };
    let error = Client::over(near.into(), &options).unwrap_err();
    assert_eq!(error.to_string(), "receiving: timed out");
}
