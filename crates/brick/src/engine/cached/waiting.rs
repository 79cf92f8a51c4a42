//! Requests that the cache has not taken yet, or not all of: a line for each session's changes, and one for what else
//! it wants.
//!
//! **Why lines.** There may be a hundred thousand requests, and something ends every few microseconds: whoever looks
//! then must not look at all of them. In a line only the first is asked for. **Why two a session.** A write may have to
//! wait for its turn, and a read never does: it must not stand behind one. **Who is next** among the lines: those that
//! had nothing since they were last looked at, in the order in which they stand; so sessions that have to wait get as
//! many turns each.

use plimsoll_core::{AccountId, Operation};
use std::collections::VecDeque;

/// Lines of requests, by their places in the cache's table.
#[derive(Default)]
pub(super) struct Waiting {
    /// Two for each session.
    lines: Vec<VecDeque<u32>>,
    /// Those in which somebody stands, in the order in which they are looked at.
    round: VecDeque<u32>,
    count: usize,
}

/// The line in which a session's requests stand that change something, or that do not.
fn line_of(session: AccountId, operation: Operation) -> u32 {
    session.index() as u32 * 2 + u32::from(operation.is_write())
}

impl Waiting {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.count
    }

    fn line(&mut self, line: u32) -> &mut VecDeque<u32> {
        let line = line as usize;
        if self.lines.len() <= line {
            self.lines.resize_with(line + 1, VecDeque::new);
        }
        &mut self.lines[line]
    }

    /// A request comes to the end of its line.
    pub fn push(&mut self, session: AccountId, operation: Operation, request: u32) {
        let number = line_of(session, operation);
        let line = self.line(number);
        line.push_back(request);
        if line.len() == 1 {
            self.round.push_back(number);
        }
        self.count += 1;
    }

    /// The flush behind a forced write comes to the head of the line of flushes: the rest of its request was done
    /// before those behind it.
    pub fn push_flush(&mut self, session: AccountId, request: u32) {
        let number = line_of(session, Operation::Flush);
        let line = self.line(number);
        line.push_front(request);
        if line.len() == 1 {
            self.round.push_back(number);
        }
        self.count += 1;
    }

    /// How many lines there are in which somebody stands.
    pub fn lines(&self) -> usize {
        self.round.len()
    }

    /// The line that is looked at next; it goes out of the round until it is [given back](Waiting::looked_at).
    pub fn next_line(&mut self) -> Option<u32> {
        self.round.pop_front()
    }

    /// Who stands first in a line.
    pub fn first(&self, line: u32) -> Option<u32> {
        self.lines[line as usize].front().copied()
    }

    /// Who stands first in a line leaves it.
    pub fn leave(&mut self, line: u32) {
        self.lines[line as usize].pop_front();
        self.count -= 1;
    }

    /// A line comes back into the round, unless nobody stands in it.
    pub fn looked_at(&mut self, line: u32) {
        if !self.lines[line as usize].is_empty() {
            self.round.push_back(line);
        }
    }

    /// Everybody leaves.
    pub fn take_all(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(self).lines.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `turns` in, one for each look at a line, and says who.
    fn let_in(waiting: &mut Waiting, turns: usize) -> Vec<u32> {
        let mut let_in = Vec::new();
        let mut served = Vec::new();
        for _ in 0..waiting.lines() {
            let line = waiting.next_line().unwrap();
            if let_in.len() < turns {
                let_in.extend(waiting.first(line));
                waiting.leave(line);
                served.push(line);
            } else {
                waiting.looked_at(line);
            }
        }
        served.into_iter().for_each(|line| waiting.looked_at(line));
        let_in
    }

    /// Planted break that was seen red: a line that had a turn comes before the others again.
    #[test]
    fn whoever_had_no_turn_is_before_whoever_had_one() {
        let mut waiting = Waiting::default();
        for request in 0..9 {
            waiting.push(AccountId(request % 3), Operation::Write, request);
        }
        let rounds: Vec<_> = (0..5).map(|_| let_in(&mut waiting, 2)).collect();
        assert_eq!(rounds, [vec![0, 1], vec![2, 3], vec![4, 5], vec![6, 7], vec![8]]);
        assert_eq!((waiting.len(), waiting.lines()), (0, 0));
    }

    /// Planted break that was seen red: a session has one line.
    #[test]
    fn reads_do_not_stand_behind_writes_nor_behind_other_flushes() {
        let mut waiting = Waiting::default();
        waiting.push(AccountId(5), Operation::Write, 1);
        waiting.push(AccountId(5), Operation::Read, 2);
        waiting.push(AccountId(5), Operation::Trim, 3);
        waiting.push_flush(AccountId(5), 4);
        assert_eq!(let_in(&mut waiting, 2), [1, 4]);
        assert_eq!(let_in(&mut waiting, 1), [3]);
        assert_eq!((waiting.len(), waiting.take_all().collect::<Vec<_>>()), (1, vec![2]));
        assert_eq!(waiting.len(), 0);
    }
}
