//! Whether each promise is one that the device's scheduler keeps. The registry of schedulers decides; here its refusals
//! get a line and a key.

use crate::config::device::{OBSERVE, SCHEDULER};
use crate::config::{Configuration, Device, Place, Problem, SCHEDULER_WITH_TENANTS_DEFAULT};
use plimsoll_core::Allocation;
use plimsoll_schedulers::{NotKept, Promised, Target, not_kept, refused_target};

/// Gives devices with tenants their default scheduler, and reports what is promised and not kept. A promise that was
/// reported is taken out, so that nothing else is said of it.
pub(super) fn check(configuration: &mut Configuration, problems: &mut Vec<Problem>) {
    choose_defaults(configuration);
    for device in &configuration.devices.clone() {
        if ![SCHEDULER.name, OBSERVE.name].into_iter().all(|key| device.place.is_understood(key)) {
            continue;
        }
        if let Some(problem) = refused(configuration, device) {
            problems.push(problem);
            continue;
        }
        for number in 0..configuration.pools.len() {
            let pool = &configuration.pools[number];
            if pool.device == device.name {
                let path = configuration.pool_path(&pool.name);
                let (broken, place) = (broken(configuration, device, &path, &pool.allocation), pool.place.clone());
                report(&broken, &mut configuration.pools[number].allocation, &place, problems);
            }
        }
        for number in 0..configuration.volumes.len() {
            let volume = &configuration.volumes[number];
            if volume.device == device.name {
                let path = configuration.volume_path(volume);
                let (broken, place) = (broken(configuration, device, &path, &volume.allocation), volume.place.clone());
                report(&broken, &mut configuration.volumes[number].allocation, &place, problems);
            }
        }
    }
}

/// Zygaria, the default, does not take tenants; with tenants the default works at the calls.
fn choose_defaults(configuration: &mut Configuration) {
    let takes_tenants = |name: &str| {
        let mut volumes = configuration.volumes.iter().filter(|volume| volume.device == name);
        volumes.any(|volume| volume.mount.as_ref().is_some_and(|mount| mount.takes_tenants))
    };
    let with_tenants: Vec<bool> = configuration.devices.iter().map(|device| takes_tenants(&device.name)).collect();
    for (device, takes_tenants) in configuration.devices.iter_mut().zip(with_tenants) {
        if takes_tenants && !device.place.has(SCHEDULER.name) {
            device.scheduler = SCHEDULER_WITH_TENANTS_DEFAULT.to_owned();
        }
    }
}

/// The problem that the scheduler does not take the device's tenants, if any.
fn refused(configuration: &Configuration, device: &Device) -> Option<Problem> {
    let of = |path: String, allocation: Allocation| (configuration.targets(device, &path), allocation);
    let pools = configuration.pools.iter().filter(|pool| pool.device == device.name);
    let volumes = configuration.volumes.iter().filter(|volume| volume.device == device.name);
    let accounts: Vec<(Vec<Target>, Allocation)> = pools
        .map(|pool| of(configuration.pool_path(&pool.name), pool.allocation))
        .chain(volumes.map(|volume| of(configuration.volume_path(volume), volume.allocation)))
        .collect();
    let target = match device.observe {
        Some(_) => Target::Observed,
        None => *accounts.iter().flat_map(|(targets, _)| targets).find(|target| **target == Target::Tenants)?,
    };
    let asked = accounts.iter().filter(|(targets, _)| targets.contains(&target)).map(|(_, allocation)| *allocation);
    let (got, allowed) = refused_target(&device.scheduler, target, &asked.collect::<Vec<_>>())?;
    Some(device.place.problem(SCHEDULER.name, got, allowed))
}

fn broken(configuration: &Configuration, device: &Device, path: &str, allocation: &Allocation) -> Vec<NotKept> {
    let targets = configuration.targets(device, path);
    not_kept(&device.scheduler, &Promised { targets: &targets, is_top: !path.contains('/') }, allocation)
}

fn report(broken: &[NotKept], allocation: &mut Allocation, place: &Place, problems: &mut Vec<Problem>) {
    for NotKept { promise, got, allowed } in broken {
        problems.push(place.problem(promise.key(), got, allowed));
        promise.withdraw(allocation);
    }
}
