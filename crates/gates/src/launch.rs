//! Starting a command behind a gate.
//!
//! The command is prepared and then either started ([`Command::spawn`](std::process::Command::spawn)) or, better, executed in
//! place of this process ([`CommandExt::exec`](std::os::unix::process::CommandExt::exec)): then nothing stays between the
//! command and whoever started it, and signals, terminal and exit code are its own.

use crate::error::GateError;
use crate::shim::Shim;
use crate::words::{ACCOUNTS_MAX, GateWords};
use plimsoll_core::AccountId;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the loader loads before anything else (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";
/// Where the shim finds the words.
const WORDS: &str = "PLIMSOLL_GATE_WORDS";
/// Which of them are its own.
const ACCOUNT: &str = "PLIMSOLL_GATE_ACCOUNT";

/// The preload gate of one account, for any number of commands.
pub struct Preload {
    shim: PathBuf,
    words: PathBuf,
    account: AccountId,
}

impl Preload {
    /// For the tenant `account`, with the shim and words of a run directory.
    ///
    /// # Errors
    /// The account has no words.
    pub fn new(shim: &Shim, words: &GateWords, account: AccountId) -> Result<Preload, GateError> {
        Preload::at(shim.path(), words.path(), account)
    }

    /// The same by their names, for who is not the agent.
    ///
    /// # Errors
    /// The account has no words.
    pub fn at(shim: &Path, words: &Path, account: AccountId) -> Result<Preload, GateError> {
        if account.0 >= ACCOUNTS_MAX {
            return Err(GateError::Account { got: account.0, max: ACCOUNTS_MAX - 1 });
        }
        Ok(Preload { shim: shim.to_owned(), words: words.to_owned(), account })
    }

    /// Puts the command behind the gate, and whatever it starts that passes its environment on. Libraries that are preloaded
    /// already stay so, behind the shim.
    pub fn prepare(&self, command: &mut Command) {
        let set = command.get_envs().find(|(name, _)| *name == OsStr::new(PRELOAD)).map(|(_, value)| value);
        let others = match set {
            Some(value) => value.map(OsStr::to_owned),
            None => std::env::var_os(PRELOAD),
        };
        let mut libraries = OsString::from(&self.shim);
        if let Some(others) = others.filter(|others| !others.is_empty()) {
            libraries.push(":");
            libraries.push(others);
        }
        command.env(PRELOAD, libraries).env(WORDS, &self.words).env(ACCOUNT, self.account.0.to_string());
    }
}
