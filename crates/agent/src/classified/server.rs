//! The socket for the classes of files. [`plimsoll_classes::message`] has the format.
//!
//! Every process that may reach it may connect; the kernel tells its user (SO_PEERCRED). Everything that arrives is
//! untrusted: a request is 24 bytes, one a connection, at most [`CONNECTIONS_MAX`] connections at a time, each for
//! [`PATIENCE`]. One user other than root has [`CONNECTIONS_PER_USER_MAX`] of them. Beyond that the user's oldest
//! silent one makes room, with EAGAIN: so no silent client keeps others waiting. Descriptors are refused where the
//! kernel can ([`refuse_descriptors`]).

use super::deletions::{Deleted, Deletions};
use super::{FileClasses, ROOT};
use crate::error::AgentError;
use crate::files::Files;
use plimsoll_classes::message::{Answer, REQUEST_BYTES, Request};
use plimsoll_core::{Class, Span, Time};
use plimsoll_gates::{clock::monotonic_now, passing};
use plimsoll_linux::descriptors::refuse_descriptors;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, recv, send};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections that have not asked yet. Those beyond wait in the kernel.
const CONNECTIONS_MAX: usize = 64;
/// Of these, those of one user other than root.
const CONNECTIONS_PER_USER_MAX: usize = CONNECTIONS_MAX / 4;
const BACKLOG: i32 = 128;
/// How long a connection may be silent.
const PATIENCE: Span = Span::from_secs(1);
/// How often to look whether it is over.
const LOOK: Span = Span::from_millis(100);
/// Every user may connect.
const MODE: u32 = 0o666;

/// A file system, and what is said of its files.
pub struct ClassifiedMount {
    /// The mount point of the file system.
    pub mount_point: PathBuf,
    /// What is said of its files.
    pub classes: Arc<FileClasses>,
}

/// The socket and its thread. Dropping it removes the socket; what was said stays.
pub struct ClassServer {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Ends with the thread.
    ended: Receiver<()>,
}

impl ClassServer {
    /// Listens at `path`, replacing an earlier server's socket, for the files of these file systems.
    ///
    /// # Errors
    /// The socket cannot be made, a mount point not be opened, or deletions not be heard of, which takes root.
    pub fn start(path: &Path, mounts: Vec<ClassifiedMount>) -> Result<ClassServer, AgentError> {
        let socket = passing::listen(path, SocketType::SEQPACKET, BACKLOG, MODE)?;
        refuse_descriptors(&socket);
        let is_over = Arc::new(AtomicBool::new(false));
        let (is_over_seen, (opened, is_opened)) = (is_over.clone(), sync_channel(1));
        let (ends, ended) = sync_channel(0);
        // Files stay on the thread that opens them.
        let thread = std::thread::Builder::new().name("classes".to_owned()).spawn(move || {
            let _ends: SyncSender<()> = ends;
            match mounts.into_iter().map(Mount::open).collect::<Result<Vec<_>, _>>() {
                Ok(mounts) => {
                    let _ = opened.send(Ok(()));
                    ServerThread { socket, mounts, connections: Vec::new(), is_over: is_over_seen }.run();
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        });
        let thread = thread.map_err(|source| AgentError::System { action: "start a thread", source })?;
        let server = ClassServer { path: path.to_owned(), is_over, thread: Some(thread), ended };
        is_opened.recv().map_err(|_| AgentError::Gone)??;
        Ok(server)
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ClassServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.path);
        // A client may hold it up, where the kernel lets it send descriptors.
        let Some(thread) = self.thread.take() else { return };
        match self.ended.recv_timeout(Duration::from_nanos(PATIENCE.as_nanos())) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("a client blocks the thread that receives classes of files: the daemon ends without it");
            }
            _ => drop(thread.join()),
        }
    }
}

struct Mount {
    device: u64,
    files: Files,
    deletions: Deletions,
    classes: Arc<FileClasses>,
}

impl Mount {
    fn open(mount: ClassifiedMount) -> Result<Mount, AgentError> {
        let failed = |action| move |source| AgentError::System { action, source };
        let directory = File::open(&mount.mount_point).map_err(failed("open the mount point"))?;
        let found = rustix::fs::fstat(&directory).map_err(|errno| failed("look at the mount point")(errno.into()))?;
        let deletions = Deletions::on(&directory).map_err(|errno| failed("watch for deleted files")(errno.into()))?;
        let files = Files::of(&mount.mount_point).map_err(failed("open the mount point"))?;
        Ok(Mount { device: found.st_dev, files, deletions, classes: mount.classes })
    }

    fn hear_of_deletions(&self) {
        self.deletions.take(|deleted| match deleted {
            Deleted::Inode(inode) => self.classes.forget(inode),
            Deleted::Unknown => {
                tracing::warn!(
                    "the kernel's queue of deletions overflowed: all classes that applications said of \
                                files are forgotten"
                );
                self.classes.forget_all();
            }
        });
    }

    /// What `user` asks for, or why not.
    fn answer(&self, request: &Request, user: u32) -> Result<Class, Errno> {
        let found = self.files.look(request.inode)?;
        if user != ROOT && user != found.st_uid {
            return Err(Errno::PERM);
        }
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        if let Some(class) = request.class {
            self.classes.say(request.inode, class, user)?;
        }
        Ok(self.classes.class(request.inode).unwrap_or_default())
    }
}

struct ServerThread {
    socket: OwnedFd,
    mounts: Vec<Mount>,
    connections: Vec<Connection>,
    is_over: Arc<AtomicBool>,
}

/// A client that has not asked yet.
struct Connection {
    socket: OwnedFd,
    user: u32,
    until: Time,
}

impl ServerThread {
    fn run(&mut self) {
        while !self.is_over.load(Ordering::Relaxed) {
            // With all places taken the socket stays readable, and nothing can be done about it.
            let socket = (self.connections.len() < CONNECTIONS_MAX).then(|| self.socket.as_fd());
            let connections = self.connections.iter().map(|connection| connection.socket.as_fd());
            let deletions = self.mounts.iter().map(|mount| mount.deletions.as_fd());
            let waiting = socket.into_iter().chain(connections).chain(deletions);
            let mut polled: Vec<PollFd<'_>> =
                waiting.map(|waiting| PollFd::from_borrowed_fd(waiting, PollFlags::IN)).collect();
            let look = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
            // A round that ends early only makes the next one come early.
            let _ = poll(&mut polled, Some(&look));
            // First: a class said of an inode now is not meant for the file that had it before.
            self.mounts.iter().for_each(Mount::hear_of_deletions);
            self.accept();
            self.serve();
        }
    }

    /// Accepts a bounded number of clients, so that a crowd of new ones does not delay earlier ones.
    fn accept(&mut self) {
        for _ in self.connections.len()..CONNECTIONS_MAX {
            match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.welcome(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd) {
        let Ok(peer) = socket_peercred(&socket) else { return };
        let user = peer.uid.as_raw();
        if user != ROOT && self.has_all(user) {
            // Most of them have asked already.
            self.serve();
            let oldest = self.connections.iter().position(|connection| connection.user == user);
            if let Some(oldest) = oldest.filter(|_| self.has_all(user)) {
                reply(&self.connections.remove(oldest).socket, &refusal(Errno::AGAIN));
            }
        }
        self.connections.push(Connection { socket, user, until: monotonic_now() + PATIENCE });
    }

    fn has_all(&self, user: u32) -> bool {
        self.connections.iter().filter(|connection| connection.user == user).count() >= CONNECTIONS_PER_USER_MAX
    }

    /// Answers requests of clients, and disconnects clients that have been silent for too long.
    fn serve(&mut self) {
        let (mounts, now) = (&self.mounts, monotonic_now());
        self.connections.retain(|Connection { socket, user, until }| {
            let mut bytes = [0; REQUEST_BYTES + 1];
            match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => now < *until,
                Ok((received, _)) => {
                    if let Some(request) = Request::parse(&bytes[..received]) {
                        reply(socket, &answer(mounts, &request, *user));
                    }
                    false
                }
                Err(_) => false,
            }
        });
    }
}

/// A client that does not take its answer has none.
fn reply(socket: &OwnedFd, answer: &Answer) {
    let _ = send(socket, &answer.bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn refusal(errno: Errno) -> Answer {
    Answer { error: Some(errno), class: Class::UNCLASSIFIED }
}

fn answer(mounts: &[Mount], request: &Request, user: u32) -> Answer {
    let mount = mounts.iter().find(|mount| mount.device == request.device);
    match mount.ok_or(Errno::NODEV).and_then(|mount| mount.answer(request, user)) {
        Ok(class) => Answer { error: None, class },
        Err(errno) => refusal(errno),
    }
}
