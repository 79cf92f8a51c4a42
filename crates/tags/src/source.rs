//! Sources of causes: programs in the kernel ([`crate::kernel`]), or its counts for each process
//! ([`crate::submitters`]).

use crate::device::Device;
use crate::error::TagsError;
use crate::memory::SharedMemory;
use crate::shared::{ACCOUNT_OTHERS, ACCOUNTS, State};
use crate::{Counters, Event};
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Tables of registrations, and of the processes that accounts were opened for by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Threads,
    Processes,
    Cgroups,
    Owners,
}

/// Key and value.
pub(crate) type Entry = (Vec<u8>, Vec<u8>);

/// What takes long, for any thread.
pub(crate) trait Surveyed: Send + Sync {
    /// All keys and values of a table, each once, as they are at different moments. O(entries and room for them).
    fn entries(&self, table: Table) -> Result<Vec<Entry>, TagsError>;

    /// Which of the accounts in `ended` are still carried.
    fn sweep(&self, ended: u64) -> Result<u64, TagsError>;
}

/// What accounts, tags and events are read from. Keys and values are the bytes of `shared`'s structures.
pub(crate) trait Source: Send {
    /// The words of [`State`](crate::shared::State).
    fn state(&self) -> &Arc<SharedMemory>;

    /// The entries of the tag table, and the logarithm of their number.
    fn entries_of_tags(&self) -> (&Arc<SharedMemory>, u32);

    fn lookup(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, TagsError>;

    fn survey(&self) -> Arc<dyn Surveyed>;

    fn update(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), TagsError>;

    /// Whether there was something under the key.
    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, TagsError>;

    fn counters(&self, account: u32) -> Result<Counters, TagsError>;

    fn reset_counters(&mut self, account: u32) -> Result<(), TagsError>;

    /// Takes out all flows with their bytes.
    fn take_flows(&self) -> Result<Vec<(Vec<u8>, u64)>, TagsError>;

    /// Takes at most so many events out, in the order in which they were begun. The answer is true if more may be
    /// there.
    fn events(&mut self, events_max: usize, each: &mut dyn FnMut(Event)) -> bool;

    /// Readable once something has come since [`wake`](Self::wake).
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Whether returns from calls are events from now on.
    fn tell_returns(&mut self, are_told: bool) -> Result<(), TagsError>;

    /// Has the next event wake the thread that waits for the descriptor.
    fn wake(&self);

    /// How often something was not counted that should have been.
    fn missed(&self) -> Result<u64, TagsError>;

    /// Bytes of the kernel's memory that it takes.
    fn memory_bytes(&self) -> u64;
}

/// The words as they are before any process has an account.
pub(crate) fn initialize(state: &SharedMemory, device: &Device) {
    let accounts = ((1u64 << ACCOUNTS) - 1) & !(1 << ACCOUNT_OTHERS);
    state.word(offset_of!(State, free_accounts)).store(accounts, Ordering::SeqCst);
    state.half_word(offset_of!(State, other_device)).store(device.other_number().unwrap_or(0), Ordering::SeqCst);
}
