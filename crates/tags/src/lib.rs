//! The accounts that really caused each block's I/O, on a stock kernel.
//!
//! A kernel thread submits a write and does not know which process wanted it. [`Tags`] loads BPF programs that watch a
//! file system on one device. They enter with each page the accounts that dirtied it, and with each transaction of the
//! journal the accounts that joined it. When a bio enters the block layer they write the causes and the class of each 4
//! KiB into a table. The server of the device has mapped it ([`TagTable`]). It is the cause tag of the split-level
//! paper (section 3.2), without a patched kernel. `docs/tags.md` describes the design, the coverage and the costs.
//!
//! ```no_run
//! use plimsoll_tags::{Options, Tags};
//! let mut tags = Tags::load("/dev/loop3".as_ref(), &Options::default())?;
//! let backup = tags.accounts().open("backup")?;
//! tags.accounts().register_process(backup, 4711)?;
//! let table = tags.table();
//! println!("block 7 was caused by {:?}", table.tag(7).causes());
//! # Ok::<(), plimsoll_tags::TagsError>(())
//! ```
//!
//! Nothing is pinned: when [`Tags`] is dropped, or its process killed, the kernel detaches every program and frees
//! every map.

mod account;
#[cfg(feature = "bpf")]
mod costs;
mod counters;
#[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "what only programs need"))]
mod coverage;
#[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "what only programs need"))]
mod device;
mod error;
mod event;
mod flow;
mod group;
#[cfg_attr(not(feature = "bpf"), path = "absent.rs")]
mod kernel;
#[cfg(feature = "bpf")]
mod layout;
#[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "what only programs need"))]
mod memory;
#[cfg_attr(not(feature = "bpf"), expect(dead_code, reason = "what only programs need"))]
mod shared;
mod source;
mod submitters;
mod survey;
mod table;
mod tag;

pub use account::{AccountInfo, Accounts, AccountsOf, Ended};
#[cfg(feature = "bpf")]
pub use costs::{ProgramCost, program_costs};
pub use counters::Counters;
pub use coverage::Coverage;
pub use device::FileSystem;
pub use error::TagsError;
pub use event::Event;
pub use flow::{Flow, Flows};
pub use group::cgroups_of;
pub use survey::{EndedRegistration, Survey};
pub use table::TagTable;
pub use tag::{BLOCK_BYTES, Tag};

use memory::SharedMemory;
use plimsoll_core::{Span, Time};
use shared::State;
use source::Source;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a device is tagged. The default suits a device with up to 1 GiB of dirty pages and 8 GiB of blocks in a window.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether an unregistered process gets an account of its own; otherwise it belongs to the others.
    pub has_account_per_process: bool,
    /// Most dirty pages, 43 to 86 bytes each: the table is a power of two. More of them are known by their file's
    /// recent writers only.
    pub dirty_pages_max: u32,
    /// Processes that may be registered at once, and threads, 160 bytes for both. Processes without room, because a
    /// tenant forks without end, count as others with all their children. The exception is a process in a registered
    /// cgroup.
    pub tasks_max: u32,
    /// Most bytes of the table of tags, 32 for each 4 KiB of the device, rounded to a power of two.
    pub tag_bytes_max: u64,
    /// Bytes of the ring of single events; `None`: none are recorded.
    pub event_bytes: Option<u32>,
    /// Whether requests are events, too: the disk's driver got one ([`Event::Issued`]), or it is done
    /// ([`Event::Completed`]).
    pub has_request_events: bool,
    /// Flows that are distinguished between two calls of [`Tags::take_flows`], 80 bytes each; `None`: flows are not
    /// counted.
    pub flows_max: Option<u32>,
    /// Numbers of the system calls with an event for their return ([`Event::Returned`]), 0 to 511, while that is
    /// [switched on](Tags::tell_returns).
    pub returns: Vec<u32>,
    /// Least time after which the number of an ended account is used again. XFS may keep the changes of a transaction
    /// in memory for 30 s.
    pub recycle_after: Span,
    /// Programs that are not attached, by their tracepoint's name. Tests use it to show that each is needed.
    #[doc(hidden)]
    pub left_out: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            has_account_per_process: false,
            dirty_pages_max: 1 << 18,
            tasks_max: 1 << 15,
            tag_bytes_max: 64 << 20,
            event_bytes: None,
            has_request_events: false,
            flows_max: None,
            returns: Vec::new(),
            recycle_after: Span::from_secs(60),
            left_out: Vec::new(),
        }
    }
}

/// What found no room, counted since the tags were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Dirtied pages, and blocks of metadata: raise `dirty_pages_max`.
    pub entries: u64,
    /// Events in the ring: raise `event_bytes`, or fetch them more often.
    pub events: u64,
    /// Processes and threads of registered ones that count as others, for lack of room: raise `tasks_max`.
    pub registrations: u64,
}

impl Losses {
    fn of(state: &SharedMemory) -> Losses {
        let word = |offset| state.word(offset).load(Ordering::Relaxed);
        Losses {
            entries: word(offset_of!(State, entries_lost)),
            events: word(offset_of!(State, events_lost)),
            registrations: word(offset_of!(State, registrations_lost)),
        }
    }
}

/// What did not go as it should, counted since the tags were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What found no room.
    pub losses: Losses,
    /// Blocks with the file's recent writers as causes, because the page's causes were not known.
    pub blocks_guessed: u64,
    /// Processes that became others because no account was free.
    pub accounts_refused: u64,
    /// Runs that the kernel skipped because the same program was running on that processor.
    pub runs_missed: u64,
}

/// The tags of one device. Dropping it detaches the programs.
pub struct Tags {
    source: Box<dyn Source>,
    accounts: Accounts,
    coverage: Coverage,
}

/// Whether this user on this machine may have tags, as far as that shows without loading anything.
///
/// # Errors
/// [`TagsError::NotRun`], which says what is missing.
pub fn check_machine() -> Result<(), TagsError> {
    kernel::check_machine()
}

impl Tags {
    /// Loads the programs for the block device at `device`. Best before a file system on it is mounted: the cause of
    /// pages dirty by then is unknown, and [`coverage`](Self::coverage) says so.
    ///
    /// # Errors
    /// [`TagsError::NotRun`] if BPF is not permitted, not built in, or the kernel is too old. [`TagsError::Device`] if
    /// it is not a block device; [`TagsError::Kernel`] if the kernel refuses a program.
    pub fn load(device: &Path, options: &Options) -> Result<Tags, TagsError> {
        let (source, coverage) = kernel::load(device, options)?;
        Ok(Tags { source, accounts: Accounts::new(options.recycle_after), coverage })
    }

    /// Tags without the programs, for the reason `why`. Events report reads from disks and dirtying of accounts'
    /// processes, as the kernel counts them for each process; blocks have no tags. It takes root and
    /// `CONFIG_TASK_IO_ACCOUNTING`.
    ///
    /// # Errors
    /// [`TagsError::NotRun`] without those; [`TagsError::Device`] if it is not a block device.
    pub fn of_submitters(device: &Path, options: &Options, why: &str) -> Result<Tags, TagsError> {
        let (source, coverage) = submitters::begin(device, options, why)?;
        Ok(Tags { source, accounts: Accounts::new(options.recycle_after), coverage })
    }

    /// What is covered, and what is not.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The table of tags.
    pub fn table(&self) -> TagTable {
        let (entries, slot_shift) = self.source.entries_of_tags();
        TagTable::new(Arc::clone(entries), Arc::clone(self.source.state()), slot_shift)
    }

    /// The accounts.
    pub fn accounts(&mut self) -> AccountsOf<'_> {
        AccountsOf { accounts: &mut self.accounts, source: &mut *self.source }
    }

    /// Registrations and dirty pages, for other threads.
    pub fn survey(&self) -> Survey {
        Survey::of(&*self.source)
    }

    /// Takes at most `events_max` events out of the ring, in the order in which they were begun. The answer is true if
    /// it took so many, and more may be there. It makes no system call. New events wake no thread, unless that was
    /// [asked for](Self::wake): call it as often as the ring's size demands.
    pub fn events(&mut self, events_max: usize, mut each: impl FnMut(Event)) -> bool {
        self.source.events(events_max, &mut each)
    }

    /// Has the next event make the descriptor of these tags readable, once. An event may have come just before: look
    /// once more before you wait.
    pub fn wake(&self) {
        self.source.wake();
    }

    /// Switches events for returns from the [chosen calls](Options::returns) on or off; at first they are off. While
    /// they are, every system call of the machine takes some 0.2 us longer. O(tasks), a fraction of a millisecond.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel refuses.
    pub fn tell_returns(&mut self, are_told: bool) -> Result<(), TagsError> {
        self.source.tell_returns(are_told)
    }

    /// Takes what was counted in detail since the last time, if that was [asked for](Options::flows_max). What is
    /// counted while it is taken is in it or comes the next time. O(flows).
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn take_flows(&self) -> Result<Flows, TagsError> {
        let lost = self.source.state().word(offset_of!(State, flow_bytes_lost));
        let flows = self.source.take_flows()?.into_iter();
        let flows = flows.filter_map(|(key, bytes)| Flow::parse(&key, bytes)).collect();
        Ok(Flows { flows, untold_bytes: lost.swap(0, Ordering::Relaxed) })
    }

    /// What found no room. It makes no system call.
    pub fn losses(&self) -> Losses {
        Losses::of(self.source.state())
    }

    /// What did not go as it should.
    ///
    /// # Errors
    /// [`TagsError::Kernel`] if the kernel does not tell.
    pub fn health(&self) -> Result<Health, TagsError> {
        let word = |offset| self.source.state().word(offset).load(Ordering::Relaxed);
        Ok(Health {
            losses: self.losses(),
            blocks_guessed: word(offset_of!(State, inodes_guessed)),
            accounts_refused: word(offset_of!(State, accounts_refused)),
            runs_missed: self.source.missed()?,
        })
    }

    /// Bytes of kernel memory that the maps take, as the kernel counts them.
    pub fn memory_bytes(&self) -> u64 {
        self.source.memory_bytes()
    }
}

impl AsFd for Tags {
    /// Becomes readable as [`wake`](Self::wake) says.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.descriptor()
    }
}

/// Now, on the clock that the programs of the kernel have.
fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
