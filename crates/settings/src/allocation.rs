//! The keys that say what an account was promised, wherever a file has them.

use crate::key::{Absent, Integer, IntegerOrWord, Key, KeyTable, Quantity, SubTable, Text};
use crate::problem::Problem;
use crate::reader::Section;
use plimsoll_core::account::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use plimsoll_core::units::{self, DEADLINES};
use plimsoll_core::{Allocation, Deadlines, Priority, Rate};

/// The rate that an account gets however the others behave.
pub const RESERVE: Key<Quantity<Rate>> = Key {
    name: "reserve",
    form: Quantity { allowed: "a rate such as \"45 runs/s\", \"10MB/s\" or \"30%\"", is_allowed: |_| true },
    absent: Absent::Words("none"),
    help: "the rate that it gets whatever other accounts do",
};
/// The rate that an account never exceeds.
pub const LIMIT: Key<Quantity<Rate>> = Key {
    name: "limit",
    form: Quantity {
        allowed: "a rate above zero (leave it out for no limit)",
        is_allowed: |rate| rate.runs_per_second(100.0) > 0.0,
    },
    absent: Absent::Words("none"),
    help: "the rate that it never exceeds; at least the reserve",
};
/// An account's part of what is not reserved.
pub const WEIGHT: Key<Integer> = Key {
    name: "weight",
    form: Integer::new(WEIGHT_MIN as u64..=WEIGHT_MAX as u64, ""),
    absent: Absent::Value(WEIGHT_DEFAULT as u64),
    help: "its part of what is not reserved, relative to its neighbours'",
};
/// An account's priority; the word is the lowest.
pub const PRIORITY: Key<IntegerOrWord> = Key {
    name: "priority",
    form: IntegerOrWord::new(0..=7, "idle"),
    absent: Absent::Value(PRIORITY_DEFAULT),
    help: "where the scheduler goes by priority: 0 is the highest, `\"idle\"` gets what is left over",
};
/// How soon an account's requests and calls should be done.
pub const DEADLINES_TABLE: Key<SubTable> = Key {
    name: "deadlines",
    form: SubTable { table: &DEADLINES_KEYS },
    absent: Absent::Words("none"),
    help: "where the scheduler goes by deadline: how soon requests and calls should be done",
};

const READ: Key<Text> = Key {
    name: "read",
    form: Text::new("time", DEADLINES),
    absent: Absent::Words("none"),
    help: "how soon a read should be done",
};
const WRITE: Key<Text> = Key {
    name: "write",
    form: Text::new("time", DEADLINES),
    absent: Absent::Words("none"),
    help: "how soon a write should be done",
};
const FSYNC: Key<Text> = Key {
    name: "fsync",
    form: Text::new("time", DEADLINES),
    absent: Absent::Words("none"),
    help: "how soon the call `fsync` should return",
};
const DEADLINES_KEYS: KeyTable = KeyTable { path: "deadlines", keys: &[&READ, &WRITE, &FSYNC] };

/// [`Priority::default`] as a file has it.
const PRIORITY_DEFAULT: Option<u64> = Some(4);

/// Reads `read`, `write` and `fsync`: everything that `section` may have.
pub fn deadlines(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Deadlines {
    let deadline = |text: &str| units::deadline(text).map_err(|error| error.expected().to_owned());
    let mut time = |key: Key<Text>| key.read(&mut section, problems, deadline);
    let deadlines = Deadlines { read: time(READ), write: time(WRITE), fsync: time(FSYNC) };
    section.finish(problems);
    deadlines
}

/// Reads `reserve`, `limit`, `weight`, `priority` and the table `deadlines` of `section`.
pub fn allocation(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Allocation {
    let reserve = RESERVE.read(section, problems);
    let limit = LIMIT.read(section, problems);
    let weight = WEIGHT.read_or_default(section, problems);
    let priority = PRIORITY.read_or_default(section, problems);
    let own = DEADLINES_TABLE.read(section, problems);
    let deadlines = own.map_or_else(Deadlines::default, |section| deadlines(section, problems));
    Allocation {
        reserve: reserve.unwrap_or(Rate::ZERO),
        limit,
        weight: weight as u32,
        priority: priority.map_or(Priority::Idle, |level| Priority::Level(level as u8)),
        deadlines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::LineIndex;
    use crate::syntax;
    use plimsoll_core::Span;

    fn of(text: &str) -> (Deadlines, Vec<String>) {
        let (lines, mut problems) = (LineIndex::new(text), Vec::new());
        let (table, _) = syntax::parse(text, &lines, &mut problems);
        let deadlines = deadlines(Section::root(&table, &lines), &mut problems);
        (deadlines, problems.iter().map(Problem::to_string).collect())
    }

    #[test]
    fn nothing_said_is_the_default() {
        let (text, mut problems) = ("", Vec::new());
        let lines = LineIndex::new(text);
        let (table, _) = syntax::parse(text, &lines, &mut problems);
        assert_eq!(allocation(&mut Section::root(&table, &lines), &mut problems), Allocation::default());
        assert_eq!(problems, []);
    }

    #[test]
    fn deadlines_are_above_zero_and_up_to_an_hour() {
        let (hour, problems) = of("fsync = \"1h\"");
        assert_eq!((hour.fsync, problems.len()), (Some(Span::from_secs(3600)), 0));
        let (none, problems) = of("read = \"0ms\"\nwrite = \"61 min\"\nfsync = \"5000000h\"\n");
        assert_eq!(none, Deadlines::default());
        assert_eq!(problems.len(), 3);
        for (line, got) in [(0, "read: got \"0ms\""), (1, "write: got \"61 min\""), (2, "fsync: got \"5000000h\"")] {
            let allowed = format!("{got}, allowed a time above zero and up to 1 h, such as \"20ms\"");
            assert!(problems[line].ends_with(&allowed), "{}", problems[line]);
        }
    }
}
