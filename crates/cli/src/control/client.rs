//! The commands' end of the control socket.

use super::protocol::{ErrorKind, Request, Response};
use super::read_line;
use super::server::REQUEST_BYTES_MAX;
use crate::outcome::Failure;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest answer. A status of 1024 volumes with 64 sessions each takes less. Bytes.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;
/// How long an answer may take; the daemon's engines answer between two turns.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the daemon.
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects to the daemon with its control socket at `path`.
    ///
    /// # Errors
    /// No daemon answers there.
    pub fn connect(path: &Path) -> Result<Client, Failure> {
        let connect = || -> io::Result<UnixStream> {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error| Failure::Failed(unreachable(path, &error)))?;
        Ok(Client { stream: BufReader::new(stream), path: path.to_owned() })
    }

    /// Connects to the daemon at a default address. Another user's process may listen there, and its answer would
    /// decide how a command is started; so its user is checked.
    ///
    /// # Errors
    /// No daemon answers there, or a process of a user other than this user or root does.
    pub fn connect_own(path: &Path) -> Result<Client, Failure> {
        let client = Client::connect(path)?;
        let (served_by, user) = (socket_peercred(client.stream.get_ref()).map_err(io::Error::from)?.uid, geteuid());
        if served_by.is_root() || served_by == user {
            return Ok(client);
        }
        let (path, served_by, user) = (path.display(), served_by.as_raw(), user.as_raw());
        Err(Failure::Failed(format!(
            "{path} is served by user {served_by}, allowed are root and user {user}; --socket {path} asks it all the same"
        )))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The daemon refused or is gone.
    pub fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        let line = encoded(request)?;
        let answer = self.stream.get_mut().write_all(&line).and_then(|()| self.receive());
        self.understand(answer)
    }

    /// Asks for something that takes as long as it takes, and waits for the answer.
    ///
    /// # Errors
    /// The daemon refused or is gone.
    pub fn ask_patiently(&mut self, request: &Request) -> Result<Response, Failure> {
        self.stream.get_ref().set_read_timeout(None)?;
        let answer = self.ask(request);
        self.stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        answer
    }

    /// Waits for a further line of an answer that has several.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn next_line(&mut self) -> Result<Response, Failure> {
        let line = self.receive();
        self.understand(line)
    }

    /// The same connection, for telling the daemon that no request follows, or for keeping it open.
    ///
    /// # Errors
    /// The system has no descriptor for it.
    pub fn ending(&self) -> io::Result<UnixStream> {
        self.stream.get_ref().try_clone()
    }

    fn understand(&self, line: io::Result<Vec<u8>>) -> Result<Response, Failure> {
        let line = line.map_err(|error| {
            Failure::Failed(format!("the daemon at {} did not answer: {error}", self.path.display()))
        })?;
        let response = serde_json::from_slice(&line)
            .map_err(|error| Failure::Failed(format!("cannot parse the daemon's answer: {error}")))?;
        match response {
            Response::Error(report) => Err(match report.kind {
                ErrorKind::BadRequest | ErrorKind::Invalid | ErrorKind::NotFound => Failure::BadInput(report.message),
                ErrorKind::Busy | ErrorKind::Refused | ErrorKind::Failed => Failure::Failed(report.message),
            }),
            response => Ok(response),
        }
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let answer = read_line(&mut self.stream, RESPONSE_BYTES_MAX)?;
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"))
    }
}

/// Why no daemon could be asked, and what can be done.
fn unreachable(path: &Path, error: &io::Error) -> String {
    let (path, user) = (path.display(), geteuid().as_raw());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{path}: {error}: the control socket is for its owner and root, and this is user {user}")
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            format!("no daemon answers at {path} ({error}): is `plimsoll up` or `plimsoll agent` running?")
        }
        _ => format!("cannot connect to {path}: {error}"),
    }
}

/// A request's line. The daemon would hang up in the middle of a longer line than it allows.
fn encoded(request: &Request) -> Result<Vec<u8>, Failure> {
    let mut line = serde_json::to_vec(request).map_err(io::Error::from)?;
    if line.len() as u64 > REQUEST_BYTES_MAX {
        let got = line.len();
        return Err(Failure::BadInput(format!("got a request of {got} bytes, allowed are {REQUEST_BYTES_MAX}")));
    }
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: an invalid path, too, reads as a daemon that does not answer.
    /// Promise: daemon-socket-permission.
    #[test]
    fn a_user_without_permission_is_told_so_and_not_that_no_daemon_answers() {
        let told = |kind: io::ErrorKind| unreachable(Path::new("/run/plimsoll/control.sock"), &kind.into());
        let refused = told(io::ErrorKind::PermissionDenied);
        assert!(
            refused.starts_with("/run/plimsoll/control.sock: permission denied: the control socket is for its owner"),
            "{refused}"
        );
        for kind in [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused] {
            assert!(told(kind).starts_with("no daemon answers at /run/plimsoll/control.sock"), "{}", told(kind));
        }
        assert!(told(io::ErrorKind::InvalidInput).starts_with("cannot connect to /run/plimsoll/control.sock: "));
    }
}
