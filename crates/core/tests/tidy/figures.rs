//! The tables of `docs/figures.md` are made from `docs/figures/*.json`, one file a table.
//!
//! ```json
//! [{"scenario": "split-fig3", "claim": "CFQ: ...", "ours": "deviation 81.5 %", "paper": "82 %", "held": 4,
//!   "claims": 4, "notes": ["Picture: ..."]}]
//! ```
//!
//! `ours` is what a run of the scenario measured, `paper` what the paper has, `held` how many of the scenario's claims
//! held in that run. Bold text in `ours` misses a claim. A note becomes a part of the scenario's footnote. Laboratory
//! notes, which say how a figure came about, stand in `docs/lab-notes`.

use super::tree::{Text, find, house};
use serde::Deserialize;
use std::collections::BTreeMap;

const FOLDER: &str = "docs/figures/";
const PAGE: &str = "docs/figures.md";
const CLAIM_CHARACTERS_MAX: usize = 160;
const OURS_CHARACTERS_MAX: usize = 160;
const PAPER_CHARACTERS_MAX: usize = 100;
const NOTE_CHARACTERS_MAX: usize = 240;
const COLUMNS_MAX: usize = 120;
const BOLD: &str = "**";

/// One scenario's line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Figure {
    scenario: String,
    claim: String,
    ours: String,
    paper: String,
    held: usize,
    claims: usize,
    notes: Vec<String>,
}

fn read(text: &str) -> Result<Vec<Figure>, serde_json::Error> {
    serde_json::from_str(text)
}

/// The table of `docs/figures/NAME.json` and its footnotes.
pub fn table(texts: &[Text], name: &str) -> String {
    let text = find(texts, &format!("{FOLDER}{name}.json")).unwrap_or("[]");
    let figures = read(text).unwrap_or_else(|error| panic!("{FOLDER}{name}.json: {error}"));
    let mut table = "| scenario | claim | ours | paper | claims held |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for Figure { scenario, claim, ours, paper, held, claims, notes } in &figures {
        let mark = if notes.is_empty() { String::new() } else { format!(" [^{scenario}]") };
        let verdict = if *claims == 0 { "-".to_owned() } else { format!("{held} of {claims}") };
        table.push_str(&format!("| `{scenario}`{mark} | {claim} | {ours} | {paper} | {verdict} |\n"));
    }
    for Figure { scenario, notes, .. } in figures.iter().filter(|figure| !figure.notes.is_empty()) {
        table.push_str(&format!("\n{}\n", wrapped(&format!("[^{scenario}]: {}", notes.join(" ")))));
    }
    table
}

/// The text in lines of at most [`COLUMNS_MAX`] characters; all but the first are indented, as a footnote's are.
fn wrapped(text: &str) -> String {
    let (mut wrapped, mut columns) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if columns > 0 && columns + 1 + length > COLUMNS_MAX {
            wrapped.push_str("\n    ");
            columns = 4;
        } else if columns > 0 {
            wrapped.push(' ');
            columns += 1;
        }
        wrapped.push_str(word);
        columns += length;
    }
    wrapped
}

/// How many rows of a scenario have a claim, and whether it is a figure of a paper.
fn claims(scenario: &str) -> Option<(usize, bool)> {
    let scenario: toml::Table = scenario.parse().ok()?;
    let rows = scenario.get("row").and_then(toml::Value::as_table);
    let claims = rows.into_iter().flat_map(|rows| rows.values()).filter(|row| row.get("claim").is_some());
    Some((claims.count(), scenario.get("paper").and_then(toml::Value::as_str) != Some("none")))
}

fn complaints(texts: &[Text]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let page = find(texts, PAGE).unwrap_or("");
    for file in texts.iter().filter(|text| text.path.starts_with(FOLDER) && text.path.ends_with(".json")) {
        let name = file.path.trim_start_matches(FOLDER).trim_end_matches(".json");
        if !page.contains(&format!("<!-- generated: figures/{name} -->")) {
            complaints.push(format!("{PAGE} has no block figures/{name}"));
        }
        let figures = read(&file.text).unwrap_or_else(|error| {
            complaints.push(format!("{}: {error}", file.path));
            Vec::new()
        });
        for figure in figures {
            let place = format!("{}: {}", file.path, figure.scenario);
            complaints.extend(wrong(&figure, texts).into_iter().map(|wrong| format!("{place}: {wrong}")));
            *lines.entry(figure.scenario).or_default() += 1;
        }
    }
    for text in texts.iter().filter(|text| text.path.ends_with(".toml")) {
        let Some(name) = text.path.strip_prefix("scenarios/").and_then(|path| path.strip_suffix(".toml")) else {
            continue;
        };
        let count = lines.get(name).copied().unwrap_or(0);
        if claims(&text.text).is_some_and(|(_, is_of_paper)| is_of_paper) && count != 1 {
            complaints.push(format!("{FOLDER}: {name} has {count} lines, a figure of a paper has one"));
        }
    }
    complaints
}

/// What is wrong with one line.
fn wrong(figure: &Figure, texts: &[Text]) -> Vec<String> {
    let Figure { scenario, claim, ours, paper, held, claims: claimed, notes } = figure;
    let mut wrong = Vec::new();
    let limits = [(claim, CLAIM_CHARACTERS_MAX), (ours, OURS_CHARACTERS_MAX), (paper, PAPER_CHARACTERS_MAX)];
    let limits = limits.into_iter().chain(notes.iter().map(|note| (note, NOTE_CHARACTERS_MAX)));
    for (text, max) in limits {
        let characters = text.chars().count();
        if !(1..=max).contains(&characters) {
            wrong.push(format!("{characters} characters, allowed are 1 to {max}: {text}"));
        }
        if text.contains(['|', '\n']) {
            wrong.push(format!("a text has neither | nor lines: {text}"));
        }
    }
    match find(texts, &format!("scenarios/{scenario}.toml")).map(claims) {
        None => wrong.push("there is no such scenario".to_owned()),
        Some(found) => {
            let found = found.map_or(0, |(claims, _)| claims);
            if found != *claimed {
                wrong.push(format!("the scenario has {found} claims, and not {claimed}: run it again"));
            }
        }
    }
    if held > claimed {
        wrong.push(format!("{held} of {claimed} claims cannot hold"));
    }
    if (held < claimed) != ours.contains(BOLD) {
        wrong.push("text in bold misses a claim, and a missed claim is in bold".to_owned());
    }
    wrong
}

#[test]
fn every_figure_of_a_paper_has_its_line() {
    let complaints = complaints(house());
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::planted;

    const GOOD: &str =
        r#"{"scenario": "s", "claim": "c", "ours": "1 %", "paper": "2 %", "held": 2, "claims": 2, "notes": []}"#;

    fn complaints_of(figures: &str) -> Vec<String> {
        complaints(&house_of(figures))
    }

    fn house_of(figures: &str) -> Vec<Text> {
        planted(&[
            (PAGE, "<!-- generated: figures/a -->\n<!-- end -->"),
            ("docs/figures/a.json", &format!("[{figures}]")),
            ("scenarios/s.toml", "paper = \"P\"\n[row.a]\nclaim = \"> 1\"\n[row.b]\nclaim = \"> 2\"\n[row.c]\nx = 1\n"),
            ("scenarios/own.toml", "paper = \"none\"\n"),
        ])
    }

    /// Planted break: a line ends behind column 120, red.
    #[test]
    fn a_table_has_a_row_a_scenario_and_its_notes_as_footnotes() {
        let long = "word ".repeat(30);
        let with_notes = GOOD.replace("[]", &format!("[\"A.\", \"{}\"]", long.trim()));
        let none = GOOD.replace("\"s\"", "\"t\"").replace("\"claims\": 2", "\"claims\": 0");
        let table = table(&house_of(&format!("{with_notes}, {none}")), "a");
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[2], "| `s` [^s] | c | 1 % | 2 % | 2 of 2 |");
        assert_eq!(lines[3], "| `t` | c | 1 % | 2 % | - |");
        assert!(lines[5].starts_with("[^s]: A. word word"), "{table}");
        assert!(lines[5].len() <= COLUMNS_MAX && lines[6].starts_with("    word"), "{table}");
        assert_eq!(lines.len(), 7, "{table}");
        assert!(complaints_of(GOOD).is_empty(), "{:?}", complaints_of(GOOD));
    }

    /// Planted breaks: a scenario with fewer claims passes, a missed claim without bold passes, two lines of a scenario
    /// pass; each red.
    #[test]
    fn planted_lines_that_break_a_rule_are_found() {
        let cases = [
            (GOOD.replace("\"c\"", &format!("\"{}\"", "x".repeat(161))), "161 characters, allowed are 1 to 160"),
            (GOOD.replace("2 %", &"x".repeat(101)), "101 characters, allowed are 1 to 100"),
            (GOOD.replace("1 %", ""), "0 characters, allowed are 1 to 160"),
            (GOOD.replace("[]", &format!("[\"{}\"]", "x".repeat(241))), "241 characters, allowed are 1 to 240"),
            (GOOD.replace("1 %", "1 | 2"), "a text has neither | nor lines: 1 | 2"),
            (GOOD.replace("\"claims\": 2", "\"claims\": 3"), "the scenario has 2 claims, and not 3: run it again"),
            (GOOD.replace("\"held\": 2", "\"held\": 3"), "3 of 2 claims cannot hold"),
            (GOOD.replace("\"held\": 2", "\"held\": 1"), "text in bold misses a claim"),
            (GOOD.replace("1 %", "**1 %**"), "text in bold misses a claim"),
            (GOOD.replace("\"s\"", "\"gone\""), "there is no such scenario"),
            (GOOD.replace("\"notes\"", "\"other\""), "unknown field `other`"),
            (String::new(), "s has 0 lines, a figure of a paper has one"),
            (format!("{GOOD}, {GOOD}"), "s has 2 lines, a figure of a paper has one"),
        ];
        for (figures, complaint) in cases {
            let found = complaints_of(&figures);
            assert!(found.iter().any(|found| found.contains(complaint)), "{complaint}: {found:?}");
        }
        let mut texts = house_of(GOOD);
        texts.iter_mut().find(|text| text.path == PAGE).unwrap().text.clear();
        assert_eq!(complaints(&texts), ["docs/figures.md has no block figures/a"]);
    }
}
