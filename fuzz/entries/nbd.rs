//! What the NBD fuzz targets do with their bytes, and what must hold for any bytes.
//!
//! The fuzz targets call these functions, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/protocols/tests/corpus.rs`). Each says whether the bytes kept to the protocol to their end.

use plimsoll_protocols::nbd::handshake::{Ended, HandshakeStep, OPTIONS_MAX};
use plimsoll_protocols::nbd::limits::PAYLOAD_BYTES_MAX;
use plimsoll_protocols::nbd::replies::{Progress, Replies};
use plimsoll_protocols::nbd::wire::REQUEST_BYTES;
use plimsoll_protocols::nbd::{Command, ExportInfo, Handshake, Request};

/// Output of one option at the most, bytes: the two exports here need far less.
const OUTPUT_BYTES_MAX: usize = 1024;
/// Reads under way in `replies`, and how long they are.
const READS: u32 = 3;
const READ_BYTES: u32 = 64;

fn exports() -> [ExportInfo; 2] {
    let mut disk = ExportInfo::new("disk", 1 << 20);
    disk.description = "a disk".into();
    disk.set_transmission_flags(0xffff);
    (disk.is_read_only, disk.minimum_block_bytes) = (false, 512);
    [disk, ExportInfo::new("scratch", 4096)]
}

/// The first byte says in pieces of how many bytes a client's bytes arrive; the rest are those bytes.
fn pieces(bytes: &[u8]) -> (usize, &[u8]) {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    (if *first == 0 { rest.len().max(1) } else { usize::from(*first) }, rest)
}

/// A client's handshake: bounded, and the same in pieces as at once.
pub fn handshake(bytes: &[u8]) -> bool {
    let (piece_bytes, bytes) = pieces(bytes);
    let in_pieces = conduct(bytes, piece_bytes);
    let at_once = conduct(bytes, bytes.len().max(1));
    assert_eq!(in_pieces, at_once);
    !matches!(at_once.1, HandshakeStep::Ended(ended) if ended != Ended::Aborted)
}

/// Output, last step, and how many bytes were taken.
fn conduct(bytes: &[u8], piece_bytes: usize) -> (Vec<u8>, HandshakeStep, usize) {
    let (exports, mut handshake, mut output) = (exports(), Handshake::new(), Vec::new());
    let (mut taken_bytes, mut last, mut output_count) = (0, HandshakeStep::NeedsBytes(4), 0);
    for mut piece in bytes.chunks(piece_bytes) {
        while !piece.is_empty() {
            let (output_bytes, given_bytes) = (output.len(), piece.len());
            last = handshake.advance(&mut piece, &exports, &mut output);
            taken_bytes += given_bytes - piece.len();
            assert!(output.len() - output_bytes <= OUTPUT_BYTES_MAX);
            output_count += u32::from(output.len() > output_bytes);
            match last {
                HandshakeStep::NeedsBytes(missing) => assert!(missing > 0 && given_bytes > piece.len()),
                _ => return (output, last, taken_bytes),
            }
        }
    }
    assert!(output_count <= OPTIONS_MAX);
    (output, last, taken_bytes)
}

/// A stream of requests, as a connection takes it apart: what is accepted lies within the export.
pub fn requests(bytes: &[u8]) -> bool {
    let [export, _] = exports();
    let mut rest = bytes;
    while let Some((header, behind)) = rest.split_first_chunk::<REQUEST_BYTES>() {
        let Ok(request) = Request::decode(header) else { return false };
        assert_eq!(request.encode(), *header);
        assert!(request.payload_bytes() <= PAYLOAD_BYTES_MAX);
        let end = u128::from(request.offset) + u128::from(request.length);
        match request.command {
            Command::Disconnect => return true,
            Command::Flush | Command::Unknown(_) => {}
            _ if request.check(&export).is_ok() => {
                assert!(request.length > 0 && end <= export.size_bytes.into());
                assert!(request.offset.is_multiple_of(512) && request.length.is_multiple_of(512));
            }
            _ => {}
        }
        rest = behind.get(request.payload_bytes() as usize..).unwrap_or_default();
    }
    true
}

/// A server's replies to reads of 64 bytes with tags 0 to 2 at offsets 0, 64 and 128: data stays within its request,
/// and a read that succeeds has all of it.
pub fn replies(bytes: &[u8]) -> bool {
    let (piece_bytes, bytes) = pieces(bytes);
    let begin = |replies: &mut Replies, tag: u32| {
        assert!(replies.begin(tag, Command::Read, u64::from(tag * READ_BYTES), READ_BYTES).is_some());
    };
    let (mut replies, mut received_bytes) = (Replies::new(READS), [0; READS as usize]);
    (0..READS).for_each(|tag| begin(&mut replies, tag));
    for mut piece in bytes.chunks(piece_bytes) {
        loop {
            let progress = replies.advance(&mut piece, &mut |tag, at, bytes| {
                assert!(!bytes.is_empty() && at as usize + bytes.len() <= READ_BYTES as usize);
                received_bytes[tag as usize] += bytes.len();
            });
            match progress {
                Err(_) => return false,
                Ok(Progress::NeedsBytes(missing)) => {
                    assert!(missing > 0 && piece.is_empty());
                    break;
                }
                Ok(Progress::Completed(completed)) => {
                    let received_bytes = std::mem::take(&mut received_bytes[completed.tag as usize]);
                    assert!(received_bytes <= READ_BYTES as usize);
                    assert!(completed.result.is_err() || received_bytes == READ_BYTES as usize);
                    begin(&mut replies, completed.tag);
                }
            }
        }
    }
    true
}
