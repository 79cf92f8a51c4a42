//! What runs a variant with a seed.
//!
//! The simulator is one host. The live one, with real threads on a real file system, is another: it is given the same
//! [`Setup`], and answers with the same [`RunResult`].

mod cluster;
mod filer;
mod guest;
pub mod live;
pub(crate) mod parts;
mod process;
mod recorder;
mod requests;
pub mod sim;
mod tenant;
mod utility;

use crate::results::RunResult;
use crate::scenario::{AccountSetup, MachineSetup, Setup};
use plimsoll_core::{AccountId, AccountKind, AccountTree, Allocation, DeviceProfile};
use std::collections::BTreeMap;
use thiserror::Error;

/// Names of the kernel's own sessions; a space keeps them apart from any account of a scenario.
const FLUSHER: &str = "kernel flusher";
const JOURNAL: &str = "kernel journal";

/// Runs variants.
pub trait Host: Sync {
    /// As `--host` has it.
    fn name(&self) -> &'static str;

    /// Runs `setup` with `seed` from beginning to end.
    ///
    /// # Errors
    /// If it cannot, or the run went wrong.
    fn run(&self, setup: &Setup, seed: u64) -> Result<RunResult, HostError>;
}

/// Why a run has no result.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HostError {
    /// This machine or this version cannot run it.
    #[error("{0}")]
    NotRun(String),
    /// It went wrong.
    #[error("{0}")]
    Failed(String),
}

/// The accounts of a setup, opened.
pub struct Accounts {
    /// All of them.
    pub tree: AccountTree,
    /// By the name in the scenario.
    pub ids: BTreeMap<String, AccountId>,
    /// The session of the kernel's flusher.
    pub flusher: AccountId,
    /// The session of the kernel's journal.
    pub journal: AccountId,
}

impl Accounts {
    /// Opens `accounts` on the machine's device.
    ///
    /// # Errors
    /// The name of the account that was refused, and why.
    pub fn open(machine: &MachineSetup, accounts: &[AccountSetup]) -> Result<Accounts, (String, String)> {
        let device = plimsoll_devices::build(machine.device, 0).expect("a model that was chosen by its name");
        Accounts::open_on(device.profile(), accounts)
    }

    /// Opens `accounts` on a device with this profile.
    ///
    /// # Errors
    /// The name of the account that was refused, and why.
    pub fn open_on(profile: &DeviceProfile, accounts: &[AccountSetup]) -> Result<Accounts, (String, String)> {
        let mut tree = AccountTree::new(profile.clone());
        let mut kernel = |name| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default());
        let (flusher, journal) = (kernel(FLUSHER), kernel(JOURNAL));
        let mut ids = BTreeMap::new();
        for account in accounts {
            let parent = account.parent.as_ref().map_or(AccountId::ROOT, |parent| ids[parent]);
            let kind = if account.is_pool { AccountKind::Pool } else { AccountKind::Session };
            let id = tree.open(parent, &account.name, kind, account.allocation);
            ids.insert(account.name.clone(), id.map_err(|error| (account.name.clone(), error.to_string()))?);
        }
        let refused = |error: plimsoll_core::account::AccountError| (String::new(), error.to_string());
        Ok(Accounts { tree, ids, flusher: flusher.map_err(refused)?, journal: journal.map_err(refused)? })
    }
}
