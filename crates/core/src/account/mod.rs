//! The tree of accounts and what each was promised.
//!
//! An administrator makes long-lived **pools**; applications open **sessions** inside them (Zygaria, section 3). The
//! root stands for the device itself. A node's reserve is a part of its parent's. The reserves of a pool's sessions
//! must fit the pool's, and the pools' must fit the device's worst case. That check is *admission*. A refusal says by
//! how much the reserve does not fit.

mod members;
mod tree;

pub use tree::AccountTree;

use crate::device::DeviceProfile;
use crate::number::three_digits;
use crate::time::Span;
use crate::units::{DEADLINES, Rate, is_deadline};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// Smallest and largest weight, and the default weight of an account (as cgroup v2 has them).
pub const WEIGHT_MIN: u32 = 1;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;
/// Weight of an account without a weight of its own.
pub const WEIGHT_DEFAULT: u32 = 100;
/// Levels below the root at the most.
pub const DEPTH_MAX: usize = 16;
/// Rounding that admission forgives, in runs per second: percentages are rarely exact.
const ADMISSION_TOLERANCE_RUNS_PER_SECOND: f64 = 1e-6;

/// An account's number. Small, dense, and used again after the account has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AccountId(pub u32);

impl AccountId {
    /// The account that stands for the device.
    pub const ROOT: AccountId = AccountId(0);

    /// Its place in an array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Priority of an account, highest first: the kernel's three I/O classes (`ioprio_set(2)`), two of them with levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "WrittenPriority", into = "WrittenPriority")]
pub enum Priority {
    /// Served before every account that is not in real time: 0 (highest) to 7 (lowest) among themselves.
    RealTime(u8),
    /// Best effort: 0 (highest) to 7 (lowest).
    Level(u8),
    /// Served when no other account wants anything.
    Idle,
}

/// A priority as files have it: `3`, `"idle"` or `{ realtime = 3 }`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WrittenPriority {
    RealTime(u8),
    Idle,
    #[serde(untagged)]
    Level(u8),
}

impl From<WrittenPriority> for Priority {
    fn from(written: WrittenPriority) -> Priority {
        match written {
            WrittenPriority::RealTime(level) => Priority::RealTime(level),
            WrittenPriority::Idle => Priority::Idle,
            WrittenPriority::Level(level) => Priority::Level(level),
        }
    }
}

impl From<Priority> for WrittenPriority {
    fn from(priority: Priority) -> WrittenPriority {
        match priority {
            Priority::RealTime(level) => WrittenPriority::RealTime(level),
            Priority::Idle => WrittenPriority::Idle,
            Priority::Level(level) => WrittenPriority::Level(level),
        }
    }
}

impl Default for Priority {
    /// The kernel's default for best-effort processes.
    fn default() -> Self {
        Priority::Level(4)
    }
}

/// How soon an account's requests and calls should complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Deadlines {
    /// For a block read.
    pub read: Option<Span>,
    /// For a block write.
    pub write: Option<Span>,
    /// For an fsync call.
    pub fsync: Option<Span>,
}

/// What an account was promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Allocation {
    /// The rate that it gets however the others behave; zero if nothing was reserved.
    pub reserve: Rate,
    /// The rate that it never exceeds; `None` for no limit.
    pub limit: Option<Rate>,
    /// Its part of what is not reserved, relative to its siblings'; 1 to 10,000.
    pub weight: u32,
    /// Its priority, for schedulers that go by priority.
    pub priority: Priority,
    /// Its deadlines, for schedulers that go by deadline.
    pub deadlines: Deadlines,
}

impl Default for Allocation {
    fn default() -> Self {
        Allocation {
            reserve: Rate::ZERO,
            limit: None,
            weight: WEIGHT_DEFAULT,
            priority: Priority::default(),
            deadlines: Deadlines::default(),
        }
    }
}

/// Whether an account holds others or does I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountKind {
    /// Holds pools and sessions.
    Pool,
    /// Does I/O.
    Session,
}

/// One node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its number.
    pub id: AccountId,
    /// The account that it is in; `None` for the root.
    pub parent: Option<AccountId>,
    /// What people call it; unique among its siblings.
    pub name: String,
    /// Pool or session.
    pub kind: AccountKind,
    /// What it was promised.
    pub allocation: Allocation,
}

/// Why an account cannot be opened, changed or closed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AccountError {
    /// The promises of one account contradict each other or are out of range.
    #[error("{path}: {problem}")]
    Allocation {
        /// The account.
        path: String,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// The reserves do not fit.
    #[error(
        "{path}: a reserve of {} runs/s does not fit: {parent} has {} runs/s, {} are promised to others, {}",
        three_digits(*.asked), three_digits(*.available), three_digits(*.promised), too_many(.asked + .promised - .available, "")
    )]
    Admission {
        /// The account that asked.
        path: String,
        /// The account that it is in.
        parent: String,
        /// Runs per second that it asked for.
        asked: f64,
        /// Runs per second that its parent can give away.
        available: f64,
        /// Runs per second that its siblings have.
        promised: f64,
    },
    /// A pool's reserve would fall below what its members were promised.
    #[error(
        "{path}: a reserve of {} runs/s is less than its members were promised, {} runs/s: {} too few",
        three_digits(*.asked), three_digits(*.promised), three_digits(.promised - .asked)
    )]
    Members {
        /// The account that asked.
        path: String,
        /// Runs per second that it asked for.
        asked: f64,
        /// Runs per second that its members have.
        promised: f64,
    },
    /// Two siblings of one name.
    #[error("{path}: there is one of that name already")]
    Name {
        /// The account.
        path: String,
    },
    /// A session cannot hold accounts, a closed account cannot do anything, a full pool cannot close.
    #[error("{path}: {problem}")]
    Tree {
        /// The account.
        path: String,
        /// What is wrong.
        problem: &'static str,
    },
}

impl AccountError {
    /// By how many runs per second the reserves do not fit; zero for other errors.
    pub fn excess(&self) -> f64 {
        match self {
            AccountError::Admission { asked, available, promised, .. } => asked + promised - available,
            AccountError::Members { asked, promised, .. } => promised - asked,
            _ => 0.0,
        }
    }

    /// The same for a message: `11.2 runs/s too many`, and never that nothing is too much.
    pub fn excess_in_words(&self) -> String {
        too_many(self.excess(), " runs/s")
    }
}

/// Messages round to this.
const SHOWN_MIN: f64 = 0.01;

fn too_many(excess: f64, unit: &str) -> String {
    match excess < SHOWN_MIN {
        true => format!("less than {SHOWN_MIN}{unit} too many"),
        false => format!("{}{unit} too many", three_digits(excess)),
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::RealTime(level) => write!(out, "realtime {level}"),
            Priority::Level(level) => write!(out, "{level}"),
            Priority::Idle => out.write_str("idle"),
        }
    }
}

impl Allocation {
    /// Says what is out of range, if anything is; `device` gives percentages their meaning.
    pub fn problem(&self, device: &DeviceProfile) -> Option<String> {
        let worst_case = device.worst_case_runs_per_second;
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&self.weight) {
            return Some(format!("weight {} is out of range, allowed are {WEIGHT_MIN} to {WEIGHT_MAX}", self.weight));
        }
        if let Priority::Level(level @ 8..) | Priority::RealTime(level @ 8..) = self.priority {
            return Some(format!("priority {level} is out of range, allowed are 0 (highest) to 7 and \"idle\""));
        }
        let Deadlines { read, write, fsync } = self.deadlines;
        if let Some(span) = [read, write, fsync].into_iter().flatten().find(|span| !is_deadline(*span)) {
            return Some(format!("deadline {span} is out of range, allowed is {DEADLINES}"));
        }
        let is_percentage = matches!(self.limit, Some(Rate::DevicePercent(_)));
        if worst_case <= 0.0 && (self.reserve != Rate::ZERO || is_percentage) {
            let name = &device.name;
            return Some(format!("got a reserve or a percentage, allowed only with device.{name}.worst_case"));
        }
        let limit = self.limit?;
        let limit_runs_per_second = limit.runs_per_second(worst_case);
        if limit_runs_per_second <= 0.0 {
            return Some(format!("limit {limit} is out of range, allowed is more than 0 (leave it out for no limit)"));
        }
        let is_below = match (limit, self.reserve) {
            (Rate::BytesPerSecond(limit), Rate::BytesPerSecond(reserve)) => limit < reserve,
            _ => limit_runs_per_second < self.reserve.runs_per_second(worst_case),
        };
        is_below.then(|| format!("limit {limit} is less than reserve {}, allowed is at least as much", self.reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break that was seen red: the excess is rounded like any figure, and `0 too many` is said.
    #[test]
    fn an_excess_is_never_told_as_nothing() {
        assert_eq!(too_many(0.000_4, " runs/s"), "less than 0.01 runs/s too many");
        assert_eq!(too_many(11.2, ""), "11.2 too many");
    }
}
