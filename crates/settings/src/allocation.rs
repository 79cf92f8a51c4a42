//! The keys that say what an account was promised, wherever a file has them.

use crate::problem::Problem;
use crate::reader::Section;
use plimsoll_core::account::{WEIGHT_DEFAULT, WEIGHT_MAX, WEIGHT_MIN};
use plimsoll_core::{Allocation, Deadlines, Priority, Rate, Span};

const RATE: &str = "a rate such as \"45 runs/s\", \"10MB/s\" or \"30%\"";
const TIME: &str = "a time above zero, such as \"20ms\"";

/// Reads `read`, `write` and `fsync`: everything that `section` may have.
pub fn deadlines(mut section: Section<'_>, problems: &mut Vec<Problem>) -> Deadlines {
    let mut time = |key| section.quantity(key, TIME, problems, |span| *span > Span::ZERO);
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
