//! What a scenario says, after it was checked.

use crate::claim::{ClaimOn, Relation};
use crate::expression::{Expression, Window};
use crate::results::CLIENTS;
use plimsoll_cache::PolicyEntry;
use plimsoll_core::{Allocation, Deadlines, Operation, Span};
use plimsoll_executor::Policy;
use plimsoll_settings::scheme::NamedScheme;
use plimsoll_sim::MachineConfig;
use plimsoll_sim::cluster::ClusterConfig;
use plimsoll_sim::filer::{self, Platform};
use plimsoll_sim::guest::CacheMode;
use plimsoll_sim::numa::ThrottleLock;
use plimsoll_workloads::Workload;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// Where it was read from; for one in the binary, its place in the repository.
    pub file: PathBuf,
    /// One line.
    pub title: String,
    /// Which paper, or "none".
    pub paper: String,
    /// Where in it: `figure 1`.
    pub source: String,
    /// What is shown, in sentences.
    pub description: String,
    /// Hosts that it can run on.
    pub hosts: Vec<&'static str>,
    /// About how long all its seeds take on two processors.
    pub takes: Span,
    /// How many seeds, 1 up to this.
    pub seeds: u32,
    /// What is varied, and its values' names.
    pub axes: Vec<Axis>,
    /// Every combination of them, the last axis fastest; one without labels if nothing is varied.
    pub variants: Vec<Variant>,
    /// What is measured.
    pub rows: Vec<Row>,
    /// What is drawn.
    pub panels: Vec<Panel>,
}

/// Something that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// Its values' names, in the order of the file.
    pub labels: Vec<String>,
}

/// One combination.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Axis and value's name.
    pub labels: Vec<(String, String)>,
    /// What is run.
    pub setup: Setup,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// On what; with a cluster, what each of its nodes is like.
    pub machine: MachineSetup,
    /// Virtual machines on it.
    pub guests: Vec<GuestSetup>,
    /// The datanodes, if there are several machines of this kind.
    pub cluster: Option<ClusterSetup>,
    /// The accounts and what they are promised, parents first.
    pub accounts: Vec<AccountSetup>,
    /// The processes, which make system calls.
    pub processes: Vec<ProcessSetup>,
    /// What goes over their files after they have ended, one after the other.
    pub utilities: Vec<UtilitySetup>,
    /// A real server and its queries; live host only.
    pub database: Option<DatabaseSetup>,
    /// The tenants, which send block requests.
    pub tenants: Vec<TenantSetup>,
    /// The writers of files to the cluster.
    pub writers: Vec<WriterSetup>,
    /// A storage server with its clients, instead of all of them; then the machine is what it is made of.
    pub filer: Option<FilerSetup>,
    /// How long, from the moment at which files are prepared.
    pub duration: Span,
    /// Whether the run is over when all processes and utilities have ended, if that is before.
    pub is_until_ended: bool,
    /// What figures leave out at the start unless they say otherwise.
    pub warm_up: Span,
}

/// The machine.
#[derive(Clone, Debug)]
pub struct MachineSetup {
    /// A device model.
    pub device: &'static str,
    /// A scheduler.
    pub scheduler: &'static str,
    /// A file system.
    pub file_system: &'static str,
    /// Bytes of the volume that the file system is on, from the device's start; `None` for the whole device.
    pub volume_bytes: Option<u64>,
    /// Bytes of ext4's journal; `None` for what mke2fs gives it.
    pub journal_bytes: Option<u64>,
    /// Bytes of a file on this machine's own disk that tenants use instead of the model; live host only.
    pub own_disk_bytes: Option<u64>,
    /// A second scheduler, which takes turns with the first; live host only, beside tenants.
    pub alternate: Option<Alternate>,
    /// The kernel's own scheduler on the block device, above the device's; live host only.
    pub kernel_scheduler: Option<&'static str>,
    /// Whether the kernel is told limits and weights, through its cgroups; live host only.
    pub has_kernel_limits: bool,
    /// Whether weights are kept above the kernel's limits as `plimsoll agent --wdt` does; then it has limits too.
    pub has_kernel_wdt: bool,
    /// Over how many NUMA nodes the threads of tenants are spread.
    pub numa_nodes: u32,
    /// Which locks the requests of tenants pass.
    pub throttle_lock: ThrottleLock,
    /// The cache before the device.
    pub cache: Option<CacheSetup>,
    /// Memory, cores, kernel; the seed is not used.
    pub config: MachineConfig,
}

/// Another scheduler that takes turns with the machine's, which has the first one. A device may be faster in one minute
/// than in the next. Turns of seconds tell two schedulers apart on it; runs do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alternate {
    /// A scheduler.
    pub scheduler: &'static str,
    /// How long a turn is, seconds; at least 1.
    pub turn_seconds: u64,
}

/// A cache of a fast device before the machine's.
#[derive(Clone, Debug)]
pub struct CacheSetup {
    /// The fast device: a device model.
    pub device: &'static str,
    /// Bytes of it that are cache.
    pub bytes: u64,
    /// A policy; `None`: there is no cache, only the queue that is below it.
    pub policy: Option<&'static PolicyEntry>,
    /// What the classes of requests are.
    pub scheme: NamedScheme,
}

/// A virtual machine with a file of the machine as its disk.
#[derive(Clone, Debug)]
pub struct GuestSetup {
    /// Its name, which processes name that run in it.
    pub name: String,
    /// The session of the machine that all its I/O is in.
    pub account: String,
    /// Bytes of its disk.
    pub disk_bytes: u64,
    /// How the machine reaches the disk's file.
    pub cache: CacheMode,
    /// Its own scheduler.
    pub scheduler: &'static str,
    /// Its own file system, on the whole disk.
    pub file_system: &'static str,
    /// Memory, cores, kernel; the seed is not used.
    pub config: MachineConfig,
}

/// A storage server with processors that its requests compete for.
#[derive(Clone, Copy, Debug)]
pub struct FilerSetup {
    /// On what.
    pub platform: Platform,
    /// What clients ask for.
    pub workload: filer::FilerWorkload,
    /// Requests a second.
    pub per_second: f64,
    /// Which request runs, and for how long.
    pub policy: Policy,
    /// Whether the executor's adaptive rule dispatches, instead of the policy.
    pub is_adaptive: bool,
}

/// Datanodes, each like the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSetup {
    /// How many.
    pub nodes: usize,
    /// Blocks, packets, network.
    pub config: ClusterConfig,
}

/// Clients that write files to the cluster, block after block.
#[derive(Clone, Debug)]
pub struct WriterSetup {
    /// Their name in expressions.
    pub name: String,
    /// The session, on each node, that their writes are in.
    pub account: String,
    /// How many, each with a file and a machine of its own.
    pub threads: u32,
}

/// A pool or session.
#[derive(Clone, Debug)]
pub struct AccountSetup {
    /// Its name, unique in the scenario.
    pub name: String,
    /// The pool that it is in; `None` for the device itself.
    pub parent: Option<String>,
    /// Whether others are in it.
    pub is_pool: bool,
    /// What it is promised.
    pub allocation: Allocation,
}

/// Processes with one workload.
#[derive(Clone, Debug)]
pub struct ProcessSetup {
    /// Their name in expressions.
    pub name: String,
    /// The session that they are in; in a guest, one of the guest's own.
    pub account: String,
    /// The guest that they run in; `None` for the machine itself.
    pub guest: Option<String>,
    /// What they do.
    pub workload: Workload,
    /// Sessions of threads by the first part of their name, such as `checkpointer`.
    pub thread_accounts: Vec<(String, String)>,
    /// Deadlines of single files of the workload, by name.
    pub file_deadlines: Vec<(String, Deadlines)>,
    /// Whether its directories and files are in the root, and not in a directory of its own.
    pub is_in_root: bool,
    /// Whether the files that are there at the start were written, through the page cache and whatever cache is below
    /// it.
    pub is_written_before: bool,
    /// Units of so many bytes are counted apart too, as [`sized_source`] names them: text and bytes.
    pub unit_sizes: Vec<(String, u64)>,
}

/// The source of units of one size of a process: `server.read.4KiB`.
pub fn sized_source(process: &str, is_read: bool, size: &str) -> String {
    format!("{process}.{}.{size}", if is_read { "read" } else { "write" })
}

/// A program that goes over the files of a process that has ended, with nothing of them in memory.
#[derive(Clone, Debug)]
pub struct UtilitySetup {
    /// Its name in expressions.
    pub name: String,
    /// The session that it is in.
    pub account: String,
    /// What it does.
    pub tool: Tool,
    /// The process that the files belong to.
    pub of: String,
    /// For tar: the part of the directories, from the first on, above 0 to 1.
    pub part: f64,
}

/// Utilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Looks for a name that does not exist.
    Find,
    /// Makes an archive of whole directories, on the same file system.
    Tar,
    /// Checks the file system, which is not in use meanwhile.
    Check,
}

impl Tool {
    /// As a scenario has them.
    pub const ALL: [(&'static str, Tool); 3] = [("find", Tool::Find), ("tar", Tool::Tar), ("check", Tool::Check)];
}

/// A real PostgreSQL with a generated TPC-H data set, and the queries that it is asked.
#[derive(Clone, Debug)]
pub struct DatabaseSetup {
    /// Its name in expressions.
    pub name: String,
    /// The session that the server is in.
    pub account: String,
    /// Queries, by their numbers in TPC-H, one after the other.
    pub queries: Vec<u64>,
    /// TPC-H's scale factor: about 3.6 GB of tables and indexes each.
    pub scale: f64,
    /// Bytes of the server's own buffers.
    pub buffers_bytes: u64,
}

impl DatabaseSetup {
    /// The source of one query alone: `query.17`.
    pub fn query_source(&self, number: u64) -> String {
        format!("{}.{number}", self.name)
    }

    /// The names that its figures have: all queries together, and each.
    pub fn sources(&self) -> impl Iterator<Item = String> + '_ {
        let each = self.queries.iter().map(|&number| self.query_source(number));
        std::iter::once(self.name.clone()).chain(each)
    }
}

/// Block requests without a file system.
#[derive(Clone, Debug)]
pub struct TenantSetup {
    /// Its name in expressions.
    pub name: String,
    /// The session that it is in.
    pub account: String,
    /// The trace with the requests that it sends one after the other. Then `length`, `is_random` and `read_percent`
    /// have no effect.
    pub trace: Option<PathBuf>,
    /// Bytes of a request.
    pub length: u32,
    /// Whether requests go anywhere or one behind the other.
    pub is_random: bool,
    /// Per cent of reads; the rest are writes.
    pub read_percent: u32,
    /// The part of the device that it uses, as fractions of its capacity.
    pub region: (f64, f64),
    /// When requests come.
    pub arrivals: Arrivals,
    /// Threads that send them, each on a core of its own; 0 where requests come by themselves.
    pub threads: u32,
    /// The NUMA node that the threads are on, counted round; `None` for all nodes in turn.
    pub node: Option<u32>,
    /// From when, after the start.
    pub start: Span,
    /// Until when.
    pub stop: Span,
}

impl TenantSetup {
    /// What requests are, if they are all alike.
    pub fn operation(&self) -> Option<Operation> {
        match self.read_percent {
            100 => Some(Operation::Read),
            0 => Some(Operation::Write),
            _ => None,
        }
    }
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// So many outstanding, each replaced so long after its completion.
    Closed {
        /// Requests outstanding.
        depth: u32,
        /// From a completion to the next request.
        think: Span,
    },
    /// Evenly spaced; what is late because so many are outstanding goes as soon as it can.
    Open {
        /// Requests per second.
        per_second: f64,
        /// Requests outstanding at the most; `None` for as many as come.
        outstanding_max: Option<u32>,
    },
}

/// Something measured, and what is claimed of it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its key in the file, unique in the scenario.
    pub name: String,
    /// In words.
    pub title: String,
    /// The measurement.
    pub measure: Expression,
    /// Unit of the measured value, for people.
    pub unit: String,
    /// The paper's value.
    pub paper: Option<f64>,
    /// Where the paper's value, or the bound, comes from.
    pub source: String,
    /// What must hold; `None` where the row only informs.
    pub claim: Option<RowClaim>,
}

/// A claim with an expression as its bound.
#[derive(Clone, Debug)]
pub struct RowClaim {
    /// How it is compared.
    pub relation: Relation,
    /// With what.
    pub bound: Expression,
    /// How far off is forgiven, as a fraction.
    pub margin: f64,
    /// Which values of several seeds must satisfy it.
    pub on: ClaimOn,
}

/// One diagram.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its key in the file.
    pub name: String,
    /// Above it.
    pub title: String,
    /// What it is.
    pub kind: PanelKind,
    /// Horizontal.
    pub x: Scale,
    /// Vertical.
    pub y: Scale,
    /// For lines and bars: where on the horizontal axis, and what `x` is.
    pub over: Vec<String>,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// Kinds of diagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelKind {
    /// A value for each x, joined.
    Lines,
    /// A value for each x, side by side.
    Bars,
    /// Points, joined: a curve over time, a cumulative distribution.
    Curve,
}

impl PanelKind {
    /// As a scenario has them.
    pub const ALL: [(&'static str, PanelKind); 3] =
        [("lines", PanelKind::Lines), ("bars", PanelKind::Bars), ("curve", PanelKind::Curve)];
}

/// An axis of a diagram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// What it shows, with its unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub is_log: bool,
}

/// One line, set of bars or curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its key in the file.
    pub name: String,
    /// In the legend.
    pub label: String,
    /// A number (lines, bars), or points (curve).
    pub y: Expression,
    /// The paper's points; for bars x counts from 0.
    pub paper: Vec<(f64, f64)>,
}

impl Setup {
    /// The names of processes, databases, tenants and writers.
    pub fn sources(&self) -> BTreeSet<String> {
        let processes = self.processes.iter().map(|process| &process.name);
        let tenants = self.tenants.iter().map(|tenant| &tenant.name);
        let writers = self.writers.iter().map(|writer| &writer.name);
        let database = self.database.iter().flat_map(DatabaseSetup::sources);
        let utilities = self.utilities.iter().map(|utility| &utility.name);
        let sized = self.processes.iter().flat_map(|process| {
            let sizes = process.unit_sizes.iter();
            sizes.flat_map(|(size, _)| [true, false].map(|is_read| sized_source(&process.name, is_read, size)))
        });
        let clients = self.filer.iter().map(|_| CLIENTS.to_owned());
        processes
            .chain(tenants)
            .chain(writers)
            .chain(utilities)
            .cloned()
            .chain(sized)
            .chain(database)
            .chain(clients)
            .collect()
    }

    /// The seconds that figures are of unless they say otherwise.
    pub fn window(&self) -> Window {
        let to = (self.duration.as_secs_f64().floor() as usize).max(1);
        Window { from: (self.warm_up.as_secs_f64().ceil() as usize).min(to - 1), to }
    }
}
