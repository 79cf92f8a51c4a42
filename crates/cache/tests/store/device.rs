//! A device in memory that may lose what it was not told to flush.

use plimsoll_cache::store::{BLOCK_BYTES, Blocks};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

pub type Content = Arc<[u8; BLOCK_BYTES]>;
pub const SECTOR: usize = 512;
pub const SECTORS: usize = BLOCK_BYTES / SECTOR;

pub fn zeroes() -> Content {
    Arc::new([0; BLOCK_BYTES])
}

/// A write that a power failure may undo.
#[derive(Clone)]
pub struct Volatile {
    pub number: u64,
    pub block: u64,
    /// Which sectors it writes, one bit each.
    pub sectors: u8,
    pub data: Content,
    /// The host was told that it is done.
    pub is_done: bool,
    /// No flush ever makes the write durable.
    pub is_lost: bool,
}

#[derive(Clone)]
pub struct Device {
    /// As it is read.
    live: Vec<Content>,
    durable: Vec<Content>,
    pub volatile: Vec<Volatile>,
    next_number: u64,
    /// The write, of those from now on, that fails; the flushes count too.
    pub fails_at: Option<u64>,
    pub writes: u64,
    /// Blocks that cannot be read, and how often that is tried until they can be; a block that is written can be read.
    pub unreadable: BTreeMap<u64, u32>,
}

pub fn merge(into: &mut Content, data: &Content, sectors: u8) {
    if sectors == u8::MAX {
        *into = data.clone();
        return;
    }
    let into = Arc::make_mut(into);
    for sector in (0..SECTORS).filter(|sector| sectors >> sector & 1 == 1) {
        let bytes = sector * SECTOR..(sector + 1) * SECTOR;
        into[bytes.clone()].copy_from_slice(&data[bytes]);
    }
}

impl Device {
    pub fn new(blocks: u64) -> Device {
        let empty = vec![zeroes(); blocks as usize];
        Device::of(empty)
    }

    fn of(content: Vec<Content>) -> Device {
        let (live, durable, unreadable) = (content.clone(), content, BTreeMap::new());
        Device { live, durable, volatile: Vec::new(), next_number: 0, fails_at: None, writes: 0, unreadable }
    }

    pub fn get(&self, block: u64) -> &Content {
        &self.live[block as usize]
    }

    pub fn put(&mut self, block: u64, content: Content) {
        self.live[block as usize] = content.clone();
        self.durable[block as usize] = content;
    }

    /// A write is on its way: it may be durable from now on, or not, or in part.
    pub fn begin(&mut self, block: u64, sectors: u8, data: Content) -> u64 {
        self.next_number += 1;
        self.volatile.push(Volatile { number: self.next_number, block, sectors, data, is_done: false, is_lost: false });
        self.next_number
    }

    /// It is done: it can be read.
    pub fn end(&mut self, number: u64) {
        let write = self.volatile.iter_mut().find(|write| write.number == number).expect("it was begun");
        write.is_done = true;
        let write = write.clone();
        merge(&mut self.live[write.block as usize], &write.data, write.sectors);
    }

    /// It is not done, and never will be.
    pub fn drop_write(&mut self, number: u64) {
        self.volatile.retain(|write| write.number != number);
    }

    /// What a flush that begins now makes durable.
    pub fn begin_flush(&self) -> Vec<u64> {
        self.volatile.iter().filter(|write| write.is_done).map(|write| write.number).collect()
    }

    pub fn end_flush(&mut self, numbers: &[u64]) {
        let (flushed, rest) = self.volatile.drain(..).partition(|write: &Volatile| numbers.contains(&write.number));
        self.volatile = rest;
        for write in flushed.iter().filter(|write| !write.is_lost) {
            merge(&mut self.durable[write.block as usize], &write.data, write.sectors);
        }
    }

    /// A flush failed: some of the volatile writes, also of those under way, will never be durable. Of these, some are
    /// read as long as there is power, as from a page cache that calls them clean now, and the others are gone at once.
    pub fn lose(&mut self, mut random: impl FnMut(u64) -> u64) {
        for write in &mut self.volatile {
            write.is_lost |= random(2) == 0;
        }
        let is_gone = |write: &Volatile, chance| write.is_lost && write.is_done && chance == 0;
        let chances: Vec<u64> = self.volatile.iter().map(|_| random(2)).collect();
        let (gone, rest) =
            self.volatile.drain(..).zip(chances).partition::<Vec<_>, _>(|(write, chance)| is_gone(write, *chance));
        self.volatile = rest.into_iter().map(|(write, _)| write).collect();
        for block in gone.into_iter().map(|(write, _)| write.block) {
            let mut content = self.durable[block as usize].clone();
            let left = self.volatile.iter().filter(|write| write.block == block && write.is_done);
            left.for_each(|write| merge(&mut content, &write.data, write.sectors));
            self.live[block as usize] = content;
        }
    }

    /// The device after a power failure: of the volatile writes those sectors are there that `keeps` says.
    pub fn after_power_failure(&self, mut keeps: impl FnMut(usize, &Volatile) -> u8) -> Device {
        let mut live = self.durable.clone();
        for (at, write) in self.volatile.iter().enumerate() {
            let sectors = keeps(at, write) & write.sectors;
            if sectors != 0 && !write.is_lost {
                merge(&mut live[write.block as usize], &write.data, sectors);
            }
        }
        Device::of(live)
    }

    /// The device after the program died: what was done is there, and still volatile; what was not is lost.
    pub fn after_kill(&self) -> Device {
        let mut after = self.clone();
        after.volatile.retain(|write| write.is_done);
        after
    }

    fn count(&mut self) -> io::Result<()> {
        self.writes += 1;
        match self.fails_at == Some(self.writes - 1) {
            true => Err(io::Error::other("planted")),
            false => Ok(()),
        }
    }
}

impl Blocks for Device {
    fn blocks(&self) -> u64 {
        self.live.len() as u64
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        let blocks = first..first + (into.len() / BLOCK_BYTES) as u64;
        if let Some((_, left)) = self.unreadable.range_mut(blocks).find(|(_, left)| **left > 0) {
            *left -= 1;
            return Err(Errno::IO.into());
        }
        for (at, block) in into.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            block.copy_from_slice(&self.live[first as usize + at][..]);
        }
        Ok(())
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        self.count()?;
        for (at, block) in from.chunks_exact(BLOCK_BYTES).enumerate() {
            self.unreadable.remove(&(first + at as u64));
            let number = self.begin(first + at as u64, u8::MAX, Arc::new(block.try_into().unwrap()));
            self.end(number);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.count()?;
        let numbers = self.begin_flush();
        self.end_flush(&numbers);
        Ok(())
    }
}

/// A device that keeps how it was after each write and each flush.
pub struct Recorded {
    pub device: Device,
    pub moments: Vec<Device>,
}

impl Recorded {
    pub fn new(device: Device) -> Recorded {
        Recorded { device, moments: Vec::new() }
    }
}

impl Blocks for Recorded {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read(first, into)
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        let outcome = self.device.write(first, from);
        self.moments.push(self.device.clone());
        outcome
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.device.flush();
        self.moments.push(self.device.clone());
        outcome
    }
}
