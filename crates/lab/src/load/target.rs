//! The target of a load: an NBD server, or a file or disk past the page cache.

use super::LoadError;
use super::generator::Connection;
use super::mix::{Mix, Request};
use crate::host::live::clock;
use plimsoll_core::{Span, Time};
use plimsoll_engine::measure::{Requests, Target};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::client::{ClientError, ClientOptions};
use plimsoll_serve::nbd::{Address, Client, NbdUri};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Bytes of what is written, over and over, at the least.
const CONTENT_BYTES_MIN: usize = 1 << 20;
/// Where a write's content begins is a multiple of this.
const SECTOR_BYTES: usize = 512;
/// Different words of eight bytes in every other word of it.
const WORDS: usize = 64;

/// A target, as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetName {
    /// An export of an NBD server.
    Nbd {
        /// Where, and its name.
        uri: NbdUri,
        /// As the user wrote it.
        text: String,
    },
    /// A file or disk.
    Path(PathBuf),
}

impl FromStr for TargetName {
    type Err = String;

    fn from_str(text: &str) -> Result<TargetName, String> {
        let nbd = |uri| TargetName::Nbd { uri, text: text.to_owned() };
        if text.contains("://") {
            return text.parse().map(nbd).map_err(|error: plimsoll_serve::nbd::NbdUriError| error.to_string());
        }
        if text.starts_with("unix:") || text.starts_with("tcp:") {
            let address: Result<Address, _> = text.parse();
            let uri = |address| NbdUri { address, export_name: String::new() };
            return address.map(|address| nbd(uri(address))).map_err(|error| error.to_string());
        }
        match text {
            "" => Err("got an empty path".to_owned()),
            path => Ok(TargetName::Path(path.into())),
        }
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetName::Nbd { text, .. } => out.write_str(text),
            TargetName::Path(path) => write!(out, "{}", path.display()),
        }
    }
}

impl TargetName {
    /// Connects, or opens the file; what the mix needs is there then.
    pub(super) fn connect(
        &self,
        mix: &Mix,
        slots: u32,
        is_destructive: bool,
    ) -> Result<Box<dyn Connection>, LoadError> {
        // An emulated disk's answers are awaited to the microsecond; a refusal costs accuracy alone.
        let _ = rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN));
        let is_destructive = is_destructive && mix.has_writes();
        let lengths = mix.lengths();
        // More than a request has, so that two in a row differ.
        let content = content(CONTENT_BYTES_MIN.max(*lengths.end() as usize + SECTOR_BYTES));
        match self {
            TargetName::Path(path) => {
                let target = Target::open_existing(path, is_destructive).map_err(LoadError::Target)?;
                let requests = Requests::new(target, slots, *lengths.end(), &content).map_err(LoadError::Target)?;
                Ok(Box::new(Device { requests, path: path.clone() }))
            }
            TargetName::Nbd { uri, text } => {
                let options =
                    ClientOptions { export_name: uri.export_name.clone(), depth_max: slots, ..Default::default() };
                let connect = |error| LoadError::Connect { target: text.clone(), error };
                let client = Client::connect(&uri.address, &options).map_err(connect)?;
                let server = NbdServer { client, content, sent: 0, name: text.clone() };
                server.check(mix)?;
                Ok(Box::new(server))
            }
        }
    }
}

/// Bytes that compress to a bit more than half, as data worth compressing does: half the words are random, half come
/// from a few.
fn content(bytes: usize) -> Vec<u8> {
    let mut random = Pcg64Mcg::new(1);
    let words: Vec<u64> = (0..WORDS).map(|_| random.next_u64()).collect();
    let mut word = |number: usize| match (number % 2, random.next_u64()) {
        (0, drawn) => drawn,
        (_, drawn) => words[drawn as usize % WORDS],
    };
    (0..bytes / size_of::<u64>()).flat_map(|number| word(number).to_le_bytes()).collect()
}

/// An NBD server.
struct NbdServer {
    client: Client,
    content: Vec<u8>,
    /// Bytes that were written.
    sent: usize,
    name: String,
}

impl NbdServer {
    /// Whether its export takes what the mix asks.
    fn check(&self, mix: &Mix) -> Result<(), LoadError> {
        let (name, export, lengths) = (&self.name, self.client.export(), mix.lengths());
        let refused = |got: String, allowed: String| {
            Err(LoadError::Input(format!("{name}: --mix {mix}: got {got}, allowed {allowed}")))
        };
        let (least, most) = (export.minimum_block_bytes, export.maximum_block_bytes);
        let is_allowed = |length: &&u32| length.is_multiple_of(least) && **length <= most;
        if let Some(length) = [lengths.start(), lengths.end()].into_iter().find(|length| !is_allowed(length)) {
            return refused(format!("requests of {length} bytes"), format!("multiples of {least} up to {most}"));
        }
        match export.is_read_only && mix.has_writes() {
            true => refused("writes".to_owned(), "reads: the export is read-only".to_owned()),
            false => Ok(()),
        }
    }

    fn failed(&self, error: ClientError) -> LoadError {
        LoadError::Server { target: self.name.clone(), error }
    }
}

impl Connection for NbdServer {
    fn size_bytes(&self) -> u64 {
        self.client.export().size_bytes
    }

    fn now(&self) -> Time {
        clock::now()
    }

    fn processor_time(&self) -> Span {
        clock::thread_processor_time()
    }

    fn submit(&mut self, slot: u32, request: &Request) -> Result<(), LoadError> {
        let &Request { is_read, offset, length, .. } = request;
        let submitted = if is_read {
            self.client.submit(slot, Command::Read, CommandFlags::NONE, offset, length)
        } else {
            // Other bytes from write to write, so that what stands at a place changes.
            let start = self.sent % (self.content.len() - length as usize + 1) / SECTOR_BYTES * SECTOR_BYTES;
            self.sent += length as usize + SECTOR_BYTES;
            self.client.submit_write(slot, CommandFlags::NONE, offset, &self.content[start..][..length as usize])
        };
        submitted.map_err(|error| self.failed(error))
    }

    fn wait(&mut self, at_most: Span, done: &mut Vec<u32>) -> Result<(), LoadError> {
        let has_come = self.client.wait(at_most).map_err(|error| self.failed(error))?;
        if has_come {
            let completed = self.client.receive(|_, _, _| {}).map_err(|error| self.failed(error))?;
            completed.result.map_err(|errno| self.failed(errno.into()))?;
            done.push(completed.tag);
        }
        Ok(())
    }

    fn silent(&self, silence: Span, under_way: u32) -> LoadError {
        LoadError::Silence { target: self.name.clone(), silence, under_way }
    }
}

/// A file or disk.
struct Device {
    requests: Requests,
    path: PathBuf,
}

impl Connection for Device {
    fn size_bytes(&self) -> u64 {
        self.requests.size_bytes()
    }

    fn now(&self) -> Time {
        clock::now()
    }

    fn processor_time(&self) -> Span {
        clock::thread_processor_time()
    }

    fn submit(&mut self, slot: u32, request: &Request) -> Result<(), LoadError> {
        self.requests.submit(slot, request.is_read, request.offset, request.length);
        Ok(())
    }

    fn wait(&mut self, at_most: Span, done: &mut Vec<u32>) -> Result<(), LoadError> {
        self.requests.wait(at_most, done).map_err(LoadError::Device)
    }

    fn silent(&self, silence: Span, under_way: u32) -> LoadError {
        LoadError::Silence { target: self.path.display().to_string(), silence, under_way }
    }
}
