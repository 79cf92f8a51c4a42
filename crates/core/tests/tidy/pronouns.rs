//! Counts headless pronouns: `who`, `whose`, `nobody` where a sentence should name its subject.
//!
//! Counted are doc comments, other comments, string literals of more than two words outside of tests, and pages. Code
//! in backticks, in fences and behind links does not count, neither as a word nor as a pronoun.

use super::lexer::{self, pieces};
use super::tree::Text;

/// What counts as a headless pronoun.
const PRONOUNS: &[&str] = &["who", "whose", "whoever", "whom", "nobody", "somebody", "anybody", "everybody"];
/// A literal with fewer words is a name or a key and not a sentence.
const SENTENCE_WORDS_MIN: usize = 3;

/// Where a line of prose stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `///`, `//!`: help texts of the command line are among them.
    Doc,
    /// Other comments.
    Comment,
    /// A string literal: a message.
    Message,
    /// A Markdown page.
    Page,
}

/// One line of prose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it stands.
    pub kind: Kind,
    /// The line's number, from 1.
    pub number: usize,
    /// The line as it stands in the file.
    pub text: String,
    /// Its words.
    pub words: usize,
    /// Its headless pronouns.
    pub pronouns: usize,
}

/// Words and pronouns of many lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Words.
    pub words: usize,
    /// Headless pronouns among them.
    pub pronouns: usize,
}

impl Count {
    /// Adds a line.
    pub fn add(&mut self, line: &Line) {
        self.words += line.words;
        self.pronouns += line.pronouns;
    }

    /// Pronouns in 1,000 words; 0 without words.
    pub fn per_thousand(&self) -> f64 {
        if self.words == 0 { 0.0 } else { self.pronouns as f64 * 1000.0 / self.words as f64 }
    }
}

/// The lines of prose in a file that have words.
pub fn lines(text: &Text) -> Vec<Line> {
    let mut found = Vec::new();
    if text.ends_in(&[".rs", ".c", ".h"]) {
        // Comments on adjacent lines are one passage: a fence may open in one and close in another.
        let mut prose = Prose::default();
        let mut last = (lexer::Kind::Code, 0);
        for piece in pieces(&text.text) {
            let kind = match piece.kind {
                lexer::Kind::Code => continue,
                lexer::Kind::Doc => Kind::Doc,
                lexer::Kind::Comment => Kind::Comment,
                lexer::Kind::Literal => Kind::Message,
            };
            if kind == Kind::Message && (is_test(&text.path) || count(piece.text).words < SENTENCE_WORDS_MIN) {
                continue;
            }
            if last != (piece.kind, piece.line - 1) {
                prose = Prose::default();
            }
            for (index, line) in piece.text.lines().enumerate() {
                found.extend(prose.line(kind, piece.line + index, line));
            }
            last = (piece.kind, piece.line + piece.text.matches('\n').count());
        }
    } else if text.ends_in(&[".md"]) {
        let mut prose = Prose::default();
        found.extend(text.text.lines().enumerate().filter_map(|(index, line)| prose.line(Kind::Page, index + 1, line)));
    } else {
        let comments = text.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with('#'));
        let mut prose = Prose::default();
        found.extend(comments.filter_map(|(index, line)| prose.line(Kind::Comment, index + 1, line)));
    }
    found
}

/// The part of the house that a file belongs to: `crates/NAME`, another folder of the root, or `(root)`.
pub fn part(path: &str) -> &str {
    let mut slashes = path.match_indices('/').map(|(index, _)| index);
    let first = slashes.next();
    let end = if path.starts_with("crates/") { slashes.next() } else { first };
    end.map_or("(root)", |end| &path[..end])
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.starts_with("fuzz/")
}

/// What reaches over the end of a line.
#[derive(Default)]
struct Prose {
    is_in_fence: bool,
    is_in_backticks: bool,
}

impl Prose {
    fn line(&mut self, kind: Kind, number: usize, line: &str) -> Option<Line> {
        let start = line.trim_start().trim_start_matches(['/', '!', '*', '#']).trim_start();
        if start.starts_with("```") {
            self.is_in_fence = !self.is_in_fence;
            self.is_in_backticks = false;
            return None;
        }
        // A paragraph, a list's item and a table's row end what was left open.
        if start.is_empty() || start.starts_with(['|', '-']) {
            self.is_in_backticks = false;
        }
        if self.is_in_fence {
            return None;
        }
        let mut prose = String::new();
        for (index, part) in start.split('`').enumerate() {
            self.is_in_backticks ^= index > 0;
            prose.push_str(if self.is_in_backticks { " " } else { part });
        }
        let Count { words, pronouns } = count(&without_links(&prose));
        (words > 0).then(|| Line { kind, number, text: line.trim().to_owned(), words, pronouns })
    }
}

/// The text without the targets of `[text](target)`.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut kept = parts.next().unwrap_or("").to_owned();
    for part in parts {
        kept.push(' ');
        kept.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    kept
}

fn count(text: &str) -> Count {
    let mut count = Count::default();
    for word in text.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '’' | '_' | '-')) {
        let word = word.trim_matches(['-', '\'', '’', '_']);
        if !word.starts_with(char::is_alphabetic) {
            continue;
        }
        let head = word.split(['\'', '’']).next().unwrap_or(word).to_lowercase();
        count.words += 1;
        count.pronouns += usize::from(PRONOUNS.contains(&&*head));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(path: &str, text: &str) -> Vec<(Kind, usize, usize, usize)> {
        let text = Text { path: path.to_owned(), text: text.to_owned() };
        lines(&text).into_iter().map(|line| (line.kind, line.number, line.words, line.pronouns)).collect()
    }

    #[test]
    fn pronouns_are_counted_in_every_place() {
        let source = "//! Who waits.\n// Nobody's fault, \"whose\"\nfn who() { f(\"somebody is there\\n\", \"who\"); }";
        assert_eq!(
            counted("crates/a/src/b.rs", source),
            [(Kind::Doc, 1, 2, 1), (Kind::Comment, 2, 3, 2), (Kind::Message, 3, 4, 1)]
        );
        assert_eq!(counted("a.md", "# Whom\n\n- anybody, who-ever"), [(Kind::Page, 1, 1, 1), (Kind::Page, 3, 2, 1)]);
        assert_eq!(counted("a.toml", "who = 1\n  # who is\n"), [(Kind::Comment, 2, 2, 1)]);
    }

    #[test]
    fn code_tests_messages_and_targets_of_links_do_not_count() {
        assert_eq!(counted("crates/a/tests/b.rs", "f(\"who is who\") // who"), [(Kind::Comment, 1, 1, 1)]);
        assert_eq!(counted("a.rs", "/// ```\n/// who\n/// ```\n/// a `who` b\n"), [(Kind::Doc, 4, 2, 0)]);
        assert_eq!(
            counted("a.md", "```sh\nwho am i\n```\n[text](who/is.md) `who\nam` i"),
            [(Kind::Page, 4, 1, 0), (Kind::Page, 5, 1, 0)]
        );
        assert_eq!(counted("a.md", "an open `tick\n\nwho"), [(Kind::Page, 1, 2, 0), (Kind::Page, 3, 1, 1)]);
        assert_eq!(counted("a.md", "whole, the who_is table"), [(Kind::Page, 1, 4, 0)]);
    }
}
