//! Protocol data units (PDUs) as bytes: those of an initiator, and the headers of a target's answers (RFC 7143, 11).
//!
//! ```text
//!   | basic header, 48 bytes | additional headers | header digest | data, padded to 4 bytes | data digest |
//!                              4 * byte 4 bytes     4, if agreed     bytes 5 to 7              4, if agreed
//! ```

use super::error::IscsiError;
use plimsoll_core::{crc32c, crc32c_append};

/// Bytes of the basic header segment.
pub const HEADER_BYTES: usize = 48;
/// Bytes of a digest.
const DIGEST_BYTES: usize = 4;
/// The tag that names no task.
pub const NO_TAG: u32 = u32::MAX;

/// What a PDU of an initiator is (RFC 7143, 11.2.1.2).
pub mod opcode {
    /// A ping, or an answer to one.
    pub const NOP_OUT: u8 = 0x00;
    /// A SCSI command.
    pub const COMMAND: u8 = 0x01;
    /// Task management.
    pub const TASK_MANAGEMENT: u8 = 0x02;
    /// Login.
    pub const LOGIN: u8 = 0x03;
    /// Text, such as discovery.
    pub const TEXT: u8 = 0x04;
    /// Data of a command.
    pub const DATA_OUT: u8 = 0x05;
    /// Logout.
    pub const LOGOUT: u8 = 0x06;
    /// Acknowledgement or wish of retransmission; not offered.
    pub const SNACK: u8 = 0x10;
    /// What a target sends: a ping, or an answer to one.
    pub const NOP_IN: u8 = 0x20;
    /// The answer to a SCSI command.
    pub const RESPONSE: u8 = 0x21;
    /// The answer to task management.
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    /// The answer to a login.
    pub const LOGIN_RESPONSE: u8 = 0x23;
    /// The answer to a text.
    pub const TEXT_RESPONSE: u8 = 0x24;
    /// Data for the initiator.
    pub const DATA_IN: u8 = 0x25;
    /// The answer to a logout.
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    /// Ready to transfer: the target wants data.
    pub const READY_TO_TRANSFER: u8 = 0x31;
    /// A PDU that is not accepted.
    pub const REJECT: u8 = 0x3f;
}

/// Which parts of PDUs carry a CRC32C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Headers.
    pub header: bool,
    /// Data.
    pub data: bool,
}

/// A basic header segment, with access to the fields that several kinds of PDUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; HEADER_BYTES]);

impl Header {
    /// A header of kind `opcode` with the final bit, or whatever stands at its place, set.
    pub fn new(opcode: u8, initiator_tag: u32) -> Header {
        let mut header = Header([0; HEADER_BYTES]);
        (header.0[0], header.0[1]) = (opcode, 0x80);
        header.set_u32(16, initiator_tag);
        header
    }

    /// What it is; one of [`opcode`].
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// To be carried out at once, outside of the order of commands.
    pub fn is_immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// The byte of flags.
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// The last of its sequence.
    pub fn is_final(&self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// The initiator's name for the task.
    pub fn initiator_tag(&self) -> u32 {
        self.u32(16)
    }

    /// The place of a command in the session's order.
    pub fn command_number(&self) -> u32 {
        self.u32(24)
    }

    /// The logical unit's number: 0 to 255, or something larger that no unit here has.
    pub fn unit(&self) -> u64 {
        let raw = u64::from_be_bytes(self.0[8..16].try_into().expect("eight bytes"));
        match raw.to_be_bytes() {
            // Peripheral and flat addressing, both on one level.
            [0x00 | 0x40, number, 0, 0, 0, 0, 0, 0] => number.into(),
            _ => raw.max(256),
        }
    }

    /// Four bytes as a number.
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    /// Sets four bytes.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Bytes of data behind it.
    pub fn data_bytes(&self) -> u32 {
        self.u32(4) & 0xff_ffff
    }

    /// Says how many bytes of data come behind it.
    pub fn set_data_bytes(&mut self, bytes: u32) {
        debug_assert!(bytes <= 0xff_ffff);
        let ahs = self.u32(4) & 0xff00_0000;
        self.set_u32(4, ahs | bytes);
    }

    /// Bytes of additional headers.
    fn additional_bytes(&self) -> usize {
        4 * usize::from(self.0[4])
    }
}

/// A PDU that has come whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'bytes> {
    /// Its header. Additional headers (long CDBs, bidirectional commands) are skipped: nothing here needs them.
    pub header: Header,
    /// Its data without padding.
    pub data: &'bytes [u8],
    /// Bytes that it takes with everything.
    pub length: usize,
}

impl Frame<'_> {
    /// The PDU at the start of `bytes`; `None` if it has not come whole. O(its length).
    ///
    /// # Errors
    /// It has more data than `data_bytes_max`, or arrived damaged. Without error recovery beyond level 0, which no
    /// initiator asks for on a network of today, the session ends then and begins anew.
    pub fn decode(bytes: &[u8], data_bytes_max: u32, digests: Digests) -> Result<Option<Frame<'_>>, IscsiError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>().map(|header| Header(*header)) else { return Ok(None) };
        let data_bytes = header.data_bytes();
        if data_bytes > data_bytes_max {
            return Err(IscsiError::DataTooLong { got: data_bytes, allowed: data_bytes_max });
        }
        let headers_end = HEADER_BYTES + header.additional_bytes();
        let data_start = headers_end + if digests.header { DIGEST_BYTES } else { 0 };
        if digests.header
            && let Some(digest) = bytes.get(headers_end..data_start)
            && digest != crc32c(&bytes[..headers_end]).to_le_bytes()
        {
            return Err(IscsiError::HeaderDigest);
        }
        let padded = (data_bytes as usize).next_multiple_of(4);
        let has_digest = digests.data && data_bytes > 0;
        let length = data_start + padded + if has_digest { DIGEST_BYTES } else { 0 };
        let Some(whole) = bytes.get(..length) else { return Ok(None) };
        let (padded_data, digest) = whole[data_start..].split_at(padded);
        if has_digest && digest != crc32c(padded_data).to_le_bytes() {
            return Err(IscsiError::DataDigest);
        }
        let data = &whole[data_start..][..data_bytes as usize];
        Ok(Some(Frame { header, data, length }))
    }

    /// Bytes of the PDU; `bytes` begin with its header. Only of the header if they are fewer.
    pub fn length(bytes: &[u8], digests: Digests) -> usize {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>().map(|header| Header(*header)) else {
            return HEADER_BYTES;
        };
        let data = header.data_bytes() as usize;
        let digest = |is_agreed: bool| if is_agreed { DIGEST_BYTES } else { 0 };
        let data_digest = digest(digests.data && data > 0);
        HEADER_BYTES + header.additional_bytes() + digest(digests.header) + data.next_multiple_of(4) + data_digest
    }

    /// Bytes at the most of a PDU with up to `data_bytes_max` bytes of data.
    pub const fn bytes_max(data_bytes_max: u32) -> usize {
        HEADER_BYTES + 255 * 4 + DIGEST_BYTES + (data_bytes_max as usize).next_multiple_of(4) + DIGEST_BYTES
    }
}

/// What stands between a header and its data, if digests are agreed.
pub fn header_digest(header: &Header, digests: Digests) -> Option<[u8; DIGEST_BYTES]> {
    digests.header.then(|| crc32c(&header.0).to_le_bytes())
}

/// The bytes after `data`: zeroes up to a multiple of four bytes, and the digest of both if one was agreed on.
pub fn trailer(data: &[u8], digests: Digests) -> Vec<u8> {
    let padding = data.len().next_multiple_of(4) - data.len();
    let mut trailer = vec![0; padding];
    if digests.data && !data.is_empty() {
        let digest = crc32c_append(crc32c(data), &trailer);
        trailer.extend(digest.to_le_bytes());
    }
    trailer
}

/// A whole PDU in one piece, for what is sent rarely.
pub fn encode(mut header: Header, data: &[u8], digests: Digests) -> Vec<u8> {
    header.set_data_bytes(data.len() as u32);
    let mut bytes = header.0.to_vec();
    bytes.extend(header_digest(&header, digests).into_iter().flatten());
    bytes.extend(data);
    bytes.extend(trailer(data, digests));
    bytes
}
