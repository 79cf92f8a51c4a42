//! What the fuzz targets of the configuration and of the control socket are given, in an ordinary test: `good-*` is
//! understood, `bad-*` refused, and no damage to either makes a parser panic.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;

use corpus::{assert_names, corpus, splices};
use plimsoll_cli::config::{self, Defaults};
use plimsoll_cli::control::protocol;
use proptest::prelude::*;
use std::path::Path;

/// A target's name, whether it understands bytes, and what the fuzzer does with them.
type Target = (&'static str, fn(&[u8]) -> bool, fn(&[u8]));

const TARGETS: [Target; 2] = [
    ("configuration", is_configuration, |bytes| config::parse_for_fuzzing(&String::from_utf8_lossy(bytes))),
    ("control_request", |bytes| protocol::parse_request(bytes).is_ok(), protocol::parse_for_fuzzing),
];

fn is_configuration(bytes: &[u8]) -> bool {
    let defaults = Defaults::in_directory("/run/plimsoll".into());
    let text = String::from_utf8_lossy(bytes);
    config::parse(&text, Path::new("corpus.toml"), Path::new("/etc"), &defaults).is_ok()
}

#[test]
fn the_corpus_is_what_its_names_say() {
    for (target, is_understood, fuzz) in TARGETS {
        assert_names(target, 10, |bytes| {
            fuzz(bytes);
            is_understood(bytes)
        });
    }
}

proptest! {
    #[test]
    fn no_damage_to_the_corpus_makes_a_parser_panic(splice in splices()) {
        for (target, _, fuzz) in TARGETS {
            fuzz(&splice.of(&corpus(target)));
        }
    }
}
