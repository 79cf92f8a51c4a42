//! A socket before its first operation on the ring.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::AsFd;
use std::time::Duration;

/// Requested buffer of a socket for each direction, in bytes: two dozen requests of 32 KiB. The kernel may give less.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;
/// Silence over TCP after which the kernel asks whether the other machine is still there.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Number of keep-alive probes before the connection is given up, and the pause between them. Together they take a
/// minute, in which a switch or a host may restart.
const QUESTIONS: u32 = 6;
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Prepares a socket for the ring, which waits by itself. A non-blocking descriptor would make it answer "try again"
/// instead.
///
/// # Errors
/// The socket cannot be made blocking.
pub(crate) fn prepare(socket: impl AsFd) -> Result<(), Errno> {
    fcntl_setfl(&socket, fcntl_getfl(&socket)? - OFlags::NONBLOCK)?;
    // Smaller buffers than asked for are slower, not wrong.
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    // Fails on Unix sockets, which send at once anyway.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    // Fails on them, too: the other end is on this machine and cannot vanish.
    let _ = notice_silence(&socket);
    Ok(())
}

/// Ends a connection to a machine that vanished without closing it. No packet would ever tell. Its session, its
/// promises and its reservations would be held for ever.
fn notice_silence(socket: impl AsFd) -> Result<(), Errno> {
    sockopt::set_tcp_keepidle(&socket, SILENCE_MAX)?;
    sockopt::set_tcp_keepintvl(&socket, ANSWER_TIME)?;
    sockopt::set_tcp_keepcnt(&socket, QUESTIONS)?;
    sockopt::set_socket_keepalive(&socket, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    /// Promise: volume-vanished-client.
    #[test]
    fn a_machine_that_vanished_is_noticed_after_two_minutes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        prepare(&socket).unwrap();
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        let asked = sockopt::tcp_keepintvl(&socket).unwrap() * sockopt::tcp_keepcnt(&socket).unwrap();
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap() + asked, Duration::from_secs(120));
        prepare(&UnixStream::pair().unwrap().0).unwrap();
    }
}
