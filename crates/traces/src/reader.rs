//! Reading a trace, record by record.

use crate::compression::decompressed;
use crate::detect::{Undetected, detect};
use crate::error::TraceError;
use crate::format::{BlockAction, Decoder, Event, Format};
use crate::order::{Order, Window};
use crate::record::TraceRecord;
use crate::source::Source;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How a trace is read; the default detects the format, sorts by time and takes queue events.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    /// The format, or nothing to detect it.
    pub format: Option<Format>,
    /// In which order records are handed out.
    pub order: Order,
    /// Which event of a request counts, for `blktrace` and `blkparse`.
    pub action: BlockAction,
}

/// A trace that is being read: an iterator over its records.
///
/// After an error nothing follows; all records before it, in the file's order, were handed out first.
pub struct Reader {
    file: String,
    format: Format,
    source: Source,
    decoder: Decoder,
    window: Window,
    left_out: u64,
    state: State,
}

/// Whether more is to come from the file.
enum State {
    Reading,
    /// What stopped it is reported when the window is empty.
    Failed(Box<TraceError>),
    Ended,
}

/// Opens a trace in `format`, or in the format that its content shows, sorted by time.
pub fn open(path: impl AsRef<Path>, format: Option<Format>) -> Result<Reader, TraceError> {
    Reader::open(path, ReadOptions { format, ..ReadOptions::default() })
}

impl Reader {
    /// Opens the trace in the file `path`. Errors: no file, or no single format that fits.
    pub fn open(path: impl AsRef<Path>, options: ReadOptions) -> Result<Reader, TraceError> {
        let file = path.as_ref().display().to_string();
        match File::open(path) {
            Ok(input) => Reader::new(&file, input, options),
            Err(source) => Err(TraceError::Open { file, source }),
        }
    }

    /// Reads a trace from `input`, which errors call `file`.
    pub fn new(file: &str, input: impl Read + Send + 'static, options: ReadOptions) -> Result<Reader, TraceError> {
        let failed = |source| TraceError::Open { file: file.to_owned(), source };
        let (mut source, sample) = Source::new(decompressed(Box::new(input)).map_err(failed)?);
        let format = match options.format.map_or_else(|| detect(&sample), Ok) {
            Ok(format) => format,
            Err(undetected) => return Err(refusal(file, &mut source, undetected)),
        };
        Ok(Reader {
            file: file.to_owned(),
            format,
            source,
            decoder: format.decoder(options.action, &sample),
            window: Window::new(options.order),
            left_out: 0,
            state: State::Reading,
        })
    }

    /// The format; what it was recognised by is [`Format::rule`].
    pub fn format(&self) -> Format {
        self.format
    }

    /// Number of skipped lines and binary records that were no request (headers, other events, commands that move no
    /// data). Flushes that went before writes in one record with them count, too.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// What the trace calls a device, where it has names (`fio2`, `fio3`, `msr`) and the device was met.
    pub fn device_name(&self, device: u32) -> Option<String> {
        match &self.decoder {
            Decoder::Lines(format) => format.device_name(device),
            Decoder::Binary(_) => None,
        }
    }

    /// Takes the next event of the file into the window.
    fn advance(&mut self) {
        let taken = match self.decoder.next(&mut self.source) {
            Ok(Event::Request(record)) => self.window.push(record),
            Ok(Event::FlushAndRequest(record)) => {
                self.left_out += 1;
                self.window.push(record)
            }
            Ok(Event::Other) => {
                self.left_out += 1;
                Ok(())
            }
            Ok(Event::End) => {
                self.state = State::Ended;
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        if let Err(fault) = taken {
            let position = match self.format.is_binary() {
                true => self.source.record_position(),
                false => self.source.line_position(),
            };
            self.state = State::Failed(Box::new(fault.located(&self.file, position, self.source.byte())));
        }
    }
}

/// The error for content without a format. If reading failed before there was enough of it, that is the error.
fn refusal(file: &str, source: &mut Source, undetected: Undetected) -> TraceError {
    let file = file.to_owned();
    match undetected {
        Undetected::Unknown(got) => match source.first_failure() {
            Some((byte, source)) => TraceError::Read { file, byte, source },
            None => TraceError::UnknownFormat { file, got, known: Format::names(Format::ALL) },
        },
        Undetected::Ambiguous(formats) => TraceError::AmbiguousFormat { file, candidates: Format::names(&formats) },
    }
}

impl Iterator for Reader {
    type Item = Result<TraceRecord, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while matches!(self.state, State::Reading) && !self.window.is_full() {
            self.advance();
        }
        if let Some(record) = self.window.pop() {
            return Some(Ok(record));
        }
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Failed(error) => Some(Err(*error)),
            State::Reading | State::Ended => None,
        }
    }
}
