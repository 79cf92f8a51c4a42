//! Entries by key in one block of memory. Each has a number that stays the same until it is removed.
//!
//! A hash table holds the places only. It is asked for a key and never walked, and the hash is fixed, so that the same
//! events give the same decisions. O(1); nothing is allocated once as many things were in it at once as ever are.

use hashbrown::HashTable;
use plimsoll_core::{AccountId, CallId, FileId};

/// Multiplier of the hash: 2^64 over the golden ratio (Knuth, The Art of Computer Programming, 6.4).
const HASH_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// What things are found by.
pub trait Key: Copy + Eq {
    /// The key as a number; equal ones only for equal keys, as far as can be.
    fn number(self) -> u64;
}

impl Key for FileId {
    fn number(self) -> u64 {
        self.0
    }
}

impl Key for CallId {
    fn number(self) -> u64 {
        self.0
    }
}

impl Key for (u32, AccountId) {
    fn number(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(self.1.0)
    }
}

/// Spreads a key over all 64 bits: the table looks at the lowest and at the highest.
fn hash(key: impl Key) -> u64 {
    let mixed = key.number().wrapping_mul(HASH_MULTIPLIER);
    (mixed ^ mixed >> 32).wrapping_mul(HASH_MULTIPLIER)
}

/// See the module's text.
pub struct KeyedSlab<K, T> {
    index: HashTable<u32>,
    entries: Vec<(K, T)>,
    free: Vec<u32>,
}

impl<K, T> Default for KeyedSlab<K, T> {
    fn default() -> Self {
        KeyedSlab { index: HashTable::new(), entries: Vec::new(), free: Vec::new() }
    }
}

impl<K: Key, T> KeyedSlab<K, T> {
    /// How many are in it.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The place of what has this key.
    pub fn find(&self, key: K) -> Option<u32> {
        self.index.find(hash(key), |&place| self.entries[place as usize].0 == key).copied()
    }

    /// Puts something in under a key that nothing has; answers with its place.
    pub fn insert(&mut self, key: K, thing: T) -> u32 {
        let place = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(place as usize) {
            Some(entry) => *entry = (key, thing),
            None => self.entries.push((key, thing)),
        }
        let entries = &self.entries;
        self.index.insert_unique(hash(key), place, |&place| hash(entries[place as usize].0));
        place
    }

    /// Takes out what is in a place that is in use; the place may be used again.
    pub fn remove(&mut self, place: u32) {
        if let Ok(found) = self.index.find_entry(hash(self.key(place)), |&found| found == place) {
            found.remove();
            self.free.push(place);
        }
    }

    /// The key of what is, or was last, in a place.
    pub fn key(&self, place: u32) -> K {
        self.entries[place as usize].0
    }

    /// What is in a place.
    pub fn get(&self, place: u32) -> &T {
        &self.entries[place as usize].1
    }

    /// What is in a place, to change it.
    pub fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.entries[place as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((0..40u64, any::<bool>()), 0..200)) {
            let (mut slab, mut map) = (KeyedSlab::default(), BTreeMap::new());
            for (number, (key, is_insert)) in steps.into_iter().enumerate() {
                match (slab.find(FileId(key)), is_insert) {
                    (None, true) => drop((slab.insert(FileId(key), number), map.insert(key, number))),
                    (Some(place), true) => {
                        *slab.get_mut(place) = number;
                        map.insert(key, number);
                    }
                    (Some(place), false) => {
                        slab.remove(place);
                        map.remove(&key);
                    }
                    (None, false) => prop_assert!(!map.contains_key(&key)),
                }
                prop_assert_eq!((slab.len(), slab.is_empty()), (map.len(), map.is_empty()));
                for key in 0..40 {
                    let found = slab.find(FileId(key));
                    prop_assert_eq!(found.map(|place| slab.get(place)), map.get(&key));
                    prop_assert!(found.is_none_or(|place| slab.key(place) == FileId(key)));
                }
            }
            prop_assert!(slab.entries.len() <= 40, "places are used again");
        }
    }
}
