//! Why bytes from the kernel are not a request, or one that this end cannot serve.

use super::limits::{PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, ROOT_NODE};
use super::offer::{FLAGS_NEEDED, PROTOCOL_MAJOR, PROTOCOL_MINOR_OLDEST};
use thiserror::Error;

/// Bytes that are not a request, or one that we cannot serve.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// Not even a header; there is no request to answer.
    #[error("a FUSE request of {got} bytes, expected at least {REQUEST_HEADER_BYTES}")]
    Header {
        /// Bytes read.
        got: usize,
    },
    /// The header and the read disagree on the length.
    #[error("FUSE request {unique} says that it has {said} bytes, got {got}")]
    Length {
        /// The request's number.
        unique: u64,
        /// Bytes that the header says.
        said: u32,
        /// Bytes read.
        got: usize,
    },
    /// The operation's fields, or a write's payload, are cut off.
    #[error("FUSE request {unique} (operation {opcode}) has {got} bytes, expected {expected}")]
    Body {
        /// The request's number.
        unique: u64,
        /// The operation's number.
        opcode: u32,
        /// Bytes read.
        got: usize,
        /// Bytes that the operation takes.
        expected: usize,
    },
    /// A read or a write larger than was agreed.
    #[error("FUSE request {unique} asks for {length} bytes, allowed are at most {PAYLOAD_BYTES_MAX}")]
    Payload {
        /// The request's number.
        unique: u64,
        /// Bytes asked for.
        length: u32,
    },
    /// There is one file, and this is not it.
    #[error("FUSE request {unique} is for node {node}, the only one is {ROOT_NODE}")]
    Node {
        /// The request's number.
        unique: u64,
        /// The node asked for.
        node: u64,
    },
    /// The kernel is too old.
    #[error(
        "the kernel speaks FUSE {major}.{minor} with flags {flags:#x}, needed are {PROTOCOL_MAJOR}.{PROTOCOL_MINOR_OLDEST} \
         and flags {FLAGS_NEEDED:#x} (Linux 4.20 or later)"
    )]
    Version {
        /// The request's number.
        unique: u64,
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
        /// What the kernel can do.
        flags: u32,
    },
}
