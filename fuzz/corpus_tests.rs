//! What the ordinary tests of fuzz targets share: their corpora, and ways to spoil what is in them.
//!
//! A crate's test includes this file beside the entry functions of its targets (`fuzz/entries`), so that what a fuzzer
//! once found is tried in every `make test`.
#![allow(dead_code, reason = "each test uses a part of it")]

use proptest::prelude::*;
use proptest::sample::Index;
use std::path::Path;

/// A name and its content.
pub type Input = (String, Vec<u8>);

/// The corpus of a target, by name.
pub fn corpus(target: &str) -> Vec<Input> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&directory).expect("the corpus is part of the repository");
    let mut inputs: Vec<_> = entries
        .map(|entry| entry.expect("a readable directory"))
        .map(|entry| (entry.file_name().into_string().expect("a plain name"), std::fs::read(entry.path()).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

/// Asserts that there are `inputs_min` inputs at least, that `good-*` is understood, and that all else is `bad-*` and
/// refused.
pub fn assert_names(target: &str, inputs_min: usize, is_understood: impl Fn(&[u8]) -> bool) {
    let inputs = corpus(target);
    assert!(inputs.len() >= inputs_min, "{target} has only {} inputs", inputs.len());
    for (name, bytes) in inputs {
        let is_good = name.starts_with("good-");
        assert!(is_good || name.starts_with("bad-"), "{target}/{name}");
        assert_eq!(is_understood(&bytes), is_good, "{target}/{name}");
    }
}

/// The start of one input, something put in, and the end of another.
#[derive(Clone, Debug)]
pub struct Splice {
    places: [Index; 4],
    put: Vec<u8>,
}

/// Any splice.
pub fn splices() -> impl Strategy<Value = Splice> {
    let put = prop::collection::vec(any::<u8>(), 0..8);
    (any::<[Index; 4]>(), put).prop_map(|(places, put)| Splice { places, put })
}

impl Splice {
    /// It, of a corpus.
    pub fn of(&self, corpus: &[Input]) -> Vec<u8> {
        let [one, other, at, from] = self.places;
        let (one, other) = (&one.get(corpus).1, &other.get(corpus).1);
        [&one[..at.index(one.len() + 1)], &self.put, &other[from.index(other.len() + 1)..]].concat()
    }
}

/// One way to spoil bytes.
#[derive(Clone, Debug)]
pub enum Mutation {
    Set(Index, u8),
    FlipBit(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    CutOff(Index),
    /// Goes on with another input of the corpus from somewhere.
    Splice(Index, Index, Index),
}

/// Some ways, one after the other.
pub fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
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

/// Spoils bytes.
fn mutated(mut bytes: Vec<u8>, mutations: &[Mutation], corpus: &[Input]) -> Vec<u8> {
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
                let other = &other.get(corpus).1;
                bytes.truncate(at.index(end + 1));
                bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
            }
        }
    }
    bytes
}

/// Gives an entry function one input of its target's corpus, spoiled.
pub fn try_mutated(target: &str, input: Index, mutations: &[Mutation], entry: impl Fn(&[u8]) -> bool) {
    let corpus = corpus(target);
    entry(&mutated(input.get(&corpus).1.clone(), mutations, &corpus));
}
