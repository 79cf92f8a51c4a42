//! Which format content is in.
//!
//! The readers themselves decide. A text format is a candidate if its reader takes the first line without complaint. A
//! binary one is if its magic number or its first records make sense. Exactly one candidate is an answer; none or
//! several is an error, because a wrongly guessed unit would go unnoticed.
//!
//! The complication: DiskSim's reader would also take MQSim's whole numbers. DiskSim's times have a decimal point, and
//! that decides ([`Format::rule`]).

use crate::error::LINE_BYTES_MAX;
use crate::fault::excerpt;
use crate::format::{BlockAction, Decoder, Format};

/// Bytes of content without text that an error shows.
const SHOWN_BYTES: usize = 8;

/// Why no single format was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undetected {
    /// None fits; how the content begins.
    Unknown(String),
    /// All of these fit.
    Ambiguous(Vec<Format>),
}

/// The format of content that begins with `sample`.
pub(crate) fn detect(sample: &[u8]) -> Result<Format, Undetected> {
    let first_line = first_line(sample);
    let fits = |format: &Format| match format.is_binary() {
        true => format.fits_binary(sample),
        false => first_line.is_some_and(|line| fits_text(*format, line)),
    };
    let candidates: Vec<_> = Format::ALL.iter().copied().filter(fits).collect();
    match candidates[..] {
        [format] => Ok(format),
        [] => Err(Undetected::Unknown(beginning(sample))),
        _ => Err(Undetected::Ambiguous(candidates)),
    }
}

/// The first line that says something, if there is one in UTF-8 and no longer than a line may be.
fn first_line(sample: &[u8]) -> Option<&str> {
    let mut lines = sample.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.find(|line| !line.is_empty()).filter(|line| line.len() <= LINE_BYTES_MAX)?;
    std::str::from_utf8(line).ok()
}

/// Whether the format's reader takes `line` as the first, and its writers write it so.
fn fits_text(format: Format, line: &str) -> bool {
    match format.decoder(BlockAction::default(), &[]) {
        Decoder::Lines(mut reader) => reader.record(line).is_ok() && format.is_typical(line),
        Decoder::Binary(_) => false,
    }
}

/// How the content begins, for the error.
fn beginning(sample: &[u8]) -> String {
    let is_control = |char: char| char.is_control() && char != '\t';
    match first_line(sample) {
        Some(line) if !line.contains(is_control) => format!("text that begins with {:?}", excerpt(line)),
        _ if sample.trim_ascii().is_empty() => "no content".to_owned(),
        _ => {
            let shown = &sample[..sample.len().min(SHOWN_BYTES)];
            let shown: Vec<_> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("content that begins with the bytes {}", shown.join(" "))
        }
    }
}
