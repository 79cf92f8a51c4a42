//! Cause sets by number: a page carries four bytes, however many accounts dirtied it.
//!
//! Few sets are in use at once, and the same unions are made again and again, so both are remembered.

use plimsoll_core::CauseSet;
use std::collections::BTreeMap;

/// A search tree's nodes are at least half full, so an entry may take twice its size.
const TREE_FACTOR: usize = 2;

/// A cause set's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CauseId(u32);

impl CauseId {
    /// The empty set.
    pub const NONE: CauseId = CauseId(0);
}

/// Every set that was ever in use.
pub struct CauseSets {
    sets: Vec<CauseSet>,
    numbers: BTreeMap<Vec<u32>, CauseId>,
    unions: BTreeMap<(CauseId, CauseId), CauseId>,
    /// The set that was asked for last: mostly it is asked for again.
    last: CauseId,
    /// What the sets and the names by which they are found have on the heap.
    heap_bytes: usize,
}

impl Default for CauseSets {
    fn default() -> CauseSets {
        CauseSets {
            sets: vec![CauseSet::EMPTY],
            numbers: BTreeMap::from([(Vec::new(), CauseId::NONE)]),
            unions: BTreeMap::new(),
            last: CauseId::NONE,
            heap_bytes: 0,
        }
    }
}

impl CauseSets {
    /// The number of `set`.
    pub fn number(&mut self, set: &CauseSet) -> CauseId {
        if self.set(self.last) != set {
            let members: Vec<u32> = set.iter().map(|account| account.0).collect();
            let members_bytes = members.capacity() * size_of::<u32>();
            let next = CauseId(self.sets.len() as u32);
            self.last = *self.numbers.entry(members).or_insert(next);
            if self.last == next {
                self.sets.push(set.clone());
                self.heap_bytes += set.heap_bytes() + members_bytes;
            }
        }
        self.last
    }

    /// The set that has this number.
    pub fn set(&self, number: CauseId) -> &CauseSet {
        &self.sets[number.0 as usize]
    }

    /// The number of the union of two sets.
    #[inline]
    pub fn union(&mut self, one: CauseId, other: CauseId) -> CauseId {
        if one == other || other == CauseId::NONE {
            return one;
        }
        if one == CauseId::NONE {
            return other;
        }
        let pair = (one.min(other), one.max(other));
        if let Some(&number) = self.unions.get(&pair) {
            return number;
        }
        let mut set = self.set(one).clone();
        set.union_with(self.set(other));
        let number = self.number(&set);
        self.unions.insert(pair, number);
        number
    }

    /// How many different sets there are, the empty one included.
    pub fn count(&self) -> usize {
        self.sets.len()
    }

    /// Bytes that the sets take, and what finds them again.
    pub fn bytes(&self) -> usize {
        let entries = self.numbers.len() * size_of::<(Vec<u32>, CauseId)>()
            + self.unions.len() * size_of::<((CauseId, CauseId), CauseId)>();
        self.sets.len() * size_of::<CauseSet>() + self.heap_bytes + TREE_FACTOR * entries
    }
}
