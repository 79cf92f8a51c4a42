//! What can be known on this kernel, device and file system, and what cannot.

use crate::device::FileSystem;
use std::fmt;

/// What the tags of a device know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// The file system that was found when the tags were loaded.
    pub file_system: FileSystem,
    /// Whether the causes of a block are known. Otherwise only the processes that submit I/O or make pages dirty, of
    /// whatever disk ([`Tags::of_submitters`](crate::Tags::of_submitters)).
    pub has_causes: bool,
    /// Whether the causes of metadata and journal are known; those of data always are.
    pub has_metadata: bool,
    /// Whether a dirty page that another account writes again has both as causes. Otherwise the first account that
    /// dirtied it is its only cause.
    pub has_repeated_dirtying: bool,
    /// What will be unknown or less than exact, one sentence each.
    pub warnings: Vec<String>,
}

/// What loading found out.
pub(crate) struct Findings<'a> {
    pub(crate) file_system: FileSystem,
    pub(crate) is_mounted: bool,
    pub(crate) layout_problem: Option<String>,
    pub(crate) has_symbols: bool,
    /// Programs that were left out because the kernel has no such tracepoint.
    pub(crate) missing: Vec<&'a str>,
}

impl Coverage {
    pub(crate) fn of(findings: Findings<'_>) -> Coverage {
        let Findings { file_system, is_mounted, layout_problem, has_symbols, missing } = findings;
        let is_missing = |names: &[&str]| names.iter().all(|name| missing.contains(name));
        let (has_metadata, has_repeated_dirtying) = match file_system {
            FileSystem::Ext4 => (!is_missing(&["jbd2_handle_start"]), true),
            FileSystem::Xfs => (!is_missing(&["xfs_trans_commit_items"]), !is_missing(&["xfs_file_buffered_write"])),
            FileSystem::Btrfs | FileSystem::Other => (false, false),
        };
        let mut warnings = Vec::new();
        if is_mounted {
            warnings.push("the device was mounted before: what was dirty then has no known cause".to_owned());
        }
        if !has_metadata {
            warnings.push("the causes of metadata and journal are not known: only ext4 and XFS tell them".to_owned());
        }
        if !has_repeated_dirtying {
            warnings.push("a dirty page that another account writes keeps its first cause only".to_owned());
        }
        if file_system == FileSystem::Xfs {
            warnings.push("a store into a mapped page that is dirty already does not add a cause on XFS".to_owned());
        }
        if let Some(problem) = layout_problem {
            warnings.push(format!("classes of ext4's metadata are not told apart: {problem}"));
        }
        if !has_symbols {
            let why = "/proc/kallsyms shows no addresses (kernel.kptr_restrict)";
            warnings.push(format!("journal, XFS buffers and direct I/O are not told apart: {why}"));
        }
        let has_causes = true;
        Coverage { file_system, has_causes, has_metadata, has_repeated_dirtying, warnings }
    }

    /// What is known without the programs, which do not run for the reason `why`.
    pub(crate) fn of_submitters(file_system: FileSystem, why: &str) -> Coverage {
        let warnings = [
            why,
            "I/O on other disks is charged too, journal and metadata to no account, and all of it as sequential",
            "the I/O of a child that loses its parent at once is charged to no account, unless its cgroup is a tenant",
        ];
        let warnings = warnings.map(str::to_owned).to_vec();
        Coverage { file_system, has_causes: false, has_metadata: false, has_repeated_dirtying: false, warnings }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.has_causes, self.has_metadata) {
            (true, true) => write!(out, "data, metadata and journal of {:?}", self.file_system)?,
            (true, false) => write!(out, "data only of {:?}", self.file_system)?,
            (false, _) => out.write_str("nothing, tenants are charged for what their processes submit")?,
        }
        self.warnings.iter().try_for_each(|warning| write!(out, "; {warning}"))
    }
}
