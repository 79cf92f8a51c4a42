//! Every way in which a moment of a run may look after a crash.

use crate::device::{Device, Volatile};
use crate::recovery::crash_inside;
use crate::rig::{Random, Rig, Setup};
use plimsoll_cache::store::RequestKind;

/// Volatile writes of which all subsets are tried; of more, so many are chosen and the others are there or not by
/// chance.
const SUBSETS_OF: usize = 5;
/// Of so many crash points, one is looked at more closely.
const DEEP_ONE_IN: u64 = 16;

/// How many points were looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Points {
    pub subsets: u64,
    pub torn: u64,
    pub kills: u64,
    pub deep: u64,
    pub during_recovery: u64,
    pub inside_recovery: u64,
}

impl Points {
    pub fn all(&self) -> u64 {
        self.subsets + self.torn + self.kills + self.during_recovery + self.inside_recovery
    }

    pub fn add(&mut self, other: &Points) {
        self.subsets += other.subsets;
        self.torn += other.torn;
        self.kills += other.kills;
        self.deep += other.deep;
        self.during_recovery += other.during_recovery;
        self.inside_recovery += other.inside_recovery;
    }
}

/// Looks at every way in which `rig` may crash now.
pub fn crash_here(rig: &Rig, random: &mut Random, points: &mut Points) -> Result<(), String> {
    let volatile = |rig: &Rig| rig.cache.volatile.len() + rig.store.volatile.len();
    let count = volatile(rig);
    let mut chosen: Vec<usize> = (0..count).collect();
    while chosen.len() > SUBSETS_OF {
        chosen.remove(random.below(chosen.len() as u64) as usize);
    }
    for subset in 0u32..1 << chosen.len() {
        let chance = random.below(u64::MAX);
        let keeps = |at: usize| match chosen.iter().position(|&other| other == at) {
            Some(bit) => subset >> bit & 1 == 1,
            None => chance >> (at % 64) & 1 == 1,
        };
        points.subsets += 1;
        let crashed = after(rig, |at, _| if keeps(at) { u8::MAX } else { 0 });
        check(rig, crashed, random, points).map_err(|error| format!("subset {subset:b} of {chosen:?}: {error}"))?;
    }
    for torn in 0..count {
        let (sectors, chance) = (1 + random.below(254) as u8, random.below(u64::MAX));
        points.torn += 1;
        let crashed = after(rig, |at, _| match at == torn {
            true => sectors,
            false => (chance >> (at % 64) & 1) as u8 * u8::MAX,
        });
        check(rig, crashed, random, points).map_err(|error| format!("write {torn} torn to {sectors:b}: {error}"))?;
    }
    points.kills += 1;
    check(rig, (rig.cache.after_kill(), rig.store.after_kill()), random, points)
        .map_err(|error| format!("kill: {error}"))
}

/// Looks at the two plainest ways: nothing that was not flushed is there, or all of it.
pub fn crash_plainly(rig: &Rig, random: &mut Random, points: &mut Points) -> Result<(), String> {
    for sectors in [0, u8::MAX] {
        points.subsets += 1;
        check(rig, after(rig, |_, _| sectors), random, points).map_err(|error| format!("kept {sectors:b}: {error}"))?;
    }
    Ok(())
}

fn after(rig: &Rig, mut keeps: impl FnMut(usize, &Volatile) -> u8) -> (Device, Device) {
    let cache = rig.cache.after_power_failure(&mut keeps);
    let behind = rig.cache.volatile.len();
    (cache, rig.store.after_power_failure(|at, write| keeps(behind + at, write)))
}

/// Opens what a crash left and looks at every block.
fn check(rig: &Rig, (cache, store): (Device, Device), random: &mut Random, points: &mut Points) -> Result<(), String> {
    let is_deep = random.below(DEEP_ONE_IN) == 0;
    if is_deep {
        points.inside_recovery += crash_inside(&rig.setup, &cache, &store, &mut Random(random.0))?;
    }
    let mut next = reopen(&rig.setup, cache, store, rig, random.below(u64::MAX))?;
    if is_deep {
        crash_again(&next, random, points)?;
    }
    // If the program died, a read promises no durability; a flush does.
    next.request(RequestKind::Flush, 0, u8::MAX);
    let found = next.read_all();
    for (block, content) in found.iter().enumerate() {
        let content = content.as_ref().map_err(|failure| format!("block {block}: {failure}"))?;
        rig.versions.check(block as u64, content)?;
        next.versions.settle(block as u64, content);
    }
    if is_deep {
        points.deep += 1;
        deeper(next, random, points)?;
    }
    Ok(())
}

fn reopen(setup: &Setup, cache: Device, store: Device, rig: &Rig, seed: u64) -> Result<Rig, String> {
    let mut trial = cache.clone();
    setup.open(&mut trial).map_err(|error| format!("it is not opened: {error}"))?;
    Ok(Rig::new(setup.clone(), cache, store, rig.versions.clone(), seed))
}

/// What was found stays, whatever happens: a crash again, at once or after some more work, and being cleaned.
fn deeper(mut rig: Rig, random: &mut Random, points: &mut Points) -> Result<(), String> {
    // What was read is durable, though only some of it was written again since.
    for _ in 0..3 {
        crash_again(&rig, random, points)?;
        (0..8).for_each(|_| rig.step());
    }
    rig.settle();
    rig.machine.clean_all();
    rig.settle();
    rig.request(RequestKind::Flush, 0, u8::MAX);
    rig.settle();
    if rig.machine.dirty_units() != 0 {
        return Err(format!("{} units are still dirty", rig.machine.dirty_units()));
    }
    for block in 0..rig.setup.store_blocks {
        rig.versions
            .check_newest(block, u8::MAX, &rig.store.get(block)[..])
            .map_err(|error| format!("on the store: {error}"))?;
    }
    Ok(())
}

/// Crashes what has just been found, with nothing left of what was not flushed.
fn crash_again(rig: &Rig, random: &mut Random, points: &mut Points) -> Result<(), String> {
    points.during_recovery += 1;
    let (cache, store) = after(rig, |_, _| 0);
    let mut again = reopen(&rig.setup, cache, store, rig, random.below(u64::MAX))?;
    for (block, content) in again.read_all().into_iter().enumerate() {
        let content = content.map_err(|failure| format!("block {block}: {failure}"))?;
        rig.versions.check(block as u64, &content).map_err(|error| format!("crashed again: {error}"))?;
    }
    Ok(())
}
