//! System calls at gates, as a scheduler sees them.
//!
//! A **notified** call stops at its entry and is known in full: which thread, which call, which file. It enters the
//! scheduler, and continues when the scheduler admits or releases it. A **word** is one bit for all writes of an
//! account, open or closed: processes look at it and tell no program. So the agent asks the scheduler for them.
//! Whenever an account was seen to write, the question is: *would one more write be admitted?* If so, that call is
//! under way until the next question, or until the account writes no more. So an account that writes through an open
//! word is in a call, and contends like any other that is. If not, the word closes, and the call that asked stands in
//! the scheduler until it is released. Then a few of the waiters at the word are let in. As long as the scheduler would
//! admit one more, twice as many follow each time. When none waits any more, it opens.
//!
//! What a word costs in exactness: between two questions an account may write more than the scheduler would have let
//! it. That write is charged when its pages become dirty, and its account waits longer the next time. To let in all at
//! once would cost most: of five hundred threads each would have written before the first was charged.
//!
//! **Strangers** at a word, which have it mapped as every process may and wait again whenever they are let in, take the
//! places of writers. But they do not write, so the scheduler would admit one more whenever it is asked, and twice as
//! many are let in each [`ADMITTED_LAST`]. After fourteen times, within a seventh of a second, all of 65,000 waiters
//! have been woken. With fewer waiters the word is open by then. By so much strangers delay the writers of an account
//! each time that its call is released.
//!
//! The complication is every thread that does not behave like a call in a book. A thread that enters a call has
//! returned from the one before, whether or not the agent saw it. A thread that is killed while it waits leaves its
//! call in the scheduler; when that is released, it returns at once. When another scheduler takes over, every call
//! continues.
//!
//! All of it is O(log threads) a call.

use plimsoll_core::{AccountId, Call, CallDecision, CallId, CallKind, FileId, Scheduler, Span, ThreadId, Time};
use std::collections::BTreeMap;

/// Bytes of the write in a question for an account: a page, the least that a write dirties.
const ASKED_BYTES: u64 = 4096;
/// Writers that are let in first when a word's call is released. With no more waiters the word opens at once.
const ADMITTED_FIRST: u32 = 4;
/// Time for writers that were let in to be seen writing: some turns of a busy machine's run queue. A writer to memory
/// that is dirty already is never seen.
const ADMITTED_LAST: Span = Span::from_millis(10);
/// The thread of calls that are asked about on an account's behalf.
const NO_THREAD: ThreadId = ThreadId(0);
/// Calls of threads that are gone which the scheduler may have at a time. Beyond that number, places of such threads at
/// their listeners are not freed. So a tenant that kills more and more waiting threads waits itself. All of them are
/// released in a few milliseconds.
const ABANDONED_MAX: usize = 16_384;
/// Numbers from here on are no thread's (PID_MAX_LIMIT: four million).
const UNSEEN_MIN: u32 = 1 << 31;

/// What is to be done at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The notified call that waits at its entry continues.
    GoOn(CallId),
    /// The word of this account's writes closes.
    Close(AccountId),
    /// Lets in that many of the calls waiting at the word. If fewer wait, the word opens, and [`Calls::nobody_waits`]
    /// must be called.
    Admit(AccountId, u32),
    /// It opens.
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

/// An account that writes through its word.
struct Writing {
    /// The call that asked.
    call: Call,
    /// When it was last seen to write, or to have had time for it.
    last: Time,
    /// Number of writers let in the last time, if the word is still closed to the rest.
    admitted: Option<u32>,
}

/// The calls under way at the gates of one scheduler.
#[derive(Default)]
pub struct Calls {
    /// The calls that were let in, by their thread: it is in one at most.
    inside: BTreeMap<ThreadId, Call>,
    held: BTreeMap<CallId, Held>,
    /// Threads that wait, by the call in which they do.
    waiting: BTreeMap<ThreadId, CallId>,
    /// Accounts with a closed word, by the call that asked.
    closed: BTreeMap<AccountId, CallId>,
    /// Accounts that write through their word, which is open or lets some in.
    writing: BTreeMap<AccountId, Writing>,
    /// Of held calls, those with threads that are gone.
    abandoned: usize,
    calls_so_far: u64,
    released: Vec<CallId>,
}

impl Calls {
    /// A number for the next call.
    pub fn next_id(&mut self) -> CallId {
        self.calls_so_far += 1;
        CallId(self.calls_so_far)
    }

    /// A thread stands at the entry of a call. If it must wait, [`Action::GoOn`] says when it need not any more. A
    /// thread in a foreign process namespace cannot be identified, and counts as another one with each call.
    pub fn entered(&mut self, now: Time, scheduler: &mut dyn Scheduler, mut call: Call) -> CallDecision {
        if call.thread == NO_THREAD {
            call.thread = ThreadId(UNSEEN_MIN | call.id.0 as u32);
        }
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

    /// At `seen` a thread was in no call that it had been let into. One that has come to the entry of another since is
    /// in that.
    pub fn outside(&mut self, now: Time, scheduler: &mut dyn Scheduler, thread: ThreadId, seen: Time) {
        if self.inside.get(&thread).is_some_and(|call| call.entered <= seen) {
            self.returned(now, scheduler, thread);
        }
    }

    /// A thread is gone, or does something else: it neither waits at a gate nor is in a call that was let in.
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
            self.abandoned += 1;
        }
    }

    /// Whether the calls of more threads that are gone may be left to the scheduler. O(1).
    pub fn may_abandon(&self) -> bool {
        self.abandoned < ABANDONED_MAX
    }

    /// An account was seen to write: its word may have to close, or may let more writers in. Appends what is to be
    /// done.
    pub fn wrote(
        &mut self,
        now: Time,
        scheduler: &mut dyn Scheduler,
        (account, file): (AccountId, FileId),
        actions: &mut Vec<Action>,
    ) {
        if self.closed.contains_key(&account) {
            return;
        }
        let before = self.writing.remove(&account);
        if let Some(Writing { call, .. }) = &before {
            scheduler.call_returned(now, call);
        }
        let (id, kind) = (self.next_id(), CallKind::Write);
        let length = ASKED_BYTES;
        let call = Call { id, account, thread: NO_THREAD, kind, file, offset: 0, length, entered: now };
        match scheduler.call_entered(now, &call) {
            CallDecision::Admit => {
                let admitted = before.and_then(|before| before.admitted).map(|count| count.saturating_mul(2));
                actions.extend(admitted.map(|count| Action::Admit(account, count)));
                self.writing.insert(account, Writing { call, last: now, admitted });
            }
            CallDecision::Hold => {
                self.closed.insert(account, id);
                self.held.insert(id, Held::Word(call));
                actions.push(Action::Close(account));
            }
        }
    }

    /// Accounts with writers that were let in and have had the time to write, with the file of the question.
    pub fn admitted_before(&self, now: Time) -> impl Iterator<Item = (AccountId, FileId)> + '_ {
        let is_over = move |writing: &Writing| writing.admitted.is_some() && now.since(writing.last) >= ADMITTED_LAST;
        let over = self.writing.iter().filter(move |(_, writing)| is_over(writing));
        over.map(|(&account, writing)| (account, writing.call.file))
    }

    /// When [`admitted_before`](Self::admitted_before) will have an account.
    pub fn admitted_until(&self) -> Option<Time> {
        let admitted = self.writing.values().filter(|writing| writing.admitted.is_some());
        admitted.map(|writing| writing.last + ADMITTED_LAST).min()
    }

    /// Fewer waited at the account's word than were let in: it is open.
    pub fn nobody_waits(&mut self, account: AccountId) {
        if let Some(writing) = self.writing.get_mut(&account) {
            writing.admitted = None;
        }
    }

    /// Asks the scheduler which calls continue, and appends the resulting actions.
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
                    actions.push(Action::Admit(call.account, ADMITTED_FIRST));
                    let admitted = Some(ADMITTED_FIRST);
                    self.writing.insert(call.account, Writing { call, last: now, admitted });
                }
                Some(Held::Abandoned(call)) => {
                    self.abandoned -= 1;
                    scheduler.call_returned(now, &call);
                }
                // Every call that an earlier scheduler held has gone on already.
                None => {}
            }
        }
        self.released = released;
    }

    /// Accounts that were last seen to write before `since` write no more.
    pub fn silent_since(&mut self, now: Time, scheduler: &mut dyn Scheduler, since: Time) {
        let silent = self.writing.iter().filter(|(_, writing)| writing.last < since);
        let silent: Vec<AccountId> = silent.map(|(&account, _)| account).collect();
        silent.into_iter().for_each(|account| self.writes_no_more(now, scheduler, account));
    }

    /// The account does not write through its word any more.
    pub fn writes_no_more(&mut self, now: Time, scheduler: &mut dyn Scheduler, account: AccountId) {
        if let Some(Writing { call, .. }) = self.writing.remove(&account) {
            scheduler.call_returned(now, &call);
        }
    }

    /// Another scheduler takes over, which knows of no call: every call continues.
    pub fn all_go_on(&mut self, actions: &mut Vec<Action>) {
        for (id, held) in std::mem::take(&mut self.held) {
            match held {
                Held::Notified(_) => actions.push(Action::GoOn(id)),
                Held::Word(call) => actions.push(Action::Open(call.account)),
                Held::Abandoned(_) => {}
            }
        }
        let admitted = self.writing.iter().filter(|(_, writing)| writing.admitted.is_some());
        actions.extend(admitted.map(|(&account, _)| Action::Open(account)));
        self.abandoned = 0;
        self.inside.clear();
        self.waiting.clear();
        self.closed.clear();
        self.writing.clear();
    }

    /// The threads that are inside a call.
    pub fn threads_inside(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.inside.keys().copied()
    }

    /// Whether an account has a call under way, and so must not be closed.
    pub fn is_busy(&self, account: AccountId) -> bool {
        let held = self.held.values().any(|held| match held {
            Held::Notified(call) | Held::Abandoned(call) | Held::Word(call) => call.account == account,
        });
        held || self.writing.contains_key(&account) || self.inside.values().any(|call| call.account == account)
    }

    /// Whether the word of an account's writes is closed: the scheduler would hold a write of it.
    pub fn is_closed(&self, account: AccountId) -> bool {
        self.closed.contains_key(&account)
    }

    /// Threads and accounts that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.closed.len()
    }
}

#[cfg(test)]
mod tests;
