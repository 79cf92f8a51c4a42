//! Each promise names the tests that prove it, and each of these tests names the promise's id.
//!
//! Promises stand on pages below `docs/promises`, one row each. An id begins with the name of its page:
//!
//! ```text
//! | id | promise | proof |
//! | --- | --- | --- |
//! | cache-kill | After kill -9 each block has ... | `crates/cli/tests/up/cache.rs: after_a_kill_each_block_...` |
//! ```
//!
//! Below the table a list may say more of single promises: "- `cache-kill`: ...".
//!
//! A test names the ids in a line of its doc comment: `Promise: cache-kill, cache-flush.` A row of a scenario and a
//! target of the `Makefile` name them in such a comment in the line above. `TIDY=write cargo test -p plimsoll-core
//! --test tidy promises` writes the proofs that name an id into the row of the id.

use super::lexer::{Kind, pieces};
use super::tree::{Text, find, house, root};
use std::collections::BTreeMap;
use std::{env, fs};

/// Characters of a promise.
const PROMISE_CHARACTERS_MAX: usize = 160;
/// Words of a promise; numbers and signs alone do not count.
const PROMISE_WORDS_MAX: usize = 25;
/// The page that links the pages of promises.
const DOOR: &str = "PROMISES.md";
const FOLDER: &str = "docs/promises/";
const HEAD: &str = "| id | promise | proof |";
const NAMING: &str = "Promise: ";
const UNTESTED: &str = "*not yet tested*";
/// The proof of a comment that stands above no test, row or target.
const NOTHING: &str = "nothing";

struct Row<'t> {
    page: &'t str,
    /// The line as it stands on the page.
    line: &'t str,
    id: &'t str,
    promise: &'t str,
    proofs: Vec<&'t str>,
}

/// A place that names an id: a test, a row of a scenario or a target.
struct Naming {
    id: String,
    /// As rows have it: `FILE: FUNCTION` or `make TARGET`.
    proof: String,
    /// The file and line with the id.
    place: String,
}

fn pages(texts: &[Text]) -> impl Iterator<Item = &Text> {
    texts.iter().filter(|text| text.path.starts_with(FOLDER) && text.path.ends_with(".md"))
}

fn rows(texts: &[Text]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for page in pages(texts) {
        let mut is_in_table = false;
        for line in page.text.lines() {
            is_in_table = line == HEAD || (is_in_table && line.starts_with('|'));
            let mut cells = line.trim_matches('|').splitn(3, '|').map(str::trim);
            let (Some(id), Some(promise), Some(proofs)) = (cells.next(), cells.next(), cells.next()) else { continue };
            if is_in_table && line != HEAD && !id.starts_with("---") {
                let proofs = proofs.split("<br>").map(|proof| proof.trim().trim_matches('`')).collect();
                rows.push(Row { page: &page.path, line, id, promise, proofs });
            }
        }
    }
    rows
}

/// The ids in `comment`, if it is one that names promises.
fn ids(comment: &str, mark: &str) -> Vec<String> {
    let named = comment.trim().strip_prefix(mark).and_then(|text| text.trim_start().strip_prefix(NAMING));
    let ids = named.into_iter().flat_map(|ids| ids.trim_end().trim_end_matches('.').split(','));
    ids.map(|id| id.trim().to_owned()).collect()
}

/// The name behind the first `fn` of a piece of code.
fn function(code: &str) -> Option<&str> {
    let (_, rest) = code.split_once("fn ")?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Every place that names ids, in the order of paths.
fn namings(texts: &[Text]) -> Vec<Naming> {
    let mut namings = Vec::new();
    let mut push = |text: &Text, waiting: &mut Vec<(String, usize)>, proof: String| {
        namings.extend(waiting.drain(..).map(|(id, line)| Naming {
            id,
            proof: proof.clone(),
            place: format!("{}:{line}", text.path),
        }));
    };
    for text in texts.iter().filter(|text| text.text.contains(NAMING)) {
        let mut waiting = Vec::new();
        if text.path.ends_with(".rs") {
            for piece in pieces(&text.text) {
                if piece.kind == Kind::Doc {
                    waiting.extend(ids(piece.text, "///").into_iter().map(|id| (id, piece.line)));
                } else if let Some(name) = function(piece.text).filter(|_| piece.kind == Kind::Code) {
                    push(text, &mut waiting, format!("{}: {name}", text.path));
                }
            }
        } else if text.path.starts_with("scenarios/") || text.path == "Makefile" {
            for (index, line) in text.text.lines().enumerate() {
                waiting.extend(ids(line, "#").into_iter().map(|id| (id, index + 1)));
                if line.starts_with('#') {
                    continue;
                }
                let row = line.strip_prefix('[').and_then(|row| row.strip_suffix(']'));
                let proof = match (row, line.split_once(':')) {
                    (Some(row), _) => format!("{}: {row}", text.path),
                    (None, Some((target, _))) if text.path == "Makefile" => format!("make {target}"),
                    _ => NOTHING.to_owned(),
                };
                push(text, &mut waiting, proof);
            }
        }
        push(text, &mut waiting, NOTHING.to_owned());
    }
    namings
}

/// Whether the file of `proof` is there and has its test, row or target.
fn is_there(texts: &[Text], proof: &str) -> bool {
    if let Some(target) = proof.strip_prefix("make ") {
        return find(texts, "Makefile").is_some_and(|text| text.lines().any(|l| l.starts_with(&format!("{target}:"))));
    }
    proof.split_once(": ").is_some_and(|(file, name)| {
        let text = find(texts, file).unwrap_or("");
        text.contains(&format!("fn {name}(")) || text.contains(&format!("\n[{name}]\n"))
    })
}

/// Pages and the ids that a line of a list below the table begins with.
fn explained(texts: &[Text]) -> Vec<(&str, &str)> {
    let mut explained = Vec::new();
    for page in pages(texts) {
        let lines = page.text.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("`: "));
        explained.extend(lines.flat_map(|(ids, _)| ids.split("`, `")).map(|id| (&*page.path, id)));
    }
    explained
}

fn is_id(id: &str, page: &str) -> bool {
    let room = page.trim_start_matches(FOLDER).trim_end_matches(".md");
    let name = id.strip_prefix(room).and_then(|rest| rest.strip_prefix('-')).unwrap_or("");
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.split('-').all(is_part)
}

fn complaints(texts: &[Text]) -> Vec<String> {
    let (rows, namings) = (rows(texts), namings(texts));
    let mut complaints = Vec::new();
    let mut known = BTreeMap::new();
    for Row { page, id, promise, proofs, .. } in &rows {
        let place = format!("{page}: {id}");
        if !is_id(id, page) {
            complaints
                .push(format!("{place}: an id is the page's name and small letters, digits and hyphens behind it"));
        }
        if let Some(other) = known.insert(*id, *page) {
            complaints.push(format!("{place}: {other} has a promise of this id"));
        }
        let characters = promise.chars().count();
        if !(1..=PROMISE_CHARACTERS_MAX).contains(&characters) {
            complaints.push(format!("{place}: {characters} characters, allowed are 1 to {PROMISE_CHARACTERS_MAX}"));
        }
        let words = promise.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count();
        if words > PROMISE_WORDS_MAX {
            complaints.push(format!("{place}: {words} words, allowed are {PROMISE_WORDS_MAX}"));
        }
        let naming: Vec<&str> = namings.iter().filter(|naming| naming.id == *id).map(|naming| &*naming.proof).collect();
        if *proofs == [UNTESTED] && naming.is_empty() {
            continue;
        }
        for proof in proofs.iter().filter(|proof| !naming.contains(proof)) {
            let what = if is_there(texts, proof) { "does not name it" } else { "is not there" };
            complaints.push(format!("{place}: the proof {proof} {what}"));
        }
        for proof in naming.iter().filter(|proof| !proofs.contains(proof)) {
            complaints.push(format!("{place}: {proof} names it and is missing in the row"));
        }
    }
    let unknown = namings.iter().filter(|naming| !known.contains_key(&*naming.id));
    complaints.extend(unknown.map(|naming| format!("{}: no page has a promise {}", naming.place, naming.id)));
    for (page, id) in explained(texts).into_iter().filter(|(page, id)| known.get(id) != Some(page)) {
        complaints.push(format!("{page}: a sentence explains {id}, and the page has no such promise"));
    }
    let door = find(texts, DOOR).unwrap_or("");
    let unlinked = pages(texts).filter(|page| !door.contains(&format!("({})", page.path)));
    complaints.extend(unlinked.map(|page| format!("{DOOR} does not link {}", page.path)));
    complaints
}

/// The pages with the proofs of each row that name its id. A listed proof that is there and does not name it stays, so
/// that no proof is lost with a line of a comment.
fn renewed(texts: &[Text]) -> Vec<Text> {
    let namings = namings(texts);
    let mut renewed: Vec<Text> =
        texts.iter().map(|text| Text { path: text.path.clone(), text: text.text.clone() }).collect();
    for Row { page, line, id, promise, proofs } in rows(texts) {
        let naming: Vec<&str> = namings.iter().filter(|naming| naming.id == id).map(|naming| &*naming.proof).collect();
        let mute = proofs.into_iter().filter(|proof| !naming.contains(proof) && is_there(texts, proof));
        let all: Vec<String> = naming.iter().copied().chain(mute).map(|proof| format!("`{proof}`")).collect();
        if let Some(page) = renewed.iter_mut().find(|text| text.path == page && !all.is_empty()) {
            page.text = page.text.replace(line, &format!("| {id} | {promise} | {} |", all.join("<br>")));
        }
    }
    renewed
}

#[test]
fn every_promise_names_tests_that_exist_and_that_name_it() {
    assert!(rows(house()).len() > 100, "the tables of promises were not found");
    let complaints = if env::var_os("TIDY").is_some_and(|what| what == "write") {
        let renewed = renewed(house());
        pages(&renewed).for_each(|page| fs::write(root().join(&page.path), &page.text).unwrap());
        complaints(&renewed)
    } else {
        complaints(house())
    };
    assert!(complaints.is_empty(), "{}\nTIDY=write renews the proofs of rows", complaints.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::planted;

    const TEST: &str = "/// Something.\n/// Promise: a-one, a-two-2.\n#[test]\n#[cfg(feature = \"x\")]\nfn good() {}\n\n\
        #[test]\nfn mute() {}\n\n/// Promise: a-two-2.\n#[test]\nfn second() {}\n";
    const SCENARIO: &str = "x = 1\n\n# Promise: a-three.\n[row.y]\nz = 2\n\n[row.mute]\n";
    const MAKE: &str = "# Promise: a-three.\nacceptance: build\n\tx\nmute:\n";
    const ROWS: &str = "| a-one | It holds | `t.rs: good` |\n| a-two-2 | It holds | `t.rs: good`<br>`t.rs: second` |\n\
        | a-three | It holds | `make acceptance`<br>`scenarios/s.toml: row.y` |\n| a-four | It | *not yet tested* |";

    fn house_of(rows: &str, test: &str) -> Vec<Text> {
        let page = format!("# A\n\n{HEAD}\n| --- | --- | --- |\n{rows}\n\n| b | c | d |\n| --- | --- | --- |\n");
        planted(&[
            (DOOR, "[a](docs/promises/a.md)"),
            ("docs/promises/a.md", &page),
            ("t.rs", test),
            ("scenarios/s.toml", SCENARIO),
            ("Makefile", MAKE),
        ])
    }

    #[test]
    fn whole_rows_pass() {
        let complaints = complaints(&house_of(ROWS, TEST));
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    /// Planted breaks: proofs are not looked at, only proofs that are not there are found, an empty text or one of 161
    /// characters or 26 words passes, sentences below the table are not looked at; each red.
    #[test]
    fn planted_rows_that_break_a_rule_are_found() {
        let long = "x".repeat(PROMISE_CHARACTERS_MAX + 1);
        let cases = [
            ("| a-five | It holds | `t.rs: gone` |", "a-five: the proof t.rs: gone is not there"),
            ("| a-five | It holds | `nowhere.rs: good` |", "a-five: the proof nowhere.rs: good is not there"),
            (
                "| a-five | It holds | `scenarios/s.toml: row.gone` |",
                "a-five: the proof scenarios/s.toml: row.gone is not there",
            ),
            ("| a-five | It holds | `make gone` |", "a-five: the proof make gone is not there"),
            ("| a-five | It holds | by hand |", "a-five: the proof by hand is not there"),
            ("| a-five | It holds | `t.rs: mute` |", "a-five: the proof t.rs: mute does not name it"),
            ("| a-five | It holds | `t.rs: good` |", "a-five: the proof t.rs: good does not name it"),
            (
                "| a-five | It holds | `scenarios/s.toml: row.mute` |",
                "a-five: the proof scenarios/s.toml: row.mute does not name it",
            ),
            ("| a-five | It holds | `make mute` |", "a-five: the proof make mute does not name it"),
            ("| a-one | Again | `t.rs: good` |", "a-one: docs/promises/a.md has a promise of this id"),
            (&*format!("| a-five | {long} | {UNTESTED} |"), "a-five: 161 characters, allowed are 1 to 160"),
            ("| a-five |  | *not yet tested* |", "a-five: 0 characters, allowed are 1 to 160"),
        ];
        for (row, complaint) in cases {
            let complaint = format!("docs/promises/a.md: {complaint}");
            assert_eq!(complaints(&house_of(&format!("{ROWS}\n{row}"), TEST)), [complaint]);
        }
        let words = format!("{ROWS}\n| a-five | {} | {UNTESTED} |", "a ".repeat(PROMISE_WORDS_MAX + 1) + "1 %");
        assert_eq!(complaints(&house_of(&words, TEST)), ["docs/promises/a.md: a-five: 26 words, allowed are 25"]);
        let list = format!("{ROWS}\n\n- `a-one`, `a-nine`: It.\n- `x`\n- a-ten: no.");
        let expected = ["docs/promises/a.md: a sentence explains a-nine, and the page has no such promise"];
        assert_eq!(complaints(&house_of(&list, TEST)), expected);
        for id in ["b-five", "a", "a-", "a-Five", "a-five_six", "a five", "a--five"] {
            let complaints = complaints(&house_of(&format!("{ROWS}\n| {id} | It holds | {UNTESTED} |"), TEST));
            assert_eq!(complaints.len(), 1, "{id}: {complaints:?}");
            assert!(complaints[0].contains("an id is the page's name"), "{complaints:?}");
        }
    }

    /// Planted breaks: unknown ids pass, a test that a row does not list passes; each red.
    #[test]
    fn planted_ids_that_no_row_has_are_found() {
        let unknown = format!("{TEST}/// Promise: a-nine.\n#[test]\nfn f() {{}}\n");
        assert_eq!(complaints(&house_of(ROWS, &unknown)), ["t.rs:13: no page has a promise a-nine"]);
        let untested = ROWS.replace("`t.rs: good` |\n| a-two", "*not yet tested* |\n| a-two");
        let named = complaints(&house_of(&untested, TEST));
        assert!(named.contains(&"docs/promises/a.md: a-one: t.rs: good names it and is missing in the row".to_owned()));
        let unlisted = ROWS.replace("<br>`t.rs: second`", "");
        let expected = ["docs/promises/a.md: a-two-2: t.rs: second names it and is missing in the row"];
        assert_eq!(complaints(&house_of(&unlisted, TEST)), expected);
        let nowhere = TEST.replace("fn second", "struct Second");
        assert!(complaints(&house_of(ROWS, &nowhere)).iter().any(|complaint| complaint.contains("nothing names it")));
    }

    #[test]
    fn a_planted_page_without_a_link_is_found() {
        let mut texts = house_of(ROWS, TEST);
        texts.iter_mut().find(|text| text.path == DOOR).unwrap().text.clear();
        assert_eq!(complaints(&texts), ["PROMISES.md does not link docs/promises/a.md"]);
    }

    /// Planted breaks: rows stay as they are, a proof that lost its line is taken out; each red.
    #[test]
    fn proofs_are_written_from_the_tests_that_name_an_id() {
        let stale = ROWS.replace("`t.rs: good`<br>`t.rs: second`", "`moved.rs: good`<br>`t.rs: mute`");
        let renewed = renewed(&house_of(&stale.replace("`make acceptance`<br>", ""), TEST));
        let expected = ROWS.replace("`t.rs: second`", "`t.rs: second`<br>`t.rs: mute`");
        assert_eq!(find(&renewed, "docs/promises/a.md"), find(&house_of(&expected, TEST), "docs/promises/a.md"));
    }
}
