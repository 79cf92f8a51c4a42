//! Lists through the units.

use super::{NO_UNIT, UnitDescriptor, UnitId, Units};
use plimsoll_core::prefetch;

/// A list of units in order of use. A unit is in one list at a time; code that removes it says from which.
#[derive(Clone, Copy, Debug)]
pub struct List {
    oldest: u32,
    newest: u32,
    length: u32,
}

impl Default for List {
    fn default() -> List {
        List { oldest: NO_UNIT, newest: NO_UNIT, length: 0 }
    }
}

impl List {
    /// How many units are in it.
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The unit that has been in it longest.
    pub fn oldest(&self) -> Option<UnitId> {
        (self.oldest != NO_UNIT).then_some(UnitId(self.oldest))
    }

    /// Adds `unit` at the new end.
    #[inline]
    pub fn push(&mut self, units: &mut Units, unit: UnitId) {
        self.push_to(&mut units.descriptors, 0, unit);
    }

    /// The same, for only the units with a number that begins with `first`: all units of the list are among them.
    #[inline]
    pub(super) fn push_to(&mut self, descriptors: &mut [UnitDescriptor], first: u32, unit: UnitId) {
        let descriptor = &mut descriptors[(unit.0 - first) as usize];
        descriptor.older.set_unit(self.newest);
        descriptor.newer.set_unit(NO_UNIT);
        match self.newest {
            NO_UNIT => self.oldest = unit.0,
            newest => descriptors[(newest - first) as usize].newer.set_unit(unit.0),
        }
        self.newest = unit.0;
        self.length += 1;
    }

    /// Moves all of `other` to the new end of this list, in order.
    pub(crate) fn append(&mut self, units: &mut Units, other: List) {
        if other.is_empty() {
            return;
        }
        match self.newest {
            NO_UNIT => self.oldest = other.oldest,
            newest => {
                units.descriptors[newest as usize].newer.set_unit(other.oldest);
                units.descriptors[other.oldest as usize].older.set_unit(newest);
            }
        }
        self.newest = other.newest;
        self.length += other.length;
    }

    /// Takes `unit` out, which must be in it.
    pub fn remove(&mut self, units: &mut Units, unit: UnitId) {
        let UnitDescriptor { older, newer, .. } = units.descriptors[unit.0 as usize];
        let (older, newer) = (older.unit(), newer.unit());
        match older {
            NO_UNIT => self.oldest = newer,
            older => units.descriptors[older as usize].newer.set_unit(newer),
        }
        match newer {
            NO_UNIT => self.newest = older,
            newer => units.descriptors[newer as usize].older.set_unit(older),
        }
        self.length -= 1;
    }

    /// `to`, which is in no list, takes the place of `from`.
    pub fn replace(&mut self, units: &mut Units, from: UnitId, to: UnitId) {
        let UnitDescriptor { older, newer, .. } = units.descriptors[from.0 as usize];
        let (older, newer) = (older.unit(), newer.unit());
        let descriptor = &mut units.descriptors[to.0 as usize];
        descriptor.older.set_unit(older);
        descriptor.newer.set_unit(newer);
        match older {
            NO_UNIT => self.oldest = to.0,
            older => units.descriptors[older as usize].newer.set_unit(to.0),
        }
        match newer {
            NO_UNIT => self.newest = to.0,
            newer => units.descriptors[newer as usize].older.set_unit(to.0),
        }
    }

    /// Its members in order, if each link leads to the next one and back. O(members).
    ///
    /// # Errors
    /// Which link does not.
    pub(crate) fn audit(&self, units: &Units) -> Result<Vec<UnitId>, String> {
        let (mut members, mut before, mut at) = (Vec::new(), NO_UNIT, self.oldest);
        while at != NO_UNIT {
            let Some(descriptor) = units.descriptors.get(at as usize) else {
                return Err(format!("there is no unit {at}"));
            };
            if descriptor.older.unit() != before {
                return Err(format!("unit {at} comes after {before} and says {}", descriptor.older.unit()));
            }
            if members.len() == units.descriptors.len() {
                return Err("it is a ring".to_owned());
            }
            members.push(UnitId(at));
            (before, at) = (at, descriptor.newer.unit());
        }
        match (self.newest == before, self.length as usize == members.len()) {
            (false, _) => Err(format!("{before} is its newest and it says {}", self.newest)),
            (_, false) => Err(format!("it has {} members and says {}", members.len(), self.length)),
            _ => Ok(members),
        }
    }

    /// Takes out the unit that has been in it longest.
    #[inline]
    pub fn pop(&mut self, units: &mut Units) -> Option<UnitId> {
        let unit = self.oldest()?;
        self.oldest = units.descriptors[unit.0 as usize].newer.unit();
        self.length -= 1;
        match self.oldest {
            NO_UNIT => self.newest = NO_UNIT,
            oldest => {
                // This descriptor is in the processor's cache, since it is written to; the one after it is prefetched.
                let descriptor = &mut units.descriptors[oldest as usize];
                descriptor.older.set_unit(NO_UNIT);
                let next = descriptor.newer.unit();
                units.descriptors.get(next as usize).inspect(|descriptor| prefetch(*descriptor));
            }
        }
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn a_list_is_a_queue_that_loses_members_from_its_middle(steps in prop::collection::vec((0u32..12, any::<bool>()), 0..200)) {
            let (mut units, mut list, mut slow) = (Units::new(12), List::default(), VecDeque::new());
            for (unit, is_pop) in steps {
                if is_pop {
                    prop_assert_eq!(list.pop(&mut units).map(|unit| unit.0), slow.pop_front());
                } else if let Some(at) = slow.iter().position(|&other| other == unit) {
                    // To a unit that is in no list if there is one, else out.
                    match (0..12).find(|other| unit % 2 == 0 && !slow.contains(other)) {
                        Some(other) => {
                            list.replace(&mut units, UnitId(unit), UnitId(other));
                            slow[at] = other;
                        }
                        None => {
                            list.remove(&mut units, UnitId(unit));
                            slow.remove(at);
                        }
                    }
                } else {
                    list.push(&mut units, UnitId(unit));
                    slow.push_back(unit);
                }
                prop_assert_eq!(list.oldest().map(|unit| unit.0), slow.front().copied());
                prop_assert_eq!(list.len() as usize, slow.len());
            }
        }
    }
}
