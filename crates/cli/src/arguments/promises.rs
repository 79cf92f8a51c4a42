//! Arguments of what promises something: `plimsoll pool`, `plimsoll session` and `plimsoll run`.

use super::{DaemonArguments, DaemonOutputArguments};
use crate::control::protocol::{Change, Limit};
use clap::{Args, Subcommand};
use plimsoll_core::units::{ParseUnitError, deadline};
use plimsoll_core::{Priority, Rate, Span};
use std::ffi::OsString;

/// `plimsoll pool ...`.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// List the pools and the promises of each
    #[command(after_help = "Example:
  $ plimsoll pool list
  pool    kind    device  reserve    limit  weight  priority
  web     pool    disk0       30%  10 MB/s     100         4
  web/db  volume  disk0         -        -     100         4

A volume has an account in its pool, with promises like a pool's: the sessions of the volume share them.")]
    List(DaemonOutputArguments),
    /// Add a pool
    #[command(after_help = "Example:
  $ plimsoll pool add web/batch --reserve 5% --limit \"2 MB/s\"
  pool web/batch added on disk0

The part before the last / is a pool that is open. A pool that is in no other needs --device if there are several.
A reserve that does not fit is refused, and the message says by how much; the exit code is 1.")]
    // Each session's own: the refusal says where they are set.
    #[command(mut_args(hidden_of_pools))]
    Add(PoolAddArguments),
    /// Change the promises of a pool or volume, from its next request on
    #[command(after_help = "Example:
  $ plimsoll pool set web --reserve 40%
  web: a reserve of 44.8 runs/s does not fit: disk0 has 112 runs/s, 78.4 are promised to others, 11.2 too many

Other promises stay as they are. The configuration file is not changed.")]
    // Each session's own: the refusal says where they are set.
    #[command(mut_args(hidden_of_pools))]
    Set(PoolSetArguments),
    /// Remove a pool that has no members
    #[command(after_help = "Example:
  $ plimsoll pool remove web/batch
  pool web/batch removed")]
    Remove(PoolRemoveArguments),
}

/// `plimsoll session ...`.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Open a session and print the export that its clients connect to
    #[command(after_help = "Example:
  $ plimsoll session open db loader --reserve \"20 runs/s\"
  db/loader#1
  $ nbdinfo \"nbd+unix:///db/loader%231?socket=/run/plimsoll/nbd.sock\"

The session's promises are part of the volume's. A reserve that does not fit is refused, and the message says by how much.
All connections to that export share the session. It stays open until session close.

  $ cat load.sh
  qemu-img convert -n -O raw image.qcow2 \\
    nbd:unix:/run/plimsoll/nbd.sock:exportname=$PLIMSOLL_EXPORT
  $ plimsoll session open db loader --reserve \"20 runs/s\" -- sh load.sh

With a command, the session ends with the command's last process, however that ends; NBD clients that are still connected
are cut off. The command takes the place of this process: signals, terminal and exit code are its own. It finds the export
in PLIMSOLL_EXPORT and the session's path in PLIMSOLL_SESSION. On a volume with an iSCSI target and no export, the session
has a target of its own, in PLIMSOLL_TARGET.")]
    Open(SessionOpenArguments),
    /// Close a session without connections
    #[command(after_help = "Example:
  $ plimsoll session close db/loader#1
  session web/db/loader#1 closed

The name is the one that session open printed, or the session's path, which plimsoll status shows.")]
    Close(SessionCloseArguments),
}

/// Arguments of `plimsoll session open`.
#[derive(Debug, Args)]
pub struct SessionOpenArguments {
    /// The volume, which is exported
    pub volume: String,
    /// What the session is called, in 1 to 64 letters, digits, "-", "_" and "."; a number makes it unique
    pub name: String,
    /// What it is promised.
    #[command(flatten)]
    pub change: ChangeArguments,
    /// Print path and export as JSON
    #[arg(long, conflicts_with = "command")]
    pub json: bool,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// A command and its arguments; the session ends with the command
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `plimsoll session close`.
#[derive(Debug, Args)]
pub struct SessionCloseArguments {
    /// What session open printed, or the session's path
    pub session: String,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The volume; needed if several take tenants
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,
    /// The path of the pool that the session opens in [default: the volume's own account]
    #[arg(long, value_name = "PATH")]
    pub pool: Option<String>,
    /// What the session is called, in 1 to 64 letters, digits, "-", "_" and "." [default: the command's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Say on stderr which volume or disk was joined, and as which session
    #[arg(long, short)]
    pub verbose: bool,
    /// What it is promised.
    #[command(flatten)]
    pub change: ChangeArguments,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Arguments of `plimsoll pool add`.
#[derive(Debug, Args)]
pub struct PoolAddArguments {
    /// The pool's path, such as web/batch
    pub pool: String,
    /// The device, for a pool that is in no other
    #[arg(long)]
    pub device: Option<String>,
    /// What it is promised.
    #[command(flatten)]
    pub change: ChangeArguments,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll pool set`.
#[derive(Debug, Args)]
pub struct PoolSetArguments {
    /// The pool's path, such as web; a volume's is its pool's path and its name, such as web/db
    pub pool: String,
    /// What changes.
    #[command(flatten)]
    pub change: ChangeArguments,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// Arguments of `plimsoll pool remove`.
#[derive(Debug, Args)]
pub struct PoolRemoveArguments {
    /// The pool's path
    pub pool: String,
    /// Where the daemon is.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

/// What a pool is promised.
#[derive(Debug, Args)]
pub struct ChangeArguments {
    /// The rate that it gets whatever other tenants do: "45 runs/s", 10MB/s, 30%, or none
    #[arg(long, value_name = "RATE", value_parser = reserve)]
    pub reserve: Option<Rate>,
    /// The rate that it never exceeds, or none
    #[arg(long, value_name = "RATE")]
    pub limit: Option<Limit>,
    /// Its part of the unreserved rate, relative to its siblings': 1 to 10000
    #[arg(long)]
    pub weight: Option<u32>,
    /// 0 (highest) to 7, or idle
    #[arg(long, value_parser = priority)]
    pub priority: Option<Priority>,
    /// How soon a block read should be done: 10ms
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub read_deadline: Option<Span>,
    /// How soon a block write should be done
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub write_deadline: Option<Span>,
    /// How soon an fsync should return
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    pub fsync_deadline: Option<Span>,
}

/// Leaves out of a pool's help what only sessions have.
fn hidden_of_pools(argument: clap::Arg) -> clap::Arg {
    const OF_SESSIONS: [&str; 4] = ["priority", "read_deadline", "write_deadline", "fsync_deadline"];
    let is_hidden = OF_SESSIONS.contains(&argument.get_id().as_str());
    argument.hide(is_hidden)
}

/// A reserve, or that there is none.
fn reserve(text: &str) -> Result<Rate, ParseUnitError> {
    if text == "none" { Ok(Rate::ZERO) } else { text.parse() }
}

impl ChangeArguments {
    /// As the protocol has it.
    pub fn change(&self) -> Change {
        let Self { reserve, limit, weight, priority, read_deadline, write_deadline, fsync_deadline } = *self;
        Change { reserve, limit, weight, priority, read_deadline, write_deadline, fsync_deadline }
    }
}

fn priority(text: &str) -> Result<Priority, String> {
    let level = || text.parse().ok().filter(|level| *level <= 7).map(Priority::Level);
    let priority = if text == "idle" { Some(Priority::Idle) } else { level() };
    priority.ok_or_else(|| "allowed are 0 to 7 and idle".to_owned())
}
