//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/layouts.rs"]
mod entries;

use corpus::{assert_names, mutations, try_mutated};
use proptest::prelude::*;
use proptest::sample::Index;

#[test]
fn the_corpus_is_what_its_names_say() {
    assert_names("file_system_layout", 5, entries::file_system_layout);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    /// Promise: classes-hostile-layout.
    #[test]
    fn no_mutation_of_the_corpus_breaks_a_promise(input: Index, mutations in mutations()) {
        try_mutated("file_system_layout", input, &mutations, entries::file_system_layout);
    }
}
