//! The cgroups of tenants, and the thread that freezes and thaws them.
//!
//! The levels' thread says which tenants are to be frozen ([`FreezeOrders`]): a word for each bit, and a wake-up. It
//! never waits. But the kernel may make a change of a cgroup wait for other changes, and those may wait for the disk
//! that the levels' thread serves. So a thread of the freezer's own does it. Other threads add cgroups and take them
//! away.
//!
//! **The owner's wish wins.** A container's cgroup is also frozen by its runtime (`docker pause`), a service's by
//! systemd. One that is frozen already is left alone. While the freezer has one frozen, inotify tells every write to
//! its state by another program. A thaw counts as the freezer's own; a freeze stays when the freezer would thaw.
//!
//! **Complication.** Two programs that write in the same microseconds cannot be told apart. What is seen directly after
//! the freezer's own write is taken for its own.

use super::cgroup::{CgroupVersion, FreezableCgroup};
use super::place::FreezingPlace;
use crate::members::BITS;
use plimsoll_gates::{FrozenNote, GateError, NoteEntry, Programs, Thawer};
use plimsoll_linux::WakeEvent;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use std::array;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of kernel events that are read at a time: some hundred.
const EVENT_BYTES: usize = 4096;

/// What the levels' thread and the freezer's share.
pub(super) struct Shared {
    /// Bits that are to be frozen.
    wanted: [AtomicBool; BITS as usize],
    /// Bits that another program has thawed.
    overruled: [AtomicBool; BITS as usize],
    /// Bits that have a cgroup.
    held: AtomicU64,
    wake: WakeEvent,
    pub(super) is_over: AtomicBool,
    groups: Mutex<FreezerGroups>,
}

/// The levels' end. When it is dropped every tenant is thawed.
pub struct FreezeOrders(pub(super) Arc<Shared>);

impl FreezeOrders {
    /// The bits of tenants that can be frozen.
    pub fn held(&self) -> u64 {
        self.0.held.load(Ordering::Relaxed)
    }

    /// A tenant is to be frozen from now on, or to run. Never waits; one system call if that is news.
    pub fn set(&self, bit: u32, is_frozen: bool) {
        if self.0.wanted[bit as usize].swap(is_frozen, Ordering::AcqRel) != is_frozen {
            self.0.wake.wake();
        }
    }

    /// Whether another program has thawed the tenant since the last question.
    pub fn take_overruled(&self, bit: u32) -> bool {
        self.0.overruled[bit as usize].swap(false, Ordering::Relaxed)
    }
}

impl Drop for FreezeOrders {
    fn drop(&mut self) {
        self.0.wanted.iter().for_each(|wanted| wanted.store(false, Ordering::Release));
        self.0.wake.wake();
    }
}

impl Shared {
    pub(super) fn new(groups: FreezerGroups) -> io::Result<Shared> {
        Ok(Shared {
            wanted: array::from_fn(|_| AtomicBool::new(false)),
            overruled: array::from_fn(|_| AtomicBool::new(false)),
            held: AtomicU64::new(0),
            wake: WakeEvent::new()?,
            is_over: AtomicBool::new(false),
            groups: Mutex::new(groups),
        })
    }

    pub(super) fn groups(&self) -> MutexGuard<'_, FreezerGroups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        self.wake.wake();
    }

    /// A tenant has this cgroup from now on.
    pub(super) fn add(&self, bit: u32, place: FreezingPlace) -> io::Result<()> {
        self.groups().add(bit, place)?;
        self.held.fetch_or(1 << bit, Ordering::Relaxed);
        // It may be one of several, and the others may be frozen.
        self.wake();
        Ok(())
    }

    /// Takes a tenant's cgroups away, thawed; the caller removes those that were made.
    pub(super) fn take(&self, bit: u32) -> Vec<FreezerGroup> {
        self.held.fetch_and(!(1 << bit), Ordering::Relaxed);
        self.wanted[bit as usize].store(false, Ordering::Release);
        self.groups().take(bit)
    }

    /// The thread's work, until it is over.
    pub(super) fn run(&self) {
        plimsoll_engine::before_normal_threads();
        let Ok(events) = self.groups().events.try_clone() else { return };
        while !self.is_over.load(Ordering::Acquire) {
            let mut polled = [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&events, PollFlags::IN)];
            let _ = poll(&mut polled, None);
            self.wake.clear();
            self.groups().obey(
                |bit| self.wanted[bit as usize].load(Ordering::Acquire),
                |bit| {
                    // The law may be stuck.
                    self.wanted[bit as usize].store(false, Ordering::Release);
                    self.overruled[bit as usize].store(true, Ordering::Relaxed);
                },
            );
        }
    }
}

/// A cgroup of a tenant's.
pub(super) struct FreezerGroup {
    pub(super) bit: u32,
    pub(super) cgroup: FreezableCgroup,
    pub(super) is_made: bool,
    slot: usize,
    watch: i32,
    /// We have frozen it.
    is_ours: bool,
    /// Another program has written its state since.
    is_touched: bool,
    freezes: u64,
}

/// A cgroup of a tenant's, as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantCgroup {
    /// Its directory.
    pub directory: PathBuf,
    /// How often it was frozen.
    pub freezes: u64,
    /// It is frozen, and a process of it runs still: one that is stopped, traced, or in an uninterruptible sleep.
    pub is_late: bool,
}

impl FreezerGroup {
    pub(super) fn shown(&self) -> TenantCgroup {
        TenantCgroup {
            directory: self.cgroup.directory.clone(),
            freezes: self.freezes,
            is_late: self.is_ours && !self.cgroup.is_complete(),
        }
    }
}

/// See the [module's text](self).
pub(super) struct FreezerGroups {
    groups: Vec<FreezerGroup>,
    note: FrozenNote,
    programs: Programs,
    words: PathBuf,
    /// None: it did not start again, so nothing is frozen.
    thawer: Option<Thawer>,
    events: OwnedFd,
}

impl FreezerGroups {
    pub(super) fn new(note: FrozenNote, programs: Programs, words: PathBuf) -> Result<FreezerGroups, GateError> {
        let thawer = Some(Thawer::start(&programs, note.path(), &words)?);
        let events = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
        let events = events.map_err(|errno| GateError::File {
            action: "watch files in",
            path: "/sys/fs/cgroup".into(),
            source: errno.into(),
        })?;
        Ok(FreezerGroups { groups: Vec::new(), note, programs, words, thawer, events })
    }

    fn add(&mut self, bit: u32, FreezingPlace { cgroup, is_made }: FreezingPlace) -> io::Result<()> {
        let entry = NoteEntry {
            directory: cgroup.directory.clone(),
            inode: cgroup.inode,
            is_version_2: cgroup.version == CgroupVersion::Second,
            is_made,
            is_frozen: false,
        };
        match self.groups.iter().find(|group| group.cgroup.directory == cgroup.directory) {
            Some(group) if group.bit == bit => return Ok(()),
            Some(_) => return Err(io::Error::other("it is another tenant's")),
            None => {}
        }
        let slot = self.note.add(&entry)?;
        let watch = inotify::add_watch(&self.events, cgroup.state_path(), inotify::WatchFlags::MODIFY);
        let watch = watch.inspect_err(|_| drop(self.note.remove(slot)))?;
        self.groups.push(FreezerGroup {
            bit,
            cgroup,
            is_made,
            slot,
            watch,
            is_ours: false,
            is_touched: false,
            freezes: 0,
        });
        Ok(())
    }

    fn take(&mut self, bit: u32) -> Vec<FreezerGroup> {
        self.see_others(&mut |_| ());
        let (taken, kept) = std::mem::take(&mut self.groups).into_iter().partition(|group| group.bit == bit);
        self.groups = kept;
        let mut taken: Vec<FreezerGroup> = taken;
        for group in &mut taken {
            thaw(&self.note, group);
            let _ = inotify::remove_watch(&self.events, group.watch);
        }
        taken
    }

    /// What was taken is no more, or belongs to its owner alone.
    pub(super) fn forget(&mut self, group: &FreezerGroup) {
        if let Err(error) = self.note.remove(group.slot) {
            tracing::warn!(%error, "the note of frozen cgroups keeps {}", group.cgroup.directory.display());
        }
    }

    pub(super) fn of(&self, bit: u32) -> impl Iterator<Item = &FreezerGroup> {
        self.groups.iter().filter(move |group| group.bit == bit)
    }

    pub(super) fn bits(&self) -> Vec<u32> {
        self.groups.iter().map(|group| group.bit).collect()
    }

    /// Nothing is frozen any more.
    pub(super) fn end(&mut self) {
        self.thawer = None;
    }

    pub(super) fn has_thawer(&self) -> bool {
        self.thawer.as_ref().is_some_and(Thawer::is_alive)
    }

    /// Freezes and thaws what is to be. O(cgroups).
    fn obey(&mut self, is_wanted: impl Fn(u32) -> bool, mut overruled: impl FnMut(u32)) {
        self.see_others(&mut overruled);
        for index in 0..self.groups.len() {
            let (bit, is_ours) = (self.groups[index].bit, self.groups[index].is_ours);
            match (is_wanted(bit), is_ours) {
                (true, false) => self.freeze(index),
                (false, true) => thaw(&self.note, &mut self.groups[index]),
                _ => continue,
            }
            // Ours.
            self.drain(|_| ());
        }
    }

    fn freeze(&mut self, index: usize) {
        if !self.has_thawer() {
            let started = Thawer::start(&self.programs, self.note.path(), &self.words);
            self.thawer = started.inspect_err(|error| tracing::error!(%error, "no tenant is frozen any more")).ok();
        }
        let group = &mut self.groups[index];
        // What its owner has frozen is frozen.
        if self.thawer.is_none() || group.cgroup.is_frozen().unwrap_or(true) {
            return;
        }
        let noted = self.note.set_frozen(group.slot, true);
        match noted.and_then(|()| group.cgroup.set_frozen(true)) {
            Ok(()) => {
                (group.is_ours, group.is_touched) = (true, false);
                group.freezes += 1;
            }
            // It is gone, and its tenant with it.
            Err(_) => drop(self.note.set_frozen(group.slot, false)),
        }
    }

    /// Other programs have written to states of cgroups.
    fn see_others(&mut self, overruled: &mut impl FnMut(u32)) {
        let mut written = Vec::new();
        self.drain(|watch| written.push(watch));
        for group in self.groups.iter_mut().filter(|group| group.is_ours && written.contains(&group.watch)) {
            if group.cgroup.is_frozen().unwrap_or(false) {
                group.is_touched = true;
            } else {
                (group.is_ours, group.is_touched) = (false, false);
                let _ = self.note.set_frozen(group.slot, false);
                overruled(group.bit);
            }
        }
    }

    /// Takes all events out.
    fn drain(&self, mut written: impl FnMut(i32)) {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = inotify::Reader::new(self.events.as_fd(), &mut buffer);
        while let Ok(event) = reader.next() {
            written(event.wd());
        }
    }
}

/// Thaws a cgroup that we have frozen, unless its owner wants it frozen by now.
fn thaw(note: &FrozenNote, group: &mut FreezerGroup) {
    if !group.is_ours {
        return;
    }
    if !group.is_touched
        && let Err(error) = group.cgroup.set_frozen(false)
        && group.cgroup.directory.exists()
    {
        // The note has it still, for the thawer and the next agent.
        return tracing::error!(%error, "{} stays frozen", group.cgroup.directory.display());
    }
    (group.is_ours, group.is_touched) = (false, false);
    let _ = note.set_frozen(group.slot, false);
}
