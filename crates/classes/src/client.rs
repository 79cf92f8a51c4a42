//! The client: one connection a call, so that there is nothing to lose, to inherit or to close.

use crate::message::{ANSWER_BYTES, Answer, Request};
use crate::{SOCKET_DEFAULT, SOCKET_VARIABLE};
use plimsoll_core::Class;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// How long the daemon may take to listen and to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a file has no class of its own now.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The daemon cannot be asked.
    #[error("{}: {step}: {errno}", path.display())]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// What the system said.
        errno: Errno,
    },
    /// The descriptor cannot be looked at.
    #[error("the file cannot be looked at: {0}")]
    File(Errno),
    /// The daemon has refused it.
    #[error("{}", refusal(*.0))]
    Refused(Errno),
}

fn refusal(errno: Errno) -> String {
    match errno {
        Errno::NODEV => "the file is on no volume that is mounted with tenants here".to_owned(),
        Errno::PERM => "only the file's owner and root may say its class".to_owned(),
        Errno::INVAL => "it is no regular file".to_owned(),
        Errno::NOSPC => "too many files have a class of their own already".to_owned(),
        Errno::AGAIN => "this user asks too much at a time already".to_owned(),
        errno => format!("the daemon answers: {errno}"),
    }
}

/// Says the classes of files to a daemon.
#[derive(Clone, Debug)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// Of the daemon that listens at `path`.
    pub fn new(path: &Path) -> Client {
        Client { path: path.to_owned() }
    }

    /// Of the daemon that the environment names ([`SOCKET_VARIABLE`]), or else of this machine's.
    pub fn from_environment() -> Client {
        let named = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty());
        Client { path: named.map_or_else(|| PathBuf::from(SOCKET_DEFAULT), PathBuf::from) }
    }

    /// A file has this class from now on; with class 0, that of its file system. When it returns, it is so.
    ///
    /// # Errors
    /// The daemon does not answer within a second, or refuses it. The file is on none of its volumes, or the caller is
    /// neither its owner nor root. It is no regular file, too many files have a class, or the user asks sixteen times
    /// at once.
    pub fn classify(&self, file: impl AsFd, class: Class) -> Result<(), ClientError> {
        self.ask(file.as_fd(), Some(class)).map(drop)
    }

    /// What was said of a file; class 0 if nothing was. A user that may say the class may ask for it.
    ///
    /// # Errors
    /// As of [`classify`](Self::classify).
    pub fn class_of(&self, file: impl AsFd) -> Result<Class, ClientError> {
        self.ask(file.as_fd(), None)
    }

    fn ask(&self, file: BorrowedFd<'_>, class: Option<Class>) -> Result<Class, ClientError> {
        let found = rustix::fs::fstat(file).map_err(ClientError::File)?;
        let request = Request { class, device: found.st_dev, inode: found.st_ino };
        let answer = self.exchange(&request)?;
        answer.error.map_or(Ok(answer.class), |errno| Err(ClientError::Refused(errno)))
    }

    fn exchange(&self, request: &Request) -> Result<Answer, ClientError> {
        let at = |step| move |errno| ClientError::Unreachable { path: self.path.clone(), step, errno };
        let address = SocketAddrUnix::new(&self.path).map_err(at("its name"))?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(at("make a socket"))?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&socket, timeout, Some(PATIENCE)).map_err(at("set a timeout"))?;
        }
        connect(&socket, &address).map_err(at("connect"))?;
        send(&socket, &request.bytes(), SendFlags::NOSIGNAL).map_err(at("ask"))?;
        let mut bytes = [0; ANSWER_BYTES];
        let (received, _) = recv(&socket, &mut bytes, RecvFlags::empty()).map_err(at("hear the answer"))?;
        Answer::parse(&bytes[..received]).ok_or_else(|| at("understand the answer")(Errno::PROTO))
    }
}
