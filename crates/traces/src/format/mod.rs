//! The formats, one file each, and what the reader and the writer need to know of them.

mod alibaba;
mod blkparse;
mod blktrace;
mod cloudphysics;
mod disksim;
mod encode;
mod fio;
mod hp;
mod lis;
mod mqsim;
mod msr;
mod spc;
mod systor;
mod tencent;
mod vscsi;

pub use blktrace::BlockAction;
pub(crate) use encode::Encode;

use crate::fault::{Fault, FieldError};
use crate::record::TraceRecord;
use crate::source::Source;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A trace format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Storage Performance Council, UMass.
    Spc,
    /// MSR Cambridge, comma-separated.
    Msr,
    /// SYSTOR'17.
    Systor17,
    /// Alibaba block traces.
    Alibaba,
    /// Tencent CBS.
    Tencent,
    /// CloudPhysics, comma-separated.
    CloudPhysics,
    /// CloudPhysics, binary, versions 1 and 2.
    Vscsi,
    /// fio's iolog, version 2.
    Fio2,
    /// fio's iolog, version 3.
    Fio3,
    /// Linux `blktrace`, binary.
    Blktrace,
    /// Linux `blkparse`, default text.
    Blkparse,
    /// DiskSim's default text.
    DiskSim,
    /// MQSim's text.
    MqSim,
    /// HP `hplajw` with classes.
    Hp,
    /// The ARC paper's `.lis`.
    Lis,
}

/// What a format's file says about it.
pub(crate) struct Info {
    name: &'static str,
    clock: &'static str,
    rule: &'static str,
}

impl Format {
    /// Every format.
    pub const ALL: &[Format] = &[
        Format::Spc,
        Format::Msr,
        Format::Systor17,
        Format::Alibaba,
        Format::Tencent,
        Format::CloudPhysics,
        Format::Vscsi,
        Format::Fio2,
        Format::Fio3,
        Format::Blktrace,
        Format::Blkparse,
        Format::DiskSim,
        Format::MqSim,
        Format::Hp,
        Format::Lis,
    ];
    /// The formats that a [`Writer`](crate::Writer) writes.
    pub const WRITABLE: &[Format] = &[Format::Fio3, Format::Msr, Format::Blktrace];

    const fn info(self) -> &'static Info {
        match self {
            Format::Spc => &spc::INFO,
            Format::Msr => &msr::INFO,
            Format::Systor17 => &systor::INFO,
            Format::Alibaba => &alibaba::INFO,
            Format::Tencent => &tencent::INFO,
            Format::CloudPhysics => &cloudphysics::INFO,
            Format::Vscsi => &vscsi::INFO,
            Format::Fio2 => &fio::INFO_2,
            Format::Fio3 => &fio::INFO_3,
            Format::Blktrace => &blktrace::INFO,
            Format::Blkparse => &blkparse::INFO,
            Format::DiskSim => &disksim::INFO,
            Format::MqSim => &mqsim::INFO,
            Format::Hp => &hp::INFO,
            Format::Lis => &lis::INFO,
        }
    }

    /// Its name, as a user writes it.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// What the zero of [`TraceRecord::at`] is.
    pub const fn clock(self) -> &'static str {
        self.info().clock
    }

    /// By what the format is recognised.
    pub const fn rule(self) -> &'static str {
        self.info().rule
    }

    /// Whether it is binary, so that errors name bytes and not lines.
    pub const fn is_binary(self) -> bool {
        matches!(self, Format::Vscsi | Format::Blktrace)
    }

    /// The names of `formats`, for a message.
    pub(crate) fn names(formats: &[Format]) -> String {
        formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
    }

    /// Whether a first line that the format's reader takes is as its writers write it.
    pub(crate) fn is_typical(self, line: &str) -> bool {
        self != Format::DiskSim || disksim::is_typical(line)
    }

    /// Whether binary content that begins with `sample` is this format.
    pub(crate) fn fits_binary(self, sample: &[u8]) -> bool {
        match self {
            Format::Vscsi => vscsi::fits(sample),
            Format::Blktrace => blktrace::fits(sample),
            _ => false,
        }
    }

    /// A reader for content that begins with `sample`.
    pub(crate) fn decoder(self, action: BlockAction, sample: &[u8]) -> Decoder {
        match self {
            Format::Spc => Decoder::lines(spc::Spc),
            Format::Msr => Decoder::lines(msr::Msr::new()),
            Format::Systor17 => Decoder::lines(systor::Systor17::new()),
            Format::Alibaba => Decoder::lines(alibaba::Alibaba::new()),
            Format::Tencent => Decoder::lines(tencent::Tencent::new()),
            Format::CloudPhysics => Decoder::lines(cloudphysics::CloudPhysics::new()),
            Format::Vscsi => Decoder::binary(vscsi::Vscsi::new(sample)),
            Format::Fio2 => Decoder::lines(fio::Fio::new(fio::Version::Two)),
            Format::Fio3 => Decoder::lines(fio::Fio::new(fio::Version::Three)),
            Format::Blktrace => Decoder::binary(blktrace::Blktrace::new(action)),
            Format::Blkparse => Decoder::lines(blkparse::Blkparse::new(action)),
            Format::DiskSim => Decoder::lines(disksim::DiskSim),
            Format::MqSim => Decoder::lines(mqsim::MqSim),
            Format::Hp => Decoder::lines(hp::Hp::new()),
            Format::Lis => Decoder::lines(lis::Lis),
        }
    }

    /// A writer, if there is one ([`Format::WRITABLE`]).
    pub(crate) fn encoder(self) -> Option<Box<dyn Encode + Send>> {
        match self {
            Format::Fio3 => Some(Box::new(fio::FioEncoder::new())),
            Format::Msr => Some(Box::new(msr::MsrEncoder)),
            Format::Blktrace => Some(Box::new(blktrace::BlktraceEncoder::default())),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// A name that is no format's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("format: got {got:?}, allowed {}", Format::names(Format::ALL))]
pub struct ParseFormatError {
    got: String,
}

impl FromStr for Format {
    type Err = ParseFormatError;
    fn from_str(name: &str) -> Result<Format, ParseFormatError> {
        let found = Format::ALL.iter().find(|format| format.name() == name);
        found.copied().ok_or_else(|| ParseFormatError { got: name.to_owned() })
    }
}

/// A text format: one line is at most one record.
pub(crate) trait LineFormat {
    /// What a line says, which is never empty and has no blanks around it; nothing if it is a header or another event.
    fn record(&mut self, line: &str) -> Result<Option<TraceRecord>, FieldError>;

    /// Whether the request of the last line had a flush before it, in the same line.
    fn is_flush_before(&self) -> bool {
        false
    }

    /// What the trace calls a device that it named.
    fn device_name(&self, _device: u32) -> Option<String> {
        None
    }
}

/// What stands next in a binary trace.
pub(crate) enum Event {
    /// A request.
    Request(TraceRecord),
    /// A request, and a flush before it in the same record, which is left out.
    FlushAndRequest(TraceRecord),
    /// Something else, which is left out.
    Other,
    /// Nothing more.
    End,
}

/// A binary format.
pub(crate) trait BinaryFormat {
    /// Takes the next record from `source`.
    fn record(&mut self, source: &mut Source) -> Result<Event, Fault>;
}

/// A format's reader.
pub(crate) enum Decoder {
    Lines(Box<dyn LineFormat + Send>),
    Binary(Box<dyn BinaryFormat + Send>),
}

impl Decoder {
    fn lines(format: impl LineFormat + Send + 'static) -> Decoder {
        Decoder::Lines(Box::new(format))
    }

    fn binary(format: impl BinaryFormat + Send + 'static) -> Decoder {
        Decoder::Binary(Box::new(format))
    }

    /// What stands next in `source`.
    pub fn next(&mut self, source: &mut Source) -> Result<Event, Fault> {
        let format = match self {
            Decoder::Lines(format) => format,
            Decoder::Binary(format) => return format.record(source),
        };
        let Some(bytes) = source.line()? else { return Ok(Event::End) };
        let line = std::str::from_utf8(bytes)
            .map_err(|_| FieldError::new("line", &String::from_utf8_lossy(bytes), "text in UTF-8"))?
            .trim();
        if line.is_empty() {
            return Ok(Event::Other);
        }
        Ok(match format.record(line)? {
            None => Event::Other,
            Some(record) if format.is_flush_before() => Event::FlushAndRequest(record),
            Some(record) => Event::Request(record),
        })
    }
}
