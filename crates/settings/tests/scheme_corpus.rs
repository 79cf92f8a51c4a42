//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus_tests;
#[path = "../../../fuzz/entries/schemes.rs"]
mod entries;

use corpus_tests::{assert_names, corpus, splices};
use proptest::prelude::*;

#[test]
fn the_corpus_is_what_it_says() {
    assert_names("class_scheme", 6, entries::class_scheme);
}

proptest! {
    #[test]
    fn mutations_of_the_corpus_are_schemes_or_told(splice in splices()) {
        entries::class_scheme(&splice.of(&corpus("class_scheme")));
    }
}
