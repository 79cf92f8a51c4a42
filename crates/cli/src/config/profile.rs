//! What `plimsoll device measure` found out about a device, in a file that a configuration names.
//!
//! The file is TOML with four keys, so that a person can read it, correct it, or write one from a data sheet.

use super::bounds::{OUTSTANDING_MAX, WORST_CASE as WORST_CASE_ALLOWED, is_worst_case};
use plimsoll_core::{DeviceProfile, Rate};
use plimsoll_settings::key::{Absent, Integer, Key, KeyTable, Quantity};
use plimsoll_settings::{ConfigurationError, LineIndex, Problem, Section, syntax};
use std::path::Path;

/// A profile is a few lines. Bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

const SEQUENTIAL_ALLOWED: &str = "bytes a second above zero, such as \"120MB/s\"";

const WORST_CASE: Key<Quantity<Rate>> = Key {
    name: "worst_case",
    form: Quantity { allowed: WORST_CASE_ALLOWED, is_allowed: is_worst_case },
    absent: Absent::Required(WORST_CASE_ALLOWED),
    help: "small random I/O that the device does at its worst",
};
const SEQUENTIAL: Key<Quantity<Rate>> = Key {
    name: "sequential",
    form: Quantity { allowed: SEQUENTIAL_ALLOWED, is_allowed: is_stream },
    absent: Absent::Required(SEQUENTIAL_ALLOWED),
    help: "the rate of sequential reads",
};
const SEQUENTIAL_WRITE: Key<Quantity<Rate>> = Key {
    name: "sequential_write",
    form: Quantity { allowed: SEQUENTIAL_ALLOWED, is_allowed: is_stream },
    absent: Absent::Words("that of reads"),
    help: "the rate of sequential writes",
};
const OUTSTANDING: Key<Integer> = Key {
    name: "outstanding_max",
    form: Integer::new(1..=OUTSTANDING_MAX, "requests"),
    absent: Absent::Required("a number from 1 to 1024"),
    help: "requests that were outstanding",
};

pub(super) const TABLE: KeyTable =
    KeyTable { path: "profile", keys: &[&WORST_CASE, &SEQUENTIAL, &SEQUENTIAL_WRITE, &OUTSTANDING] };

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredProfile {
    /// Small random I/O at its worst, runs a second.
    pub worst_case_runs_per_second: f64,
    /// The rate of sequential reads, bytes a second.
    pub sequential_bytes_per_second: f64,
    /// The rate of sequential writes, bytes a second; that of reads, if writes were not measured.
    pub sequential_write_bytes_per_second: f64,
    /// Requests that were outstanding.
    pub outstanding_max: u32,
}

impl MeasuredProfile {
    /// Measured values go before those of a profile.
    pub fn put(&self, profile: &mut DeviceProfile) {
        profile.worst_case_runs_per_second = self.worst_case_runs_per_second;
        profile.sequential_bytes_per_second = self.sequential_bytes_per_second;
        profile.sequential_write_bytes_per_second = self.sequential_write_bytes_per_second;
        profile.outstanding_max = self.outstanding_max;
    }

    /// The text of a profile file; `heading` says how it came about.
    pub fn to_toml(&self, heading: &str) -> String {
        let comment: String = heading.lines().map(|line| format!("# {line}\n")).collect();
        format!(
            "{comment}worst_case = \"{:.2} runs/s\"\nsequential = \"{:.0} B/s\"\nsequential_write = \"{:.0} B/s\"\noutstanding_max = {}\n",
            self.worst_case_runs_per_second,
            self.sequential_bytes_per_second,
            self.sequential_write_bytes_per_second,
            self.outstanding_max
        )
    }

    /// Reads `file`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(file: &Path) -> Result<MeasuredProfile, ConfigurationError> {
        let text = plimsoll_settings::file::read_text(file, FILE_BYTES_MAX, "at most 64 KiB")?;
        let mut problems = Vec::new();
        let lines = LineIndex::new(&text);
        let (table, is_usable) = syntax::parse(&text, &lines, &mut problems);
        let profile = is_usable.then(|| profile(TABLE.root(&table, &lines), &mut problems)).flatten();
        match profile {
            Some(profile) if problems.is_empty() => Ok(profile),
            _ => Err(ConfigurationError { file: file.to_owned(), problems }),
        }
    }
}

fn is_stream(rate: &Rate) -> bool {
    matches!(rate, Rate::BytesPerSecond(bytes) if *bytes > 0.0)
}

fn profile(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Option<MeasuredProfile> {
    let before = problems.len();
    let worst_case = WORST_CASE.read(&mut section, problems);
    let sequential = SEQUENTIAL.read(&mut section, problems);
    let write = SEQUENTIAL_WRITE.read(&mut section, problems).or(sequential);
    let outstanding_max = OUTSTANDING.read(&mut section, problems);
    WORST_CASE.require(&mut section, problems);
    SEQUENTIAL.require(&mut section, problems);
    OUTSTANDING.require(&mut section, problems);
    section.finish(problems);
    match (worst_case, sequential, write, outstanding_max) {
        (
            Some(Rate::RunsPerSecond(runs)),
            Some(Rate::BytesPerSecond(bytes)),
            Some(Rate::BytesPerSecond(written_bytes)),
            Some(outstanding),
        ) if problems.len() == before => Some(MeasuredProfile {
            worst_case_runs_per_second: runs,
            sequential_bytes_per_second: bytes,
            sequential_write_bytes_per_second: written_bytes,
            outstanding_max: outstanding as u32,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.profile");
        let profile = MeasuredProfile {
            worst_case_runs_per_second: 111.53,
            sequential_bytes_per_second: 56_000_001.0,
            sequential_write_bytes_per_second: 48_000_000.0,
            outstanding_max: 10,
        };
        std::fs::write(&file, profile.to_toml("one\ntwo")).unwrap();
        assert_eq!(MeasuredProfile::read(&file), Ok(profile));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.profile");
        std::fs::write(&file, "worst_case = \"0 runs/s\"\nsequential = \"3 runs/s\"\nspeed = 1\n").unwrap();
        let problems = MeasuredProfile::read(&file).unwrap_err().problems;
        let keys: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key.as_str())).collect();
        for key in [(1, "worst_case"), (2, "sequential"), (3, "speed")] {
            assert!(keys.contains(&key), "{keys:?}");
        }
        assert!(keys.iter().any(|key| key.1 == "outstanding_max"), "{keys:?}");
    }
}
