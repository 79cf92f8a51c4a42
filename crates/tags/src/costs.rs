//! What BPF programs take, as the kernel counts it: for benchmarks.

use libbpf_rs::query::ProgInfoIter;

/// A BPF program of this machine, from any loader, with its runs while `kernel.bpf_stats_enabled` was 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCost {
    /// Its name, of which the kernel keeps 15 letters.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// What all runs took, nanoseconds.
    pub nanoseconds: u64,
}

/// What each program that is loaded has taken so far. None where the kernel does not tell.
pub fn program_costs() -> Vec<ProgramCost> {
    let of_each = ProgInfoIter::default().map(|program| ProgramCost {
        name: program.name.to_string_lossy().into_owned(),
        runs: program.run_cnt,
        nanoseconds: program.run_time_ns,
    });
    of_each.collect()
}
