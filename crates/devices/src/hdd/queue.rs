//! The drive's own queue: which command goes next.
//!
//! The rule is shortest positioning time first. Of the commands in the drive's window, the next is the one with a first
//! sector that can be under the head soonest. It looks at the oldest `window` commands only. The complication is
//! starvation: near commands that keep coming would hold a far one back for ever. So a command that has been in the
//! window for too long goes first. That time counts from the command's entry into the window, or a long queue would
//! turn into first come, first served.

use super::geometry::Stretch;
use plimsoll_core::{Span, Time};
use std::collections::VecDeque;

/// A command as the mechanics see it: sectors instead of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The host's name for it.
    pub token: u64,
    /// Whether it writes.
    pub is_write: bool,
    /// What it reads or writes.
    pub stretch: Stretch,
    /// When it came.
    pub arrived: Time,
    /// When the drive has decoded it and the arm can start.
    pub ready: Time,
}

/// Commands that wait for the mechanics, in order of arrival.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Each with the time at which it came into the window.
    commands: VecDeque<(Command, Time)>,
    window: usize,
    age_max: Span,
}

impl Queue {
    /// An empty queue of a drive that looks at `window` commands, at least 1.
    pub fn new(window: usize, age_max: Span) -> Queue {
        Queue { commands: VecDeque::with_capacity(256), window: window.max(1), age_max }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds the youngest command.
    pub fn push(&mut self, command: Command) {
        self.commands.push_back((command, command.arrived));
    }

    /// Queue position of the next command at `now`: the oldest if it has been in the window for too long. Otherwise the
    /// one of the window that can be had soonest, the older of equals. `access_before` says when a command can be had,
    /// or nothing if that is not before the time it is given: it may stop there. O(window).
    pub fn next_position(&self, now: Time, access_before: impl Fn(&Command, Time) -> Option<Time>) -> Option<usize> {
        let (_, seen) = self.commands.front()?;
        let (mut soonest, mut position) = (Time::MAX, 0);
        if now.since(*seen) < self.age_max {
            for (candidate, (command, _)) in self.commands.iter().take(self.window).enumerate() {
                if let Some(at) = access_before(command, soonest) {
                    (soonest, position) = (at, candidate);
                }
            }
        }
        Some(position)
    }

    /// Takes the command at `position` of the window out at `now`, so that another comes into the window. O(window).
    pub fn remove(&mut self, now: Time, position: usize) -> Option<Command> {
        let (command, _) = self.commands.remove(position)?;
        if let Some((_, seen)) = self.commands.get_mut(self.window - 1) {
            *seen = now;
        }
        Some(command)
    }
}
