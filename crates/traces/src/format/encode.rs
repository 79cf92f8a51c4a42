//! What the writer of a format does.

use crate::record::TraceRecord;
use crate::write_error::WriteError;
use std::io::{self, Write};

/// A format's writer.
pub(crate) trait Encode {
    /// Writes what stands before the first record.
    fn begin(&mut self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Writes a record, or refuses it and writes nothing.
    fn record(&mut self, record: &TraceRecord, out: &mut dyn Write) -> Result<(), WriteError>;

    /// Writes what stands behind the last record.
    fn end(&mut self, _out: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }

    /// Takes a device's name, if the format has names.
    fn name_device(&mut self, _device: u32, _name: &str) -> Result<(), WriteError> {
        Ok(())
    }
}
