//! The cache on a device, against devices in memory that lose what was not flushed, tear what is written, fail and rot.
//!
//! `docs/cache-format.md` lists the breaks that were planted, and which of these tests found each.

mod behaviour;
mod crash;
mod damage;
mod device;
mod faults;
mod losses;
mod observed;
mod ops;
mod overload;
mod races;
mod recovery;
mod regions;
mod restart;
mod rig;
mod search;
mod structure;
mod timed;
mod unreadable;
mod versions;

use crash::{Points, crash_here, crash_plainly};
use plimsoll_cache::store::Semantics;
use rig::{Random, Rig, Setup};

/// Runs a workload and crashes it at each of its steps.
fn run(setup: &Setup, steps: u32, seed: u64) -> Points {
    let (mut rig, mut random, mut points) = (Rig::fresh(setup.clone(), seed), Random(!seed), Points::default());
    for step in 0..steps {
        rig.step();
        if let Err(error) = crash_here(&rig, &mut random, &mut points) {
            panic!("{} {:?}, seed {seed}, step {step}: {error}", setup.policy, setup.semantics);
        }
    }
    for (block, content) in rig.read_all().into_iter().enumerate() {
        rig.versions.check_newest(block as u64, u8::MAX, &content.unwrap()).unwrap();
    }
    points
}

/// Every step of recorded runs, every subset of up to five unflushed writes, torn sectors, kills, and crashes after the
/// recovery.
/// Promise: store-crash.
#[test]
fn whatever_a_crash_leaves_is_between_what_was_promised_and_what_was_written() {
    let mut points = Points::default();
    for (at, policy) in ["lru", "selective", "credit", "s3_fifo"].into_iter().enumerate() {
        for semantics in [Semantics::Strict, Semantics::WriteCache] {
            points.add(&run(&Setup::small(policy, semantics), STEPS, at as u64 + 1));
        }
    }
    // Several pages of the map.
    let wide = Setup { units: 900, store_blocks: 60, ..Setup::small("credit", Semantics::WriteCache) };
    points.add(&run(&wide, STEPS / 8, 7));
    println!("{} crash points: {points:?}", points.all());
    assert!(points.all() >= 20_000, "{points:?}");
}

/// What happens seldom needs longer runs: a block that the cache has given up and the device not yet forgotten, and
/// that is written past the cache.
/// Promise: store-crash.
#[test]
fn long_runs_survive_a_crash_that_keeps_all_or_nothing() {
    let mut points = Points::default();
    // Seeds 100 and 101 are the ones that found a unit cleaned before its record was durable.
    for seed in 100..108 {
        let semantics = if seed % 4 == 0 { Semantics::WriteCache } else { Semantics::Strict };
        let setup = Setup { units: 14, store_blocks: 32, ..Setup::small("selective", semantics) };
        let (mut rig, mut random) = (Rig::fresh(setup, seed), Random(seed));
        for step in 0..1500 {
            rig.step();
            if let Err(error) = crash_plainly(&rig, &mut random, &mut points) {
                panic!("{semantics:?}, seed {seed}, step {step}: {error}");
            }
        }
    }
    println!("{} crash points: {points:?}", points.all());
}

/// Steps of a run: with these there are at least 20,000 crash points.
const STEPS: u32 = 240;
