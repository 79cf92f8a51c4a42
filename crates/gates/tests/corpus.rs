//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/gates.rs"]
mod entries;

use corpus::{assert_names, corpus, mutated, mutations};
use proptest::prelude::*;
use proptest::sample::Index;

type Entry = fn(&[u8]) -> bool;

const TARGETS: [(&str, Entry); 1] = [("seccomp_state", entries::seccomp_state)];

#[test]
fn the_corpus_is_what_its_names_say() {
    for (target, entry) in TARGETS {
        assert_names(target, 10, entry);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn no_mutation_of_the_corpus_breaks_a_promise(input: Index, mutations in mutations()) {
        for (target, entry) in TARGETS {
            let corpus = corpus(target);
            let bytes = mutated(input.get(&corpus).1.clone(), &mutations, &corpus);
            entry(&bytes);
        }
    }
}
