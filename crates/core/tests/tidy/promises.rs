//! Each promise names the tests that prove it, and both know each other by the promise's id.
//!
//! Promises stand in `PROMISES.md` and in pages below `docs/promises`, one row each:
//!
//! ```text
//! | P-cache-12 | A flushed write survives a power failure | `crates/cache/tests/crash.rs: a_flushed_write_survives` |
//! ```
//!
//! The id is `P-`, the room and a number. The doc comment of each test that a row names must name the row's id, and
//! every id in a doc comment must have a row. A row without an id needs only tests that exist.

use super::lexer::{Kind, pieces};
use super::tree::{Text, find, house};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a promise that has an id.
const PROMISE_CHARACTERS_MAX: usize = 160;

struct Row<'t> {
    page: &'t str,
    id: Option<&'t str>,
    promise: &'t str,
    proof: &'t str,
}

fn is_page(path: &str) -> bool {
    path == "PROMISES.md" || (path.starts_with("docs/promises/") && path.ends_with(".md"))
}

fn rows(texts: &[Text]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for text in texts.iter().filter(|text| is_page(&text.path)) {
        let mut is_head = true;
        for line in text.text.lines() {
            let Some(line) = line.strip_prefix("| ") else {
                is_head = true;
                continue;
            };
            if std::mem::take(&mut is_head) || line.starts_with("---") {
                continue;
            }
            let (before, proof) = line.trim_end().trim_end_matches('|').rsplit_once('|').unwrap_or(("", line));
            let (id, promise) = match before.split_once('|') {
                Some((id, promise)) if ids(id).iter().any(|found| *found == id.trim()) => (Some(id.trim()), promise),
                _ => (None, before),
            };
            rows.push(Row { page: &text.path, id, promise: promise.trim(), proof: proof.trim() });
        }
    }
    rows
}

/// Ids of promises in `text`: `P-`, a room in small letters, `-`, a number.
fn ids(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    let is_id = |word: &&str| {
        let parts = word.strip_prefix("P-").and_then(|rest| rest.rsplit_once('-'));
        parts.is_some_and(|(room, number)| {
            let is_room = !room.is_empty() && room.chars().all(|c| c.is_ascii_lowercase() || matches!(c, '_' | '-'));
            is_room && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
        })
    };
    words.filter(is_id).collect()
}

/// The doc comment of the function, and whether there is one of this name at all.
fn doc_of(text: &str, function: &str) -> Option<String> {
    let start = text.find(&format!("fn {function}("))?;
    let above = text[..start].lines().rev().skip(usize::from(!text[..start].ends_with('\n')));
    let lines = above.map(str::trim).take_while(|line| line.starts_with("///") || line.starts_with("#["));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

fn complaints(texts: &[Text]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut known = BTreeMap::new();
    for row in rows(texts) {
        let place = format!("{}: {}", row.page, row.id.unwrap_or(row.promise));
        if let Some(id) = row.id {
            if let Some(other) = known.insert(id, row.page) {
                complaints.push(format!("{place}: {other} has a promise of this id"));
            }
            let characters = row.promise.chars().count();
            if characters > PROMISE_CHARACTERS_MAX {
                complaints.push(format!("{place}: {characters} characters, allowed are {PROMISE_CHARACTERS_MAX}"));
            }
        }
        let is_command = ["*not yet tested*", "`make ", "`bench"].iter().any(|start| row.proof.starts_with(start));
        for test in row.proof.split("<br>").filter(|_| !is_command) {
            let Some((file, function)) = test.trim().trim_matches('`').split_once(": ") else {
                complaints.push(format!("{place}: no test, but {test}"));
                continue;
            };
            let text = find(texts, file).unwrap_or("");
            let is_found = if file.starts_with("scenarios/") {
                text.contains(&format!("[{function}]\n"))
            } else {
                doc_of(text, function).is_some()
            };
            if !is_found {
                complaints.push(format!("{place}: {file} has no {function}"));
            } else if let Some(id) = row.id.filter(|_| file.ends_with(".rs"))
                && !ids(&doc_of(text, function).unwrap_or_default()).contains(&id)
            {
                complaints.push(format!("{place}: the doc comment of {function} in {file} does not name {id}"));
            }
        }
    }
    complaints.extend(unknown_ids(texts, &known));
    complaints
}

/// Ids in doc comments that no page has.
fn unknown_ids(texts: &[Text], known: &BTreeMap<&str, &str>) -> BTreeSet<String> {
    let mut unknown = BTreeSet::new();
    // The rule's own description has an example of an id.
    for text in texts.iter().filter(|text| text.path.ends_with(".rs") && !text.path.ends_with("tidy/promises.rs")) {
        if !text.text.contains("P-") {
            continue;
        }
        for piece in pieces(&text.text).into_iter().filter(|piece| piece.kind == Kind::Doc) {
            for id in ids(piece.text).into_iter().filter(|id| !known.contains_key(id)) {
                unknown.insert(format!("{}:{}: no page has a promise {id}", text.path, piece.line));
            }
        }
    }
    unknown
}

#[test]
fn every_promise_names_tests_that_exist_and_that_name_it() {
    assert!(rows(house()).len() > 10, "the table of promises was not found");
    let complaints = complaints(house());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::planted;

    const TEST: &str = "/// Something, P-a-1 and\n/// P-b_c-22.\n#[test]\nfn good() {}\n\n#[test]\nfn mute() {}\n";

    fn complaints_of(rows: &str, test: &str) -> Vec<String> {
        let page = format!("# Promises\n\n| id | promise | proof |\n| --- | --- | --- |\n{rows}\n");
        complaints(&planted(&[("PROMISES.md", &page), ("t.rs", test), ("scenarios/s.toml", "[tenant]\n")]))
    }

    #[test]
    fn whole_rows_pass() {
        let rows = "| P-a-1 | It holds | `t.rs: good`<br>`scenarios/s.toml: tenant` |\n\
            | P-b_c-22 | It holds | `t.rs: good` |\n| It holds | `t.rs: mute` |\n| It holds | `make acceptance` |";
        assert!(complaints_of(rows, TEST).is_empty(), "{:?}", complaints_of(rows, TEST));
    }

    #[test]
    fn planted_breaks_are_found() {
        let good = "| P-a-1 | It holds | `t.rs: good` |\n| P-b_c-22 | It holds | `t.rs: good` |\n";
        let long = "x".repeat(161);
        let long_row = format!("| P-a-3 | {long} | `make x` |");
        let cases = [
            ("| It holds | `t.rs: gone` |", "PROMISES.md: It holds: t.rs has no gone"),
            ("| It holds | `scenarios/s.toml: gone` |", "PROMISES.md: It holds: scenarios/s.toml has no gone"),
            ("| It holds | `nowhere.rs: good` |", "PROMISES.md: It holds: nowhere.rs has no good"),
            ("| It holds | by hand |", "PROMISES.md: It holds: no test, but by hand"),
            (
                "| P-a-2 | It holds | `t.rs: mute` |",
                "PROMISES.md: P-a-2: the doc comment of mute in t.rs does not name P-a-2",
            ),
            (
                "| P-a-2 | It holds | `t.rs: good` |",
                "PROMISES.md: P-a-2: the doc comment of good in t.rs does not name P-a-2",
            ),
            ("| P-a-1 | Again | `t.rs: good` |", "PROMISES.md: P-a-1: PROMISES.md has a promise of this id"),
            (&long_row, "PROMISES.md: P-a-3: 161 characters, allowed are 160"),
        ];
        for (row, complaint) in cases {
            assert_eq!(complaints_of(&format!("{good}{row}"), TEST), [complaint]);
        }
        assert_eq!(
            complaints_of(good, &format!("{TEST}/// P-x-9\nfn f() {{}}")),
            ["t.rs:8: no page has a promise P-x-9"]
        );
    }
}
