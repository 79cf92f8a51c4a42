//! A text cut into words and commas, and what a word may be.

use plimsoll_core::{ByteCount, Rate, Span};
use std::ops::RangeInclusive;
use thiserror::Error;

/// Bytes of a file or capacity at most: 1 EiB, so that no sum of offset and length overflows.
pub(crate) const SIZE_MAX: u64 = 1 << 60;
/// Units per second at least and at most: a Poisson process far outside would have to be counted in other units.
const RATE_RANGE: RangeInclusive<f64> = 0.01..=10_000_000.0;
/// Bytes per second of a stream, at least and at most.
const STREAM_RANGE: RangeInclusive<f64> = 1.0..=1e12;
const BITS_PER_BYTE: f64 = 8.0;

/// A text that is no workload.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("column {column}: got {got}, allowed: {allowed}")]
pub struct WorkloadError {
    /// Where the word begins, in characters, from 1.
    pub column: usize,
    /// What was there, in quotes, or `the end of the text`.
    pub got: String,
    /// What may be there.
    pub allowed: String,
}

/// A word or a comma, with the column of its first character.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'text> {
    pub(crate) column: usize,
    pub(crate) text: &'text str,
}

impl Word<'_> {
    pub(crate) fn error(self, allowed: impl Into<String>) -> WorkloadError {
        let got = if self.text.is_empty() { "the end of the text".to_owned() } else { format!("{:?}", self.text) };
        WorkloadError { column: self.column, got, allowed: allowed.into() }
    }
}

/// The words of a text, read from the left.
pub(crate) struct Words<'text> {
    words: Vec<Word<'text>>,
    next: usize,
    end: Word<'text>,
}

impl<'text> Words<'text> {
    pub(crate) fn new(text: &'text str) -> Words<'text> {
        let mut words = Vec::new();
        let mut begun: Option<(usize, usize)> = None;
        let mut end_column = 1;
        for (column, (byte, character)) in text.char_indices().enumerate() {
            let is_separator = character.is_whitespace() || character == ',';
            if is_separator {
                if let Some((column, start)) = begun.take() {
                    words.push(Word { column, text: &text[start..byte] });
                }
            } else if begun.is_none() {
                begun = Some((column + 1, byte));
            }
            if character == ',' {
                words.push(Word { column: column + 1, text: &text[byte..=byte] });
            }
            end_column = column + 2;
        }
        if let Some((column, start)) = begun {
            words.push(Word { column, text: &text[start..] });
        }
        Words { words, next: 0, end: Word { column: end_column, text: "" } }
    }

    /// The next word, without reading it; empty at the end.
    pub(crate) fn peek(&self) -> Word<'text> {
        self.words.get(self.next).copied().unwrap_or(self.end)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.next == self.words.len()
    }

    /// Reads the next word.
    pub(crate) fn read(&mut self) -> Word<'text> {
        let word = self.peek();
        self.next += 1;
        self.next = self.next.min(self.words.len());
        word
    }

    /// Reads this word if it is the next one.
    pub(crate) fn has(&mut self, keyword: &str) -> bool {
        let is_next = self.peek().text == keyword;
        if is_next {
            self.read();
        }
        is_next
    }

    /// Reads this word.
    pub(crate) fn expect(&mut self, keyword: &'static str) -> Result<(), WorkloadError> {
        self.one_of(&[keyword]).map(|_| ())
    }

    /// Reads one of these words.
    pub(crate) fn one_of(&mut self, keywords: &[&'static str]) -> Result<&'static str, WorkloadError> {
        let word = self.read();
        let found = keywords.iter().find(|keyword| **keyword == word.text);
        found.copied().ok_or_else(|| word.error(list(keywords)))
    }

    /// Reads a size of `range` bytes.
    pub(crate) fn size(&mut self, range: RangeInclusive<u64>) -> Result<u64, WorkloadError> {
        let word = self.read();
        let size = word.text.parse().map_err(|_| word.error("a size such as 4KiB or 10GB"))?;
        let ByteCount(bytes) = size;
        match range.contains(&bytes) {
            true => Ok(bytes),
            false => {
                let (least, most) = (ByteCount(*range.start()), ByteCount(*range.end()));
                Err(word.error(format!("a size from {least} to {most}")))
            }
        }
    }

    /// Reads a time of at least `least`.
    pub(crate) fn span(&mut self, least: Span) -> Result<Span, WorkloadError> {
        let word = self.read();
        match word.text.parse() {
            Ok(span) if span >= least => Ok(span),
            Ok(_) => Err(word.error(format!("a time of at least {least}"))),
            Err(_) => Err(word.error("a time such as 10ms or 30s")),
        }
    }

    /// Reads a whole number in a range.
    pub(crate) fn number(&mut self, range: RangeInclusive<u64>) -> Result<u64, WorkloadError> {
        let word = self.read();
        let allowed = || word.error(format!("a whole number from {} to {}", range.start(), range.end()));
        word.text.parse().ok().filter(|number| range.contains(number)).ok_or_else(allowed)
    }

    /// Reads units per second, such as `100/s`.
    pub(crate) fn rate(&mut self) -> Result<f64, WorkloadError> {
        let word = self.read();
        let per_second = word.text.strip_suffix("/s").and_then(|number| number.parse::<f64>().ok());
        let allowed =
            || word.error(format!("a rate such as 100/s, from {}/s to {}/s", RATE_RANGE.start(), RATE_RANGE.end()));
        per_second.filter(|rate| RATE_RANGE.contains(rate)).ok_or_else(allowed)
    }

    /// Reads per cent, such as `90%`.
    pub(crate) fn percent(&mut self) -> Result<u32, WorkloadError> {
        let word = self.read();
        let percent = word.text.strip_suffix('%').and_then(|number| number.parse().ok());
        percent
            .filter(|percent| *percent <= 100)
            .ok_or_else(|| word.error("a whole number of per cent from 0% to 100%"))
    }

    /// Reads the rate of a stream, in bits (`2Mbit/s`) or bytes (`250kB/s`); answers bytes per second.
    pub(crate) fn stream_rate(&mut self) -> Result<f64, WorkloadError> {
        let word = self.read();
        let bits = ["kbit/s", "Mbit/s", "Gbit/s"].into_iter().zip([1e3, 1e6, 1e9]).find_map(|(unit, factor)| {
            let number = word.text.strip_suffix(unit)?.parse::<f64>().ok()?;
            Some(number * factor / BITS_PER_BYTE)
        });
        let bytes = bits.or_else(|| match word.text.parse() {
            Ok(Rate::BytesPerSecond(bytes)) => Some(bytes),
            _ => None,
        });
        bytes
            .filter(|bytes| STREAM_RANGE.contains(bytes))
            .ok_or_else(|| word.error("a rate such as 2Mbit/s or 250kB/s, from 1B/s to 1TB/s"))
    }

    /// Reads the name of a file: letters, digits, `-`, `_` and dots, not beginning with a dot.
    pub(crate) fn name(&mut self) -> Result<String, WorkloadError> {
        let word = self.read();
        let is_plain = word.text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        match is_plain && !word.text.is_empty() && !word.text.starts_with('.') {
            true => Ok(word.text.to_owned()),
            false => Err(word.error("a file name of letters, digits, - _ and . (not first)")),
        }
    }
}

/// Words as an error lists them: `a`, `b` or `c`.
pub(crate) fn list(words: &[&str]) -> String {
    match words {
        [] => "the end of the text".to_owned(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    }
}
