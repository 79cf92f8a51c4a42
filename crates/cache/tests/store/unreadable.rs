//! Sectors of a cache's device that cannot be read.

use crate::damage::{newest_of_journal, setup, used};
use crate::device::{Device, zeroes};
use crate::rig::{Rig, Setup};
use plimsoll_cache::store::{Blocks, OpenError, Report, format, give_up, probe};
use rustix::io::Errno;
use std::io;

/// As often as a test tries to read.
const FOR_EVER: u32 = u32::MAX;

fn with_unreadable(device: &Device, blocks: &[u64], tries: u32) -> Device {
    let mut device = device.after_kill();
    device.unreadable = blocks.iter().map(|&block| (block, tries)).collect();
    device.writes = 0;
    device
}

/// The cache has the newest version of everything.
fn assert_whole(rig: &Rig, cache: Device, name: &str) {
    let mut next = Rig::new(rig.setup.clone(), cache, rig.store.after_kill(), rig.versions.clone(), 1);
    for (block, content) in next.read_all().into_iter().enumerate() {
        let content = content.unwrap_or_else(|failure| panic!("{name}: block {block}: {failure}"));
        rig.versions.check_newest(block as u64, u8::MAX, &content).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// What a start says of a cache, and how much it would give up.
fn found(setup: &Setup, cache: &mut Device, name: &str) -> (bool, Report) {
    match setup.find(cache) {
        Ok(opened) => (true, opened.report),
        Err(OpenError::Damaged { report }) => (false, *report),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Each block of a cache's own records cannot be read. Outcome: it is as if the block were damaged: of what is served
/// nothing is lost, and what is refused is not touched, names the block's loss and can be accepted once. Only of the
/// newest block of the journal more is known than of a damaged one: that there is something which cannot be read.
///
/// Planted breaks that were seen red: one such block fails the start; what cannot be read behind the end of the journal
/// is taken for its end; a superblock that cannot be read is not written again.
/// Promise: store-unreadable.
#[test]
fn a_block_that_cannot_be_read_is_a_damaged_block() {
    let (setup, mut whole, mut refused) = (setup(), 0, 0);
    for is_closed in [true, false] {
        let rig = used(&setup, 70, is_closed);
        let newest = newest_of_journal(&rig.cache, &setup);
        for block in 0..setup.first_unit() {
            let name = format!("block {block}, closed {is_closed}");
            let mut cache = with_unreadable(&rig.cache, &[block], FOR_EVER);
            let (is_whole, report) = found(&setup, &mut cache, &name);
            assert_eq!(report.unreadable_blocks, u32::from(block >= 2), "{name}");
            let mut damaged = rig.cache.after_kill();
            damaged.put(block, zeroes());
            let (_, of_damaged) = found(&setup, &mut damaged, &name);
            let at_the_end = [newest, newest + 1].map(|sequence| setup.layout().journal_block(sequence));
            if at_the_end.contains(&block) {
                assert!(report.lost_journal_blocks == 1 || is_closed && is_whole, "{name}: {report:?}");
            } else {
                assert_eq!(Report { unreadable_blocks: 0, ..report }, of_damaged, "{name}");
            }
            if is_whole {
                assert_eq!(report.repaired_superblocks, u32::from(block < 2), "{name}");
                assert_whole(&rig, cache, &name);
                whole += 1;
                continue;
            }
            assert_eq!(cache.writes, 0, "{name}: what is refused is not touched");
            assert!(setup.accepting().find(&mut cache).unwrap().report.has_losses(), "{name}");
            assert!(found(&setup, &mut cache, &name).0, "{name}: it is accepted once");
            refused += 1;
        }
    }
    assert!(whole > 10 && refused > 5, "{whole} whole, {refused} refused");
}

/// What fails at first and can be read then is read: of a large read that failed, each block by itself, and that again.
///
/// Planted break that was seen red: each block is tried once.
/// Promise: store-unreadable.
#[test]
fn what_can_be_read_at_the_second_try_is_no_loss() {
    let setup = setup();
    let rig = used(&setup, 71, false);
    let blocks: Vec<u64> = (0..setup.first_unit()).step_by(5).collect();
    let mut cache = with_unreadable(&rig.cache, &blocks, 1);
    let (is_whole, report) = found(&setup, &mut cache, "some");
    assert!(is_whole && report.unreadable_blocks == 0, "{report:?}");
    assert_whole(&rig, cache, "some");
    // At once, by itself, and once more.
    let mut cache = with_unreadable(&rig.cache, &[3], 2);
    assert!(found(&setup, &mut cache, "one").0);
    assert_whole(&rig, cache, "one");
}

/// A device that cannot be read at all, or hardly, has failed: nothing is given up because of that, though losses are
/// accepted, nor is it said that there is no cache. An operator can make the cache anew.
///
/// Planted breaks that were seen red: any number of blocks may be unreadable; what cannot be read is no superblock.
/// Promise: store-unreadable.
#[test]
fn a_device_that_cannot_be_read_is_refused_and_not_touched() {
    let setup = setup();
    let wide = Setup { units: 60_000, ..setup.clone() };
    let rig = used(&wide, 72, true);
    let all: Vec<u64> = (2..wide.first_unit()).collect();
    for (blocks, setup) in [(&[0, 1][..], &setup), (&all, &wide)] {
        let rig = if setup.units == wide.units { &rig } else { &used(setup, 72, true) };
        let mut cache = with_unreadable(&rig.cache, blocks, FOR_EVER);
        for setup in [setup.clone(), setup.accepting()] {
            let error = setup.find(&mut cache).err().expect("nothing of it can be read");
            assert!(matches!(error, OpenError::Device(_)), "{error}");
        }
        assert_eq!(cache.writes, 0);
    }
    let mut cache = with_unreadable(&used(&setup, 72, true).cache, &[0, 1], FOR_EVER);
    assert!(matches!(probe(&mut cache), Err(OpenError::Device(_))));
    give_up(&mut cache.clone(), setup.identity(), [9; 16], setup.layout()).unwrap();
    format(&mut cache, setup.identity(), [9; 16], setup.layout()).unwrap();
    assert_eq!(setup.open(&mut cache).unwrap().used_units(), 0);
}

/// A device that is read so many times and not any more.
struct Dying {
    device: Device,
    reads_left: u32,
    writes: u32,
}

impl Blocks for Dying {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads_left = self.reads_left.checked_sub(1).ok_or(Errno::IO)?;
        self.device.read(first, into)
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        self.writes += 1;
        self.device.write(first, from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}

/// A device that cannot be read any more in the midst of a start, which accepts losses: nothing is written, and so
/// nothing given up.
///
/// Writes are counted, and flushes are not, as they were: a start flushes the device before it writes a superblock
/// again, since the one that holds may be volatile. That gives nothing up.
///
/// Planted break that was seen red: whether a superblock can still be read is of no account.
/// Promise: store-unreadable.
#[test]
fn a_device_that_dies_in_a_start_loses_nothing() {
    let setup = setup();
    let rig = used(&setup, 73, false);
    let mut failures = 0;
    loop {
        let mut dying = Dying { device: with_unreadable(&rig.cache, &[], 0), reads_left: failures, writes: 0 };
        match setup.accepting().find(&mut dying) {
            Err(OpenError::Device(_)) => assert_eq!(dying.writes, 0, "after {failures} reads"),
            Err(error) => panic!("after {failures} reads: {error}"),
            Ok(opened) => {
                assert!(!opened.report.has_losses());
                break;
            }
        }
        failures += 1;
    }
    assert!(failures > 4, "the superblocks are read, the map, the journal, and the superblocks again: {failures}");
}
