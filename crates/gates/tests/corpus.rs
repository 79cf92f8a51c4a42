//! The fuzz target's entry function in an ordinary test: on its corpus, and on mutations of it.

#[path = "../../../fuzz/entries/gates.rs"]
mod entries;

use proptest::prelude::*;
use proptest::sample::Index;
use std::path::Path;

type Entry = fn(&[u8]) -> bool;

const TARGETS: [(&str, Entry); 1] = [("seccomp_state", entries::seccomp_state)];

/// Names and contents of a target's corpus.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut inputs: Vec<_> = std::fs::read_dir(&directory)
        .expect("the corpus is part of the repository")
        .map(|entry| entry.expect("a readable directory"))
        .map(|entry| (entry.file_name().into_string().expect("a plain name"), std::fs::read(entry.path()).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

#[test]
fn the_corpus_is_what_its_names_say() {
    for (target, entry) in TARGETS {
        let inputs = corpus(target);
        assert!(inputs.len() >= 10, "{target} has only {} inputs", inputs.len());
        for (name, bytes) in inputs {
            let is_good = name.starts_with("good-");
            assert!(is_good || name.starts_with("bad-"), "{target}/{name}");
            assert_eq!(entry(&bytes), is_good, "{target}/{name}");
        }
    }
}

/// One way to spoil bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    FlipBit(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    CutOff(Index),
    /// Goes on with another input of the corpus from somewhere.
    Splice(Index, Index, Index),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let interesting = prop_oneof![any::<u8>(), Just(0), Just(1), Just(0x7f), Just(0x80), Just(0xff)];
    let mutation = prop_oneof![
        (any::<Index>(), interesting).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Mutation::FlipBit(at, bit)),
        (any::<Index>(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<Index>(), 1usize..40).prop_map(|(at, count)| Mutation::Remove(at, count)),
        any::<Index>().prop_map(Mutation::CutOff),
        any::<(Index, Index, Index)>().prop_map(|(at, other, from)| Mutation::Splice(at, other, from)),
    ];
    prop::collection::vec(mutation, 1..5)
}

fn mutated(mut bytes: Vec<u8>, mutations: &[Mutation], corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
    for mutation in mutations {
        let end = bytes.len();
        match mutation {
            Mutation::Set(at, byte) if end > 0 => bytes[at.index(end)] = *byte,
            Mutation::FlipBit(at, bit) if end > 0 => bytes[at.index(end)] ^= 1 << bit,
            Mutation::Set(..) | Mutation::FlipBit(..) => {}
            Mutation::Insert(at, inserted) => {
                let at = at.index(end + 1);
                bytes.splice(at..at, inserted.iter().copied());
            }
            Mutation::Remove(at, count) => {
                let at = at.index(end + 1);
                bytes.drain(at..end.min(at + count));
            }
            Mutation::CutOff(at) => bytes.truncate(at.index(end + 1)),
            Mutation::Splice(at, other, from) => {
                let other = &corpus[other.index(corpus.len())].1;
                bytes.truncate(at.index(end + 1));
                bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn no_mutation_of_the_corpus_breaks_a_promise(input: Index, mutations in mutations()) {
        for (target, entry) in TARGETS {
            let corpus = corpus(target);
            let bytes = mutated(corpus[input.index(corpus.len())].1.clone(), &mutations, &corpus);
            entry(&bytes);
        }
    }
}
