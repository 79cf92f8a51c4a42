//! Which files and accounts have which deadlines, and the shortest fsync deadline of the others.
//!
//! **Rule.** A file's own deadline comes before its account's. **Complication.** All others' promises bound the time
//! for which an account may keep a device busy, whether they ask for anything or not. So the fsync deadlines stand in
//! order, and the first one of another account is never further than the second.
//!
//! Asking is O(1), a promise O(promises).

use crate::keyed_slab::KeyedSlab;
use plimsoll_core::{AccountId, Deadlines, FileId, Span};

/// The file or account that has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineHolder {
    /// An account.
    Account(AccountId),
    /// Every account that syncs this file.
    File(FileId),
    /// Every account.
    Default,
}

/// See the module's text.
#[derive(Default)]
pub struct DeadlineBook {
    accounts: Vec<Deadlines>,
    files: KeyedSlab<FileId, Deadlines>,
    /// Fsync deadlines, shortest first.
    fsyncs: Vec<(Span, DeadlineHolder)>,
}

impl DeadlineBook {
    /// What an account was promised. Nothing, if it is not known.
    pub fn account(&self, account: AccountId) -> Deadlines {
        self.accounts.get(account.index()).copied().unwrap_or_default()
    }

    /// What was promised for a file.
    pub fn file(&self, file: FileId) -> Deadlines {
        self.files.find(file).map(|place| *self.files.get(place)).unwrap_or_default()
    }

    /// An account was promised this from now on.
    pub fn promise_account(&mut self, account: AccountId, deadlines: Deadlines) {
        if self.accounts.len() <= account.index() {
            self.accounts.resize(account.index() + 1, Deadlines::default());
        }
        self.accounts[account.index()] = deadlines;
        self.promise_fsync(DeadlineHolder::Account(account), deadlines.fsync);
    }

    /// For a file this was promised from now on.
    pub fn promise_file(&mut self, file: FileId, deadlines: Deadlines) {
        match (self.files.find(file), deadlines == Deadlines::default()) {
            (Some(place), true) => self.files.remove(place),
            (Some(place), false) => *self.files.get_mut(place) = deadlines,
            (None, true) => {}
            (None, false) => drop(self.files.insert(file, deadlines)),
        }
        self.promise_fsync(DeadlineHolder::File(file), deadlines.fsync);
    }

    /// An fsync deadline, or none, was promised from now on.
    pub fn promise_fsync(&mut self, promise: DeadlineHolder, fsync: Option<Span>) {
        self.fsyncs.retain(|&(_, other)| other != promise);
        if let Some(deadline) = fsync {
            let place = self.fsyncs.partition_point(|&(other, _)| other <= deadline);
            self.fsyncs.insert(place, (deadline, promise));
        }
    }

    /// The deadline of an fsync, and the file or account that has it; `None` if neither file nor account have one.
    pub fn fsync(&self, account: AccountId, file: FileId) -> Option<(Span, DeadlineHolder)> {
        let of_account = || self.account(account).fsync.map(|deadline| (deadline, DeadlineHolder::Account(account)));
        self.file(file).fsync.map(|deadline| (deadline, DeadlineHolder::File(file))).or_else(of_account)
    }

    /// The deadline of a read.
    pub fn read(&self, account: AccountId, file: Option<FileId>) -> Option<Span> {
        file.and_then(|file| self.file(file).read).or_else(|| self.account(account).read)
    }

    /// The shortest fsync deadline that others have. The default may be any account's.
    pub fn shortest_of_others(&self, promise: DeadlineHolder) -> Option<Span> {
        let is_others = |&&(_, other): &&(Span, DeadlineHolder)| other != promise || promise == DeadlineHolder::Default;
        self.fsyncs.iter().find(is_others).map(|&(deadline, _)| deadline)
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and that turned the test red: one's own promise counts as another's; a promise that is
    //! changed leaves the old one behind; the account's deadline goes before the file's.

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_map(
            steps in proptest::collection::vec((0..4u32, any::<bool>(), proptest::option::of(1..50u64)), 1..60),
        ) {
            let mut book = DeadlineBook::default();
            let mut map = BTreeMap::from([((2, 0), Span::from_millis(20))]);
            book.promise_fsync(DeadlineHolder::Default, Some(Span::from_millis(20)));
            for (number, is_account, milliseconds) in steps {
                let (account, file) = (AccountId(number), FileId(u64::from(number)));
                let fsync = milliseconds.map(Span::from_millis);
                let deadlines = Deadlines { fsync, read: fsync, ..Deadlines::default() };
                match is_account {
                    true => book.promise_account(account, deadlines),
                    false => book.promise_file(file, deadlines),
                }
                match fsync {
                    Some(deadline) => map.insert((u8::from(!is_account), number), deadline),
                    None => map.remove(&(u8::from(!is_account), number)),
                };
                let shortest = |but| map.iter().filter(|&(&who, _)| Some(who) != but).map(|(_, &span)| span).min();
                prop_assert_eq!(book.shortest_of_others(DeadlineHolder::Default), shortest(None));
                for number in 0..4 {
                    let (account, file) = (AccountId(number), FileId(u64::from(number)));
                    prop_assert_eq!(book.shortest_of_others(DeadlineHolder::Account(account)), shortest(Some((0, number))));
                    prop_assert_eq!(book.shortest_of_others(DeadlineHolder::File(file)), shortest(Some((1, number))));
                    let own = map.get(&(1, number)).or(map.get(&(0, number))).copied();
                    prop_assert_eq!(book.fsync(account, file).map(|(deadline, _)| deadline), own);
                    prop_assert_eq!(book.read(account, Some(file)), own);
                    prop_assert_eq!(book.read(account, None), map.get(&(0, number)).copied());
                }
            }
        }
    }
}
