//! Tenants: how one joins and leaves, on both sides, the engine's and the levels'.

use crate::commands::{Joined, LevelsHandle};
use crate::error::AgentError;
use crate::freezer::FreezerHandle;
use plimsoll_core::{AccountId, Allocation};
use plimsoll_engine::{EngineError, EngineHandle, SessionConfig};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A tenant that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The session that its I/O is charged to.
    pub account: AccountId,
    /// Its bit in masks of causes.
    pub bit: u32,
    /// What its shims' words say while they are closed.
    pub(crate) generation: u32,
    pub(crate) name: String,
    /// Its programs load no shim.
    pub(crate) is_container: bool,
}

pub(crate) fn lock(tenants: &Mutex<Vec<Tenant>>) -> MutexGuard<'_, Vec<Tenant>> {
    tenants.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn join(
    engine: &EngineHandle,
    levels: &LevelsHandle,
    pool: &str,
    name: &str,
    allocation: Allocation,
) -> Result<Tenant, AgentError> {
    let account = engine.open_session(pool, SessionConfig { name: name.to_owned(), allocation })?;
    match levels.join(account, name) {
        Ok(Joined { bit, generation }) => {
            Ok(Tenant { account, bit, generation, name: name.to_owned(), is_container: false })
        }
        Err(error) => {
            engine.close_session(account)?;
            Err(error)
        }
    }
}

/// A tenant that leaves has no limit any more. Otherwise a call that the scheduler holds for its debts would keep its
/// session open until they are paid.
pub(crate) fn try_leave(
    engine: &EngineHandle,
    levels: &LevelsHandle,
    freezer: Option<&FreezerHandle>,
    tenant: &Tenant,
) -> Result<(), AgentError> {
    engine.change_session(tenant.account, Allocation::default())?;
    let left = levels.leave(tenant.account);
    // Before its bit is used again. A call of a frozen thread would be under way for as long as it is frozen.
    freezer.inspect(|freezer| freezer.let_go(tenant.bit));
    left?;
    match engine.close_session(tenant.account) {
        Err(EngineError::SessionBusy { .. }) => Err(AgentError::Busy { account: tenant.account }),
        outcome => Ok(outcome?),
    }
}
