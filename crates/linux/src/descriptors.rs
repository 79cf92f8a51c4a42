//! Sockets that take no descriptors from their clients.
//!
//! **Why.** A client that may connect to a Unix socket may send descriptors along. A descriptor that was not asked for
//! is closed by the thread that receives the bytes. To close one may take as long as its sender likes: a TCP connection
//! that lingers. So an engine's thread would stand still for all clients. **Rule.** The socket says that it takes none:
//! then the sender fails, with EPERM. Connections that it accepts have that from it. **Complication.** Kernels before
//! 6.16 cannot say so; there, a client that may connect can delay all clients that the same thread serves.

use rustix::io::Errno;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_PASSRIGHTS` of `asm-generic/socket.h`, which the bindings do not have yet.
const SO_PASSRIGHTS: c_int = 83;

/// Takes no descriptors at a Unix socket from now on, nor at what it accepts. Says whether the kernel can.
pub fn refuse_descriptors(socket: &impl AsFd) -> bool {
    let (takes, descriptor): (c_int, _) = (0, socket.as_fd());
    let length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed. The kernel reads `length` bytes at the address of a
    // number that lives.
    let result = unsafe {
        libc::setsockopt(descriptor.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const takes).cast(), length)
    };
    result == 0 || Errno::from_io_error(&std::io::Error::last_os_error()) != Some(Errno::NOPROTOOPT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{IoSlice, Read, Write};
    use std::mem::MaybeUninit;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn send_one(client: &UnixStream) -> rustix::io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sent = [client.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
        sendmsg(client, &[IoSlice::new(b"bytes")], &mut control, SendFlags::NOSIGNAL)
    }

    /// Before it is accepted and afterwards. Planted break: the option is not set.
    #[test]
    fn a_client_cannot_send_a_descriptor_and_can_send_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        if !refuse_descriptors(&listener) {
            return eprintln!("not run: this kernel's sockets take descriptors in any case (before 6.16)");
        }
        let mut client = UnixStream::connect(&path).unwrap();
        assert_eq!(send_one(&client), Err(Errno::PERM));
        let (mut accepted, _) = listener.accept().unwrap();
        assert_eq!(send_one(&client), Err(Errno::PERM));
        client.write_all(b"bytes").unwrap();
        let mut bytes = [0; 5];
        accepted.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"bytes");
    }
}
