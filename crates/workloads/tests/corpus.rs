//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/workloads.rs"]
mod entries;

use corpus::{assert_names, corpus, splices};
use proptest::prelude::*;

#[test]
fn the_corpus_is_what_its_names_say() {
    assert_names("workload", 20, entries::workload);
}

proptest! {
    #[test]
    fn what_must_hold_holds_for_mutations_of_the_corpus(splice in splices()) {
        entries::workload(&splice.of(&corpus("workload")));
    }
}
