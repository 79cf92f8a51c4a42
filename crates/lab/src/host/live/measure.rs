//! Running the load, second by second, and leaving out those in which the emulation was not true.

use super::crew::Load;
use super::disk::Disk;
use super::error::interrupted;
use super::{HostError, clock};
use crate::results::RunResult;
use crate::scenario::Setup;
use plimsoll_core::Span;
use plimsoll_engine::EmulationStatus;
use std::sync::atomic::{AtomicBool, Ordering};

/// A run takes at most so many times its length to find seconds in which the device was emulated truly.
const PATIENCE_FACTOR: u64 = 4;
/// Where every second counts, one reply in so many may be late.
const LATE_REPLIES_PART_MAX: u64 = 10;

/// Runs the load until the setup's number of seconds counts, or until it has ended if that is the end. Answers the
/// number of seconds that did not count. All do where `is_timed`, where the load comes to its end, and where schedulers
/// take turns.
pub(super) fn measure(
    disk: &Disk,
    setup: &Setup,
    mut load: impl Load,
    is_timed: bool,
    stop: &AtomicBool,
) -> Result<(RunResult, u64), HostError> {
    let wanted = setup.duration.as_secs_f64().ceil() as u64;
    let does_every_second_count = is_timed || setup.is_until_ended || setup.machine.alternate.is_some();
    let patience = if does_every_second_count { wanted } else { wanted * PATIENCE_FACTOR };
    let first = disk.emulations()?;
    let origin = load.start()?;
    let (mut counts, mut busy_samples, mut samples) = (Vec::new(), 0, 0);
    let (mut before, mut is_over) = (first.clone(), false);
    let have_counted = |counts: &[bool]| counts.iter().filter(|&&counts| counts).count() as u64;
    while !is_over && have_counted(&counts) < wanted && (counts.len() as u64) < patience {
        let second = counts.len() as u64;
        disk.take_turns(&setup.machine, second)?;
        let end = origin + Span::from_secs(second + 1);
        while !is_over && clock::now() < end {
            if stop.load(Ordering::Relaxed) {
                disk.release();
                return load.finish().and(Err(interrupted()));
            }
            clock::sleep_until(end.min(clock::now() + clock::SLICE));
            samples += 1;
            busy_samples += u64::from(disk.is_busy()?);
            is_over = load.is_over();
        }
        let now = disk.emulations()?;
        counts.push(does_every_second_count || were_true(&before, &now));
        before = now;
    }
    let (counted, last) = (have_counted(&counts), disk.emulations()?);
    let late = counts.len() as u64 - counted;
    disk.release();
    let log = load.finish()?;
    if !is_over && counted < wanted {
        return Err(HostError::NotRun(format!(
            "this machine was too busy to emulate {}: of {} seconds {late} were late",
            setup.machine.device,
            counts.len(),
        )));
    }
    if does_every_second_count {
        check_all(&first, &last, counted)?;
    }
    let result = RunResult {
        hash: None,
        cpu_cores: log.processor.as_secs_f64() / counts.len() as f64,
        sources: log.sources(&counts),
        device_busy: busy_samples as f64 / f64::from(samples.max(1)),
        ..RunResult::default()
    };
    Ok((result, late))
}

fn were_true(before: &[EmulationStatus], now: &[EmulationStatus]) -> bool {
    before.iter().zip(now).all(|(before, now)| now.was_true_since(before))
}

/// Where every second counts, the emulation must have been true over all of them.
fn check_all(first: &[EmulationStatus], last: &[EmulationStatus], seconds: u64) -> Result<(), HostError> {
    for (first, last) in first.iter().zip(last) {
        let (late, replies) = (last.late_replies - first.late_replies, last.replies - first.replies);
        if late > replies / LATE_REPLIES_PART_MAX {
            return Err(HostError::NotRun(format!(
                "this machine was too busy: in {seconds} s {late} of {replies} replies of an emulated device were late"
            )));
        }
    }
    Ok(())
}

/// In words, for a reader of the figures: the lateness of the devices in a run in which every second counted.
pub(super) fn in_words(disk: &Disk, setup: &Setup) -> Result<String, HostError> {
    let names = [setup.machine.device].into_iter().chain(setup.machine.cache.as_ref().map(|cache| cache.device));
    let of = |(name, status): (&str, EmulationStatus)| {
        let late = Span::from_nanos(status.lateness_ns_p99);
        format!(
            "{name} {late} ({} of {} later than {})",
            status.late_replies,
            status.replies,
            Span::from_nanos(status.lateness_ns_bound)
        )
    };
    let devices: Vec<String> = names.zip(disk.emulations()?).map(of).collect();
    Ok(format!("99 of 100 replies were at most so late: {}", devices.join(", ")))
}
