//! Requests that the cache has not taken yet, or not all of: a line for each session's changes, and one for what else
//! it wants.
//!
//! **Why lines.** There may be a hundred thousand requests, and something ends every few microseconds: whoever looks
//! then must not look at all of them. In a line only the first is asked for. **Why two a session.** A write may have to
//! wait for its turn, and a read never does: it must not stand behind one. **Who is next** among the lines: who has come least
//! far. What a line has had moves it on, by what a block [costs](super::shares) its session; who had nobody standing begins where the
//! others are (start-time fair queueing, Goyal, Vin and Cheng, SIGCOMM 1996). So sessions that have to wait are served as their
//! weights say.

use plimsoll_core::{AccountId, Operation};
use std::collections::VecDeque;

/// The requests of one kind of a session, by their places in the cache's table.
#[derive(Default)]
struct Line {
    requests: VecDeque<u32>,
    /// How far it has come: what it has had, by its cost.
    come: u64,
}

/// Lines of requests.
#[derive(Default)]
pub(super) struct Waiting {
    /// Two for each session.
    lines: Vec<Line>,
    /// Those in which somebody stands.
    round: Vec<u32>,
    count: usize,
    /// Where whoever had something last was before it.
    come: u64,
}

/// The line in which a session's requests stand that change something, or that do not.
fn line_of(session: AccountId, operation: Operation) -> u32 {
    session.index() as u32 * 2 + u32::from(operation.is_write())
}

/// Whose line that is.
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
        let Line { requests, come } = &mut self.lines[at];
        if requests.is_empty() {
            *come = self.come.max(*come);
            self.round.push(line);
        }
        self.count += 1;
        requests
    }

    /// A request comes to the end of its line.
    pub fn push(&mut self, session: AccountId, operation: Operation, request: u32) {
        self.come_to(line_of(session, operation)).push_back(request);
    }

    /// The flush behind a forced write comes to the head of the line of flushes: the rest of its request was done
    /// before those behind it.
    pub fn push_flush(&mut self, session: AccountId, request: u32) {
        self.come_to(line_of(session, Operation::Flush)).push_front(request);
    }

    /// The lines in which somebody stands, who has come least far first; until they are [given back](Waiting::looked_at) there are none.
    /// O(lines log lines).
    pub fn round(&mut self) -> Vec<u32> {
        let mut round = std::mem::take(&mut self.round);
        round.sort_unstable_by_key(|&line| (self.lines[line as usize].come, line));
        round
    }

    /// Who stands first in a line.
    pub fn first(&self, line: u32) -> Option<u32> {
        self.lines[line as usize].requests.front().copied()
    }

    /// Who stands first in a line leaves it.
    pub fn leave(&mut self, line: u32) {
        self.lines[line as usize].requests.pop_front();
        self.count -= 1;
    }

    /// A line has had so many blocks, each at this cost.
    pub fn charge(&mut self, line: u32, blocks: u32, cost: u64) {
        let Line { come, .. } = &mut self.lines[line as usize];
        self.come = self.come.max(*come);
        *come += u64::from(blocks) * cost;
    }

    /// Lines come back, but those in which nobody stands.
    pub fn looked_at(&mut self, mut round: Vec<u32>) {
        round.retain(|&line| !self.lines[line as usize].requests.is_empty());
        round.append(&mut self.round);
        self.round = round;
    }

    /// Everybody leaves.
    pub fn take_all(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(self).lines.into_iter().flat_map(|line| line.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `turns` in, one for each look at a line, and says who.
    fn let_in(waiting: &mut Waiting, turns: usize, cost_of: impl Fn(AccountId) -> u64) -> Vec<u32> {
        let mut let_in = Vec::new();
        let round = waiting.round();
        for &line in round.iter().take(turns) {
            let_in.extend(waiting.first(line));
            waiting.leave(line);
            waiting.charge(line, 1, cost_of(session_of_line(line)));
        }
        waiting.looked_at(round);
        let_in
    }

    /// Planted break that was seen red: a line that had a turn comes before the others again.
    #[test]
    fn whoever_had_no_turn_is_before_whoever_had_one() {
        let mut waiting = Waiting::default();
        for request in 0..9 {
            waiting.push(AccountId(request % 3), Operation::Write, request);
        }
        let rounds: Vec<_> = (0..5).map(|_| let_in(&mut waiting, 2, |_| 1)).collect();
        assert_eq!(rounds, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7], vec![8]]);
        assert_eq!((waiting.len(), waiting.round()), (0, vec![]));
    }

    /// Planted break that was seen red: a session has one line.
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

    /// Planted breaks that were seen red: who comes begins where he was; who comes begins at the front.
    #[test]
    fn turns_go_by_cost_and_who_comes_later_has_saved_up_nothing() {
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
}
