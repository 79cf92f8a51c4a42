//! Blocks that a front end changes in part: it reads them and writes them back.
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

use super::ground::Ground;
use super::orphans::stretches::{Stretch, Stretches};
use crate::seat::Seat;
use crate::submission::{Finished, Submission};
use plimsoll_core::AccountId;
use rustix::io::Errno;
use std::collections::BTreeMap;

/// A front end, and what it calls a claim and the requests that it makes under it.
type ClaimOwner = (u32, u64);

/// Where a submission comes from: its front end's seat, as far as it is needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) front_end: u32,
    pub(crate) volume: u32,
    pub(crate) session: AccountId,
    pub(crate) reader: Option<u32>,
}

impl Origin {
    pub(crate) fn of(seat: &Seat) -> Origin {
        let Seat { index, volume, session, reader, .. } = *seat;
        Origin { front_end: index, volume, session, reader }
    }
}

/// A claim.
struct Claim {
    owner: ClaimOwner,
    /// Changes and claims that came before it and are not over.
    waits_for: u32,
}

/// A change that waits for claims.
pub(crate) struct WaitingChange<T> {
    stretch: Stretch,
    number: u64,
    waits_for: u32,
    pub(crate) change: T,
}

/// See the module's text; `T` is what a change is to the engine.
pub(crate) struct Claims<T> {
    numbers: u64,
    claims: Stretches<Claim>,
    held: Stretches<WaitingChange<T>>,
    /// Where each claim is.
    by_owner: BTreeMap<ClaimOwner, (Stretch, u64)>,
}

impl<T> Default for Claims<T> {
    fn default() -> Self {
        let (claims, held) = (Stretches::default(), Stretches::default());
        Claims { numbers: 0, claims, held, by_owner: BTreeMap::new() }
    }
}

impl<T> Claims<T> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// Whether a request is made under a claim of its front end's.
    pub(crate) fn is_owned(&self, owner: ClaimOwner) -> bool {
        self.by_owner.contains_key(&owner)
    }

    /// Has a change wait if it has to, or gives it back.
    pub(crate) fn hold(&mut self, stretch: Stretch, owner: ClaimOwner, change: T) -> Option<T> {
        let waits_for = if self.is_owned(owner) { 0 } else { self.claims.count(stretch) };
        if waits_for == 0 {
            return Some(change);
        }
        self.numbers += 1;
        let number = self.numbers;
        self.held.insert(stretch, number, WaitingChange { stretch, number, waits_for, change });
        None
    }

    /// Claims blocks, of which `under_way` changes are under way under no claim. Says whether the owner has them at
    /// once.
    pub(crate) fn claim(&mut self, stretch: Stretch, owner: ClaimOwner, under_way: u32) -> bool {
        let waits_for = under_way + self.held.count(stretch) + self.claims.count(stretch);
        self.numbers += 1;
        self.claims.insert(stretch, self.numbers, Claim { owner, waits_for });
        self.by_owner.insert(owner, (stretch, self.numbers));
        waits_for == 0
    }

    /// A change is over that was under way under no claim. Gives the owners that have their blocks now.
    pub(crate) fn change_ended(&mut self, stretch: Stretch) -> Vec<ClaimOwner> {
        self.one_less(stretch, 0)
    }

    /// Of the claims with a higher number than `number` in the way of `stretch`, each that waits does so for one less.
    fn one_less(&mut self, stretch: Stretch, number: u64) -> Vec<ClaimOwner> {
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
    pub(crate) fn give_back(&mut self, owner: ClaimOwner) -> (Vec<T>, Vec<ClaimOwner>) {
        let Some((stretch, number)) = self.by_owner.remove(&owner) else { return (Vec::new(), Vec::new()) };
        self.claims.remove(stretch, number);
        let over = self.held.take_of(stretch, |held_number, held| {
            held.waits_for -= u32::from(number < held_number);
            held.waits_for == 0
        });
        (over.into_iter().map(|held| held.change).collect(), self.one_less(stretch, number))
    }

    /// Takes out changes that wait and are abandoned. Gives them, and the owners that have their blocks now.
    pub(crate) fn drop_held(&mut self, is_meant: impl Fn(&T) -> bool) -> (Vec<T>, Vec<ClaimOwner>) {
        let dropped = self.held.take_if(|held| is_meant(&held.change));
        let mut granted = Vec::new();
        let mut changes = Vec::new();
        for WaitingChange { stretch, number, change, .. } in dropped {
            granted.append(&mut self.one_less(stretch, number));
            changes.push(change);
        }
        (changes, granted)
    }
}

/// The bytes of a change.
pub(crate) fn stretch(volume: u32, start: u64, length: u64) -> Stretch {
    Stretch { volume, start, end: start + length }
}

fn overlap(one: Stretch, other: Stretch) -> bool {
    one.volume == other.volume && one.start.max(other.start) < one.end.min(other.end)
}

impl Claims<(Origin, Submission)> {
    /// Has a change wait for claims if it has to, or gives it back.
    #[inline]
    pub(crate) fn hold_change(&mut self, origin: Origin, submission: Submission) -> Option<Submission> {
        if self.is_empty() || !submission.operation.is_write() {
            return Some(submission);
        }
        let owner = (origin.front_end, submission.token);
        let bytes = stretch(origin.volume, submission.offset, submission.length.into());
        self.hold(bytes, owner, (origin, submission)).map(|(_, submission)| submission)
    }

    /// A front end asks to change a part of these bytes, in requests with the claim's name. It hears when it has them.
    /// O(changes under way).
    pub(crate) fn claim_for(
        &mut self,
        ground: &mut Ground,
        owner: ClaimOwner,
        bytes: Stretch,
        changes: impl Iterator<Item = (ClaimOwner, Stretch)>,
    ) {
        let in_the_way = changes.filter(|&(owner, change)| overlap(bytes, change) && !self.is_owned(owner));
        let under_way = in_the_way.count() as u32;
        if self.claim(bytes, owner, under_way) {
            ground.tell(owner);
        }
    }

    /// A front end has changed what it had claimed, or has given that up. Gives the changes that go on.
    pub(crate) fn give_back_claim(&mut self, ground: &mut Ground, owner: ClaimOwner) -> Vec<(Origin, Submission)> {
        let (changes, owners) = self.give_back(owner);
        owners.into_iter().for_each(|owner| ground.tell(owner));
        changes
    }

    /// A change of a front end's is over.
    #[inline]
    pub(crate) fn answered(&mut self, ground: &mut Ground, owner: ClaimOwner, bytes: Stretch) {
        if !self.is_empty() && !self.is_owned(owner) {
            self.change_ended(bytes).into_iter().for_each(|owner| ground.tell(owner));
        }
    }

    /// Ends the changes that wait for claims and are abandoned.
    pub(crate) fn drop_abandoned(&mut self, ground: &mut Ground, is_meant: impl Fn(u32, u64) -> bool) {
        if self.is_empty() {
            return;
        }
        let (changes, owners) = self.drop_held(|(origin, submission)| is_meant(origin.front_end, submission.token));
        for (origin, Submission { token, operation, length, payload, .. }) in changes {
            let finished = Finished { token, operation, length, result: Err(Errno::CANCELED), payload };
            ground.answers.push((origin.front_end, finished));
        }
        owners.into_iter().for_each(|owner| ground.tell(owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::samples::{answers, ground, submission};
    use crate::submission::Payload;
    use plimsoll_core::Operation;
    use proptest::prelude::*;

    /// Front end 1 claims bytes of which front end 2 changes some; front end 3 comes with two changes and a read.
    ///
    /// Planted breaks: a read waits; the owner is told at once; a change that waits and is abandoned is answered as
    /// done.
    #[test]
    fn a_claim_waits_for_earlier_changes_and_holds_later_ones() {
        let ((mut ground, session), mut claims) = (ground(), Claims::default());
        let bytes = stretch(0, 0, 8192);
        let under_way =
            [((2, 5), stretch(0, 4096, 4096)), ((2, 6), stretch(0, 8192, 4096)), ((2, 7), stretch(1, 0, 9))];
        claims.claim_for(&mut ground, (1, 4), bytes, under_way.into_iter());
        let origin = Origin { front_end: 3, volume: 0, session, reader: None };
        let comes = |token, operation| Submission { token, ..submission(operation, 4096, 4096, Payload::None) };
        let held = [comes(1, Operation::Trim), comes(2, Operation::Trim), comes(3, Operation::Read)]
            .map(|submission| claims.hold_change(origin, submission).is_none());
        assert_eq!(held, [true, true, false]);
        assert!(claims.hold_change(Origin { front_end: 1, ..origin }, comes(4, Operation::Trim)).is_some());
        assert_eq!(answers(&mut ground), []);
        claims.answered(&mut ground, (2, 6), under_way[1].1);
        claims.answered(&mut ground, (2, 5), under_way[0].1);
        assert_eq!(answers(&mut ground), [(1, 4, true)]);
        claims.drop_abandoned(&mut ground, |front_end, token| (front_end, token) == (3, 1));
        assert_eq!(answers(&mut ground), [(3, 1, false)]);
        let goes_on = claims.give_back_claim(&mut ground, (1, 4));
        assert_eq!(goes_on.iter().map(|(_, submission)| submission.token).collect::<Vec<_>>(), [2]);
        assert!(claims.is_empty() && answers(&mut ground).is_empty());
    }

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

    /// The entries of the list that run. A change runs if no claim before it has some of its bytes, a claim if nothing
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
        /// Planted breaks that were seen red: a claim does not wait for changes that wait; what is dropped is waited
        /// for.
        /// Promise: nbd-any-bytes.
        #[test]
        fn a_claim_waits_for_those_before_it(steps in prop::collection::vec(step(), 1..60)) {
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
