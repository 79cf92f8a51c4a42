//! Arguments of `plimsoll agent`.

use crate::config::SCHEDULER_OF_OBSERVED_DEFAULT;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `plimsoll agent`.
#[derive(Debug, Args)]
pub struct AgentArguments {
    /// Where the file system is mounted, or its block device; best one that is mounted once the agent serves
    #[arg(long, value_name = "PATH")]
    pub mount: PathBuf,
    /// The scheduler; one that works at the calls: split_token, afq, split_deadline_flusher
    #[arg(long, value_name = "NAME", default_value = SCHEDULER_OF_OBSERVED_DEFAULT)]
    pub scheduler: String,
    /// What the disk can do: a file that plimsoll device measure wrote [default: not known; limits count bytes]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Where the control socket and the gates are [default: the state directory of this user]
    #[arg(long, value_name = "DIR")]
    pub run_directory: Option<PathBuf>,
}
