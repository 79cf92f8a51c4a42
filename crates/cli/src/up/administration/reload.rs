//! SIGHUP: the configuration is read again, checked as a whole, and what can change while the daemon runs is changed.
//!
//! **Rule.** Reserves, limits and weights of pools and volumes, and pools that are new, go the way of `pool set` and `pool add`.
//! **Complication.** Reserves that grow may need what others give up, so what is refused is tried again after the rest.
//! Everything else waits for a restart, and the log says what. Nothing here ends the daemon.

use super::Administration;
use crate::config::{Cache, Configuration, Defaults, Device, Place, Pool, Volume, load};
use crate::control::protocol::{Change, Limit};
use plimsoll_core::Allocation;
use std::sync::PoisonError;
use tracing::{error, info, warn};

/// A pool or volume whose rates or weight are others now.
struct Step {
    path: String,
    /// Of a pool that is new, directly on it.
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
        let steps = steps(&old, &new);
        let count = steps.len();
        let refused = self.take(steps);
        for line in &refused {
            error!("not reloaded: {line}");
        }
        for line in waiting(&old, &new) {
            warn!("takes a restart: {line}");
        }
        info!("{}: read again, {} changed", new.file.display(), count - refused.len());
        *old = new;
    }

    /// Takes all steps that can be taken, in any order; answers why the others cannot.
    fn take(&self, mut steps: Vec<Step>) -> Vec<String> {
        loop {
            let (before, mut refused) = (steps.len(), Vec::new());
            steps.retain(|Step { path, device, is_new, change }| {
                let outcome = match is_new {
                    true => self.pool_add(path, device.as_deref(), *change),
                    false => self.pool_set(path, *change),
                };
                match &outcome {
                    Ok(_) => info!("reloaded: {path}"),
                    Err(refusal) => refused.push(refusal.to_string()),
                }
                outcome.is_err()
            });
            if steps.is_empty() || steps.len() == before {
                return refused;
            }
        }
    }
}

/// What can change while the daemon runs.
fn steps(old: &Configuration, new: &Configuration) -> Vec<Step> {
    let change = |allocation: &Allocation| Change {
        reserve: Some(allocation.reserve),
        limit: Some(Limit(allocation.limit)),
        weight: Some(allocation.weight),
        ..Change::default()
    };
    let rates = |allocation: &Allocation| (allocation.reserve, allocation.limit, allocation.weight);
    let step = |path: String, before: &Allocation, now: &Allocation| {
        (rates(before) != rates(now)).then(|| Step { path, device: None, is_new: false, change: change(now) })
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
                Some(Step { path, device, is_new: true, change: change(&pool.allocation) })
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

/// What is another in the file and stays as it is, a line each.
fn waiting(old: &Configuration, new: &Configuration) -> Vec<String> {
    let mut lines = Vec::new();
    let mut compare = |kind: &str, before: Vec<(String, String)>, now: Vec<(String, String)>| {
        for (name, text) in &now {
            match before.iter().find(|(other, _)| other == name) {
                Some((_, other)) if other == text => {}
                Some(_) => lines.push(format!("{kind}{name}: what is new there")),
                None => lines.push(format!("{kind}{name}, which is new")),
            }
        }
        let gone = before.iter().filter(|(name, _)| now.iter().all(|(other, _)| other != name));
        lines.extend(gone.map(|(name, _)| format!("{kind}{name}, which the file has no more")));
    };
    let whole = |configuration: &Configuration| {
        let Configuration { daemon, listen, iscsi_listen, executor, .. } = configuration;
        let addresses = |listen: &[crate::config::Listen]| {
            format!("{:?}", listen.iter().map(|one| &one.address).collect::<Vec<_>>())
        };
        let mut daemon = daemon.clone();
        daemon.place = Place::default();
        vec![
            ("daemon".to_owned(), format!("{daemon:?}")),
            ("nbd.listen".to_owned(), addresses(listen)),
            ("iscsi.listen".to_owned(), addresses(iscsi_listen)),
            ("executor".to_owned(), format!("{executor:?}")),
        ]
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
    lines
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
    volume.export.iter_mut().for_each(|export| export.place = Place::default());
    volume.iscsi.iter_mut().for_each(|target| target.place = Place::default());
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

    #[test]
    fn a_file_that_only_moved_its_lines_changes_nothing() {
        let (old, new) = (configuration(OLD), configuration(&format!("# a comment\n\n{OLD}")));
        assert_eq!((paths(&old, &new), waiting(&old, &new)), (Vec::new(), Vec::new()));
    }

    /// A break to plant, not tried yet: what waits for a restart is not told.
    #[test]
    fn rates_and_new_pools_change_and_the_rest_waits_for_a_restart() {
        let old = configuration(OLD);
        let text = OLD.replace("30%", "20%").replace("nbd = {}", "limit = \"9MB/s\"\nread_only = true\nnbd = {}");
        let new = configuration(&format!("{text}\n[pool.night]\nparent = \"web\"\nreserve = \"5%\"\n"));
        let expected =
            [("web", false), ("web/night", true), ("web/db", false)].map(|(path, is_new)| (path.to_owned(), is_new));
        assert_eq!(paths(&old, &new), expected);
        assert_eq!(waiting(&old, &new), ["volume.db: what is new there"]);
        let gone = configuration(
            &OLD.replace("[pool.batch]", "[device.d2]\n[pool.other]")
                .replace("device = \"disk0\"\n        limit", "device = \"d2\"\n        limit"),
        );
        assert_eq!(waiting(&old, &gone), ["device.d2, which is new", "pool.batch, which the file has no more"]);
    }
}
