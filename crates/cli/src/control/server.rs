//! The daemon's end of the control socket: one accepting thread, and one for each client, few of them.
//!
//! Clients are the daemon's own user, since no other user may open the socket. Still no client may harm the daemon.
//! Lines and clients are bounded, and a silent client is disconnected. An invalid request gets an error and the end of
//! the connection.
//!
//! A session or process that an answer ties to a connection lives as long as the connection. The kernel closes the
//! connection of a process that ends, however it ends. So no request or count is needed to notice that. Such a client
//! may say nothing as long as it likes, and takes no place from clients that ask.

use super::conversation::{Conversation, PATIENCE, wait};
use super::protocol::{ErrorKind, Request, Response, parse_request};
use super::read_line;
use super::recording::RecordingAnswer;
use plimsoll_linux::{PeerLog, WakeEvent};
use rustix::event::PollFlags;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;
use tracing::warn;

/// Longest request. A change of everything about a pool takes less than a kilobyte. Bytes.
pub const REQUEST_BYTES_MAX: u64 = 16 * 1024;
/// Clients at once: a few people watching and a script.
pub const CLIENTS_MAX: usize = 16;
/// Clients at once that something is tied to: a thread and a descriptor each.
pub const HOLDERS_MAX: usize = 256;
/// Pause before the next attempt to end what is tied to a connection.
const ENDING_PAUSE: Duration = Duration::from_millis(10);
/// How long to wait after the system had no descriptor or memory for a client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// What clients make the log say.
static LOG: PeerLog = PeerLog::new();

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ControlError {
    /// Another daemon answers there.
    #[error("control socket {}: another daemon answers there", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// Something is there that must not be removed.
    #[error("control socket {}: there is something that is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("control socket {}: {source}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// Ends what is tied to a connection. Answers whether it has ended, and is called again until then.
pub type Ending = Box<dyn FnMut() -> bool + Send>;

/// What a handler answers.
pub enum Answer {
    /// One line.
    Line(Response),
    /// One line, and the action for the end of the connection, unless the server stops.
    Tied(Response, Ending),
    /// Lines until the client has enough.
    Recording(RecordingAnswer),
}

/// A bound socket that answers no client yet: it can fail before anything is served.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    /// [`PATIENCE`], but for tests.
    patience: Duration,
}

impl ControlSocket {
    /// Binds. A socket that a predecessor left behind is removed if no process answers there.
    ///
    /// # Errors
    /// A process answers there, something else is there, or the system refuses.
    pub fn bind(path: &Path) -> Result<ControlSocket, ControlError> {
        let system = |source| ControlError::System { path: path.to_owned(), source };
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_socket() => {
                return Err(ControlError::NotASocket { path: path.to_owned() });
            }
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(ControlError::InUse { path: path.to_owned() }),
            Ok(_) => std::fs::remove_file(path).map_err(system)?,
            Err(_) => {}
        }
        let listener = bind_for_owner(path).map_err(system)?;
        Ok(ControlSocket { listener, path: path.to_owned(), patience: PATIENCE })
    }

    /// Answers requests with `handler`, on threads of its own, until the returned value is dropped.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn serve(self, handler: impl Fn(Request) -> Answer + Send + Sync + 'static) -> io::Result<ControlServer> {
        let stop = Arc::new(WakeEvent::new()?);
        let stop_seen = stop.clone();
        let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
            let clients = Clients::default();
            std::thread::scope(|scope| {
                while let Ok(true) = wait(&self.listener, PollFlags::IN, &stop_seen, None) {
                    match self.listener.accept() {
                        Ok((stream, _)) => {
                            let patience = Some(self.patience);
                            admit(scope, Conversation { stream, stop: &stop_seen, patience }, &clients, &handler);
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => {
                            LOG.warn(format_args!("control socket {}: {error}", self.path.display()));
                            // Out of descriptors or memory: do not spin.
                            std::thread::park_timeout(ACCEPT_PAUSE);
                        }
                    }
                }
            });
        })?;
        Ok(ControlServer { stop, thread: Some(thread) })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            warn!("cannot remove control socket {}: {error}", self.path.display());
        }
    }
}

/// Binds a socket that only its owner can open: its mode is set before it has a name.
fn bind_for_owner(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// A control socket at work. Dropping it sends the clients away, waits for their threads and removes the socket.
#[derive(Debug)]
pub struct ControlServer {
    stop: Arc<WakeEvent>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives a client a thread, if there is one left for it.
fn admit<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    mut conversation: Conversation<'scope>,
    clients: &'scope Clients,
    handler: &'scope (impl Fn(Request) -> Answer + Sync),
) {
    let stop = conversation.stop;
    let Some(place) = ClientSlot::take(&clients.asking, CLIENTS_MAX) else {
        // The line fits the socket's buffer; a client that is gone need not hear it.
        let _ = conversation.send(&Response::error(ErrorKind::Busy, format!("{CLIENTS_MAX} clients are connected")));
        return;
    };
    let thread = std::thread::Builder::new().name("control-client".into());
    let spawned = thread.spawn_scoped(scope, move || {
        let mut tied = Tied { endings: Vec::new(), place, clients };
        if let Err(error) = converse(conversation, handler, &mut tied) {
            tracing::debug!("control client: {error}");
        }
        tied.end(stop);
    });
    if let Err(error) = spawned {
        LOG.warn(format_args!("no thread for a control client: {error}"));
    }
}

/// How many clients there are.
#[derive(Default)]
struct Clients {
    /// Nothing is tied to them.
    asking: AtomicUsize,
    /// Something is.
    holding: AtomicUsize,
}

/// A client's place among a bounded number, as long as this value lives, also through a panic.
struct ClientSlot<'counter>(&'counter AtomicUsize);

impl<'counter> ClientSlot<'counter> {
    fn take(taken: &'counter AtomicUsize, places: usize) -> Option<ClientSlot<'counter>> {
        let place = ClientSlot(taken);
        // Dropping it takes back what is too much.
        (taken.fetch_add(1, Ordering::Relaxed) < places).then_some(place)
    }
}

impl Drop for ClientSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is tied to a client's connection.
struct Tied<'counter> {
    endings: Vec<Ending>,
    place: ClientSlot<'counter>,
    clients: &'counter Clients,
}

impl Tied<'_> {
    /// Ties one thing more; false if too many clients hold something.
    fn tie(&mut self, ending: Ending) -> bool {
        let is_first = self.endings.is_empty();
        self.endings.push(ending);
        if is_first {
            let Some(place) = ClientSlot::take(&self.clients.holding, HOLDERS_MAX) else { return false };
            self.place = place;
        }
        true
    }

    /// Ends everything that is tied to the closed connection. When the server stops, its owner does so in its own
    /// order.
    fn end(mut self, stop: &WakeEvent) {
        let mut pause = Duration::ZERO;
        while !self.endings.is_empty() && wait(stop, PollFlags::IN, stop, Some(pause)).is_err() {
            self.endings.retain_mut(|end| !end());
            pause = ENDING_PAUSE;
        }
    }
}

fn converse(
    conversation: Conversation<'_>,
    handler: &impl Fn(Request) -> Answer,
    tied: &mut Tied<'_>,
) -> io::Result<()> {
    conversation.stream.set_nonblocking(true)?;
    let mut conversation = BufReader::new(conversation);
    loop {
        let request = match read_line(&mut conversation, REQUEST_BYTES_MAX) {
            Ok(None) => return Ok(()),
            Ok(Some(line)) => parse_request(&line).map_err(Response::Error),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Response::error(ErrorKind::BadRequest, error))
            }
            Err(error) => return Err(error),
        };
        match request {
            Ok(request) => match handler(request) {
                Answer::Line(response) => conversation.get_mut().send(&response)?,
                Answer::Tied(response, ending) => {
                    if !tied.tie(ending) {
                        let message = format!("{HOLDERS_MAX} clients hold sessions");
                        return conversation.get_mut().send(&Response::error(ErrorKind::Busy, message));
                    }
                    conversation.get_mut().patience = None;
                    conversation.get_mut().send(&response)?;
                }
                Answer::Recording(recording) => {
                    // Any byte that a client sends after such a request ends the recording.
                    let is_over = !conversation.buffer().is_empty();
                    return recording.send(conversation.get_mut(), is_over);
                }
            },
            Err(refusal) => return conversation.get_mut().send(&refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, Read, Write};
    use std::sync::Mutex;

    /// A server that ties something to each client that asks for a session, and how often each was asked to end. The
    /// first time it does not end.
    fn serve(folder: &Path, patience: Duration) -> (ControlServer, Arc<Mutex<Vec<u32>>>) {
        let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
        let seen = asked.clone();
        let handler = move |request| match request {
            Request::SessionOpen { .. } => {
                let number = seen.lock().unwrap().len();
                seen.lock().unwrap().push(0);
                let seen = seen.clone();
                let ending = move || {
                    seen.lock().unwrap()[number] += 1;
                    seen.lock().unwrap()[number] == 2
                };
                Answer::Tied(Response::Done("tied".into()), Box::new(ending))
            }
            _ => Answer::Line(Response::Done("answered".into())),
        };
        let mut socket = ControlSocket::bind(&folder.join("socket")).unwrap();
        socket.patience = patience;
        (socket.serve(handler).unwrap(), asked)
    }

    fn ask(stream: &UnixStream, request: &str) -> String {
        // The write fails where the server has closed already.
        let _ = (&*stream).write_all(format!("{request}\n").as_bytes());
        let mut answer = String::new();
        let _ = BufReader::new(stream).read_line(&mut answer);
        answer
    }

    const OPEN: &str = r#"{"command":"session_open","volume":"db","name":"a","tied":true}"#;
    const TIED: &str = "{\"done\":\"tied\"}\n";
    /// A minute at most.
    const LOOKS: u32 = 12_000;
    const PAUSE: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    const ANSWERED: &str = "{\"done\":\"answered\"}\n";

    /// Promise: accounts-tied-session.
    #[test]
    fn a_client_that_holds_a_session_may_be_silent_and_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, asked) = serve(folder.path(), Duration::from_millis(200));
        let connect = || UnixStream::connect(folder.path().join("socket")).unwrap();
        let holder = connect();
        assert_eq!(ask(&holder, OPEN), TIED);
        let mut silent = connect();
        assert_eq!(silent.read(&mut [0]).unwrap(), 0, "sent away");
        assert_eq!(
            (ask(&holder, r#"{"command":"status"}"#).as_str(), &asked.lock().unwrap()[..]),
            (ANSWERED, &[0][..])
        );
    }

    /// Promise: accounts-tied-session.
    #[test]
    fn holders_are_bounded_and_take_no_place_from_other_clients() {
        let folder = tempfile::tempdir().unwrap();
        let (server, asked) = serve(folder.path(), PATIENCE);
        let connect = || UnixStream::connect(folder.path().join("socket")).unwrap();
        let wait_until = |ended: &dyn Fn(&[u32]) -> bool| {
            let has_come = (0..LOOKS).any(|_| {
                let _ = rustix::thread::nanosleep(&PAUSE);
                ended(&asked.lock().unwrap())
            });
            assert!(has_come, "never asked: {:?}", asked.lock().unwrap());
        };
        let open = |_| {
            let holder = connect();
            assert_eq!(ask(&holder, OPEN), TIED);
            holder
        };
        let mut holders: Vec<UnixStream> = (0..HOLDERS_MAX).map(open).collect();
        assert_eq!(ask(&connect(), r#"{"command":"status"}"#), ANSWERED);
        assert!(ask(&connect(), OPEN).contains("256 clients hold sessions"));
        wait_until(&|asked| asked[HOLDERS_MAX] == 2);
        assert!(asked.lock().unwrap()[..HOLDERS_MAX].iter().all(|&count| count == 0));
        holders.remove(7);
        wait_until(&|asked| asked[7] == 2);
        drop(server);
        assert_eq!(asked.lock().unwrap().iter().sum::<u32>(), 4, "the thread that stops the server ends the rest");
    }
}
