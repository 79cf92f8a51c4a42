//! A storage server whose requests compete for its processors, and its clients.

use super::HostError;
use crate::results::{CLIENTS, RunResult, Source};
use crate::scenario::{FilerSetup, Setup};
use plimsoll_core::{Span, Time};
use plimsoll_executor::Kind;
use plimsoll_sim::filer::{Costs, Filer, FilerConfig};
use std::collections::BTreeMap;

/// Runs it; what clients still wait for at the end counts as done then, so that an overload shows.
pub(super) fn run(filer: &FilerSetup, setup: &Setup, seed: u64) -> Result<RunResult, HostError> {
    let FilerSetup { platform, workload, per_second, policy, is_adaptive } = *filer;
    let mut server =
        Filer::new(FilerConfig { platform, workload, per_second, policy, is_adaptive, costs: Costs::PAPER, seed });
    let mut clients = Source::default();
    let mut record = |kind: Kind, sent: Time, now: Time, length: u32| {
        clients.record(name(kind), now, now.since(sent), u64::from(length));
    };
    let end = Time::ZERO + setup.duration;
    server.run_until(end, &mut record);
    let last = end.saturating_sub(Span::from_nanos(1));
    server.unfinished(&mut |kind, sent, length| record(kind, sent, last, length));
    let figures = server.figures();
    let done = figures.restarts.iter().sum::<u64>().max(1) as f64;
    Ok(RunResult {
        hash: Some(figures.hash),
        sources: BTreeMap::from([(CLIENTS.to_owned(), clients)]),
        cpu_cores: figures.busy.as_secs_f64() / setup.duration.as_secs_f64(),
        restarts: figures.restarts.map(|count| count as f64 / done),
        ..RunResult::default()
    })
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Other | Kind::Maintenance => "stat",
    }
}
