//! References between sections: pools on devices and in pools, volumes in pools.

use crate::config::pool::{self, DEVICE, Holder, PARENT, PoolSection};
use crate::config::sections::Sections;
use crate::config::{Device, Place, Pool, Problem, Volume, cache, name_problem, quoted, volume};
use plimsoll_settings::suggest;
use std::collections::{BTreeMap, BTreeSet};

/// Answers the pools, parents before children, and sets the device of each pool and volume. Pools and volumes with an
/// unknown device have an empty name there. They exist, and checks that need no device still run.
pub(super) fn resolve(sections: &mut Sections, problems: &mut Vec<Problem>) -> Vec<Pool> {
    undefined_holders(sections, problems);
    pool::check_cycles(&sections.pools, problems);
    let devices: BTreeSet<String> = sections.devices.iter().map(|device| device.name.clone()).collect();
    let mut waiting: Vec<PoolSection> = std::mem::take(&mut sections.pools);
    let mut pools: Vec<Pool> = Vec::new();
    let mut device_of: BTreeMap<String, String> = BTreeMap::new();
    while !waiting.is_empty() {
        let unplaced: BTreeSet<String> = waiting.iter().map(|pool| pool.name.clone()).collect();
        let (mut ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|pool| match &pool.holder {
            Some(Holder::Pool(parent)) => !unplaced.contains(parent),
            _ => true,
        });
        waiting = rest;
        if ready.is_empty() {
            // These pools contain one another, which was reported.
            ready = std::mem::take(&mut waiting).into_iter().map(|pool| PoolSection { holder: None, ..pool }).collect();
        }
        for PoolSection { name, holder, allocation, place } in ready {
            let (parent, device) = match holder {
                Some(Holder::Device(device)) => (None, devices.get(&device).cloned()),
                Some(Holder::Pool(parent)) => match device_of.get(&parent).cloned() {
                    None => (None, None),
                    device => (Some(parent), device),
                },
                None => (None, None),
            };
            let device = device.unwrap_or_default();
            device_of.insert(name.clone(), device.clone());
            pools.push(Pool { name, parent, device, allocation, place });
        }
    }
    let names = &sections.pool_names;
    for volume in sections.volumes.iter_mut().filter(|volume| volume.place.is_understood(volume::POOL.name)) {
        match device_of.get(&volume.pool) {
            Some(device) => volume.device.clone_from(device),
            None => problems.extend(undefined(volume::POOL.name, "pool", &volume.pool, names, &volume.place)),
        }
    }
    undefined_caches(sections, problems);
    bounded_pools(sections, &pools, problems);
    unused_devices(&sections.devices, &pools, problems);
    pools
}

fn undefined_holders(sections: &Sections, problems: &mut Vec<Problem>) {
    for pool in &sections.pools {
        problems.extend(match &pool.holder {
            None => None,
            Some(Holder::Device(device)) => {
                undefined(DEVICE.name, "device", device, &sections.device_names, &pool.place)
            }
            Some(Holder::Pool(parent)) => undefined(PARENT.name, "pool", parent, &sections.pool_names, &pool.place),
        });
    }
}

fn undefined_caches(sections: &Sections, problems: &mut Vec<Problem>) {
    for volume in &sections.volumes {
        let Some(cache) = &volume.cache else { continue };
        problems.extend(undefined(volume::CACHE.name, "cache", cache, &sections.cache_names, &volume.place));
        if volume.is_read_only {
            let got = format!("the cache {} of a read-only volume", quoted(cache));
            problems.push(volume.place.problem(volume::CACHE.name, got, "a cache of a volume that is written"));
        }
        if volume.backing.is_encrypted() {
            const ALLOWED: &str = "a cache of a volume that is not: what is in a cache is not encrypted";
            let got = format!("the cache {} of an encrypted volume", quoted(cache));
            problems.push(volume.place.problem(volume::CACHE.name, got, ALLOWED));
        }
    }
}

/// Finds the accounts with a bound on their part of a cache: pools, and sessions of volumes, which open while the
/// daemon runs.
fn bounded_pools(sections: &mut Sections, pools: &[Pool], problems: &mut Vec<Problem>) {
    let path_of = |pool: &str| {
        let up = std::iter::successors(pools.iter().find(|found| found.name == pool), |pool| {
            pools.iter().find(|found| Some(&found.name) == pool.parent.as_ref())
        });
        let mut names: Vec<&str> = up.map(|pool| &*pool.name).collect();
        names.reverse();
        names.join("/")
    };
    for cache in &mut sections.caches {
        for (line, name, part) in &cache.bounds {
            let path = match name.split_once('/') {
                None => pools.iter().any(|pool| pool.name == *name).then(|| path_of(name)),
                Some((volume, session)) => {
                    let volume = sections.volumes.iter().find(|found| found.name == volume);
                    volume.map(|volume| format!("{}/{}/{session}", path_of(&volume.pool), volume.name))
                }
            };
            let impossible = path.as_ref().and_then(|path| {
                let owner = || owner_of(&sections.volumes, &cache.name);
                match name.contains('/') {
                    true => impossible_session(&sections.volumes, &cache.name, name),
                    false => owner().and_then(|owner| impossible_pool(owner, &path_of(&owner.pool), name, path)),
                }
            });
            if let Some(problem) = impossible {
                problems.push(Problem { line: *line, ..cache.place.problem(cache::POOLS.name, problem.0, problem.1) });
                continue;
            }
            match path {
                Some(path) => cache.settings.pools.push((path, *part)),
                None => problems.push(Problem {
                    line: *line,
                    ..cache.place.problem(
                        cache::POOLS.name,
                        format!("{}, which is no pool or session", quoted(name)),
                        "the name of a pool, or VOLUME/SESSION",
                    )
                }),
            }
        }
    }
}

/// The reason for which the session `VOLUME/SESSION` can never have a block in the cache called `cache`, if any, and
/// the allowed values.
fn impossible_session(volumes: &[Volume], cache: &str, name: &str) -> Option<(String, String)> {
    let (volume, session) = name.split_once('/')?;
    if let Some(allowed) = name_problem(session) {
        return Some((
            format!("{}, whose session has the name {}", quoted(name), quoted(session)),
            allowed.to_string(),
        ));
    }
    let of_volume = volumes.iter().find(|found| found.name == volume)?.cache.as_deref();
    let with = match of_volume {
        Some(other) if other != cache => format!("with the cache {}", quoted(other)),
        // A cache that no volume has may be put before any of them while the daemon runs.
        None if owner_of(volumes, cache).is_some() => "without a cache".to_owned(),
        _ => return None,
    };
    let got = format!("{}, a session of a volume {with}", quoted(name));
    Some((got, "sessions of the volume that has this cache".to_owned()))
}

/// The volume that has the cache of that name.
fn owner_of<'v>(volumes: &'v [Volume], cache: &str) -> Option<&'v Volume> {
    volumes.iter().find(|volume| volume.cache.as_deref() == Some(cache))
}

/// Says it where the pool at `path`, called `name`, can never have a block in the cache of `owner`: that volume is at
/// `volume`, in other pools. A tenant of a mounted volume may be in any pool.
fn impossible_pool(owner: &Volume, volume: &str, name: &str, path: &str) -> Option<(String, String)> {
    let takes_tenants = owner.mount.as_ref().is_some_and(|mount| mount.takes_tenants);
    let is_around = volume.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if takes_tenants || is_around || volume.is_empty() {
        return None;
    }
    let pools: Vec<String> = volume.split('/').map(quoted).collect();
    let got = format!("{}, a pool without sessions of volume {}", quoted(name), quoted(&owner.name));
    Some((got, format!("a pool around that volume, which has this cache: {}", pools.join(", "))))
}

/// That there is no `kind` called `name`, if so. A section that is there but wrong was reported already.
fn undefined(key: &str, kind: &str, name: &str, names: &Option<BTreeSet<String>>, place: &Place) -> Option<Problem> {
    let names = names.as_ref().filter(|names| !names.contains(name))?;
    Some(place.problem(key, format!("the undefined {kind} {}", quoted(name)), allowed_names(name, names)))
}

/// The message for a reference to a missing name: the existing names, and the probable one.
fn allowed_names(word: &str, names: &BTreeSet<String>) -> String {
    const NAMES_MAX: usize = 8;
    let mut listed: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("{name:?}")).collect();
    if names.len() > NAMES_MAX {
        listed.push("...".into());
    }
    let listed = if listed.is_empty() { "none: there is none".to_owned() } else { listed.join(", ") };
    format!("{listed}{}", suggest::hint(word, names.iter().map(String::as_str)))
}

fn unused_devices(devices: &[Device], pools: &[Pool], problems: &mut Vec<Problem>) {
    // A pool that is wrong may have been meant for the device.
    if !problems.is_empty() {
        return;
    }
    // An observed disk has its users without us.
    for device in
        devices.iter().filter(|device| device.observe.is_none() && !pools.iter().any(|pool| pool.device == device.name))
    {
        problems.push(device.place.problem("", "a device without pools", "a device that at least one pool is on"));
    }
}
