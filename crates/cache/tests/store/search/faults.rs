//! What goes wrong with the two devices of a rig: operations that fail by chance, and blocks that cannot be read or
//! written.

use crate::rig::Random;
use plimsoll_cache::store::{Action, BLOCK_BYTES, Operation, Target};
use std::ops::Range;

/// Operations of one kind that fail, one in so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub target: Target,
    pub action: Action,
    pub one_in: u64,
}

/// Blocks of a device for which this action fails always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    pub target: Target,
    pub action: Action,
    pub blocks: Range<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub rates: Vec<Rate>,
    pub bad: Vec<Bad>,
    /// Something has failed of which clients have to hear.
    pub may_be_told: bool,
}

impl Faults {
    pub fn fails(&self, operation: &Operation, random: &mut Random) -> bool {
        let block = operation.offset_bytes / BLOCK_BYTES as u64;
        let is_meant = |target, action| (target, action) == (operation.target, operation.action);
        let is_bad = self.bad.iter().any(|bad| is_meant(bad.target, bad.action) && bad.blocks.contains(&block));
        let mut rates = self.rates.iter().filter(|rate| is_meant(rate.target, rate.action));
        is_bad || rates.any(|rate| random.below(rate.one_in) == 0)
    }
}
