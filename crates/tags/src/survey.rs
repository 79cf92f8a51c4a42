//! Work that grows with the number of processes and dirty pages. Threads other than the tags' own do it: a tenant
//! with tens of thousands of processes delays only the thread that asks.

use crate::Losses;
use crate::error::TagsError;
use crate::memory::SharedMemory;
use crate::shared::{ACCOUNTS, Plain, Registration, State};
use crate::source::{Source, Surveyed, Table};
use plimsoll_core::AccountId;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A registration of an ended account, which [`AccountsOf::unregister`](crate::AccountsOf) removes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRegistration {
    pub(crate) table: Table,
    pub(crate) key: Vec<u8>,
}

/// Looks through all registrations, and all that is dirty: [`Tags::survey`](crate::Tags::survey). Clones are the same.
#[derive(Clone)]
pub struct Survey {
    pub(crate) tables: Arc<dyn Surveyed>,
    pub(crate) state: Arc<SharedMemory>,
}

impl Survey {
    pub(crate) fn of(source: &dyn Source) -> Survey {
        Survey { tables: source.survey(), state: Arc::clone(source.state()) }
    }

    /// Live processes and threads that are registered as `account`, without those of its cgroups. O(tasks that are
    /// registered).
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn tasks(&self, account: AccountId) -> Result<Vec<u32>, TagsError> {
        let mut tasks = Vec::new();
        self.each_task(|of, task| {
            if of == account.0 {
                tasks.push(task);
            }
        })?;
        Ok(tasks)
    }

    /// How many those are of each account, by its number. O(tasks that are registered).
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn counts(&self) -> Result<[usize; ACCOUNTS as usize], TagsError> {
        let mut counts = [0; ACCOUNTS as usize];
        self.each_task(|of, _| {
            if let Some(count) = counts.get_mut(of as usize) {
                *count += 1;
            }
        })?;
        Ok(counts)
    }

    /// What found no room so far.
    pub fn losses(&self) -> Losses {
        Losses::of(&self.state)
    }

    fn each_task(&self, mut each: impl FnMut(u32, u32)) -> Result<(), TagsError> {
        for table in [Table::Processes, Table::Threads] {
            for (key, value) in self.tables.entries(table)? {
                let registration = Registration::take(&mut &value[..]);
                if let (Some(task), Some(registration)) = (u32::take(&mut &key[..]), registration) {
                    each(registration.account, task);
                }
            }
        }
        Ok(())
    }

    /// What is registered as one of the accounts of the mask `accounts` that have [ended](crate::AccountsOf::close).
    /// O(all that is registered).
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn registrations(&self, accounts: u64) -> Result<Vec<EndedRegistration>, TagsError> {
        let ended = accounts & self.state.word(offset_of!(State, ended_accounts)).load(Ordering::SeqCst);
        let mut registrations = Vec::new();
        for table in [Table::Threads, Table::Processes, Table::Cgroups] {
            let entries = self.tables.entries(table)?.into_iter();
            let of_ended = entries.filter(|(_, value)| {
                Registration::take(&mut &value[..]).is_some_and(|it| ended >> it.account & 1 == 1)
            });
            registrations.extend(of_ended.map(|(key, _)| EndedRegistration { table, key }));
        }
        Ok(registrations)
    }

    /// The accounts of a mask of [ended](crate::AccountsOf::ended) ones that dirty pages or metadata still carry.
    /// O(dirty pages and blocks of metadata).
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel refuses to look.
    pub fn carried(&self, ended: u64) -> Result<u64, TagsError> {
        self.tables.sweep(ended)
    }
}
