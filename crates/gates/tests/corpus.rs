//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/gates.rs"]
mod entries;

use corpus::{assert_names, mutations, try_mutated};
use proptest::prelude::*;
use proptest::sample::Index;

#[test]
fn the_corpus_is_what_its_names_say() {
    assert_names("seccomp_state", 10, entries::seccomp_state);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn no_mutation_of_the_corpus_breaks_a_promise(input: Index, mutations in mutations()) {
        try_mutated("seccomp_state", input, &mutations, entries::seccomp_state);
    }
}
