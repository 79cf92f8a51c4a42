//! The NBD handshake around a listener.
//!
//! The socket is handed over with nothing received that belongs to the transmission phase. The handshake says how many
//! bytes it misses, and no more are taken from the socket.

use crate::connection::{Listener, Patience, Peer, Serving};
use plimsoll_linux::PeerLog;
use plimsoll_protocols::nbd::export::SharedExports;
use plimsoll_protocols::nbd::handshake::{Ended, Handshake, HandshakeStep, Negotiated};
use std::io;
use std::os::fd::OwnedFd;
use tracing::debug;

/// Serves `exports` on `listener`, on threads of its own, until the answer is dropped.
///
/// `handler` gets each negotiated connection on the handshake's thread, with the socket in blocking mode and at the
/// first byte of the transmission phase. It should hand the socket on and return. While it runs it counts as a
/// handshake.
///
/// # Errors
/// The system has no thread or descriptor for it.
pub fn serve<F>(listener: Listener, exports: SharedExports, handler: F) -> io::Result<Serving>
where
    F: Fn(OwnedFd, Negotiated, Peer) + Send + Sync + 'static,
{
    let (address, log) = (listener.address().clone(), PeerLog::new());
    listener.serve_with("nbd", move |socket, peer, patience| {
        let mut has_spoken = false;
        match shake_hands(&socket, &exports, patience, &mut has_spoken) {
            Ok(Ok(negotiated)) => {
                debug!("{address}: {peer} opened {:?}", negotiated.export.name);
                handler(socket, *negotiated, peer);
            }
            Ok(Err(Ended::Aborted)) => debug!("{address}: {peer} ended the handshake"),
            Ok(Err(ended)) => log.warn(format_args!("{address}: {peer} refused: {ended}")),
            // A health check, for example, sees that a connection comes about, and closes it.
            Err(error) if !has_spoken => debug!("{address}: {peer} said nothing: {error}"),
            Err(error) => log.warn(format_args!("{address}: handshake with {peer} failed: {error}")),
        }
    })
}

/// Conducts one handshake over a socket, and takes no byte of the transmission phase from it. Sets `has_spoken` once
/// the client has sent something.
fn shake_hands(
    socket: &OwnedFd,
    exports: &SharedExports,
    patience: Patience<'_>,
    has_spoken: &mut bool,
) -> io::Result<Result<Box<Negotiated>, Ended>> {
    let exports = exports.snapshot();
    let mut handshake = Handshake::new();
    let mut output = Handshake::greeting().to_vec();
    let mut buffer = [0; 4096];
    let mut input: &[u8] = &[];
    loop {
        let step = handshake.advance(&mut input, &exports, &mut output);
        patience.send(socket, &output)?;
        output.clear();
        match step {
            HandshakeStep::NeedsBytes(missing) => {
                let wanted = missing.min(buffer.len());
                match patience.receive(socket, &mut buffer[..wanted])? {
                    0 => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client closed the connection")),
                    received => {
                        *has_spoken = true;
                        input = &buffer[..received];
                    }
                }
            }
            HandshakeStep::Negotiated(negotiated) => return Ok(Ok(negotiated)),
            HandshakeStep::Ended(ended) => return Ok(Err(ended)),
        }
    }
}
