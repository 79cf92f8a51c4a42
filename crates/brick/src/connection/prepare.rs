//! A socket before its first operation on the ring.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::AsFd;

/// Room asked for in a socket for each direction, bytes: two dozen requests of 32 KiB; the kernel may give less.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// Makes a socket fit for the ring, which waits by itself: a descriptor that does not block would make it answer "try again" instead.
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
    Ok(())
}
