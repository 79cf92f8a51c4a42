//! The mix of a load: `spc1-like`, or the head of a workload without its file, such as `read random 4KiB`.
//!
//! Both are made by the crate `workloads` (`docs/workloads.md`), which draws places and Poisson arrivals from a seed.
//! Here its files become parts of the target, one after the other.

use super::LoadError;
use plimsoll_core::{ByteCount, Span};
use plimsoll_workloads::{Action, FileIndex, SPC1_BYTES_MIN, SPC1_IOPS_PER_UNIT, Step, Thread, Workload};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

const SPC1: &str = "spc1-like";
const ALLOWED: &str = "spc1-like, or read, write or mix as in \"read random 4KiB\" or \"mix 70% reads random 8KiB\"";
/// A file that everything fits in, to see whether a text is understood.
const ANY_SIZE: &str = "1024TiB";

/// A mix of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(String);

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// When it is due, since the load began.
    pub due: Span,
    pub is_read: bool,
    /// First byte of the target.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let head = text.split_whitespace().next().unwrap_or("");
        if text == SPC1 {
            return Ok(Mix(text.to_owned()));
        }
        if !["read", "write", "mix"].contains(&head) || text.contains(',') {
            return Err(format!("got {text:?}, allowed {ALLOWED}"));
        }
        workload(text, ANY_SIZE, 1.0).map(|_| Mix(text.to_owned()))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

fn workload(mix: &str, size: &str, per_second: f64) -> Result<Workload, String> {
    let text = format!("{mix} in target {size}, poisson {per_second}/s, direct");
    text.parse().map_err(|error| format!("{mix:?}: {error}"))
}

impl Mix {
    /// Whether it writes.
    pub fn has_writes(&self) -> bool {
        !self.0.starts_with("read")
    }

    fn is_spc1(&self) -> bool {
        self.0 == SPC1
    }

    /// Bytes of its shortest and of its longest request.
    pub(super) fn lengths(&self) -> RangeInclusive<u32> {
        // SPC-1's are drawn, all others are alike.
        let count = if self.is_spc1() { 1000 } else { 1 };
        let requests = self.requests(1 << 50, 1.0, 0).expect("everything fits there");
        let lengths: Vec<u32> = requests.take(count).map(|request| request.length).collect();
        lengths.iter().copied().min().unwrap_or(0)..=lengths.iter().copied().max().unwrap_or(0)
    }

    /// Its requests on a target of `size_bytes`, `per_second` on average, without end.
    ///
    /// # Errors
    /// The target is too small.
    pub(super) fn requests(&self, size_bytes: u64, per_second: f64, seed: u64) -> Result<MixRequests, LoadError> {
        let input = |error: String| LoadError::Input(format!("--mix {error}"));
        if self.is_spc1() && size_bytes < SPC1_BYTES_MIN {
            let (got, least) = (ByteCount(size_bytes), ByteCount(SPC1_BYTES_MIN));
            return Err(input(format!("{self}: got a target of {got}, allowed at least {least}")));
        }
        let (workload, stretch) = if self.is_spc1() {
            // Units are whole, so time is stretched: a Poisson process is one at any speed.
            let units = (per_second / SPC1_IOPS_PER_UNIT).ceil().max(1.0);
            let text = format!("spc1 load {units} on {size_bytes}B, direct");
            let workload = text.parse().map_err(|error| input(format!("{self}: {error}")))?;
            (workload, units * SPC1_IOPS_PER_UNIT / per_second)
        } else {
            (workload(&self.0, &format!("{size_bytes}B"), per_second).map_err(input)?, 1.0)
        };
        let plan = workload.plan(seed);
        let mut starts = vec![0];
        for file in 0..plan.file_count() {
            starts.push(starts[file as usize] + plan.file(FileIndex(file)).bytes);
        }
        Ok(MixRequests { thread: plan.thread(0), starts, stretch })
    }
}

/// Requests, in the order in which they are due.
pub(super) struct MixRequests {
    thread: Thread,
    /// Where each file of the workload begins on the target.
    starts: Vec<u64>,
    stretch: f64,
}

impl Iterator for MixRequests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            let Step::Start { due: Some(due), action } = self.thread.next()? else { continue };
            let (file, is_read, offset, length) = match action {
                Action::Read { file, offset, length } => (file, true, offset, length),
                Action::Write { file, offset, length } => (file, false, offset, length),
                _ => continue,
            };
            let due = Span::from_secs_f64(due.as_secs_f64() * self.stretch);
            return Some(Request {
                due,
                is_read,
                offset: self.starts[file.0 as usize] + offset,
                length: length as u32,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(text: &str) -> Mix {
        text.parse().unwrap()
    }

    #[test]
    fn a_mix_keeps_its_rate_whatever_the_rate() {
        for (text, per_second) in [("spc1-like", 130.0), ("spc1-like", 20.0), ("read random 4KiB", 777.0)] {
            let count = 20_000;
            let last = mix(text).requests(1 << 30, per_second, 1).unwrap().take(count).last().unwrap();
            let measured = count as f64 / last.due.as_secs_f64();
            // The mean of 20,000 exponential gaps deviates by 0.7 %.
            assert!((measured / per_second - 1.0).abs() < 0.03, "{text}: {measured}");
        }
    }

    #[test]
    fn requests_stay_on_the_target_and_spc1_uses_all_of_it() {
        let size = (1 << 30) + 4096;
        let requests: Vec<Request> = mix("spc1-like").requests(size, 100.0, 1).unwrap().take(50_000).collect();
        assert!(requests.iter().all(|request| request.offset + u64::from(request.length) <= size));
        assert!(requests.iter().all(|request| request.offset.is_multiple_of(4096)));
        let reads = requests.iter().filter(|request| request.is_read).count() as f64 / 50_000.0;
        assert!((reads - 0.394).abs() < 0.02, "{reads}");
        // The log is the last tenth, and has 28 % of the requests.
        let log = requests.iter().filter(|request| request.offset >= size / 10 * 9).count() as f64 / 50_000.0;
        assert!((log - 0.281).abs() < 0.02, "{log}");
        assert_eq!(mix("spc1-like").lengths(), 4096..=65_536);
        assert_eq!(mix("mix 70% reads random 8KiB").lengths(), 8192..=8192);
    }

    #[test]
    fn what_writes_is_known_and_what_is_no_mix_is_refused() {
        let writes = |text| mix(text).has_writes();
        assert!(!writes("read random 4KiB") && !writes("read sequential 64KiB"));
        assert!(writes("spc1-like") && writes("write random 4KiB") && writes("mix 100% reads random 4KiB"));
        for text in ["", "spc1", "append 4KiB", "read random 4KiB, depth 4", "readrandom 4KiB", "spin"] {
            assert!(text.parse::<Mix>().unwrap_err().contains("allowed spc1-like, or read"), "{text}");
        }
        let error = "read rndom 4KiB".parse::<Mix>().unwrap_err();
        assert_eq!(error, "\"read rndom 4KiB\": column 6: got \"rndom\", allowed: sequential, random or runs");
        let error = mix("spc1-like").requests(1 << 20, 1.0, 1).err().unwrap().to_string();
        assert_eq!(error, "--mix spc1-like: got a target of 1 MiB, allowed at least 1 GiB");
    }
}
