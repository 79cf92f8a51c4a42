//! All tenants' listeners with their keepers: in turn, and none for longer than its share.
//!
//! Each tenant has a listener of its own, so a flood of calls waits in the kernel at its own door. In a turn the
//! listeners with waiting calls are looked at one after the other, one call each, round and round. The turn ends when
//! no call waits or its number of looks is used up. That number is one for all listeners: however many are flooded, a
//! turn is short. The next one begins with the listener after the last. In the same way a turn examines a bounded
//! number of held calls to find those that wait no more.

use super::fair::{Round, take_turns};
use super::{HeldCall, Listener, Received, Resumed};
use crate::error::GateError;
use crate::keeper::{Guarded, Keeper, Keepers, Registration};
use crate::words::Lease;
use plimsoll_core::{AccountId, CallDecision, CallId, Span, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::{AsFd, BorrowedFd};

/// How long to leave it at one attempt to start a keeper.
const GUARD_AGAIN: Span = Span::from_secs(1);

/// How long a listener is left to a keeper that was in charge of it. If both receive, both poll first, and the slower
/// one then waits for the tenant's next call.
const HAND_OVER: Span = Span::from_millis(50);

/// A listener's number, never used twice by an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u64);

/// What a turn brought, beside the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Notifications that were received.
    pub notifications: usize,
    /// The turn had no looks left for a listener. Its calls may wait, and are not announced again.
    pub has_more: bool,
    /// When to hear a listener that is left to its keeper until then. Its waiting calls are not announced once more.
    pub again_at: Option<Time>,
    /// Processes that are about to install filters of their own, and wait to be resumed: see
    /// [`Received::Restricts`].
    pub restricting: Vec<(ListenerId, CallId)>,
    /// Listeners that keepers brought back from an earlier agent.
    pub returned: Vec<(ListenerId, Registration)>,
    /// Listeners without a process behind them, or with a failure, which is logged. They are forgotten, with the calls
    /// that were held.
    pub ended: Vec<(ListenerId, Registration)>,
}

struct Member {
    listener: Listener,
    registration: Registration,
    keeper: Option<Keeper>,
    /// When to try for a keeper again, if there is none.
    guard_after: Time,
    /// Until when its keeper may still receive.
    hear_after: Time,
}

/// The listeners of an agent.
pub struct Listeners {
    keepers: Keepers,
    members: BTreeMap<ListenerId, Member>,
    next_id: u64,
    /// The listener that was heard last.
    last: ListenerId,
    /// The held call that the last look ended at. The looks find calls that wait no more.
    seen: Option<(ListenerId, CallId)>,
    /// Calls that go on by themselves, by when.
    due: BTreeSet<(Time, ListenerId, CallId)>,
    /// When the last turn was, and since when the lease had lasted then.
    turned: Time,
    lease_since: Time,
}

impl Listeners {
    /// None yet.
    pub fn new(keepers: Keepers) -> Listeners {
        Listeners {
            keepers,
            members: BTreeMap::new(),
            next_id: 0,
            last: ListenerId(0),
            seen: None,
            due: BTreeSet::new(),
            turned: Time::ZERO,
            lease_since: Time::ZERO,
        }
    }

    /// Takes a listener in.
    pub fn add(&mut self, now: Time, guarded: Guarded) -> ListenerId {
        let Guarded { listener, registration, keeper } = guarded;
        let guard_after = if keeper.is_some() { now } else { now + GUARD_AGAIN };
        self.insert(Member { listener, registration, keeper, guard_after, hear_after: now })
    }

    /// The listener of that number.
    pub fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.members.get(&id).map(|member| &member.listener)
    }

    /// The same, for changing.
    pub fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.members.get_mut(&id).map(|member| &mut member.listener)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How many listeners of an account there are behind which a process is left.
    pub fn of(&self, account: AccountId) -> usize {
        self.members.values().filter(|member| member.listener.account() == account).count()
    }

    /// Moves one account's listeners to another account from now on.
    pub fn hand_over(&mut self, from: AccountId, to: AccountId) {
        let members = self.members.values_mut().map(|member| &mut member.listener);
        members.filter(|listener| listener.account() == from).for_each(|listener| listener.assign(to));
    }

    /// Lets a held call go on.
    ///
    /// # Errors
    /// As [`Listener::resume`].
    pub fn resume(&mut self, id: ListenerId, call: CallId) -> Result<Resumed, GateError> {
        self.get_mut(id).map_or(Ok(Resumed::Gone), |listener| listener.resume(call))
    }

    /// Lets a held call go on in the first turn at or after `time`.
    pub fn resume_at(&mut self, id: ListenerId, call: CallId, time: Time) {
        self.due.insert((time, id, call));
    }

    /// Examines up to `budget` held calls, beginning after those examined before, and forgets those that were killed or
    /// interrupted. Says which, and whether there are more to look at until all were.
    pub fn take_gone(&mut self, budget: usize) -> (Vec<(ListenerId, CallId)>, bool) {
        let mut gone = Vec::new();
        let (first, mut left) = (self.seen, budget);
        for (&id, member) in self.members.range_mut(first.map_or(ListenerId(0), |(id, _)| id)..) {
            let after = first.filter(|&(seen, _)| seen == id).map(|(_, call)| call);
            let looks = member.listener.take_gone(after, left);
            gone.extend(looks.gone.into_iter().map(|call| (id, call)));
            left -= looks.count;
            if let Some(last) = looks.last {
                self.seen = Some((id, last));
            }
            if left == 0 {
                return (gone, true);
            }
        }
        self.seen = None;
        (gone, false)
    }

    /// Time until which a turn can wait; `None` if no call continues by itself.
    pub fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(time, _, _)| *time)
    }

    /// Waits until a turn has work, one of `others` is readable, or `timeout` has passed.
    ///
    /// # Errors
    /// The kernel cannot poll.
    pub fn wait(&self, others: &[BorrowedFd<'_>], timeout: Span) -> Result<(), GateError> {
        let mut polled = self.polled();
        polled.extend(others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN)));
        wait_for(&mut polled, timeout)
    }

    /// Looks at the listeners in turn, `budget` times in all. `decide` is asked about each call: held calls wait until
    /// they are resumed. When the `lease` ([`GateWords::lease`](crate::GateWords::lease)) has run out nothing is
    /// received: the keepers do, and for a moment after it is renewed they may still.
    ///
    /// # Errors
    /// The kernel cannot poll, or a call that is due cannot be answered.
    pub fn turn(
        &mut self,
        now: Time,
        lease: Lease,
        budget: usize,
        mut decide: impl FnMut(ListenerId, &HeldCall) -> CallDecision,
    ) -> Result<Turn, GateError> {
        let mut turn = Turn::default();
        self.resume_due(now)?;
        self.look_after_keepers(now);
        turn.returned = self.take_back(now);
        (self.turned, self.lease_since) = (now, lease.since);
        if now >= lease.until {
            return Ok(turn);
        }
        turn.again_at = self.members.values().map(|member| self.heard_from(member)).filter(|&from| from > now).min();
        let ready = self.ready()?;
        self.hear(now, ready, budget, &mut turn, &mut decide);
        Ok(turn)
    }

    /// Receives from the listeners that are ready, and asks about each call.
    ///
    /// First all polls, then the answers. To poll a listener, the kernel searches its calls until it has found a new
    /// one and a received one. With ten thousand that wait and none received it goes through all of them.
    fn hear(
        &mut self,
        now: Time,
        ready: Vec<ListenerId>,
        budget: usize,
        turn: &mut Turn,
        decide: &mut dyn FnMut(ListenerId, &HeldCall) -> CallDecision,
    ) {
        let mut calls = Vec::new();
        let Round { last, has_more } = take_turns(ready, budget, |id| {
            let Some(member) = self.members.get_mut(&id) else { return false };
            match member.listener.receive(now) {
                Ok(Received::Call(held)) => calls.push((id, held)),
                Ok(Received::Restricts(call)) => turn.restricting.push((id, call)),
                Ok(Received::Passed) => {}
                Ok(Received::Nothing) => return false,
                Ok(Received::Ended) => {
                    self.end(id, turn);
                    return false;
                }
                Err(error) => {
                    self.give_up(id, &error, turn);
                    return false;
                }
            }
            turn.notifications += 1;
            true
        });
        (self.last, turn.has_more) = (last.unwrap_or(self.last), has_more);
        for (id, held) in calls {
            if self.members.contains_key(&id)
                && decide(id, &held) == CallDecision::Admit
                && let Err(error) = self.resume(id, held.call.id)
            {
                self.give_up(id, &error, turn);
            }
        }
    }

    /// One that cannot be heard holds no other up; its keeper answers.
    fn give_up(&mut self, id: ListenerId, error: &GateError, turn: &mut Turn) {
        let name = self.members.get(&id).map_or("", |member| &member.registration.name);
        tracing::warn!("{name}: {error}");
        self.end(id, turn);
    }

    fn end(&mut self, id: ListenerId, turn: &mut Turn) {
        turn.ended.extend(self.members.remove(&id).map(|member| (id, member.registration)));
    }

    /// Takes the listeners that keepers of an earlier agent offer. A failed offer holds up no listener that is
    /// there: its keeper answers, and comes again.
    fn take_back(&mut self, now: Time) -> Vec<(ListenerId, Registration)> {
        let mut returned = Vec::new();
        loop {
            match self.keepers.accept() {
                Ok(Some((registration, listener, keeper))) => {
                    let (registered, keeper) = (registration.clone(), Some(keeper));
                    let hear_after = now + HAND_OVER;
                    let member = Member { listener, registration, keeper, guard_after: now, hear_after };
                    returned.push((self.insert(member), registered));
                }
                Ok(None) => return returned,
                Err(error) => {
                    tracing::warn!(
                        "cannot take a seccomp listener over from an earlier agent: its keeper lets its \
                                    calls go on: {error}"
                    );
                    return returned;
                }
            }
        }
    }

    /// When its keeper receives nothing any more.
    fn heard_from(&self, member: &Member) -> Time {
        member.hear_after.max(self.lease_since + HAND_OVER)
    }

    fn insert(&mut self, member: Member) -> ListenerId {
        self.next_id += 1;
        let id = ListenerId(self.next_id);
        self.members.insert(id, member);
        id
    }

    fn resume_due(&mut self, now: Time) -> Result<(), GateError> {
        while let Some(&(time, id, call)) = self.due.first().filter(|(time, _, _)| *time <= now) {
            self.due.remove(&(time, id, call));
            self.resume(id, call)?;
        }
        Ok(())
    }

    /// The listeners with something to receive, beginning after the one that was heard last.
    fn ready(&self) -> Result<Vec<ListenerId>, GateError> {
        let mut polled = self.polled();
        wait_for(&mut polled, Span::ZERO)?;
        let ready = self.members.keys().zip(polled.iter().skip(1).step_by(2));
        let ready: BTreeSet<_> = ready.filter(|(_, polled)| !polled.revents().is_empty()).map(|(id, _)| *id).collect();
        let after = ready.range((Excluded(self.last), Unbounded));
        Ok(after.chain(ready.range(..=self.last)).copied().collect())
    }

    /// Where keepers come back, and then for each member its listener and its keeper's line.
    fn polled(&self) -> Vec<PollFd<'_>> {
        let mut polled = vec![PollFd::new(&self.keepers, PollFlags::IN)];
        for member in self.members.values() {
            let is_ours = !member.listener.is_full() && self.turned >= self.heard_from(member);
            let wanted = if is_ours { PollFlags::IN } else { PollFlags::empty() };
            polled.push(PollFd::new(&member.listener, wanted));
            let line = member.keeper.as_ref().map_or(self.keepers.as_fd(), AsFd::as_fd);
            polled.push(PollFd::from_borrowed_fd(line, PollFlags::empty()));
        }
        polled
    }

    fn look_after_keepers(&mut self, now: Time) {
        let lost = |member: &Member| member.keeper.as_ref().is_none_or(|keeper| !keeper.is_alive());
        let lost: Vec<_> = self.members.iter().filter(|(_, member)| lost(member)).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|id| self.guard(now, id));
    }

    fn guard(&mut self, now: Time, id: ListenerId) {
        let Some(member) = self.members.get_mut(&id) else { return };
        member.keeper = None;
        if now < member.guard_after {
            return;
        }
        member.guard_after = now + GUARD_AGAIN;
        match self.keepers.replace(&member.listener, &member.registration) {
            Ok(keeper) => member.keeper = Some(keeper),
            Err(error) => tracing::warn!("{}: {error}", member.registration.name),
        }
    }
}

fn wait_for(polled: &mut [PollFd<'_>], timeout: Span) -> Result<(), GateError> {
    let nanoseconds = timeout.as_nanos();
    let timeout =
        Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 };
    match poll(polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(GateError::step("poll the listeners")(errno)),
    }
}
