//! Comments, docs, help and messages name their subjects: few headless pronouns (`pronouns.rs`), and never more than
//! before.
//!
//! `cargo run -q -p plimsoll-core --example words` counts them by crate and by file.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::pronouns::{Count, lines, part};
use super::tree::{Text, house};
use std::collections::BTreeMap;

/// How far the share may differ from the list, up and down, in pronouns per 1,000 words.
const SHARE_MARGIN: f64 = 0.1;
/// How far the pronouns of a part may differ from the list, up and down.
const PRONOUNS_MARGIN: usize = 15 * MARGIN;

/// Pronouns and words of each part of the house.
fn counts(texts: &[Text]) -> BTreeMap<&str, Count> {
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for text in texts {
        let count = counts.entry(part(&text.path)).or_default();
        lines(text).iter().for_each(|line| count.add(line));
    }
    counts
}

/// Headless pronouns in 1,000 words.
pub fn share(texts: &[Text]) -> f64 {
    let counts = counts(texts);
    let sum = |of: fn(&Count) -> usize| counts.values().map(of).sum();
    Count { words: sum(|count| count.words), pronouns: sum(|count| count.pronouns) }.per_thousand()
}

/// Headless pronouns by part.
pub fn pronouns(texts: &[Text]) -> Counts {
    let parts = counts(texts).into_iter().filter(|(_, count)| count.pronouns > 0);
    Counts::from([("words".to_owned(), parts.map(|(part, count)| (part.to_owned(), count.pronouns)).collect())])
}

fn complaint(max: f64, today: f64) -> Option<String> {
    if today > max + SHARE_MARGIN {
        Some(format!("{today:.2} headless pronouns in 1,000 words, at most {max} are allowed: run the example `words`"))
    } else if today < max - 0.1 - SHARE_MARGIN {
        Some(format!("{today:.2} headless pronouns in 1,000 words: lower the list of exceptions, which has {max}"))
    } else {
        None
    }
}

#[test]
fn texts_name_their_subjects() {
    let mut found = complaints(&listed().pronouns, &pronouns(house()), PRONOUNS_MARGIN);
    found.extend(complaint(listed().pronouns_per_thousand_max, share(house())));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_planted_page_of_pronouns_is_found_and_a_clean_one_lowers_the_list() {
    let page = |text: &str| super::tree::planted(&[("a.md", text)]);
    assert_eq!(share(&page("Who waits? A request waits.")), 200.0);
    assert!(complaint(1.0, share(&page("who"))).unwrap().contains("at most 1 are allowed"));
    assert!(complaint(1.0, share(&page("a request"))).unwrap().contains("lower the list"));
    assert_eq!(complaint(1.0, 1.0), None);
    assert_eq!(complaint(1.0, 0.91), None);
}

#[test]
fn a_planted_pronoun_is_found_in_its_part() {
    let before = pronouns(&super::tree::planted(&[("docs/a.md", "nobody"), ("crates/c/src/lib.rs", "// A request.")]));
    let after = pronouns(&super::tree::planted(&[("docs/a.md", "nobody"), ("crates/c/src/lib.rs", "// Whoever.")]));
    assert!(complaints(&before, &before, 0).is_empty());
    assert_eq!(complaints(&before, &after, 0), ["words: crates/c: 1, the list of exceptions allows 0"]);
}
