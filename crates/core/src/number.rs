//! Numbers with a unit, read from and printed as text. `units` and `time` have the units.

use thiserror::Error;

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("got {got:?}, expected {expected}")]
pub struct ParseUnitError {
    got: String,
    expected: &'static str,
}

impl ParseUnitError {
    pub(crate) fn new(got: &str, expected: &'static str) -> Self {
        ParseUnitError { got: got.to_owned(), expected }
    }

    /// What would have been right, in words.
    pub fn expected(&self) -> &'static str {
        self.expected
    }
}

/// A number as it was written: finite, and not negative.
pub(crate) struct Number {
    pub(crate) value: f64,
    /// The same to the last digit, if it is whole and not beyond 64 bits.
    whole: Option<u64>,
}

impl Number {
    /// The value of so many units of `factor`, to the last digit if the number is whole; `None` beyond 64 bits.
    pub(crate) fn times(&self, factor: u64) -> Option<u64> {
        let product = self.value * factor as f64;
        let rounded = (product < u64::MAX as f64).then(|| product.round() as u64);
        self.whole.map_or(rounded, |whole| whole.checked_mul(factor))
    }
}

/// Splits `12.5 MB/s` into its number and its unit; refuses a missing, negative or infinite number.
pub(crate) fn parse_quantity<'text>(
    text: &'text str,
    expected: &'static str,
) -> Result<(Number, &'text str), ParseUnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(trimmed.len());
    let number = trimmed[..end].replace('_', "");
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((Number { value, whole: number.parse().ok() }, trimmed[end..].trim())),
        _ => Err(ParseUnitError::new(text, expected)),
    }
}

/// `value` in the largest of `units` of which it is a whole number. `units` are in order of size, and the first is 1.
pub(crate) fn in_whole_units(value: u64, units: &[(u64, &str)]) -> String {
    let fits = |factor: u64| value >= factor && value.is_multiple_of(factor);
    let &(factor, unit) = units.iter().rev().find(|(factor, _)| fits(*factor)).unwrap_or(&units[0]);
    format!("{} {unit}", value / factor)
}

/// Prints at most three significant digits, without trailing zeros, and never rounds a whole number. What is not zero
/// is not printed as zero.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        0.01.. => 2,
        _ if value > 0.0 => (2.0 - value.log10().floor()) as usize,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
