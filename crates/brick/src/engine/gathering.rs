//! When to wait a moment for more, so that one turn moves many requests.
//!
//! A client with dozens of requests under way sends them one by one. Woken for each, the engine would make a system call
//! or more for every request; woken a little later, it finds several, and so does the client when their replies come.
//! Measured with fio at depth 32, both save so much time that latency falls as well.
//!
//! A client with one request under way would only lose: nothing more can come before it is answered. So the engine
//! gathers only while *every* connection that sends anything has lately sent [`DEEP_REQUESTS_MIN`] requests or more in a
//! turn; one shallow connection ends it at once. Whether it pays is not seen without trying, because a server that answers
//! each request at once finds each alone: so one wait in [`PROBE_TURNS`] gathers to see what comes.

use plimsoll_core::Span;

/// A connection that sends so many requests in a turn is deep.
const DEEP_REQUESTS_MIN: u32 = 4;
/// It counts as deep for so many more turns that bring less: a client that is not scheduled for a moment sends little.
const DEEP_TURNS: u32 = 32;
/// How long to gather: long enough for a client to send several requests. With fio's NBD engine at depth 32 three came in
/// 20 us and six in 40 us (docs/performance.md).
pub(super) const GATHER_SPAN: Span = Span::from_micros(60);
/// One wait in so many is a trial: less than one in a hundred, so that the 99th percentile of a shallow client's latency
/// does not show it.
const PROBE_TURNS: u32 = 256;

/// How deep one connection is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Depth {
    requests_in_turn: u32,
    deep_turns_left: u32,
}

impl Depth {
    /// The connection sent a request.
    pub(super) fn count(&mut self) {
        self.requests_in_turn += 1;
    }
}

/// What the connections sent in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Intake {
    has_deep: bool,
    has_shallow: bool,
}

impl Intake {
    /// Adds what one connection sent and begins its next turn.
    pub(super) fn add(&mut self, depth: &mut Depth) {
        match std::mem::take(&mut depth.requests_in_turn) {
            0 => return,
            DEEP_REQUESTS_MIN.. => depth.deep_turns_left = DEEP_TURNS,
            _ => depth.deep_turns_left = depth.deep_turns_left.saturating_sub(1),
        }
        let is_deep = depth.deep_turns_left > 0;
        self.has_deep |= is_deep;
        self.has_shallow |= !is_deep;
    }
}

/// Whether it pays to gather.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    is_on: bool,
    shallow_turns: u32,
}

impl Gathering {
    /// Whether the wait after a turn that brought `intake` should gather.
    pub(super) fn after(&mut self, intake: Intake) -> bool {
        if intake.has_shallow {
            self.is_on = false;
            self.shallow_turns += 1;
            if self.shallow_turns >= PROBE_TURNS {
                self.shallow_turns = 0;
                return true;
            }
        } else if intake.has_deep {
            self.is_on = true;
        }
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intake(connections: &mut [(Depth, u32)]) -> Intake {
        let mut intake = Intake::default();
        for (depth, requests) in connections {
            (0..*requests).for_each(|_| depth.count());
            intake.add(depth);
        }
        intake
    }

    #[test]
    fn deep_connections_are_gathered_and_one_shallow_one_ends_it() {
        let mut gathering = Gathering::default();
        let mut deep = [(Depth::default(), 4), (Depth::default(), 9)];
        assert!(!gathering.after(Intake::default()));
        assert!(gathering.after(intake(&mut deep)));
        assert!(gathering.after(Intake::default()), "a turn without requests changes nothing");
        deep[0].1 = 1;
        assert!((1..DEEP_TURNS).all(|_| gathering.after(intake(&mut deep))), "a lull changes nothing");
        assert!(!gathering.after(intake(&mut deep)), "a long one does");
        let [_, deep] = deep;
        assert!(gathering.after(intake(&mut [deep])));
        assert!(!gathering.after(intake(&mut [deep, (Depth::default(), 3)])));
    }

    #[test]
    fn a_shallow_connection_waits_in_vain_less_than_once_in_a_hundred_turns() {
        let mut gathering = Gathering::default();
        let mut shallow = [(Depth::default(), 1)];
        let trials = (0..10 * PROBE_TURNS).filter(|_| gathering.after(intake(&mut shallow))).count();
        assert_eq!(trials, 10);
    }
}
