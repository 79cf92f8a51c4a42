//! The content of a trace as lines or fixed records, with the position that errors name and a bound on memory.

use crate::error::{LINE_BYTES_MAX, Position};
use crate::fault::Fault;
use std::io::{self, BufRead, BufReader, Read};

/// Bytes from the beginning that the detection of the format looks at.
pub(crate) const SAMPLE_BYTES: u64 = 8 << 10;
/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// The mark of UTF-8 that programs on Windows put before text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a trace, of which the first were already looked at.
struct Sampled {
    sample: io::Cursor<Vec<u8>>,
    /// What ended the sample early; it is reported after the bytes before it.
    failure: Option<io::Error>,
    rest: Box<dyn Read + Send>,
}

impl Read for Sampled {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.sample.read(buffer)? {
            0 => self.failure.take().map_or_else(|| self.rest.read(buffer), Err),
            count => Ok(count),
        }
    }
}

/// Where a trace is read from.
pub(crate) struct Source {
    input: BufReader<Sampled>,
    line: Vec<u8>,
    line_number: u64,
    /// Bytes that were taken.
    byte: u64,
    /// The first byte of the current binary record.
    record_byte: u64,
}

impl Source {
    /// Takes the sample from `rest`, which is the decompressed content. A byte-order mark before it says nothing, and
    /// is passed over.
    pub fn new(mut rest: Box<dyn Read + Send>) -> (Source, Vec<u8>) {
        let mut sample = Vec::new();
        let failure = rest.by_ref().take(SAMPLE_BYTES).read_to_end(&mut sample).err();
        let mark = if sample.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        sample.drain(..mark);
        let sampled = Sampled { sample: io::Cursor::new(sample.clone()), failure, rest };
        let input = BufReader::with_capacity(BUFFER_BYTES, sampled);
        (Source { input, line: Vec::new(), line_number: 0, byte: mark as u64, record_byte: 0 }, sample)
    }

    /// What made reading fail within the sample, and how many bytes there were before that.
    pub fn first_failure(&mut self) -> Option<(u64, io::Error)> {
        let sampled = self.input.get_mut();
        let bytes = sampled.sample.get_ref().len() as u64;
        sampled.failure.take().map(|failure| (self.byte + bytes, failure))
    }

    /// How many bytes were taken.
    pub fn byte(&self) -> u64 {
        self.byte
    }

    /// The current line.
    pub fn line_position(&self) -> Position {
        Position::Line(self.line_number)
    }

    /// The current record.
    pub fn record_position(&self) -> Position {
        Position::Byte(self.record_byte)
    }

    /// The next line without its end, or nothing after the last.
    pub fn line(&mut self) -> Result<Option<&[u8]>, Fault> {
        self.line.clear();
        self.line_number += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let result = self.input.by_ref().take(limit).read_until(b'\n', &mut self.line);
        self.byte += self.line.len() as u64;
        result?;
        match self.line.last() {
            None => return Ok(None),
            Some(b'\n') => drop(self.line.pop()),
            Some(_) if self.line.len() > LINE_BYTES_MAX => return Err(Fault::LineTooLong),
            Some(_) => {} // The last line may lack its end.
        }
        Ok(Some(&self.line))
    }

    /// The next `SIZE` bytes as a record, or nothing at the end.
    pub fn record<const SIZE: usize>(&mut self) -> Result<Option<[u8; SIZE]>, Fault> {
        self.record_byte = self.byte;
        let mut record = [0; SIZE];
        match self.fill(&mut record)? {
            0 => Ok(None),
            got if got == SIZE => Ok(Some(record)),
            got => Err(Fault::Truncated { got: got as u64, expected: SIZE as u64 }),
        }
    }

    /// Passes over what follows the current record of `record_bytes` and belongs to it.
    pub fn skip(&mut self, record_bytes: u64, bytes: u64) -> Result<(), Fault> {
        let skipped = io::copy(&mut self.input.by_ref().take(bytes), &mut io::sink())?;
        self.byte += skipped;
        match skipped == bytes {
            true => Ok(()),
            false => Err(Fault::Truncated { got: record_bytes + skipped, expected: record_bytes + bytes }),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.byte = self.record_byte + filled as u64;
        }
        Ok(filled)
    }
}
