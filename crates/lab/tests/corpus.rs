//! The fuzz targets' entry functions in ordinary tests: on their corpora, and on mutations of them.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/loads.rs"]
mod loads;
#[path = "../../../fuzz/entries/scenarios.rs"]
mod scenarios;

use corpus::{assert_names, corpus, splices};
use proptest::prelude::*;

#[test]
fn the_corpus_is_what_its_names_say() {
    assert_names("scenario", 15, scenarios::scenario);
    assert_names("load_arguments", 9, loads::load_arguments);
}

proptest! {
    // A scenario is read in some ten milliseconds.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_must_hold_holds_for_mutations_of_the_corpus(splice in splices()) {
        scenarios::scenario(&splice.of(&corpus("scenario")));
        loads::load_arguments(&splice.of(&corpus("load_arguments")));
    }
}
