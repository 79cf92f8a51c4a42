//! The server's half of the handshake: fixed newstyle negotiation as a state machine without I/O.
//!
//! The owner of the connection sends [`Handshake::greeting`]. Then it repeatedly receives bytes, gives them to
//! [`Handshake::advance`] and sends the output that this appended. It stops when the step says that the handshake is
//! over.
//!
//! ```text
//!   ClientFlags --4 bytes--> OptionHeader --16 bytes--> OptionData --n bytes--> OptionHeader ..
//!                                  |                        |
//!                                  +-- too long: Ended      +-- go, export name: Negotiated     abort: Ended
//! ```
//!
//! The machine takes from its input exactly one message at a time and nothing behind the message that ends the
//! handshake. What a client sends ahead belongs to the transmission phase. [`HandshakeStep::NeedsBytes`] says how many
//! bytes are missing, so that a caller that reads no more than that never holds a byte too many.
//!
//! Memory is bounded: one option of at most [`OPTION_DATA_BYTES_MAX`] bytes, and the output of one option. Time is
//! bounded by [`OPTIONS_MAX`] options here and by the caller's deadline.

use super::error::NbdError;
use super::export::{ExportInfo, find_export};
use super::limits::{OPTION_DATA_BYTES_MAX, STRING_BYTES_MAX};
use super::option::{
    CLIENT_FLAGS_BYTES, EXPORT_NAME_ZEROES_BYTES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES, InfoKind,
    InfoRequest, OPTION_BYTES, OptionReplyKind, decode_option, greeting, number, push_info, push_option_reply,
};
use super::wire::be32;
use thiserror::Error;

/// Options in one handshake at the most. A client needs about five; one that lists exports and then asks about each
/// needs as many as there are.
pub const OPTIONS_MAX: u32 = 1024;

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The export, as it was when the handshake began. To a client that did not ask for the block sizes, its blocks are
    /// bytes.
    pub export: ExportInfo,
    /// Reads are answered with chunks.
    pub structured_replies: bool,
    /// The client asked for the block sizes and so must keep to them; the server checks in any case.
    pub block_size_known: bool,
}

/// Why a handshake ended without an export.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Ended {
    /// The client wanted no more. Not a failure.
    #[error("the client ended the handshake")]
    Aborted,
    /// The client does not speak the protocol.
    #[error(transparent)]
    Protocol(#[from] NbdError),
    /// The client set flags that the server had not offered.
    #[error("client flags {got:#x}, allowed are 0x0 to 0x3")]
    UnknownClientFlags {
        /// The flags.
        got: u32,
    },
    /// An option was longer than is received.
    #[error("option {number} with {got} bytes of data, allowed are {allowed}")]
    OptionTooLong {
        /// The option.
        number: u32,
        /// Bytes that it announced.
        got: u32,
        /// Bytes that it may have.
        allowed: usize,
    },
    /// A client that can only be answered by closing asked for an export that is not there.
    #[error("the client asked for an export that does not exist")]
    UnknownExport,
    /// The client never came to the point.
    #[error("more than {OPTIONS_MAX} options")]
    TooManyOptions,
}

/// What is to be done after a call of [`Handshake::advance`] and after the output has been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Receive; so many bytes are missing to the end of the message at least.
    NeedsBytes(usize),
    /// Transmission begins.
    Negotiated(Box<Negotiated>),
    /// Close.
    Ended(Ended),
}

/// What the machine waits for.
#[derive(Clone, Copy, Debug)]
enum AwaitedMessage {
    ClientFlags,
    OptionHeader,
    OptionData { number: u32, data_bytes: usize },
}

/// One handshake.
#[derive(Debug)]
pub struct Handshake {
    awaited: AwaitedMessage,
    /// The part of the awaited message that has come.
    message: Vec<u8>,
    option_count: u32,
    no_zeroes: bool,
    structured_replies: bool,
}

impl Default for Handshake {
    fn default() -> Self {
        Handshake::new()
    }
}

impl Handshake {
    /// A handshake of which nothing has happened yet.
    pub fn new() -> Handshake {
        Handshake {
            awaited: AwaitedMessage::ClientFlags,
            message: Vec::new(),
            option_count: 0,
            no_zeroes: false,
            structured_replies: false,
        }
    }

    /// What the server says first.
    pub fn greeting() -> [u8; GREETING_BYTES] {
        greeting()
    }

    /// Takes bytes from the front of `input`, up to the end of one message, and appends the answer to `output`.
    ///
    /// `exports` must be the same list during one handshake. After a step other than [`HandshakeStep::NeedsBytes`] the
    /// handshake is over and must not be advanced again.
    pub fn advance(&mut self, input: &mut &[u8], exports: &[ExportInfo], output: &mut Vec<u8>) -> HandshakeStep {
        let missing = self.message_bytes() - self.message.len();
        let (taken, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        self.message.extend_from_slice(taken);
        if self.message.len() < self.message_bytes() {
            return HandshakeStep::NeedsBytes(self.message_bytes() - self.message.len());
        }
        let message = std::mem::take(&mut self.message);
        let step = self.message_came(&message, exports, output).unwrap_or_else(HandshakeStep::Ended);
        self.message = message;
        self.message.clear();
        step
    }

    /// Bytes of the message that is awaited.
    fn message_bytes(&self) -> usize {
        match self.awaited {
            AwaitedMessage::ClientFlags => CLIENT_FLAGS_BYTES,
            AwaitedMessage::OptionHeader => OPTION_BYTES,
            AwaitedMessage::OptionData { data_bytes, .. } => data_bytes,
        }
    }

    fn message_came(
        &mut self,
        message: &[u8],
        exports: &[ExportInfo],
        output: &mut Vec<u8>,
    ) -> Result<HandshakeStep, Ended> {
        match self.awaited {
            AwaitedMessage::ClientFlags => {
                let got = be32(message, 0);
                if got & !(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
                    return Err(Ended::UnknownClientFlags { got });
                }
                self.no_zeroes = got & FLAG_NO_ZEROES != 0;
                Ok(self.awaits_option())
            }
            AwaitedMessage::OptionHeader => {
                let mut header = [0; OPTION_BYTES];
                header.copy_from_slice(message);
                let (number, data_bytes) = decode_option(&header)?;
                self.option_begins(number, data_bytes, output)?;
                match data_bytes {
                    0 => self.option_came(number, &[], exports, output),
                    _ => Ok(HandshakeStep::NeedsBytes(self.message_bytes())),
                }
            }
            AwaitedMessage::OptionData { number, .. } => self.option_came(number, message, exports, output),
        }
    }

    fn awaits_option(&mut self) -> HandshakeStep {
        self.awaited = AwaitedMessage::OptionHeader;
        HandshakeStep::NeedsBytes(OPTION_BYTES)
    }

    /// Refuses an option by its number and length alone, before a byte of its data is received.
    fn option_begins(&mut self, number: u32, data_bytes: u32, output: &mut Vec<u8>) -> Result<(), Ended> {
        self.option_count += 1;
        if self.option_count > OPTIONS_MAX {
            return Err(Ended::TooManyOptions);
        }
        // An export name has no room for an error reply: the only answer is to close.
        let can_be_answered = number != number::EXPORT_NAME;
        let allowed = if can_be_answered { OPTION_DATA_BYTES_MAX } else { STRING_BYTES_MAX };
        if data_bytes as usize > allowed {
            if can_be_answered {
                push_option_reply(output, number, OptionReplyKind::TooBig, &[]);
            }
            return Err(Ended::OptionTooLong { number, got: data_bytes, allowed });
        }
        self.awaited = AwaitedMessage::OptionData { number, data_bytes: data_bytes as usize };
        Ok(())
    }

    fn option_came(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &[ExportInfo],
        output: &mut Vec<u8>,
    ) -> Result<HandshakeStep, Ended> {
        let mut answer = |kind| push_option_reply(output, number, kind, &[]);
        match number {
            number::EXPORT_NAME => return self.export_name_came(data, exports, output),
            number::INFO | number::GO => return Ok(self.info_request_came(number, data, exports, output)),
            number::ABORT => {
                answer(OptionReplyKind::Acknowledged);
                return Err(Ended::Aborted);
            }
            number::LIST | number::STRUCTURED_REPLY if !data.is_empty() => answer(OptionReplyKind::Invalid),
            number::STRUCTURED_REPLY => {
                self.structured_replies = true;
                answer(OptionReplyKind::Acknowledged);
            }
            number::LIST => {
                for export in exports.iter().filter(|export| !export.is_hidden) {
                    let (name, description) = (export.name.as_bytes(), export.description.as_bytes());
                    let name_bytes = (name.len() as u32).to_be_bytes();
                    push_option_reply(output, number, OptionReplyKind::Server, &[&name_bytes, name, description]);
                }
                push_option_reply(output, number, OptionReplyKind::Acknowledged, &[]);
            }
            _ => answer(OptionReplyKind::Unsupported),
        }
        Ok(self.awaits_option())
    }

    fn export_name_came(
        &mut self,
        name: &[u8],
        exports: &[ExportInfo],
        output: &mut Vec<u8>,
    ) -> Result<HandshakeStep, Ended> {
        let export = find_export(exports, name).ok_or(Ended::UnknownExport)?;
        output.extend_from_slice(&export.size_bytes.to_be_bytes());
        output.extend_from_slice(&export.transmission_flags(self.structured_replies).to_be_bytes());
        if !self.no_zeroes {
            output.extend_from_slice(&[0; EXPORT_NAME_ZEROES_BYTES]);
        }
        Ok(self.negotiated(export, false))
    }

    fn info_request_came(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &[ExportInfo],
        output: &mut Vec<u8>,
    ) -> HandshakeStep {
        let refusal = match InfoRequest::decode(data) {
            Some(request) if request.name.len() > STRING_BYTES_MAX => OptionReplyKind::TooBig,
            Some(request) => match find_export(exports, request.name) {
                Some(export) => return self.info_sent(number, &request, export, output),
                None => OptionReplyKind::UnknownExport,
            },
            None => OptionReplyKind::Invalid,
        };
        push_option_reply(output, number, refusal, &[]);
        self.awaits_option()
    }

    fn info_sent(
        &mut self,
        number: u32,
        request: &InfoRequest<'_>,
        export: &ExportInfo,
        output: &mut Vec<u8>,
    ) -> HandshakeStep {
        push_info(output, number, InfoKind::Export, export, self.structured_replies);
        for kind in [InfoKind::Name, InfoKind::Description, InfoKind::BlockSize] {
            if request.asks_for(kind) {
                push_info(output, number, kind, export, self.structured_replies);
            }
        }
        push_option_reply(output, number, OptionReplyKind::Acknowledged, &[]);
        match number {
            number::GO => self.negotiated(export, request.asks_for(InfoKind::BlockSize)),
            _ => self.awaits_option(),
        }
    }

    fn negotiated(&self, export: &ExportInfo, block_size_known: bool) -> HandshakeStep {
        let mut export = export.clone();
        if !block_size_known {
            // What the specification asks of a server: "a default minimum block size of 1" ("Block size constraints").
            export.minimum_block_bytes = 1;
        }
        HandshakeStep::Negotiated(Box::new(Negotiated {
            export,
            structured_replies: self.structured_replies,
            block_size_known,
        }))
    }
}
