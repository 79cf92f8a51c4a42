//! Shares by weight from the kernel's own limits: WDT above `blkio.throttle` or `io.max`.
//!
//! **Intuition.** The kernel can hold a cgroup to so many bytes a second and knows no weights. So each cgroup's I/O on
//! the disk is measured ten times a second. Once a second each cgroup is limited to the share of its weight. **Rule.**
//! [`Steward`]; here are the files. **Complication.** Cgroups come and go, and some have limits already: the lower one
//! holds. A note of each limit precedes its change; the end, or the next start after a kill -9, restores it. Another
//! program may set limits meanwhile: a limit that we did not write last is that program's. Now the lower one holds, and
//! the end restores that one.

mod group;
mod note;

use crate::disk_lock::{DiskLock, DiskLockError, DiskUse};
use group::Group;
pub use group::{Limit, controller};
use note::Note;
use plimsoll_core::account::{WEIGHT_DEFAULT, WEIGHT_MAX};
use plimsoll_core::{Span, Time};
use plimsoll_schedulers::wdt::steward::{Caps, Steward, Used};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use thiserror::Error;
use tracing::{debug, warn};

/// Looks between two searches for cgroups that came or went: a second.
const LOOKS_PER_SEARCH: u32 = 10;
/// Least time between two looks, however late the last one was.
const LOOK_MIN: Span = Span::from_millis(1);

/// Why cgroups cannot be steered.
#[derive(Debug, Error)]
pub enum LimitsError {
    /// A cgroup that was named is none.
    #[error("{group}: {problem}")]
    Group {
        /// As it was named.
        group: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Another agent steers the disk, or there is no place for its lock.
    #[error(transparent)]
    Lock(#[from] DiskLockError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The cgroups that share a disk, and where that is noted.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// The disk's number, `8:0`; of the whole disk.
    pub device: String,
    /// Where the controller is mounted.
    pub controller: PathBuf,
    /// Cgroups by their path below it, with weights.
    pub weights: Vec<(String, u32)>,
    /// Each cgroup directly in this one is a container, too, as soon as it appears. It has the usual weight unless it
    /// is named.
    pub parent: Option<String>,
    /// The file in which limits are noted that are to be put back.
    pub note: PathBuf,
}

/// A cgroup that is steered.
struct Member {
    group: Group,
    container: usize,
    counted: Used,
    /// What others limit it to.
    own: Limit,
    /// What was written to its files last, or found there.
    written: Limit,
    /// By its weight.
    caps: Option<Caps>,
    /// It has been said that another program sets its limits too.
    is_other_told: bool,
}

impl Member {
    /// Takes limits in its files that were not written here as another program's, and notes them.
    fn heed(&mut self, note: &mut Note, device: &str) {
        let Ok(found) = self.group.limit(device) else { return };
        if found == self.written || !self.group.is_there() {
            return;
        }
        self.own = self.own.changed(self.written, found);
        self.written = found;
        let folder = self.group.folder.display();
        if let Err(error) = note.change(&self.group, self.own) {
            warn!("{folder}: cannot note the limits that another program has set: {error}");
        }
        if !std::mem::replace(&mut self.is_other_told, true) {
            warn!("{folder}: another program sets its limits too: the lower of those and its share holds");
        }
    }

    /// Limits it to its caps and to what others limit it to.
    fn set(&mut self, note: &mut Note, device: &str) {
        // The next search finds that it has gone, and the cgroup that has its name now.
        if !self.group.is_there() {
            return;
        }
        self.heed(note, device);
        let limit = self.own.and(self.caps);
        if limit == self.written {
            return;
        }
        match self.group.set_limit(device, limit) {
            Ok(()) => self.written = limit,
            Err(error) if self.group.is_there() => {
                warn!("{} is not limited: {error}", self.group.folder.display());
                // Of two files one may have been written.
                self.written = self.group.limit(device).unwrap_or(self.written);
            }
            Err(_) => {}
        }
    }
}

/// Steers cgroups. Dropping it puts their limits back.
pub struct Limits {
    config: LimitsConfig,
    steward: Steward,
    members: BTreeMap<String, Member>,
    note: Note,
    until_search: u32,
    _lock: DiskLock,
}

impl Limits {
    /// Takes up the cgroups that are there. Also answers the lines to print: recovery from a predecessor, and the
    /// cgroups found.
    ///
    /// # Errors
    /// A cgroup that was named is none, and is not one that may come later; another agent steers the disk; the note
    /// cannot be written. Nothing is changed then.
    pub fn begin(config: LimitsConfig) -> Result<(Limits, Vec<String>), LimitsError> {
        for (name, _) in &config.weights {
            if !config.may_come_later(name) {
                config.open(name)?;
            }
        }
        if let Some(parent) = &config.parent
            && !config.controller.join(parent).is_dir()
        {
            return Err(LimitsError::Group { group: parent.clone(), problem: "there is no such cgroup".to_owned() });
        }
        let lock = DiskLock::take(DiskUse::Limits, &config.device)?;
        let (note, mut said) = Note::open(config.note.clone(), &config.device)
            .map_err(|source| LimitsError::File { path: config.note.clone(), source })?;
        let (steward, members) = (Steward::default(), BTreeMap::new());
        let mut limits = Limits { config, steward, members, note, until_search: 0, _lock: lock };
        said.extend(limits.search());
        Ok((limits, said))
    }

    /// Steers until `stop` is told to or gone, and puts limits back. `say` hears which cgroups came and went, a line
    /// each.
    pub fn serve(mut self, stop: &Receiver<()>, mut say: impl FnMut(&str)) {
        loop {
            let wait = self.steward.next_look().since(now()).max(LOOK_MIN);
            match stop.recv_timeout(wait.into()) {
                Err(RecvTimeoutError::Timeout) => self.look(now()).iter().for_each(|line| say(line)),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at what cgroups did, and limits them. Answers with the cgroups that came and went, a line each.
    fn look(&mut self, now: Time) -> Vec<String> {
        let mut uses = Vec::new();
        for Member { group, container, counted, .. } in self.members.values_mut() {
            // The next search notices cgroups that have gone.
            let Ok(new) = group.counted(&self.config.device) else { continue };
            let grown = |new: u64, old: u64| new.saturating_sub(old);
            let read_bytes = grown(new.read_bytes, counted.read_bytes);
            let written_bytes = grown(new.written_bytes, counted.written_bytes);
            *counted = new;
            uses.push((*container, Used { read_bytes, written_bytes }));
        }
        let changed = self.steward.look(now, &uses);
        for member in self.members.values_mut() {
            if let Some((_, caps)) = changed.iter().rfind(|(container, _)| *container == member.container) {
                member.caps = *caps;
                let (folder, own) = (member.group.folder.display(), member.own);
                debug!(
                    "{folder}: limits of other programs {own:?}, of its share {caps:?}; all cgroups together {:?} \
                     bytes/s",
                    self.steward.total_bytes_per_second()
                );
                member.set(&mut self.note, &self.config.device);
            }
        }
        self.until_search = self.until_search.saturating_sub(1);
        if self.until_search == 0 { self.search() } else { Vec::new() }
    }

    /// Drops cgroups that have gone, adds new ones, and reads limits that other programs have set.
    fn search(&mut self) -> Vec<String> {
        self.until_search = LOOKS_PER_SEARCH;
        let mut said = Vec::new();
        let gone = self.members.iter().filter(|(_, member)| !member.group.is_there()).map(|(name, _)| name.clone());
        for name in gone.collect::<Vec<_>>() {
            let member = self.members.remove(&name).expect("was just found");
            self.steward.leave(member.container);
            // It went with its limits; this forgets them.
            let _ = self.note.put_back(&member.group).and_then(|()| self.note.write());
            said.push(format!("{name}: has gone"));
        }
        for member in self.members.values_mut() {
            member.set(&mut self.note, &self.config.device);
        }
        for (name, weight) in self.config.names() {
            if self.members.contains_key(&name) {
                continue;
            }
            let Ok(group) = self.config.open(&name) else { continue };
            match self.take_up(group, weight) {
                Ok(member) => drop(self.members.insert(name.clone(), member)),
                // It comes again at the next search, if it is still there.
                Err(error) => {
                    warn!("{name} is not limited: {error}");
                    continue;
                }
            }
            said.push(format!("{name}: weight {weight}"));
        }
        said
    }

    fn take_up(&mut self, group: Group, weight: u32) -> std::io::Result<Member> {
        let counted = group.counted(&self.config.device)?;
        let own = self.note.add(&group)?;
        let (container, caps) = self.steward.join(weight);
        let mut member = Member { group, container, counted, own, written: own, caps, is_other_told: false };
        member.set(&mut self.note, &self.config.device);
        Ok(member)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for mut member in std::mem::take(&mut self.members).into_values() {
            member.heed(&mut self.note, &self.config.device);
            if let Err(error) = self.note.put_back(&member.group) {
                warn!("{}: cannot put its former limits back: {error}", member.group.folder.display());
            }
        }
        if let Err(error) = self.note.write() {
            warn!("{}: {error}", self.config.note.display());
        }
    }
}

impl LimitsConfig {
    /// The cgroups that are shared among, as far as they are known now.
    fn names(&self) -> BTreeMap<String, u32> {
        let mut names = BTreeMap::new();
        if let Some(parent) = &self.parent {
            let entries = std::fs::read_dir(self.controller.join(parent)).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below = |name: String| if parent.is_empty() { name } else { format!("{parent}/{name}") };
            // The note has a line for each.
            let named = folders.filter_map(|entry| entry.file_name().into_string().ok().filter(|n| !n.contains('\n')));
            names.extend(named.map(|name| (below(name), WEIGHT_DEFAULT)));
        }
        names.extend(self.weights.iter().cloned());
        names
    }

    fn may_come_later(&self, name: &str) -> bool {
        self.parent.as_ref().is_some_and(|parent| Path::new(name).parent() == Some(Path::new(parent)))
    }

    fn open(&self, name: &str) -> Result<Group, LimitsError> {
        let opened = Group::open(&self.controller.join(name));
        opened.map_err(|problem| LimitsError::Group { group: name.to_owned(), problem })
    }
}

/// The kernel's monotonic clock.
fn now() -> Time {
    let now = clock_gettime(ClockId::Monotonic);
    Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// `GROUP=N`, a cgroup and its weight.
///
/// # Errors
/// The fault and the allowed values, in one line.
pub fn parse_weight(text: &str) -> Result<(String, u32), String> {
    let allowed = format!("GROUP=N, N from 1 to {WEIGHT_MAX}");
    let split = text.rsplit_once('=').filter(|(group, _)| !group.contains('\n'));
    let parsed = split.and_then(|(group, weight)| Some((group, weight.parse::<u32>().ok()?)));
    match parsed {
        Some((group, weight)) if (1..=WEIGHT_MAX).contains(&weight) => {
            let group = group.trim_matches('/');
            match Path::new(group).components().all(|part| matches!(part, std::path::Component::Normal(_))) {
                true => Ok((group.to_owned(), weight)),
                false => Err(format!("got {text:?}, allowed {allowed}, where GROUP is a path below the controller")),
            }
        }
        _ => Err(format!("got {text:?}, allowed {allowed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const DEVICE: &str = "8:0";
    const CAPS: Caps = Caps { read_bytes_per_second: 1000, write_bytes_per_second: 2000 };

    /// A steered cgroup in a folder of plain files, in the format of both versions' kernels.
    struct Steered {
        member: Member,
        note: Note,
        folder: tempfile::TempDir,
    }

    impl Steered {
        fn begin(before: &str) -> Steered {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("io.max"), before).unwrap();
            let group = Group::open(folder.path()).unwrap();
            let (mut note, _) = Note::open(folder.path().join("note"), DEVICE).unwrap();
            let own = note.add(&group).unwrap();
            let (container, counted) = (0, Used::default());
            let mut member = Member { group, container, counted, own, written: own, caps: None, is_other_told: false };
            member.caps = Some(CAPS);
            member.set(&mut note, DEVICE);
            Steered { member, note, folder }
        }

        fn found(&self) -> Limit {
            self.member.group.limit(DEVICE).unwrap()
        }

        /// Another program writes.
        fn other(&self, limit: Limit) {
            self.member.group.set_limit(DEVICE, limit).unwrap();
        }

        fn look(&mut self) -> Limit {
            self.member.set(&mut self.note, DEVICE);
            self.found()
        }

        fn end(mut self) -> Limit {
            self.member.heed(&mut self.note, DEVICE);
            self.note.put_back(&self.member.group).unwrap();
            self.found()
        }
    }

    fn limit(read: Option<u64>, write: Option<u64>) -> Limit {
        Limit { read, write }
    }

    /// Promise: tenants-steer-others.
    #[test]
    fn the_lower_holds_of_what_another_program_sets_meanwhile_and_of_the_share() {
        let mut steered = Steered::begin("");
        assert_eq!(steered.found(), limit(Some(1000), Some(2000)));
        steered.other(limit(Some(400), Some(9000)));
        assert_eq!(steered.look(), limit(Some(400), Some(2000)));
        assert!(steered.member.is_other_told);
        // The share falls below it, and rises again.
        steered.member.caps = Some(Caps { read_bytes_per_second: 300, write_bytes_per_second: 300 });
        assert_eq!(steered.look(), limit(Some(300), Some(300)));
        steered.member.caps = None;
        assert_eq!(steered.look(), limit(Some(400), Some(9000)), "its limits hold without a share");
        assert_eq!(steered.end(), limit(Some(400), Some(9000)), "and are put back");
    }

    /// Red where what stood there in the beginning is put back whatever happened since.
    /// Promise: tenants-steer-others.
    #[test]
    fn what_another_program_sets_meanwhile_is_put_back_also_without_a_look() {
        let steered = Steered::begin("8:0 rbps=5000 wbps=max\n");
        steered.other(limit(Some(700), Some(2000)));
        assert_eq!(steered.end(), limit(Some(700), None), "the reads' is its, the writes' was ours");
        let steered = Steered::begin("8:0 rbps=5000 wbps=max\n");
        steered.other(Limit::default());
        assert_eq!(steered.end(), limit(None, None), "it took its own limit away");
        let steered = Steered::begin("8:0 rbps=5000 wbps=max\n");
        assert_eq!(steered.end(), limit(Some(5000), None), "no other agent was there");
    }

    /// Promise: tenants-steer-others.
    #[test]
    fn a_successor_puts_back_what_another_program_set_before_the_kill() {
        let mut steered = Steered::begin("");
        steered.other(limit(Some(400), None));
        steered.look();
        drop(steered.note);
        let (_, said) = Note::open(steered.folder.path().join("note"), DEVICE).unwrap();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!(steered.member.group.limit(DEVICE).unwrap(), limit(Some(400), None));
    }
}
