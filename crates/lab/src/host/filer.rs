//! A storage server with processors that its requests compete for, and its clients.

use super::HostError;
use crate::results::{CLIENTS, RunResult, Source};
use crate::scenario::FilerSetup;
use plimsoll_core::{Span, Time};
use plimsoll_executor::Kind;
use plimsoll_sim::filer::{Costs, Filer, FilerConfig};
use std::collections::BTreeMap;

/// Runs it. Requests that clients still wait for at the end count as done then, so that an overload shows.
pub(super) fn run(filer: &FilerSetup, duration: Span, seed: u64) -> Result<RunResult, HostError> {
    let FilerSetup { platform, workload, per_second, policy, is_adaptive } = *filer;
    let costs = Costs::PAPER;
    // As in the paper: scenarios repeat its figures.
    let maintenance_gives_way = false;
    let config =
        FilerConfig { platform, workload, per_second, policy, is_adaptive, maintenance_gives_way, costs, seed };
    let mut server = Filer::new(config);
    let mut clients = Source::default();
    let mut record = |kind: Kind, sent: Time, now: Time, length: u32| {
        clients.record(name(kind), now, now.since(sent), u64::from(length));
    };
    let end = Time::ZERO + duration;
    server.run_until(end, &mut record);
    let last = end.saturating_sub(Span::from_nanos(1));
    server.unfinished(&mut |kind, sent, length| record(kind, sent, last, length));
    let figures = server.figures();
    let done = figures.restarts.iter().sum::<u64>().max(1) as f64;
    Ok(RunResult {
        hash: Some(figures.hash),
        sources: BTreeMap::from([(CLIENTS.to_owned(), clients)]),
        cpu_cores: figures.busy.as_secs_f64() / duration.as_secs_f64(),
        restarts: figures.restarts.map(|count| count as f64 / done),
        consistency_points: figures.consistency_points as f64,
        log_waits: figures.log_waits as f64,
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

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_executor::Policy;
    use plimsoll_sim::filer::{PLATFORMS, Platform, WORKLOADS};

    /// A log that is filled faster than any consistency point ends, and one that is never filled. Planted break: either
    /// figure is left out.
    #[test]
    fn a_run_says_how_often_the_log_was_full_and_how_often_it_was_emptied() {
        let figures = |log_bytes| {
            let platform = Platform { log_bytes, ..PLATFORMS[1] };
            let (workload, policy) = (WORKLOADS[0], Policy::BASELINE);
            let filer = FilerSetup { platform, workload, per_second: 40_000.0, policy, is_adaptive: false };
            let result = run(&filer, Span::from_secs(1), 1).unwrap();
            (result.log_waits, result.consistency_points)
        };
        let (waits, points) = figures(1 << 20);
        assert!(waits > 1000.0 && (5.0..100.0).contains(&points), "{waits}, {points}");
        assert_eq!(figures(1 << 50), (0.0, 0.0));
    }
}
