//! What a process of a scenario is to do, as the host tells it.

use super::priority::Priorities;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a process is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    /// The host.
    pub(super) parent: i32,
    /// Its name in the scenario.
    pub(super) name: String,
    /// The workload as the scenario has it, and the seed of its plan.
    pub(super) workload: String,
    pub(super) seed: u64,
    /// Where its files are to be, on the file system that is measured: a folder that does not exist yet, or the root.
    pub(super) folder: PathBuf,
    pub(super) is_in_root: bool,
    /// What was prepared stays in memory, as far as there is room, and is not made durable file by file.
    pub(super) is_written_before: bool,
    /// It says that it is done when all its threads have ended, and not when the host ends the experiment.
    pub(super) is_until_ended: bool,
    /// Another process has made them.
    pub(super) is_prepared: bool,
    /// Units of so many bytes are counted apart, too, under these names.
    pub(super) unit_sizes: Vec<(String, u64)>,
    /// What the kernel's scheduler is told, if there is one.
    pub(super) priorities: Option<Priorities>,
}
