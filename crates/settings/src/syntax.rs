//! From text to a table, and from the parser's errors to problems with a line and a key.

use crate::problem::{Problem, quoted};
use crate::reader::LineIndex;
use toml::de::{DeTable, DeValue, Error};

/// The key of what is wrong with a line as such.
const FILE: &str = "file";
/// What the parser calls a key that is there already.
const DUPLICATE: &str = "duplicate key";
/// What the parser calls a value that is no TOML.
const UNQUOTED: &str = "string values must be quoted";

/// Parses `text`. Keys given twice are reported and the first one kept. The second answer is false if there is any
/// other error, because then it is unknown what the rest was meant to be.
pub fn parse<'t>(text: &'t str, lines: &LineIndex, problems: &mut Vec<Problem>) -> (DeTable<'t>, bool) {
    parse_past(&[DUPLICATE], text, lines, problems)
}

/// The same, but a text without quotation marks, such as `size = 10GiB`, is reported and stands in the table as if it
/// had some. So the rest of the file keeps its meaning. What else is wrong with such a value is
/// [left out](without_follow_ups).
pub fn parse_past_unquoted<'t>(text: &'t str, lines: &LineIndex, problems: &mut Vec<Problem>) -> (DeTable<'t>, bool) {
    parse_past(&[DUPLICATE, UNQUOTED], text, lines, problems)
}

/// Removes later problems in a line with one of the first `syntax` problems, which are those of the syntax: one mistake
/// makes one message.
pub fn without_follow_ups(syntax: usize, problems: &mut Vec<Problem>) {
    let is_syntax = |problem: &&Problem| problem.key == FILE;
    let lines: Vec<usize> = problems[..syntax].iter().filter(is_syntax).map(|problem| problem.line).collect();
    let mut number = 0;
    problems.retain(|problem| {
        number += 1;
        number <= syntax || !lines.contains(&problem.line)
    });
}

fn parse_past<'t>(
    harmless: &[&str],
    text: &'t str,
    lines: &LineIndex,
    problems: &mut Vec<Problem>,
) -> (DeTable<'t>, bool) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let table = table.into_inner();
    let mut sections = Vec::new();
    collect_sections(text, &table, "", &mut sections);
    sections.sort_by_key(|section| section.start);
    let is_usable = errors.iter().all(|error| harmless.contains(&found(error).0));
    problems.extend(errors.iter().map(|error| problem(text, lines, &sections, error)));
    (table, is_usable)
}

/// A table that is written out in the file: `[a.b]` or `a = { ... }`.
struct Written {
    start: usize,
    end: usize,
    is_inline: bool,
    path: String,
}

fn collect_sections(text: &str, table: &DeTable<'_>, path: &str, sections: &mut Vec<Written>) {
    for (key, value) in table {
        let DeValue::Table(inner) = value.get_ref() else { continue };
        let path = if path.is_empty() { key.get_ref().to_string() } else { format!("{path}.{}", key.get_ref()) };
        let span = value.span();
        let first = text.as_bytes().get(span.start);
        if let Some(b'[' | b'{') = first {
            let is_inline = first == Some(&b'{');
            sections.push(Written { start: span.start, end: span.end, is_inline, path: path.clone() });
        }
        collect_sections(text, inner, &path, sections);
    }
}

/// What the parser has found, and what it expected.
fn found(error: &Error) -> (&str, &str) {
    error.message().split_once(", expected ").unwrap_or((error.message(), "TOML"))
}

fn problem(text: &str, lines: &LineIndex, sections: &[Written], error: &Error) -> Problem {
    let span = error.span().unwrap_or(0..0);
    let line = lines.line(span.start.min(text.len()));
    if error.message() == DUPLICATE {
        let key = duplicate_key(span.start, text.get(span).unwrap_or_default(), sections);
        return Problem { line, key, got: "a second one".into(), allowed: "one".into() };
    }
    let (found, expected) = found(error);
    let expected = if found == UNQUOTED { "a text in quotation marks, a number, true or false" } else { expected };
    let got = format!("{} ({found})", quoted(text.lines().nth(line - 1).unwrap_or_default().trim()));
    Problem { line, key: FILE.to_owned(), got, allowed: expected.to_owned() }
}

/// The dotted name of the second `name`, which stands at byte `at`.
fn duplicate_key(at: usize, name: &str, sections: &[Written]) -> String {
    let holds = |section: &&Written| section.start <= at && (!section.is_inline || at < section.end);
    match sections.iter().rev().find(holds) {
        None => name.to_owned(),
        Some(section) if !section.is_inline && at < section.end => section.path.clone(),
        Some(section) => format!("{}.{name}", section.path),
    }
}
