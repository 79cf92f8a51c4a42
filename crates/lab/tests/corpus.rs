//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/entries/scenarios.rs"]
mod entries;

use proptest::prelude::*;
use proptest::sample::Index;
use std::path::Path;

/// Names and contents.
fn corpus() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/scenario");
    let entries = std::fs::read_dir(&directory).expect("the corpus is part of the repository");
    let mut inputs: Vec<_> = entries
        .map(|entry| entry.expect("a readable directory"))
        .map(|entry| (entry.file_name().into_string().expect("a plain name"), std::fs::read(entry.path()).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

#[test]
fn the_corpus_is_what_its_names_say() {
    let inputs = corpus();
    assert!(inputs.len() >= 15, "only {} inputs", inputs.len());
    for (name, bytes) in inputs {
        let is_good = name.starts_with("good-");
        assert!(is_good || name.starts_with("bad-"), "{name}");
        assert_eq!(entries::scenario(&bytes), is_good, "{name}");
    }
}

proptest! {
    // A scenario is read in some ten milliseconds.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_must_hold_holds_for_mutations_of_the_corpus(
        input: Index, other: Index, at: Index, from: Index, put in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let corpus = corpus();
        let (one, other) = (&corpus[input.index(corpus.len())].1, &corpus[other.index(corpus.len())].1);
        let (head, tail) = (&one[..at.index(one.len() + 1)], &other[from.index(other.len() + 1)..]);
        entries::scenario(&[head, &put, tail].concat());
    }
}
