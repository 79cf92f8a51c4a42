//! Plays a case: does each of its steps, looks at every invariant after it, crashes it, and at last lets everything
//! come to rest.

use super::case::{Case, Keep, Step, Way, What};
use super::faults::{Faults, Rate};
use super::look::{Tally, contents, look, nested, power};
use crate::device::SECTORS;
use crate::rig::{Random, Rig, Setup, policy};
use plimsoll_cache::Pool;
use plimsoll_cache::store::{Action, RequestKind, Semantics, Target};

/// Operations after which all work under way has come to rest.
const OPERATIONS_MAX: u64 = 200_000;

/// Where a case failed, and how.
#[derive(Clone, Debug)]
pub struct Found {
    /// The step, or the number of steps for what came after them.
    pub step: usize,
    pub error: String,
}

/// Plays all steps; `at` is told the number of each.
pub fn play(case: &Case, tally: &mut Tally, mut at: impl FnMut(usize)) -> Result<(), Found> {
    let mut rig = Rig::fresh(case.setup.clone(), case.seed);
    for (number, step) in case.steps.iter().enumerate() {
        at(number);
        let mut random = Random(step.seed);
        rig.random = Random(!step.seed);
        let found = do_step(&mut rig, step, &mut random, tally)
            .and_then(|()| rig.machine.audit())
            .and_then(|()| told_without_need(&rig))
            .and_then(|()| look(&rig, step.look, &mut random, tally));
        found.map_err(|error| Found { step: number, error })?;
        tally.steps += 1;
    }
    at(case.steps.len());
    come_to_rest(&mut rig, tally).map_err(|error| Found { step: case.steps.len(), error })?;
    tally.cases += 1;
    Ok(())
}

fn do_step(rig: &mut Rig, step: &Step, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
    match &step.what {
        What::Ask { kind, block, sectors, shift, pool } if rig.under_way() < rig.setup.depth.requests as usize => {
            (rig.class_shift, rig.pool) = (*shift, Pool::new(*pool).expect("below 512"));
            rig.request(*kind, block % rig.setup.store_blocks, *sectors);
        }
        What::TrimRange { block, blocks } if rig.under_way() < rig.setup.depth.requests as usize => {
            rig.trim(block % rig.setup.store_blocks, *blocks);
        }
        What::Ask { .. } | What::TrimRange { .. } => {}
        What::End { prefer, place } => {
            let preferred = prefer.and_then(|(target, action)| rig.number_of(target, action));
            match preferred {
                Some(number) => rig.end_number(number),
                None if rig.doing.is_empty() => {}
                None => rig.end((place % rig.doing.len() as u64) as usize),
            }
        }
        What::CleanAll => rig.machine.clean_all(),
        What::CleanNoMore => rig.machine.clean_no_more(),
        What::Policy { name, higher, promotes } => {
            let mut config = rig.setup.config();
            config.watermark_high += higher;
            config.promotes_reads = *promotes;
            rig.machine.set_policy(&config, policy(name)).map_err(|error| error.to_string())?;
        }
        What::Semantics(semantics) => {
            // Before that, a write may have been acknowledged that is not durable.
            if rig.setup.semantics.is_loose() && *semantics == Semantics::Strict {
                return Ok(());
            }
            rig.setup.semantics = *semantics;
            rig.machine.set_semantics(*semantics);
        }
        What::Rate(rate) => {
            rig.faults.may_be_told = true;
            rig.faults.rates.push(*rate);
        }
        What::Bad(bad) => {
            rig.faults.may_be_told |= bad.target == Target::Store;
            rig.faults.bad.push(bad.clone());
        }
        What::Heal => rig.faults = Faults { may_be_told: rig.faults.may_be_told, ..Faults::default() },
        What::Close { operations } => close(rig, *operations)?,
        What::Restart { way, nested } => restart(rig, *way, *nested, random, tally)?,
    }
    rig.take();
    Ok(())
}

/// Whether a client was told of a failure though the store has not failed, the cache's device can be read, and its
/// journal is whole.
fn told_without_need(rig: &Rig) -> Result<(), String> {
    match rig.failures.first() {
        Some(failure) if !rig.faults.may_be_told && !rig.machine.has_failed() => {
            Err(format!("a client is told that {failure}, though the store is well"))
        }
        _ => Ok(()),
    }
}

/// Nothing more is asked, until nothing is under way.
fn settle(rig: &mut Rig) -> Result<(), String> {
    rig.take();
    for _ in 0..OPERATIONS_MAX {
        if rig.doing.is_empty() {
            return match rig.under_way() {
                0 => Ok(()),
                requests => Err(format!("{requests} requests are never answered")),
            };
        }
        let at = rig.random.below(rig.doing.len() as u64) as usize;
        rig.end(at);
        rig.take();
        rig.machine.audit()?;
    }
    Err(format!("after {OPERATIONS_MAX} operations it is not at rest"))
}

/// Is closed, and goes on.
fn close(rig: &mut Rig, operations: u64) -> Result<(), String> {
    settle(rig)?;
    rig.machine.close();
    rig.take();
    for _ in 0..operations {
        if !rig.finish_one() {
            break;
        }
        rig.take();
        rig.machine.audit()?;
    }
    if rig.doing.is_empty() && !rig.machine.is_closed() {
        return Err("nothing is under way and it is not closed".to_owned());
    }
    rig.machine.resume();
    Ok(())
}

fn restart(rig: &mut Rig, way: Way, starts: u64, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
    tally.crashes += 1;
    let keeps: Vec<Keep> = (0..starts).map(|at| [Keep::Some, Keep::Torn, Keep::Nothing][at as usize % 3]).collect();
    let (cache, store) = match way {
        Way::Kill => (rig.cache.after_kill(), rig.store.after_kill()),
        Way::Power { cache, store } => (power(&rig.cache, cache, random), power(&rig.store, store, random)),
    };
    let is_killed = way == Way::Kill && starts == 0;
    // A power failure within a start is one of the store's, too.
    let store = if way == Way::Kill && !is_killed { power(&store, Keep::Some, random) } else { store };
    let cache = nested(&rig.setup, cache, &keeps, random, tally)?;
    let versions = std::mem::replace(&mut rig.versions, crate::versions::Versions::new(0));
    let (faults, lost) = (std::mem::take(&mut rig.faults), rig.store_lost);
    tally.starts += 2;
    let found = contents(&rig.setup, cache.clone(), store.clone())?;
    *rig = Rig::new(rig.setup.clone(), cache, store, versions, random.below(u64::MAX));
    (rig.faults, rig.store_lost) = (faults, lost && is_killed);
    for (block, content) in (0..).zip(&found) {
        rig.versions.check(block, content)?;
        match is_killed {
            true => rig.versions.survived(block, content),
            false => rig.versions.settle(block, content),
        }
    }
    if is_killed {
        // A flush that failed told the daemon that was killed. What the store has lost is read until the power fails,
        // and a flush that the next daemon asks for succeeds.
        let kept = power(&rig.store, Keep::All, random);
        let is_lost = |block: &u64| kept.get(*block) != rig.store.get(*block);
        (0..rig.setup.store_blocks).filter(is_lost).for_each(|block| rig.versions.doubt_block(block));
    }
    Ok(())
}

/// Each operation on either device fails from now on: what is under way is answered all the same.
fn both_die(rig: &mut Rig) -> Result<(), String> {
    rig.faults.may_be_told = true;
    for target in [Target::Cache, Target::Store] {
        rig.faults.rates.extend([Action::Read, Action::Write, Action::Flush, Action::Trim].map(|action| Rate {
            target,
            action,
            one_in: 1,
        }));
    }
    settle(rig).map_err(|error| format!("both devices fail: {error}"))
}

/// Nothing fails any more: everything is answered, each block can be read, written and trimmed, and at last the store
/// has everything.
fn come_to_rest(rig: &mut Rig, tally: &mut Tally) -> Result<(), String> {
    if rig.random.below(4) == 0 {
        both_die(rig)?;
    }
    rig.faults = Default::default();
    rig.class_shift = 0;
    settle(rig)?;
    read_all(rig)?;
    if rig.machine.has_failed() {
        let way = Way::Kill;
        restart(rig, way, 0, &mut Random(1), tally)?;
    }
    for block in 0..rig.setup.store_blocks.min(40) {
        for (kind, sectors) in [(RequestKind::Read, u8::MAX), (RequestKind::Write, 1), (RequestKind::Trim, u8::MAX)] {
            if kind == RequestKind::Trim && block % 2 == 0 {
                continue;
            }
            if !rig.request(kind, block, sectors) {
                return Err(format!("{kind:?} of block {block} has to wait though nothing is under way"));
            }
            settle(rig)?;
        }
    }
    let failures = rig.failures.len();
    rig.machine.clean_all();
    settle(rig)?;
    for _ in 0..2 {
        rig.request(RequestKind::Flush, 0, u8::MAX);
        settle(rig)?;
    }
    // Of a flush that failed before it is told here.
    if rig.machine.dirty_units() != 0 || rig.failures.len() > failures + 1 {
        let (dirty, failed) = (rig.machine.dirty_units(), &rig.failures[failures..]);
        return Err(format!("{dirty} units are still dirty though nothing fails, {failed:?}"));
    }
    for block in 0..rig.setup.store_blocks {
        let floor = if rig.store_lost { [0; SECTORS] } else { rig.versions.floor(block) };
        let found = rig.versions.check_from(block, u8::MAX, &rig.store.get(block)[..], &floor);
        found.map_err(|error| format!("on the store, all clean: {error}"))?;
    }
    Ok(())
}

fn read_all(rig: &mut Rig) -> Result<(), String> {
    for block in 0..rig.setup.store_blocks {
        let failures = rig.failures.len();
        if !rig.request(RequestKind::Read, block, u8::MAX) {
            return Err(format!("a read of block {block} has to wait though nothing is under way"));
        }
        settle(rig)?;
        if rig.failures.len() > failures {
            return Err(format!("block {block} cannot be read: {:?}", rig.failures[failures]));
        }
    }
    Ok(())
}

/// The same case in a simpler setup.
pub fn simpler(setup: &Setup) -> Vec<Setup> {
    let mut simpler = Vec::new();
    let mut add = |other: Setup| simpler.push(other);
    add(Setup { policy: "lru", ..setup.clone() });
    add(Setup { has_bounds: false, ..setup.clone() });
    for units in [5, 6, 8, 12, 20] {
        if units < setup.units {
            add(Setup { units, ..setup.clone() });
        }
    }
    for store_blocks in [8, 12, 20, 40] {
        if store_blocks < setup.store_blocks {
            add(Setup { store_blocks, ..setup.clone() });
        }
    }
    simpler
}
