//! What the fuzz target of the gates does with its bytes, and what must hold for any bytes.
//!
//! The fuzz target calls this function, and so does an ordinary test that replays the corpus and mutations of it
//! (`crates/gates/tests/corpus.rs`).

use plimsoll_core::{Span, Time};
use plimsoll_gates::{OciSocket, SeccompState};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Descriptors that are sent at most: more than are allowed.
const DESCRIPTORS_MAX: usize = 16;
/// What the kernel takes into a socket before it is read, and then some.
const PIECE_BYTES: usize = 1500;

/// The first byte says how many descriptors are sent, the second after how many bytes the text is cut; the rest is the
/// text. Whether it was a state.
///
/// The same text is a state, or none, however it is cut; what is sent leaves nothing behind; and after five seconds it
/// is over.
pub fn seccomp_state(bytes: &[u8]) -> bool {
    let [descriptors, cut, text @ ..] = bytes else { return false };
    let descriptors = usize::from(*descriptors) % (DESCRIPTORS_MAX + 1);
    let text = &text[..text.len().min(PIECE_BYTES)];
    let whole = SeccompState::parse(text, descriptors);
    let folder = tempfile::tempdir().expect("a folder");
    let mut socket = OciSocket::listen(&folder.path().join("s"), 0o600).expect("a socket");
    let mut peer = UnixStream::connect(folder.path().join("s")).expect("a connection");
    let (first, rest) = text.split_at(usize::from(*cut).min(text.len()));
    let mut outcomes = Vec::new();
    if !first.is_empty() {
        send(&peer, first, descriptors);
        outcomes.extend(socket.accept(Time::ZERO).expect("a socket"));
        // A peer that was refused, or was complete, hears no more.
        let _ = peer.write_all(rest);
    } else if !rest.is_empty() {
        send(&peer, rest, descriptors);
    }
    drop(peer);
    outcomes.extend(socket.accept(Time::ZERO).expect("a socket"));
    outcomes.extend(socket.accept(Time::ZERO + Span::from_secs(5)).expect("a socket"));
    assert_eq!(outcomes.len(), 1, "one connection, one outcome");
    let arrived = outcomes.pop().expect("one").ok().map(|arrival| arrival.state);
    match (whole, arrived) {
        (Ok((whole, place)), Some(arrived)) => {
            assert_eq!(whole, arrived);
            assert!(place < descriptors);
            let again = serde_json::to_vec(&whole).expect("texts and numbers");
            assert_eq!(SeccompState::parse(&again, descriptors).expect("our own").0, whole);
            true
        }
        // The text went on after its end, which arrived apart; or more descriptors than a message may have.
        (Err(_), Some(_)) => false,
        (Ok(_), None) => {
            assert!(descriptors > 8, "a state that was lost");
            false
        }
        (Err(_), None) => false,
    }
}

fn send(peer: &UnixStream, text: &[u8], descriptors: usize) {
    let file = File::open("/dev/null").expect("/dev/null");
    let files = vec![file.as_fd(); descriptors];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors > 0 {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    }
    sendmsg(peer, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL).expect("a message");
}
