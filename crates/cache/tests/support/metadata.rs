//! A device of which nothing is kept but superblocks, journal and map.

use plimsoll_cache::store::{BLOCK_BYTES, Blocks, Layout};
use std::io;

pub struct Metadata(Vec<u8>);

impl Metadata {
    pub fn new(layout: &Layout) -> Metadata {
        Metadata(vec![0; layout.map_start(2) as usize * BLOCK_BYTES])
    }
}

impl Blocks for Metadata {
    fn blocks(&self) -> u64 {
        1 << 40
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        let from = first as usize * BLOCK_BYTES;
        into.copy_from_slice(&self.0[from..from + into.len()]);
        Ok(())
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        let at = first as usize * BLOCK_BYTES;
        self.0[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
