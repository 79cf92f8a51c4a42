//! What is known of each unit, in 16 bytes, and lists through the units.
//!
//! A unit's word holds everything that a look-up needs. Its two links put it into exactly one list: the empty ones, the
//! free ones, or one of the policy's.
//!
//! ```text
//!   bit 63                       28    23     14      4    3      2     0
//!       | block: 36 bits, 256 TiB | class | pool | stamp | dirty | again | state
//! ```
//!
//! Units are numbered with 27 bits, so each link has five left over. Together they are the unit's *mark*, which only
//! the cache on a device ([`store`](crate::store)) uses.

mod list;
mod part;

use crate::memory::table;
use plimsoll_core::{Class, prefetch};

pub use list::List;
pub(crate) use part::{Held, Part};

/// Bytes of a unit (Differentiated Storage Services, section 4.4.1).
pub const UNIT_BYTES: u64 = 4096;
/// Blocks that a store may have: 256 TiB.
pub const BLOCKS_MAX: u64 = 1 << 36;
/// Pools that can be told apart.
pub const POOLS_MAX: usize = 512;
/// Stamps go round after so many generations.
pub const STAMPS: u32 = 1024;
/// Bits of a unit's number.
const NUMBER_BITS: u32 = 27;
/// No unit.
const NO_UNIT: u32 = (1 << NUMBER_BITS) - 1;
/// Bits of a mark that each link holds.
const MARK_BITS: u32 = u32::BITS - NUMBER_BITS;

const STATE: Field = Field { shift: 0, bits: 2 };
const AGAIN: Field = Field { shift: 2, bits: 1 };
const DIRTY: Field = Field { shift: 3, bits: 1 };
const STAMP: Field = Field { shift: 4, bits: 10 };
const POOL: Field = Field { shift: 14, bits: 9 };
const CLASS: Field = Field { shift: 23, bits: 5 };
const BLOCK: Field = Field { shift: 28, bits: 36 };

struct Field {
    shift: u32,
    bits: u32,
}

impl Field {
    #[inline]
    const fn get(&self, word: u64) -> u64 {
        (word >> self.shift) & ((1 << self.bits) - 1)
    }

    #[inline]
    const fn set(&self, word: u64, value: u64) -> u64 {
        let mask = ((1 << self.bits) - 1) << self.shift;
        (word & !mask) | (value << self.shift)
    }
}

/// A unit of the cache, by its place on the fast device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u32);

/// The pool of its data, 0 to 511, for bounds of occupancy. The host numbers its pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool(u16);

impl Pool {
    /// The pool numbered `number`, if it is below 512.
    #[inline]
    pub const fn new(number: u16) -> Option<Pool> {
        if (number as usize) < POOLS_MAX { Some(Pool(number)) } else { None }
    }

    /// Its number.
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// Where a unit that holds a block is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the policy's order.
    InOrder,
    /// Has left the order and is to be written back.
    Cleaning,
    /// The same, but was used meanwhile and will return.
    Wanted,
    /// Equal to the store: readable until another block gets the unit.
    Free,
    /// Has left the order, is dirty and cannot be written back: it cannot be read, or the store refuses it. The word
    /// has no bits for a fifth state. Its code is a free unit with the dirty bit, which only [`Units::set_state`] sets
    /// and clears.
    Aside,
}

const STATES: [State; 4] = [State::InOrder, State::Cleaning, State::Wanted, State::Free];

#[derive(Clone, Copy, Debug)]
struct UnitDescriptor {
    word: u64,
    older: Link,
    newer: Link,
}

/// The number of a neighbour in a list, and half a mark above it.
#[derive(Clone, Copy, Debug)]
struct Link(u32);

impl Link {
    const NO_UNIT: Link = Link(NO_UNIT);

    #[inline]
    fn unit(self) -> u32 {
        self.0 & NO_UNIT
    }

    #[inline]
    fn set_unit(&mut self, unit: u32) {
        self.0 = (self.0 & !NO_UNIT) | unit;
    }

    #[inline]
    fn half(self) -> u16 {
        (self.0 >> NUMBER_BITS) as u16
    }

    #[inline]
    fn set_half(&mut self, half: u16) {
        self.0 = (self.0 & NO_UNIT) | u32::from(half) << NUMBER_BITS;
    }
}

impl UnitDescriptor {
    #[inline]
    fn mark(&self) -> u16 {
        self.older.half() << MARK_BITS | self.newer.half()
    }

    #[inline]
    fn set_mark(&mut self, mark: u16) {
        self.older.set_half(mark >> MARK_BITS);
        self.newer.set_half(mark & ((1 << MARK_BITS) - 1));
    }
}

/// All units of a cache.
#[derive(Clone, Debug)]
pub struct Units {
    descriptors: Vec<UnitDescriptor>,
}

impl Units {
    /// So many units; none holds a block.
    pub fn new(count: u32) -> Units {
        Units {
            descriptors: table(UnitDescriptor { word: 0, older: Link::NO_UNIT, newer: Link::NO_UNIT }, count as usize),
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.descriptors.len() as u32
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.descriptors.capacity() * size_of::<UnitDescriptor>()
    }

    #[inline]
    fn word(&self, unit: UnitId) -> u64 {
        self.descriptors[unit.0 as usize].word
    }

    #[inline]
    fn put(&mut self, unit: UnitId, field: &Field, value: u64) {
        let word = &mut self.descriptors[unit.0 as usize].word;
        *word = field.set(*word, value);
    }

    /// A unit gets a block, and everything else that was known of it is forgotten.
    #[inline]
    pub fn fill(&mut self, unit: UnitId, block: u64, class: Class, pool: Pool) {
        debug_assert!(block < BLOCKS_MAX);
        let word = CLASS.set(BLOCK.set(0, block), u64::from(class.number()));
        self.descriptors[unit.0 as usize].word = POOL.set(word, u64::from(pool.0));
    }

    /// Makes `to` a copy of `from`, except for its mark and its place in a list.
    pub fn copy(&mut self, from: UnitId, to: UnitId) {
        self.descriptors[to.0 as usize].word = self.word(from);
    }

    /// The block that it holds.
    #[inline]
    pub fn block(&self, unit: UnitId) -> u64 {
        BLOCK.get(self.word(unit))
    }

    /// What the block is.
    #[inline]
    pub fn class(&self, unit: UnitId) -> Class {
        Class::new(CLASS.get(self.word(unit)) as u8).expect("five bits")
    }

    /// The pool that it belongs to.
    #[inline]
    pub fn pool(&self, unit: UnitId) -> Pool {
        Pool(POOL.get(self.word(unit)) as u16)
    }

    /// The generation in which it was last put in order, 0 to 1023.
    #[inline]
    pub fn stamp(&self, unit: UnitId) -> u32 {
        STAMP.get(self.word(unit)) as u32
    }

    /// Whether the store does not have its content.
    #[inline]
    pub fn is_dirty(&self, unit: UnitId) -> bool {
        DIRTY.get(self.word(unit)) == 1
    }

    /// Whether a policy has seen it used again.
    #[inline]
    pub fn is_again(&self, unit: UnitId) -> bool {
        AGAIN.get(self.word(unit)) == 1
    }

    /// The state of `unit`.
    #[inline]
    pub fn state(&self, unit: UnitId) -> State {
        match STATES[STATE.get(self.word(unit)) as usize] {
            State::Free if self.is_dirty(unit) => State::Aside,
            state => state,
        }
    }

    /// The block turned out to be something else.
    #[inline]
    pub fn set_class(&mut self, unit: UnitId, class: Class) {
        self.put(unit, &CLASS, u64::from(class.number()));
    }

    /// See [`Units::stamp`].
    #[inline]
    pub fn set_stamp(&mut self, unit: UnitId, stamp: u32) {
        self.put(unit, &STAMP, u64::from(stamp));
    }

    /// See [`Units::is_dirty`].
    ///
    /// # Panics
    /// If that contradicts the unit's state: a free unit leaves the free list before it is dirty, and a unit aside is
    /// dirty.
    #[inline]
    pub fn set_dirty(&mut self, unit: UnitId, is_dirty: bool) {
        let is_at_rest = STATE.get(self.word(unit)) == State::Free as u64;
        assert!(!is_at_rest || is_dirty == self.is_dirty(unit), "unit {} is {:?}", unit.0, self.state(unit));
        self.put(unit, &DIRTY, u64::from(is_dirty));
    }

    /// See [`Units::is_again`].
    #[inline]
    pub fn set_again(&mut self, unit: UnitId, is_again: bool) {
        self.put(unit, &AGAIN, u64::from(is_again));
    }

    /// The ten bits beside everything else.
    #[inline]
    pub fn mark(&self, unit: UnitId) -> u16 {
        self.descriptors[unit.0 as usize].mark()
    }

    /// See [`Units::mark`].
    pub fn set_mark(&mut self, unit: UnitId, mark: u16) {
        self.descriptors[unit.0 as usize].set_mark(mark);
    }

    /// Starts loading what is known of `unit`.
    #[inline]
    pub fn prefetch(&self, unit: UnitId) {
        prefetch(&self.descriptors[unit.0 as usize]);
    }

    /// Starts loading what is known of those beside `unit` in its list.
    #[inline]
    pub fn prefetch_neighbours(&self, unit: UnitId) {
        let UnitDescriptor { older, newer, .. } = self.descriptors[unit.0 as usize];
        for neighbour in [older.unit(), newer.unit()] {
            self.descriptors.get(neighbour as usize).inspect(|descriptor| prefetch(*descriptor));
        }
    }

    /// See [`Units::state`].
    ///
    /// # Panics
    /// If a dirty unit is to be free, or a clean one aside.
    #[inline]
    pub fn set_state(&mut self, unit: UnitId, state: State) {
        let in_word = if state == State::Aside { State::Free } else { state };
        let is_dirty = self.is_dirty(unit);
        assert!(in_word != State::Free || is_dirty == (state == State::Aside), "unit {}: {state:?}", unit.0);
        self.put(unit, &STATE, in_word as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        let (mut units, unit) = (Units::new(1), UnitId(0));
        let class = Class::new(31).unwrap();
        units.fill(unit, BLOCKS_MAX - 1, class, Pool::new(511).unwrap());
        let rest = |units: &Units| (units.block(unit), units.class(unit), units.pool(unit));
        for (stamp, flag, state) in
            [(0, true, State::Wanted), (STAMPS - 1, false, State::Free), (512, true, State::InOrder)]
        {
            units.set_stamp(unit, stamp);
            units.set_state(unit, State::InOrder);
            units.set_dirty(unit, flag);
            units.set_again(unit, !flag);
            units.set_state(unit, state);
            units.set_mark(unit, stamp as u16);
            let (mut list, mut other) = (List::default(), List::default());
            list.push(&mut units, unit);
            list.remove(&mut units, unit);
            other.push(&mut units, unit);
            assert_eq!((units.mark(unit), other.pop(&mut units)), (stamp as u16, Some(unit)));
            assert_eq!((units.stamp(unit), units.state(unit)), (stamp, state));
            assert_eq!((units.is_dirty(unit), units.is_again(unit)), (flag, !flag));
            assert_eq!(rest(&units), (BLOCKS_MAX - 1, class, Pool(511)));
        }
        units.set_class(unit, Class::UNCLASSIFIED);
        assert_eq!(rest(&units), (BLOCKS_MAX - 1, Class::UNCLASSIFIED, Pool(511)));
        assert_eq!(size_of::<UnitDescriptor>(), 16);
    }

    /// Outcome: a unit does not become another state's by being dirty or clean.
    ///
    /// Planted break that was seen red: dirty is set without a look at the state.
    /// Promise: store-trim-race.
    #[test]
    fn free_and_aside_are_left_before_a_unit_is_dirty_or_clean() {
        for (state, is_dirty) in [(State::Free, false), (State::Aside, true)] {
            let (mut units, unit) = (Units::new(1), UnitId(0));
            units.set_dirty(unit, is_dirty);
            units.set_state(unit, state);
            let mut other = units.clone();
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.set_dirty(unit, !is_dirty)));
            assert!(found.is_err(), "{state:?}");
            units.set_state(unit, State::InOrder);
            units.set_dirty(unit, !is_dirty);
            assert_eq!((units.state(unit), units.is_dirty(unit)), (State::InOrder, !is_dirty));
        }
    }
}
