//! The keys that say what an account was promised, wherever a file has them.

use crate::problem::Problem;
use crate::reader::Section;
use plimsoll_core::account::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use plimsoll_core::units::{self, DEADLINES};
use plimsoll_core::{Allocation, Deadlines, Priority, Rate};

const RATE: &str = "a rate such as \"45 runs/s\", \"10MB/s\" or \"30%\"";

/// Reads `read`, `write` and `fsync`: everything that `section` may have.
pub fn deadlines(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Deadlines {
    let deadline = |text: &str| units::deadline(text).map_err(|error| error.expected().to_owned());
    let mut time = |key| section.read(key, DEADLINES, problems, deadline);
    let deadlines = Deadlines { read: time("read"), write: time("write"), fsync: time("fsync") };
    section.finish(problems);
    deadlines
}

/// Reads `reserve`, `limit`, `weight`, `priority` and the table `deadlines` of `section`.
pub fn allocation(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Allocation {
    let reserve = section.quantity("reserve", RATE, problems, |_| true);
    let limit = section.quantity("limit", "a rate above zero (leave it out for no limit)", problems, |rate: &Rate| {
        rate.runs_per_second(100.0) > 0.0
    });
    let weight = section.integer("weight", u64::from(WEIGHT_MIN)..=u64::from(WEIGHT_MAX), problems);
    let priority = section.integer_or_word("priority", 0..=7, "idle", problems);
    let own = section.section("deadlines", problems);
    let deadlines = own.map_or_else(Deadlines::default, |section| deadlines(section, problems));
    Allocation {
        reserve: reserve.unwrap_or(Rate::ZERO),
        limit,
        weight: weight.map_or(WEIGHT_DEFAULT, |weight| weight as u32),
        priority: priority
            .map_or(Priority::default(), |level| level.map_or(Priority::Idle, |level| Priority::Level(level as u8))),
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
