//! The command line.

mod agent;
mod cache;
mod class;
mod container;
mod help;
mod load;
mod measure;
mod promises;
mod replay;
mod scenario;
mod why;

pub use agent::AgentArguments;
pub use cache::{
    CacheAttachArguments, CacheCommand, CacheDetachArguments, CacheMakeArguments, CachePolicyArguments,
    CacheResizeArguments, CacheVolumeArguments,
};
pub use class::{
    ClassAskArguments, ClassCommand, ClassSayArguments, ClassServerArguments, ClassShowArguments, ClassifyCommand,
    PostgresqlArguments,
};
pub use container::ContainerProfileArguments;
pub use load::LoadArguments;
pub use measure::MeasureArguments;
pub use promises::{
    ChangeArguments, PoolAddArguments, PoolCommand, PoolRemoveArguments, PoolSetArguments, RunArguments,
    SessionCloseArguments, SessionCommand, SessionOpenArguments,
};
pub use replay::{CacheArguments, ReplayArguments};
pub use scenario::{LIVE_PROCESS, ScenarioCommand, ScenarioRunArguments, ScenarioShowArguments};
pub use why::WhyArguments;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use plimsoll_traces::Format;
use std::path::PathBuf;

/// Gives each tenant of a shared disk the reserve, limit, share or deadline that it was promised.
#[derive(Debug, Parser)]
#[command(
    name = "plimsoll",
    version,
    after_help = "Examples:
  plimsoll demo                    two tenants on one slow disk, without and with Plimsoll
  plimsoll check plimsoll.toml     what would be served, or what is wrong
  plimsoll up plimsoll.toml        serve it until Ctrl-C or SIGTERM
  plimsoll status --watch          rates, queues and latencies, every second

Exit codes: 0 done; 1 it failed, or a claim that was checked does not hold; 2 the configuration or an argument is
wrong, and nothing was started; 3 not run: this machine or this user cannot."
)]
pub struct Arguments {
    /// What to write to stderr: error, warn, info, debug, trace, or a filter such as plimsoll_engine=debug [default:
    /// info; warn for demo and scenario]
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a backup freezing a small writer on a shared disk, and Plimsoll giving the small writer its reserve back
    #[command(after_help = "Example:
  # plimsoll demo --out demo.svg
  transactions                  per second  median     p99  slowest  disk  backup
  alone                         ...
  with the backup               ...
  with the backup and Plimsoll  ...

Both tenants have a volume of their own with a real ext4 on one emulated 7200 rpm drive in memory. It takes root, FUSE
and loop devices; without them, or with --nbd, the tenants write to the same drive over NBD, and the report says so.
Exit code 0 only if isolation was measured; 1 if it was not; 3 if the machine was too busy to emulate a drive.")]
    Demo(DemoArguments),
    /// Check a configuration and print what it would serve
    #[command(after_help = "Example:
  $ plimsoll check plimsoll.toml
  plimsoll.toml:7: pool.web.reserv: got an unknown key, allowed deadlines, ... (did you mean \"reserve\"?)

It reports every error of the file, one a line, as FILE:LINE: KEY: got X, allowed Y. It starts nothing and opens no backing
file; of backing files that exist it checks kind, size and names. docs/configuration.md describes every key.")]
    Check(CheckArguments),
    /// Serve what a configuration asks for, until Ctrl-C or SIGTERM
    #[command(after_help = "Example:
  # plimsoll up plimsoll.toml
  device disk0: scheduler zygaria, behaves like hdd.deskstar-120
  volume db: ext4 on /mnt/db (/dev/loop0)
  volume scratch: NBD export \"scratch\"
  NBD on unix:/run/plimsoll/nbd.sock
  control on unix:/run/plimsoll/control.sock
  serving; Ctrl-C or SIGTERM ends it

It stays in the foreground. First it detaches what an earlier daemon left attached after a kill -9. On the first SIGTERM or
SIGINT it ends connections, unmounts file systems and makes volumes durable; a second one cuts connections off.
Mounts take root. A configuration with NBD exports only runs as any user; default sockets and state are then in
$XDG_RUNTIME_DIR/plimsoll, or in plimsoll-UID in the directory for temporary files.")]
    Up(UpArguments),
    /// Hold the tenants of a mounted file system to what they were promised, on a disk that is not a Plimsoll volume
    #[command(after_help = "Example:
  # plimsoll agent --mount /data
  # plimsoll pool add backup --limit 10MB/s
  # plimsoll run --pool backup -- tar cf /data/backup.tar /data/db

The agent unmounts and changes nothing. BPF programs observe which tenant caused which I/O; without BPF, the process that
submits I/O counts as its cause. A tenant beyond its promises waits when its calls begin; the agent does not reorder the
disk's requests. It stays in the foreground; after Ctrl-C, SIGTERM or a kill -9 all gates are open. With
[device.NAME] observe = \"/data\" in a configuration, plimsoll up does the same, with pools (docs/agent.md).

  # plimsoll agent --wdt --mount /data --weight database=400 --weight batch=100

holds cgroups to shares by weight. It measures the I/O of each cgroup ten times a second, and sets the kernel's own limits
(io.max, blkio.throttle) once a second. It takes no BPF. At the end it puts the former limits back; after a kill -9 the next
start does so.")]
    Agent(AgentArguments),
    /// Show what the running daemon does: rates, queues and latencies of each pool and session
    #[command(after_help = "Example:
  $ plimsoll status --watch
  account  kind  reserve  limit  runs/s  rate  queued  at device  read p50  read p99  ...

Rates are of the last whole second. Latencies run from a request's arrival to its completion and cover the time since the
account opened. --json prints the answer of the control socket (docs/control.md), with --watch one object a line.")]
    Status(StatusArguments),
    /// List, add, change and remove pools while the daemon runs
    #[command(
        subcommand,
        after_help = "Example:
  $ plimsoll pool add web/batch --reserve 5% --limit \"2 MB/s\""
    )]
    Pool(PoolCommand),
    /// Open and close sessions of an exported volume, with a promise of their own
    #[command(
        subcommand,
        after_help = "Example:
  $ plimsoll session open db loader --reserve \"20 runs/s\""
    )]
    Session(SessionCommand),
    /// List the volumes of the running daemon
    #[command(
        subcommand,
        after_help = "Example:
  $ plimsoll volume list"
    )]
    Volume(VolumeCommand),
    /// Show, make, flush, attach, detach, resize and change the caches of volumes on fast devices
    #[command(
        subcommand,
        after_help = "Examples:
  # plimsoll cache make plimsoll.toml fast
  $ plimsoll cache status"
    )]
    Cache(CacheCommand),
    /// Run a command as a tenant of a mounted volume, with a session, a limit and deadlines of its own
    #[command(after_help = "Example:
  # plimsoll run --pool backup --limit 10MB/s -- tar cf /mnt/db/backup.tar /mnt/db/data

The session is charged for all I/O of the command and its children on the volume, also for later writeback and the journal.
A call beyond the session's promises waits when it begins. The command takes the place of this process: signals, terminal
and exit code are its own. The session ends with its last process.
The daemon must serve a volume with mount.tenants = true (docs/configuration.md) or observe a disk (plimsoll agent).")]
    Run(RunArguments),
    /// Show live which process caused the I/O of each disk, by class and file, through writeback and journal
    #[command(after_help = "Example:
  # plimsoll why /data
  /dev/sdb1 on /data (ext4): 0 B/s read, 21.2 MB/s written; 20.9 MB/s came through threads of the kernel
  who            class     read   written  through             file
  tar[4711]      data     0 B/s   20 MB/s  kworker             /data/backup.tar
  postgres[812]  journal  0 B/s  880 kB/s  jbd2/sdb1-8         -

It needs no daemon and works on any mounted ext4 or XFS. It takes root and BPF (docs/why.md).")]
    Why(WhyArguments),
    /// Print the seccomp profile with which a container of runc or crun joins as a tenant
    #[command(after_help = "Example:
  $ SOCKET=/run/plimsoll/gates-db/listeners.sock
  $ plimsoll container-profile $SOCKET pool=web/batch,limit=10MB/s --merge config.json > new.json
  $ mv new.json config.json

config.json is the bundle's. Calls that its seccomp profile refuses stay refused; calls that the gates need become
notifications. --merge also takes a profile alone (default.json of Docker or Podman, or \"-\" for stdin), and the command
prints the merged profile. Without --merge the printed profile allows all other calls. docs/tenants.md has the keys of the
tenant (pool, limit, ...).")]
    ContainerProfile(ContainerProfileArguments),
    /// Record the requests to a device of the running daemon as a trace
    #[command(after_help = "Example:
  $ plimsoll record --device disk0 --out disk0.log --seconds 60
  disk0.log: 48211 requests, of disk0

Ctrl-C ends it, too. Offsets are on the device. docs/traces.md describes the formats: fio --read_iolog replays fio3; msr has
response times but no flushes and trims. Tenants never wait for a recording: if this process is too slow, it loses requests
and counts them.")]
    Record(RecordArguments),
    /// List and check the models of devices, and measure real disks
    #[command(
        subcommand,
        after_help = "Example:
  $ plimsoll device list"
    )]
    Device(DeviceCommand),
    /// List the schedulers that a device can have
    #[command(
        subcommand,
        after_help = "Example:
  $ plimsoll scheduler list"
    )]
    Scheduler(SchedulerCommand),
    /// List, show and run experiments: figures of papers, measured and compared with their claims
    #[command(
        subcommand,
        after_help = "Examples:
  $ plimsoll scenario list
  $ plimsoll scenario run split-fig1 --out results"
    )]
    Scenario(ScenarioCommand),
    /// Show schemes of block classes, and say and ask the classes of files
    #[command(
        subcommand,
        after_help = "Examples:
  $ plimsoll class show ext4
  $ plimsoll class say database-index /mnt/db/orders.index"
    )]
    Class(ClassCommand),
    /// Load an NBD server, a file or a disk at a given rate, however fast it answers; or find its peak
    #[command(after_help = "Examples:
  $ plimsoll load 'nbd+unix:///scratch?socket=/run/plimsoll/nbd.sock' --mix spc1-like --destructive --out peak.svg
  offered/s  answered/s  rate  mean  p50  p90  p99  p99.9  longest  read mean  write mean

  $ plimsoll load /dev/sdb --mix 'read random 4KiB' --rate 50,100 --seconds 30  only reads the disk

Arrivals are a Poisson process. Latency runs from the moment at which a request was due, so a server that stops for a moment
shows in the percentiles. Without --rate the rate doubles until the mean latency passes --latency-max; then the peak is found
to 5 %, and 10, 50, 80, 90 and 95 % of it are measured. A mix that writes needs --destructive. Files and disks are read and
written past the page cache.
Exit code 2 if the target or the mix is wrong, and nothing was sent. More: docs/load.md.")]
    Load(LoadArguments),
    /// Classify the files of a program that does not say their classes itself
    #[command(
        subcommand,
        after_help = "Example:
  # sudo -u postgres plimsoll classify postgresql --data-directory /mnt/db/main"
    )]
    Classify(ClassifyCommand),
    /// Write a manual page for each command
    #[command(after_help = "Example:
  # plimsoll man-pages /usr/local/share/man/man1
  49 pages in /usr/local/share/man/man1
  $ man plimsoll-pool-add

make install does it. It makes a missing folder and replaces pages of the same name.")]
    ManPages(ManPagesArguments),
    /// Send a recorded block trace through a scheduler to a device model, or through caches
    #[command(after_help = "Examples:
  $ plimsoll replay msr.csv --device hdd.wd-aakx --scheduler zygaria
  session  requests  rate  runs/s  p50  p90  p99  p99.9  longest

  $ plimsoll replay hplajw.csv.zst --cache=1%,10%,64MiB --classes hp-ux --out misses.svg
  cache  of blocks  policy  hits  of reads  of writes  past it  syncer

Each volume of the trace is a session; --config puts volumes into accounts with reserves and limits. Requests go by the
trace's time stamps (--speed 2: twice as fast), or, with --closed N, N at a time as fast as they are served. Offsets beyond
the device's end start again at its beginning. Formats: docs/traces.md.

With --cache every policy of the SSD cache is compared at every size: docs/cache.md. Exit code 2 if the trace is wrong.")]
    Replay(ReplayArguments),
}

/// Arguments of `plimsoll demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Seconds that are measured, without and with Plimsoll each
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Where the picture goes (SVG)
    #[arg(long, default_value = "demo.svg", value_name = "FILE")]
    pub out: PathBuf,
    /// Write over NBD, without file systems
    #[arg(long)]
    pub nbd: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `plimsoll check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The configuration, in TOML
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `plimsoll up`.
#[derive(Debug, Args)]
pub struct UpArguments {
    /// The configuration, in TOML
    pub file: PathBuf,
}

/// Arguments of `plimsoll man-pages`.
#[derive(Debug, Args)]
pub struct ManPagesArguments {
    /// The folder
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Where the daemon is.
#[derive(Debug, Args)]
pub struct DaemonArguments {
    /// The daemon's control socket [default: control.sock in the state directory of this user]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// Arguments of `plimsoll status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// Print it again every second
    #[arg(long)]
    pub watch: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of commands that ask the daemon and print.
#[derive(Debug, Args)]
pub struct DaemonOutputArguments {
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll volume ...`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// List the volumes, the place of each and the front end that serves it
    #[command(after_help = "Example:
  $ plimsoll volume list
  volume  account  device    size  start  content      served as              users
  db      web/db   disk0   10 GiB    0 B  /srv/db.img  /mnt/db on /dev/loop0      1")]
    List(DaemonOutputArguments),
}

/// Arguments of `plimsoll record`.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// The device; needed if there are several
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// The trace; an existing file is replaced
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// fio3, msr or blktrace
    #[arg(long, value_name = "FORMAT", default_value = "fio3", value_parser = writable_format)]
    pub format: Format,
    /// How long [default: until Ctrl-C, or until the daemon ends]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

fn writable_format(text: &str) -> Result<Format, String> {
    let format = Format::WRITABLE.iter().find(|format| format.name() == text);
    format.copied().ok_or_else(|| {
        let names: Vec<&str> = Format::WRITABLE.iter().map(|format| format.name()).collect();
        format!("allowed are {}", names.join(", "))
    })
}

/// `plimsoll device ...`.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// List the models
    #[command(after_help = "Example:
  $ plimsoll device list
  model             capacity  random runs/s  sequential  queue  summary
  hdd.deskstar-120  ...

A model is named in a configuration as  [device.NAME] emulate = \"hdd.deskstar-120\".")]
    List(OutputArguments),
    /// Compare each model with the figures that are known of the real device
    #[command(after_help = "Example:
  $ plimsoll device check
  model  figure  known  model says  apart  allowed  source

Exit code 1 if a figure is further from the known one than its row allows.")]
    Check(OutputArguments),
    /// Measure a real disk or file, at random and in sequence, and write a profile of it
    #[command(after_help = "Examples:
  $ plimsoll device measure /srv/plimsoll/probe --out disk0.profile  makes the file, deletes it
  # plimsoll device measure /dev/sdb                                 only reads the disk

Without --destructive it only reads what exists; with it, it measures writes too and the content is lost. The slowest of
five windows of the slowest random load is the worst case. It goes past the page cache; other load on the disk lowers the
figures. A configuration names the profile: [device.NAME] profile = \"disk0.profile\".")]
    Measure(MeasureArguments),
}

/// `plimsoll scheduler ...`.
#[derive(Debug, Subcommand)]
pub enum SchedulerCommand {
    /// List the schedulers: what each does, which promises it keeps, where, and at which level
    #[command(after_help = "Example:
  $ plimsoll scheduler list
  scheduler    keeps    volumes  tenants               observed disks  cgroups
  noop         nothing  -        -                     -               -
  split_token  limit    -        calls, pages, blocks  calls, pages    -
  zygaria      reserve  blocks   -                     -               -

Levels: calls wait at their entry, pages are charged when they become dirty, blocks (requests) wait or are ordered, and the
kernel delays I/O beyond the limits of a cgroup (plimsoll agent --wdt). A promise that the scheduler does not keep is
refused: by check and up, by pool, session and run, and on the control socket.")]
    List(OutputArguments),
}

/// Arguments of commands that only print.
#[derive(Debug, Args)]
pub struct OutputArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The command line's description.
pub fn command() -> clap::Command {
    help::in_lines(Arguments::command())
}

/// The command line of this process.
///
/// # Errors
/// It is wrong, or asks for help or the version.
pub fn parse() -> Result<Arguments, clap::Error> {
    let mut command = command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{Command, CommandFactory};

    fn check(command: &Command, path: &str) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let shown = after.starts_with("Example") && after.contains(&format!(" {path}"));
        assert!(shown, "{path} --help has no example: {after:?}");
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        shown.for_each(|command| check(command, &format!("{path} {}", command.get_name())));
    }

    #[test]
    fn every_command_has_an_example() {
        check(&Arguments::command(), "plimsoll");
    }
}
