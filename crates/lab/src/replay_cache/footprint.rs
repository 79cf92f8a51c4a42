//! How large a trace's volumes are, and how many different blocks it touches.
//!
//! Volumes are put one behind the other on one store, each as long as its last block needs.
//!
//! A sample counts different blocks: those with a hash below a bar are kept. When they are too many, the bar is halved
//! and half of them go (adaptive sampling, after Flajolet, *Computing* 43, 1990). Below 65,536 blocks that is exact.

use plimsoll_cache::units::BLOCKS_MAX;
use plimsoll_traces::{Reader, TraceRecord};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Blocks of the sample, half of them at least: the standard error of the count is 0.4 to 0.6 %.
const SAMPLE_MAX: usize = 1 << 16;

/// Volumes that do not fit on one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("volumes of {got} units together, allowed are at most {} (4 KiB each: 256 TiB)", BLOCKS_MAX - 1)]
pub struct FootprintError {
    /// Units of all volumes up to the last block of each.
    pub got: u64,
}

/// What a trace touches.
#[derive(Clone, Debug)]
pub struct Footprint {
    unit_shift: u32,
    /// Where each volume begins on the store.
    starts: BTreeMap<u32, u64>,
    accesses: u64,
    blocks: u64,
}

impl Footprint {
    /// Reads all of a trace. `unit_bytes` is a power of two.
    pub(super) fn of(reader: Reader, unit_bytes: u64) -> Result<Footprint, super::CacheReplayError> {
        let unit_shift = unit_bytes.trailing_zeros();
        let (mut ends, mut accesses, mut sample) = (BTreeMap::new(), 0, Sample::default());
        for record in reader {
            let record = record?;
            if record.length == 0 {
                continue;
            }
            let units = record.offset >> unit_shift..((record.end() - 1) >> unit_shift) + 1;
            let end: &mut u64 = ends.entry(record.device).or_default();
            *end = units.end.max(*end);
            accesses += units.end - units.start;
            units.for_each(|unit| sample.add((record.device, unit)));
        }
        let mut next = 0u64;
        let starts = ends.iter().map(|(&device, &length)| {
            let start = next;
            next = next.saturating_add(length);
            (device, start)
        });
        let starts = starts.collect();
        match next < BLOCKS_MAX {
            true => Ok(Footprint { unit_shift, starts, accesses, blocks: sample.count() }),
            false => Err(FootprintError { got: next }.into()),
        }
    }

    /// Blocks read and written, each as often as it was.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Different blocks, about.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The blocks of the store that `record`, which is of the same trace, reads or writes.
    pub(super) fn blocks_of(&self, record: &TraceRecord) -> std::ops::Range<u64> {
        if record.length == 0 {
            return 0..0;
        }
        let start = self.starts[&record.device];
        start + (record.offset >> self.unit_shift)..start + ((record.end() - 1) >> self.unit_shift) + 1
    }
}

/// Different blocks among those that are added.
struct Sample {
    kept: BTreeSet<(u64, u32, u64)>,
    /// Hashes up to this one are kept.
    bar: u64,
    last: Option<(u32, u64)>,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample { kept: BTreeSet::new(), bar: u64::MAX, last: None }
    }
}

impl Sample {
    fn add(&mut self, (device, unit): (u32, u64)) {
        // SplitMix64.
        let mut hash = unit.wrapping_add(u64::from(device) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        if hash > self.bar || self.last == Some((device, unit)) {
            return;
        }
        self.last = Some((device, unit));
        self.kept.insert((hash, device, unit));
        while self.kept.len() > SAMPLE_MAX {
            self.bar /= 2;
            self.kept.split_off(&(self.bar + 1, 0, 0));
        }
    }

    fn count(&self) -> u64 {
        (self.kept.len() as f64 * (u64::MAX as f64 / self.bar as f64)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_different_blocks_are_counted_nearly_and_few_of_them_exactly() {
        for (blocks, times) in [(50_000u64, 3), (1_000_000, 1), (3_000_000, 2)] {
            let mut sample = Sample::default();
            for _ in 0..times {
                (0..blocks).for_each(|block| sample.add(((block % 3) as u32, block / 3)));
            }
            let apart = sample.count() as f64 / blocks as f64 - 1.0;
            // Three standard errors; the sample is the same in every run.
            assert!(apart.abs() < 0.018, "{} for {blocks}", sample.count());
            assert!(blocks > SAMPLE_MAX as u64 || sample.count() == blocks);
        }
    }
}
