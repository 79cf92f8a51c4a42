//! A blocking client: for tests, benchmarks and the demonstration.
//!
//! There are two ways to use it. [`Client::read`], [`Client::write`] and their like do one thing and wait for it. The
//! `submit` calls and [`Client::receive`] keep as many requests under way as the client was made for, from one thread:
//!
//! ```text
//!   submit submit submit   receive -> tag 1   submit(1)   receive -> tag 0   submit(0)  ...
//! ```
//!
//! Submitted requests are sent together when the client next has to wait, so that a deep queue costs few system calls.
//! A server that answers before it has received everything cannot block the client for good. While a send has to wait,
//! what comes in is kept. Memory is bounded, and nothing is allocated per request once the buffers have grown.

use crate::connection::{Address, Patience, now, try_send};
use plimsoll_core::Span;
use plimsoll_protocols::nbd::error::{Errno, NbdError};
use plimsoll_protocols::nbd::export::ExportInfo;
use plimsoll_protocols::nbd::limits::OPTION_DATA_BYTES_MAX;
use plimsoll_protocols::nbd::option::{
    FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES, InfoKind, OPTION_REPLY_BYTES, OptionReplyKind, apply_info,
    decode_greeting, decode_option_reply, number, option, push_info_request,
};
use plimsoll_protocols::nbd::replies::{Completed, Progress, Replies};
use plimsoll_protocols::nbd::wire::{Command, CommandFlags, Request};
use rustix::event::PollFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use thiserror::Error;

/// Bytes that are gathered before they are sent unasked: about as many as a socket takes at once.
const OUTBOX_BYTES: usize = 256 * 1024;
/// What is kept at the most that the server does not take yet, bytes.
const OUTBOX_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Room for what comes in, bytes, to begin with.
const INBOX_BYTES: usize = 256 * 1024;
/// Most bytes that are kept while a send waits: two reads of the largest size.
const INBOX_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a client waits by default.
const TIMEOUT_DEFAULT: Span = Span::from_secs(30);

/// What went wrong.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The socket failed, the server closed it, or it took too long.
    #[error("{doing}: {error}")]
    Socket {
        /// What was being done.
        doing: &'static str,
        /// What happened.
        error: io::Error,
    },
    /// The server does not speak the protocol.
    #[error(transparent)]
    Protocol(#[from] NbdError),
    /// The server refused an option.
    #[error("the server refused option {option} ({kind:?}){}{text}", if text.is_empty() { "" } else { ": " })]
    Refused {
        /// Its number.
        option: u32,
        /// How.
        kind: OptionReplyKind,
        /// What the server had to say about it.
        text: String,
    },
    /// The server answered a request with an error.
    #[error("the server answered: {0}")]
    Answered(#[from] Errno),
    /// The tag is under way, or not below the client's depth.
    #[error("tag {tag} is under way or not below {depth_max}")]
    BadTag {
        /// The tag.
        tag: u32,
        /// Tags that there are.
        depth_max: u32,
    },
    /// Nothing is under way that could be received.
    #[error("nothing is under way")]
    NothingUnderWay,
    /// A waiting call while submitted requests are under way.
    #[error("{under_way} submitted requests are under way; receive them before a call that waits")]
    Busy {
        /// How many.
        under_way: u32,
    },
}

/// What a client asks for when it connects.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The export; empty for the default one.
    pub export_name: String,
    /// Asks for structured replies, and fails if the server has none.
    pub structured_replies: bool,
    /// Requests under way at the most; at least 1.
    pub depth_max: u32,
    /// How long to wait for the server before giving up.
    pub timeout: Span,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions { export_name: String::new(), structured_replies: true, depth_max: 1, timeout: TIMEOUT_DEFAULT }
    }
}

/// A connection in its transmission phase.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    export: ExportInfo,
    depth_max: u32,
    timeout: Span,
    replies: Replies,
    /// Not yet sent, from `outbox_start` on.
    outbox: Vec<u8>,
    outbox_start: usize,
    /// Received; `inbox_start..inbox_end` is not yet used.
    inbox: Vec<u8>,
    inbox_start: usize,
    inbox_end: usize,
}

impl Client {
    /// Connects and negotiates.
    pub fn connect(address: &Address, options: &ClientOptions) -> Result<Client, ClientError> {
        let socket = address.connect().map_err(|error| ClientError::Socket { doing: "connecting", error })?;
        Client::over(socket, options)
    }

    /// Negotiates over a stream socket that is connected.
    pub fn over(socket: OwnedFd, options: &ClientOptions) -> Result<Client, ClientError> {
        let mut client = Client::agreed(socket, ExportInfo::new(&options.export_name, 0), options);
        client.negotiate(options)?;
        Ok(client)
    }

    /// A client over a stream socket with `export` at its other end already: in this process, without a handshake.
    pub fn agreed(socket: OwnedFd, export: ExportInfo, options: &ClientOptions) -> Client {
        let depth_max = options.depth_max.max(1);
        Client {
            socket,
            export,
            depth_max,
            timeout: options.timeout,
            replies: Replies::new(depth_max),
            outbox: Vec::with_capacity(OUTBOX_BYTES),
            outbox_start: 0,
            inbox: vec![0; INBOX_BYTES],
            inbox_start: 0,
            inbox_end: 0,
        }
    }

    /// What the server said about the export.
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Reads `buffer.len()` bytes at `offset`, in pieces of the maximum block size.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), ClientError> {
        let piece_bytes = self.export.maximum_block_bytes as usize;
        for (index, piece) in buffer.chunks_mut(piece_bytes).enumerate() {
            let at = offset + (index * piece_bytes) as u64;
            self.one(Command::Read, CommandFlags::NONE, at, piece.len() as u32, &[], |_, at, bytes| {
                piece[at as usize..][..bytes.len()].copy_from_slice(bytes);
            })?;
        }
        Ok(())
    }

    /// Writes `data` at `offset`, in pieces of the maximum block size. `is_forced` makes each durable before its
    /// answer.
    pub fn write(&mut self, offset: u64, data: &[u8], is_forced: bool) -> Result<(), ClientError> {
        let piece_bytes = self.export.maximum_block_bytes as usize;
        let flags = if is_forced { CommandFlags::FUA } else { CommandFlags::NONE };
        for (index, piece) in data.chunks(piece_bytes).enumerate() {
            let at = offset + (index * piece_bytes) as u64;
            self.one(Command::Write, flags, at, piece.len() as u32, piece, |_, _, _| {})?;
        }
        Ok(())
    }

    /// Makes everything durable that was answered before.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.one(Command::Flush, CommandFlags::NONE, 0, 0, &[], |_, _, _| {})
    }

    /// Says that bytes are no longer needed.
    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.one(Command::Trim, CommandFlags::NONE, offset, length, &[], |_, _, _| {})
    }

    /// Makes bytes read as zero; `flags` may hold FUA, NO_HOLE and FAST_ZERO.
    pub fn write_zeroes(&mut self, offset: u64, length: u32, flags: CommandFlags) -> Result<(), ClientError> {
        self.one(Command::WriteZeroes, flags, offset, length, &[], |_, _, _| {})
    }

    /// Says goodbye and waits until the server has closed the connection.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let request =
            Request { flags: CommandFlags::NONE, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        self.outbox.extend_from_slice(&request.encode());
        self.send_submitted()?;
        while self.replies.under_way_count() > 0 {
            self.receive(|_, _, _| {})?;
        }
        match self.patience().receive(&self.socket, &mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ClientError::Socket {
                doing: "waiting for the server to close",
                error: io::Error::new(io::ErrorKind::InvalidData, "it sent more"),
            }),
            Err(error) => Err(ClientError::Socket { doing: "waiting for the server to close", error }),
        }
    }
}

/// Pipelining.
impl Client {
    /// How many requests are under way.
    pub fn under_way_count(&self) -> u32 {
        self.replies.under_way_count()
    }

    /// Submits a command without data. `tag` is the caller's number for it, below the depth that the client has. Waits
    /// only if the server has left 64 MiB of what was submitted untaken.
    pub fn submit(
        &mut self,
        tag: u32,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
    ) -> Result<(), ClientError> {
        let cookie = self
            .replies
            .begin(tag, command, offset, length)
            .ok_or(ClientError::BadTag { tag, depth_max: self.depth_max })?;
        let bytes = Request { flags, command, cookie, offset, length }.encode();
        self.make_room(bytes.len())?;
        self.outbox.extend_from_slice(&bytes);
        Ok(())
    }

    /// Submits a write. The data has been sent or copied when the call returns; with more than 256 KiB it waits until
    /// the server has taken it.
    pub fn submit_write(&mut self, tag: u32, flags: CommandFlags, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.submit(tag, Command::Write, flags, offset, data.len() as u32)?;
        if data.len() <= OUTBOX_BYTES {
            self.make_room(data.len())?;
            self.outbox.extend_from_slice(data);
            return Ok(());
        }
        self.send_submitted()?;
        self.send(data)
    }

    /// Sends what was gathered if so many bytes more are too many.
    fn make_room(&mut self, bytes: usize) -> Result<(), ClientError> {
        let gathered = self.outbox.len() - self.outbox_start + bytes;
        if gathered > OUTBOX_BYTES_MAX {
            self.send_submitted()
        } else if gathered > OUTBOX_BYTES {
            self.send_some()
        } else {
            Ok(())
        }
    }

    /// Sends of what was submitted as much as the socket takes now.
    fn send_some(&mut self) -> Result<(), ClientError> {
        while self.outbox_start < self.outbox.len() {
            let sent = try_send(self.socket.as_fd(), &self.outbox[self.outbox_start..]);
            match sent.map_err(|error| ClientError::Socket { doing: "sending", error })? {
                0 => break,
                sent => self.outbox_start += sent,
            }
        }
        // What is left moves only where it is less than what has gone.
        if self.outbox_start > self.outbox.len() / 2 {
            self.outbox.drain(..std::mem::take(&mut self.outbox_start));
        }
        Ok(())
    }

    /// Sends submitted requests without waiting for answers, but until the server has taken them.
    pub fn send_submitted(&mut self) -> Result<(), ClientError> {
        let (mut outbox, start) = (std::mem::take(&mut self.outbox), std::mem::take(&mut self.outbox_start));
        let sent = self.send(&outbox[start..]);
        outbox.clear();
        self.outbox = outbox;
        sent
    }

    /// Sends submitted requests as the server takes them, and waits at most `at_most` for an answer to
    /// [`receive`](Self::receive). Answers with whether there is something, which may be only the beginning of an
    /// answer.
    pub fn wait(&mut self, at_most: Span) -> Result<bool, ClientError> {
        self.send_some()?;
        Ok(self.inbox_start < self.inbox_end
            || self.wait_for_input(&Patience { deadline: now() + at_most, stop: None })?)
    }

    /// Whether something came before the end of `patience`; meanwhile sends what the server takes.
    fn wait_for_input(&mut self, patience: &Patience<'_>) -> Result<bool, ClientError> {
        loop {
            self.send_some()?;
            let wanted = if self.outbox.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            match patience.wait(self.socket.as_fd(), wanted) {
                Ok(PollFlags::OUT) => continue,
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
                Err(error) => return Err(ClientError::Socket { doing: "waiting", error }),
            }
        }
    }

    /// Waits until one of the requests under way has been answered.
    ///
    /// Read data goes to `data(tag, at, bytes)` as it comes, in pieces, and pieces of different requests take turns.
    /// `at` counts from the first byte of the request.
    pub fn receive(&mut self, mut data: impl FnMut(u32, u32, &[u8])) -> Result<Completed, ClientError> {
        loop {
            if self.replies.under_way_count() == 0 {
                return Err(ClientError::NothingUnderWay);
            }
            let mut input = &self.inbox[self.inbox_start..self.inbox_end];
            let progress = self.replies.advance(&mut input, &mut data)?;
            self.inbox_start = self.inbox_end - input.len();
            match progress {
                Progress::Completed(completed) => return Ok(completed),
                Progress::NeedsBytes(_) => {
                    // If nothing comes, the receiver says so.
                    self.wait_for_input(&self.patience())?;
                    self.fill_inbox()?;
                }
            }
        }
    }

    /// One request from its submission to its answer.
    fn one(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
        payload: &[u8],
        data: impl FnMut(u32, u32, &[u8]),
    ) -> Result<(), ClientError> {
        match self.replies.under_way_count() {
            0 => {}
            under_way => return Err(ClientError::Busy { under_way }),
        }
        match command {
            Command::Write => self.submit_write(0, flags, offset, payload)?,
            _ => self.submit(0, command, flags, offset, length)?,
        }
        Ok(self.receive(data)?.result?)
    }

    fn patience(&self) -> Patience<'static> {
        Patience { deadline: now() + self.timeout, stop: None }
    }

    /// Sends everything, and keeps incoming bytes meanwhile: the server may not continue before it has sent them.
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), ClientError> {
        const DOING: &str = "sending";
        let error = |error| ClientError::Socket { doing: DOING, error };
        while !bytes.is_empty() {
            let sent = try_send(self.socket.as_fd(), bytes).map_err(error)?;
            bytes = &bytes[sent..];
            if sent > 0 {
                continue;
            }
            let has_room = self.inbox_end - self.inbox_start < INBOX_BYTES_MAX;
            let wanted = if has_room { PollFlags::OUT | PollFlags::IN } else { PollFlags::OUT };
            let ready = self.patience().wait(self.socket.as_fd(), wanted).map_err(error)?;
            if ready.contains(PollFlags::IN) {
                self.fill_inbox()?;
            }
        }
        Ok(())
    }

    /// Receives at least one byte behind what is in the inbox.
    fn fill_inbox(&mut self) -> Result<(), ClientError> {
        if self.inbox_start == self.inbox_end {
            (self.inbox_start, self.inbox_end) = (0, 0);
        } else if self.inbox_end == self.inbox.len() && self.inbox_start > 0 {
            self.inbox.copy_within(self.inbox_start.., 0);
            (self.inbox_start, self.inbox_end) = (0, self.inbox_end - self.inbox_start);
        } else if self.inbox_end == self.inbox.len() {
            self.inbox.resize(2 * self.inbox_end, 0);
        }
        let patience = self.patience();
        let received = match patience.receive(&self.socket, &mut self.inbox[self.inbox_end..]) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            other => other,
        };
        self.inbox_end += received.map_err(|error| ClientError::Socket { doing: "receiving", error })?;
        Ok(())
    }
}

/// The handshake.
impl Client {
    fn negotiate(&mut self, options: &ClientOptions) -> Result<(), ClientError> {
        let greeting: [u8; GREETING_BYTES] = self.receive_array()?;
        let flags = u32::from(decode_greeting(&greeting)?) & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        self.outbox.extend_from_slice(&flags.to_be_bytes());
        if options.structured_replies {
            self.ask(number::STRUCTURED_REPLY, &[])?;
        }
        let mut request = Vec::new();
        push_info_request(&mut request, &options.export_name, &[InfoKind::Name, InfoKind::BlockSize]);
        self.ask(number::GO, &request)?;
        // Servers may have block sizes that the client's arithmetic must not meet, such as 0.
        let export = &mut self.export;
        export.minimum_block_bytes = export.minimum_block_bytes.max(1);
        export.maximum_block_bytes = export.maximum_block_bytes.clamp(
            export.minimum_block_bytes,
            plimsoll_protocols::nbd::limits::PAYLOAD_BYTES_MAX.max(export.minimum_block_bytes),
        );
        Ok(())
    }

    /// Sends one option and takes its replies, up to the last.
    fn ask(&mut self, number: u32, data: &[u8]) -> Result<(), ClientError> {
        self.outbox.extend_from_slice(&option(number, data.len() as u32));
        self.outbox.extend_from_slice(data);
        self.send_submitted()?;
        loop {
            let header: [u8; OPTION_REPLY_BYTES] = self.receive_array()?;
            let reply = decode_option_reply(&header)?;
            if reply.data_bytes as usize > OPTION_DATA_BYTES_MAX {
                return Err(NbdError::OptionReplyTooLong { got: reply.data_bytes }.into());
            }
            let data = self.receive_bytes(reply.data_bytes as usize)?;
            match reply.kind {
                OptionReplyKind::Acknowledged => return Ok(()),
                OptionReplyKind::Info => apply_info(&mut self.export, &data),
                kind if kind.is_error() => {
                    // The server's text, which ends in a message of ours.
                    let text = String::from_utf8_lossy(&data).chars().flat_map(char::escape_debug).collect();
                    return Err(ClientError::Refused { option: number, kind, text });
                }
                _ => {}
            }
        }
    }

    fn receive_array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.receive_bytes(N)?);
        Ok(bytes)
    }

    fn receive_bytes(&mut self, count: usize) -> Result<Vec<u8>, ClientError> {
        while self.inbox_end - self.inbox_start < count {
            self.fill_inbox()?;
        }
        let bytes = self.inbox[self.inbox_start..][..count].to_vec();
        self.inbox_start += count;
        Ok(bytes)
    }
}
