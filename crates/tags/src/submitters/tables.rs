//! The registrations. The engine's thread registers, the census finds heirs and ended processes, and other threads
//! survey.
//!
//! The census keeps a copy for itself. It receives the changes since it last asked, and returns its findings. The lock
//! is held for the differences or a survey's copy, and never during a look at a process. A change during a look goes
//! before the look's findings.

use super::census::Registered;
use crate::shared::{Group, Plain, Registration};
use crate::source::{Entry, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A registration that came, or that went.
struct Change {
    table: Table,
    key: Vec<u8>,
    /// Its account from now on.
    account: Option<u32>,
    /// Its account before.
    before: Option<u32>,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Table, BTreeMap<Vec<u8>, Vec<u8>>>,
    /// What the census has not heard of.
    changes: Vec<Change>,
    /// When the first of those was registered, in ticks since the machine began.
    registered_at: Option<u64>,
}

/// See the [module's text](self).
#[derive(Default)]
pub(super) struct Tables(Mutex<Inner>);

impl Tables {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lookup(&self, table: Table, key: &[u8]) -> Option<Vec<u8>> {
        self.lock().entries.get(&table).and_then(|table| table.get(key).cloned())
    }

    pub(super) fn entries(&self, table: Table) -> Vec<Entry> {
        let inner = self.lock();
        let entries = inner.entries.get(&table).into_iter().flatten();
        entries.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(super) fn update(&self, table: Table, key: &[u8], value: &[u8]) {
        let mut inner = self.lock();
        let before = inner.entries.entry(table).or_default().insert(key.to_vec(), value.to_vec());
        if table != Table::Owners {
            let (account, before) = (account_of(value), before.and_then(|value| account_of(&value)));
            inner.changes.push(Change { table, key: key.to_vec(), account, before });
            inner.registered_at.get_or_insert_with(boot_ticks);
        }
    }

    /// Whether there was something under the key.
    pub(super) fn delete(&self, table: Table, key: &[u8]) -> bool {
        let mut inner = self.lock();
        let Some(before) = inner.entries.entry(table).or_default().remove(key) else { return false };
        if table != Table::Owners {
            inner.changes.push(Change { table, key: key.to_vec(), account: None, before: account_of(&before) });
        }
        true
    }

    /// Brings the census's copy up to date. Says since when children of new processes are theirs, and whether a cgroup
    /// is new.
    pub(super) fn learn(&self, registered: &mut Registered) -> (u64, bool) {
        let (changes, registered_at) = {
            let mut inner = self.lock();
            (std::mem::take(&mut inner.changes), inner.registered_at.take())
        };
        let mut has_new_groups = false;
        for Change { table, key, account, .. } in changes {
            if table == Table::Cgroups {
                let Some(group) = Group::take(&mut &key[..]) else { continue };
                registered.groups.retain(|(it, _)| (it.id, it.hierarchy) != (group.id, group.hierarchy));
                registered.groups.extend(account.map(|account| (group, account)));
                has_new_groups |= account.is_some();
            } else if let (Some(tasks), Some(task)) = (tasks_of(registered, table), u32::take(&mut &key[..])) {
                match account {
                    Some(account) => drop(tasks.insert(task, account)),
                    None => drop(tasks.remove(&task)),
                }
            }
        }
        (registered_at.unwrap_or_else(boot_ticks), has_new_groups)
    }

    /// Takes over what a look has changed in `registered` since it was `before`. Answers the accounts that lost a
    /// process meanwhile. They may have ended, so no process inherits from them, and findings about it have no account.
    pub(super) fn remember(&self, before: &Registered, registered: &mut Registered) -> BTreeSet<u32> {
        let (mut came, mut went) = (Vec::new(), Vec::new());
        for (table, before, now) in [
            (Table::Processes, &before.processes, &registered.processes),
            (Table::Threads, &before.threads, &registered.threads),
        ] {
            let new = now.iter().filter(|(task, _)| !before.contains_key(task));
            came.extend(new.map(|(&task, &account)| (table, task, account)));
            went.extend(before.keys().filter(|task| !now.contains_key(task)).map(|&task| (table, task)));
        }
        let mut inner = self.lock();
        let Inner { entries, changes, .. } = &mut *inner;
        let changed: BTreeSet<(Table, &[u8])> = changes.iter().map(|change| (change.table, &change.key[..])).collect();
        let lost = changes.iter().filter(|change| change.account != change.before).filter_map(|change| change.before);
        let lost: BTreeSet<u32> = lost.collect();
        for (table, task, account) in came {
            if changed.contains(&(table, &task.bytes()[..])) {
                continue;
            }
            if lost.contains(&account) {
                tasks_of(registered, table).and_then(|tasks| tasks.remove(&task));
                continue;
            }
            entries.entry(table).or_default().insert(task.bytes(), Registration { account, is_automatic: 0 }.bytes());
        }
        for (table, task) in went {
            if !changed.contains(&(table, &task.bytes()[..])) {
                entries.entry(table).or_default().remove(&task.bytes());
            }
        }
        lost
    }
}

fn tasks_of(registered: &mut Registered, table: Table) -> Option<&mut BTreeMap<u32, u32>> {
    match table {
        Table::Processes => Some(&mut registered.processes),
        Table::Threads => Some(&mut registered.threads),
        Table::Cgroups | Table::Owners => None,
    }
}

fn account_of(value: &[u8]) -> Option<u32> {
    Some(Registration::take(&mut { value })?.account)
}

/// Now, on the clock that says when a process began.
fn boot_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec.unsigned_abs() * per_second + now.tv_nsec.unsigned_abs() * per_second / 1_000_000_000
}
