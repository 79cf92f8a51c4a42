//! Byte sizes and rates, read and printed as people write them.
//!
//! A [`Rate`] has three units. *Runs per second* is the scheduler's own: a run is sequential I/O of one session up to
//! 32 KiB, a proxy for one seek (Zygaria, section 3). *Bytes per second* is what users of streams think in. *Per cent
//! of the device* is what administrators think in; it stays a percentage until the device is known, because the same
//! configuration must mean something on a faster disk.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Bytes in one run: sequential I/O of a session up to this size counts as one (Zygaria, section 4.3).
pub const RUN_BYTES_MAX: u64 = 32 * 1024;

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

/// Splits `12.5 MB/s` into its number and its unit; refuses a missing, negative or infinite number.
pub(crate) fn parse_quantity<'text>(
    text: &'text str,
    expected: &'static str,
) -> Result<(f64, &'text str), ParseUnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(trimmed.len());
    let number = trimmed[..end].replace('_', "");
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((value, trimmed[end..].trim())),
        _ => Err(ParseUnitError::new(text, expected)),
    }
}

/// Prints at most three significant digits, without trailing zeros, and never rounds a whole number.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn byte_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl FromStr for ByteCount {
    type Err = ParseUnitError;

    /// Reads `4KiB`, `10 GB`, `512 B`. Decimal units are powers of 1000, binary ones of 1024.
    fn from_str(text: &str) -> Result<ByteCount, ParseUnitError> {
        const EXPECTED: &str = "a size such as \"64MiB\" or \"10 GB\" (units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)";
        let (value, unit) = parse_quantity(text, EXPECTED)?;
        let factor = byte_factor(unit).ok_or_else(|| ParseUnitError::new(text, EXPECTED))?;
        let bytes = value * factor;
        if bytes >= u64::MAX as f64 {
            return Err(ParseUnitError::new(text, EXPECTED));
        }
        Ok(ByteCount(bytes.round() as u64))
    }
}

impl fmt::Display for ByteCount {
    /// Prints with binary units: `64 MiB`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut value, mut unit) = (self.0 as f64, "B");
        for larger in ["KiB", "MiB", "GiB", "TiB"] {
            if value < 1024.0 {
                break;
            }
            (value, unit) = (value / 1024.0, larger);
        }
        write!(out, "{} {unit}", three_digits(value))
    }
}

/// How much of a device per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// I/O runs per second.
    RunsPerSecond(f64),
    /// Bytes per second.
    BytesPerSecond(f64),
    /// Per cent of the device's worst-case run rate, 0 and up.
    DevicePercent(f64),
}

impl Rate {
    /// Nothing per second: no reserve.
    pub const ZERO: Rate = Rate::RunsPerSecond(0.0);

    /// Runs per second that this rate asks of a device whose worst case is `device_runs_per_second`.
    ///
    /// Bytes count as full runs of [`RUN_BYTES_MAX`]: that is the most that the rate can be worth to a session whose
    /// I/O is random, so that a sum of reserves says what the device must be able to do.
    pub fn runs_per_second(self, device_runs_per_second: f64) -> f64 {
        match self {
            Rate::RunsPerSecond(runs) => runs,
            Rate::BytesPerSecond(bytes) => bytes / RUN_BYTES_MAX as f64,
            Rate::DevicePercent(percent) => percent / 100.0 * device_runs_per_second,
        }
    }

    /// What this is in bytes per second on a device that is promised as `device_runs_per_second`: a run counts as full.
    pub fn bytes_per_second(self, device_runs_per_second: f64) -> f64 {
        match self {
            Rate::BytesPerSecond(bytes) => bytes,
            runs => runs.runs_per_second(device_runs_per_second) * RUN_BYTES_MAX as f64,
        }
    }
}

impl Default for Rate {
    fn default() -> Self {
        Rate::ZERO
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;

    /// Reads `45 runs/s`, `10MB/s`, `30%`; `IOPS` is accepted for `runs/s`.
    fn from_str(text: &str) -> Result<Rate, ParseUnitError> {
        const EXPECTED: &str = "a rate such as \"45 runs/s\", \"10MB/s\" or \"30%\"";
        let (value, unit) = parse_quantity(text, EXPECTED)?;
        match unit {
            "%" => Ok(Rate::DevicePercent(value)),
            "runs/s" | "run/s" | "IOPS" | "iops" => Ok(Rate::RunsPerSecond(value)),
            _ => unit
                .strip_suffix("/s")
                .and_then(byte_factor)
                .map(|factor| Rate::BytesPerSecond(value * factor))
                .ok_or_else(|| ParseUnitError::new(text, EXPECTED)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Rate::RunsPerSecond(runs) => write!(out, "{} runs/s", three_digits(runs)),
            Rate::DevicePercent(percent) => write!(out, "{}%", three_digits(percent)),
            Rate::BytesPerSecond(bytes) => {
                let (mut value, mut unit) = (bytes, "B/s");
                for larger in ["kB/s", "MB/s", "GB/s"] {
                    if value < 1000.0 {
                        break;
                    }
                    (value, unit) = (value / 1000.0, larger);
                }
                write!(out, "{} {unit}", three_digits(value))
            }
        }
    }
}

macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
serde_as_text!(ByteCount, Rate, crate::time::Span);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_have_three_units() {
        assert_eq!("45 runs/s".parse(), Ok(Rate::RunsPerSecond(45.0)));
        assert_eq!("45IOPS".parse(), Ok(Rate::RunsPerSecond(45.0)));
        assert_eq!("10MB/s".parse(), Ok(Rate::BytesPerSecond(10e6)));
        assert_eq!("1 MiB/s".parse(), Ok(Rate::BytesPerSecond(1048576.0)));
        assert_eq!("30 %".parse(), Ok(Rate::DevicePercent(30.0)));
        assert_eq!(
            "fast".parse::<Rate>().unwrap_err().to_string(),
            "got \"fast\", expected a rate such as \"45 runs/s\", \"10MB/s\" or \"30%\""
        );
        for bad in ["30", "-1%", "10 MB", "5 runs", "%", "1..2%"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_becomes_runs_of_the_device() {
        assert_eq!(Rate::DevicePercent(30.0).runs_per_second(112.0), 33.6);
        assert_eq!(Rate::BytesPerSecond(3_276_800.0).runs_per_second(112.0), 100.0);
        assert_eq!(Rate::RunsPerSecond(7.0).runs_per_second(112.0), 7.0);
    }

    #[test]
    fn sizes_are_printed_with_binary_units() {
        assert_eq!(ByteCount(64 << 20).to_string(), "64 MiB");
        assert_eq!(ByteCount(1_500_000).to_string(), "1.43 MiB");
        assert!("99999999999999 TB".parse::<ByteCount>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,12}") {
            let _ = (text.parse::<Rate>(), text.parse::<ByteCount>(), text.parse::<crate::Span>());
        }

        #[test]
        fn what_is_printed_is_read_back_to_three_digits(value in 0.01f64..1e8) {
            for rate in [Rate::RunsPerSecond(value), Rate::BytesPerSecond(value), Rate::DevicePercent(value)] {
                let again: Rate = rate.to_string().parse().unwrap();
                let (before, after) = (rate.runs_per_second(100.0), again.runs_per_second(100.0));
                prop_assert!((before - after).abs() <= before * 0.051 + 1e-6, "{rate} became {again}");
            }
        }
    }
}
