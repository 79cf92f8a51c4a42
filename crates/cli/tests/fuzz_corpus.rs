//! What the fuzz targets of the configuration and of the control socket are given, in an ordinary test: `good-*` is
//! understood, `bad-*` refused, and no damage to either makes a parser panic.

use plimsoll_cli::config::{self, Defaults};
use plimsoll_cli::control::protocol;
use proptest::prelude::*;
use proptest::sample::Index;
use std::path::Path;

/// A target's name, whether it understands bytes, and what the fuzzer does with them.
type Target = (&'static str, fn(&[u8]) -> bool, fn(&[u8]));

const TARGETS: [Target; 2] = [
    ("configuration", is_configuration, |bytes| config::parse_for_fuzzing(&String::from_utf8_lossy(bytes))),
    ("control_request", |bytes| protocol::parse_request(bytes).is_ok(), protocol::parse_for_fuzzing),
];

fn is_configuration(bytes: &[u8]) -> bool {
    let defaults = Defaults { state_directory: "/run/plimsoll".into() };
    let text = String::from_utf8_lossy(bytes);
    config::parse(&text, Path::new("corpus.toml"), Path::new("/etc"), &defaults).is_ok()
}

/// Names and contents of a target's corpus.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
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
    for (target, is_understood, fuzz) in TARGETS {
        let inputs = corpus(target);
        assert!(inputs.len() >= 10, "{target} has only {} inputs", inputs.len());
        for (name, bytes) in inputs {
            let is_good = name.starts_with("good-");
            assert!(is_good || name.starts_with("bad-"), "{target}/{name}");
            assert_eq!(is_understood(&bytes), is_good, "{target}/{name}");
            fuzz(&bytes);
        }
    }
}

proptest! {
    #[test]
    fn no_damage_to_the_corpus_makes_a_parser_panic(
        input: Index, other: Index, at: Index, from: Index, put in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        for (target, _, fuzz) in TARGETS {
            let corpus = corpus(target);
            let (one, other) = (&corpus[input.index(corpus.len())].1, &corpus[other.index(corpus.len())].1);
            let (head, tail) = (&one[..at.index(one.len() + 1)], &other[from.index(other.len() + 1)..]);
            fuzz(&[head, &put, tail].concat());
        }
    }
}
