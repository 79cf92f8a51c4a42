//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/scenarios.rs"]
mod entries;

use corpus::{assert_names, corpus, splices};
use proptest::prelude::*;

#[test]
fn the_corpus_is_what_its_names_say() {
    assert_names("scenario", 15, entries::scenario);
}

proptest! {
    // A scenario is read in some ten milliseconds.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_must_hold_holds_for_mutations_of_the_corpus(splice in splices()) {
        entries::scenario(&splice.of(&corpus("scenario")));
    }
}
