//! Sockets, threads and deadlines around a handshake: the control plane of front ends over sockets.
//!
//! One thread accepts. Each connection gets a short-lived thread that conducts the handshake and then hands the socket
//! over. The data path never waits for a client that is slow to introduce itself. A handshake has a deadline, and there
//! are at most so many at once. So clients that connect and say nothing can neither hold memory nor keep others out.
//! When there are too many, the peer that began most of them loses the oldest.

use super::address::Address;
use super::handshakes::{Handshakes, Held};
use super::peer::Peer;
use super::socket::{Patience, now};
use plimsoll_core::{Span, Time};
use plimsoll_linux::descriptors::refuse_descriptors;
use plimsoll_linux::{PeerLog, WakeEvent};
use rustix::event::PollFlags;
use rustix::net::SocketFlags;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use thiserror::Error;
use tracing::{debug, info, warn};

/// Default bound on concurrent handshakes: more clients rarely arrive within the time of one.
pub const HANDSHAKES_MAX_DEFAULT: u32 = 32;
/// How long a handshake may take by default. libnbd and QEMU need a millisecond.
pub const HANDSHAKE_TIME_MAX_DEFAULT: Span = Span::from_secs(10);
/// Pause of the accepting thread after the kernel had no descriptor or memory for a connection.
const ACCEPT_PAUSE: Span = Span::from_millis(100);
/// Stack of a handshake's thread, bytes; it uses a few KiB.
const HANDSHAKE_STACK_BYTES: usize = 256 * 1024;

/// How to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// Handshakes at once; one more ends the oldest of the peer that began most.
    pub handshakes_max: u32,
    /// How long one may take.
    pub handshake_time_max: Span,
    /// Whether TCP addresses other than loopback are accepted. There is no TLS and no login: a client that can connect
    /// can read and write.
    pub allow_remote: bool,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        ListenerOptions {
            handshakes_max: HANDSHAKES_MAX_DEFAULT,
            handshake_time_max: HANDSHAKE_TIME_MAX_DEFAULT,
            allow_remote: false,
        }
    }
}

/// Why listening is not possible.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Others than this machine could connect.
    #[error(
        "{address} can be reached from other machines, and NBD here has neither TLS nor a login: use 127.0.0.1, [::1] or a Unix socket, or allow it explicitly"
    )]
    NotLoopback {
        /// The address.
        address: Address,
    },
    /// Another server answers there.
    #[error("{address} is in use: a server answers there")]
    InUse {
        /// The address.
        address: Address,
    },
    /// There is something at the path that must not be removed.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot listen on {address}: {error}")]
    System {
        /// The address.
        address: Address,
        /// What it said.
        error: io::Error,
    },
}

/// A socket that listens.
#[derive(Debug)]
enum Socket {
    /// With the path and the file's device and inode, so that only this server's file is removed.
    Unix(UnixListener, PathBuf, (u64, u64)),
    Tcp(TcpListener),
}

impl Socket {
    fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        match self {
            Socket::Unix(listener, ..) => {
                let socket = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
                let peer = rustix::net::sockopt::socket_peercred(&socket).map_or(Peer::Unknown, |credentials| {
                    Peer::Process { pid: credentials.pid.as_raw_nonzero().get(), uid: credentials.uid.as_raw() }
                });
                Ok((socket, peer))
            }
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok((stream.into(), Peer::Socket(address)))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        match self {
            Socket::Unix(listener, ..) => listener.as_fd(),
            Socket::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Socket::Unix(_, path, identity) = self
            && file_identity(path).is_ok_and(|(found, _)| found == *identity)
            && let Err(error) = std::fs::remove_file(&path)
        {
            warn!("cannot remove {}: {error}", path.display());
        }
    }
}

/// A bound socket that answers no client yet: it can fail before anything is served.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Address,
    options: ListenerOptions,
}

impl Listener {
    /// Binds. A socket file that a predecessor left behind is removed if no process answers there. Port 0 picks a port.
    pub fn bind(address: &Address, options: ListenerOptions) -> Result<Listener, ListenError> {
        let system = |error| ListenError::System { address: address.clone(), error };
        let (socket, address) = match address {
            Address::Unix(path) => {
                let listener = bind_unix(path, address)?;
                let (identity, _) = file_identity(path).map_err(system)?;
                (Socket::Unix(listener, path.clone(), identity), address.clone())
            }
            Address::Tcp(wanted) => {
                if !wanted.ip().is_loopback() && !options.allow_remote {
                    return Err(ListenError::NotLoopback { address: address.clone() });
                }
                let listener = TcpListener::bind(wanted).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => ListenError::InUse { address: address.clone() },
                    _ => system(error),
                })?;
                let bound = listener.local_addr().map_err(system)?;
                (Socket::Tcp(listener), Address::Tcp(bound))
            }
        };
        // A client may go away between poll and accept; then accept must not wait for the next one.
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| system(error.into()))?;
        Ok(Listener { socket, address, options })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves from now on, on threads of its own, until the answer is dropped. `conduct` gets each connection on a
    /// thread of its own, and how long it may take. Threads are called after `protocol`.
    pub(crate) fn serve_with<F>(self, protocol: &'static str, conduct: F) -> io::Result<Serving>
    where
        F: Fn(OwnedFd, Peer, Patience<'_>) + Send + Sync + 'static,
    {
        let stop = Arc::new(WakeEvent::new()?);
        let stop_seen = stop.clone();
        let address = self.address.clone();
        let thread = thread::Builder::new().name(format!("{protocol}-accept")).spawn(move || {
            let handshakes = Handshakes::new(self.options.handshakes_max);
            Acceptor { listener: self, protocol, conduct, stop: stop_seen, handshakes, log: PeerLog::new() }.run()
        })?;
        debug!("{protocol} on {address}");
        Ok(Serving { address, stop, thread: Some(thread) })
    }
}

/// A listener at work. Dropping it closes the listening socket, removes its file, ends the handshakes that are not done
/// and waits for their threads. Connections that were handed over are not touched.
#[derive(Debug)]
pub struct Serving {
    address: Address,
    stop: Arc<WakeEvent>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.wake();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("a thread of the listener on {} panicked", self.address);
        }
    }
}

/// What the accepting thread and the handshakes share.
struct Acceptor<F> {
    listener: Listener,
    protocol: &'static str,
    conduct: F,
    stop: Arc<WakeEvent>,
    handshakes: Handshakes,
    log: PeerLog,
}

impl<F: Fn(OwnedFd, Peer, Patience<'_>) + Send + Sync> Acceptor<F> {
    fn run(&self) {
        thread::scope(|scope| {
            while self.wait(Time::MAX, PollFlags::IN) != Waited::Stopped {
                match self.listener.socket.accept() {
                    Ok((socket, peer)) => self.accepted(scope, socket, peer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => {
                        self.log.warn(format_args!("accept on {}: {error}", self.listener.address));
                        self.wait(now() + ACCEPT_PAUSE, PollFlags::empty());
                    }
                }
            }
            self.handshakes.end_all();
        });
    }

    fn wait(&self, deadline: Time, wanted: PollFlags) -> Waited {
        let patience = Patience { deadline, stop: Some(self.stop.as_fd()) };
        match patience.wait(self.listener.socket.as_fd(), wanted) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Waited::Stopped,
            _ => Waited::Other,
        }
    }

    /// Gives a connection a thread.
    fn accepted<'scope>(&'scope self, scope: &'scope thread::Scope<'scope, '_>, socket: OwnedFd, peer: Peer) {
        let held = match self.handshakes.begin(&peer) {
            Ok(Some(held)) => held,
            Ok(None) => {
                let why = "too many handshakes are under way";
                return self.log.warn(format_args!("{}: {peer} turned away, {why}", self.listener.address));
            }
            Err(error) => {
                return self.log.warn(format_args!("{}: {peer} turned away: {error}", self.listener.address));
            }
        };
        let spawned = thread::Builder::new()
            .name(format!("{}-handshake", self.protocol))
            .stack_size(HANDSHAKE_STACK_BYTES)
            .spawn_scoped(scope, move || self.conduct(socket, peer, &held));
        if let Err(error) = spawned {
            let why = format_args!("no thread for it: {error}");
            self.log.warn(format_args!("{}: {peer} turned away, {why}", self.listener.address));
        }
    }

    fn conduct(&self, socket: OwnedFd, peer: Peer, held: &Held<'_>) {
        let deadline = now() + self.listener.options.handshake_time_max;
        (self.conduct)(socket, peer, Patience { deadline, stop: Some(held.stop().as_fd()) });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Stopped,
    Other,
}

/// Device and inode of what is at `path`, and whether it is a socket.
fn file_identity(path: &Path) -> io::Result<((u64, u64), bool)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok(((metadata.dev(), metadata.ino()), metadata.file_type().is_socket()))
}

/// Binds a Unix socket. Removes a socket without a listening process, but never another kind of file.
fn bind_unix(path: &Path, address: &Address) -> Result<UnixListener, ListenError> {
    let system = |error| ListenError::System { address: address.clone(), error };
    // Before any client knows of it: it could only have connected and sent in this moment.
    let bind = || {
        UnixListener::bind(path).inspect(|listener| {
            refuse_descriptors(listener);
        })
    };
    match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound.map_err(system),
    }
    match file_identity(path) {
        Ok((_, false)) => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(system(error)),
        _ => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(ListenError::InUse { address: address.clone() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            info!("{address}: removing the socket of a server that is gone");
            std::fs::remove_file(path).map_err(system)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(system(error)),
    }
    bind().map_err(system)
}
