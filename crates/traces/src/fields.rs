//! Fields of text formats: split, parsed without rounding, and refused in the words of [`FieldError`].

use crate::fault::FieldError;
use crate::record::TraceRecord;
use plimsoll_core::{Operation, Time};

/// Bytes in the sector that traces count in, whatever the device's own is (Linux and SCSI traces, and the definitions
/// that the format modules name).
pub(crate) const SECTOR_BYTES: u64 = 512;
pub(crate) const NANOSECONDS_PER_MICROSECOND: u64 = 1_000;
pub(crate) const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;
pub(crate) const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// How the fields of a line are set apart.
#[derive(Clone, Copy)]
pub(crate) enum Separator {
    /// One comma between two fields; blanks around it do not count.
    Comma,
    /// Any number of blanks and tabs.
    Blank,
}

/// Exactly `COUNT` fields, which `names` lists for the error.
pub(crate) fn split<'line, const COUNT: usize>(
    line: &'line str,
    separator: Separator,
    names: &'static str,
) -> Result<[&'line str; COUNT], FieldError> {
    let mut fields = [""; COUNT];
    let got = match separator {
        Separator::Comma => distribute(line.split(',').map(str::trim), &mut fields),
        Separator::Blank => distribute(line.split_ascii_whitespace(), &mut fields),
    };
    match got == COUNT {
        true => Ok(fields),
        false => Err(FieldError::new("fields", &got.to_string(), format!("{COUNT}: {names}"))),
    }
}

/// Puts as many parts as fit into `fields`, and counts all.
fn distribute<'line>(parts: impl Iterator<Item = &'line str>, fields: &mut [&'line str]) -> usize {
    let mut count = 0;
    for part in parts {
        if let Some(field) = fields.get_mut(count) {
            *field = part;
        }
        count += 1;
    }
    count
}

/// A whole number below 2^64.
pub(crate) fn integer(field: &'static str, text: &str) -> Result<u64, FieldError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = if is_number { text.parse().ok() } else { None };
    parsed.ok_or_else(|| FieldError::new(field, text, "a whole number below 2^64"))
}

/// A whole number below 2^32.
pub(crate) fn small(field: &'static str, text: &str) -> Result<u32, FieldError> {
    let number = integer(field, text).ok().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| FieldError::new(field, text, "a whole number below 2^32"))
}

/// A hexadecimal number below 2^32, without a prefix.
pub(crate) fn hexadecimal(field: &'static str, text: &str) -> Result<u32, FieldError> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parsed = if is_number { u32::from_str_radix(text, 16).ok() } else { None };
    parsed.ok_or_else(|| FieldError::new(field, text, "a hexadecimal number below 2^32"))
}

/// A whole number of units, each of `unit`, so that the product fits.
pub(crate) fn units(field: &'static str, text: &str, unit: u64) -> Result<u64, FieldError> {
    scaled(field, integer(field, text)?, unit)
}

/// `number` times `unit`, if the product fits.
pub(crate) fn scaled(field: &'static str, number: u64, unit: u64) -> Result<u64, FieldError> {
    let fit = number.checked_mul(unit);
    fit.ok_or_else(|| FieldError::new(field, &number.to_string(), format!("at most {}", u64::MAX / unit)))
}

/// A decimal number such as `1456095145.133076` in units of `unit_ns` (a power of ten), as nanoseconds. What is finer
/// than a nanosecond is cut off; a sign or an exponent is refused.
pub(crate) fn decimal_ns(field: &'static str, text: &str, unit_ns: u64) -> Result<u64, FieldError> {
    let wrong = || FieldError::new(field, text, "a decimal number such as 12 or 0.5, in nanoseconds below 2^64");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
        return Err(wrong());
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| wrong())? };
    let (mut ns, mut place_ns) = (whole.checked_mul(unit_ns).ok_or_else(wrong)?, unit_ns);
    for digit in fraction.bytes() {
        place_ns /= 10;
        ns = ns.checked_add(u64::from(digit - b'0') * place_ns).ok_or_else(wrong)?;
    }
    Ok(ns)
}

/// A request at `at_ns`, which must end below 2^64.
pub(crate) fn request(at_ns: u64, operation: Operation, offset: u64, length: u64) -> Result<TraceRecord, FieldError> {
    if offset.checked_add(length).is_none() {
        let allowed = format!("at most {} bytes at offset {offset}", u64::MAX - offset);
        return Err(FieldError::new("length", &length.to_string(), allowed));
    }
    Ok(TraceRecord::new(Time::from_nanos(at_ns), operation, offset, length))
}

/// One letter: R or W, large or small.
pub(crate) fn read_or_write(field: &'static str, text: &str) -> Result<Operation, FieldError> {
    match text {
        "R" | "r" => Ok(Operation::Read),
        "W" | "w" => Ok(Operation::Write),
        _ => Err(FieldError::new(field, text, "R or W")),
    }
}

/// A line that may stand first and names the columns.
#[derive(Debug)]
pub(crate) struct Header {
    names: &'static str,
    is_first_line: bool,
}

impl Header {
    pub fn new(names: &'static str) -> Header {
        Header { names, is_first_line: true }
    }

    /// Whether `line` is the header; asked once a line.
    pub fn is(&mut self, line: &str) -> bool {
        std::mem::take(&mut self.is_first_line) && line == self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_to_a_nanosecond() {
        let ns = |text| decimal_ns("t", text, NANOSECONDS_PER_SECOND).ok();
        assert_eq!(ns("1456095145.133076000"), Some(1_456_095_145_133_076_000));
        assert_eq!(ns("0.1234567899"), Some(123_456_789), "finer than a nanosecond is cut off");
        assert_eq!([ns("7"), ns("7."), ns(".5")], [Some(7_000_000_000), Some(7_000_000_000), Some(500_000_000)]);
        assert_eq!(decimal_ns("t", "13.191135", NANOSECONDS_PER_MILLISECOND).ok(), Some(13_191_135));
        for bad in ["", ".", "-1", "+1", "1e3", "1.2.3", "NaN", "1 2", "18446744073.709551616", "99999999999999999999"]
        {
            assert_eq!(ns(bad), None, "{bad}");
        }
        assert_eq!(ns("18446744073.709551615"), Some(u64::MAX));
    }

    #[test]
    fn numbers_take_no_sign_and_no_overflow() {
        assert_eq!(integer("n", "18446744073709551615").unwrap(), u64::MAX);
        assert_eq!(small("n", "4294967295").unwrap(), u32::MAX);
        assert_eq!(hexadecimal("n", "8000107").unwrap(), 0x800_0107);
        for bad in ["", "+1", "-1", "1_0", "18446744073709551616", "0x1", " 1"] {
            assert!(integer("n", bad).is_err() && small("n", bad).is_err() && hexadecimal("n", bad).is_err(), "{bad}");
        }
        assert!(small("n", "4294967296").is_err() && hexadecimal("n", "100000000").is_err());
        assert!(units("n", "36028797018963968", SECTOR_BYTES).is_err());
        assert!(request(0, Operation::Read, u64::MAX, 1).is_err());
        assert_eq!(request(0, Operation::Read, u64::MAX, 0).unwrap().end(), u64::MAX);
    }
}
