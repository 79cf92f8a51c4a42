//! Descriptors over Unix sockets (`SCM_RIGHTS`, unix(7)).

use crate::error::GateError;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen as start_listening, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Bytes of `sun_path`, the end included.
pub(crate) const SOCKET_PATH_MAX: usize = 107;
/// Descriptors of one message; the kernel closes further ones.
pub(crate) const DESCRIPTORS_MAX: usize = 8;

/// A non-blocking socket that listens at `path`, replacing an earlier agent's. `mode` says which users may connect.
///
/// # Errors
/// The path is too long for a socket, or the socket cannot be made there.
pub fn listen(path: &Path, kind: SocketType, backlog: i32, mode: u32) -> Result<OwnedFd, GateError> {
    let at = |errno: Errno| GateError::file("listen at", path)(errno.into());
    let address =
        SocketAddrUnix::new(path).map_err(|_| GateError::SocketPath { path: path.to_owned(), max: SOCKET_PATH_MAX })?;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None);
    let socket = socket.map_err(at)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GateError::file("remove", path)(error)),
        _ => {}
    }
    bind(&socket, &address).map_err(at)?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(path, permissions).map_err(GateError::file("set the mode of", path))?;
    start_listening(&socket, backlog).map_err(at)?;
    Ok(socket)
}

/// Sends a message with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    sendmsg(socket, &[IoSlice::new(payload)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

/// Receives available bytes and descriptors; `WouldBlock` if there are none, 0 bytes at the end.
pub(crate) fn receive(socket: BorrowedFd<'_>, payload: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(payload)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}
