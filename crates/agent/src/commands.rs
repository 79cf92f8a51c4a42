//! What other threads want of the levels: tenants come and go.
//!
//! Commands wait in a [`mailbox`]. The thread that takes the levels' turns carries them out between two turns and
//! answers. So no other thread has the tables that every turn looks at.

use crate::error::AgentError;
use crate::members::{BITS, Members};
use crate::mounts::DeviceNumbers;
use plimsoll_core::{AccountId, ThreadId};
use plimsoll_gates::Guarded;
use plimsoll_linux::mailbox::{Receiver, Sender, mailbox};
use plimsoll_tags::{EndedRegistration, Losses, Survey, TagsError};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Registrations that are removed in one turn of the levels: a microsecond or two each, which bounds the delay of
/// others' requests.
const UNREGISTERED_MAX: usize = 64;

/// The tasks that do an account's I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enrollee {
    /// A process, and all that it starts.
    Process(u32),
    /// A thread, and all that it starts.
    Thread(u32),
    /// All in a cgroup, and in those below it.
    Cgroup(PathBuf),
}

/// An account that has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Its bit in masks of causes, and the number of its words.
    pub bit: u32,
    /// What its words say while they are closed ([`GateWords`](plimsoll_gates::GateWords)).
    pub generation: u32,
}

pub(crate) enum Command {
    Join { account: AccountId, name: String, answer: SyncSender<Result<Joined, AgentError>> },
    Enroll { account: AccountId, enrollee: Enrollee, answer: SyncSender<Result<(), AgentError>> },
    Listen { guarded: Box<Guarded>, answer: SyncSender<()> },
    Listeners { account: AccountId, answer: SyncSender<Result<usize, AgentError>> },
    Ended { answer: SyncSender<u64> },
    Unregister { registrations: Vec<EndedRegistration>, answer: SyncSender<Result<usize, TagsError>> },
    Free { accounts: u64 },
    Inside { answer: SyncSender<Vec<ThreadId>> },
    Returned { threads: Vec<ThreadId> },
    Leave { account: AccountId, answer: SyncSender<Result<(), AgentError>> },
    Mounted { devices: DeviceNumbers },
}

/// Both ends of the levels' mailbox.
pub(crate) fn commands(members: Members, survey: Survey) -> io::Result<(Receiver<Command>, LevelsHandle)> {
    let (commands, received) = mailbox()?;
    Ok((received, LevelsHandle { commands, members, survey }))
}

/// How other threads talk to the levels. Clones are cheap.
#[derive(Clone)]
pub struct LevelsHandle {
    commands: Sender<Command>,
    members: Members,
    survey: Survey,
}

impl LevelsHandle {
    fn send(&self, command: Command) -> Result<(), AgentError> {
        self.commands.send(command).map_err(|_| AgentError::Gone)
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, AgentError> {
        let (answer, answered) = sync_channel(1);
        self.send(command(answer))?;
        answered.recv().map_err(|_| AgentError::Gone)
    }

    /// A session that the scheduler knows already gets a bit in masks of causes.
    ///
    /// # Errors
    /// It has one, or all are taken.
    pub fn join(&self, account: AccountId, name: &str) -> Result<Joined, AgentError> {
        let name = name.to_owned();
        self.ask(|answer| Command::Join { account, name, answer })?
    }

    /// What `enrollee` does is the I/O of an account that has joined, from now on.
    ///
    /// # Errors
    /// It has not joined, or there is no such process.
    pub fn enroll(&self, account: AccountId, enrollee: Enrollee) -> Result<(), AgentError> {
        self.ask(|answer| Command::Enroll { account, enrollee, answer })?
    }

    /// The calls that come to a listener wait for the scheduler from now on. Its account has joined: it is the bit that
    /// [`join`](Self::join) answered.
    ///
    /// # Errors
    /// The levels are gone.
    pub fn listen(&self, guarded: Guarded) -> Result<(), AgentError> {
        self.ask(|answer| Command::Listen { guarded: Box::new(guarded), answer })
    }

    /// The processes and threads of an account that live. Those of its cgroups are not among them. O(tasks of all
    /// accounts), and the levels are not asked.
    ///
    /// # Errors
    /// It has not joined, or the kernel does not tell.
    pub fn tasks(&self, account: AccountId) -> Result<Vec<u32>, AgentError> {
        let bit = self.members.bit(account).ok_or(AgentError::Membership { account, has_joined: false })?;
        Ok(self.survey.tasks(AccountId(bit))?)
    }

    /// How many they are of each bit. O(tasks of all accounts), and the levels are not asked.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn tasks_of_bits(&self) -> Result<[usize; BITS as usize], AgentError> {
        Ok(self.survey.counts()?)
    }

    /// What of the system's I/O the tags have lost so far. The levels are not asked.
    pub fn losses(&self) -> Losses {
        self.survey.losses()
    }

    /// How many listeners an account has behind which a process is left.
    ///
    /// # Errors
    /// It has not joined.
    pub fn listeners(&self, account: AccountId) -> Result<usize, AgentError> {
        self.ask(|answer| Command::Listeners { account, answer })?
    }

    /// Frees the bits of accounts that have left, once no page or registration carries them. O(dirty pages and
    /// registrations), and the levels are only asked which accounts have left, and to take a few registrations out in a
    /// turn.
    ///
    /// # Errors
    /// The levels are gone, or the kernel refuses to look.
    pub fn recycle(&self) -> Result<(), AgentError> {
        let ended = self.ask(|answer| Command::Ended { answer })?;
        if ended == 0 {
            return Ok(());
        }
        self.unregister(ended)?;
        let carried = self.survey.carried(ended)?;
        self.send(Command::Free { accounts: ended & !carried })
    }

    /// Nothing is registered any more as accounts that have left.
    fn unregister(&self, ended: u64) -> Result<(), AgentError> {
        loop {
            let registrations = self.survey.registrations(ended)?;
            if registrations.is_empty() {
                return Ok(());
            }
            for registrations in registrations.chunks(UNREGISTERED_MAX) {
                let registrations = registrations.to_vec();
                self.ask(|answer| Command::Unregister { registrations, answer })??;
            }
            // Where a census finds heirs, it may have found one meanwhile.
        }
    }

    /// The threads inside a call that the agent waits to see return.
    ///
    /// # Errors
    /// The levels are gone.
    pub fn inside(&self) -> Result<Vec<ThreadId>, AgentError> {
        self.ask(|answer| Command::Inside { answer })
    }

    /// Calls of threads have returned unseen.
    ///
    /// # Errors
    /// The levels are gone.
    pub fn returned(&self, threads: Vec<ThreadId>) -> Result<(), AgentError> {
        self.send(Command::Returned { threads })
    }

    /// An account's processes belong to no account from now on, and its gates are open. Afterwards the session may be
    /// closed. O(tasks of all accounts), and the levels take a few out in a turn. Processes that live on pass the words
    /// of their shims, also when the bit is used again.
    ///
    /// # Errors
    /// [`AgentError::Busy`] as long as calls or requests of it are under way: try again.
    pub fn leave(&self, account: AccountId) -> Result<(), AgentError> {
        let bit = self.members.bit(account);
        let outcome = self.ask(|answer| Command::Leave { account, answer })?;
        if let Some(Err(error)) = bit.map(|bit| self.unregister(1 << bit)) {
            tracing::warn!(%error, "an account has left, but its tasks stay in the tags until its bit is used again");
        }
        outcome
    }

    /// File systems were mounted from the disk, or unmounted: from now on the scheduler decides about calls on these
    /// devices.
    ///
    /// # Errors
    /// The levels are gone.
    pub fn mounted(&self, devices: DeviceNumbers) -> Result<(), AgentError> {
        self.send(Command::Mounted { devices })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken on purpose and seen red: commands stay where they are when the levels go. A test of [`mailbox`] shows
    /// that the levels wait for no sender.
    #[test]
    fn a_question_to_levels_that_are_gone_is_answered_with_that() {
        let (commands, received) = mailbox().unwrap();
        let (answer, answered) = sync_channel(1);
        assert!(commands.send(Command::Ended { answer }).is_ok());
        assert!(matches!(received.next(), Some(Command::Ended { .. })) && received.next().is_none());
        assert!(answered.recv().is_err());
        let (answer, answered) = sync_channel(1);
        assert!(commands.send(Command::Ended { answer }).is_ok());
        drop(received);
        assert!(answered.recv().is_err() && commands.send(Command::Free { accounts: 1 }).is_err());
    }
}
