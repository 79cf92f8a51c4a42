//! A run of units, for one of several threads that fill or list all of them.

use super::{AGAIN, BLOCK, CLASS, DIRTY, List, POOL, Pool, STAMP, UnitDescriptor, UnitId, Units};
use plimsoll_core::Class;
use std::ops::Range;

/// Some of the units, which no other thread has meanwhile.
pub(crate) struct Part<'a> {
    first: u32,
    descriptors: &'a mut [UnitDescriptor],
}

/// What a unit holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub block: u64,
    pub class: Class,
    pub pool: Pool,
    pub is_dirty: bool,
    pub is_again: bool,
    pub stamp: u32,
    pub mark: u16,
}

impl Held {
    #[inline]
    fn of(descriptor: &UnitDescriptor) -> Held {
        let get = |field: &super::Field| field.get(descriptor.word);
        Held {
            block: get(&BLOCK),
            class: Class::new(get(&CLASS) as u8).expect("five bits"),
            pool: Pool(get(&POOL) as u16),
            is_dirty: get(&DIRTY) == 1,
            is_again: get(&AGAIN) == 1,
            stamp: get(&STAMP) as u32,
            mark: descriptor.mark(),
        }
    }
}

impl Units {
    /// All units, `each` of them in a part.
    pub(crate) fn parts_mut(&mut self, each: usize) -> impl Iterator<Item = Part<'_>> {
        let parts = self.descriptors.chunks_mut(each).enumerate();
        parts.map(move |(at, descriptors)| Part { first: (at * each) as u32, descriptors })
    }
}

impl Part<'_> {
    /// Which units these are.
    #[inline]
    pub fn units(&self) -> Range<u32> {
        self.first..self.first + self.descriptors.len() as u32
    }

    #[inline]
    fn descriptor(&mut self, unit: UnitId) -> &mut UnitDescriptor {
        &mut self.descriptors[(unit.0 - self.first) as usize]
    }

    /// What `unit` holds, if its mark says that it holds something.
    #[inline]
    pub fn get(&self, unit: UnitId) -> Held {
        Held::of(&self.descriptors[(unit.0 - self.first) as usize])
    }

    /// `unit`, which is in order, holds this and nothing else.
    #[inline]
    pub fn fill(&mut self, unit: UnitId, held: &Held) {
        let word = BLOCK.set(0, held.block);
        let word = POOL.set(CLASS.set(word, u64::from(held.class.number())), u64::from(held.pool.0));
        let word = AGAIN.set(DIRTY.set(word, u64::from(held.is_dirty)), u64::from(held.is_again));
        let descriptor = self.descriptor(unit);
        descriptor.word = STAMP.set(word, u64::from(held.stamp));
        descriptor.set_mark(held.mark);
    }

    /// Gives `unit` another stamp.
    #[inline]
    pub fn set_stamp(&mut self, unit: UnitId, stamp: u32) {
        let word = &mut self.descriptor(unit).word;
        *word = STAMP.set(*word, u64::from(stamp));
    }

    /// Adds `unit` at the new end of `list`, which has units of this part only.
    #[inline]
    pub fn push(&mut self, list: &mut List, unit: UnitId) {
        list.push_to(self.descriptors, self.first, unit);
    }
}
