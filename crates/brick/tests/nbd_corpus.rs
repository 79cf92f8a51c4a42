//! The fuzz targets' entry functions in an ordinary test: on their corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/nbd.rs"]
mod entries;

use corpus::{assert_names, mutations, try_mutated};
use proptest::prelude::*;
use proptest::sample::Index;

type Entry = fn(&[u8]) -> bool;

const TARGETS: [(&str, Entry); 3] =
    [("nbd_handshake", entries::handshake), ("nbd_requests", entries::requests), ("nbd_replies", entries::replies)];

#[test]
fn the_corpus_is_what_its_names_say() {
    for (target, entry) in TARGETS {
        assert_names(target, 10, entry);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn no_mutation_of_the_corpus_breaks_a_promise(input: Index, mutations in mutations()) {
        for (target, entry) in TARGETS {
            try_mutated(target, input, &mutations, entry);
        }
    }
}
