//! Byte sizes and rates, read and printed as people write them.
//!
//! A [`Rate`] has three units. *Runs per second* is the scheduler's own. A run is sequential I/O of one session up to
//! 32 KiB, a proxy for one seek (Zygaria, section 3). *Bytes per second* is what users of streams think in. *Per cent
//! of the device* is what administrators think in. It stays a percentage until the device is known, because the same
//! configuration must mean something on a faster disk.
//!
//! `Display` is for people, to three digits. What is serialised is read back as the same value, to the last digit: the
//! daemon keeps exactly the promise that was sent.

use crate::number::{Number, in_whole_units, parse_quantity, three_digits};
use crate::time::Span;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

pub use crate::number::ParseUnitError;

/// Bytes in one run: sequential I/O of a session up to this size counts as one (Zygaria, section 4.3).
pub const RUN_BYTES_MAX: u64 = 32 * 1024;
/// The longest deadline. A later one could lie beyond the clock's range, and its request would never be done.
pub const DEADLINE_MAX: Span = Span::from_secs(3600);
/// The deadlines that [`deadline`] takes, in words.
pub const DEADLINES: &str = "a time above zero and up to 1 h, such as \"20ms\"";

/// Reads a deadline: how soon something should be done.
///
/// # Errors
/// What is no time, and what is none of [`DEADLINES`].
pub fn deadline(text: &str) -> Result<Span, ParseUnitError> {
    let span: Span = text.parse()?;
    is_deadline(span).then_some(span).ok_or_else(|| ParseUnitError::new(text, DEADLINES))
}

/// Whether `span` is one of [`DEADLINES`].
pub fn is_deadline(span: Span) -> bool {
    span > Span::ZERO && span <= DEADLINE_MAX
}

fn byte_factor(unit: &str) -> Option<u64> {
    Some(match unit {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
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
        let (number, unit) = parse_quantity(text, EXPECTED)?;
        let bytes = byte_factor(unit).and_then(|factor| number.times(factor));
        bytes.map(ByteCount).ok_or_else(|| ParseUnitError::new(text, EXPECTED))
    }
}

impl ByteCount {
    fn exact_text(&self) -> String {
        in_whole_units(self.0, &[(1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB")])
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

impl ByteCount {
    /// The size as it is shown where `other` stands in the same line: with its bytes, if the two look alike and are
    /// not: `16 MiB (16781312 B)`.
    pub fn beside(self, other: ByteCount) -> String {
        let shown = self.to_string();
        match self != other && shown == other.to_string() {
            true => format!("{shown} ({} B)", self.0),
            false => shown,
        }
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

    /// Runs per second that this rate asks of a device with `device_runs_per_second` in its worst case.
    ///
    /// Bytes count as full runs of [`RUN_BYTES_MAX`]: that is the most that the rate can be worth to a session with
    /// random I/O. So a sum of reserves says what the device must be able to do.
    pub fn runs_per_second(self, device_runs_per_second: f64) -> f64 {
        match self {
            Rate::RunsPerSecond(runs) => runs,
            Rate::BytesPerSecond(bytes) => bytes / RUN_BYTES_MAX as f64,
            Rate::DevicePercent(percent) => percent / 100.0 * device_runs_per_second,
        }
    }

    /// This rate in bytes per second on a device with `device_runs_per_second`. A run counts as full.
    pub fn bytes_per_second(self, device_runs_per_second: f64) -> f64 {
        match self {
            Rate::BytesPerSecond(bytes) => bytes,
            runs => runs.runs_per_second(device_runs_per_second) * RUN_BYTES_MAX as f64,
        }
    }

    fn exact_text(&self) -> String {
        match *self {
            Rate::RunsPerSecond(runs) => format!("{runs} runs/s"),
            Rate::DevicePercent(percent) => format!("{percent}%"),
            Rate::BytesPerSecond(bytes) => {
                let units = [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")];
                // A quotient may be rounded: then the next smaller unit.
                let is_exact = |factor: f64| bytes >= factor && bytes / factor * factor == bytes;
                let &(factor, unit) = units.iter().find(|(factor, _)| is_exact(*factor)).unwrap_or(&(1.0, "B/s"));
                format!("{} {unit}", bytes / factor)
            }
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
        let (Number { value, .. }, unit) = parse_quantity(text, EXPECTED)?;
        match unit {
            "%" => Ok(Rate::DevicePercent(value)),
            "runs/s" | "run/s" | "IOPS" | "iops" => Ok(Rate::RunsPerSecond(value)),
            _ => unit
                .strip_suffix("/s")
                .and_then(byte_factor)
                .map(|factor| value * factor as f64)
                .filter(|bytes| bytes.is_finite())
                .map(Rate::BytesPerSecond)
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
                serializer.serialize_str(&self.exact_text())
            }
        }
    )*};
}
serde_as_text!(ByteCount, Rate, Span);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    fn read<T: for<'de> Deserialize<'de>>(text: &str) -> T {
        let text: StrDeserializer<'_, Error> = text.into_deserializer();
        T::deserialize(text).unwrap()
    }

    /// The text as which `value` is serialised.
    fn written(value: impl Serialize) -> String {
        toml::Value::try_from(value).unwrap().as_str().unwrap().to_owned()
    }

    /// Planted break: sizes are shown as they are anywhere.
    #[test]
    fn sizes_that_look_alike_and_are_not_are_told_with_their_bytes() {
        let sizes = |one: u64, other: u64| {
            let (one, other) = (ByteCount(one), ByteCount(other));
            (one.beside(other), other.beside(one))
        };
        let both = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(sizes(16 << 20, 8 << 20), both("16 MiB", "8 MiB"));
        assert_eq!(sizes(16 << 20, 16 << 20), both("16 MiB", "16 MiB"));
        assert_eq!(sizes(16 << 20, (16 << 20) + 4096), both("16 MiB (16777216 B)", "16 MiB (16781312 B)"));
    }

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

    #[test]
    fn what_is_serialised_reads_well_and_is_exact() {
        for text in
            ["10.06 MB/s", "1.048576 MB/s", "3 MB/s", "999 B/s", "0 B/s", "0.004 runs/s", "20 runs/s", "33.3333%"]
        {
            assert_eq!(written(read::<Rate>(text)), text);
        }
        for text in ["64 MiB", "1536 MiB", "1500000 B", "0 B", "18446744073709551615 B"] {
            assert_eq!(written(read::<ByteCount>(text)), text);
        }
        for text in ["1234 ms", "250 us", "120 s", "0 ns", "18446744073709551615 ns"] {
            assert_eq!(written(read::<Span>(text)), text);
        }
        assert_eq!(read::<Rate>("10.06MB/s").to_string(), "10.1 MB/s", "three digits for people");
        for small in ["0.004 runs/s", "0.001 B/s", "0.0000123 MB/s"] {
            let rate: Rate = small.parse().unwrap();
            assert_eq!(rate.to_string().parse(), Ok(rate), "{rate}");
        }
        assert!(format!("{}TB/s", "9".repeat(300)).parse::<Rate>().is_err(), "a finite number, and an infinite rate");
    }

    #[test]
    fn deadlines_are_above_zero_and_up_to_an_hour() {
        for allowed in ["1ns", "20ms", "60 min", "1h"] {
            assert_eq!(deadline(allowed), allowed.parse(), "{allowed}");
        }
        for refused in ["0ms", "3600001ms", "300 h", "99999999999999999999h"] {
            let message = format!("got {refused:?}, expected a time above zero and up to 1 h, such as \"20ms\"");
            assert_eq!(deadline(refused).unwrap_err().to_string(), message);
        }
        assert!(deadline("20").unwrap_err().expected().contains("units: ns, us, ms, s, min, h"));
    }

    proptest! {
        /// Any bits at all, so that the smallest and the largest numbers come up, too.
        #[test]
        fn what_is_serialised_is_read_as_the_same(bits in any::<u64>(), shift in 0u32..64) {
            let value = f64::from_bits(bits).abs();
            for value in [value, (bits >> shift) as f64, f64::MAX, f64::from_bits(1), 0.0] {
                for rate in [Rate::RunsPerSecond(value), Rate::BytesPerSecond(value), Rate::DevicePercent(value)] {
                    if value.is_finite() {
                        prop_assert_eq!(read::<Rate>(&written(rate)), rate);
                    }
                }
            }
            for whole in [bits >> shift, u64::MAX - (bits >> shift)] {
                prop_assert_eq!(read::<ByteCount>(&written(ByteCount(whole))), ByteCount(whole));
                prop_assert_eq!(read::<Span>(&written(Span::from_nanos(whole))), Span::from_nanos(whole));
            }
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,12}") {
            let _ = (text.parse::<Rate>(), text.parse::<ByteCount>(), text.parse::<Span>());
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
