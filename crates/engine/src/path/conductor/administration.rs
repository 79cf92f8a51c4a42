//! Administration of an engine: pools, volumes and the scheduler change while requests go on.

use super::Conductor;
use crate::alarm::Change;
use crate::backend::{Backend, Volume};
use crate::block_tags::BlockTags;
use crate::config::SessionConfig;
use crate::doubts::Doubts;
use crate::emulation::Emulation;
use crate::error::EngineError;
use crate::read_ahead::ReadAhead;
use crate::seat::{Seat, VolumeSeat};
use crate::status::{EngineStatus, VolumeStatus};
use crate::tap::Tap;
use crate::upper_levels::UpperLevels;
use plimsoll_core::account::AccountError;
use plimsoll_core::{Account, AccountId, AccountKind, AccountTree, Allocation, CauseSet, Scheduler, Time};

impl Conductor {
    /// Opens an account and tells the scheduler.
    pub(crate) fn open_account(
        &mut self,
        parent: AccountId,
        name: &str,
        kind: AccountKind,
        allocation: Allocation,
    ) -> Result<AccountId, AccountError> {
        let id = self.ground.tree.open(parent, name, kind, allocation)?;
        for volume in 0..self.volumes.places() as u32 {
            let Some(seat) = self.volumes.get_mut(volume) else { continue };
            seat.doubts.opened(id);
        }
        self.caches.iter_mut().for_each(|(_, cache)| cache.account_opened(id));
        self.ground.meters.opened(self.ground.now, id);
        let Conductor { ground, gate, .. } = self;
        gate.scheduler_mut().account_opened(ground.now, ground.tree.get(id).expect("just opened"));
        Ok(id)
    }

    /// Closes an account that has nothing under way and tells the scheduler.
    pub(crate) fn close_account(&mut self, id: AccountId) -> Result<(), AccountError> {
        let parent = self.ground.tree.get(id).and_then(|account| account.parent).unwrap_or(AccountId::ROOT);
        self.ground.tree.close(id)?;
        self.levels.closed(id);
        for volume in 0..self.volumes.places() as u32 {
            self.volumes.get_mut(volume).into_iter().for_each(|seat| seat.unflushed.remove(id));
        }
        self.gate.scheduler_mut().account_closed(self.ground.now, id);
        self.ground.meters.closed(id, parent);
        Ok(())
    }

    /// The pool called `path`; the root for the empty path.
    pub(crate) fn pool(&self, path: &str) -> Result<AccountId, EngineError> {
        if path.is_empty() {
            return Ok(AccountId::ROOT);
        }
        let pool = self.ground.tree.find(path).filter(|account| account.kind == AccountKind::Pool);
        pool.map(|account| account.id).ok_or_else(|| EngineError::UnknownPool { path: path.to_owned() })
    }

    /// Opens a pool at `path`; its parent is open.
    pub(crate) fn open_pool(&mut self, path: &str, allocation: Allocation) -> Result<(), EngineError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.pool(parent)?;
        self.open_account(parent, name, AccountKind::Pool, allocation)?;
        Ok(())
    }

    /// Opens a session for a tenant that the levels above know. A number makes its name unique.
    pub(crate) fn open_session(&mut self, pool: &str, session: &SessionConfig) -> Result<AccountId, EngineError> {
        let pool = self.pool(pool)?;
        self.sessions += 1;
        let name = format!("{}#{}", session.name, self.sessions);
        Ok(self.open_account(pool, &name, AccountKind::Session, session.allocation)?)
    }

    /// Changes what a session was promised.
    pub(crate) fn change_session(&mut self, session: AccountId, allocation: Allocation) -> Result<(), EngineError> {
        self.change(session, allocation)
    }

    fn change(&mut self, account: AccountId, allocation: Allocation) -> Result<(), EngineError> {
        let Conductor { ground, gate, .. } = self;
        let changed = ground.tree.change(account, allocation)?;
        gate.scheduler_mut().account_changed(ground.now, changed);
        Ok(())
    }

    /// Closes a session that [`open_session`](Self::open_session) opened. O(requests under way).
    pub(crate) fn close_session(&mut self, session: AccountId) -> Result<(), EngineError> {
        let (pieces, requests) = self.table.of_account(session);
        let requests = requests + self.levels.observed().of(session) + self.caches.requests_of(session);
        if pieces + requests > 0 {
            return Err(EngineError::SessionBusy {
                path: self.ground.tree.path(session),
                requests: pieces.max(requests),
            });
        }
        Ok(self.close_account(session)?)
    }

    /// Sets the source of tags for each block of a volume; `None`: no tags.
    pub(crate) fn set_tags(&mut self, volume: &str, tags: Option<Box<dyn BlockTags>>) -> Result<(), EngineError> {
        let volume = self.volume(volume)?;
        self.volumes[volume].tags = tags;
        Ok(())
    }

    /// Puts `levels` above the scheduler, and gives those that were there before.
    pub(crate) fn set_upper_levels(&mut self, levels: Option<Box<dyn UpperLevels>>) -> Option<Box<dyn UpperLevels>> {
        self.levels.set(&mut self.ground, &mut self.ring, levels)
    }

    /// Changes what the account at `path` was promised.
    pub(crate) fn change_account(&mut self, path: &str, allocation: Allocation) -> Result<(), EngineError> {
        let account = self.ground.tree.find(path).ok_or_else(|| EngineError::UnknownPool { path: path.to_owned() })?;
        let account = account.id;
        self.change(account, allocation)
    }

    /// Closes the pool at `path`, unless it has members or a volume opens sessions in it.
    pub(crate) fn close_pool(&mut self, path: &str) -> Result<(), EngineError> {
        let pool = self.pool(path)?;
        let user = self.volumes.iter().find(|(_, seat)| seat.volume.config().pool == path);
        if let Some((_, seat)) = user {
            let volume = seat.volume.info().name.clone();
            return Err(EngineError::PoolInUse { path: path.to_owned(), volume });
        }
        Ok(self.close_account(pool)?)
    }

    /// The place of the volume called `name`.
    pub(crate) fn volume(&self, name: &str) -> Result<u32, EngineError> {
        let found = self.volumes.iter().find(|(_, seat)| seat.volume.info().name == name);
        found.map(|(index, _)| index).ok_or_else(|| EngineError::UnknownVolume { name: name.to_owned() })
    }

    /// Adds a volume, if its name and place are free and its pool is open.
    pub(crate) fn add_volume(&mut self, mut volume: Volume) -> Result<(), EngineError> {
        let (name, start) = (volume.info().name.clone(), volume.config().start_bytes);
        self.pool(&volume.config().pool)?;
        let end = start.saturating_add(volume.info().size_bytes);
        let capacity_bytes = self.ground.tree.device().capacity_bytes;
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
        if self.device.emulation().is_none()
            && let Backend::Memory(memory) = &mut volume.backend
        {
            memory.use_large_pages();
        }
        if volume.config().backing.is_encrypted() {
            self.device.expect_encrypted()?;
        }
        let (tags, unflushed, doubts) = (None, CauseSet::EMPTY, Doubts::default());
        let buffers = self.memory.of_another_volume();
        self.volumes.insert(VolumeSeat { volume, front_ends: 0, tags, unflushed, doubts, buffers });
        Ok(())
    }

    /// Gives up a volume that no front end uses, after making it durable.
    pub(crate) fn remove_volume(&mut self, name: &str) -> Result<(), EngineError> {
        let index = self.volume(name)?;
        let front_ends = self.volumes[index].front_ends;
        if front_ends > 0 {
            return Err(EngineError::VolumeInUse { name: name.to_owned(), front_ends });
        }
        if self.caches.has(index) {
            return Err(EngineError::Cached { volume: name.to_owned() });
        }
        self.sync_volume(index)?;
        self.volumes.remove(index);
        self.ahead.set(index, None);
        Ok(())
    }

    /// Makes a volume durable and waits for it. No front end may use the volume.
    pub(crate) fn sync_volume(&self, index: u32) -> Result<(), EngineError> {
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
    pub(crate) fn switch_scheduler(&mut self, name: &str) -> Result<(), EngineError> {
        let Conductor { ground, table, volumes, gate, levels, .. } = self;
        let mut scheduler = build_scheduler(name, &ground.tree, ground.now)?;
        gate.hand_over(ground, table, &mut *scheduler, |volume| volumes[volume].volume.config().start_bytes);
        levels.scheduler_switched(ground, &mut *scheduler);
        gate.put(scheduler);
        Ok(())
    }

    /// Applies `settings` to a volume that no front end uses; `None`: no reading ahead.
    pub(crate) fn set_read_ahead(&mut self, name: &str, settings: Option<ReadAhead>) -> Result<(), EngineError> {
        let index = self.volume(name)?;
        let VolumeSeat { volume, front_ends, .. } = &self.volumes[index];
        if *front_ends > 0 {
            return Err(EngineError::VolumeInUse { name: name.to_owned(), front_ends: *front_ends });
        }
        // What is in memory and not held back is there already.
        let is_slow = self.device.emulation().is_some() || !matches!(volume.backend, Backend::Memory(_));
        self.ahead.set(index, settings.filter(|_| is_slow));
        Ok(())
    }

    /// A session begins to read through the front end at `front_end`. Answers its number if its volume is read ahead.
    pub(crate) fn open_reader(&mut self, volume: u32, front_end: u32, account: AccountId) -> Option<u32> {
        let pool = self.ground.tree.get(account).and_then(|account| account.parent);
        let size_bytes = self.volumes[volume].volume.info().size_bytes;
        self.ahead.open_reader((volume, size_bytes), front_end, account, pool)
    }

    /// Whether the session that leaves its seat has no fetch under way; gives up those that it has.
    pub(crate) fn reader_is_through(&mut self, seat: &Seat) -> bool {
        self.ahead.is_through(&mut self.table, seat.volume, seat.reader)
    }

    /// Whether the scheduler still has answered pieces of a seat. Its account stays until they are let go.
    pub(crate) fn owes_early(&self, seat: &Seat) -> bool {
        self.ground.reads.of(seat.session).early > 0
    }

    /// Puts a tap on what comes and goes. Gives the recording's number and the volumes.
    pub(crate) fn begin_recording(&mut self, mut tap: Tap) -> Result<(u32, Vec<(u32, String)>), EngineError> {
        if self.ground.tap.is_some() {
            return Err(EngineError::Recorded { device: self.ground.tree.device().name.clone() });
        }
        self.recordings += 1;
        tap.number = self.recordings;
        self.ground.tap = Some(tap);
        let volumes = self.volumes.iter().map(|(number, seat)| (number, seat.volume.info().name.clone()));
        Ok((self.recordings, volumes.collect()))
    }

    /// Takes the tap of this recording off, if it is there.
    pub(crate) fn end_recording(&mut self, number: u32) {
        drop(self.ground.tap.take_if(|tap| tap.number == number));
    }

    /// Begins new windows of the rates, and logs if the device has become slower than its promises.
    pub(crate) fn look_once_a_second(&mut self) {
        self.ground.meters.tick(self.ground.now);
        let device = || self.ground.tree.device().name.clone();
        match self.alarm.look(self.ground.now, self.gate.scheduler().overload()) {
            Some(Change::Raised(kept_part)) => tracing::warn!(
                device = device(),
                "the device is slower than its promises: every reserve is scaled to {:.0} %",
                kept_part * 100.0
            ),
            Some(Change::Ended) => tracing::info!(device = device(), "all reserves are kept in full again"),
            None => {}
        }
    }

    /// A snapshot of everything.
    pub(crate) fn status(&mut self) -> EngineStatus {
        self.look_once_a_second();
        let status_of = |index: u32, VolumeSeat { volume, front_ends, .. }: &VolumeSeat| VolumeStatus {
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
            cache: self.caches.get(index).map(|cache| cache.status()),
            read_ahead: self.ahead.status(index),
        };
        EngineStatus {
            device: self.ground.tree.device().name.clone(),
            scheduler: self.gate.scheduler().name().to_owned(),
            uptime_ns: self.ground.now.since(Time::ZERO).as_nanos(),
            overload_ns: self.gate.scheduler().overload().as_nanos(),
            reserves_kept: self.alarm.kept_part(),
            emulation: self.device.emulation().map(Emulation::status),
            requests_under_way: self.table.requests.len() + self.levels.observed().len(),
            volumes: self.volumes.iter().map(|(index, seat)| status_of(index, seat)).collect(),
            accounts: self.ground.meters.status(self.ground.now, &self.ground.tree),
        }
    }
}

/// A scheduler called `name` that knows every account of `tree`, parents before children.
pub(crate) fn build_scheduler(name: &str, tree: &AccountTree, now: Time) -> Result<Box<dyn Scheduler>, EngineError> {
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
