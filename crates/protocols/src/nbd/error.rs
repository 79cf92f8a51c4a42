//! The two ways in which the protocol says no: by closing the connection, and by an answer.

use super::limits::{OPTION_DATA_BYTES_MAX, PAYLOAD_BYTES_MAX};
use thiserror::Error;

/// Why a connection cannot go on: what came is not the protocol.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NbdError {
    /// A message does not begin as it must.
    #[error("{what} begins with {got:#x}, expected {expected:#x}")]
    BadMagic {
        /// Which message.
        what: &'static str,
        /// What came.
        got: u64,
        /// What had to come.
        expected: u64,
    },
    /// A write has more data than is received.
    #[error("a write of {got} bytes, allowed are {PAYLOAD_BYTES_MAX}")]
    PayloadTooLong {
        /// Bytes.
        got: u32,
    },
    /// The answer to an option is longer than a client receives.
    #[error("an answer of {got} bytes to an option, allowed are {OPTION_DATA_BYTES_MAX}")]
    OptionReplyTooLong {
        /// Bytes.
        got: u32,
    },
    /// A chunk's payload does not have the length that its kind asks for.
    #[error("a reply chunk of kind {kind:#x} with {got} bytes of payload")]
    BadChunk {
        /// The kind.
        kind: u16,
        /// Bytes of payload.
        got: u32,
    },
    /// A reply to a request that is not under way.
    #[error("a reply with cookie {cookie:#x}, which belongs to no request under way")]
    UnknownCookie {
        /// The cookie.
        cookie: u64,
    },
    /// A reply of the wrong form: unrequested data, or a successful read without all of its data.
    #[error("the reply with cookie {cookie:#x} does not fit its request: {why}")]
    BadReply {
        /// The cookie.
        cookie: u64,
        /// What does not fit.
        why: &'static str,
    },
}

/// The errors that a reply can carry (specification, "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[repr(u32)]
pub enum Errno {
    /// EPERM: a change of a read-only export.
    #[error("operation not permitted")]
    NotPermitted = 1,
    /// EIO: the device failed.
    #[error("input/output error")]
    InputOutput = 5,
    /// ENOMEM.
    #[error("out of memory")]
    OutOfMemory = 12,
    /// EINVAL: the request makes no sense here.
    #[error("invalid argument")]
    InvalidArgument = 22,
    /// ENOSPC: a write beyond the end, or onto a full disk.
    #[error("no space left on device")]
    NoSpace = 28,
    /// EOVERFLOW: an unfragmented read longer than can be sent.
    #[error("value too large")]
    Overflow = 75,
    /// ENOTSUP: a fast zero that would not be fast.
    #[error("operation not supported")]
    NotSupported = 95,
    /// ESHUTDOWN: the server is about to end.
    #[error("the server is shutting down")]
    Shutdown = 108,
}

impl Errno {
    const ALL: [Errno; 8] = [
        Errno::NotPermitted,
        Errno::InputOutput,
        Errno::OutOfMemory,
        Errno::InvalidArgument,
        Errno::NoSpace,
        Errno::Overflow,
        Errno::NotSupported,
        Errno::Shutdown,
    ];

    /// What a reply says: `None` for 0; a number that the specification does not know counts as `InvalidArgument`.
    pub fn from_wire(number: u32) -> Option<Errno> {
        match number {
            0 => None,
            _ => Some(Errno::known(number).unwrap_or(Errno::InvalidArgument)),
        }
    }

    /// What to answer when a system call failed with `number` (the kernel's errno, positive).
    ///
    /// EDQUOT and EFBIG become `NoSpace`, EROFS becomes `NotPermitted`. EINVAL, and errors that the protocol has no
    /// number for, become `InputOutput`: the client's request was valid.
    pub fn from_system(number: i32) -> Errno {
        match number {
            libc::EPERM | libc::EROFS => Errno::NotPermitted,
            libc::ENOMEM => Errno::OutOfMemory,
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Errno::NoSpace,
            libc::EOPNOTSUPP => Errno::NotSupported,
            libc::ESHUTDOWN => Errno::Shutdown,
            _ => Errno::InputOutput,
        }
    }

    fn known(number: u32) -> Option<Errno> {
        Errno::ALL.into_iter().find(|&errno| errno as u32 == number)
    }
}
