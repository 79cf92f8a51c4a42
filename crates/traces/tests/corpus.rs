//! The fuzz targets' entry functions in an ordinary test: on their corpus, on mutations of it, and on any bytes.

#[path = "../../../fuzz/corpus_tests.rs"]
mod corpus;
#[path = "../../../fuzz/entries/traces.rs"]
mod entries;

use corpus::{assert_names, corpus};
use proptest::prelude::*;
use proptest::sample::Index;

type Entry = fn(&[u8]) -> bool;

const TARGETS: [(&str, Entry); 2] = [("traces_text", entries::text), ("traces_binary", entries::binary)];

#[test]
fn the_corpus_is_what_its_names_say() {
    for (target, entry) in TARGETS {
        assert_names(target, 20, entry);
    }
}

/// Replaces `count` bytes from `at` by others.
#[derive(Clone, Debug)]
struct Mutation {
    at: Index,
    count: usize,
    bytes: Vec<u8>,
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let likely = prop::sample::select(b"0123456789.,-+eRWQDF \t\n\r\0\x7f\x80\xff".to_vec());
    let byte = prop_oneof![any::<u8>(), likely];
    let mutation = (any::<Index>(), 0usize..8, prop::collection::vec(byte, 0..8));
    prop::collection::vec(mutation.prop_map(|(at, count, bytes)| Mutation { at, count, bytes }), 1..4)
}

proptest! {
    #[test]
    fn what_must_hold_holds_for_mutations_of_the_corpus(which in any::<Index>(), mutations in mutations()) {
        for (target, entry) in TARGETS {
            let inputs = corpus(target);
            let mut bytes = which.get(&inputs).1.clone();
            for Mutation { at, count, bytes: put } in &mutations {
                let at = at.index(bytes.len() + 1);
                let end = (at + count).min(bytes.len());
                bytes.splice(at..end, put.iter().copied());
            }
            entry(&bytes);
        }
    }

    #[test]
    fn what_must_hold_holds_for_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for (_, entry) in TARGETS {
            entry(&bytes);
        }
    }
}
