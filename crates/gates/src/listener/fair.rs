//! Work that many ask for, divided in turn.

use std::collections::VecDeque;

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round<Id> {
    /// The one that was looked at last.
    pub(super) last: Option<Id>,
    /// One of them may have more, and there was no look left.
    pub(super) has_more: bool,
}

/// Takes the `ready` ones in turn, again and again, at most `budget` times in all. `look` says whether the one it
/// looked at may have more.
pub(super) fn take_turns<Id: Copy>(ready: Vec<Id>, budget: usize, mut look: impl FnMut(Id) -> bool) -> Round<Id> {
    let (mut waiting, mut last) = (VecDeque::from(ready), None);
    for _ in 0..budget {
        let Some(id) = waiting.pop_front() else { break };
        last = Some(id);
        if look(id) {
            waiting.push_back(id);
        }
    }
    Round { last, has_more: !waiting.is_empty() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Calls that wait behind their doors, and the turns in which they are heard.
    struct Doors {
        waiting: BTreeMap<u64, usize>,
        last: u64,
    }

    impl Doors {
        /// As listeners are: beginning with the one after the last. How often each was looked at, and whether more
        /// wait.
        fn turn(&mut self, budget: usize) -> (BTreeMap<u64, usize>, bool) {
            let ready = self.waiting.iter().filter(|(_, calls)| **calls > 0).map(|(&id, _)| id);
            let (before, after): (Vec<_>, Vec<_>) = ready.partition(|&id| id <= self.last);
            let mut looks: BTreeMap<u64, usize> = BTreeMap::new();
            let round = take_turns([after, before].concat(), budget, |id| {
                *looks.entry(id).or_default() += 1;
                let calls = self.waiting.get_mut(&id).expect("it is ready");
                // Whether it was the last one only the next look tells.
                let had_one = *calls > 0;
                *calls = calls.saturating_sub(1);
                had_one
            });
            self.last = round.last.unwrap_or(self.last);
            (looks, round.has_more)
        }
    }

    /// Broken on purpose and seen red: a budget for each; a turn that begins with the first; one that is heard to the
    /// end before the next.
    /// Promise: gates-floods.
    #[test]
    fn however_many_flood_a_turn_has_its_looks_and_each_listener_a_share() {
        const FLOODING: u64 = 61;
        const BUDGET: usize = 64;
        let waiting = (1..=FLOODING).map(|id| (id, usize::MAX)).chain([(FLOODING + 1, 1)]).collect();
        let mut doors = Doors { waiting, last: 0 };
        let (looks, has_more) = doors.turn(BUDGET);
        assert_eq!(looks.values().sum::<usize>(), BUDGET);
        assert!(has_more && looks[&(FLOODING + 1)] == 1 && looks.values().all(|&looks| looks <= 2), "{looks:?}");
        // More than there are looks: each is heard in one of so many turns.
        let crowd = 10 * BUDGET as u64;
        let mut doors = Doors { waiting: (1..=crowd).map(|id| (id, usize::MAX)).collect(), last: 17 };
        let mut sums: BTreeMap<u64, usize> = BTreeMap::new();
        for _ in 0..10 {
            doors.turn(BUDGET).0.into_iter().for_each(|(id, looks)| *sums.entry(id).or_default() += looks);
        }
        assert!(sums.len() == crowd as usize && sums.values().all(|&looks| looks == 1), "{sums:?}");
    }

    proptest! {
        #[test]
        fn looks_are_bounded_fair_and_enough(
            counts in prop::collection::btree_map(1u64..40, 0usize..30, 0..30), budget in 1usize..50, last in 0u64..40,
        ) {
            let asked: usize = counts.values().sum();
            let mut doors = Doors { waiting: counts.clone(), last };
            let mut turns = 0;
            loop {
                let before = doors.waiting.clone();
                let (looks, has_more) = doors.turn(budget);
                turns += 1;
                let sum: usize = looks.values().sum();
                prop_assert!(sum <= budget && (!has_more || sum == budget));
                // One that still waits was looked at as often as any other, but for the round that was not ended.
                let most = looks.values().max().copied().unwrap_or(0);
                for (id, calls) in &doors.waiting {
                    let its = looks.get(id).copied().unwrap_or(0);
                    prop_assert!(*calls == 0 || its + 1 >= most, "{} {:?} {:?}", id, looks, before);
                }
                if !has_more {
                    break;
                }
            }
            prop_assert!(doors.waiting.values().all(|&calls| calls == 0), "no account is forgotten");
            // A look for each call, and in each turn one for each that turned out to have no more.
            prop_assert!((turns - 1) * budget <= asked + turns * counts.len());
        }
    }
}
