//! What a miss costs a disk, learned for each class.
//!
//! **The intuition.** A disk moves its arm to a block that is not in the cache, and what follows that block costs it
//! little more. So a miss of an inode or of a small file costs a positioning. A block of a large file costs a small
//! part of one. A count of misses alone does not see that (Cao and Irani, *Cost-aware WWW proxy caching algorithms*,
//! USITS 1997).
//!
//! **The rule.** In each class, blocks that are accessed one behind the other are a *run*. A miss costs the block's own
//! transfer, and its part of a positioning for each run of its class. The part follows from the mean length of the last
//! runs.
//!
//! **The complication.** What is a miss once is a write-back later, or a write that goes past the cache: reads and
//! writes weigh alike. Only its class's last block identifies a run. So two readers of one class in turns make short
//! runs of long ones; so does the disk.

use plimsoll_core::Class;
use plimsoll_core::class::CLASSES;

/// Units that a disk transfers during a positioning: 138 MB/s against 76.5 random reads a second (`hdd.wd-aakx`,
/// `docs/devices.md`). Of a flash device it would be about one; there both ways cost what they miss, and nothing is
/// lost but a chance.
const POSITIONING_UNITS: f64 = 440.0;
/// Blocks of a class after which what was counted of it counts half.
const BLOCKS_REMEMBERED: u32 = 1 << 16;

/// The runs of a class.
#[derive(Clone, Copy, Debug)]
struct Runs {
    /// The block after the last one.
    next: u64,
    blocks: u32,
    runs: u32,
}

/// What was seen of each class.
#[derive(Clone, Debug)]
pub struct MissCosts {
    classes: [Runs; CLASSES],
}

impl Default for MissCosts {
    fn default() -> MissCosts {
        MissCosts { classes: [Runs { next: u64::MAX, blocks: 0, runs: 0 }; CLASSES] }
    }
}

impl MissCosts {
    /// A block was accessed, whether it was in the cache or not.
    #[inline]
    pub fn observed(&mut self, block: u64, class: Class) {
        let runs = &mut self.classes[usize::from(class.number())];
        // The same block again, piece by piece.
        if block + 1 == runs.next {
            return;
        }
        runs.blocks += 1;
        runs.runs += u32::from(block != runs.next);
        runs.next = block + 1;
        if runs.blocks == BLOCKS_REMEMBERED {
            (runs.blocks, runs.runs) = (runs.blocks / 2, runs.runs / 2);
        }
    }

    /// Cost of a miss of `class`, in units that could be transferred meanwhile. A class without a miss so far costs a
    /// positioning.
    pub fn of(&self, class: Class) -> f64 {
        let Runs { blocks, runs, .. } = self.classes[usize::from(class.number())];
        let runs_a_block = if blocks == 0 { 1.0 } else { f64::from(runs) / f64::from(blocks) };
        1.0 + POSITIONING_UNITS * runs_a_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: cache-miss-cost.
    #[test]
    fn a_miss_costs_its_part_of_a_positioning() {
        let mut costs = MissCosts::default();
        let [alone, four, never] = [4, 9, 18].map(|number| Class::new(number).unwrap());
        for round in 0..100_000u64 {
            costs.observed(round * 100, alone);
            // Both by turns, and each block of the run twice.
            (0..4).for_each(|block| (0..2).for_each(|_| costs.observed(round * 100 + 50 + block, four)));
        }
        assert_eq!([alone, never].map(|class| costs.of(class)), [441.0; 2]);
        assert!((costs.of(four) - 111.0).abs() < 0.1, "{}", costs.of(four));
        (0..200_000).for_each(|block| costs.observed(1 << 30 | block, four));
        assert!(costs.of(four) < 30.0, "what was is forgotten: {}", costs.of(four));
    }
}
