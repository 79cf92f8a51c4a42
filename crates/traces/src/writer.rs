//! Writing a trace, record by record, in one of [`Format::WRITABLE`].

use crate::format::{Encode, Format};
use crate::record::TraceRecord;
use crate::write_error::WriteError;
use std::io::Write;

/// Writes records to `W`, which should be buffered.
pub struct Writer<W: Write> {
    out: W,
    encoder: Box<dyn Encode + Send>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace. Errors: a format that cannot be written, or what `out` says.
    pub fn new(format: Format, mut out: W) -> Result<Writer<W>, WriteError> {
        let mut encoder = format.encoder().ok_or(WriteError::Format { got: format })?;
        encoder.begin(&mut out)?;
        Ok(Writer { out, encoder })
    }

    /// Says what a device is called, before its first record. Only `fio3` has names: that of a file, without blanks and
    /// shorter than 256 bytes; a device without one is called `device-N`.
    pub fn name_device(&mut self, device: u32, name: &str) -> Result<(), WriteError> {
        self.encoder.name_device(device, name)
    }

    /// Writes a record. A record that is refused as [`WriteError::Unwritable`] leaves no trace, and the next may
    /// follow.
    pub fn write(&mut self, record: &TraceRecord) -> Result<(), WriteError> {
        self.encoder.record(record, &mut self.out)
    }

    /// Ends the trace and gives `out` back, flushed.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.encoder.end(&mut self.out)?;
        self.out.flush()?;
        Ok(self.out)
    }
}
