//! What administrators do to an engine: pools, volumes, and the scheduler itself, changed while requests go on.

use super::alarm::Change;
use super::block_tags::BlockTags;
use super::config::SessionConfig;
use super::core::Core;
use super::doubts::Doubts;
use super::emulation::Emulation;
use super::error::EngineError;
use super::request::Piece;
use super::ring::Owner;
use super::seat::VolumeSeat;
use super::status::{EngineStatus, VolumeStatus};
use super::upper_levels::UpperLevels;
use super::urgency;
use crate::backend::{Backend, Volume};
use plimsoll_core::account::AccountError;
use plimsoll_core::{Account, AccountId, AccountKind, AccountTree, Allocation, CauseSet, Scheduler, Time};
use std::os::fd::AsRawFd;

impl Core {
    /// Opens an account and tells the scheduler.
    pub(super) fn open_account(
        &mut self,
        parent: AccountId,
        name: &str,
        kind: AccountKind,
        allocation: Allocation,
    ) -> Result<AccountId, AccountError> {
        let id = self.tree.open(parent, name, kind, allocation)?;
        for volume in 0..self.volumes.places() as u32 {
            let Some(seat) = self.volumes.get_mut(volume) else { continue };
            seat.doubts.opened(id);
            seat.cache.as_deref_mut().into_iter().for_each(|cache| cache.account_opened(id));
        }
        self.meters.opened(self.now, id);
        self.scheduler.account_opened(self.now, self.tree.get(id).expect("just opened"));
        Ok(id)
    }

    /// Closes an account that has nothing under way and tells the scheduler.
    pub(super) fn close_account(&mut self, id: AccountId) -> Result<(), AccountError> {
        let parent = self.tree.get(id).and_then(|account| account.parent).unwrap_or(AccountId::ROOT);
        self.tree.close(id)?;
        self.observed.unflushed.remove(id);
        for volume in 0..self.volumes.places() as u32 {
            self.volumes.get_mut(volume).into_iter().for_each(|seat| seat.unflushed.remove(id));
        }
        self.scheduler.account_closed(self.now, id);
        self.meters.closed(id, parent);
        Ok(())
    }

    /// The pool called `path`; the root for the empty path.
    pub(super) fn pool(&self, path: &str) -> Result<AccountId, EngineError> {
        if path.is_empty() {
            return Ok(AccountId::ROOT);
        }
        let pool = self.tree.find(path).filter(|account| account.kind == AccountKind::Pool);
        pool.map(|account| account.id).ok_or_else(|| EngineError::UnknownPool { path: path.to_owned() })
    }

    /// Opens a pool at `path`; its parent is open.
    pub(super) fn open_pool(&mut self, path: &str, allocation: Allocation) -> Result<(), EngineError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.pool(parent)?;
        self.open_account(parent, name, AccountKind::Pool, allocation)?;
        Ok(())
    }

    /// Opens a session for a tenant that is known by what the levels above tell; a number makes its name unique.
    pub(super) fn open_session(&mut self, pool: &str, session: &SessionConfig) -> Result<AccountId, EngineError> {
        let pool = self.pool(pool)?;
        self.sessions += 1;
        let name = format!("{}#{}", session.name, self.sessions);
        Ok(self.open_account(pool, &name, AccountKind::Session, session.allocation)?)
    }

    /// Changes what a session was promised.
    pub(super) fn change_session(&mut self, session: AccountId, allocation: Allocation) -> Result<(), EngineError> {
        let changed = self.tree.change(session, allocation)?;
        self.scheduler.account_changed(self.now, changed);
        Ok(())
    }

    /// Closes a session that [`open_session`](Self::open_session) opened. O(requests under way).
    pub(super) fn close_session(&mut self, session: AccountId) -> Result<(), EngineError> {
        let names = |piece: &Piece| piece.session == session || piece.tag.causes.contains(session);
        let pieces = self.pieces.iter().filter(|(_, piece)| names(piece)).count();
        let requests = self.requests.iter().filter(|(_, request)| request.metered == session).count();
        let requests = requests + self.observed.of(session) + self.cached_requests_of(session);
        if pieces + requests > 0 {
            return Err(EngineError::SessionBusy { path: self.tree.path(session), requests: pieces.max(requests) });
        }
        Ok(self.close_account(session)?)
    }

    /// Has `tags` asked about each block of a volume from now on; `None`: nothing is asked.
    pub(super) fn set_tags(&mut self, volume: &str, tags: Option<Box<dyn BlockTags>>) -> Result<(), EngineError> {
        let volume = self.volume(volume)?;
        self.volumes[volume].tags = tags;
        Ok(())
    }

    /// Puts `levels` above the scheduler, and gives those that were there before.
    pub(super) fn set_upper_levels(&mut self, levels: Option<Box<dyn UpperLevels>>) -> Option<Box<dyn UpperLevels>> {
        if self.upper_levels.is_some() {
            self.ring.cancel(Owner::UpperLevels);
        }
        if levels.is_some() {
            urgency::before_normal_threads();
        }
        self.upper_levels_at = None;
        self.observed.forget(&mut self.meters, &mut self.reads);
        let before = std::mem::replace(&mut self.upper_levels, levels);
        self.watch_upper_levels();
        before
    }

    /// The levels above have something to say, in this turn.
    pub(super) fn upper_levels_are_ready(&mut self, is_still_watched: bool) {
        self.upper_levels_ready = true;
        if !is_still_watched {
            self.watch_upper_levels();
        }
    }

    /// Hears of what happens in the levels above, beginning with what happened before.
    fn watch_upper_levels(&mut self) {
        self.upper_levels_ready = true;
        if let Some(levels) = &self.upper_levels {
            self.ring.watch(levels.descriptor().as_raw_fd(), Owner::UpperLevels);
        }
    }

    /// Changes what the account at `path` was promised.
    pub(super) fn change_account(&mut self, path: &str, allocation: Allocation) -> Result<(), EngineError> {
        let account = self.tree.find(path).ok_or_else(|| EngineError::UnknownPool { path: path.to_owned() })?;
        let changed = self.tree.change(account.id, allocation)?;
        self.scheduler.account_changed(self.now, changed);
        Ok(())
    }

    /// Closes the pool at `path`, unless it has members or a volume would open sessions in it.
    pub(super) fn close_pool(&mut self, path: &str) -> Result<(), EngineError> {
        let pool = self.pool(path)?;
        let user = self.volumes.iter().find(|(_, seat)| seat.volume.config().pool == path);
        if let Some((_, seat)) = user {
            let volume = seat.volume.info().name.clone();
            return Err(EngineError::PoolInUse { path: path.to_owned(), volume });
        }
        Ok(self.close_account(pool)?)
    }

    /// The place of the volume called `name`.
    pub(super) fn volume(&self, name: &str) -> Result<u32, EngineError> {
        let found = self.volumes.iter().find(|(_, seat)| seat.volume.info().name == name);
        found.map(|(index, _)| index).ok_or_else(|| EngineError::UnknownVolume { name: name.to_owned() })
    }

    /// Takes a volume over, if its name and its place are free and its pool is open.
    pub(super) fn add_volume(&mut self, mut volume: Volume) -> Result<(), EngineError> {
        let (name, start) = (volume.info().name.clone(), volume.config().start_bytes);
        self.pool(&volume.config().pool)?;
        let end = start.saturating_add(volume.info().size_bytes);
        let capacity_bytes = self.tree.device().capacity_bytes;
        if end > capacity_bytes {
            return Err(EngineError::BeyondDevice { volume: name, end_bytes: end, capacity_bytes });
        }
        for (_, VolumeSeat { volume: other, .. }) in self.volumes.iter() {
            if other.info().name == name {
                return Err(EngineError::VolumeExists { name });
            }
            let (other_start, other_size) = (other.config().start_bytes, other.info().size_bytes);
            if start < other_start + other_size && other_start < end {
                return Err(EngineError::Overlap { volume: name, other: other.info().name.clone() });
            }
        }
        // Clearing large pages would make an emulated device late.
        if self.emulation.is_none()
            && let Backend::Memory(memory) = &mut volume.backend
        {
            memory.use_large_pages();
        }
        if volume.config().backing.is_encrypted() {
            self.work.make_scratch()?;
        }
        let (tags, unflushed, cache, read_ahead) = (None, CauseSet::EMPTY, None, None);
        let buffers = self.buffers.of_another();
        let doubts = Doubts::default();
        self.volumes.insert(VolumeSeat { volume, front_ends: 0, tags, unflushed, doubts, cache, read_ahead, buffers });
        Ok(())
    }

    /// Gives up a volume that no front end uses, after making it durable.
    pub(super) fn remove_volume(&mut self, name: &str) -> Result<(), EngineError> {
        let index = self.volume(name)?;
        let front_ends = self.volumes[index].front_ends;
        if front_ends > 0 {
            return Err(EngineError::VolumeInUse { name: name.to_owned(), front_ends });
        }
        if self.volumes[index].cache.is_some() {
            return Err(EngineError::Cached { volume: name.to_owned() });
        }
        self.sync_volume(index)?;
        self.volumes.remove(index);
        Ok(())
    }

    /// Makes a volume durable, waiting for it: only for volumes that no front end uses any more.
    pub(super) fn sync_volume(&self, index: u32) -> Result<(), EngineError> {
        let volume = &self.volumes[index].volume;
        match &volume.backend {
            Backend::File(file) if !volume.info().is_read_only => {
                file.sync().map_err(|source| EngineError::Sync { volume: volume.info().name.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// Puts another scheduler in charge. Requests that wait move over in the order in which they came; those at the
    /// device complete without it.
    pub(super) fn switch_scheduler(&mut self, name: &str) -> Result<(), EngineError> {
        let mut scheduler = build_scheduler(name, &self.tree, self.now)?;
        self.forgive_early();
        let mut queued: Vec<_> = self.pieces.iter().filter(|(_, piece)| piece.dispatched_by.is_none()).collect();
        queued.sort_unstable_by_key(|(_, piece)| piece.sequence);
        for (index, piece) in queued {
            let request = &self.requests[piece.request];
            let volume_start = self.volumes[request.volume].volume.config().start_bytes;
            scheduler.request_added(self.now, piece.block_request(index, request, volume_start));
        }
        if let Some(levels) = &mut self.upper_levels {
            levels.scheduler_switched(self.now, &mut *scheduler);
        }
        self.observed.forget(&mut self.meters, &mut self.reads);
        self.scheduler = scheduler;
        self.scheduler_number += 1;
        Ok(())
    }

    /// Begins new windows of the rates, and says aloud if the device has become slower than what was promised on it.
    pub(super) fn look_once_a_second(&mut self) {
        self.meters.tick(self.now);
        let device = || self.tree.device().name.clone();
        match self.alarm.look(self.now, self.scheduler.overload()) {
            Some(Change::Raised(kept_part)) => tracing::warn!(
                device = device(),
                "slower than what was promised on it: all reserves get {:.0} % of themselves",
                kept_part * 100.0
            ),
            Some(Change::Ended) => tracing::info!(device = device(), "all reserves are kept again"),
            None => {}
        }
    }

    /// A snapshot of everything.
    pub(super) fn status(&mut self) -> EngineStatus {
        self.look_once_a_second();
        let status_of = |VolumeSeat { volume, front_ends, cache, read_ahead, .. }: &VolumeSeat| VolumeStatus {
            name: volume.info().name.clone(),
            pool: volume.config().pool.clone(),
            size_bytes: volume.info().size_bytes,
            start_bytes: volume.config().start_bytes,
            is_read_only: volume.info().is_read_only,
            front_ends: *front_ends,
            stored_bytes: volume.stored_bytes(),
            backlog_bytes: volume.backlog_bytes(),
            compressed_behind_bytes: volume.compressed_behind_bytes(),
            compressed_by_writers_bytes: volume.compressed_by_writers_bytes(),
            cache: cache.as_ref().map(|cache| cache.status()),
            read_ahead: read_ahead.as_ref().map(|read_ahead| read_ahead.status()),
        };
        EngineStatus {
            device: self.tree.device().name.clone(),
            scheduler: self.scheduler.name().to_owned(),
            uptime_ns: self.now.since(Time::ZERO).as_nanos(),
            overload_ns: self.scheduler.overload().as_nanos(),
            reserves_kept: self.alarm.kept_part(),
            emulation: self.emulation.as_ref().map(Emulation::status),
            requests_under_way: self.requests.len() + self.observed.len(),
            volumes: self.volumes.iter().map(|(_, seat)| status_of(seat)).collect(),
            accounts: self.meters.status(self.now, &self.tree),
        }
    }
}

/// A scheduler called `name` that knows every account of `tree`, parents before children.
pub(super) fn build_scheduler(name: &str, tree: &AccountTree, now: Time) -> Result<Box<dyn Scheduler>, EngineError> {
    let mut scheduler = plimsoll_schedulers::build(name, tree.device()).ok_or_else(|| {
        let known = plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        EngineError::UnknownScheduler { name: name.to_owned(), known }
    })?;
    let mut accounts: Vec<&Account> = tree.iter().collect();
    // Numbers are used again, so a child may have a lower one than its parent.
    accounts.sort_by_key(|account| std::iter::successors(account.parent, |&id| tree.get(id)?.parent).count());
    accounts.into_iter().for_each(|account| scheduler.account_opened(now, account));
    Ok(scheduler)
}
