//! The oracle: which versions each sector may have. Of each sector all versions are kept that were written since the
//! newest one that must have survived; the last is the newest.

use crate::device::{Content, SECTOR, SECTORS};
use plimsoll_cache::store::BLOCK_BYTES;
use std::sync::Arc;

/// 0 stands for zeroes: never written, or trimmed.
type Version = u64;

#[derive(Clone)]
pub struct Versions {
    /// For each sector, pairs of the write's number and its version.
    sectors: Vec<Vec<(u64, Version)>>,
    /// For each sector, every version that it ever had.
    ever: Vec<Vec<Version>>,
    /// For each sector, the last write that was acknowledged.
    acknowledged: Vec<u64>,
    /// For each sector, the last write that was acknowledged when the host was told that it may be lost: no flush
    /// promises it.
    doubted: Vec<u64>,
    writes: u64,
}

/// What a sector holds in that version.
fn fill(sector: u64, version: Version, into: &mut [u8]) {
    if version == 0 {
        return into.fill(0);
    }
    for (at, word) in into.chunks_exact_mut(16).enumerate() {
        word[..8].copy_from_slice(&(sector ^ (at as u64) << 40).to_le_bytes());
        word[8..].copy_from_slice(&version.to_le_bytes());
    }
}

fn version_of(sector: u64, bytes: &[u8]) -> Option<Version> {
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    let mut expected = [0; SECTOR];
    fill(sector, version, &mut expected);
    (bytes == expected).then_some(version)
}

impl Versions {
    pub fn new(blocks: u64) -> Versions {
        let sectors = blocks as usize * SECTORS;
        let (versions, ever) = (vec![vec![(0, 0)]; sectors], vec![vec![0]; sectors]);
        let (acknowledged, doubted) = (vec![0; sectors], vec![0; sectors]);
        Versions { sectors: versions, ever, acknowledged, doubted, writes: 0 }
    }

    fn range(block: u64, sectors: u8) -> impl Iterator<Item = usize> {
        (0..SECTORS).filter(move |at| sectors >> at & 1 == 1).map(move |at| block as usize * SECTORS + at)
    }

    /// What was submitted last was not taken.
    pub fn withdraw(&mut self, block: u64, sectors: u8) {
        self.writes -= 1;
        for sector in Versions::range(block, sectors) {
            self.sectors[sector].pop();
            self.ever[sector].pop();
        }
    }

    /// A write, or a trim, is submitted: its number, and what is written.
    pub fn submit(&mut self, block: u64, sectors: u8, is_trim: bool) -> (u64, Content) {
        self.writes += 1;
        let version = if is_trim { 0 } else { self.writes };
        let mut data = [0; BLOCK_BYTES];
        for sector in Versions::range(block, sectors) {
            self.sectors[sector].push((self.writes, version));
            self.ever[sector].push(version);
            let at = sector % SECTORS * SECTOR;
            fill(sector as u64, version, &mut data[at..at + SECTOR]);
        }
        (self.writes, Arc::new(data))
    }

    pub fn acknowledge(&mut self, block: u64, sectors: u8, number: u64) {
        for sector in Versions::range(block, sectors) {
            self.acknowledged[sector] = self.acknowledged[sector].max(number);
        }
    }

    /// What a flush that is submitted now promises.
    pub fn acknowledged(&self) -> Vec<u64> {
        self.acknowledged.clone()
    }

    /// For each sector of a block, the last write that was acknowledged.
    pub fn floor(&self, block: u64) -> [u64; SECTORS] {
        let at = block as usize * SECTORS;
        self.acknowledged.get(at..at + SECTORS).map_or([0; SECTORS], |floor| floor.try_into().expect("a block"))
    }

    /// Whether each of these sectors is as that write left it, or a later one, and not older than what was promised.
    pub fn check_from(&self, block: u64, sectors: u8, content: &[u8], floor: &[u64; SECTORS]) -> Result<(), String> {
        for sector in Versions::range(block, sectors) {
            let (at, least) = (sector % SECTORS * SECTOR, floor[sector % SECTORS]);
            let found = version_of(sector as u64, &content[at..at + SECTOR]);
            let allowed = &self.sectors[sector];
            if !allowed.iter().any(|version| version.0 >= least && Some(version.1) == found) {
                let sector = sector % SECTORS;
                return Err(format!(
                    "block {block} sector {sector}: version {found:?}, allowed {allowed:?} from {least} on"
                ));
            }
        }
        Ok(())
    }

    /// The program died and not the machine: the block is the found version, later writes are lost, and the version
    /// is not promised.
    pub fn survived(&mut self, block: u64, content: &[u8]) {
        for sector in Versions::range(block, u8::MAX) {
            let at = sector % SECTORS * SECTOR;
            let found = version_of(sector as u64, &content[at..at + SECTOR]);
            let versions = &mut self.sectors[sector];
            let last = versions.iter().rposition(|version| Some(version.1) == found).expect("it was checked");
            versions.truncate(last + 1);
            self.acknowledged[sector] = versions[last].0;
        }
    }

    /// The host is told that of what was acknowledged some may be lost.
    pub fn doubt(&mut self) {
        self.doubted = self.acknowledged.clone();
    }

    /// The same of one block: no later flush promises what it holds now.
    pub fn doubt_block(&mut self, block: u64) {
        for sector in Versions::range(block, u8::MAX) {
            self.doubted[sector] = self.acknowledged[sector];
        }
    }

    /// This write must survive. What a kill has left of others may be volatile still.
    pub fn durable(&mut self, block: u64, sectors: u8, number: u64) {
        for sector in Versions::range(block, sectors) {
            if number > self.doubted[sector] {
                self.sectors[sector].retain(|version| version.0 >= number);
            }
        }
    }

    /// These writes must survive.
    pub fn flushed(&mut self, numbers: &[u64]) {
        for ((versions, &number), &doubted) in self.sectors.iter_mut().zip(numbers).zip(&self.doubted) {
            versions.retain(|version| version.0 >= number || number <= doubted);
        }
    }

    /// Whether `content` is something that a block may hold after a crash.
    pub fn check(&self, block: u64, content: &[u8]) -> Result<(), String> {
        for sector in Versions::range(block, u8::MAX) {
            let at = sector % SECTORS * SECTOR;
            let found = version_of(sector as u64, &content[at..at + SECTOR]);
            let allowed = &self.sectors[sector];
            if !allowed.iter().any(|version| Some(version.1) == found) {
                return Err(format!(
                    "block {block} sector {}: version {found:?}, allowed {allowed:?}",
                    sector % SECTORS
                ));
            }
        }
        Ok(())
    }

    /// Whether it is something that the block once was, however old, and not another block's.
    pub fn check_ever(&self, block: u64, content: &[u8]) -> Result<(), String> {
        for sector in Versions::range(block, u8::MAX) {
            let at = sector % SECTORS * SECTOR;
            let found = version_of(sector as u64, &content[at..at + SECTOR]);
            if !found.is_some_and(|version| self.ever[sector].contains(&version)) {
                return Err(format!("block {block} sector {}: version {found:?} never was", sector % SECTORS));
            }
        }
        Ok(())
    }

    /// Whether it is what was acknowledged last, or newer.
    pub fn check_acknowledged(&self, block: u64, content: &[u8]) -> Result<(), String> {
        for sector in Versions::range(block, u8::MAX) {
            let (at, least) = (sector % SECTORS * SECTOR, self.acknowledged[sector]);
            let found = version_of(sector as u64, &content[at..at + SECTOR]);
            if !self.sectors[sector].iter().any(|version| version.0 >= least && Some(version.1) == found) {
                let sector = sector % SECTORS;
                return Err(format!(
                    "block {block} sector {sector}: version {found:?}, acknowledged was write {least}"
                ));
            }
        }
        Ok(())
    }

    /// Whether it is the newest version.
    pub fn check_newest(&self, block: u64, sectors: u8, content: &[u8]) -> Result<(), String> {
        for sector in Versions::range(block, sectors) {
            let at = sector % SECTORS * SECTOR;
            let found = version_of(sector as u64, &content[at..at + SECTOR]);
            let newest = self.sectors[sector].last().unwrap().1;
            if Some(newest) != found {
                return Err(format!("block {block} sector {}: version {found:?}, newest {newest}", sector % SECTORS));
            }
        }
        Ok(())
    }

    /// From now on what was found is the only version.
    pub fn settle(&mut self, block: u64, content: &[u8]) {
        for sector in Versions::range(block, u8::MAX) {
            let at = sector % SECTORS * SECTOR;
            let found = version_of(sector as u64, &content[at..at + SECTOR]).expect("it was checked");
            self.sectors[sector] = vec![(self.writes, found)];
            self.acknowledged[sector] = self.writes;
        }
    }
}
