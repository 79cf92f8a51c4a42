//! Which format content is in.
//!
//! The readers themselves are asked: a text format is a candidate if its reader takes the first lines up to the first
//! record without complaint, a binary one if its magic number or its first records make sense. Exactly one candidate is
//! an answer; none or several is an error, because a guessed unit would be wrong without anybody noticing.
//!
//! The complication: DiskSim's reader would also take MQSim's whole numbers. DiskSim's times have a decimal point, and that
//! decides ([`Format::rule`]).

use crate::error::excerpt;
use crate::format::{BlockAction, Decoder, Format};
use crate::source::{LINE_BYTES_MAX, SAMPLE_BYTES};

/// Bytes of binary content that an error shows.
const SHOWN_BYTES: usize = 8;

/// Why no single format was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undetected {
    /// None fits; how the content begins.
    Unknown(String),
    /// All of these fit.
    Ambiguous(Vec<Format>),
}

/// The format of content that begins with `sample`, which is all of it if it is shorter than [`SAMPLE_BYTES`].
pub(crate) fn detect(sample: &[u8]) -> Result<Format, Undetected> {
    let lines = whole_lines(sample);
    let fits = |format: &Format| match format.is_binary() {
        true => format.fits_binary(sample),
        false => fits_text(*format, lines),
    };
    let candidates: Vec<_> = Format::ALL.iter().copied().filter(fits).collect();
    match candidates[..] {
        [format] => Ok(format),
        [] => Err(Undetected::Unknown(beginning(sample))),
        _ => Err(Undetected::Ambiguous(candidates)),
    }
}

/// The sample without a last line that goes on behind it.
fn whole_lines(sample: &[u8]) -> &[u8] {
    if (sample.len() as u64) < SAMPLE_BYTES {
        return sample;
    }
    let end = sample.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &sample[..end]
}

/// The lines of `content` that say something.
fn said(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// Whether the format's reader takes the lines up to the first record.
fn fits_text(format: Format, lines: &[u8]) -> bool {
    let Decoder::Lines(mut reader) = format.decoder(BlockAction::default(), &[]) else { return false };
    let mut is_any_taken = false;
    for line in said(lines) {
        let Ok(line) = std::str::from_utf8(line) else { return false };
        match reader.record(line) {
            _ if line.len() > LINE_BYTES_MAX => return false,
            Ok(Some(_)) => return format.is_typical(line),
            Ok(None) => is_any_taken = true,
            Err(_) => return false,
        }
    }
    is_any_taken
}

/// How the content begins, for the error.
fn beginning(sample: &[u8]) -> String {
    let first_line = said(sample).next().unwrap_or_default();
    match std::str::from_utf8(first_line) {
        Ok("") => "no content".to_owned(),
        Ok(line) if !line.contains(|char: char| char.is_control() && char != '\t') => {
            format!("text that begins with {:?}", excerpt(line))
        }
        _ => {
            let shown = &sample[..sample.len().min(SHOWN_BYTES)];
            let shown: Vec<_> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("binary content that begins with {}", shown.join(" "))
        }
    }
}
