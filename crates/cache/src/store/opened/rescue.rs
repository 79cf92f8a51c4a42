//! Copies a cache's dirty data to its store, and only reads the cache's device.
//!
//! **The rule.** The cache's device does not change. The journal and the map are read, and each dirty unit is copied to
//! its block. A rescue that stops half-way can be repeated. It copies the same blocks with the same content, as long as
//! the store is not used without its cache meanwhile.

use super::Opened;
use crate::store::blocks::Blocks;
use crate::store::bytes::{BLOCK_BYTES, Block, data_checksum};
use crate::units::UnitId;
use std::io;

/// How often a unit is read.
const TRIES: u32 = 3;

/// What became of the dirty units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rescued {
    /// Units that were copied.
    pub copied: u32,
    /// Blocks of the store, in order, with a newest version that cannot be read or has a wrong checksum.
    pub lost: Vec<u64>,
}

/// A device for reading only: opening a cache on it leaves no trace.
pub struct ReadOnly<'d>(pub &'d mut dyn Blocks);

impl Blocks for ReadOnly<'_> {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read(first, into)
    }

    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Opened {
    /// Hands each dirty block to `copy`, in the store's order: its number and its content. `device` is that of the
    /// cache. The caller flushes the store behind it.
    ///
    /// # Errors
    /// What `copy` says.
    pub fn rescue(
        &self,
        device: &mut dyn Blocks,
        mut copy: impl FnMut(u64, &Block) -> io::Result<()>,
    ) -> io::Result<Rescued> {
        let units = (0..self.superblock.layout.units).map(UnitId);
        let is_dirty = |unit: &UnitId| self.marks.get(&self.cache.units, *unit).is_dirty;
        let mut dirty: Vec<(u64, UnitId)> =
            units.filter(is_dirty).map(|unit| (self.cache.describe(unit).block, unit)).collect();
        dirty.sort_unstable();
        let (mut rescued, mut data) = (Rescued::default(), [0; BLOCK_BYTES]);
        for (block, unit) in dirty {
            let checksum = self.marks.get(&self.cache.units, unit).checksum;
            let at = self.superblock.layout.unit_block(unit);
            let is_read = (0..TRIES).any(|_| {
                let read = device.read(at, &mut data);
                read.is_ok() && data_checksum(&self.superblock.uuid, block, &data) == checksum
            });
            if is_read {
                copy(block, &data)?;
                rescued.copied += 1;
            } else {
                rescued.lost.push(block);
            }
        }
        Ok(rescued)
    }
}
