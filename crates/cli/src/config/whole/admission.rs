//! Whether the promises can be kept: reserves must fit into their pool's, and pools' into the device's worst case.
//!
//! The decision is [`AccountTree`]'s, the same that decides while the daemon runs. Here its refusals get a line and a
//! key.

use crate::config::device::{EMULATE, PROFILE, WORST_CASE};
use crate::config::pool::PARENT;
use crate::config::volume;
use crate::config::{Device, Place, Pool, Problem, Volume};
use plimsoll_core::account::{AccountError, DEPTH_MAX};
use plimsoll_core::{AccountId, AccountKind, AccountTree, Allocation, Rate};
use plimsoll_settings::allocation::{LIMIT, RESERVE};
use std::collections::BTreeMap;

pub(super) fn check(devices: &[Device], pools: &[Pool], volumes: &[Volume], problems: &mut Vec<Problem>) {
    // A device's capacity decides nothing if its keys were not understood.
    let is_understood = |device: &&Device| {
        [EMULATE.name, PROFILE.name, WORST_CASE.name].into_iter().all(|key| device.place.is_understood(key))
    };
    for device in devices.iter().filter(is_understood) {
        let before = problems.len();
        let pools: Vec<&Pool> = pools.iter().filter(|pool| pool.device == device.name).collect();
        let volumes: Vec<&Volume> = volumes.iter().filter(|volume| volume.device == device.name).collect();
        if !device.is_worst_case_known() {
            pools.iter().for_each(|pool| needs_worst_case(device, &pool.allocation, &pool.place, problems));
            volumes.iter().for_each(|volume| needs_worst_case(device, &volume.allocation, &volume.place, problems));
        }
        if problems.len() == before {
            admit(device, &pools, &volumes, problems);
        }
    }
}

fn needs_worst_case(device: &Device, allocation: &Allocation, place: &Place, problems: &mut Vec<Problem>) {
    let unknown = |key, got: String| {
        let allowed = format!("only with {} or an emulated device", device.place.dotted(WORST_CASE.name));
        place.problem(key, got, allowed)
    };
    if allocation.reserve != Rate::ZERO {
        let got = format!("{}, of a device without a known worst case", allocation.reserve);
        problems.push(unknown(RESERVE.name, got));
    }
    if let Some(limit @ Rate::DevicePercent(_)) = allocation.limit {
        problems.push(unknown(LIMIT.name, format!("{limit}, of a device without a known worst case")));
    }
}

fn admit(device: &Device, pools: &[&Pool], volumes: &[&Volume], problems: &mut Vec<Problem>) {
    let mut tree = AccountTree::new(device.profile.clone());
    let mut opened: BTreeMap<&str, AccountId> = BTreeMap::new();
    // Members of a pool that was refused, or with an unknown reserve, have nothing to be compared with.
    for pool in pools.iter().filter(|pool| pool.place.is_understood(RESERVE.name)) {
        let parent = match &pool.parent {
            None => AccountId::ROOT,
            Some(parent) => match opened.get(parent.as_str()) {
                Some(&parent) => parent,
                None => continue,
            },
        };
        let (name, kind) = (pool.name.as_str(), AccountKind::Pool);
        if let Some(id) = open(&mut tree, parent, name, kind, pool.allocation, &pool.place, problems) {
            opened.insert(name, id);
        }
    }
    for volume in volumes.iter().filter(|volume| volume.place.is_understood(RESERVE.name)) {
        let Some(&pool) = opened.get(volume.pool.as_str()) else { continue };
        let (name, kind, place) = (volume.name.as_str(), AccountKind::Pool, &volume.place);
        let Some(account) = open(&mut tree, pool, name, kind, volume.allocation, place, problems) else { continue };
        // A volume is a pool of its sessions; each needs one level more.
        if tree.open(account, "session", AccountKind::Session, Allocation::default()).is_err() {
            problems.push(too_deep(volume::POOL.name, place));
        }
    }
}

fn open(
    tree: &mut AccountTree,
    parent: AccountId,
    name: &str,
    kind: AccountKind,
    allocation: Allocation,
    place: &Place,
    problems: &mut Vec<Problem>,
) -> Option<AccountId> {
    match tree.open(parent, name, kind, allocation) {
        Ok(id) => Some(id),
        Err(error) => {
            problems.push(refusal(&error, &allocation, place));
            match error {
                // The reserve stands, so the members can still be checked.
                AccountError::Allocation { .. } => {
                    tree.open(parent, name, kind, Allocation { limit: None, ..allocation }).ok()
                }
                _ => None,
            }
        }
    }
}

fn refusal(error: &AccountError, allocation: &Allocation, place: &Place) -> Problem {
    let runs = Rate::RunsPerSecond;
    match error {
        AccountError::Admission { parent, asked, available, promised, .. } => {
            let got = match allocation.reserve {
                Rate::RunsPerSecond(_) => runs(*asked).to_string(),
                reserve => format!("{reserve} ({})", runs(*asked)),
            };
            let allowed = format!(
                "at most {}: {parent} has {}, {} are promised to others, {}",
                runs((available - promised).max(0.0)),
                runs(*available),
                runs(*promised),
                error.excess_in_words()
            );
            place.problem(RESERVE.name, got, allowed)
        }
        // Weights, priorities and limits of zero were refused when they were read.
        AccountError::Allocation { .. } => {
            let limit = allocation.limit.map_or(String::new(), |limit| limit.to_string());
            place.problem(LIMIT.name, limit, format!("at least the reserve, {}", allocation.reserve))
        }
        AccountError::Name { path } => {
            place.problem("", format!("a second account {path:?}"), "a name that nothing else in its pool has")
        }
        // Parents are open pools here, so what is left is the depth.
        AccountError::Tree { .. } => {
            too_deep(if place.has(volume::POOL.name) { volume::POOL.name } else { PARENT.name }, place)
        }
        AccountError::Members { .. } => place.problem(RESERVE.name, error, "at least that"),
    }
}

fn too_deep(key: &str, place: &Place) -> Problem {
    let got = format!("more than {DEPTH_MAX} levels from the device to a session");
    place.problem(key, got, format!("at most {DEPTH_MAX}: pools, the volume, its session"))
}
