//! SIGHUP: reads the configuration again, checks it as a whole, and applies the changes that a running daemon can.
//!
//! **Rule.** Reserves, limits and weights of pools and volumes, and pools that are new, go the way of `pool set` and
//! `pool add`. A rate that a command has set stays until the file says another one than before.
//! **Complication.** Reserves that grow may need what others give up, so what is refused is tried again after the rest.
//! Everything else waits for a restart. One line of the log names each key that changed and each that waits. A key
//! waits until a restart or until the file has its old value again. Nothing here ends the daemon.

use super::Administration;
use crate::config::{Cache, Configuration, Defaults, Device, Place, Pool, Volume, load};
use crate::control::protocol::{Change, Limit};
use plimsoll_core::Allocation;
use plimsoll_serve::registry::with_sockets;
use plimsoll_settings::keys;
use std::sync::PoisonError;
use tracing::{error, info, warn};

/// Keys of a pool or volume with effect at once, and those that place a new pool.
const RATES: [&str; 3] = ["reserve", "limit", "weight"];
const PLACES: [&str; 2] = ["device", "parent"];

/// A pool or volume with changed rates or weight.
struct Step {
    path: String,
    /// The device of a new pool that is directly on it.
    device: Option<String>,
    is_new: bool,
    change: Change,
}

impl Administration {
    /// Reads the file again. A mistake in it leaves everything as it is.
    pub(in crate::up) fn reload(&self) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let new = match load(&self.configuration.file, &Defaults::of_this_user()) {
            Ok(new) => new,
            Err(error) => {
                for line in error.to_string().lines() {
                    error!("not reloaded: {}", plimsoll_core::shown(line));
                }
                return;
            }
        };
        let mut old = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = steps(&old, &new);
        let paths: Vec<String> = asked.iter().map(|step| step.path.clone()).collect();
        let refused = self.take(asked);
        for (_, why) in &refused {
            error!("not reloaded: {why}");
        }
        let refused: Vec<String> = refused.into_iter().map(|(path, _)| path).collect();
        let taken: Vec<String> = paths.into_iter().filter(|path| !refused.contains(path)).collect();
        let Difference { changed, waiting, loaded } = difference(&old, &self.configuration, new, &taken, &refused);
        let file = plimsoll_core::shown(&loaded.file.display().to_string()).to_string();
        let named = |what: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!("; {what}: {}", listed(names)),
        };
        let (waits, refusals) = (named("waits for a restart", &waiting), named("refused", &refused));
        match (&changed[..], &waiting[..], &refused[..]) {
            ([], [], []) => info!("{file}: read again: nothing changed"),
            (_, [], []) => info!("{file}: read again; changed: {}", listed(&changed)),
            _ => warn!("{file}: read again; changed: {}{waits}{refusals}", listed(&changed)),
        }
        *old = loaded;
    }

    /// Whether a pool that is new in the file exists: it left the file and came back, or a command has added it.
    fn has_pool(&self, path: &str, device: Option<&str>) -> bool {
        let is_on = |name: &str| device.is_none_or(|device| device == name);
        !self.is_volume(path) && self.find(path).is_ok_and(|(served, _)| is_on(&served.profile.name))
    }

    /// Takes all steps that can be taken, in any order. Answers the paths of the others, each with the reason.
    fn take(&self, mut steps: Vec<Step>) -> Vec<(String, String)> {
        loop {
            let (before, mut refused) = (steps.len(), Vec::new());
            steps.retain(|Step { path, device, is_new, change }| {
                let outcome = match *is_new && !self.has_pool(path, device.as_deref()) {
                    true => self.pool_add(path, device.as_deref(), *change),
                    false => self.pool_set(path, *change),
                };
                if let Err(refusal) = &outcome {
                    refused.push((path.clone(), refusal.to_string()));
                }
                outcome.is_err()
            });
            if steps.is_empty() || steps.len() == before {
                return refused;
            }
        }
    }
}

/// The changes in a file that was read again.
struct Difference {
    /// Keys that changed, as the log has them.
    changed: Vec<String>,
    /// Keys that wait for a restart.
    waiting: Vec<String>,
    /// The configuration in force: the next file is compared with it.
    loaded: Configuration,
}

/// `none` or `pool.web.limit, pool.web.weight`.
fn listed(keys: &[String]) -> String {
    if keys.is_empty() { "nothing".to_owned() } else { plimsoll_core::shown(&keys.join(", ")).to_string() }
}

/// Compares the present configuration `old` with a new file. The steps at the paths `taken` were done, those at
/// `refused` were not. `running` is what the daemon began with.
fn difference(
    old: &Configuration,
    running: &Configuration,
    new: Configuration,
    taken: &[String],
    refused: &[String],
) -> Difference {
    let keys = old.keys.differing(&new.keys);
    let (changed, rest): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| is_live(key, old, &new, taken, refused));
    let waiting: Vec<Vec<String>> = rest.into_iter().filter(|key| !is_refused(key, &new, refused)).collect();
    let named = |keys: &[Vec<String>]| {
        let mut names: Vec<String> = keys.iter().map(|key| name(key, old, &new)).collect();
        names.dedup();
        names
    };
    let (changed_names, mut waiting_names) = (named(&changed), named(&waiting));
    for name in waiting_names.iter_mut().filter(|name| name.starts_with("cache.") && name.ends_with(".size")) {
        name.push_str(" (of a cache that is made then; plimsoll cache resize changes one that is there)");
    }
    let is_named = |section: &str| waiting.iter().any(|key| keys::dotted(key).starts_with(section));
    let files = sections_that_wait(running, &new).into_iter().filter(|section| !is_named(section));
    // For a cache's classes and a device's profile, the file has the name only.
    waiting_names.extend(files.map(|section| format!("{section} (a file that it names)")));
    let mut loaded = Configuration { keys: old.keys.clone(), ..new.clone() };
    changed.iter().for_each(|key| loaded.keys.take(key, &new.keys));
    // What was refused is tried again at the next SIGHUP.
    for path in refused {
        let before = |name: &str| old.pools.iter().find(|other| other.name == name);
        loaded.pools.retain(|pool| new.pool_path(&pool.name) != *path || before(&pool.name).is_some());
        for pool in loaded.pools.iter_mut().filter(|pool| new.pool_path(&pool.name) == *path) {
            pool.allocation = before(&pool.name).map_or(pool.allocation, |before| before.allocation);
        }
        for volume in loaded.volumes.iter_mut().filter(|volume| new.volume_path(volume) == *path) {
            let before = old.volumes.iter().find(|other| other.name == volume.name);
            volume.allocation = before.map_or(volume.allocation, |before| before.allocation);
        }
    }
    Difference { changed: changed_names, waiting: waiting_names, loaded }
}

/// The account of a key with a promise, and the key of its section: a pool or a volume of `of`.
fn account_of<'k>(key: &'k [String], of: &Configuration) -> Option<(String, &'k str)> {
    let [kind, name, key, ..] = key else { return None };
    let path = match &**kind {
        "pool" => of.pools.iter().any(|pool| pool.name == *name).then(|| of.pool_path(name)),
        "volume" => of.volumes.iter().find(|volume| volume.name == *name).map(|volume| of.volume_path(volume)),
        _ => None,
    };
    Some((path?, key))
}

/// Whether a changed key has effect now. Such are a rate or a weight of an account that stays in place, and the place
/// of a newly opened pool.
fn is_live(key: &[String], old: &Configuration, new: &Configuration, taken: &[String], refused: &[String]) -> bool {
    let Some((path, of_section)) = account_of(key, new) else { return false };
    let is_rate = RATES.contains(&of_section);
    match account_of(key, old) {
        _ if refused.contains(&path) => false,
        Some((before, _)) => is_rate && before == path,
        None => (is_rate || PLACES.contains(&of_section)) && taken.contains(&path),
    }
}

fn is_refused(key: &[String], new: &Configuration, refused: &[String]) -> bool {
    account_of(key, new).is_some_and(|(path, of_section)| {
        (RATES.contains(&of_section) || PLACES.contains(&of_section)) && refused.contains(&path)
    })
}

/// A key as the log has it. A whole section that is new or gone stands for all of its keys.
fn name(key: &[String], old: &Configuration, new: &Configuration) -> String {
    let section = &key[..key.len().min(2)];
    match (old.keys.has(section), new.keys.has(section)) {
        (false, _) => format!("{} (new)", keys::dotted(section)),
        (_, false) => format!("{} (gone)", keys::dotted(section)),
        _ => keys::dotted(key),
    }
}

/// What can change while the daemon runs.
fn steps(old: &Configuration, new: &Configuration) -> Vec<Step> {
    // What a command has set meanwhile stays, where the file says the same as before.
    let change = |before: &Allocation, now: &Allocation| Change {
        reserve: (before.reserve != now.reserve).then_some(now.reserve),
        limit: (before.limit != now.limit).then_some(Limit(now.limit)),
        weight: (before.weight != now.weight).then_some(now.weight),
        ..Change::default()
    };
    let step = |path: String, before: &Allocation, now: &Allocation| {
        let change = change(before, now);
        (change != Change::default()).then_some(Step { path, device: None, is_new: false, change })
    };
    let pools = new.pools.iter().filter_map(|pool| {
        let path = new.pool_path(&pool.name);
        match old.pools.iter().find(|other| other.name == pool.name) {
            Some(other) if old.pool_path(&other.name) == path && other.device == pool.device => {
                step(path, &other.allocation, &pool.allocation)
            }
            Some(_) => None,
            None => {
                let device = pool.parent.is_none().then(|| pool.device.clone());
                let Allocation { reserve, limit, weight, .. } = pool.allocation;
                let (reserve, limit, weight) = (Some(reserve), Some(Limit(limit)), Some(weight));
                Some(Step {
                    path,
                    device,
                    is_new: true,
                    change: Change { reserve, limit, weight, ..Change::default() },
                })
            }
        }
    });
    let volumes = new.volumes.iter().filter_map(|volume| {
        let path = new.volume_path(volume);
        let other = old.volumes.iter().find(|other| other.name == volume.name)?;
        if old.volume_path(other) == path { step(path, &other.allocation, &volume.allocation) } else { None }
    });
    pools.chain(volumes).collect()
}

/// Sections that are another in the file and stay as they are.
fn sections_that_wait(old: &Configuration, new: &Configuration) -> Vec<String> {
    let mut sections = Vec::new();
    let mut compare = |kind: &str, before: Vec<(String, String)>, now: Vec<(String, String)>| {
        let is_other = |(name, text): &&(String, String)| {
            before.iter().find(|(other, _)| other == name).is_none_or(|(_, other)| other != text)
        };
        sections.extend(now.iter().filter(is_other).map(|(name, _)| format!("{kind}{name}")));
        let gone = before.iter().filter(|(name, _)| now.iter().all(|(other, _)| other != name));
        sections.extend(gone.map(|(name, _)| format!("{kind}{name}")));
    };
    let whole = |configuration: &Configuration| {
        let Configuration { daemon, executor, .. } = configuration;
        let addresses = with_sockets().map(|(entry, _)| {
            let addresses: Vec<_> = configuration.listens(entry.section).iter().map(|one| &one.address).collect();
            (format!("{}.listen", entry.section), format!("{addresses:?}"))
        });
        let mut daemon = daemon.clone();
        daemon.place = Place::default();
        let mut whole = vec![("daemon".to_owned(), format!("{daemon:?}"))];
        whole.extend(addresses);
        whole.push(("executor".to_owned(), format!("{executor:?}")));
        whole
    };
    compare("", whole(old), whole(new));
    let devices = |of: &Configuration| of.devices.iter().map(bare_device).collect();
    compare("device.", devices(old), devices(new));
    let caches = |of: &Configuration| of.caches.iter().map(bare_cache).collect();
    compare("cache.", caches(old), caches(new));
    let volumes = |of: &Configuration| of.volumes.iter().map(bare_volume).collect();
    compare("volume.", volumes(old), volumes(new));
    // A pool that is new is opened.
    let known = |pool: &&Pool| old.pools.iter().any(|other| other.name == pool.name);
    let pools = |of: &Configuration| of.pools.iter().filter(known).map(bare_pool).collect();
    compare("pool.", pools(old), pools(new));
    sections
}

/// What of an account cannot change while it is open.
fn fixed(allocation: &Allocation) -> Allocation {
    Allocation { priority: allocation.priority, deadlines: allocation.deadlines, ..Allocation::default() }
}

fn bare_device(device: &Device) -> (String, String) {
    let device = Device { place: Place::default(), ..device.clone() };
    (device.name.clone(), format!("{device:?}"))
}

fn bare_cache(cache: &Cache) -> (String, String) {
    let bounds = cache.bounds.iter().map(|(_, name, part)| (0, name.clone(), *part)).collect();
    let cache = Cache { place: Place::default(), bounds, ..cache.clone() };
    (cache.name.clone(), format!("{cache:?}"))
}

fn bare_pool(pool: &Pool) -> (String, String) {
    let pool = Pool { place: Place::default(), allocation: fixed(&pool.allocation), ..pool.clone() };
    (pool.name.clone(), format!("{pool:?}"))
}

fn bare_volume(volume: &Volume) -> (String, String) {
    let mut volume = Volume { place: Place::default(), allocation: fixed(&volume.allocation), ..volume.clone() };
    volume.doors.values_mut().for_each(|door| door.place = Place::default());
    volume.mount.iter_mut().for_each(|mount| mount.place = Place::default());
    (volume.name.clone(), format!("{volume:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::path::Path;

    const OLD: &str = r#"
        [device.disk0]
        worst_case = "1000 runs/s"
        [pool.web]
        device = "disk0"
        reserve = "30%"
        [pool.batch]
        device = "disk0"
        limit = "5MB/s"
        [volume.db]
        pool = "web"
        size = "1MiB"
        memory = true
        nbd = {}
    "#;

    fn configuration(text: &str) -> Configuration {
        parse(text, Path::new("a.toml"), Path::new("/etc"), &Defaults::in_directory("/run/plimsoll".into())).unwrap()
    }

    fn paths(old: &Configuration, new: &Configuration) -> Vec<(String, bool)> {
        steps(old, new).into_iter().map(|step| (step.path, step.is_new)).collect()
    }

    /// The log's words for a new file: what changed, and what waits for a restart. `refused` are paths with steps that
    /// fail.
    fn named(old: &Configuration, new: &Configuration, refused: &[&str]) -> (Vec<String>, Vec<String>, Configuration) {
        let refused: Vec<String> = refused.iter().map(|path| (*path).to_owned()).collect();
        let taken: Vec<String> = steps(old, new).into_iter().map(|step| step.path).collect();
        let taken: Vec<String> = taken.into_iter().filter(|path| !refused.contains(path)).collect();
        let Difference { changed, waiting, loaded } =
            difference(old, &configuration(OLD), new.clone(), &taken, &refused);
        (changed, waiting, loaded)
    }

    /// Promise: daemon-hang-up.
    #[test]
    fn a_file_that_only_moved_its_lines_changes_nothing() {
        let (old, new) = (configuration(OLD), configuration(&format!("# a comment\n\n{OLD}")));
        let (changed, waiting, _) = named(&old, &new, &[]);
        assert_eq!((paths(&old, &new), changed, waiting), (Vec::new(), Vec::new(), Vec::new()));
    }

    /// A file changes a pool's reserve. Outcome: the pool's limit and weight stay, as a command may have set them.
    ///
    /// Planted break that was seen red: a step sets all three.
    #[test]
    fn a_step_sets_only_what_the_file_has_changed() {
        let old = configuration(OLD);
        let new = configuration(&OLD.replace("30%", "20%"));
        let changes: Vec<Change> = steps(&old, &new).into_iter().map(|step| step.change).collect();
        assert_eq!(changes, [Change { reserve: Some("20%".parse().unwrap()), ..Change::default() }]);
    }

    /// Outcome: each key is named, under what changed or under what waits. A key that waits is named at each SIGHUP
    /// until a restart.
    ///
    /// Planted break, seen red: a key that waits is taken for one that holds.
    /// Promise: daemon-hang-up.
    #[test]
    fn rates_and_new_pools_change_and_the_rest_waits_for_a_restart() {
        let old = configuration(OLD);
        let text = OLD.replace("30%", "20%").replace("nbd = {}", "limit = \"9MB/s\"\nread_only = true\nnbd = {}");
        let new = configuration(&format!("{text}\n[pool.night]\nparent = \"web\"\nreserve = \"5%\"\npriority = 4\n"));
        let expected =
            [("web", false), ("web/night", true), ("web/db", false)].map(|(path, is_new)| (path.to_owned(), is_new));
        assert_eq!(paths(&old, &new), expected);
        let (changed, waiting, loaded) = named(&old, &new, &[]);
        assert_eq!(changed, ["pool.night (new)", "pool.web.reserve", "volume.db.limit"]);
        assert_eq!(waiting, ["pool.night (new)", "volume.db.read_only"]);
        assert!(paths(&loaded, &new).is_empty());
        let (changed, waiting, _) = named(&loaded, &new, &[]);
        assert_eq!(
            (changed.len(), waiting),
            (0, vec!["pool.night.priority".to_owned(), "volume.db.read_only".to_owned()])
        );
        let gone = configuration(
            &OLD.replace("[pool.batch]", "[device.d2]\n[pool.other]")
                .replace("device = \"disk0\"\n        limit", "device = \"d2\"\n        limit"),
        );
        let (_, waiting, _) = named(&old, &gone, &["other"]);
        assert_eq!(waiting, ["device.d2 (new)", "pool.batch (gone)"]);
    }

    /// Planted break, seen red: a refused step counts as done, so that the next SIGHUP does not try it again.
    #[test]
    fn what_was_refused_is_tried_again_and_is_no_change() {
        let (old, new) = (configuration(OLD), configuration(&OLD.replace("30%", "20%").replace("5MB/s", "6MB/s")));
        let (changed, waiting, loaded) = named(&old, &new, &["web"]);
        assert_eq!((changed, waiting.len()), (vec!["pool.batch.limit".to_owned()], 0));
        assert_eq!(paths(&loaded, &new), [("web".to_owned(), false)]);
    }
}
