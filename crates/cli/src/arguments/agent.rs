//! Arguments of `plimsoll agent`.

use crate::config::{SCHEDULER_OF_OBSERVED_DEFAULT, TAGS};
use clap::Args;
use plimsoll_agent::limits::parse_weight;
use std::path::PathBuf;

/// Arguments of `plimsoll agent`.
#[derive(Debug, Args)]
pub struct AgentArguments {
    /// Where the file system is mounted, or its block device; best one that is mounted once the agent serves
    #[arg(long, value_name = "PATH")]
    pub mount: PathBuf,
    /// Steer the kernel's own limits of cgroups instead of holding calls: shares of the disk by weight (docs/agent.md)
    #[arg(long, conflicts_with_all = ["scheduler", "tags", "profile"])]
    pub wdt: bool,
    /// A cgroup below the controller, and its weight, 1 to 10000; for each that shares the disk
    #[arg(long, value_name = "GROUP=N", requires = "wdt", value_parser = parse_weight)]
    pub weight: Vec<(String, u32)>,
    /// Each cgroup directly in this one shares the disk too, whenever it comes, with weight 100 unless --weight names
    /// it
    #[arg(long, value_name = "GROUP", requires = "wdt")]
    pub containers: Option<String>,
    /// Where the controller of block I/O is mounted [default: as the kernel says]
    #[arg(long, value_name = "DIR", requires = "wdt")]
    pub cgroups: Option<PathBuf>,
    /// The scheduler; one that works at the calls: split_token, afq, split_deadline_flusher
    #[arg(long, value_name = "NAME", default_value = SCHEDULER_OF_OBSERVED_DEFAULT)]
    pub scheduler: String,
    /// What tenants are charged for: what they cause, told by BPF, or what their processes submit, as the kernel counts
    /// it
    #[arg(long, value_name = "WHAT", default_value = TAGS[0], value_parser = TAGS)]
    pub tags: String,
    /// What the disk can do: a file that plimsoll device measure wrote [default: not known; limits count bytes]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Where the control socket and the gates are [default: the state directory of this user]
    #[arg(long, value_name = "DIR")]
    pub run_directory: Option<PathBuf>,
}
