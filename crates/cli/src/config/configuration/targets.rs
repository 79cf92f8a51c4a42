//! Which promises hold for which I/O: the I/O of an account, and its sessions' defaults.

use super::super::{Device, Pool, Volume};
use super::Configuration;
use plimsoll_core::{Allocation, Deadlines};
use plimsoll_schedulers::Target;
use plimsoll_settings::allocation::PRIORITY;

impl Configuration {
    /// The I/O of the account at `path` of `device`: that of the volumes in it or around it. Without volumes it is that
    /// of the processes that may join it.
    pub fn targets(&self, device: &Device, path: &str) -> Vec<Target> {
        if device.observe.is_some() {
            return vec![Target::Observed];
        }
        let volumes = || self.volumes.iter().filter(|volume| volume.device == device.name);
        let is_within =
            |path: &str, of: &str| path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let mut targets: Vec<Target> = volumes()
            .filter(|volume| {
                let own = self.volume_path(volume);
                is_within(path, &own) || is_within(&own, path)
            })
            .map(target)
            .collect();
        if targets.is_empty() {
            // Tenants may name any pool of their device.
            let has_tenants = volumes().any(|volume| target(volume) == Target::Tenants);
            targets.push(if has_tenants { Target::Tenants } else { Target::Volumes });
        }
        targets.sort();
        targets.dedup();
        targets
    }

    /// The default promises of a session in the account at `path`. They are the priority and the deadlines of the
    /// nearest volume or pool around it that has any.
    pub fn inherited(&self, path: &str) -> Allocation {
        let mut session = Allocation::default();
        let mut has_priority = false;
        let mut rest = Some(path);
        while let Some(at) = rest {
            let pool = self.pools.iter().find(|pool| self.pool_path(&pool.name) == at);
            let pool = pool.map(|Pool { allocation, place, .. }| (allocation, place));
            let volume = self.volumes.iter().find(|volume| self.volume_path(volume) == at);
            let found = pool.or(volume.map(|Volume { allocation, place, .. }| (allocation, place)));
            if let Some((allocation, place)) = found {
                let (own, Deadlines { read, write, fsync }) = (&mut session.deadlines, allocation.deadlines);
                (own.read, own.write, own.fsync) = (own.read.or(read), own.write.or(write), own.fsync.or(fsync));
                if place.has(PRIORITY.name) && !has_priority {
                    (session.priority, has_priority) = (allocation.priority, true);
                }
            }
            rest = at.rsplit_once('/').map(|(parent, _)| parent);
        }
        session
    }
}

/// The I/O that a volume has.
fn target(volume: &Volume) -> Target {
    match volume.mount.as_ref().is_some_and(|mount| mount.takes_tenants) {
        true => Target::Tenants,
        false => Target::Volumes,
    }
}
