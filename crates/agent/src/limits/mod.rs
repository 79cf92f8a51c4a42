//! Shares by weight from the kernel's own limits: WDT above `blkio.throttle` or `io.max`.
//!
//! **Intuition.** The kernel can hold a cgroup to so many bytes a second and knows no weights. So what each cgroup does on
//! the disk is looked at ten times a second, and once a second each is limited to what its weight brings it then.
//! **Rule.** [`Steward`]; here are the files. **Complication.** Cgroups come and go, and some have limits already: the
//! lower one holds. What is changed is noted first, and put back at the end, or by the next start after a kill -9.

mod group;
mod lock;
mod note;

use group::Group;
pub use group::{Limit, controller};
use lock::{DiskLock, LOCKS};
use note::Note;
use plimsoll_core::account::{WEIGHT_DEFAULT, WEIGHT_MAX};
use plimsoll_core::{Span, Time};
use plimsoll_gates::GateError;
use plimsoll_schedulers::wdt::steward::{Caps, Steward, Used};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use thiserror::Error;
use tracing::{debug, warn};

/// Looks between two searches for cgroups that came or went: a second.
const LOOKS_PER_SEARCH: u32 = 10;
/// Between two looks there is at least so much time, however late the last one was.
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
    /// Somebody else steers the disk.
    #[error("another agent already sets the limits on {device}")]
    Held {
        /// The disk's number.
        device: String,
    },
    /// There is no place for its lock.
    #[error(transparent)]
    Directory(#[from] GateError),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Who shares a disk, and where that is noted.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// The disk's number, `8:0`; of the whole disk.
    pub device: String,
    /// Where the controller is mounted.
    pub controller: PathBuf,
    /// Cgroups by their path below it, with weights.
    pub weights: Vec<(String, u32)>,
    /// Each cgroup directly in this one is a container too, whenever it comes, with the usual weight unless it is named.
    pub parent: Option<String>,
    /// The file in which limits are noted that are to be put back.
    pub note: PathBuf,
}

/// A cgroup that is steered.
struct Member {
    group: Group,
    container: usize,
    counted: Used,
    /// What it was limited to.
    own: Limit,
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
    /// Takes up the cgroups that are there. Answers with what is to be said too: what a predecessor left, and who is there.
    ///
    /// # Errors
    /// A cgroup that was named is none, and is not one that may come later; another agent steers the disk; the note cannot be
    /// written. Nothing is changed then.
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
        let lock = DiskLock::take(Path::new(LOCKS), &config.device)?;
        let (note, mut said) = Note::open(config.note.clone(), &config.device)
            .map_err(|source| LimitsError::File { path: config.note.clone(), source })?;
        let (steward, members) = (Steward::default(), BTreeMap::new());
        let mut limits = Limits { config, steward, members, note, until_search: 0, _lock: lock };
        said.extend(limits.search());
        Ok((limits, said))
    }

    /// Steers until `stop` is told to or gone, and puts limits back. `say` hears who came and who went, a line each.
    pub fn serve(mut self, stop: &Receiver<()>, mut say: impl FnMut(&str)) {
        loop {
            let wait = self.steward.next_look().since(now()).max(LOOK_MIN);
            match stop.recv_timeout(wait.into()) {
                Err(RecvTimeoutError::Timeout) => self.look(now()).iter().for_each(|line| say(line)),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Looks at what cgroups did, and limits them. Answers with who came and who went, a line each.
    fn look(&mut self, now: Time) -> Vec<String> {
        let mut uses = Vec::new();
        for Member { group, container, counted, .. } in self.members.values_mut() {
            // Who has gone is noticed by the next search.
            let Ok(new) = group.counted(&self.config.device) else { continue };
            let grown = |new: u64, old: u64| new.saturating_sub(old);
            let read_bytes = grown(new.read_bytes, counted.read_bytes);
            let written_bytes = grown(new.written_bytes, counted.written_bytes);
            *counted = new;
            uses.push((*container, Used { read_bytes, written_bytes }));
        }
        let changed = self.steward.look(now, &uses);
        for member in self.members.values() {
            if let Some((_, caps)) = changed.iter().rfind(|(container, _)| *container == member.container) {
                self.set(member, *caps);
            }
        }
        self.until_search = self.until_search.saturating_sub(1);
        if self.until_search == 0 { self.search() } else { Vec::new() }
    }

    /// Limits a cgroup to its caps and to what it was limited to before.
    fn set(&self, member: &Member, caps: Option<Caps>) {
        let (limit, folder) = (member.own.and(caps), member.group.folder.display());
        debug!("{folder}: {limit:?}, all together {:?} bytes/s", self.steward.total_bytes_per_second());
        // The next search finds that it has gone, and whoever has its name.
        if !member.group.is_there() {
            return;
        }
        if let Err(error) = member.group.set_limit(&self.config.device, limit)
            && member.group.is_there()
        {
            warn!("{folder} is not limited: {error}");
        }
    }

    /// Lets go of those who have gone, and takes up those who have come.
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
        let member = Member { group, container, counted, own };
        self.set(&member, caps);
        Ok(member)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for member in std::mem::take(&mut self.members).into_values() {
            if let Err(error) = self.note.put_back(&member.group) {
                warn!("{}: its limits were not put back: {error}", member.group.folder.display());
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
/// In one line, what is wrong with it and what is allowed.
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
