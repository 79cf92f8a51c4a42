//! A sentence in a doc comment has at most 25 words, outside of tests.
//!
//! A passage is the doc comment's lines one after the other; a blank line, a list's item, a heading and a table's row
//! begin another one. Code in backticks counts as one word. Tables and fenced blocks do not count.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::lexer::{Kind, pieces};
use super::pronouns::part;
use super::tree::{Text, house};

const WORDS_MAX: usize = 25;
/// How far the long sentences of a part may differ from the list, up and down.
const SENTENCES_MARGIN: usize = 5 * MARGIN;

/// The passages of a file's doc comments, each with the line at which it begins.
fn passages(text: &Text) -> Vec<(usize, String)> {
    let mut passages: Vec<(usize, String)> = Vec::new();
    let (mut last, mut is_in_fence) = (0, false);
    for piece in pieces(&text.text).into_iter().filter(|piece| piece.kind == Kind::Doc) {
        let line = piece.text.trim_start_matches(['/', '!', '*']).trim();
        let is_next = piece.line == last + 1;
        is_in_fence &= is_next;
        last = piece.line;
        let is_fence = line.starts_with("```");
        is_in_fence ^= is_fence;
        let is_apart = is_in_fence || is_fence || line.is_empty() || line.starts_with(['|', '#']);
        let is_item = line.starts_with("- ") || line.starts_with("* ") || line.split_once(". ").is_some_and(is_number);
        match passages.last_mut() {
            _ if is_apart => passages.push((piece.line, String::new())),
            Some((_, passage)) if is_next && !is_item => {
                passage.push(' ');
                passage.push_str(line);
            }
            _ => passages.push((piece.line, line.to_owned())),
        }
    }
    passages
}

fn is_number((before, _): (&str, &str)) -> bool {
    !before.is_empty() && before.bytes().all(|byte| byte.is_ascii_digit())
}

/// The passage with one word for each code span, and without the targets of links.
fn plain(passage: &str) -> String {
    let spans = passage.split('`').enumerate();
    let without_code: String = spans.map(|(index, part)| if index % 2 == 0 { part } else { "Code" }).collect();
    let mut parts = without_code.split("](");
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        plain.push_str(part.split_once(')').map_or("", |(_, after)| after));
    }
    plain
}

/// The number of words of each sentence in a passage.
fn sentence_words(passage: &str) -> Vec<usize> {
    let plain = plain(passage);
    let words: Vec<&str> = plain.split_whitespace().collect();
    let (mut sentences, mut count) = (Vec::new(), 0);
    for (index, word) in words.iter().enumerate() {
        count += usize::from(word.contains(char::is_alphanumeric));
        let ends = word.trim_end_matches([')', '"', '*', '\'', ']']).ends_with(['.', '!', '?']);
        let goes_on = words.get(index + 1).is_some_and(|next| next.starts_with(char::is_lowercase));
        if ends && !goes_on {
            sentences.push(std::mem::take(&mut count));
        }
    }
    sentences.push(count);
    sentences
}

fn is_test(path: &str) -> bool {
    ["/tests/", "/testing/", "/benches/", "/examples/"].iter().any(|folder| path.contains(folder))
        || path.ends_with("tests.rs")
        || path.starts_with("fuzz/")
}

/// The first lines of passages with a long sentence, by file.
fn found(texts: &[Text]) -> impl Iterator<Item = (&Text, usize)> {
    let sources = texts.iter().filter(|text| text.ends_in(&[".rs"]) && !is_test(&text.path));
    sources.flat_map(|text| {
        let passages = passages(text).into_iter();
        passages.flat_map(move |(line, passage)| {
            let long = sentence_words(&passage).into_iter().filter(|&words| words > WORDS_MAX);
            long.map(move |_| (text, line)).collect::<Vec<_>>()
        })
    })
}

/// How many sentences are too long, by part of the house.
pub fn long(texts: &[Text]) -> Counts {
    let mut long = Counts::new();
    for (text, _) in found(texts) {
        let of = long.entry("sentences".to_owned()).or_default();
        *of.entry(part(&text.path).to_owned()).or_insert(0) += 1;
    }
    long
}

#[test]
fn sentences_of_doc_comments_have_at_most_25_words() {
    let complaints = complaints(&listed().sentences, &long(house()), SENTENCES_MARGIN);
    let places: Vec<String> = found(house()).map(|(text, line)| format!("{}:{line}", text.path)).collect();
    assert!(complaints.is_empty(), "{}\nThey stand at\n{}", complaints.join("\n"), places.join("\n"));
}

/// Planted breaks: a sentence over two lines is two; code counts by its words; a list is one passage; each red.
#[test]
fn a_planted_long_sentence_is_found() {
    let words = |count: usize| vec!["word"; count].join(" ");
    let long = format!("//! {}\n//! {}.\n", words(13), words(13));
    let short = format!("/// {} `{}`.\n/// Next one, e.g. this (section 1.4).\nfn f() {{}}\n", words(24), words(9));
    let list = format!("//! A list:\n//! - {}\n//! - {}\n//!\n//! | {} |\n", words(20), words(20), words(30));
    let fence = format!("//! ```\n//! {}\n//! ```\n// {}\n", words(30), words(30));
    let texts = super::tree::planted(&[
        ("crates/a/src/long.rs", &long),
        ("crates/a/src/short.rs", &short),
        ("crates/a/src/list.rs", &list),
        ("crates/a/src/fence.rs", &fence),
        ("crates/a/tests/long.rs", &long),
    ]);
    assert_eq!(format!("{:?}", super::sentences::long(&texts)), r#"{"sentences": {"crates/a": 1}}"#);
    assert_eq!(found(&texts).map(|(text, line)| (&*text.path, line)).next(), Some(("crates/a/src/long.rs", 1)));
    assert_eq!(sentence_words("One two. Three, i.e. four [five](six seven) \"eight.\" Nine"), [2, 5, 1]);
}
