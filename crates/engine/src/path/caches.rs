//! Caches of volumes: which may go on, and the next time at which one wants to.

use super::ground::Ground;
use super::orphans::Orphans;
use super::table::Table;
use crate::by_volume::ByVolume;
use crate::ring::Ring;
use crate::submission::Submission;
use crate::volume_cache::{Surroundings, VolumeCache};
use plimsoll_core::{AccountId, Time};
use rustix::io::Errno;

/// All caches of a device's volumes.
#[derive(Default)]
pub(crate) struct Caches {
    volumes: ByVolume<VolumeCache>,
    /// Volumes with caches that may go on.
    with_work: Vec<u32>,
    /// Volumes with caches that depend on time: their devices are emulated, or they write back by age.
    timed: Vec<u32>,
}

impl Caches {
    /// The cache of a volume.
    pub(crate) fn get(&self, volume: u32) -> Option<&VolumeCache> {
        self.volumes.get(volume)
    }

    pub(crate) fn get_mut(&mut self, volume: u32) -> Option<&mut VolumeCache> {
        self.volumes.get_mut(volume)
    }

    /// Whether the volume has a cache.
    #[inline]
    pub(crate) fn has(&self, volume: u32) -> bool {
        self.volumes.get(volume).is_some()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut VolumeCache)> {
        self.volumes.iter_mut()
    }

    /// Volumes with a cache, for a command.
    pub(crate) fn volumes(&self) -> Vec<u32> {
        self.volumes.iter().map(|(volume, _)| volume).collect()
    }

    /// Attaches a cache to a volume. `goes_by_time` says whether it may have work without an event.
    pub(crate) fn put(&mut self, volume: u32, cache: Box<VolumeCache>, goes_by_time: bool) {
        self.timed.extend(goes_by_time.then_some(volume));
        self.volumes.set(volume, Some(cache));
        self.moved(volume);
    }

    /// Takes the cache of a volume away.
    pub(crate) fn take(&mut self, volume: u32) -> Option<Box<VolumeCache>> {
        self.timed.retain(|&other| other != volume);
        self.volumes.take(volume)
    }

    /// Takes a request for a volume that has a cache.
    pub(crate) fn submit(&mut self, now: Time, volume: u32, seat: (u32, AccountId), submission: Submission) {
        if let Some(cache) = self.volumes.get_mut(volume) {
            cache.take_request(now, seat, submission);
            self.moved(volume);
        }
    }

    /// Remembers that a volume's cache, if it has one, may go on.
    #[inline]
    pub(crate) fn moved(&mut self, volume: u32) {
        if self.volumes.get_mut(volume).is_some_and(VolumeCache::is_newly_listed) {
            self.with_work.push(volume);
        }
    }

    /// Whether a cache may go on.
    #[inline]
    pub(crate) fn have_work(&self) -> bool {
        !self.with_work.is_empty()
    }

    /// A volume with a cache that may go on.
    pub(crate) fn next_with_work(&mut self) -> Option<u32> {
        self.with_work.pop()
    }

    /// Lets a cache go on as far as it can. `name`: the volume's.
    pub(crate) fn drive(&mut self, mut around: Surroundings<'_>, name: &str) {
        let volume = around.volume;
        let Some(cache) = self.volumes.get_mut(volume) else { return };
        if cache.drive(&mut around, name) {
            self.moved(volume);
        }
    }

    /// The ring has done an operation on a cache's device.
    pub(crate) fn operation_completed(
        &mut self,
        ring: &mut Ring,
        (volume, now): (u32, Time),
        id: u32,
        result: Result<u32, Errno>,
    ) {
        let cache = self.volumes.get_mut(volume);
        if cache.is_some_and(|cache| cache.operation_completed(ring, (volume, now), id, result)) {
            self.moved(volume);
        }
    }

    /// The volume has done a request of its cache, of `length` bytes. `first` is its first operation.
    pub(crate) fn store_done(
        &mut self,
        ground: &mut Ground,
        table: &mut Table,
        volume: u32,
        (first, length): (u32, u32),
        error: Option<Errno>,
    ) {
        if let Some(cache) = self.volumes.get_mut(volume) {
            cache.store_request_completed(ground, table, volume, (first, length), error);
            self.moved(volume);
        }
    }

    /// The scheduler has let a request of a cache go that was dropped.
    pub(crate) fn dropped_ended(&mut self, volume: u32, request: u32) {
        if let Some(cache) = self.volumes.get_mut(volume) {
            cache.dropped_store_request_ended(request);
            self.moved(volume);
        }
    }

    /// Marks requests as abandoned, by front end and its name for them, and takes back their store operations.
    /// O(requests under way).
    pub(crate) fn abandon(&mut self, table: &mut Table, orphans: &mut Orphans, is_meant: impl Fn(u32, u64) -> bool) {
        for (volume, cache) in self.volumes.iter_mut() {
            cache.abandon(|| orphans.began_in_cache(volume), &is_meant);
            if cache.is_newly_listed() {
                self.with_work.push(volume);
            }
        }
        for index in 0..table.requests.places() as u32 {
            if let Some(request) = table.requests.get_mut(index)
                && let Some(cache) = self.volumes.get_mut(request.volume)
            {
                cache.drop_on_store(index, request);
            }
        }
    }

    /// Completes what emulated devices of caches have done by `now`, and resumes caches that wait for that time.
    /// O(caches that go by time) where nothing is done.
    pub(crate) fn wake(&mut self, now: Time) {
        for at in 0..self.timed.len() {
            let volume = self.timed[at];
            if self.volumes.get_mut(volume).is_some_and(|cache| cache.is_woken(now)) {
                self.moved(volume);
            }
        }
    }

    /// When the next of them wants to go on.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.timed.iter().filter_map(|&volume| self.volumes.get(volume)?.goes_on_at()).min()
    }

    /// Number of requests under way of `session` at all caches, also those without a store request. O(requests under
    /// way).
    pub(crate) fn requests_of(&self, session: AccountId) -> usize {
        self.volumes.iter().map(|(_, cache)| cache.requests_of(session)).sum()
    }
}

#[cfg(test)]
mod tests;
