//! The section of a real database: `[database.NAME]`.

use super::model::DatabaseSetup;
use super::words::NAME;
use crate::tpch::{SCALES, sql};
use plimsoll_core::ByteCount;
use plimsoll_settings::{Place, Problem, Section};

/// One server at a time: its queries are what is timed.
const DATABASES_MAX: usize = 1;
/// With less, queries and the making of indexes find no page that is free. Bytes.
const BUFFERS_BYTES_MIN: u64 = 512 << 10;
/// What PostgreSQL counts in.
const PAGE_BYTES: u64 = 8192;
const BUFFERS_BYTES_MAX: u64 = 1 << 30;
/// The default of the paper's time, 32 MB.
const BUFFERS_BYTES_DEFAULT: u64 = 32 << 20;

/// Reads `[database.*]`.
pub(super) fn databases(
    file: &mut Section<'_>,
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Vec<DatabaseSetup> {
    let sections = file.named_sections("database", DATABASES_MAX, problems);
    sections.into_iter().filter_map(|(name, section)| database(name, section, users, problems)).collect()
}

fn database(
    name: String,
    mut section: Section<'_>,
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Option<DatabaseSetup> {
    const QUERIES: &str = "a list of some of 2, 17, 18 and 19, each once";
    const BUFFERS: &str = "a multiple of 8KiB from 512KiB to 1GiB";
    let scale_allowed = format!("from {} to {}", SCALES.start(), SCALES.end());
    section.require("queries", QUERIES, problems);
    section.require("scale", &scale_allowed, problems);
    let queries = section.with("queries", QUERIES, problems, |value| {
        let numbers = value.as_array()?.iter().map(|number| number.get_ref().as_integer()?.as_str().parse().ok());
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        let is_once = |number: &u64| numbers.iter().filter(|other| *other == number).count() == 1;
        let is_right = !numbers.is_empty() && numbers.iter().all(|one| sql::QUERIES.contains(one) && is_once(one));
        is_right.then_some(numbers)
    });
    let scale = section.number("scale", &scale_allowed, problems);
    let is_size = |size: &ByteCount| {
        size.0.is_multiple_of(PAGE_BYTES) && (BUFFERS_BYTES_MIN..=BUFFERS_BYTES_MAX).contains(&size.0)
    };
    let buffers = section.quantity("buffers", BUFFERS, problems, is_size);
    let account = section.text("account", NAME, problems).unwrap_or(&name).to_owned();
    let place = section.finish(problems);
    users.push((place.clone(), account.clone()));
    if let Some(scale) = scale.filter(|scale| !SCALES.contains(scale)) {
        problems.push(place.problem("scale", scale.to_string(), scale_allowed));
    }
    let buffers_bytes = buffers.map_or(BUFFERS_BYTES_DEFAULT, |size| size.0);
    Some(DatabaseSetup { name, account, queries: queries?, scale: scale?, buffers_bytes })
}
