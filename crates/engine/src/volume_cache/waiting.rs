//! Requests that the cache has not taken completely: a line for each session's changes, and one for its other requests.
//!
//! **Why lines.** There may be a hundred thousand requests, and something ends every few microseconds. A look at all of
//! them each time would cost too much, so only the first request of a line is asked for. **Why two a session.** A write
//! may have to wait for its turn, and a read never does. A read must not stand behind a write.
//!
//! **The rule.** The line comes next that has come least far. What a line gets moves it on, by what a block
//! [costs](super::shares) its session. A line without requests starts at the minimum of the lines that wait for the
//! same (start-time fair queueing, Goyal, Vin and Cheng, SIGCOMM 1996). So sessions that have to wait are served as
//! their weights say.
//!
//! **The complication.** Lines wait for two different things. Each request needs a *place*. A change may need a *turn*
//! besides: a unit, or the journal. Hits go on at the fast device's speed while turns come at the slow one's. With one
//! clock for both, a stream of hits would move it on. A line that comes for turns would then begin far behind the lines
//! that wait for them. So there are two clocks. A line has come so far on each. It waits on the clock of what its last
//! request took or was refused for; a line that finds no place stays on its clock.

use plimsoll_core::{AccountId, Operation};
use std::collections::VecDeque;

/// What the first request of a line waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Awaited {
    /// A unit, or room in the journal.
    Turn,
    /// A place, as every request.
    #[default]
    Place,
}

/// Both, by their numbers.
const AWAITED: [Awaited; 2] = [Awaited::Turn, Awaited::Place];

/// The requests of one kind of a session, by their places in the cache's table.
#[derive(Default)]
struct Line {
    requests: VecDeque<u32>,
    awaited: Awaited,
    /// How far it has come on each clock: what it got, by its cost.
    come: [u64; AWAITED.len()],
}

impl Line {
    fn come(&self) -> u64 {
        self.come[self.awaited as usize]
    }

    /// From now on it waits for something else.
    fn enter(&mut self, awaited: Awaited, clocks: &[u64; AWAITED.len()]) {
        self.awaited = awaited;
        let come = &mut self.come[awaited as usize];
        *come = clocks[awaited as usize].max(*come);
    }
}

/// What a line got in one look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Got {
    /// Blocks of its requests.
    pub blocks: u32,
    /// Those of them that took a unit.
    pub units: u32,
    /// Whether the last request takes turns: it took a unit, or waits for its turn. `None` if the cache was not asked,
    /// because there was no place.
    pub takes_turns: Option<bool>,
}

/// Lines of requests.
#[derive(Default)]
pub(super) struct Waiting {
    /// Two for each session.
    lines: Vec<Line>,
    /// Those in which a request stands.
    round: Vec<u32>,
    count: usize,
    /// Start of a new line: the minimum of the waiting lines, or the last position of the last of them.
    clocks: [u64; AWAITED.len()],
    /// The furthest that a line has come which got something in this round.
    furthest: [u64; AWAITED.len()],
}

/// The line in which a session's requests stand that change something, or that do not.
fn line_of(session: AccountId, operation: Operation) -> u32 {
    session.index() as u32 * 2 + u32::from(operation.is_write())
}

/// The session of that line.
pub(super) fn session_of_line(line: u32) -> AccountId {
    AccountId(line / 2)
}

impl Waiting {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.count
    }

    fn come_to(&mut self, line: u32) -> &mut VecDeque<u32> {
        let at = line as usize;
        if self.lines.len() <= at {
            self.lines.resize_with(at + 1, Line::default);
        }
        let entry = &mut self.lines[at];
        if entry.requests.is_empty() {
            entry.enter(Awaited::Place, &self.clocks);
            self.round.push(line);
        }
        self.count += 1;
        &mut entry.requests
    }

    /// A request comes to the end of its line.
    pub fn push(&mut self, session: AccountId, operation: Operation, request: u32) {
        self.come_to(line_of(session, operation)).push_back(request);
    }

    /// The flush behind a forced write comes to the head of the line of flushes. The rest of its request was done
    /// before those behind it.
    pub fn push_flush(&mut self, session: AccountId, request: u32) {
        self.come_to(line_of(session, Operation::Flush)).push_front(request);
    }

    /// The lines with a request. First come those that wait for a turn, and among those that wait for the same, the one
    /// with the least service. Until they are [given back](Waiting::looked_at) there are none. O(lines log lines).
    pub fn round(&mut self) -> Vec<u32> {
        let mut round = std::mem::take(&mut self.round);
        round.sort_unstable_by_key(|&at| {
            let line = &self.lines[at as usize];
            (line.awaited as usize, line.come(), at)
        });
        round
    }

    /// The first request of a line.
    pub fn first(&self, line: u32) -> Option<u32> {
        self.lines[line as usize].requests.front().copied()
    }

    /// The first request of a line leaves it.
    pub fn leave(&mut self, line: u32) {
        self.lines[line as usize].requests.pop_front();
        self.count -= 1;
    }

    /// A line got something, each block at this cost. On the clock of turns it pays for units, and for one at the
    /// least.
    pub fn charge(&mut self, line: u32, got: Got, cost: u64) {
        let entry = &mut self.lines[line as usize];
        let paid = match entry.awaited {
            _ if got.blocks == 0 => 0,
            Awaited::Turn => got.units.max(1),
            Awaited::Place => got.blocks,
        };
        let (clock, come) = (entry.awaited as usize, entry.come() + u64::from(paid) * cost);
        entry.come[clock] = come;
        if paid > 0 {
            self.furthest[clock] = self.furthest[clock].max(come);
        }
        match (entry.awaited, got.takes_turns) {
            (Awaited::Place, Some(true)) => entry.enter(Awaited::Turn, &self.clocks),
            (Awaited::Turn, Some(false)) => entry.enter(Awaited::Place, &self.clocks),
            _ => {}
        }
    }

    /// Lines come back, but those in which no request stands. O(lines).
    pub fn looked_at(&mut self, mut round: Vec<u32>) {
        round.retain(|&line| !self.lines[line as usize].requests.is_empty());
        round.append(&mut self.round);
        self.round = round;
        for awaited in AWAITED {
            let lines = self.round.iter().map(|&line| &self.lines[line as usize]);
            let least = lines.filter(|line| line.awaited == awaited).map(Line::come).min();
            let clock = &mut self.clocks[awaited as usize];
            *clock = least.unwrap_or(self.furthest[awaited as usize]).max(*clock);
        }
    }

    /// Takes all requests out of all lines.
    pub fn take_all(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(self).lines.into_iter().flat_map(|line| line.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lets `turns` in, one for each look at a line, and names the requests.
    fn let_in(waiting: &mut Waiting, turns: usize, cost_of: impl Fn(AccountId) -> u64) -> Vec<u32> {
        let mut let_in = Vec::new();
        let round = waiting.round();
        for &line in round.iter().take(turns) {
            let_in.extend(waiting.first(line));
            waiting.leave(line);
            let got = Got { blocks: 1, units: 0, takes_turns: Some(false) };
            waiting.charge(line, got, cost_of(session_of_line(line)));
        }
        waiting.looked_at(round);
        let_in
    }

    /// Planted break that was seen red: a line that had a turn comes before the others again.
    /// Promise: cache-line.
    #[test]
    fn a_line_without_a_turn_is_before_one_that_had_one() {
        let mut waiting = Waiting::default();
        for request in 0..9 {
            waiting.push(AccountId(request % 3), Operation::Write, request);
        }
        let rounds: Vec<_> = (0..5).map(|_| let_in(&mut waiting, 2, |_| 1)).collect();
        assert_eq!(rounds, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7], vec![8]]);
        assert_eq!((waiting.len(), waiting.round()), (0, vec![]));
    }

    /// Planted break that was seen red: a session has one line.
    /// Promise: cache-line.
    #[test]
    fn reads_do_not_stand_behind_writes_nor_behind_other_flushes() {
        let mut waiting = Waiting::default();
        waiting.push(AccountId(5), Operation::Write, 1);
        waiting.push(AccountId(5), Operation::Read, 2);
        waiting.push(AccountId(5), Operation::Trim, 3);
        waiting.push_flush(AccountId(5), 4);
        assert_eq!(let_in(&mut waiting, 2, |_| 1), [4, 1]);
        assert_eq!(let_in(&mut waiting, 1, |_| 1), [2]);
        assert_eq!((waiting.len(), waiting.take_all().collect::<Vec<_>>()), (1, vec![3]));
        assert_eq!(waiting.len(), 0);
    }

    /// Planted breaks that were seen red: a session that comes back begins where it was; a newcomer begins at the
    /// front.
    /// Promise: cache-weights.
    #[test]
    fn turns_go_by_cost_and_a_later_line_has_saved_up_nothing() {
        let mut waiting = Waiting::default();
        let (cheap, dear, late) = (AccountId(0), AccountId(1), AccountId(2));
        let cost_of = |session| if session == dear { 3 } else { 1 };
        let mut turns = [0; 3];
        let mut serve = |waiting: &mut Waiting, sessions: &[AccountId], count: usize| {
            let before = turns;
            for _ in 0..count {
                for session in sessions {
                    waiting.push(*session, Operation::Write, session.0);
                }
                let_in(waiting, 1, cost_of).into_iter().for_each(|session| turns[session as usize] += 1);
            }
            [turns[0] - before[0], turns[1] - before[1], turns[2] - before[2]]
        };
        assert_eq!(serve(&mut waiting, &[cheap, dear], 400), [300, 100, 0]);
        assert_eq!(serve(&mut waiting, &[cheap, dear, late], 700), [300, 100, 300]);
    }

    /// Requests from this number on write a new block; all others are hits.
    const NEW: u32 = 1000;

    /// Two writers of new blocks always have more, and one of them pays a quarter of what the other pays. Every other
    /// look finds no place. Outcome: that one has four of five units.
    ///
    /// Planted break that was seen red: a line that finds no place waits for a place only (the other one has every
    /// unit).
    #[test]
    fn a_line_that_finds_no_place_keeps_its_turn() {
        let (light, heavy) = (AccountId(0), AccountId(1));
        let (mut waiting, mut had) = (Waiting::default(), [0; 2]);
        for number in 0..1000 {
            for session in [light, heavy, light, heavy] {
                waiting.push(session, Operation::Write, NEW);
            }
            let (round, mut is_there) = (waiting.round(), true);
            for (at, &line) in round.iter().enumerate() {
                let session = session_of_line(line);
                let got = match std::mem::take(&mut is_there) {
                    // The place is the last one: behind this request there is none for the next.
                    true => Got { blocks: 1, units: 1, takes_turns: (number % 2 == 0).then_some(true) },
                    false if at == 1 && number % 2 == 1 => Got::default(),
                    false => Got { takes_turns: Some(true), ..Got::default() },
                };
                if got.units > 0 {
                    waiting.leave(line);
                    had[session.index()] += 1;
                }
                waiting.charge(line, got, if session == heavy { 1 } else { 4 });
            }
            waiting.looked_at(round);
        }
        // The first unit is not charged: nothing waited for a turn yet.
        assert_eq!(had, [201, 799]);
    }

    /// One look at all lines, while so many units are there. Counts for each session what it got: hits, new blocks.
    fn look(waiting: &mut Waiting, mut units: u32, cost_of: impl Fn(AccountId) -> u64, got: &mut [[u32; 2]]) {
        let round = waiting.round();
        for &line in &round {
            let mut now = Got::default();
            while let Some(request) = waiting.first(line) {
                let is_new = request >= NEW;
                if is_new && units == 0 {
                    now.takes_turns = Some(true);
                    break;
                }
                waiting.leave(line);
                (units, now.blocks, now.units) =
                    (units - u32::from(is_new), now.blocks + 1, now.units + u32::from(is_new));
                now.takes_turns = Some(is_new);
                got[session_of_line(line).index()][usize::from(is_new)] += 1;
            }
            waiting.charge(line, now, cost_of(session_of_line(line)));
        }
        waiting.looked_at(round);
    }

    /// A stream of hits, a writer of new blocks that always has more, and one that has one at a time. Outcome: from
    /// when both write on, each has half of the units, however many hits there are, and though the second had many hits
    /// itself.
    ///
    /// Planted breaks that were seen red: one clock for both, and that with a line that begins at the furthest of those
    /// that got something.
    /// Promise: cache-one-at-a-time.
    #[test]
    fn hits_take_no_turn_from_a_line_that_waits_for_one() {
        let (hits, deep, single) = (AccountId(0), AccountId(1), AccountId(2));
        let (mut waiting, mut got) = (Waiting::default(), [[0; 2]; 3]);
        for unit in 0..1000 {
            for _ in 0..50 {
                waiting.push(hits, Operation::Read, 0);
                if unit < 500 {
                    waiting.push(single, Operation::Write, 0);
                }
                look(&mut waiting, 0, |_| 1, &mut got);
            }
            // One has gone, and more than one is left.
            (0..3).for_each(|_| waiting.push(deep, Operation::Write, NEW));
            if unit >= 500 && waiting.first(line_of(single, Operation::Write)).is_none() {
                waiting.push(single, Operation::Write, NEW);
            }
            look(&mut waiting, 0, |_| 1, &mut got);
            look(&mut waiting, 1, |_| 1, &mut got);
        }
        assert_eq!(got, [[50_000, 0], [0, 750], [25_000, 250]]);
    }

    proptest! {
        /// Whatever comes: as long as two lines wait for turns, what each got, by its cost, is the same but for what
        /// one look gives. The oracle adds up what they got since both began to wait.
        ///
        /// Planted break that was seen red: a line begins at the furthest of those that got something.
        /// Promise: cache-one-at-a-time.
        #[test]
        fn two_lines_that_wait_for_turns_get_what_their_costs_say(
            costs in prop::collection::vec(1u64..20, 4),
            steps in prop::collection::vec((0u32..4, 0u32..4, 0u32..30), 1..400),
        ) {
            const UNITS_MAX: u32 = 3;
            let (mut waiting, mut got) = (Waiting::default(), [[0; 2]; 4]);
            let cost_of = |session: AccountId| costs[session.index()];
            // What each of a pair had when both had begun to wait.
            let mut since = [[None; 4]; 4];
            for (session, kind, units) in steps {
                match kind {
                    0 => waiting.push(AccountId(session), Operation::Read, 0),
                    1 => waiting.push(AccountId(session), Operation::Write, 0),
                    _ => (0..units).for_each(|_| waiting.push(AccountId(session), Operation::Write, NEW)),
                }
                look(&mut waiting, units % (UNITS_MAX + 1), cost_of, &mut got);
                let waits = |waiting: &Waiting, session: usize| {
                    let line = &waiting.lines.get(session * 2 + 1);
                    line.is_some_and(|line| !line.requests.is_empty() && line.awaited == Awaited::Turn)
                };
                for (one, other) in (0..4).flat_map(|one| (0..one).map(move |other| (one, other))) {
                    if !waits(&waiting, one) || !waits(&waiting, other) {
                        since[one][other] = None;
                        continue;
                    }
                    let had = [one, other].map(|session| u64::from(got[session][1]) * costs[session]);
                    let [before_one, before_other] = *since[one][other].get_or_insert(had);
                    let (of_one, of_other) = (had[0] - before_one, had[1] - before_other);
                    // What one look gives, and as much again: a line enters at the clock of the look before.
                    let most = 2 * u64::from(UNITS_MAX) * (costs[one] + costs[other]);
                    prop_assert!(of_one.abs_diff(of_other) <= most, "{one}: {of_one}, {other}: {of_other}, {costs:?}");
                }
            }
        }
    }
}
