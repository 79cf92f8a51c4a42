//! iSCSI over a Unix socket, as a proxy on the same machine forwards it.

mod programs;

use plimsoll_engine::EngineConfig;
use plimsoll_serve::connection::Address;
use plimsoll_testkit::iscsi::initiator::Initiator;
use plimsoll_testkit::iscsi::{Portal, target_name};
use plimsoll_testkit::{memory, profile};
use programs::{is_installed, run};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use tempfile::TempDir;

const VOLUME_BYTES: u64 = 16 << 20;

/// READ(10) and WRITE(10) of `blocks` at `lba`.
fn transfer(code: u8, lba: u8, blocks: u8) -> [u8; 10] {
    [code, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

/// A portal with the targets `a` and `b` at a Unix socket in `directory`.
fn portal(directory: &TempDir) -> Portal {
    let address = Address::Unix(directory.path().join("iscsi.sock"));
    let volumes = [memory("a", VOLUME_BYTES, 0), memory("b", VOLUME_BYTES, VOLUME_BYTES)];
    Portal::at(&address, EngineConfig::new(profile(), "noop"), volumes.map(|volume| (volume, None)).into())
}

/// Outcome: sessions over a Unix socket write, read and reserve as those over TCP do; the socket's file goes with the
/// portal.
///
/// Planted break, seen red: a connection must have an internet address, as it was.
#[test]
fn sessions_over_a_unix_socket_are_sessions() {
    let directory = TempDir::new().unwrap();
    let portal = portal(&directory);
    let address = portal.address();
    assert!(address.starts_with("unix:/"), "{address}");
    let data: Vec<u8> = (0..20 * 512u32).map(|at| (at / 3) as u8).collect();
    for (volume, digest) in [("a", "None"), ("b", "CRC32C")] {
        let log_in =
            |isid| Initiator::log_in(&portal, volume, isid, &[("HeaderDigest", digest), ("DataDigest", digest)]);
        let (mut first, mut second) = (log_in(1), log_in(2));
        assert_eq!(first.command(&transfer(0x2a, 8, 20), 0, &data).0, 0);
        assert_eq!(second.command(&transfer(0x28, 8, 20), data.len() as u32, &[]), (0, data.clone()));
        const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
        const CONFLICT: u8 = 0x18;
        assert_eq!((first.command(&RESERVE, 0, &[]).0, second.command(&RESERVE, 0, &[]).0), (0, CONFLICT));
        // A session ends with its connection, and its reservation with it; a new one has to wait for neither.
        drop(first);
        let _first = log_in(1);
        assert_eq!(second.command(&RESERVE, 0, &[]).0, 0);
    }
    drop(portal);
    assert!(!directory.path().join("iscsi.sock").exists());
}

/// Outcome: SendTargets names the targets and no address: each is where the initiator has asked, at its proxy.
///
/// Planted break, seen red: the path of the socket is an address.
#[test]
fn discovery_over_a_unix_socket_names_targets_and_no_address() {
    let directory = TempDir::new().unwrap();
    let portal = portal(&directory);
    let told = Initiator::discover(&portal.address());
    let expected = ["a", "b"].map(|volume| format!("TargetName={}\0", target_name(volume)));
    assert_eq!(String::from_utf8(told).unwrap(), expected.concat());
}

/// Forwards what comes to `from` to the socket at `to`, and back, until the process ends.
fn forward(from: TcpListener, to: &Path) {
    let to = Address::Unix(to.to_owned());
    std::thread::spawn(move || {
        for client in from.incoming().map_while(Result::ok) {
            let server = TcpStream::from(to.connect().unwrap());
            for (mut source, mut sink) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                std::thread::spawn(move || {
                    // One end closes before the other.
                    let _ = io::copy(&mut source, &mut sink);
                    let _ = sink.shutdown(Shutdown::Write);
                });
            }
        }
    });
}

/// Outcome: an initiator of others reaches a target through a proxy in front of the socket.
#[test]
fn a_proxy_in_front_of_a_unix_socket_leads_to_the_targets() {
    let directory = TempDir::new().unwrap();
    let portal = portal(&directory);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    forward(listener, &directory.path().join("iscsi.sock"));
    let mut own = Initiator::log_in_at(&at.to_string(), &target_name("a"), 1, &[]);
    assert_eq!(own.command(&transfer(0x2a, 8, 1), 0, &[7; 512]).0, 0);
    let mut direct = Initiator::log_in(&portal, "a", 2, &[]);
    assert_eq!(direct.command(&transfer(0x28, 8, 1), 512, &[]), (0, vec![7; 512]));
    if is_installed("iscsi-inq") {
        let inquiry = run("iscsi-inq", &[&format!("iscsi://{at}/{}/0", target_name("b"))]);
        assert!(inquiry.status.success(), "{inquiry:?}");
    }
    if is_installed("iscsi-ls") {
        // It prints addresses, of which there are none; what it is told is no error to it.
        let listed = run("iscsi-ls", &[&format!("iscsi://{at}")]);
        assert!(listed.status.success() && listed.stderr.is_empty(), "{listed:?}");
    }
}
