//! Blocks of which a front end changes a part: it reads them, and writes them back.
//!
//! **Intuition.** What another session changes between the read and the write would be undone by it. So a front end
//! claims the blocks first, and gives them back when it has written them.
//!
//! **Rule.** A front end that claims blocks has them when every earlier change of them is over. Later changes wait
//! until the blocks are given back. Claims and the changes that wait have numbers, in the order of their coming, and
//! none waits for a higher one. So no two wait for each other, and none is overtaken for ever. Reads wait for none of
//! them: they find the blocks before or after.
//!
//! **Cost.** Nothing but a look at a length while no blocks are claimed. To claim takes O(requests under way). The end
//! of a change or of a claim takes O(log n + those in its way), where n is claims and changes that wait
//! ([`stretches`](super::orphans::stretches)).

use super::cached::OF_CACHE;
use super::core::Core;
use super::front_end::{Finished, Payload, Submission};
use super::orphans::stretches::{Stretch, Stretches};
use super::port::Seat;
use super::request::Request;
use crate::read_ahead_requests::OF_READ_AHEAD;
use plimsoll_core::{AccountId, Operation};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// A front end, and what it calls a claim and the requests that it makes under it.
type Owner = (u32, u64);

/// Where a submission comes from: its front end's seat, as far as it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) front_end: u32,
    pub(super) volume: u32,
    pub(super) session: AccountId,
    pub(super) reader: Option<u32>,
}

impl Origin {
    pub(super) fn of(seat: &Seat) -> Origin {
        let Seat { index, volume, session, reader, .. } = *seat;
        Origin { front_end: index, volume, session, reader }
    }
}

/// A claim.
struct Claim {
    owner: Owner,
    /// Changes and claims that came before it and are not over.
    waits_for: u32,
}

/// A change that waits for claims.
pub(super) struct Held<T> {
    stretch: Stretch,
    number: u64,
    waits_for: u32,
    pub(super) change: T,
}

/// See the module's text; `T` is what a change is to the engine.
pub(super) struct Claims<T> {
    numbers: u64,
    claims: Stretches<Claim>,
    held: Stretches<Held<T>>,
    /// Where each claim is.
    by_owner: BTreeMap<Owner, (Stretch, u64)>,
}

impl<T> Default for Claims<T> {
    fn default() -> Self {
        let (claims, held) = (Stretches::default(), Stretches::default());
        Claims { numbers: 0, claims, held, by_owner: BTreeMap::new() }
    }
}

impl<T> Claims<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// Whether a request is made under a claim of its front end's.
    pub(super) fn is_owned(&self, owner: Owner) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// Has a change wait if it has to, or gives it back.
    pub(super) fn hold(&mut self, stretch: Stretch, owner: Owner, change: T) -> Option<T> {
        let waits_for = if self.is_owned(owner) { 0 } else { self.claims.count(stretch) };
        if waits_for == 0 {
            return Some(change);
        }
        self.numbers += 1;
        let number = self.numbers;
        self.held.insert(stretch, number, Held { stretch, number, waits_for, change });
        None
    }

    /// Claims blocks, of which `under_way` changes are under way under no claim. Says whether the owner has them at once.
    pub(super) fn claim(&mut self, stretch: Stretch, owner: Owner, under_way: u32) -> bool {
        let waits_for = under_way + self.held.count(stretch) + self.claims.count(stretch);
        self.numbers += 1;
        self.claims.insert(stretch, self.numbers, Claim { owner, waits_for });
        self.by_owner.insert(owner, (stretch, self.numbers));
        waits_for == 0
    }

    /// A change is over that was under way under no claim. Gives the owners that have their blocks now.
    pub(super) fn change_ended(&mut self, stretch: Stretch) -> Vec<Owner> {
        self.one_less(stretch, 0)
    }

    /// Of the claims with a higher number than `number` in the way of `stretch`, each that waits does so for one less.
    fn one_less(&mut self, stretch: Stretch, number: u64) -> Vec<Owner> {
        let mut granted = Vec::new();
        self.claims.visit(stretch, |place, claim| {
            if place.3 > number && claim.waits_for > 0 {
                claim.waits_for -= 1;
                if claim.waits_for == 0 {
                    granted.push((place.3, claim.owner));
                }
            }
        });
        granted.sort_unstable();
        granted.into_iter().map(|(_, owner)| owner).collect()
    }

    /// The owner gives its blocks back. Gives the changes that go on, and the owners that have their blocks now.
    pub(super) fn give_back(&mut self, owner: Owner) -> (Vec<T>, Vec<Owner>) {
        let Some((stretch, number)) = self.by_owner.remove(&owner) else { return (Vec::new(), Vec::new()) };
        self.claims.remove(stretch, number);
        let over = self.held.take_of(stretch, |held_number, held| {
            held.waits_for -= u32::from(number < held_number);
            held.waits_for == 0
        });
        (over.into_iter().map(|held| held.change).collect(), self.one_less(stretch, number))
    }

    /// Takes out changes that wait and are abandoned. Gives them, and the owners that have their blocks now.
    pub(super) fn drop_held(&mut self, is_meant: impl Fn(&T) -> bool) -> (Vec<T>, Vec<Owner>) {
        let dropped = self.held.take_if(|held| is_meant(&held.change));
        let mut granted = Vec::new();
        let mut changes = Vec::new();
        for Held { stretch, number, change, .. } in dropped {
            granted.append(&mut self.one_less(stretch, number));
            changes.push(change);
        }
        (changes, granted)
    }
}

/// The bytes of a change.
fn stretch(volume: u32, start: u64, length: u64) -> Stretch {
    Stretch { volume, start, end: start + length }
}

fn overlap(one: Stretch, other: Stretch) -> bool {
    one.volume == other.volume && one.start.max(other.start) < one.end.min(other.end)
}

impl Core {
    /// Has a change wait for claims if it has to, or gives it back.
    pub(super) fn hold_for_claims(&mut self, origin: Origin, submission: Submission) -> Option<Submission> {
        if self.claims.is_empty() || !submission.operation.is_write() {
            return Some(submission);
        }
        let (owner, bytes) =
            ((origin.front_end, submission.token), stretch(origin.volume, submission.offset, submission.length.into()));
        self.claims.hold(bytes, owner, (origin, submission)).map(|(_, submission)| submission)
    }

    /// Lets a submission that is in order on its way.
    pub(super) fn submit_checked(&mut self, origin: Origin, submission: Submission) {
        let Origin { front_end, volume, session, reader } = origin;
        if self.volumes[volume].cache.is_some() {
            debug_assert!(!matches!(submission.payload, Payload::Volume(_)), "what is read is not there");
            return self.submit_to_cache(volume, (front_end, session), submission);
        }
        let index = self.requests.insert(Request::new(front_end, volume, session, submission, self.now));
        if !self.hold(index, reader) {
            self.begin(index, reader);
        }
    }

    /// The front end at `seat` wants to change a part of these blocks under requests that it calls `token`. It hears of
    /// `token` when it has them. O(requests under way).
    pub(super) fn claim(&mut self, seat: &Seat, token: u64, offset: u64, length: u64) {
        let (owner, bytes) = ((seat.index, token), stretch(seat.volume, offset, length));
        let changes = self.requests.iter().filter(|(_, request)| {
            let is_of_front_end = !matches!(request.front_end, OF_CACHE | OF_READ_AHEAD);
            let is_change = is_of_front_end && request.operation.is_write();
            is_change
                && overlap(bytes, stretch(request.volume, request.offset, request.length.into()))
                && !self.claims.is_owned((request.front_end, request.token))
        });
        let cached = self.volumes[seat.volume].cache.iter().flat_map(|cache| cache.changes());
        let cached = cached.filter(|(owner, offset, length)| {
            overlap(bytes, stretch(seat.volume, *offset, (*length).into())) && !self.claims.is_owned(*owner)
        });
        let under_way = changes.count() + cached.count();
        if self.claims.claim(bytes, owner, under_way as u32) {
            self.tell_owners(vec![owner]);
        }
    }

    /// The front end at `seat` has changed what it had claimed under the name `token`, or has given that up.
    pub(super) fn give_back_claim(&mut self, seat: &Seat, token: u64) {
        let (changes, owners) = self.claims.give_back((seat.index, token));
        for (origin, submission) in changes {
            self.submit_checked(origin, submission);
        }
        self.tell_owners(owners);
    }

    /// A change of a front end's is over.
    pub(super) fn change_ended(&mut self, volume: u32, owner: (u32, u64), offset: u64, length: u32) {
        if !self.claims.is_empty() && !self.claims.is_owned(owner) {
            let owners = self.claims.change_ended(stretch(volume, offset, length.into()));
            self.tell_owners(owners);
        }
    }

    /// Ends the changes that wait for claims and are abandoned.
    pub(super) fn drop_held_for_claims(&mut self, is_meant: impl Fn(u32, u64) -> bool) {
        if self.claims.is_empty() {
            return;
        }
        let (changes, owners) =
            self.claims.drop_held(|(origin, submission)| is_meant(origin.front_end, submission.token));
        for (origin, Submission { token, operation, length, payload, .. }) in changes {
            let finished = Finished { token, operation, length, result: Err(Errno::CANCELED), payload };
            self.finished.push((origin.front_end, finished));
        }
        self.tell_owners(owners);
    }

    fn tell_owners(&mut self, owners: Vec<Owner>) {
        for (front_end, token) in owners {
            let (operation, payload) = (Operation::Flush, Payload::None);
            self.finished.push((front_end, Finished { token, operation, length: 0, result: Ok(()), payload }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is done to the claims, and to the oracle: a list in the order of coming, in which each waits for those
    /// before.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Change(u64, u64),
        Claim(u64, u64),
        /// The change or claim that began this many ago ends, if it has begun.
        End(usize),
        /// A change that waits is dropped.
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = || (0..12u64, 1..5u64);
        prop_oneof![
            bytes().prop_map(|(start, length)| Step::Change(start, length)),
            bytes().prop_map(|(start, length)| Step::Claim(start, length)),
            (0..8usize).prop_map(Step::End),
            (0..8usize).prop_map(Step::End),
            (0..8usize).prop_map(Step::Drop),
        ]
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Entry {
        id: u64,
        bytes: Stretch,
        is_claim: bool,
    }

    /// The entries of the list that run: a change if no claim before it has some of its bytes, a claim if nothing
    /// before it has.
    fn running(list: &[Entry]) -> Vec<u64> {
        let runs = |(index, entry): &(usize, &Entry)| {
            !list[..*index]
                .iter()
                .any(|before| (before.is_claim || entry.is_claim) && overlap(before.bytes, entry.bytes))
        };
        list.iter().enumerate().filter(runs).map(|(_, entry)| entry.id).collect()
    }

    proptest! {
        /// Planted breaks that were seen red: a claim does not wait for changes that wait; what is dropped is waited for.
        /// Promise: nbd-any-bytes.
        #[test]
        fn whoever_waits_does_so_for_those_who_came_before(steps in prop::collection::vec(step(), 1..60)) {
            let (mut claims, mut list, mut now_running) = (Claims::default(), Vec::<Entry>::new(), Vec::<u64>::new());
            for (id, step) in (0..).zip(steps) {
                let (mut changes, mut owners) = (Vec::new(), Vec::new());
                match step {
                    Step::Change(start, length) => {
                        let bytes = Stretch { volume: 0, start, end: start + length };
                        list.push(Entry { id, bytes, is_claim: false });
                        changes.extend(claims.hold(bytes, (0, id), id));
                    }
                    Step::Claim(start, length) => {
                        let bytes = Stretch { volume: 0, start, end: start + length };
                        let is_under_way = |entry: &&Entry| {
                            !entry.is_claim && now_running.contains(&entry.id) && overlap(entry.bytes, bytes)
                        };
                        let under_way = list.iter().filter(is_under_way).count() as u32;
                        list.push(Entry { id, bytes, is_claim: true });
                        owners.extend(claims.claim(bytes, (0, id), under_way).then_some((0, id)));
                    }
                    Step::End(ago) => {
                        let Some(index) = list.len().checked_sub(ago + 1) else { continue };
                        if !now_running.contains(&list[index].id) {
                            continue;
                        }
                        let entry = list.remove(index);
                        now_running.retain(|other| *other != entry.id);
                        match entry.is_claim {
                            true => (changes, owners) = claims.give_back((0, entry.id)),
                            false => owners = claims.change_ended(entry.bytes),
                        }
                    }
                    Step::Drop(ago) => {
                        let Some(index) = list.len().checked_sub(ago + 1) else { continue };
                        let entry = list[index];
                        if entry.is_claim || now_running.contains(&entry.id) {
                            continue;
                        }
                        list.remove(index);
                        let dropped;
                        (dropped, owners) = claims.drop_held(|change| *change == entry.id);
                        prop_assert_eq!(dropped, [entry.id]);
                    }
                }
                now_running.extend(changes.into_iter().chain(owners.into_iter().map(|owner| owner.1)));
                now_running.sort_unstable();
                prop_assert_eq!(&now_running, &running(&list), "{:?}", list);
            }
        }
    }
}
