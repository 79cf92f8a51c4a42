//! Whether everything that a cache notes twice is noted the same. Tests ask after each step.

use crate::cache::Cache;
use crate::units::{List, Pool, State, UnitId};
use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;
use std::collections::BTreeMap;

/// The list, or other set of units, that a unit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Empty,
    Free,
    ToClean,
    Cleaning,
    Aside,
    Bad,
    InOrder,
}

impl Membership {
    /// Whether a unit of it holds a block.
    fn holds(self) -> bool {
        !matches!(self, Membership::Empty | Membership::Bad)
    }

    fn admits(self, state: State) -> bool {
        match self {
            Membership::Empty | Membership::Bad => true,
            Membership::Free => state == State::Free,
            Membership::ToClean | Membership::Cleaning => matches!(state, State::Cleaning | State::Wanted),
            Membership::Aside => state == State::Aside,
            Membership::InOrder => state == State::InOrder,
        }
    }
}

impl Cache {
    /// Checks everything. Each unit is in one list, each list is whole, the index has exactly the units that hold a
    /// block, and counts are right. O(units + lists).
    ///
    /// # Errors
    /// The first thing that is not so.
    pub fn audit(&self) -> Result<(), String> {
        let sets = self.memberships()?;
        for (at, set) in sets.iter().enumerate() {
            let unit = UnitId(at as u32);
            let Some(set) = *set else { continue };
            let state = self.units.state(unit);
            if !set.admits(state) {
                return Err(format!("unit {at} is in {set:?} and says that it is {state:?}"));
            }
        }
        let holders: Vec<bool> = sets.iter().map(|set| set.is_some_and(Membership::holds)).collect();
        let is_trimmed = |unit: UnitId| self.units.block(unit) == crate::cache::TRIMMED;
        self.index.audit(&self.units, |unit| holders[unit.0 as usize] && !is_trimmed(unit))?;
        let in_limbo = sets.iter().filter(|set| set.is_none()).count() as u32;
        if in_limbo != self.in_limbo {
            return Err(format!("{in_limbo} units are in limbo and {} are counted", self.in_limbo));
        }
        self.audit_partition(&sets)
    }

    /// The set that each unit is in; `None`: in limbo.
    fn memberships(&self) -> Result<Vec<Option<Membership>>, String> {
        let mut sets = vec![None; self.units.count() as usize];
        let mut put = |unit: UnitId, set: Membership| match sets[unit.0 as usize].replace(set) {
            Some(other) => Err(format!("unit {} is in {other:?} and in {set:?}", unit.0)),
            None => Ok(()),
        };
        let own = [
            (&self.empty, Membership::Empty),
            (&self.free, Membership::Free),
            (&self.to_clean, Membership::ToClean),
            (&self.aside, Membership::Aside),
            (&self.bad, Membership::Bad),
        ];
        let lists = self.policy.anatomy().lists;
        let of_policy = lists.into_iter().flatten().map(|list| (list, Membership::InOrder));
        for (list, set) in own.into_iter().chain(of_policy) {
            let members = List::audit(list, &self.units).map_err(|error| format!("list {set:?}: {error}"))?;
            members.into_iter().try_for_each(|unit| put(unit, set))?;
        }
        self.cleaning.iter().try_for_each(|job| put(job.unit, Membership::Cleaning))?;
        if lists.is_none() {
            // The policy has what is in the index and is nowhere else.
            let is_in_order = |unit: UnitId| self.find(self.units.block(unit)) == Some(unit);
            let in_none = (0..).map(UnitId).zip(&mut sets).filter(|(_, set)| set.is_none());
            in_none.filter(|(unit, _)| is_in_order(*unit)).for_each(|(_, set)| *set = Some(Membership::InOrder));
        }
        Ok(sets)
    }

    /// Units in order by class and by pool.
    fn audit_partition(&self, sets: &[Option<Membership>]) -> Result<(), String> {
        let (mut classes, mut pools, mut all) = ([0; CLASSES], BTreeMap::<Pool, u32>::new(), 0);
        for (at, _) in sets.iter().enumerate().filter(|(_, set)| **set == Some(Membership::InOrder)) {
            let unit = UnitId(at as u32);
            classes[usize::from(self.units.class(unit).number())] += 1;
            *pools.entry(self.units.pool(unit)).or_default() += 1;
            all += 1;
        }
        for (number, &units) in classes.iter().enumerate() {
            let counted = self.class_units(Class::new(number as u8).expect("five bits"));
            if counted != units {
                return Err(format!("{units} units of class {number} are in order and {counted} are counted"));
            }
        }
        for (&pool, &units) in &pools {
            let counted = self.pool_units(pool);
            if counted != units {
                return Err(format!("{units} units of pool {} are in order and {counted} are counted", pool.number()));
            }
        }
        let counted = self.partition.pool_units_of_all();
        if counted != all { Err(format!("{all} units are in order and the pools count {counted}")) } else { Ok(()) }
    }
}
