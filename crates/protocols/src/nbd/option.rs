//! Options and their replies: what both sides say to each other during the handshake.
//!
//! ```text
//!   server   "NBDMAGIC" 8 | "IHAVEOPT" 8 | handshake flags 2
//!   client   client flags 4
//!   client   "IHAVEOPT" 8 | option 4 | data bytes 4 | data          again and again
//!   server   magic 8 | option 4 | kind 4 | data bytes 4 | data      one or more to each option
//! ```
//!
//! The exception is the oldest option, the export name. It is answered by the export's size and flags without any
//! header, or by closing the connection.

use super::error::NbdError;
use super::export::ExportInfo;
use super::wire::{be16, be32, be64, put};

/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client's flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes of an option without its data.
pub const OPTION_BYTES: usize = 16;
/// Bytes of a reply to an option without its data.
pub const OPTION_REPLY_BYTES: usize = 20;
/// Zeroes behind the answer to an export name, unless the client asked to be spared them, bytes.
pub const EXPORT_NAME_ZEROES_BYTES: usize = 124;
/// Bytes of the answer to an export name without the zeroes.
pub const EXPORT_NAME_REPLY_BYTES: usize = 10;

/// In the handshake flags: fixed newstyle. In the client's flags: understood.
pub const FLAG_FIXED_NEWSTYLE: u32 = 1 << 0;
/// In the handshake flags: the zeroes behind the answer to an export name can be left out. In the client's: do so.
pub const FLAG_NO_ZEROES: u32 = 1 << 1;

/// "NBDMAGIC".
const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// "IHAVEOPT".
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Numbers of the options that are understood (specification, "Option types").
pub mod number {
    /// Choose an export and begin transmission; cannot fail but by closing.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Name every export.
    pub const LIST: u32 = 3;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin transmission.
    pub const GO: u32 = 7;
    /// Answer with structured replies from now on.
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// What a server answers to an option (specification, "Option reply types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionReplyKind {
    /// Done; the last of the replies.
    Acknowledged,
    /// One export of a list.
    Server,
    /// One piece of information.
    Info,
    /// The option is not known here.
    Unsupported,
    /// The option's data is not what it should be.
    Invalid,
    /// There is no such export.
    UnknownExport,
    /// The option is too long.
    TooBig,
    /// Another error; the highest bit is set.
    OtherError(u32),
    /// Another number; the highest bit is not set.
    Other(u32),
}

impl OptionReplyKind {
    const ERROR_BIT: u32 = 1 << 31;

    const fn number(self) -> u32 {
        match self {
            OptionReplyKind::Acknowledged => 1,
            OptionReplyKind::Server => 2,
            OptionReplyKind::Info => 3,
            OptionReplyKind::Unsupported => Self::ERROR_BIT + 1,
            OptionReplyKind::Invalid => Self::ERROR_BIT + 3,
            OptionReplyKind::UnknownExport => Self::ERROR_BIT + 6,
            OptionReplyKind::TooBig => Self::ERROR_BIT + 9,
            OptionReplyKind::OtherError(number) | OptionReplyKind::Other(number) => number,
        }
    }

    fn from_number(number: u32) -> OptionReplyKind {
        use OptionReplyKind::*;
        [Acknowledged, Server, Info, Unsupported, Invalid, UnknownExport, TooBig]
            .into_iter()
            .find(|kind| kind.number() == number)
            .unwrap_or(if number & Self::ERROR_BIT != 0 { OtherError(number) } else { Other(number) })
    }

    /// Whether it says that the option failed.
    pub const fn is_error(self) -> bool {
        self.number() & Self::ERROR_BIT != 0
    }
}

/// Information that a client can ask for (specification, "NBD_REP_INFO").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InfoKind {
    /// Size and transmission flags; always sent.
    Export,
    /// The name, as the server has it.
    Name,
    /// The description.
    Description,
    /// The three block sizes.
    BlockSize,
}

impl InfoKind {
    const ALL: [InfoKind; 4] = [InfoKind::Export, InfoKind::Name, InfoKind::Description, InfoKind::BlockSize];

    fn from_number(number: u16) -> Option<InfoKind> {
        InfoKind::ALL.get(usize::from(number)).copied()
    }
}

/// The server's greeting: fixed newstyle, and the zeroes can be left out.
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    put(&mut bytes, 0, GREETING_MAGIC.to_be_bytes());
    put(&mut bytes, 8, OPTION_MAGIC.to_be_bytes());
    put(&mut bytes, 16, ((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) as u16).to_be_bytes());
    bytes
}

/// Reads a server's greeting: its handshake flags.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<u16, NbdError> {
    for (at, expected) in [(0, GREETING_MAGIC), (8, OPTION_MAGIC)] {
        let got = be64(bytes, at);
        if got != expected {
            return Err(NbdError::BadMagic { what: "a greeting", got, expected });
        }
    }
    Ok(be16(bytes, 16))
}

/// The beginning of an option; `data_bytes` bytes follow it.
pub fn option(number: u32, data_bytes: u32) -> [u8; OPTION_BYTES] {
    let mut bytes = [0; OPTION_BYTES];
    put(&mut bytes, 0, OPTION_MAGIC.to_be_bytes());
    put(&mut bytes, 8, number.to_be_bytes());
    put(&mut bytes, 12, data_bytes.to_be_bytes());
    bytes
}

/// Reads the beginning of an option: its number and the length of its data.
pub fn decode_option(bytes: &[u8; OPTION_BYTES]) -> Result<(u32, u32), NbdError> {
    match be64(bytes, 0) {
        OPTION_MAGIC => Ok((be32(bytes, 8), be32(bytes, 12))),
        got => Err(NbdError::BadMagic { what: "an option", got, expected: OPTION_MAGIC }),
    }
}

/// Appends one reply to the option `number`; its data is the concatenation of `parts`.
pub fn push_option_reply(output: &mut Vec<u8>, number: u32, kind: OptionReplyKind, parts: &[&[u8]]) {
    let data_bytes: usize = parts.iter().map(|part| part.len()).sum();
    output.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    output.extend_from_slice(&number.to_be_bytes());
    output.extend_from_slice(&kind.number().to_be_bytes());
    output.extend_from_slice(&(data_bytes as u32).to_be_bytes());
    parts.iter().for_each(|part| output.extend_from_slice(part));
}

/// The beginning of a reply to an option as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that it answers.
    pub number: u32,
    /// What it says.
    pub kind: OptionReplyKind,
    /// Bytes of data that follow.
    pub data_bytes: u32,
}

/// Reads the beginning of a reply to an option.
pub fn decode_option_reply(bytes: &[u8; OPTION_REPLY_BYTES]) -> Result<OptionReply, NbdError> {
    match be64(bytes, 0) {
        OPTION_REPLY_MAGIC => Ok(OptionReply {
            number: be32(bytes, 8),
            kind: OptionReplyKind::from_number(be32(bytes, 12)),
            data_bytes: be32(bytes, 16),
        }),
        got => Err(NbdError::BadMagic { what: "a reply to an option", got, expected: OPTION_REPLY_MAGIC }),
    }
}

/// Appends the information of one kind about an export, as a reply to the option `number`.
pub fn push_info(output: &mut Vec<u8>, number: u32, kind: InfoKind, export: &ExportInfo, structured_replies: bool) {
    let kind_number = (kind as u16).to_be_bytes();
    let size = export.size_bytes.to_be_bytes();
    let flags = export.transmission_flags(structured_replies).to_be_bytes();
    let minimum = export.minimum_block_bytes.to_be_bytes();
    let preferred = export.preferred_block_bytes.to_be_bytes();
    let maximum = export.maximum_block_bytes.to_be_bytes();
    let parts: &[&[u8]] = match kind {
        InfoKind::Export => &[&kind_number, &size, &flags],
        InfoKind::Name => &[&kind_number, export.name.as_bytes()],
        InfoKind::Description => &[&kind_number, export.description.as_bytes()],
        InfoKind::BlockSize => &[&kind_number, &minimum, &preferred, &maximum],
    };
    push_option_reply(output, number, OptionReplyKind::Info, parts);
}

/// Takes one piece of information over into `export`. Unknown kinds and wrong lengths are passed over.
pub fn apply_info(export: &mut ExportInfo, data: &[u8]) {
    let [high, low, rest @ ..] = data else { return };
    match (InfoKind::from_number(u16::from_be_bytes([*high, *low])), rest.len()) {
        (Some(InfoKind::Export), 10) => {
            export.size_bytes = be64(rest, 0);
            export.set_transmission_flags(be16(rest, 8));
        }
        (Some(InfoKind::Name), _) => export.name = String::from_utf8_lossy(rest).into_owned(),
        (Some(InfoKind::Description), _) => export.description = String::from_utf8_lossy(rest).into_owned(),
        (Some(InfoKind::BlockSize), 12) => {
            export.minimum_block_bytes = be32(rest, 0);
            export.preferred_block_bytes = be32(rest, 4);
            export.maximum_block_bytes = be32(rest, 8);
        }
        _ => {}
    }
}

/// The data of the options info and go: the export's name and what the client wants to know.
pub fn push_info_request(output: &mut Vec<u8>, name: &str, kinds: &[InfoKind]) {
    output.extend_from_slice(&(name.len() as u32).to_be_bytes());
    output.extend_from_slice(name.as_bytes());
    output.extend_from_slice(&(kinds.len() as u16).to_be_bytes());
    kinds.iter().for_each(|&kind| output.extend_from_slice(&(kind as u16).to_be_bytes()));
}

/// What a client asked for with info or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest<'data> {
    /// The export's name; not yet known to be UTF-8.
    pub name: &'data [u8],
    /// Numbers of the kinds of information, two bytes each.
    kinds: &'data [u8],
}

impl<'data> InfoRequest<'data> {
    /// Reads the data of the options info and go; `None` if its lengths contradict each other.
    pub fn decode(data: &'data [u8]) -> Option<InfoRequest<'data>> {
        let (name_bytes, rest) = data.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*name_bytes) as usize)?;
        let (count, kinds) = rest.split_first_chunk::<2>()?;
        let is_consistent = kinds.len() == 2 * usize::from(u16::from_be_bytes(*count));
        is_consistent.then_some(InfoRequest { name, kinds })
    }

    /// Whether the client asked for this kind. O(number of kinds).
    pub fn asks_for(&self, kind: InfoKind) -> bool {
        self.kinds.chunks_exact(2).any(|number| InfoKind::from_number(be16(number, 0)) == Some(kind))
    }
}
