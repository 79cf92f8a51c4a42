//! Accounts, to which I/O is charged, and the account of each task.
//!
//! An account is one bit of a mask of causes, so there are 62 at once. Number 0 is **others**: every process that is
//! registered nowhere. A thread's registration takes precedence over its process's, and that over its cgroup's.
//! Children inherit the registration of their creator at fork, and keep it over exec and setuid. What a process is
//! registered as holds for it and for what it forks from then on, not for the children that it has.
//!
//! When an account has ended, its registrations mean no account from that moment on, and are taken out of the
//! tables later ([`AccountsOf::unregister`]). Pages that it dirtied may still wait to be written. Its number is used
//! again when both are gone, which a **survey** finds out, at the earliest [`Options::recycle_after`](crate::Options)
//! later. Until then no other account has it; a tag older than an account never means that account.

use crate::Counters;
use crate::error::TagsError;
use crate::shared::{ACCOUNT_OTHERS, ACCOUNTS, COUNTERS_UNKNOWN, Group, Owner, Plain, Registration, State};
use crate::source::{Source, Table};
use crate::survey::{EndedRegistration, Survey};
use plimsoll_core::{AccountId, Span, Time};
use std::collections::BTreeMap;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// An account that is open or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountInfo {
    /// Its number: the bit in masks of causes.
    pub account: AccountId,
    /// The name it was opened with; of an account that a process got by itself, the process's name then.
    pub name: String,
    /// The process that it was opened for by itself.
    pub process: Option<u32>,
}

/// An account with a number that is free again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The account that it was.
    pub info: AccountInfo,
    /// What it caused in all.
    pub counters: Counters,
}

/// The accounts of one device's tags.
pub struct Accounts {
    recycle_after: Span,
    /// Names of accounts that were opened here.
    names: BTreeMap<u32, String>,
    /// Since when each account is known to have ended.
    ended: BTreeMap<u32, Time>,
}

impl Accounts {
    pub(crate) fn new(recycle_after: Span) -> Accounts {
        Accounts { recycle_after, names: BTreeMap::new(), ended: BTreeMap::new() }
    }
}

/// The accounts of a device's tags, to be changed: [`Tags::accounts`](crate::Tags::accounts).
pub struct AccountsOf<'a> {
    pub(crate) accounts: &'a mut Accounts,
    pub(crate) source: &'a mut dyn Source,
}

impl AccountsOf<'_> {
    /// The account of every process that is registered nowhere.
    pub const OTHERS: AccountId = AccountId(ACCOUNT_OTHERS);

    /// Opens an account.
    ///
    /// # Errors
    /// [`TagsError::NoAccountFree`] if 61 are open or still carried: the caller's tenant stays with the others.
    pub fn open(&mut self, name: &str) -> Result<AccountId, TagsError> {
        let free = self.word(offset_of!(State, free_accounts));
        loop {
            let mask = free.load(Ordering::SeqCst);
            if mask == 0 {
                let ending = self.word(offset_of!(State, ended_accounts)).load(Ordering::SeqCst).count_ones();
                let open = ACCOUNTS - ending;
                return Err(TagsError::NoAccountFree { name: name.to_owned(), open, ending, allowed: ACCOUNTS });
            }
            let account = mask.trailing_zeros();
            if free.fetch_and(!(1 << account), Ordering::SeqCst) & 1 << account != 0 {
                self.begin(account);
                self.accounts.names.insert(account, name.to_owned());
                return Ok(AccountId(account));
            }
        }
    }

    fn begin(&self, account: u32) {
        let since = self.word(offset_of!(State, since_ns) + account as usize * 8);
        since.store(crate::now().as_nanos(), Ordering::SeqCst);
    }

    /// Makes the thread with number `thread` part of `account`. It and what it creates are so from their next I/O on.
    ///
    /// # Errors
    /// [`TagsError::Nobody`] if there is no such thread, [`TagsError::NotOpen`] if there is no such account.
    pub fn register_thread(&mut self, account: AccountId, thread: u32) -> Result<(), TagsError> {
        if !Path::new(&format!("/proc/{thread}")).exists() {
            return Err(TagsError::Nobody { what: format!("thread {thread}") });
        }
        self.register(Table::Threads, account, &thread.bytes()).map(drop)
    }

    /// Makes process `process` part of `account`, with all its threads that are not registered themselves.
    ///
    /// # Errors
    /// As of [`register_thread`](Self::register_thread).
    pub fn register_process(&mut self, account: AccountId, process: u32) -> Result<(), TagsError> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        if !status.lines().any(|line| line.strip_prefix("Tgid:").is_some_and(|id| id.trim() == process.to_string())) {
            return Err(TagsError::Nobody { what: format!("process {process}") });
        }
        let before = self.register(Table::Processes, account, &process.bytes())?;
        if is_ending(process) {
            // Its end may have been seen before there was anything to take out, and its number will be another one's.
            self.source.delete(Table::Processes, &process.bytes())?;
            self.forget();
            return Err(TagsError::Nobody { what: format!("process {process}") });
        }
        if let Some(before) = before.filter(|it| it.is_automatic != 0) {
            self.word(offset_of!(State, ended_accounts)).fetch_or(1 << before.account, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Registers the cgroup with directory `path`, and all below it, as `account`: version 2, or any hierarchy of
    /// version 1 with controllers.
    ///
    /// # Errors
    /// [`TagsError::Nobody`] if that is not the directory of such a cgroup, [`TagsError::NotOpen`] if there is no such
    /// account.
    pub fn register_cgroup(&mut self, account: AccountId, path: &Path) -> Result<(), TagsError> {
        let key = Group::of(path)?.bytes();
        self.register(Table::Cgroups, account, &key).map(drop)
    }

    /// Gives back what was registered under the key.
    fn register(&mut self, table: Table, account: AccountId, key: &[u8]) -> Result<Option<Registration>, TagsError> {
        if account != Self::OTHERS && !self.is_open(account) {
            return Err(TagsError::NotOpen { account: account.0 });
        }
        let before = self.source.lookup(table, key)?;
        let registration = Registration { account: account.0, is_automatic: 0 };
        self.source.update(table, key, &registration.bytes())?;
        if table == Table::Cgroups && before.is_none() {
            self.word(offset_of!(State, cgroups)).fetch_add(1, Ordering::SeqCst);
        }
        self.forget();
        Ok(before.and_then(|bytes| Registration::take(&mut &bytes[..])))
    }

    fn is_open(&self, account: AccountId) -> bool {
        let ended = self.word(offset_of!(State, ended_accounts)).load(Ordering::SeqCst);
        self.accounts.names.contains_key(&account.0) && ended >> account.0 & 1 == 0
    }

    /// What tasks remember of themselves is looked up again.
    fn forget(&self) {
        self.word(offset_of!(State, generation)).fetch_add(1, Ordering::SeqCst);
    }

    /// Ends `account`. Its registered processes then belong to their other registration or to the others (without the
    /// programs, once [`unregister`](Self::unregister) has removed them). The number comes free in a later
    /// [`recycle`](Self::recycle). O(1).
    ///
    /// # Errors
    /// [`TagsError::NotOpen`] if there is no such account.
    pub fn close(&mut self, account: AccountId) -> Result<(), TagsError> {
        if !self.is_open(account) {
            return Err(TagsError::NotOpen { account: account.0 });
        }
        self.word(offset_of!(State, ended_accounts)).fetch_or(1 << account.0, Ordering::SeqCst);
        self.forget();
        Ok(())
    }

    /// Removes the registrations of ended accounts that a [survey](Survey::registrations) found. A task that is
    /// registered as another account by now stays. Returns how many were taken out. O(registrations that are given).
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel refuses it.
    pub fn unregister(&mut self, registrations: &[EndedRegistration]) -> Result<usize, TagsError> {
        let ended = self.word(offset_of!(State, ended_accounts)).load(Ordering::SeqCst);
        let mut count = 0;
        for EndedRegistration { table, key } in registrations {
            let found = self.source.lookup(*table, key)?.and_then(|value| Registration::take(&mut &value[..]));
            let has_ended = found.is_some_and(|it| ended >> it.account & 1 == 1);
            if has_ended && self.source.delete(*table, key)? {
                count += 1;
                if *table == Table::Cgroups {
                    self.word(offset_of!(State, cgroups)).fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
        if count > 0 {
            // Where every process has an account, a process of an ended account gets one of its own now.
            self.forget();
        }
        Ok(count)
    }

    /// Removes registrations of accounts that ended long enough ago. [Frees](Self::free) the numbers of those that
    /// nothing carries any more, and answers them. To be called every few seconds. O(registrations, dirty pages and
    /// blocks of metadata), if one has ended.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel refuses to look.
    pub fn recycle(&mut self) -> Result<Vec<Ended>, TagsError> {
        let ended = self.ended();
        if ended == 0 {
            return Ok(Vec::new());
        }
        let survey = Survey::of(self.source);
        loop {
            let registrations = survey.registrations(ended)?;
            if registrations.is_empty() {
                break;
            }
            self.unregister(&registrations)?;
        }
        self.free(ended & !survey.carried(ended)?)
    }

    /// The mask of accounts that ended long enough ago for their numbers to be used again.
    pub fn ended(&mut self) -> u64 {
        let now = crate::now();
        let ended = self.word(offset_of!(State, ended_accounts)).load(Ordering::SeqCst);
        let is_due = |account: &u32| {
            let since = *self.accounts.ended.entry(*account).or_insert(now);
            now.since(since) >= self.accounts.recycle_after
        };
        bits(ended).filter(is_due).fold(0, |due, account| due | 1 << account)
    }

    /// Frees the numbers of ended accounts that a later survey has found neither [registered](Survey::registrations)
    /// nor [carried](Survey::carried). Answers them.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel refuses to forget one.
    pub fn free(&mut self, accounts: u64) -> Result<Vec<Ended>, TagsError> {
        let free = accounts & self.word(offset_of!(State, ended_accounts)).load(Ordering::SeqCst);
        let mut gone = Vec::new();
        for account in bits(free) {
            let (info, counters) = (self.info(account)?, self.source.counters(account)?);
            gone.push(Ended { info, counters });
            self.source.reset_counters(account)?;
            self.source.update(
                Table::Owners,
                &account.bytes(),
                &Owner { process: 0, spare: 0, name: [0; 16] }.bytes(),
            )?;
            self.accounts.names.remove(&account);
            self.accounts.ended.remove(&account);
            // From now on older tags do not mean this number, whichever account gets it.
            self.begin(account);
        }
        self.word(offset_of!(State, ended_accounts)).fetch_and(!free, Ordering::SeqCst);
        self.word(offset_of!(State, free_accounts)).fetch_or(free, Ordering::SeqCst);
        Ok(gone)
    }

    /// All accounts that are open or still carried, the others among them.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn list(&self) -> Result<Vec<AccountInfo>, TagsError> {
        let taken = !self.word(offset_of!(State, free_accounts)).load(Ordering::SeqCst) & ((1 << ACCOUNTS) - 1);
        bits(taken).map(|account| self.info(account)).collect()
    }

    fn info(&self, account: u32) -> Result<AccountInfo, TagsError> {
        if account == ACCOUNT_OTHERS {
            return Ok(AccountInfo { account: Self::OTHERS, name: "others".to_owned(), process: None });
        }
        if let Some(name) = self.accounts.names.get(&account) {
            return Ok(AccountInfo { account: AccountId(account), name: name.clone(), process: None });
        }
        let owner = self.source.lookup(Table::Owners, &account.bytes())?;
        let owner = owner.and_then(|bytes| Owner::take(&mut &bytes[..]));
        let name = owner.map_or(Vec::new(), |owner| owner.name.into_iter().take_while(|byte| *byte != 0).collect());
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok(AccountInfo { account: AccountId(account), name, process: owner.map(|owner| owner.process) })
    }

    /// What `account` has caused since it was opened.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn counters(&self, account: AccountId) -> Result<Counters, TagsError> {
        self.source.counters(account.0)
    }

    /// What has no known cause.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn unknown(&self) -> Result<Counters, TagsError> {
        self.source.counters(COUNTERS_UNKNOWN)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.source.state().word(offset)
    }
}

fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).filter(move |bit| mask >> bit & 1 == 1)
}
/// `PF_EXITING` of the kernel's `sched.h`: the thread is on its way out.
const EXITING: u64 = 4;

/// Whether all threads of a process have ended, or are about to.
fn is_ending(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    !threads.flatten().any(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| !has_ended(&stat)))
}

/// Whether a thread with this `/proc/PID/task/TID/stat` has ended or is about to. One that cannot be read is taken to
/// run.
fn has_ended(stat: &str) -> bool {
    // The name may have anything in it. Then: state, parent, group, session, terminal, its group, flags.
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let is_dead = matches!(fields.next(), Some("Z" | "X"));
    is_dead || fields.nth(5).and_then(|flags| flags.parse().ok()).is_some_and(|flags: u64| flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    /// Planted break: its flags are not looked at, or another field.
    #[test]
    fn a_task_that_is_about_to_end_is_known_by_state_or_flags() {
        let stat = |state: &str, flags: u64| format!("42 (a) b (c)) {state} 1 42 42 0 -1 {flags} 0 0 0 0 0");
        let ended = [("R", 0), ("S", 4_194_304), ("Z", 0), ("X", 0), ("R", 4_194_308), ("D", 4)];
        assert_eq!(ended.map(|(state, flags)| has_ended(&stat(state, flags))), [false, false, true, true, true, true]);
        assert!(!has_ended(""), "what cannot be read is taken to run");
    }

    #[test]
    fn a_process_that_has_ended_and_is_not_waited_for_is_ending() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
        assert!(is_ending(child.id()), "it is a zombie now");
        child.wait().unwrap();
    }
}
