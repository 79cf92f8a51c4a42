//! Keepers: processes that answer a tenant's calls when the agent does not.
//!
//! A keeper is a process of its own (`shim/keeper.c`), one a listener, that ends with the tenant and not with the
//! agent. It has the listener, the ledger of what the agent received, and the words with the agent's lease. When the
//! agent is gone it lets every call continue, and offers the listener to the next agent at a socket in the run
//! directory.
//!
//! To start a process takes milliseconds. So a [`KeeperStarter`] starts a new listener's keeper on a thread that may
//! wait. A separate thread replaces killed keepers, so the thread that serves the listeners waits for neither.
//!
//! A limit: with the keeper *and* the agent killed, no process is left to answer. Then the kernel fails the tenant's
//! notified calls with ENOSYS. So neither must be ended by what ends the other: in a systemd unit, `KillMode=process`.

use crate::error::GateError;
use crate::listener::Listener;
use crate::passing;
use crate::programs::{self, Programs};
use crate::words::GateWords;
use plimsoll_core::AccountId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Where keepers find the next agent, in the run directory.
const SOCKET_NAME: &str = "keepers.sock";
/// Keepers that offer a listener and are not heard yet; they try again.
const BACKLOG: i32 = 128;
/// What it takes from the agent to stand back.
const ACKNOWLEDGED: &[u8] = b"A";
/// Bytes of a registration (`REGISTRATION_MAX` of keeper.c).
const REGISTRATION_MAX: usize = 4096;

/// The tenant behind a listener: what an agent needs to know to take it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The account that pays.
    pub account: AccountId,
    /// What to call it: a container's or a command's name. A keeper remembers 512 characters of it.
    pub name: String,
    /// Its first process.
    pub process: u32,
}

/// The agent's line to a keeper; when it is dropped, the keeper answers.
pub(crate) struct Keeper {
    socket: OwnedFd,
}

impl Keeper {
    /// Whether the keeper is still there.
    pub(crate) fn is_alive(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_err() || !polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn acknowledge(&self) -> Result<(), GateError> {
        let sent = send(&self.socket, ACKNOWLEDGED, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        sent.map(drop).map_err(GateError::step("speak to a keeper"))
    }
}

/// Starts keepers, on a thread that may wait. Clones are cheap.
#[derive(Clone)]
pub struct KeeperStarter(Arc<Starting>);

struct Starting {
    program: PathBuf,
    words: File,
    path: PathBuf,
}

/// A listener with its keeper behind it, for [`Listeners::add`](crate::Listeners::add).
pub struct Guarded {
    pub(crate) listener: Listener,
    pub(crate) registration: Registration,
    pub(crate) keeper: Option<Keeper>,
}

impl KeeperStarter {
    /// Starts a keeper behind `listener`, which takes milliseconds. If it does not start, which is logged, another one
    /// is tried later; until then the tenant depends on this agent.
    pub fn guard(&self, listener: Listener, registration: Registration) -> Guarded {
        let started = self.connect(&listener, &registration).and_then(|(keeper, theirs)| {
            self.start(theirs)?;
            Ok(keeper)
        });
        let keeper = started.inspect_err(|error| tracing::warn!("{}: {error}", registration.name)).ok();
        Guarded { listener, registration, keeper }
    }

    /// A connection to a keeper, with everything that the keeper needs, and the other end for the keeper's process.
    fn connect(&self, listener: &Listener, registration: &Registration) -> Result<(Keeper, OwnedFd), GateError> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(GateError::step("make a pair of sockets"))?;
        let keep = [listener.as_fd(), listener.ledger(), self.0.words.as_fd()];
        passing::send(ours.as_fd(), &registration.payload(), &keep).map_err(GateError::step("speak to a keeper"))?;
        // Before it starts: at no time do both receive.
        let keeper = Keeper { socket: ours };
        keeper.acknowledge()?;
        Ok((keeper, theirs))
    }

    fn start(&self, theirs: OwnedFd) -> Result<(), GateError> {
        let Starting { program, path, .. } = &*self.0;
        let status = programs::run(program, &[path], theirs)?;
        if status.success() { Ok(()) } else { Err(GateError::Keeper { outcome: status.to_string() }) }
    }
}

/// Hears of keepers that outlived an earlier agent, and replaces killed keepers.
pub struct Keepers {
    starter: KeeperStarter,
    /// To the thread that starts replacements: the ends that they will have.
    replacements: Sender<OwnedFd>,
    socket: OwnedFd,
}

impl Keepers {
    /// Listens in `directory`, the run directory, for keepers that an earlier agent left. There is one agent a
    /// directory, as the words hold it to.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(directory: &Path, programs: &Programs, words: &GateWords) -> Result<Keepers, GateError> {
        let path = directory.join(SOCKET_NAME);
        let socket = passing::listen(&path, SocketType::SEQPACKET, BACKLOG, 0o600)?;
        let (program, words) = (programs.keeper().to_owned(), words.reader()?);
        let starter = KeeperStarter(Arc::new(Starting { program, words, path }));
        let (replacements, wanted) = channel();
        let replacer = starter.clone();
        let thread = std::thread::Builder::new().name("keepers".to_owned()).spawn(move || {
            for theirs in wanted {
                // Its end of the line is closed now, by which the agent sees it.
                let _ = replacer.start(theirs).inspect_err(|error| tracing::warn!("{error}"));
            }
        });
        thread.map_err(GateError::step("start a thread"))?;
        Ok(Keepers { starter, replacements, socket })
    }

    /// For the thread that takes new listeners in.
    pub fn starter(&self) -> KeeperStarter {
        self.starter.clone()
    }

    /// Has a keeper started behind `listener`, without waiting. One that does not start is seen to be dead.
    pub(crate) fn replace(&self, listener: &Listener, registration: &Registration) -> Result<Keeper, GateError> {
        let (keeper, theirs) = self.starter.connect(listener, registration)?;
        // Without its thread its end is closed, as after a failure.
        let _ = self.replacements.send(theirs);
        Ok(keeper)
    }

    /// A listener that an earlier agent left, if a keeper offers one. The keeper stands back from now on.
    pub(crate) fn accept(&self) -> Result<Option<(Registration, Listener, Keeper)>, GateError> {
        // As many as can wait at once: a keeper that is sent away comes again.
        for _ in 0..BACKLOG {
            let socket = match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
                Err(errno) => return Err(GateError::step("accept a keeper")(errno)),
            };
            // Anything but a keeper of ours is sent away: the connection is closed.
            let Some((registration, listener, ledger)) = self.offer(&socket).ok().flatten() else { continue };
            let listener = Listener::adopt(listener, ledger, registration.account)?;
            let keeper = Keeper { socket };
            // A keeper that is gone meanwhile is found to be so, and replaced.
            let _ = keeper.acknowledge();
            return Ok(Some((registration, listener, keeper)));
        }
        Ok(None)
    }

    /// The offer of a connected keeper: one message, which has arrived already.
    ///
    /// A keeper with other words never sees this agent's lease, because an earlier agent removed those words at its
    /// end. It would go on receiving beside this agent. So it keeps its listener, and lets every call go on.
    fn offer(&self, socket: &OwnedFd) -> io::Result<Option<(Registration, OwnedFd, OwnedFd)>> {
        let mut payload = vec![0; REGISTRATION_MAX];
        let (bytes, descriptors) = passing::receive(socket.as_fd(), &mut payload)?;
        let Ok(registration) = serde_json::from_slice(&payload[..bytes]) else { return Ok(None) };
        let Ok([listener, ledger, words]) = <[OwnedFd; 3]>::try_from(descriptors) else { return Ok(None) };
        let (theirs, ours) = (fstat(&words)?, fstat(&self.starter.0.words)?);
        let looks_at_ours = (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino);
        Ok(looks_at_ours.then_some((registration, listener, ledger)))
    }
}

impl AsFd for Keepers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Registration {
    /// Characters of a name that are kept. With six bytes for each, as JSON may need, they still fit into a message.
    const NAME_MAX: usize = 512;

    fn payload(&self) -> Vec<u8> {
        let short = Registration { name: self.name.chars().take(Registration::NAME_MAX).collect(), ..*self };
        serde_json::to_vec(&short).expect("numbers and a text")
    }
}
