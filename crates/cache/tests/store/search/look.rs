//! Starts after a crash: each opens what is left and looks at every block.

use super::case::{Keep, Look};
use crate::device::{Device, Recorded};
use crate::rig::{Random, Rig, Setup};
use crate::versions::Versions;
use plimsoll_cache::store::{BLOCK_BYTES, Blocks, CacheStore};

/// What was done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub cases: u64,
    pub steps: u64,
    /// Moments, each with what a crash there left.
    pub crashes: u64,
    /// Recoveries.
    pub starts: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.starts += other.starts;
    }
}

/// A device after the power failed.
pub fn power(device: &Device, keep: Keep, random: &mut Random) -> Device {
    device.after_power_failure(|_, _| match keep {
        Keep::Nothing => 0,
        Keep::All => u8::MAX,
        Keep::Some => random.below(2) as u8 * u8::MAX,
        Keep::Torn if random.below(3) == 0 => random.below(256) as u8,
        Keep::Torn => random.below(2) as u8 * u8::MAX,
    })
}

/// All blocks as a start finds them.
pub fn contents(setup: &Setup, mut cache: Device, mut store: Device) -> Result<Vec<Vec<u8>>, String> {
    let mut machine = setup.open(&mut cache).map_err(|error| format!("it is not opened: {error}"))?;
    machine.audit().map_err(|error| format!("after a start: {error}"))?;
    (0..setup.store_blocks).map(|block| read(&mut machine, &mut cache, &mut store, block)).collect()
}

/// Reads a block of a cache that does nothing else but to make room.
fn read(machine: &mut CacheStore, cache: &mut Device, store: &mut Device, block: u64) -> Result<Vec<u8>, String> {
    use plimsoll_cache::store::{Action, Request, RequestKind, Target};
    let (class, pool) =
        (plimsoll_core::Class::new((block % 4) as u8).expect("below 32"), plimsoll_cache::Pool::default());
    let request = Request { token: 0, kind: RequestKind::Read, block, from: 0, to: BLOCK_BYTES as u16, class, pool };
    if !machine.submit(&request, &[]) {
        return Err(format!("block {block}: a read has to wait for nothing"));
    }
    let mut found = None;
    loop {
        while machine.next_answer(|_, failure, data| {
            found = Some(match failure {
                Some(failure) => Err(format!("block {block}: {failure}")),
                None => Ok(data.to_vec()),
            });
        }) {}
        let Some(operation) = machine.next_operation() else { break };
        let at = operation.offset_bytes / BLOCK_BYTES as u64;
        let device = if operation.target == Target::Cache { &mut *cache } else { &mut *store };
        match operation.action {
            Action::Read => machine.buffer(&operation).copy_from_slice(&device.get(at)[..]),
            Action::Write => device.write(at, machine.buffer(&operation)).map_err(|error| error.to_string())?,
            Action::Flush | Action::Trim => {}
        }
        machine.completed(operation.id, true);
    }
    found.unwrap_or_else(|| Err(format!("block {block}: a read is not answered")))
}

fn check(versions: &Versions, contents: &[Vec<u8>]) -> Result<(), String> {
    (0..).zip(contents).try_for_each(|(block, content)| versions.check(block, content))
}

/// A start with a power failure at one of its writes or flushes, as often as there are `keeps`; answers the device
/// after all of them.
pub fn nested(
    setup: &Setup,
    mut cache: Device,
    keeps: &[Keep],
    random: &mut Random,
    tally: &mut Tally,
) -> Result<Device, String> {
    for &keep in keeps {
        let mut recorded = Recorded::new(cache);
        setup.find(&mut recorded).map_err(|error| format!("a start that is to be crashed: {error}"))?;
        tally.starts += 1;
        let at = random.below(recorded.moments.len().max(1) as u64) as usize;
        cache = power(recorded.moments.get(at).unwrap_or(&recorded.device), keep, random);
    }
    Ok(cache)
}

/// One crash of `rig`, and the start after it.
fn crash(
    rig: &Rig,
    name: &str,
    (cache, store): (Device, Device),
    keeps: &[Keep],
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    tally.crashes += 1;
    let named = |error| format!("{name}: {error}");
    let cache = nested(&rig.setup, cache, keeps, random, tally).map_err(named)?;
    tally.starts += 1;
    let found = contents(&rig.setup, cache, store).map_err(named)?;
    check(&rig.versions, &found).map_err(named)
}

/// Looks at a moment of `rig`.
pub fn look(rig: &Rig, look: Look, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
    const KEEPS: [Keep; 4] = [Keep::Nothing, Keep::All, Keep::Some, Keep::Torn];
    let pairs: Vec<(Keep, Keep)> = match look {
        Look::No => return Ok(()),
        Look::Four | Look::Deep => {
            let plain = [Keep::Nothing, Keep::All];
            plain.into_iter().flat_map(|cache| plain.map(|store| (cache, store))).collect()
        }
        Look::Some { tries } => {
            let mut keep = || KEEPS[random.below(4) as usize];
            (0..tries).map(|_| (keep(), keep())).collect()
        }
    };
    for (cache, store) in pairs {
        let devices = (power(&rig.cache, cache, random), power(&rig.store, store, random));
        let name = format!("the power failed, of the cache {cache:?} is left, of the store {store:?}");
        crash(rig, &name, devices, &[], random, tally)?;
    }
    if look == Look::Four {
        return Ok(());
    }
    crash(rig, "killed", (rig.cache.after_kill(), rig.store.after_kill()), &[], random, tally)?;
    for inner in if look == Look::Deep { &KEEPS[..] } else { &[] } {
        for is_killed in [true, false] {
            // After a kill the power fails within the start, for both devices.
            let keeps = [*inner, KEEPS[random.below(4) as usize]];
            let cache = if is_killed { rig.cache.after_kill() } else { power(&rig.cache, *inner, random) };
            let store = power(&rig.store, KEEPS[random.below(4) as usize], random);
            let name = format!("killed: {is_killed}, and twice crashed in a start, of which {keeps:?} is left");
            crash(rig, &name, (cache, store), &keeps, random, tally)?;
        }
    }
    Ok(())
}
