//! What breaks a rule today and is allowed until it is mended: `exceptions.toml`, which may only shrink.
//!
//! `TIDY=shrink cargo test -p plimsoll-core --test tidy` takes out of the file what is mended. It adds nothing; only if
//! the whole file is missing, it writes what breaks the rules today.

use super::{circles, comments, fields, front_ends, impls, krate, sentences, terms, tree, type_names, words};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::{env, fs};

/// How far a number or a circle's set of files may differ from the list, up and down, so that changes under way at the
/// same time do not trip each other.
pub const MARGIN: usize = 2;

/// Counts by crate and name.
pub type Counts = BTreeMap<String, BTreeMap<String, usize>>;

/// The exceptions of each rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Exceptions {
    /// Headless pronouns in 1,000 words of the repository.
    pub pronouns_per_thousand_max: f64,
    /// Headless pronouns of each part of the repository.
    pub pronouns: Counts,
    /// Types of each crate with inherent `impl`s out of place, and in how many files.
    pub impls: Counts,
    /// Structs of each crate with too many fields, and how many.
    pub fields: Counts,
    /// Type names that a crate has more than once, and how often.
    pub type_names: Counts,
    /// Lines with comments that are too wide, of each part of the repository.
    pub comments: Counts,
    /// Long sentences in doc comments, of each part of the repository.
    #[serde(default)]
    pub sentences: Counts,
    /// Old words, of each part of the repository.
    #[serde(default)]
    pub terms: Counts,
    /// Files that name a front end, by its name.
    #[serde(default)]
    pub front_ends: front_ends::Naming,
    /// Import circles.
    #[serde(default)]
    pub circle: Vec<Circle>,
}

/// Files of a crate each of which needs all others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Circle {
    /// The crate.
    #[serde(rename = "crate")]
    pub krate: String,
    /// The files, below the crate's `src`.
    pub files: BTreeSet<String>,
}

const FILE: &str = "crates/core/tests/tidy/exceptions.toml";
const HEAD: &str =
    "# What breaks a rule today and is allowed until it is mended (exceptions.rs). The lists may only shrink:
# `TIDY=shrink cargo test -p plimsoll-core --test tidy` takes out what is mended.
";

/// The exceptions that are allowed.
pub fn listed() -> &'static Exceptions {
    static LISTED: OnceLock<Exceptions> = OnceLock::new();
    LISTED.get_or_init(|| {
        let path = tree::root().join(FILE);
        let before = fs::read_to_string(&path).ok().map(|text| toml::from_str(&text).unwrap_or_else(|e| panic!("{e}")));
        let is_shrinking = env::var_os("TIDY").is_some_and(|what| what == "shrink");
        if !is_shrinking {
            return before.unwrap_or_default();
        }
        let after = before.map_or_else(today, |before| shrunk(&before, &today()));
        let (sums, lists) = (sums(&after), toml::to_string_pretty(&after).unwrap());
        fs::write(&path, format!("{HEAD}# {sums}\n\n{lists}")).unwrap();
        after
    })
}

/// The lists in one line, so that a change of them shows by how much.
fn sums(of: &Exceptions) -> String {
    let sum = |counts: &Counts| counts.values().flat_map(BTreeMap::values).sum::<usize>();
    let names = |counts: &Counts| counts.values().map(BTreeMap::len).sum::<usize>();
    let files: usize = of.circle.iter().map(|circle| circle.files.len()).sum();
    format!(
        "{} circles of {files} files; {} types with impls in {} other files; {} wide structs; {} repeated type names;\n\
        # {} wide lines of comments; {} long sentences; {} headless pronouns.",
        of.circle.len(),
        names(&of.impls),
        sum(&of.impls),
        names(&of.fields),
        names(&of.type_names),
        sum(&of.comments),
        sum(&of.sentences),
        sum(&of.pronouns)
    )
}

/// What breaks the rules today.
fn today() -> Exceptions {
    let crates = krate::of_house();
    Exceptions {
        pronouns_per_thousand_max: (words::share(tree::house()) * 10.0).ceil() / 10.0,
        pronouns: words::pronouns(tree::house()),
        impls: impls::strays(crates).into_iter().map(|(krate, types)| (krate, sizes(types))).collect(),
        fields: fields::wide(crates),
        type_names: type_names::repeated(crates),
        comments: comments::wide(tree::house()),
        sentences: sentences::long(tree::house()),
        terms: terms::old(crates, tree::house()),
        front_ends: front_ends::naming(tree::house()),
        circle: circles::today().into_iter().map(|found| found.circle).collect(),
    }
}

fn sizes(types: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, usize> {
    types.into_iter().map(|(name, files)| (name, files.len())).collect()
}

/// The part of `before` that `today` still needs.
fn shrunk(before: &Exceptions, today: &Exceptions) -> Exceptions {
    let counts = |before: &Counts, today: &Counts| {
        let mut both = before.clone();
        for (krate, counts) in &mut both {
            counts.retain(|name, count| {
                *count = (*count).min(count_in(today, krate, name));
                *count > 0
            });
        }
        both.retain(|_, counts| !counts.is_empty());
        both
    };
    let mut circle = Vec::new();
    for (old, new) in before.circle.iter().flat_map(|old| today.circle.iter().map(move |new| (old, new))) {
        let files: BTreeSet<String> = old.files.intersection(&new.files).cloned().collect();
        if old.krate == new.krate && files.len() > 1 {
            circle.push(Circle { krate: old.krate.clone(), files });
        }
    }
    let mut front_ends = before.front_ends.clone();
    front_ends.iter_mut().for_each(|(name, files)| {
        files.retain(|file| today.front_ends.get(name).is_some_and(|now| now.contains(file)))
    });
    front_ends.retain(|_, files| !files.is_empty());
    Exceptions {
        pronouns_per_thousand_max: before.pronouns_per_thousand_max.min(today.pronouns_per_thousand_max),
        pronouns: counts(&before.pronouns, &today.pronouns),
        impls: counts(&before.impls, &today.impls),
        fields: counts(&before.fields, &today.fields),
        type_names: counts(&before.type_names, &today.type_names),
        comments: counts(&before.comments, &today.comments),
        sentences: counts(&before.sentences, &today.sentences),
        terms: counts(&before.terms, &today.terms),
        front_ends,
        circle,
    }
}

fn count_in(counts: &Counts, krate: &str, name: &str) -> usize {
    counts.get(krate).and_then(|counts| counts.get(name)).copied().unwrap_or(0)
}

/// What speaks against `today`, when `listed` is allowed: names that the list does not have, numbers that differ by
/// more than `margin`, and listed names that no longer break the rule.
pub fn complaints(listed: &Counts, today: &Counts, margin: usize) -> Vec<String> {
    let names = |counts: &Counts| {
        let pairs = counts.iter().flat_map(|(krate, names)| names.keys().map(|name| (krate.clone(), name.clone())));
        pairs.collect::<BTreeSet<_>>()
    };
    let mut complaints = Vec::new();
    for (krate, name) in names(listed).union(&names(today)) {
        let (allowed, found) = (count_in(listed, krate, name), count_in(today, krate, name));
        if found > 0 && (allowed == 0 || found > allowed + margin) {
            complaints.push(format!("{krate}: {name}: {found}, the list of exceptions allows {allowed}"));
        } else if allowed > 0 && (found == 0 || found + margin < allowed) {
            complaints.push(format!("{krate}: {name}: {found}, shorten the list of exceptions, which has {allowed}"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, &str, usize)]) -> Counts {
        let mut counts = Counts::new();
        for (krate, name, count) in of {
            counts.entry((*krate).to_owned()).or_default().insert((*name).to_owned(), *count);
        }
        counts
    }

    #[test]
    fn a_list_of_counts_may_only_shrink() {
        let listed = counts(&[("a", "X", 30), ("b", "Y", 3)]);
        assert!(complaints(&listed, &listed, 0).is_empty());
        let new = counts(&[("a", "X", 30), ("b", "Y", 3), ("b", "Z", 1)]);
        assert_eq!(complaints(&listed, &new, 9), ["b: Z: 1, the list of exceptions allows 0"]);
        let grown = counts(&[("a", "X", 31), ("b", "Y", 3)]);
        assert_eq!(complaints(&listed, &grown, 0), ["a: X: 31, the list of exceptions allows 30"]);
        assert!(complaints(&listed, &grown, 1).is_empty());
        let shrunk = counts(&[("a", "X", 29), ("b", "Y", 3)]);
        assert_eq!(complaints(&listed, &shrunk, 0), ["a: X: 29, shorten the list of exceptions, which has 30"]);
        assert!(complaints(&listed, &shrunk, 1).is_empty());
        let gone = counts(&[("a", "X", 30)]);
        assert_eq!(complaints(&listed, &gone, 9), ["b: Y: 0, shorten the list of exceptions, which has 3"]);
    }

    #[test]
    fn shrinking_takes_out_what_is_mended_and_adds_nothing() {
        let circle = |files: &[&str]| Circle {
            krate: "a".to_owned(),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
        };
        let before = Exceptions {
            pronouns_per_thousand_max: 3.0,
            impls: counts(&[("a", "X", 3), ("b", "Y", 3)]),
            circle: vec![circle(&["a", "b", "c", "d", "e"]), circle(&["f", "g"])],
            ..Exceptions::default()
        };
        let today = Exceptions {
            pronouns_per_thousand_max: 2.0,
            impls: counts(&[("a", "X", 2), ("a", "Z", 1)]),
            fields: counts(&[("a", "X", 21)]),
            circle: vec![circle(&["a", "b"]), circle(&["c", "d", "n"]), circle(&["m", "o"])],
            ..Exceptions::default()
        };
        let after = Exceptions {
            pronouns_per_thousand_max: 2.0,
            impls: counts(&[("a", "X", 2)]),
            circle: vec![circle(&["a", "b"]), circle(&["c", "d"])],
            ..Exceptions::default()
        };
        assert_eq!(shrunk(&before, &today), after);
        assert_eq!(toml::from_str::<Exceptions>(&toml::to_string_pretty(&after).unwrap()).unwrap(), after);
    }
}
