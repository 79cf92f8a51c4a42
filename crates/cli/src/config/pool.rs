//! `[pool.NAME]`: a part of a device or of another pool, and what it was promised.

use plimsoll_core::Allocation;
use plimsoll_settings::allocation::{self, DEADLINES_TABLE, LIMIT, PRIORITY, RESERVE, WEIGHT};
use plimsoll_settings::key::{Absent, Key, KeyTable, Text};
use plimsoll_settings::{Place, Problem, Section};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const DEVICE: Key<Text> = Key {
    name: "device",
    form: Text::new("name", "the name of a device"),
    absent: Absent::Words("exactly one of `device` and `parent` is required"),
    help: "the device that it is a part of",
};
pub(super) const PARENT: Key<Text> = Key {
    name: "parent",
    form: Text::new("name", "the name of a pool"),
    absent: Absent::Words("exactly one of `device` and `parent` is required"),
    help: "the pool that it is a part of; one that is not in this one",
};

pub(super) const TABLE: KeyTable =
    KeyTable { path: "pool.NAME", keys: &[&DEVICE, &PARENT, &RESERVE, &LIMIT, &WEIGHT, &PRIORITY, &DEADLINES_TABLE] };

/// A section `[pool.NAME]`.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name; unique in the file.
    pub name: String,
    /// The pool that it is in; `None` if it is directly on its device.
    pub parent: Option<String>,
    /// The device that it is on, through its parents.
    pub device: String,
    /// What it was promised.
    pub allocation: Allocation,
    /// Where the section stands.
    pub place: Place,
}

/// A `[pool.NAME]` before it is known which device it is on.
pub(super) struct PoolSection {
    pub(super) name: String,
    /// `None` if the section does not say what was understood.
    pub(super) holder: Option<Holder>,
    pub(super) allocation: Allocation,
    pub(super) place: Place,
}

/// What a pool is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Device(String),
    Pool(String),
}

pub(super) fn read(name: String, mut section: Section<'_>, problems: &mut Vec<Problem>) -> PoolSection {
    const ALLOWED: &str = "exactly one of them";
    let device = DEVICE.text(&mut section, problems).map(str::to_owned);
    let parent = PARENT.text(&mut section, problems).map(str::to_owned);
    let is_one = section.place().has(DEVICE.name) != section.place().has(PARENT.name);
    match (section.place().has(DEVICE.name), section.place().has(PARENT.name)) {
        (true, true) => problems.push(section.place().problem(PARENT.name, "both a device and a parent", ALLOWED)),
        (false, false) => problems.push(section.place().problem("", "neither a device nor a parent", ALLOWED)),
        _ => {}
    }
    let allocation = allocation::allocation(&mut section, problems);
    let place = section.finish(problems);
    let holder = device.map(Holder::Device).or(parent.map(Holder::Pool)).filter(|_| is_one);
    PoolSection { name, holder, allocation, place }
}

/// Reports each cycle once, at the member that stands first in the file. O(pools²) at the worst.
pub(super) fn check_cycles(pools: &[PoolSection], problems: &mut Vec<Problem>) {
    let parents: BTreeMap<&str, &str> = pools
        .iter()
        .filter_map(|pool| match &pool.holder {
            Some(Holder::Pool(parent)) => Some((pool.name.as_str(), parent.as_str())),
            _ => None,
        })
        .collect();
    let mut reported: BTreeSet<&str> = BTreeSet::new();
    for pool in pools {
        let mut chain = vec![pool.name.as_str()];
        while let Some(&parent) = parents.get(chain[chain.len() - 1]) {
            if parent == pool.name {
                if !reported.contains(parent) {
                    let got = format!("a cycle: {} -> {parent}", chain.join(" -> "));
                    problems.push(pool.place.problem(PARENT.name, got, "a pool that is not in this one"));
                    reported.extend(&chain);
                }
                break;
            }
            if chain.contains(&parent) {
                break; // A cycle further up, which is reported at its own members.
            }
            chain.push(parent);
        }
    }
}
