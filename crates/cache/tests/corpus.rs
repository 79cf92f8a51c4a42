//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus_tests;
#[path = "../../../fuzz/entries/cache.rs"]
mod entries;

use corpus_tests::{assert_names, corpus, splices};
use proptest::prelude::*;

#[test]
fn the_corpus_is_what_it_says() {
    assert_names("cache_metadata", 4, entries::cache_metadata);
}

proptest! {
    #[test]
    fn mutations_of_the_corpus_are_caches_or_told(splice in splices(), at in any::<prop::sample::Index>(), put in any::<[u8; 8]>()) {
        let corpus = corpus("cache_metadata");
        entries::cache_metadata(&splice.of(&corpus));
        // In its place, so that what follows stays where it is.
        let mut bytes = at.get(&corpus).1.clone();
        let from = at.index(bytes.len().max(9) - 8);
        bytes.iter_mut().skip(from).zip(put).for_each(|(byte, new)| *byte = new);
        entries::cache_metadata(&bytes);
    }
}
