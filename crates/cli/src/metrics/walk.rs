//! Goes through all subjects of a daemon's status, as `/metrics`, charts and tests do.

use super::accounts::ACCOUNT;
use super::caches::{CACHE, CACHE_CLASS, CACHE_POOL, ClassInCache};
use super::devices::{DAEMON, DEVICE, EMULATION};
use super::executor::{EXECUTOR, QUEUE, SERVICE_THREAD};
use super::section::Section;
use super::tenants::{LOSS, TENANT};
use super::volumes::{READ_AHEAD, SERVED_VOLUME, VOLUME, WAY};
use crate::control::executor::ExecutorStatus;
use crate::control::protocol::{DaemonStatus, TenantEntry};
use plimsoll_engine::{CacheStatus, EngineStatus, VolumeStatus};

/// The labels of a subject, those of what it is in first.
pub type Labels = Vec<(&'static str, String)>;

/// What is shown each subject.
pub trait Visitor {
    /// A subject, with the section of its rows and the labels of its metrics.
    fn visit<S>(&mut self, section: &'static Section<S>, labels: &Labels, subject: &S);
}

/// Shows `visitor` every subject of `status` and of `tenants`. A device comes before its volumes and accounts, a volume
/// before its cache.
pub fn visit_all(status: &DaemonStatus, tenants: &[TenantEntry], visitor: &mut impl Visitor) {
    let mut walk = Walk { visitor, labels: Labels::new() };
    walk.enter(&DAEMON, status, |_| {});
    status.executor.iter().for_each(|executor| walk.executor(executor));
    status.devices.iter().for_each(|device| walk.device(device));
    for volume in &status.volumes {
        walk.enter(&SERVED_VOLUME, volume, |walk| {
            volume.served_as.iter().for_each(|way| walk.enter(&WAY, way, |_| {}));
        });
    }
    status.losses.iter().for_each(|loss| walk.enter(&LOSS, loss, |_| {}));
    tenants.iter().for_each(|tenant| walk.enter(&TENANT, tenant, |_| {}));
}

struct Walk<'v, V> {
    visitor: &'v mut V,
    labels: Labels,
}

impl<V: Visitor> Walk<'_, V> {
    /// Shows a subject, and then what is in it.
    fn enter<S>(&mut self, section: &'static Section<S>, subject: &S, inside: impl FnOnce(&mut Self)) {
        let outside = self.labels.len();
        self.labels.extend(section.labels(subject));
        self.visitor.visit(section, &self.labels, subject);
        inside(self);
        self.labels.truncate(outside);
    }

    fn executor(&mut self, executor: &ExecutorStatus) {
        self.enter(&EXECUTOR, executor, |_| {});
        for (number, thread) in executor.threads.iter().enumerate() {
            // JSON has the threads by number.
            self.labels.push(("thread", number.to_string()));
            self.enter(&SERVICE_THREAD, thread, |_| {});
            self.labels.pop();
        }
        executor.queues.iter().for_each(|queue| self.enter(&QUEUE, queue, |_| {}));
    }

    fn device(&mut self, device: &EngineStatus) {
        self.enter(&DEVICE, device, |walk| {
            device.emulation.iter().for_each(|emulation| walk.enter(&EMULATION, emulation, |_| {}));
            device.volumes.iter().for_each(|volume| walk.volume(volume));
            device.accounts.iter().for_each(|account| walk.enter(&ACCOUNT, account, |_| {}));
        });
    }

    fn volume(&mut self, volume: &VolumeStatus) {
        self.enter(&VOLUME, volume, |walk| {
            volume.cache.iter().for_each(|cache| walk.cache(cache));
            volume.read_ahead.iter().for_each(|ahead| walk.enter(&READ_AHEAD, ahead, |_| {}));
        });
    }

    fn cache(&mut self, cache: &CacheStatus) {
        self.enter(&CACHE, cache, |walk| {
            cache.emulation.iter().for_each(|emulation| walk.enter(&EMULATION, emulation, |_| {}));
            ClassInCache::of(cache).iter().for_each(|class| walk.enter(&CACHE_CLASS, class, |_| {}));
            cache.pools.iter().for_each(|pool| walk.enter(&CACHE_POOL, pool, |_| {}));
        });
    }
}
