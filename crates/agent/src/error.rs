//! Why the levels above a disk cannot do what they were asked to.

use crate::disk_lock::DiskLockError;
use plimsoll_core::AccountId;
use plimsoll_engine::EngineError;
use plimsoll_gates::GateError;
use plimsoll_tags::TagsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why the levels above a disk cannot do what they were asked to.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The thread that took their turns has ended.
    #[error("the agent has stopped")]
    Gone,
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// An account cannot leave yet.
    #[error("account {} has calls or requests under way", account.0)]
    Busy {
        /// The account.
        account: AccountId,
    },
    /// An account joined twice, or leaves that has not joined.
    #[error("account {} has {}", account.0, if *has_joined { "joined already" } else { "not joined" })]
    Membership {
        /// The account.
        account: AccountId,
        /// Whether it has joined.
        has_joined: bool,
    },
    /// What a caller asks for cannot be promised.
    #[error("{problem}")]
    Promise {
        /// Why, in a line.
        problem: String,
    },
    /// What should be a mounted disk is none.
    #[error("{}: {problem}", path.display())]
    Mount {
        /// What was named.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Another process has the disk's tenants.
    #[error(transparent)]
    Lock(#[from] DiskLockError),
    /// Causes cannot be told.
    #[error(transparent)]
    Tags(#[from] TagsError),
    /// The engine cannot.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Calls cannot be held.
    #[error(transparent)]
    Gates(#[from] GateError),
}
