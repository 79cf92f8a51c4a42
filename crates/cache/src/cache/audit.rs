//! Whether everything that a cache notes twice is noted the same. Tests ask after each step.

use crate::cache::Cache;
use crate::units::{List, Pool, State, UnitId};
use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;
use std::collections::BTreeMap;

/// Where a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Empty,
    Free,
    ToClean,
    Cleaning,
    Aside,
    Bad,
    InOrder,
}

impl Place {
    /// Whether a unit there holds a block.
    fn holds(self) -> bool {
        !matches!(self, Place::Empty | Place::Bad)
    }

    fn admits(self, state: State) -> bool {
        match self {
            Place::Empty | Place::Bad => true,
            Place::Free => state == State::Free,
            Place::ToClean | Place::Cleaning => matches!(state, State::Cleaning | State::Wanted),
            Place::Aside => state == State::Aside,
            Place::InOrder => state == State::InOrder,
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
        let places = self.places()?;
        for (at, place) in places.iter().enumerate() {
            let unit = UnitId(at as u32);
            let Some(place) = *place else { continue };
            let state = self.units.state(unit);
            if !place.admits(state) {
                return Err(format!("unit {at} is in {place:?} and says that it is {state:?}"));
            }
        }
        let holders: Vec<bool> = places.iter().map(|place| place.is_some_and(Place::holds)).collect();
        let is_trimmed = |unit: UnitId| self.units.block(unit) == crate::cache::TRIMMED;
        self.index.audit(&self.units, |unit| holders[unit.0 as usize] && !is_trimmed(unit))?;
        let in_limbo = places.iter().filter(|place| place.is_none()).count() as u32;
        if in_limbo != self.in_limbo {
            return Err(format!("{in_limbo} units are in limbo and {} are counted", self.in_limbo));
        }
        self.audit_partition(&places)
    }

    /// Where each unit is; `None`: in limbo.
    fn places(&self) -> Result<Vec<Option<Place>>, String> {
        let mut places = vec![None; self.units.count() as usize];
        let mut put = |unit: UnitId, place: Place| match places[unit.0 as usize].replace(place) {
            Some(other) => Err(format!("unit {} is in {other:?} and in {place:?}", unit.0)),
            None => Ok(()),
        };
        let own = [
            (&self.empty, Place::Empty),
            (&self.free, Place::Free),
            (&self.to_clean, Place::ToClean),
            (&self.aside, Place::Aside),
            (&self.bad, Place::Bad),
        ];
        let lists = self.policy.anatomy().lists;
        let of_policy = lists.into_iter().flatten().map(|list| (list, Place::InOrder));
        for (list, place) in own.into_iter().chain(of_policy) {
            let members = List::audit(list, &self.units).map_err(|error| format!("list {place:?}: {error}"))?;
            members.into_iter().try_for_each(|unit| put(unit, place))?;
        }
        self.cleaning.iter().try_for_each(|job| put(job.unit, Place::Cleaning))?;
        if lists.is_none() {
            // The policy has what is in the index and is nowhere else.
            let is_in_order = |unit: UnitId| self.find(self.units.block(unit)) == Some(unit);
            let elsewhere = (0..).map(UnitId).zip(&mut places).filter(|(_, place)| place.is_none());
            elsewhere.filter(|(unit, _)| is_in_order(*unit)).for_each(|(_, place)| *place = Some(Place::InOrder));
        }
        Ok(places)
    }

    /// Units in order by class and by pool.
    fn audit_partition(&self, places: &[Option<Place>]) -> Result<(), String> {
        let (mut classes, mut pools, mut all) = ([0; CLASSES], BTreeMap::<Pool, u32>::new(), 0);
        for (at, _) in places.iter().enumerate().filter(|(_, place)| **place == Some(Place::InOrder)) {
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
