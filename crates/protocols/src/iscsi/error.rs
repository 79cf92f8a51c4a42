//! Why a connection cannot go on, or a login is refused.

use thiserror::Error;

/// What came is not the protocol.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IscsiError {
    /// More data in one PDU than is received.
    #[error("a PDU with {got} bytes of data, allowed are {allowed}")]
    DataTooLong {
        /// Bytes.
        got: u32,
        /// Bytes at the most.
        allowed: u32,
    },
    /// A header arrived damaged.
    #[error("the digest of a header is wrong")]
    HeaderDigest,
    /// Data arrived damaged.
    #[error("the digest of data is wrong")]
    DataDigest,
    /// A PDU that does not belong where it came.
    #[error("a PDU of kind {got:#04x}, expected {expected}")]
    Unexpected {
        /// Its operation code.
        got: u8,
        /// What had to come.
        expected: &'static str,
    },
    /// Text that is not `key=value` with zero bytes between.
    #[error("text that is not key=value")]
    BadText,
}

/// Why a login is refused, in the protocol's words (RFC 7143, 11.13.5).
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LoginError {
    /// Something came that does not belong there.
    #[error("the initiator does not follow the protocol")]
    InitiatorError,
    /// The wrong secret, or none.
    #[error("the initiator failed to authenticate itself")]
    Authentication,
    /// There is no such target.
    #[error("there is no such target")]
    NotFound,
    /// Not the protocol's version 0.
    #[error("the initiator speaks another version")]
    Version,
    /// A session has one connection here.
    #[error("a second connection for a session, which have one each")]
    TooManyConnections,
    /// A name that is none.
    #[error("a name is not of 1 to 223 bytes of letters, digits, '-', '.', ':' and '_'")]
    Name,
    /// A name that is needed was not said.
    #[error("the initiator did not say its name, or of which target")]
    MissingParameter,
    /// Neither discovery nor normal.
    #[error("a kind of session that there is not")]
    SessionType,
    /// There is no such session.
    #[error("there is no such session")]
    NoSession,
}

impl LoginError {
    /// Status class and detail.
    pub fn status(self) -> [u8; 2] {
        match self {
            LoginError::InitiatorError | LoginError::Name => [2, 0x00],
            LoginError::Authentication => [2, 0x01],
            LoginError::NotFound => [2, 0x03],
            LoginError::Version => [2, 0x05],
            LoginError::TooManyConnections => [2, 0x06],
            LoginError::MissingParameter => [2, 0x07],
            LoginError::SessionType => [2, 0x09],
            LoginError::NoSession => [2, 0x0a],
        }
    }
}
