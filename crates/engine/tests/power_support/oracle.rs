//! What each sector of a volume may hold: the slow and obvious record of everything that was written, and what was
//! promised of it.
//!
//! A write is *before* another one if it was answered before the other one was sent. Writes that overlap in time and
//! place may take effect in either order. A sector may hold any write that is not before one that must have survived.

use super::disks::SECTOR;
use std::ops::Range;

/// Not answered.
const NEVER: u64 = u64::MAX;

/// One write, or zeroes.
struct Write {
    sectors: Range<usize>,
    /// What is written; 0: zeroes.
    stamp: u64,
    /// Zeroes that were asked for as a trim.
    is_trim: bool,
    sent: u64,
    answered: u64,
    /// It was promised that it survives.
    must_survive: bool,
}

/// A volume.
pub struct Oracle {
    writes: Vec<Write>,
    /// Of each sector the writes to it, oldest first.
    of_sector: Vec<Vec<usize>>,
    now: u64,
    next_stamp: u64,
}

/// The bytes of a sector with that stamp.
pub fn sector_bytes(stamp: u64, sector: usize) -> [u8; SECTOR] {
    let word = if stamp == 0 {
        0
    } else {
        (stamp << 24 | sector as u64).to_le_bytes().into_iter().fold(0, |word: u64, byte| word << 8 | u64::from(byte))
    };
    let mut bytes = [0; SECTOR];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word.to_le_bytes()));
    bytes
}

impl Oracle {
    /// So many sectors that hold zeroes.
    pub fn new(sectors: usize) -> Oracle {
        let mut oracle = Oracle { writes: Vec::new(), of_sector: vec![Vec::new(); sectors], now: 0, next_stamp: 1 };
        oracle.settle(0..sectors, 0);
        oracle
    }

    /// These sectors hold this now, durably.
    fn settle(&mut self, sectors: Range<usize>, stamp: u64) {
        self.of_sector[sectors.clone()].iter_mut().for_each(Vec::clear);
        let number = self.record(sectors, stamp);
        self.answered(number, true);
    }

    fn record(&mut self, sectors: Range<usize>, stamp: u64) -> usize {
        self.now += 1;
        let number = self.writes.len();
        self.of_sector[sectors.clone()].iter_mut().for_each(|writes| writes.push(number));
        self.writes.push(Write {
            sectors,
            stamp,
            is_trim: false,
            sent: self.now,
            answered: NEVER,
            must_survive: false,
        });
        number
    }

    /// A write is sent: its number and its bytes.
    pub fn write(&mut self, sectors: Range<usize>) -> (usize, Vec<u8>) {
        let stamp = self.next_stamp;
        self.next_stamp += 1;
        let bytes = sectors.clone().flat_map(|sector| sector_bytes(stamp, sector)).collect();
        (self.record(sectors, stamp), bytes)
    }

    /// Zeroes are sent, or a trim.
    pub fn zero(&mut self, sectors: Range<usize>, is_trim: bool) -> usize {
        let number = self.record(sectors, 0);
        self.writes[number].is_trim = is_trim;
        number
    }

    /// It was answered; and whether that said that it survives.
    pub fn answered(&mut self, number: usize, must_survive: bool) {
        self.now += 1;
        let write = &mut self.writes[number];
        (write.answered, write.must_survive) = (self.now, must_survive);
    }

    /// A flush or a read is sent: when.
    pub fn moment(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A flush that was sent then has succeeded.
    pub fn flushed(&mut self, sent: u64) {
        let answered = self.writes.iter_mut().filter(|write| write.answered < sent);
        answered.for_each(|write| write.must_survive = true);
    }

    /// Forgets of each sector what it can hold no more. Not while a read is under way: it may bring what was there when
    /// it was sent.
    pub fn forget(&mut self) {
        let writes = &self.writes;
        for of_sector in &mut self.of_sector {
            let survivors = of_sector.iter().map(|&number| &writes[number]).filter(|write| write.must_survive);
            let Some(last_sent) = survivors.map(|write| write.sent).max() else { continue };
            of_sector.retain(|&number| writes[number].answered >= last_sent);
        }
    }

    /// Says what is wrong with what was read of a volume that was read as it works: between `sent` and now.
    pub fn check_read(&self, first: usize, bytes: &[u8], sent: u64) -> Result<(), String> {
        self.check(first, bytes, |write| write.answered < sent)
    }

    /// Says what is wrong with what was found after a power failure; and from now on the sectors hold what they were
    /// found to.
    pub fn check_survivors(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.check(0, bytes, |write| write.must_survive)?;
        let stamps: Vec<u64> =
            bytes.chunks(SECTOR).enumerate().map(|(sector, found)| self.stamp_of(sector, found)).collect();
        self.writes.clear();
        for (sector, stamp) in stamps.into_iter().enumerate() {
            self.settle(sector..sector + 1, stamp);
        }
        Ok(())
    }

    fn stamp_of(&self, sector: usize, found: &[u8]) -> u64 {
        let mut numbers = self.of_sector[sector].iter().rev();
        let number = numbers.find(|&&number| sector_bytes(self.writes[number].stamp, sector) == *found);
        self.writes[*number.expect("it was checked")].stamp
    }

    /// Each sector must hold a write that is not before one that `has_taken_effect`.
    fn check(&self, first: usize, bytes: &[u8], has_taken_effect: impl Fn(&Write) -> bool) -> Result<(), String> {
        for (at, found) in bytes.chunks(SECTOR).enumerate() {
            let sector = first + at;
            let writes = || self.of_sector[sector].iter().map(|&number| &self.writes[number]);
            let last_sent = writes().filter(|write| has_taken_effect(write)).map(|write| write.sent).max().unwrap_or(0);
            let mut allowed = writes().filter(|write| write.answered >= last_sent);
            if !allowed.any(|write| sector_bytes(write.stamp, sector) == *found) {
                let known: Vec<String> = writes()
                    .map(|write| {
                        let answered =
                            if write.answered == NEVER { "never".to_owned() } else { write.answered.to_string() };
                        format!(
                            "{}{} of {:?}, sent {}, answered {answered}{}",
                            if write.is_trim { "trim " } else { "" },
                            write.stamp,
                            write.sectors,
                            write.sent,
                            if write.must_survive { ", promised" } else { "" }
                        )
                    })
                    .collect();
                let was = self
                    .writes
                    .iter()
                    .find(|write| sector_bytes(write.stamp, sector) == *found)
                    .map(|write| write.stamp);
                let word = u64::from_le_bytes(found[..8].try_into().expect("a word"));
                return Err(format!(
                    "sector {sector} holds {word:#x} (write {was:?}), last effective sent {last_sent}, known: {known:#?}"
                ));
            }
        }
        Ok(())
    }
}

/// The oracle has to be able to object.
#[test]
fn what_was_promised_and_is_lost_is_objected_to() {
    let mut oracle = Oracle::new(4);
    let (first, old) = oracle.write(0..2);
    oracle.answered(first, false);
    let (second, new) = oracle.write(1..3);
    let zeroes = [0; SECTOR];
    let disk = |parts: [&[u8]; 4]| parts.concat();
    // Nothing was promised: anything may be there that was written.
    assert!(
        oracle.check(0, &disk([&zeroes, &old[SECTOR..], &new[SECTOR..], &zeroes]), |write| write.must_survive).is_ok()
    );
    let sent = oracle.moment();
    oracle.flushed(sent);
    let is_ok = |oracle: &Oracle, parts| oracle.check(0, &disk(parts), |write| write.must_survive).is_ok();
    assert!(!is_ok(&oracle, [&zeroes, &old[SECTOR..], &zeroes, &zeroes]), "the first was flushed");
    assert!(is_ok(&oracle, [&old[..SECTOR], &new[..SECTOR], &zeroes, &zeroes]), "the second may be there");
    oracle.answered(second, true);
    assert!(!is_ok(&oracle, [&old[..SECTOR], &old[SECTOR..], &new[SECTOR..], &zeroes]), "the second was promised");
    assert!(!is_ok(&oracle, [&old[..SECTOR], &new[..SECTOR], &old[..SECTOR], &zeroes]), "never there");
    oracle.check_survivors(&disk([&old[..SECTOR], &new[..SECTOR], &new[SECTOR..], &zeroes])).unwrap();
    assert!(!is_ok(&oracle, [&zeroes, &new[..SECTOR], &new[SECTOR..], &zeroes]), "it stays what it was found to be");
}
