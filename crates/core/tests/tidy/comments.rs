//! A line with a comment has at most 120 columns; rustfmt sees to the code.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::lexer::{Kind, pieces};
use super::pronouns::part;
use super::tree::{Text, house};
use std::collections::BTreeSet;

const COLUMNS_MAX: usize = 120;

/// Lines of `text` that hold a part of a comment, from 1.
fn comment_lines(text: &Text) -> BTreeSet<usize> {
    if text.ends_in(&[".rs", ".c", ".h"]) {
        let comments = pieces(&text.text).into_iter().filter(|piece| matches!(piece.kind, Kind::Doc | Kind::Comment));
        return comments.flat_map(|piece| piece.line..=piece.line + piece.text.matches('\n').count()).collect();
    }
    if text.ends_in(&[".sh", ".toml", ".py", "Makefile"]) {
        let lines = text.text.lines().enumerate();
        return lines.filter(|(_, line)| line.trim_start().starts_with('#')).map(|(index, _)| index + 1).collect();
    }
    BTreeSet::new()
}

/// How far the wide lines of a part may differ from the list, up and down.
const LINES_MARGIN: usize = 25 * MARGIN;

/// How many comment lines are too wide, by part of the house.
pub fn wide(texts: &[Text]) -> Counts {
    let mut wide = Counts::new();
    for text in texts {
        let lines = comment_lines(text);
        let too_wide = text.text.lines().enumerate().filter(|(index, line)| {
            line.len() > COLUMNS_MAX && line.chars().count() > COLUMNS_MAX && lines.contains(&(index + 1))
        });
        let count = too_wide.count();
        if count > 0 {
            let part = part(&text.path);
            *wide.entry("comments".to_owned()).or_default().entry(part.to_owned()).or_insert(0) += count;
        }
    }
    wide
}

#[test]
fn comments_end_before_column_120() {
    let complaints = complaints(&listed().comments, &wide(house()), LINES_MARGIN);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn a_planted_wide_comment_is_found() {
    let wide_line = "é".repeat(118);
    let source = format!("// {}\n/// {wide_line}\nlet x = \"{wide_line}\";\n/*\n   {wide_line}\n*/", "é".repeat(117));
    let shell = format!("# {wide_line}.\n{wide_line}...");
    let texts = super::tree::planted(&[
        ("crates/a/b.rs", &source),
        ("crates/a/b.sh", &shell),
        ("c.rs", &source),
        ("c.md", &source),
    ]);
    assert_eq!(format!("{:?}", wide(&texts)), r#"{"comments": {"(root)": 2, "crates/a": 3}}"#);
}
