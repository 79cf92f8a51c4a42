//! Whether the machine at the other end of a connection is still there.
//!
//! **Intuition.** A machine that vanished without closing the connection sends nothing that tells so. Into a silence
//! the kernel asks (keepalive, [`prepare`](super::prepare)), but not while bytes are on their way without an
//! acknowledgement. Those it sends again, for a quarter of an hour (`net.ipv4.tcp_retries2`).
//!
//! **Rule.** A peer is gone if it has sent nothing for [`SILENCE_MAX`], acknowledgements included. The kernel must have
//! sent something again meanwhile, or have asked whether there is room for more.
//!
//! **Complication.** A peer that is there and does not read says so each time that it is asked for room, and keeps its
//! connection. The kernel's own `TCP_USER_TIMEOUT` would cut it off: since Linux 5.11 it counts for how long there was
//! no room, answers or not. The kernel asks for room up to two minutes apart, so just after that the peer looks for a
//! moment as if it had gone. It has to look so twice, [`LOOK_EVERY`](plimsoll_engine::front_end::LOOK_EVERY) apart.

use plimsoll_core::Span;
use std::os::fd::{AsFd, AsRawFd};

/// How long a machine may say nothing; as long as keepalive takes.
const SILENCE_MAX: Span = Span::from_secs(120);

/// What a connection knows of its other end.
#[derive(Default)]
pub(crate) struct Silence {
    /// Something has come since the last look.
    has_heard: bool,
    /// At the last look it seemed to have gone.
    is_suspected: bool,
}

/// What the kernel knows of it.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// It was asked something, or sent something again, that it has not answered.
    is_asked: bool,
    last: Span,
}

impl Silence {
    /// Something has come.
    pub(crate) fn heard(&mut self) {
        self.has_heard = true;
    }

    /// Looks whether the other machine has gone. A system call, unless something has come since the last look.
    pub(crate) fn is_final(&mut self, socket: impl AsFd) -> bool {
        let heard = if self.has_heard { None } else { last_heard(socket) };
        self.has_heard = false;
        self.looked(heard, SILENCE_MAX)
    }

    fn looked(&mut self, heard: Option<Heard>, silence_max: Span) -> bool {
        let seems_gone = heard.is_some_and(|heard| heard.is_asked && heard.last >= silence_max);
        std::mem::replace(&mut self.is_suspected, seems_gone) && seems_gone
    }
}

/// The kernel's figures of the other end. There are none for a Unix socket: its other end is on this machine and cannot
/// vanish.
fn last_heard(socket: impl AsFd) -> Option<Heard> {
    // SAFETY: it is made of numbers, for which zeroes will do.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes, which `info` has.
    let result =
        unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut length) };
    (result == 0).then(|| Heard {
        is_asked: info.tcpi_retransmits > 0 || info.tcpi_probes > 0,
        last: Span::from_millis(info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv).into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    /// Promise: volume-vanished-client.
    #[test]
    fn a_tenant_that_seems_to_have_gone_twice_has() {
        let heard = |is_asked, seconds| Some(Heard { is_asked, last: Span::from_secs(seconds) });
        let looks = |looks: &[Option<Heard>]| {
            let mut silence = Silence::default();
            looks.iter().map(|&heard| silence.looked(heard, SILENCE_MAX)).collect::<Vec<_>>()
        };
        assert_eq!(looks(&[heard(true, 120), heard(true, 130)]), [false, true]);
        assert_eq!(looks(&[heard(true, 110), heard(true, 120), heard(true, 130)]), [false, false, true]);
        // An answer came between two looks, or something did.
        assert_eq!(looks(&[heard(true, 120), heard(false, 5), heard(true, 125)]), [false; 3]);
        assert_eq!(looks(&[heard(true, 120), None, heard(true, 125)]), [false; 3]);
        // No peer was asked: there is keepalive for that.
        assert_eq!(looks(&[heard(false, 1000), heard(false, 1010)]), [false; 2]);
    }

    /// Runs `work` on a thread with a network of its own; not without the right to make one.
    fn with_own_network(work: impl FnOnce() + Send + 'static) {
        std::thread::spawn(move || {
            // SAFETY: it changes the network of this thread, which has no sockets.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return eprintln!("not run: a network of its own: {}", std::io::Error::last_os_error());
            }
            set_loopback(true);
            work();
        })
        .join()
        .unwrap();
    }

    /// Lets packets through between the ends of this thread's network, or not.
    fn set_loopback(is_up: bool) {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        // SAFETY: it is made of numbers and addresses, for which zeroes will do.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        (request.ifr_name[0], request.ifr_name[1]) = (b'l' as libc::c_char, b'o' as libc::c_char);
        request.ifr_ifru.ifru_flags = if is_up { libc::IFF_UP as i16 } else { 0 };
        // SAFETY: the kernel reads a request, which this is.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server)
    }

    /// Looks until the kernel has asked for `silence`, or has heard more than once although nothing was read.
    fn looks_gone(server: &TcpStream, silence: Span) -> bool {
        let (mut answers, mut last) = (0, Span::ZERO);
        for _ in 0..1500 {
            let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::thread::nanosleep(&pause);
            let heard = last_heard(server).unwrap();
            answers += u32::from(heard.last < last);
            last = heard.last;
            let mut suspected = Silence { is_suspected: true, ..Silence::default() };
            if suspected.looked(Some(heard), silence) {
                return true;
            }
            if answers == 3 {
                return false;
            }
        }
        panic!("neither gone nor heard: {:?}", last_heard(server));
    }

    /// Broken on purpose and seen red: only a silence counts that nothing was sent into.
    /// Promise: volume-vanished-client.
    #[test]
    fn a_machine_that_vanishes_with_bytes_on_their_way_is_noticed_and_one_that_does_not_read_is_left() {
        assert!(last_heard(&UnixStream::pair().unwrap().0).is_none());
        let silence = Span::from_millis(500);
        let fill = |server: &mut TcpStream| loop {
            match server.write(&[0; 65536]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                result => drop(result.unwrap()),
            }
        };
        let (_client, mut server) = pair();
        fill(&mut server);
        assert!(!looks_gone(&server, silence), "it is there and has no room");
        with_own_network(move || {
            let (_client, mut server) = pair();
            set_loopback(false);
            server.write_all(&[0; 100]).unwrap();
            assert!(looks_gone(&server, silence), "bytes are sent again");
            set_loopback(true);
            let (_client, mut server) = pair();
            fill(&mut server);
            assert!(!looks_gone(&server, silence), "it is there and has no room");
            set_loopback(false);
            assert!(looks_gone(&server, silence), "it is asked whether there is room");
        });
    }
}
