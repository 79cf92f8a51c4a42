//! The listener: where it may listen, what it removes and what not, and that slow or silent clients harm no other
//! client.

mod nbd_support;

use nbd_support::{Memory, memory_export, serve_memory};
use plimsoll_core::Span;
use plimsoll_protocols::nbd::option::{GREETING_BYTES, number, option, push_info_request};
use plimsoll_protocols::nbd::wire::{OFFSET_DATA_BYTES, REQUEST_BYTES, ReplyHeader, SIMPLE_REPLY_BYTES};
use plimsoll_protocols::nbd::{Command, CommandFlags, Request, SharedExports};
use plimsoll_serve::connection::{ListenError, ListenerOptions, Serving};
use plimsoll_serve::nbd::client::ClientOptions;
use plimsoll_serve::nbd::{Address, Client, Listener, Peer};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use tempfile::TempDir;

/// How long a test waits before it fails.
const PATIENCE: Span = Span::from_secs(20);

fn unix(directory: &TempDir) -> Address {
    Address::Unix(directory.path().join("nbd.sock"))
}

fn path_of(address: &Address) -> &Path {
    match address {
        Address::Unix(path) => path,
        Address::Tcp(_) => panic!("{address}"),
    }
}

/// Serves a volume of 64 KiB named `memory` and reports each peer that was handed over.
fn serve(address: &Address, options: ListenerOptions) -> (Serving, SharedExports, Memory, Receiver<Peer>) {
    let (export, memory) = memory_export("memory", 64 * 1024);
    let exports = SharedExports::new();
    exports.add(export).unwrap();
    let (peers, peers_seen) = channel();
    let content = memory.clone();
    let listener = Listener::bind(address, options).unwrap();
    let serving = plimsoll_serve::nbd::serve(listener, exports.clone(), move |socket, negotiated, peer| {
        let _ = peers.send(peer);
        let content = content.clone();
        std::thread::spawn(move || serve_memory(socket, &negotiated, &content));
    });
    (serving.unwrap(), exports, memory, peers_seen)
}

fn named(name: &str) -> ClientOptions {
    ClientOptions { export_name: name.into(), ..ClientOptions::default() }
}

#[test]
fn unix_and_tcp_clients_are_served_and_known() {
    let directory = TempDir::new().unwrap();
    for address in [unix(&directory), "tcp:127.0.0.1:0".parse().unwrap(), "tcp:[::1]:0".parse().unwrap()] {
        if address.to_string().contains("::1")
            && TcpStream::connect("[::1]:1").is_err_and(|e| e.raw_os_error() == Some(libc::EADDRNOTAVAIL))
        {
            println!("not run: {address}: this machine has no IPv6 loopback");
            continue;
        }
        let (serving, _, _, peers) = serve(&address, ListenerOptions::default());
        let mut client = Client::connect(serving.address(), &named("memory")).unwrap();
        client.write(5, b"hello", true).unwrap();
        let mut read = [0; 5];
        client.read(5, &mut read).unwrap();
        assert_eq!(&read, b"hello");
        client.disconnect().unwrap();
        match peers.recv().unwrap() {
            Peer::Process { pid, uid } => {
                assert_eq!(address, unix(&directory));
                assert_eq!((pid as u32, uid), (std::process::id(), rustix::process::getuid().as_raw()));
            }
            Peer::Socket(from) => assert!(from.ip().is_loopback()),
            Peer::Unknown => panic!("{address}"),
        }
    }
}

#[test]
fn exports_come_and_go_while_it_listens() {
    let directory = TempDir::new().unwrap();
    let (serving, exports, _, _peers) = serve(&unix(&directory), ListenerOptions::default());
    let connect = |name| Client::connect(serving.address(), &named(name)).map(|client| client.export().name.clone());
    assert_eq!(connect("").unwrap(), "memory");
    assert!(connect("later").is_err());
    exports.add(memory_export("later", 4096).0).unwrap();
    assert_eq!(connect("later").unwrap(), "later");
    assert!(connect("").is_err(), "there is no default among two");
    assert!(exports.remove("memory"));
    assert!(connect("memory").is_err());
}

#[test]
fn what_a_client_sent_ahead_reaches_the_transmission_phase() {
    let directory = TempDir::new().unwrap();
    let (serving, ..) = serve(&unix(&directory), ListenerOptions::default());
    let mut stream = UnixStream::connect(path_of(serving.address())).unwrap();
    stream.set_read_timeout(Some(PATIENCE.into())).unwrap();
    let mut go = Vec::new();
    push_info_request(&mut go, "memory", &[]);
    let request =
        |command, cookie| Request { flags: CommandFlags::NONE, command, cookie, offset: 512, length: 4 }.encode();
    let everything = [
        &[0, 0, 0, 3][..],
        &option(number::GO, go.len() as u32),
        &go,
        &request(Command::Write, 7),
        b"data",
        &request(Command::Read, 8),
        &Request { length: 0, offset: 0, ..Request::decode(&request(Command::Disconnect, 9)).unwrap() }.encode(),
    ];
    stream.write_all(&everything.concat()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    // Greeting, size and flags, acknowledgement; a reply to the write; a reply to the read and its data.
    let transmission = &answer[GREETING_BYTES + 20 + 12 + 20..];
    assert_eq!(transmission.len(), 2 * SIMPLE_REPLY_BYTES + 4);
    let replies = [&transmission[..SIMPLE_REPLY_BYTES], &transmission[SIMPLE_REPLY_BYTES..]];
    for (reply, cookie) in replies.into_iter().zip([7, 8]) {
        let header = ReplyHeader::decode(reply).unwrap().unwrap().0;
        assert_eq!(header, ReplyHeader::Simple { cookie, result: Ok(()) });
    }
    assert_eq!(&transmission[2 * SIMPLE_REPLY_BYTES..], b"data");
    const { assert!(REQUEST_BYTES == OFFSET_DATA_BYTES, "both happen to be 28") };
}

#[test]
fn addresses_that_others_could_reach_are_refused() {
    let open: Address = "tcp:0.0.0.0:0".parse().unwrap();
    let error = Listener::bind(&open, ListenerOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tcp:0.0.0.0:0 can be reached from other machines, and NBD here has neither TLS nor a login: use 127.0.0.1, \
         [::1] or a Unix socket, or allow it explicitly"
    );
    let allowed = ListenerOptions { allow_remote: true, ..ListenerOptions::default() };
    assert!(Listener::bind(&open, allowed).is_ok());
}

#[test]
fn a_dead_servers_socket_is_replaced_and_nothing_else() {
    let directory = TempDir::new().unwrap();
    let address = unix(&directory);
    let bind = || Listener::bind(&address, ListenerOptions::default());
    drop(UnixListener::bind(path_of(&address)).unwrap());
    assert!(path_of(&address).exists(), "std leaves the file, as a killed server does");
    let listener = bind().unwrap();
    let error = bind().unwrap_err();
    assert_eq!(error.to_string(), format!("{address} is in use: a server answers there"));
    drop(listener);
    assert!(!path_of(&address).exists(), "removed when it ends");

    std::fs::write(path_of(&address), "precious").unwrap();
    assert!(matches!(bind().unwrap_err(), ListenError::NotASocket { .. }));
    assert_eq!(std::fs::read(path_of(&address)).unwrap(), b"precious");
    std::fs::remove_file(path_of(&address)).unwrap();

    let listener = bind().unwrap();
    std::fs::remove_file(path_of(&address)).unwrap();
    let _successor = UnixListener::bind(path_of(&address)).unwrap();
    drop(listener);
    assert!(path_of(&address).exists(), "the file is a successor's");

    let nowhere = Address::Unix(directory.path().join("no/such/directory.sock"));
    let error = Listener::bind(&nowhere, ListenerOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {nowhere}: No such file or directory")), "{error}");
    let taken = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap(), ListenerOptions::default()).unwrap();
    let error = Listener::bind(taken.address(), ListenerOptions::default()).unwrap_err();
    assert!(matches!(error, ListenError::InUse { .. }), "{error}");
}

/// Connects and waits for the greeting, so that the handshake is known to have begun.
fn greeted(address: &Address) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path_of(address))?;
    stream.set_read_timeout(Some(PATIENCE.into()))?;
    stream.read_exact(&mut [0; GREETING_BYTES])?;
    Ok(stream)
}

/// Bytes up to the end of the stream. A server that closes with our bytes unread resets it; that is an end as well.
fn bytes_to_the_end(mut stream: UnixStream) -> usize {
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset), "never closed");
    bytes.len()
}

#[test]
fn silent_clients_are_cut_off_at_the_deadline() {
    let directory = TempDir::new().unwrap();
    let options = ListenerOptions { handshake_time_max: Span::from_millis(500), ..ListenerOptions::default() };
    let (serving, ..) = serve(&unix(&directory), options);
    for sent in [&b""[..], &[0], &[0, 0, 0, 3, b'I']] {
        let mut stream = greeted(serving.address()).unwrap();
        let _ = stream.write_all(sent);
        assert_eq!(bytes_to_the_end(stream), 0, "closed by the server");
    }
}

#[test]
fn silent_clients_keep_no_other_out() {
    let directory = TempDir::new().unwrap();
    let options =
        ListenerOptions { handshakes_max: 2, handshake_time_max: Span::from_secs(3600), ..ListenerOptions::default() };
    let (serving, ..) = serve(&unix(&directory), options);
    let silent: Vec<_> = (0..5).map(|_| greeted(serving.address()).unwrap()).collect();
    for _ in 0..20 {
        Client::connect(serving.address(), &named("memory")).unwrap().disconnect().unwrap();
    }
    for stream in silent.into_iter().take(3) {
        assert_eq!(bytes_to_the_end(stream), 0, "it makes way");
    }
}

#[test]
fn stopping_does_not_wait_for_a_silent_client_and_leaves_connections_alone() {
    let directory = TempDir::new().unwrap();
    let options = ListenerOptions { handshake_time_max: Span::from_secs(3600), ..ListenerOptions::default() };
    let (serving, ..) = serve(&unix(&directory), options);
    let address = serving.address().clone();
    let mut client = Client::connect(&address, &named("memory")).unwrap();
    let silent = greeted(&address).unwrap();
    drop(serving);
    assert_eq!(bytes_to_the_end(silent), 0);
    assert!(UnixStream::connect(path_of(&address)).is_err());
    client.write(0, b"still here", false).unwrap();
    client.disconnect().unwrap();
}

#[test]
fn hostile_clients_do_not_disturb_others() {
    let directory = TempDir::new().unwrap();
    let (serving, ..) = serve(&unix(&directory), ListenerOptions::default());
    let mut client = Client::connect(serving.address(), &named("memory")).unwrap();
    for hostile in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0, 0, 0, 3, 0, 0, 0, 0], &[0xff; 4096], b""] {
        let mut stream = UnixStream::connect(path_of(serving.address())).unwrap();
        let _ = stream.write_all(hostile);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(bytes_to_the_end(stream) <= GREETING_BYTES, "{hostile:?} was answered");
        client.write(0, b"unharmed", false).unwrap();
    }
    client.disconnect().unwrap();
}
