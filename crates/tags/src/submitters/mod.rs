//! Tags without BPF: an I/O belongs to the account of the process that submits it or makes the page dirty.
//!
//! The kernel counts for each process what it has read from disks and how much it has made dirty (`/proc/PID/io`,
//! `CONFIG_TASK_IO_ACCOUNTING`). A thread of its own ([`watch`]) looks at the processes of the accounts every 20 ms. It
//! reports their I/O as requests that went to the disk and are done. [`census`] finds out which account each belongs
//! to.
//!
//! **A caller waits for none of it.** The kernel tells of a process under a lock that the process itself may hold as
//! long as it likes. An example is an exec that closes a file of a server that does not answer. Only that thread hangs;
//! no account is charged as long as it does.
//!
//! **What is lost** against the programs: the disk of an I/O and its place (all of it counts as on this one, and as
//! sequential), and the journal and metadata. A second writer of a dirty page and every unregistered process are lost,
//! too. A child that is born and loses its parent between two looks belongs to no account, unless its cgroup is
//! registered. There is no tag of any block.

mod census;
mod processes;
mod tables;
mod watch;

use crate::counters::Counters;
use crate::device::Device;
use crate::error::TagsError;
use crate::memory::SharedMemory;
use crate::shared::{self, State};
use crate::source::{self, Source, Surveyed, Table};
use crate::{Coverage, Event, Options};
use processes::{Proc, Processes};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::Thread;
use watch::{Shared, Watch};

/// The process's own count; a kernel without `CONFIG_TASK_IO_ACCOUNTING` has none.
const OWN_COUNT: &str = "/proc/self/io";

/// See the [module's text](self).
pub(crate) struct Submitters {
    shared: Arc<Shared>,
    /// The thread that looks.
    thread: Thread,
    counters: BTreeMap<u32, Counters>,
    /// What was handed over, until a caller asks for it.
    events: VecDeque<Event>,
    state: Arc<SharedMemory>,
    entries: Arc<SharedMemory>,
}

/// Begins to look at processes, for the block device at `path`. `why` is the reason for which the programs do not run.
pub(crate) fn begin(path: &Path, options: &Options, why: &str) -> Result<(Box<dyn Source>, Coverage), TagsError> {
    if !rustix::process::geteuid().is_root() {
        return Err(TagsError::NotRun("only root may read the files that tell which process submits I/O".to_owned()));
    }
    if !Path::new(OWN_COUNT).exists() {
        return Err(TagsError::NotRun(
            "the kernel does not count I/O by process (CONFIG_TASK_IO_ACCOUNTING)".to_owned(),
        ));
    }
    let device = Device::open(path)?;
    let submitters = Submitters::start(Box::new(Proc), device.sectors, &options.returns)?;
    source::initialize(&submitters.state, &device);
    Ok((Box::new(submitters), Coverage::of_submitters(device.file_system, why)))
}

impl Submitters {
    fn start(
        processes: Box<dyn Processes + Send>,
        capacity_sectors: u64,
        returns: &[u32],
    ) -> Result<Submitters, TagsError> {
        let system = |action| move |error: std::io::Error| TagsError::Kernel { action, reason: error.to_string() };
        let memory = |bytes| SharedMemory::anonymous(bytes).map(Arc::new).map_err(system("get memory"));
        let (state, entries) = (memory(size_of::<State>())?, memory(shared::ENTRY_BYTES)?);
        let shared = Arc::new(Shared::new().map_err(system("make an eventfd"))?);
        let (watch, its) = (Watch::new(processes, capacity_sectors, returns), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("census".to_owned()).spawn(move || watch.run(&its));
        let thread = thread.map_err(system("start a thread"))?.thread().clone();
        Ok(Submitters { shared, thread, counters: BTreeMap::new(), events: VecDeque::new(), state, entries })
    }
}

impl Drop for Submitters {
    /// Does not wait: the thread that serves the disk may drop it. The thread ends after the look that it is at, and
    /// has nothing of the disk.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl Source for Submitters {
    fn state(&self) -> &Arc<SharedMemory> {
        &self.state
    }

    fn entries_of_tags(&self) -> (&Arc<SharedMemory>, u32) {
        (&self.entries, 0)
    }

    fn lookup(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, TagsError> {
        Ok(self.shared.tables.lookup(table, key))
    }

    fn survey(&self) -> Arc<dyn Surveyed> {
        Arc::clone(&self.shared) as Arc<dyn Surveyed>
    }

    fn update(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), TagsError> {
        self.shared.tables.update(table, key, value);
        // It is counted from the look on that begins now.
        self.thread.unpark();
        Ok(())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool, TagsError> {
        Ok(self.shared.tables.delete(table, key))
    }

    fn counters(&self, account: u32) -> Result<Counters, TagsError> {
        Ok(self.counters.get(&account).copied().unwrap_or_default())
    }

    fn reset_counters(&mut self, account: u32) -> Result<(), TagsError> {
        self.counters.remove(&account);
        Ok(())
    }

    fn take_flows(&self) -> Result<Vec<(Vec<u8>, u64)>, TagsError> {
        Ok(Vec::new())
    }

    fn events(&mut self, events_max: usize, each: &mut dyn FnMut(Event)) -> bool {
        if self.events.is_empty() {
            self.shared.take(&mut self.events, &mut self.counters);
        }
        self.events.drain(..events_max.min(self.events.len())).for_each(each);
        !self.events.is_empty()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.handed_over.as_fd()
    }

    fn tell_returns(&mut self, are_told: bool) -> Result<(), TagsError> {
        self.shared.are_returns_told.store(are_told, Ordering::Relaxed);
        Ok(())
    }

    fn wake(&self) {
        self.shared.forget_waking();
    }

    fn missed(&self) -> Result<u64, TagsError> {
        Ok(0)
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
