//! System calls at gates, as a scheduler sees them.
//!
//! A **notified** call stops at its entry and is known in full: which thread, which call, which file. It enters the
//! scheduler, and goes on when the scheduler admits or releases it. A **word** is one bit for all writes of an account,
//! open or closed: processes look at it and tell nobody. So the scheduler is asked for them: whenever an account was seen
//! to write, *would one more write be admitted?* If so, that call is under way until the next question or until the account
//! writes no more: who writes through an open word is in a call, and contends with others like anybody who is. If not, the
//! word closes, and the call that asked stands in the scheduler until it is released; that opens the word.
//!
//! What a word costs in exactness: between two questions an account may write more than the scheduler would have let it.
//! That is charged when its pages become dirty, and it waits the longer for the next time.
//!
//! The complication is everybody who does not behave like a call in a book. A thread that enters a call has returned
//! from the one before, whether or not anybody saw it. A thread that is killed while it waits leaves its call in the
//! scheduler; when that is released, it returns at once. When another scheduler takes over, everybody goes on.
//!
//! All of it is O(log threads) a call.

use plimsoll_core::{AccountId, Call, CallDecision, CallId, CallKind, FileId, Scheduler, ThreadId, Time};
use std::collections::BTreeMap;

/// Bytes of the write that is asked about on an account's behalf: a page, the least that a write dirties.
const ASKED_BYTES: u64 = 4096;
/// The thread of calls that are asked about on an account's behalf.
const NO_THREAD: ThreadId = ThreadId(0);

/// What is to be done at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The notified call that waits at its entry goes on.
    GoOn(CallId),
    /// The word of this account's writes opens.
    Open(AccountId),
}

/// A call that the scheduler holds.
enum Held {
    /// A thread waits in it.
    Notified(Call),
    /// Its thread is gone.
    Abandoned(Call),
    /// The writes of an account wait at a closed word.
    Word(Call),
}

/// The calls under way at the gates of one scheduler.
#[derive(Default)]
pub struct Calls {
    /// The calls that were let in, by their thread: it is in one at most.
    inside: BTreeMap<ThreadId, Call>,
    held: BTreeMap<CallId, Held>,
    /// Threads that wait, by the call in which they do.
    waiting: BTreeMap<ThreadId, CallId>,
    /// Accounts whose word is closed, by the call that asked.
    closed: BTreeMap<AccountId, CallId>,
    /// Accounts that write through an open word: the call that asked, and when they were last seen to write.
    writing: BTreeMap<AccountId, (Call, Time)>,
    calls_so_far: u64,
    released: Vec<CallId>,
}

impl Calls {
    /// A number for the next call.
    pub fn next_id(&mut self) -> CallId {
        self.calls_so_far += 1;
        CallId(self.calls_so_far)
    }

    /// A thread stands at the entry of a call. If it must wait, [`Action::GoOn`] says when it need not any more.
    pub fn entered(&mut self, now: Time, scheduler: &mut dyn Scheduler, call: Call) -> CallDecision {
        self.thread_gone(now, scheduler, call.thread);
        let decision = scheduler.call_entered(now, &call);
        match decision {
            CallDecision::Admit => drop(self.inside.insert(call.thread, call)),
            CallDecision::Hold => {
                self.waiting.insert(call.thread, call.id);
                self.held.insert(call.id, Held::Notified(call));
            }
        }
        decision
    }

    /// A thread returned from the call that it was let into. One that is in none, or waits at the entry, is left alone.
    pub fn returned(&mut self, now: Time, scheduler: &mut dyn Scheduler, thread: ThreadId) {
        if let Some(call) = self.inside.remove(&thread) {
            scheduler.call_returned(now, &call);
        }
    }

    /// A thread is gone, or does something else: it neither waits at a gate nor is it in a call that was let in.
    pub fn thread_gone(&mut self, now: Time, scheduler: &mut dyn Scheduler, thread: ThreadId) {
        self.returned(now, scheduler, thread);
        if let Some(&id) = self.waiting.get(&thread) {
            self.abandoned(id);
        }
    }

    /// A held call's thread was found to wait no more.
    pub fn abandoned(&mut self, id: CallId) {
        if let Some(held) = self.held.get_mut(&id)
            && let Held::Notified(call) = held
        {
            self.waiting.remove(&call.thread);
            *held = Held::Abandoned(call.clone());
        }
    }

    /// An account was seen to write. Says whether its word must close, which it does until [`Action::Open`].
    pub fn wrote(&mut self, now: Time, scheduler: &mut dyn Scheduler, account: AccountId, file: FileId) -> bool {
        if self.closed.contains_key(&account) {
            return false;
        }
        if let Some((before, _)) = self.writing.remove(&account) {
            scheduler.call_returned(now, &before);
        }
        let (id, kind) = (self.next_id(), CallKind::Write);
        let length = ASKED_BYTES;
        let call = Call { id, account, thread: NO_THREAD, kind, file, offset: 0, length, entered: now };
        match scheduler.call_entered(now, &call) {
            CallDecision::Admit => {
                self.writing.insert(account, (call, now));
                false
            }
            CallDecision::Hold => {
                self.closed.insert(account, id);
                self.held.insert(id, Held::Word(call));
                true
            }
        }
    }

    /// Asks the scheduler whom it lets go on, and appends what is to be done.
    pub fn released(&mut self, now: Time, scheduler: &mut dyn Scheduler, actions: &mut Vec<Action>) {
        let mut released = std::mem::take(&mut self.released);
        scheduler.released_calls(now, &mut released);
        for id in released.drain(..) {
            match self.held.remove(&id) {
                Some(Held::Notified(call)) => {
                    self.waiting.remove(&call.thread);
                    self.inside.insert(call.thread, call);
                    actions.push(Action::GoOn(id));
                }
                Some(Held::Word(call)) => {
                    self.closed.remove(&call.account);
                    actions.push(Action::Open(call.account));
                    self.writing.insert(call.account, (call, now));
                }
                Some(Held::Abandoned(call)) => scheduler.call_returned(now, &call),
                // Whoever was held by a scheduler before this one has gone on already.
                None => {}
            }
        }
        self.released = released;
    }

    /// Accounts that were last seen to write before `since` write no more.
    pub fn silent_since(&mut self, now: Time, scheduler: &mut dyn Scheduler, since: Time) {
        let silent: Vec<AccountId> =
            self.writing.iter().filter(|(_, (_, last))| *last < since).map(|(&account, _)| account).collect();
        silent.into_iter().for_each(|account| self.writes_no_more(now, scheduler, account));
    }

    /// The account does not write through its word any more.
    pub fn writes_no_more(&mut self, now: Time, scheduler: &mut dyn Scheduler, account: AccountId) {
        if let Some((call, _)) = self.writing.remove(&account) {
            scheduler.call_returned(now, &call);
        }
    }

    /// Another scheduler is in charge, which knows of nobody: everybody goes on.
    pub fn all_go_on(&mut self, actions: &mut Vec<Action>) {
        for (id, held) in std::mem::take(&mut self.held) {
            match held {
                Held::Notified(_) => actions.push(Action::GoOn(id)),
                Held::Word(call) => actions.push(Action::Open(call.account)),
                Held::Abandoned(_) => {}
            }
        }
        self.inside.clear();
        self.waiting.clear();
        self.closed.clear();
        self.writing.clear();
    }

    /// The threads that are inside a call.
    pub fn threads_inside(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.inside.keys().copied()
    }

    /// Whether an account has a call under way: as long as it has, it must not be closed.
    pub fn is_busy(&self, account: AccountId) -> bool {
        let held = self.held.values().any(|held| match held {
            Held::Notified(call) | Held::Abandoned(call) | Held::Word(call) => call.account == account,
        });
        held || self.writing.contains_key(&account) || self.inside.values().any(|call| call.account == account)
    }

    /// Threads and accounts that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.closed.len()
    }
}

#[cfg(test)]
mod tests;
