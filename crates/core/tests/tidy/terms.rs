//! A term of the field stands where it has one, in names of types as in texts: never more old words than before.

use super::exceptions::{Counts, MARGIN, complaints, listed};
use super::krate::{Crate, of_house};
use super::pronouns::part;
use super::tree::{Text, house};

/// A word that is not to be used, and the better one.
struct Term {
    old: &'static str,
    better: &'static str,
}

/// Names that say nothing of what a type holds.
const TYPE_NAMES: &[Term] = &[
    Term { old: "Told", better: "what is told: `Completions`, `Reports`" },
    Term { old: "Whose", better: "`Attribution`" },
    Term { old: "Lately", better: "`Recent...` and what was recent" },
    Term { old: "Place", better: "`Offset`, `Slot`, `Position` or what is there" },
    Term { old: "Doorman", better: "`Registrar`" },
    Term { old: "Entrance", better: "`LaunchTicket`" },
];

/// Phrases of comments, messages and pages, in small letters.
const PHRASES: &[Term] = &[
    Term { old: "disk that is not ours", better: "observed disk" },
    Term { old: "disks that are not ours", better: "observed disks" },
    Term { old: "disk is not ours", better: "observed disk" },
];

/// Old words of the house, by crate or other part.
pub fn old(crates: &[Crate], texts: &[Text]) -> Counts {
    let mut counts = Counts::new();
    for of in crates {
        let types = of.modules.iter().flat_map(|module| &module.types);
        for name in types.filter(|name| TYPE_NAMES.iter().any(|term| term.old == **name)) {
            *counts.entry(format!("crates/{}", of.name)).or_default().entry(name.clone()).or_insert(0) += 1;
        }
    }
    // The rule and its exceptions have the phrases, too.
    for text in texts.iter().filter(|text| !text.path.starts_with("crates/core/tests/tidy/")) {
        let prose = one_line(&text.text);
        for Term { old, .. } in PHRASES {
            let found = prose.matches(old).count();
            if found > 0 {
                *counts.entry(part(&text.path).to_owned()).or_default().entry((*old).to_owned()).or_insert(0) += found;
            }
        }
    }
    counts
}

/// The text in small letters and one line, so that a phrase is found over the end of a line of a comment.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !matches!(*word, "//" | "///" | "//!" | "#" | "*"));
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

#[test]
fn names_and_texts_have_the_terms_of_the_field() {
    let complaints = complaints(&listed().terms, &old(of_house(), house()), MARGIN);
    let better: Vec<String> =
        TYPE_NAMES.iter().chain(PHRASES).map(|term| format!("{}: {}", term.old, term.better)).collect();
    assert!(complaints.is_empty(), "{}\nBetter is\n{}", complaints.join("\n"), better.join("\n"));
}

/// Planted breaks: types are not looked at, phrases are looked for line by line; each red.
#[test]
fn planted_old_words_are_found() {
    let texts = super::tree::planted(&[
        ("crates/c/src/lib.rs", "mod a;\n/// Disks that are\n/// not ours.\nstruct Told;\nstruct Untold;\n"),
        ("crates/c/src/a.rs", "enum Told {}\nconst X: &str = \"a disk that is not ours\";\nfn told(place: Place) {}\n"),
        ("docs/a.md", "An observed disk.\nA disk\nthat is not ours. Data that is not ours.\n"),
    ]);
    let found = old(&super::krate::crates(&texts), &texts);
    let expected = r#"{"crates/c": {"Told": 2, "disk that is not ours": 1, "disks that are not ours": 1}, "docs": {"disk that is not ours": 1}}"#;
    assert_eq!(format!("{found:?}"), expected);
}
