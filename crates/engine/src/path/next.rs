//! What happens next: stages say it, the conductor does it.

use super::orphans::stretches::Stretch;

/// A write that no front end waits for, and that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphan {
    /// A piece that a backend has done: its bytes and its number.
    AtBackend(Stretch, u64),
    /// A request of which a cache has done all blocks.
    InCache { volume: u32, number: u64 },
}

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A request that waited for orphans starts, with its session's reader if its volume is read ahead.
    Begin { request: u32, reader: Option<u32> },
    /// Cuts a request into as many pieces as may be under way, which come to the gate.
    Add(u32),
    /// A piece goes to the device.
    Send(u32),
    /// The device has done a piece, or need not.
    PieceDone(u32),
    /// Nothing of a request is left to do.
    RequestDone(u32),
    /// An abandoned write has ended.
    OrphanEnded(Orphan),
    /// A front end has its answer to a change of so many bytes of a volume. `owner`: the front end, its name for the
    /// change.
    ChangeEnded { volume: u32, owner: (u32, u64), offset: u64, length: u32 },
    /// The cache of a volume, if it has one, may go on.
    CacheMoved(u32),
}

// Steps are moved on each request's way.
const _: () = assert!(size_of::<Next>() <= 48);

/// Steps to be done, depth first. The steps that follow from a step come before those that were added beside it, in
/// their order.
///
/// So steps follow each other as if each stage had called the next one. A stage that says "this piece is done, and that
/// request begins" has all that comes of the first done before the second. Nothing is allocated once it has grown to
/// the longest list of steps.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// The next step is the last element, except for steps that were added since the last was taken.
    steps: Vec<Next>,
    /// How many stood there when the last one was taken.
    before: usize,
}

impl Agenda {
    /// Says that a step is to be done, after those that were said since the last was taken.
    #[inline]
    pub(crate) fn push(&mut self, next: Next) {
        self.steps.push(next);
    }

    /// Whether nothing is to be done.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes the next step. O(steps that were said since the last was taken).
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Next> {
        // Most steps lead to one other, at most.
        if self.steps.len() > self.before + 1 {
            self.turn_round();
        }
        let next = self.steps.pop();
        self.before = self.steps.len();
        next
    }

    /// Turns the steps round that were said since the last was taken. Apart, so that taking a step is short.
    #[cold]
    fn turn_round(&mut self) {
        self.steps[self.before..].reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Planted break: steps are taken in the order in which all of them were said.
    #[test]
    fn what_a_step_leads_to_comes_before_what_was_said_beside_it() {
        let mut agenda = Agenda::default();
        let begins = Next::Begin { request: 2, reader: None };
        [Next::PieceDone(1), begins].into_iter().for_each(|next| agenda.push(next));
        assert_eq!(agenda.take(), Some(Next::PieceDone(1)));
        [Next::Add(3), Next::RequestDone(3)].into_iter().for_each(|next| agenda.push(next));
        assert_eq!(agenda.take(), Some(Next::Add(3)));
        agenda.push(Next::Send(4));
        let rest: Vec<Next> = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(rest, [Next::Send(4), Next::RequestDone(3), begins]);
    }

    /// The oracle: stages that call each other. A number leads to the numbers below it, as often as `leads` says.
    fn call(number: u32, leads: &[u32], done: &mut Vec<u32>) {
        done.push(number);
        (0..number).filter(|&below| leads[below as usize] > 0).for_each(|below| call(below, leads, done));
    }

    proptest! {
        #[test]
        fn steps_come_in_the_order_of_calls(leads in prop::collection::vec(0u32..2, 6), first in prop::collection::vec(0u32..6, 1..4)) {
            let (mut agenda, mut done, mut called) = (Agenda::default(), Vec::new(), Vec::new());
            for &number in &first {
                call(number, &leads, &mut called);
                agenda.push(Next::Add(number));
            }
            while let Some(next) = agenda.take() {
                let Next::Add(number) = next else { unreachable!("nothing else was said") };
                done.push(number);
                (0..number).filter(|&below| leads[below as usize] > 0).for_each(|below| agenda.push(Next::Add(below)));
            }
            prop_assert_eq!(done, called);
        }
    }
}
