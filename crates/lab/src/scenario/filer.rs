//! The section of a storage server with processors that its requests compete for: `[filer]`.

use super::model::{FilerSetup, MachineSetup};
use plimsoll_core::Rate;
use plimsoll_executor::{Dispatching, Policy, QUEUES, Slicing};
use plimsoll_settings::{Problem, Section};
use plimsoll_sim::MachineConfig;
use plimsoll_sim::filer::{PLATFORMS, Platform, WORKLOADS};
use plimsoll_sim::numa::ThrottleLock;

/// Slices, as a scenario has them.
const SLICES: [(&str, Slicing); 2] = [("weight", Slicing::BY_WEIGHT), ("depth", Slicing::BY_DEPTH)];
/// Dispatching that follows what is measured.
const ADAPTIVE: &str = "adaptive";
const WEIGHTS: &str = "three weights from 1 to 1000 such as [60, 30, 10]: high, low, maintenance";
const LOAD: &str = "a rate of requests such as \"80000 runs/s\"";

/// Reads `[filer]`.
pub(super) fn filer(file: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<FilerSetup> {
    let mut section = file.section("filer", problems)?;
    for (key, allowed) in [("platform", "a platform"), ("workload", "a workload"), ("load", LOAD)] {
        section.require(key, allowed, problems);
    }
    let platform = section.choice("platform", &PLATFORMS.map(|platform| platform.name), problems);
    let workload = section.choice("workload", &WORKLOADS.map(|workload| workload.name), problems);
    let load =
        section.quantity("load", LOAD, problems, |load| matches!(load, Rate::RunsPerSecond(runs) if *runs > 0.0));
    let names: Vec<&'static str> = Dispatching::ALL.iter().map(|each| each.name()).chain([ADAPTIVE]).collect();
    let dispatching = section.choice("dispatching", &names, problems);
    let slices = section.choice("slices", &SLICES.map(|(name, _)| name), problems);
    let weights = section.with("weights", WEIGHTS, problems, |value| {
        let weights =
            value.as_array()?.iter().map(|weight| weight.get_ref().as_integer()?.as_str().parse::<u32>().ok());
        let weights: [u32; QUEUES] = weights.collect::<Option<Vec<u32>>>()?.try_into().ok()?;
        weights.iter().all(|weight| (1..=1000).contains(weight)).then_some(weights)
    });
    section.finish(problems);
    let named = |name: Option<&str>| SLICES.iter().find(|(each, _)| Some(*each) == name).map(|(_, slicing)| *slicing);
    let Rate::RunsPerSecond(per_second) = load? else { return None };
    Some(FilerSetup {
        platform: *PLATFORMS.iter().find(|each| Some(each.name) == platform)?,
        workload: *WORKLOADS.iter().find(|each| Some(each.name) == workload)?,
        per_second,
        is_adaptive: dispatching == Some(ADAPTIVE),
        policy: Policy {
            dispatching: dispatching.and_then(|name| name.parse().ok()).unwrap_or(Policy::BASELINE.dispatching),
            slicing: named(slices).unwrap_or(Policy::BASELINE.slicing),
            weights: weights.unwrap_or(Policy::BASELINE.weights),
        },
    })
}

/// The machine that such a server is, for what asks about machines.
pub(super) fn machine(platform: &Platform) -> MachineSetup {
    let config =
        MachineConfig { cores: platform.cores, memory_bytes: platform.memory_bytes, ..MachineConfig::default() };
    MachineSetup {
        device: platform.drive,
        scheduler: "noop",
        file_system: "raw",
        volume_bytes: None,
        journal_bytes: None,
        own_disk_bytes: None,
        alternate: None,
        kernel_scheduler: None,
        has_kernel_limits: false,
        has_kernel_wdt: false,
        numa_nodes: 1,
        throttle_lock: ThrottleLock::None,
        cache: None,
        config,
    }
}
