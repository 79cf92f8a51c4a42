//! The processes of each account, and their I/O since the last look, without an event for a fork or an end.
//!
//! A process belongs to the account that it is registered as. Otherwise it belongs to its parent's, if the parent
//! belonged to it at the process's birth, else to its cgroup's. What it has moved is what its count grew by. When a
//! process waits for a child, the kernel adds the child's count to the parent's. That part of the growth is *expected*,
//! since it was the child's before, and not taken again. The I/O of a child after its last look is in the parent's
//! growth and thereby not lost. The same holds for a child that was never seen.
//!
//! ```text
//!   look 1   shell 10    dd 40          look 2   shell 55 (dd ended at 45)      moved: 55 - 10 - 40 = 5
//! ```
//!
//! Parents are looked at before their children. So a child that is still there at its look was not yet in its parent's
//! count. A process that lets its children go without waiting (`SIGCHLD` ignored) does not grow by them. The
//! expectation is forgotten after two looks.

use super::processes::{Identity, Moved, Processes};
use crate::shared::Group;
use std::collections::{BTreeMap, BTreeSet};

/// Looks after which an ended child's count is no longer expected in its parent's.
const EXPECTED_LOOKS: u32 = 2;

/// Which processes are registered as which account.
#[derive(Clone, Default)]
pub(super) struct Registered {
    /// Processes, including heirs of a registration.
    pub(super) processes: BTreeMap<u32, u32>,
    pub(super) threads: BTreeMap<u32, u32>,
    pub(super) groups: Vec<(Group, u32)>,
}

impl Registered {
    pub(super) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.threads.is_empty() && self.groups.is_empty()
    }
}

struct Member {
    identity: Identity,
    account: u32,
    /// Children born from here on belong to it too: ticks of the kernel.
    since: u64,
    counted: Moved,
    expected: Moved,
    expected_looks: u32,
}

/// See the [module's text](self).
#[derive(Default)]
pub(super) struct Census {
    members: BTreeMap<u32, Member>,
    /// Processes that belong to no account.
    strangers: BTreeSet<u32>,
    threads: BTreeMap<u32, Moved>,
}

impl Census {
    /// Processes that belonged to no account may belong to one now.
    pub(super) fn forget_strangers(&mut self) {
        self.strangers.clear();
    }

    /// The processes that belong to an account.
    pub(super) fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.keys().copied()
    }

    /// Looks at every process, and says what each account has moved since the last look. `registered` gains processes
    /// that inherited and loses processes that have ended. Children of a new one belong to it if they were born at
    /// `since` or later. O(processes) names, and a few files of each member and each new process.
    pub(super) fn look(
        &mut self,
        table: &dyn Processes,
        since: u64,
        registered: &mut Registered,
    ) -> BTreeMap<u32, Moved> {
        self.members.retain(|process, member| match registered.processes.get(process) {
            Some(&account) => {
                member.account = account;
                true
            }
            None => false,
        });
        self.admit(table, since, registered);
        let mut moved = BTreeMap::new();
        let of_threads = self.count_threads(table, registered, &mut moved);
        let grown = self.count(table, registered);
        for (process, grown) in grown {
            let Some(member) = self.members.get_mut(&process) else { continue };
            let own = member.without_expected(grown).since(of_threads.get(&process).copied().unwrap_or_default());
            moved.entry(member.account).or_default().add(own);
        }
        moved
    }

    /// Finds an account for each new process.
    fn admit(&mut self, table: &dyn Processes, since: u64, registered: &mut Registered) {
        let listed: BTreeSet<u32> = table.list().into_iter().collect();
        self.strangers.retain(|process| listed.contains(process));
        // A process that ended between its registration and this look was never a member, and another will have its
        // number.
        registered.processes.retain(|process, _| self.members.contains_key(process) || listed.contains(process));
        let is_new = |process: &&u32| {
            !self.members.contains_key(process)
                && (!self.strangers.contains(process) || registered.processes.contains_key(process))
        };
        let new = listed.iter().filter(is_new).filter_map(|&process| Some((process, table.identity(process)?)));
        let mut new: Vec<(u32, Identity)> = new.collect();
        // Parents first.
        new.sort_unstable_by_key(|(process, identity)| (identity.began, *process));
        for (process, identity) in new {
            let parent = self.members.get(&identity.parent).filter(|parent| identity.began >= parent.since);
            let inherited = parent.map(|parent| parent.account);
            let chosen = registered.processes.get(&process).copied();
            let Some(account) = chosen.or(inherited).or_else(|| of_group(table, process, registered)) else {
                self.strangers.insert(process);
                continue;
            };
            self.strangers.remove(&process);
            registered.processes.insert(process, account);
            // A process that was born in the account has moved all that it has for it.
            let is_born_here = inherited == Some(account);
            let counted = if is_born_here { Moved::default() } else { table.moved(process).unwrap_or_default() };
            let since = if is_born_here { identity.began } else { since };
            let (expected, expected_looks) = (Moved::default(), 0);
            self.members.insert(process, Member { identity, account, since, counted, expected, expected_looks });
        }
    }

    /// What each thread that is registered itself has moved, by its process.
    fn count_threads(
        &mut self,
        table: &dyn Processes,
        registered: &mut Registered,
        moved: &mut BTreeMap<u32, Moved>,
    ) -> BTreeMap<u32, Moved> {
        let mut of_processes: BTreeMap<u32, Moved> = BTreeMap::new();
        registered.threads.retain(|&thread, &mut account| {
            let Some((process, counted)) = table.thread(thread) else { return false };
            let before = self.threads.insert(thread, counted).unwrap_or(counted);
            let its = counted.since(before);
            moved.entry(account).or_default().add(its);
            of_processes.entry(process).or_default().add(its);
            true
        });
        self.threads.retain(|thread, _| registered.threads.contains_key(thread));
        of_processes
    }

    /// Growth of each member's count. Removes ended processes, and expects their count in the parent that waited for
    /// one.
    fn count(&mut self, table: &dyn Processes, registered: &mut Registered) -> Vec<(u32, Moved)> {
        let (mut grown, mut ended) = (Vec::new(), Vec::new());
        for process in self.parents_first() {
            let member = self.members.get_mut(&process).expect("it is a member");
            let identity = table.identity(process).filter(|identity| identity.began == member.identity.began);
            match identity.and_then(|identity| Some((identity, table.moved(process)?))) {
                Some((identity, counted)) => {
                    grown.push((process, counted.since(member.counted)));
                    // Its parent may be another one by now.
                    (member.identity, member.counted) = (identity, counted);
                }
                None => ended.push(process),
            }
        }
        // Children first: a child's expected growth becomes its parent's.
        for process in ended.into_iter().rev() {
            let Some(member) = self.members.remove(&process) else { continue };
            registered.processes.remove(&process);
            if let Some(parent) = self.members.get_mut(&member.identity.parent) {
                parent.expected.add(member.counted);
                parent.expected.add(member.expected);
                parent.expected_looks = 0;
            }
        }
        grown
    }

    fn parents_first(&self) -> Vec<u32> {
        let began = |(&process, member): (&u32, &Member)| (member.identity.began, process);
        let mut order: Vec<(u64, u32)> = self.members.iter().map(began).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, process)| process).collect()
    }
}

impl Member {
    /// The process's own part of a growth, without the count of an ended child.
    fn without_expected(&mut self, grown: Moved) -> Moved {
        let own = grown.since(self.expected);
        self.expected = self.expected.since(grown);
        self.expected_looks += 1;
        if self.expected_looks > EXPECTED_LOOKS {
            self.expected = Moved::default();
        }
        own
    }
}

fn of_group(table: &dyn Processes, process: u32, registered: &Registered) -> Option<u32> {
    if registered.groups.is_empty() {
        return None;
    }
    table.groups(process).iter().find_map(|group| {
        let its = registered.groups.iter().find(|(it, _)| (it.id, it.hierarchy) == (group.id, group.hierarchy));
        its.map(|(_, account)| *account)
    })
}

#[cfg(test)]
mod tests;
