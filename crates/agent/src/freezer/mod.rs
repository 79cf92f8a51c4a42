//! The freezer: the instrument that holds a tenant whatever program it runs.
//!
//! The shim holds calls of the C library, and the filter calls that the kernel notifies. A static program's writes, a
//! mapped file, a ring of io_uring pass by both. While such a tenant moves bytes though its gate is closed, its cgroup
//! is frozen until the scheduler opens the gate.
//!
//! ```text
//!   levels' thread   gates and events -> FreezeLaw -> FreezeOrders     never waits
//!   freezer's thread                    orders -> note -> cgroup.freeze
//!   thawer, a process                   the agent is gone -> note -> thaw
//!   doorman, control                    a tenant joins -> FreezingPlace; leaves -> thaw, remove
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`law`] | when a tenant is frozen, and for how long |
//! | [`cgroup`] | cgroups that can be frozen, of both versions |
//! | [`place`] | which cgroup a tenant is frozen in, and which are never frozen |
//! | [`groups`] | the cgroups of tenants, and the thread |
//!
//! It **fails open**: `docs/internals/tenants.md` has the outcome of each fault.

pub mod cgroup;
pub mod groups;
pub mod law;
pub mod place;

use cgroup::{members, move_into};
use groups::{FreezeOrders, FreezerGroup, FreezerGroups, Shared, TenantCgroup};
use place::{FreezingPlace, recover, recover_by_name};
use plimsoll_gates::{FrozenNote, GateError, Programs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Tasks that are moved at a time: up to some ten milliseconds each.
const GATHERED_MAX: usize = 16;

/// The freezer of a station. When it is dropped, every tenant is thawed, processes go back to the cgroups that they
/// came from, and what was made is removed.
pub struct Freezer {
    handle: FreezerHandle,
    thread: Option<JoinHandle<()>>,
}

/// For threads that may wait. Clones are cheap.
#[derive(Clone)]
pub struct FreezerHandle {
    shared: Arc<Shared>,
    /// Why tenants cannot be frozen, by bit.
    refusals: Arc<Mutex<BTreeMap<u32, String>>>,
    /// Made cgroups of tenants that have left, which could not be removed yet.
    leaving: Arc<Mutex<Vec<FreezerGroup>>>,
}

impl Freezer {
    /// Starts the thawer and the thread. Cgroups that a predecessor left are thawed, and removed if it made them.
    ///
    /// # Errors
    /// The note, the thawer or the thread cannot be had.
    pub fn open(run_directory: &Path, programs: &Programs, words: &Path) -> Result<(Freezer, FreezeOrders), GateError> {
        let (note, left) = FrozenNote::begin(run_directory)?;
        for entry in left {
            let is_it = |found: std::fs::Metadata| std::os::unix::fs::MetadataExt::ino(&found) == entry.inode;
            if !std::fs::metadata(&entry.directory).is_ok_and(is_it) || !(entry.is_frozen || entry.is_made) {
                continue;
            }
            if recover(&entry.directory, entry.is_made) {
                tracing::info!("recovered from a predecessor: the cgroup {}", entry.directory.display());
            } else {
                tracing::warn!("left by a predecessor: the cgroup {}, thawed", entry.directory.display());
            }
        }
        for directory in recover_by_name() {
            tracing::info!("recovered from a predecessor: the cgroup {}", directory.display());
        }
        let step =
            |action| move |error: std::io::Error| GateError::File { action, path: "freezer".into(), source: error };
        let groups = FreezerGroups::new(note, programs.clone(), words.to_owned())?;
        let shared = Arc::new(Shared::new(groups).map_err(step("make an eventfd for the"))?);
        let work = shared.clone();
        let thread = std::thread::Builder::new().name("freezer".to_owned()).spawn(move || work.run());
        let thread = Some(thread.map_err(step("start a thread for the"))?);
        let handle = FreezerHandle { shared: shared.clone(), refusals: Arc::default(), leaving: Arc::default() };
        Ok((Freezer { handle, thread }, FreezeOrders(shared)))
    }

    /// For other threads.
    pub fn handle(&self) -> FreezerHandle {
        self.handle.clone()
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.handle.shared.is_over.store(true, Ordering::Release);
        self.handle.shared.wake();
        self.thread.take().map(JoinHandle::join);
        let bits = self.handle.shared.groups().bits();
        bits.into_iter().for_each(|bit| self.handle.let_go(bit));
        self.handle.tidy();
        self.handle.shared.groups().end();
    }
}

impl FreezerHandle {
    /// A process of a tenant is frozen with it from now on. It may be moved into a cgroup that is made for it. If it
    /// cannot be held, [`why_not`](Self::why_not) says why.
    pub fn hold_process(&self, bit: u32, name: &str, process: u32) {
        self.note(bit, FreezingPlace::of_process(process, name));
    }

    /// A cgroup of a tenant is frozen from now on when its tenant is to be.
    pub fn hold_cgroup(&self, bit: u32, directory: &Path) {
        self.note(bit, FreezingPlace::of_cgroup(directory));
    }

    /// A tenant that has what cannot be frozen.
    pub fn refuse(&self, bit: u32, why: &str) {
        self.note(bit, Err(why.to_owned()));
    }

    fn note(&self, bit: u32, place: Result<FreezingPlace, String>) {
        let held = place.and_then(|place| {
            let made = place.is_made.then(|| place.cgroup.directory.clone());
            self.shared.add(bit, place).map_err(|error| {
                made.inspect(|directory| drop(place::remove(directory)));
                format!("its cgroup cannot be noted: {error}")
            })
        });
        if let Err(why) = held {
            tracing::warn!("a tenant is not held by the freezer: {why}");
            lock(&self.refusals).insert(bit, why);
        }
    }

    /// Why the freezer does not hold a tenant, in one line; `None` if it does.
    pub fn why_not(&self, bit: u32) -> Option<String> {
        if let Some(why) = lock(&self.refusals).get(&bit) {
            return Some(why.clone());
        }
        let groups = self.shared.groups();
        match groups.of(bit).next() {
            None => Some("no process of it has joined".to_owned()),
            Some(_) if !groups.has_thawer() => Some("the thawer has ended".to_owned()),
            Some(_) => None,
        }
    }

    /// The cgroups that are frozen when a tenant is to be.
    pub fn cgroups(&self, bit: u32) -> Vec<TenantCgroup> {
        self.shared.groups().of(bit).map(FreezerGroup::shown).collect()
    }

    /// Moves processes and threads of a tenant back into its made cgroup, 16 at a time. They have left it, or were
    /// forked before it was there. O(tasks).
    pub fn gather(&self, bit: u32, tasks: &[u32]) {
        let groups: Vec<_> = {
            let groups = self.shared.groups();
            groups.of(bit).map(|group| (group.cgroup.directory.clone(), group.is_made)).collect()
        };
        let Some((home, true)) = groups.first() else { return };
        let inside: BTreeSet<u32> = groups.iter().flat_map(|(directory, _)| threads(directory)).collect();
        for task in tasks.iter().filter(|task| !inside.contains(task)).take(GATHERED_MAX) {
            // One that has ended meanwhile needs not be moved.
            let _ = move_into(home, *task);
        }
    }

    /// A tenant has left: its processes go on, and what was made for it is removed.
    pub fn let_go(&self, bit: u32) {
        lock(&self.refusals).remove(&bit);
        let taken = self.shared.take(bit);
        lock(&self.leaving).extend(taken);
        self.tidy();
    }

    /// Removes what could not be removed before.
    pub fn tidy(&self) {
        lock(&self.leaving).retain(|group| {
            let is_left = group.is_made && place::remove(&group.cgroup.directory).is_err();
            if !is_left {
                self.shared.groups().forget(group);
            }
            is_left
        });
    }
}

/// The threads of a cgroup of either version.
fn threads(directory: &Path) -> Vec<u32> {
    let text = ["cgroup.threads", "tasks"].iter().find_map(|name| std::fs::read_to_string(directory.join(name)).ok());
    match text {
        Some(text) => text.lines().filter_map(|line| line.parse().ok()).collect(),
        None => members(directory),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
