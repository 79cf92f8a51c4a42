//! From a SCSI command's GROUP NUMBER to the cache: classes of an initiator, in a real cache before a volume.

use plimsoll_cache::policies;
use plimsoll_core::Operation;
use plimsoll_engine::backend::Volume;
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::read_ahead::ReadAhead;
use plimsoll_engine::{CacheClassStatus, CacheStatus, RECORDER_EVENTS_DEFAULT};
use plimsoll_settings::scheme;
use plimsoll_testkit::iscsi::Portal;
use plimsoll_testkit::iscsi::initiator::Initiator;
use plimsoll_testkit::{file_config, memory, pause, profile};

const VOLUME: &str = "slow";
const VOLUME_BYTES: u64 = 64 << 20;
const CACHE_BYTES: u64 = 2 << 20;
const UNIT_BYTES: u32 = 4096;
/// An inode and a file of up to 64 KiB in the scheme of ext4: kept longest, and priority 3.
const IMPORTANT: u8 = 4;
const USUAL: u8 = 10;
/// With a pause after each: a minute and more in all.
const MANY_LOOKS: u32 = 20_000;
const READ_10: u8 = 0x28;
const WRITE_10: u8 = 0x2a;

/// A target of a volume with a cache of this policy.
fn portal(policy: &str, directory: &tempfile::TempDir) -> Portal {
    let volume = memory(VOLUME, VOLUME_BYTES, 0);
    let policy = policies().iter().find(|entry| entry.name == policy).unwrap();
    let scheme = scheme::load("ext4").unwrap().scheme;
    let path = directory.path().join(policy.name);
    let usual = CacheSettings::new("fast", path, policy, scheme);
    let settings = CacheSettings { size_bytes: Some(CACHE_BYTES), seed: Some(1), ..usual };
    let found = FoundCache::find(settings, &volume).unwrap();
    let portal = Portal::new(profile(), vec![(volume, None)]);
    portal.engine.attach_cache(VOLUME, found).unwrap();
    portal
}

/// Reads or writes a unit as something of class `group`.
fn transfer(initiator: &mut Initiator, code: u8, unit: u32, group: u8) {
    let mut command = [code, 0, 0, 0, 0, 0, group, 0, 8, 0];
    command[2..6].copy_from_slice(&(unit * 8).to_be_bytes());
    let data = vec![unit as u8; UNIT_BYTES as usize];
    match code {
        WRITE_10 => assert_eq!(initiator.command(&command, 0, &data).0, 0),
        _ => assert_eq!(initiator.command(&command, UNIT_BYTES, &[]), (0, data)),
    }
}

fn status(portal: &Portal) -> CacheStatus {
    portal.engine.caches().unwrap().remove(0).1
}

fn class(portal: &Portal, number: u8) -> CacheClassStatus {
    status(portal).classes.into_iter().find(|class| class.number == number).unwrap()
}

/// Waits until a unit holds no block: the store takes a block much sooner than the cache's device makes a unit free.
fn wait_for_a_unit(portal: &Portal) {
    let is_full = |cache: &CacheStatus| cache.used_units == cache.units;
    for _ in 0..MANY_LOOKS {
        if !is_full(&status(portal)) {
            return;
        }
        pause();
    }
    panic!("the syncer makes no room");
}

/// Important blocks, then so many usual ones that the cache is filled more than twice; then the important ones are
/// read. How many of them were in the cache, and how many units their class has.
fn kept(policy: &str) -> (u64, u32) {
    let directory = tempfile::tempdir().unwrap();
    let portal = portal(policy, &directory);
    let mut initiator = Initiator::log_in(&portal, VOLUME, 1, &[]);
    let units = status(&portal).units;
    let important = units / 4;
    (0..important).for_each(|unit| transfer(&mut initiator, WRITE_10, unit, IMPORTANT));
    let seen = class(&portal, IMPORTANT);
    assert_eq!((seen.name.as_str(), seen.units, seen.writes), ("inode", important, u64::from(important)));
    // A unit may still wait for the cache's device to forget what was in it: what is written past the cache meanwhile
    // does not count.
    let taken_in = || class(&portal, USUAL).writes - status(&portal).writes_around;
    let mut next = important;
    while next == important || taken_in() < u64::from(2 * units) {
        assert!(next < (VOLUME_BYTES / u64::from(UNIT_BYTES)) as u32, "the syncer does nothing");
        wait_for_a_unit(&portal);
        transfer(&mut initiator, WRITE_10, next, USUAL);
        next += 1;
    }
    let before = class(&portal, IMPORTANT);
    (0..important).for_each(|unit| transfer(&mut initiator, READ_10, unit, IMPORTANT));
    let after = class(&portal, IMPORTANT);
    assert_eq!((before.reads, after.reads), (0, u64::from(important)));
    println!("{policy}: {} of {important} important blocks were kept", after.read_hits);
    (after.read_hits, before.units)
}

/// Promise: classes-group-number.
#[test]
fn a_group_number_is_the_class_that_the_cache_keeps_by() {
    // By priority all of what is important stays, whatever comes after it; by time nothing would.
    let (hits, units) = kept("selective");
    assert!(hits == u64::from(units) && units > 100, "{hits} hits in {units} units");
    assert_eq!(kept("lru"), (0, 0));
}

/// Promise: classes-group-number.
#[test]
fn a_block_is_of_the_class_that_it_was_called_last() {
    let directory = tempfile::tempdir().unwrap();
    let portal = portal("selective", &directory);
    let mut initiator = Initiator::log_in(&portal, VOLUME, 1, &[]);
    transfer(&mut initiator, WRITE_10, 7, USUAL);
    assert_eq!(class(&portal, USUAL).units, 1);
    // The upper three bits of the byte are not the group's.
    transfer(&mut initiator, READ_10, 7, 0xe0 | IMPORTANT);
    assert_eq!((class(&portal, USUAL).units, class(&portal, IMPORTANT).units), (0, 1));
    transfer(&mut initiator, READ_10, 7, 0);
    assert_eq!((class(&portal, IMPORTANT).units, class(&portal, 0).units), (0, 1));
}

/// Planted break that was seen red: what is read ahead has no class.
#[test]
fn a_chunk_that_is_read_ahead_is_of_the_class_of_the_read_that_waits_for_it() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let volume = Volume::open(file_config(VOLUME, &directory.path().join("disk"), Some(VOLUME_BYTES))).unwrap();
    let portal = Portal::new(profile(), vec![(volume, None)]);
    portal.engine.set_read_ahead(VOLUME, ReadAhead::new(1 << 20)).unwrap();
    let mut initiator = Initiator::log_in(&portal, VOLUME, 1, &[]);
    (0..3).for_each(|unit| transfer(&mut initiator, WRITE_10, unit, 0));
    let mut recording = portal.engine.record(1024).unwrap();
    (0..3).for_each(|unit| transfer(&mut initiator, READ_10, unit, IMPORTANT));
    portal.engine.set_read_ahead(VOLUME, None).unwrap_err();
    let mut requests = recording.take(usize::MAX);
    requests.retain(|request| request.operation == Operation::Read);
    let seen: Vec<_> = requests.iter().take(3).map(|request| (request.length, u8::from(request.class))).collect();
    assert_eq!(seen, [(UNIT_BYTES, IMPORTANT), (UNIT_BYTES, IMPORTANT), (128 << 10, IMPORTANT)]);
}

/// A command, what is sent with it, how much is to be read, and what the volume is asked to do for it.
type Told = (Vec<u8>, Vec<u8>, u32, &'static [Operation]);

/// Every command with a group that asks something of the volume, on its first block; the group is left 0. Flags are
/// those of byte 1.
fn told() -> Vec<Told> {
    use Operation::{Flush, Read, Trim, Write, WriteZeroes};
    let cdb = |code: u8, flags: u8| -> Vec<u8> {
        // One block, in each of the lengths.
        match code >> 5 {
            1 | 2 => vec![code, flags, 0, 0, 0, 0, 0, 0, 1, 0],
            5 => vec![code, flags, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
            _ => vec![code, flags, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
        }
    };
    let block = vec![7; 512];
    let twice = block.repeat(2);
    let mut unmapped = vec![0, 22, 0, 16, 0, 0, 0, 0];
    unmapped.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    let unmap = vec![0x42, 0, 0, 0, 0, 0, 0, 0, unmapped.len() as u8, 0];
    let mut all: Vec<Told> = Vec::new();
    for (write, read, write_and_verify, verify) in
        [(0x2a, 0x28, 0x2e, 0x2f), (0xaa, 0xa8, 0xae, 0xaf), (0x8a, 0x88, 0x8e, 0x8f)]
    {
        all.push((cdb(write, 0), block.clone(), 0, &[Write]));
        all.push((cdb(read, 0), vec![], 512, &[Read]));
        // BYTCHK 1: what is read back is compared.
        all.push((cdb(write_and_verify, 2), block.clone(), 0, &[Write, Read]));
        // What is verified, and what is read with FUA, is made durable.
        all.push((cdb(verify, 0), vec![], 0, &[Read, Flush]));
        all.push((cdb(verify, 2), block.clone(), 0, &[Read, Flush]));
        all.push((cdb(read, 8), vec![], 512, &[Read, Flush]));
    }
    all.push((cdb(0x89, 0), twice, 0, &[Read, Write]));
    all.push((cdb(0x8b, 0), block.clone(), 0, &[Read, Write]));
    all.push((cdb(0x35, 0), vec![], 0, &[Flush]));
    all.push((cdb(0x91, 0), vec![], 0, &[Flush]));
    all.push((cdb(0x41, 0), block.clone(), 0, &[Write]));
    all.push((cdb(0x93, 0), block, 0, &[Write]));
    // Nothing is sent (NDOB): zeroes; and with UNMAP.
    all.push((cdb(0x93, 1), vec![], 0, &[WriteZeroes]));
    all.push((cdb(0x93, 8 | 1), vec![], 0, &[Trim]));
    all.push((unmap, unmapped, 0, &[Trim]));
    all
}

/// Each with a group of its own. Planted break that was seen red: the group of a command of 12 bytes is read from byte
/// 6.
/// Promise: iscsi-group-number.
#[test]
fn a_group_number_is_the_class_of_all_that_its_command_does() {
    let portal = Portal::new(profile(), vec![(memory(VOLUME, VOLUME_BYTES, 0), None)]);
    let mut initiator = Initiator::log_in(&portal, VOLUME, 1, &[]);
    let mut recording = portal.engine.record(RECORDER_EVENTS_DEFAULT).unwrap();
    let mut expected = Vec::new();
    for (group, (mut cdb, sent, read_bytes, operations)) in (1..).zip(told()) {
        // The last byte but one, or the one before the length of 10 bytes.
        let at = if cdb.len() == 10 { 6 } else { cdb.len() - 2 };
        cdb[at] = group;
        assert_eq!(initiator.command(&cdb, read_bytes, &sent).0, 0, "{cdb:02x?}");
        expected.extend(operations.iter().map(|&operation| (operation, group)));
    }
    recording.stop();
    let mut records = Vec::new();
    while !recording.is_over() {
        records.extend(recording.take(100));
        pause();
    }
    records.extend(recording.take(usize::MAX));
    let seen: Vec<_> = records.iter().map(|record| (record.operation, record.class.number())).collect();
    assert_eq!(seen, expected);
}

/// Of the longer commands, too. Reads and writes in turns, so that each has found what the one before left.
/// Promise: classes-group-number.
#[test]
fn a_cache_keeps_a_block_by_the_group_of_a_longer_command() {
    let directory = tempfile::tempdir().unwrap();
    let portal = portal("selective", &directory);
    let mut initiator = Initiator::log_in(&portal, VOLUME, 1, &[]);
    let data = vec![3; UNIT_BYTES as usize];
    let blocks = (UNIT_BYTES / 512) as u8;
    for (code, group) in [(0xaa, USUAL), (0xa8, IMPORTANT), (0x8a, USUAL), (0x88, IMPORTANT)] {
        let is_long = code >> 5 == 4;
        let mut cdb = vec![0; if is_long { 16 } else { 12 }];
        cdb[0] = code;
        cdb[if is_long { 13 } else { 9 }] = blocks;
        cdb[if is_long { 14 } else { 10 }] = group;
        match group {
            USUAL => assert_eq!(initiator.command(&cdb, 0, &data).0, 0),
            _ => assert_eq!(initiator.command(&cdb, UNIT_BYTES, &[]), (0, data.clone())),
        }
        let kept =
            |number| status(&portal).classes.iter().find(|class| class.number == number).map_or(0, |class| class.units);
        let other = if group == USUAL { IMPORTANT } else { USUAL };
        assert_eq!((kept(group), kept(other)), (1, 0), "{code:#04x}");
    }
}
