//! From a SCSI command's GROUP NUMBER to the cache: classes of an initiator, in a real cache before a volume.

mod engine_support;
mod iscsi_support;

use engine_support::{file_config, memory, pause, profile};
use iscsi_support::Portal;
use iscsi_support::initiator::Initiator;
use plimsoll_brick::backend::Volume;
use plimsoll_brick::cache::{CacheSettings, FoundCache};
use plimsoll_brick::engine::{CacheClassStatus, CacheStatus};
use plimsoll_brick::read_ahead::ReadAhead;
use plimsoll_cache::policies;
use plimsoll_core::Operation;
use plimsoll_settings::scheme;

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

/// Important blocks, then so many usual ones that the cache is filled more than twice; then the important ones are read. How many of
/// them were in the cache, and how many units their class has.
fn kept(policy: &str) -> (u64, u32) {
    let directory = tempfile::tempdir().unwrap();
    let portal = portal(policy, &directory);
    let mut initiator = Initiator::log_in(&portal, VOLUME, 1, &[]);
    let units = status(&portal).units;
    let important = units / 4;
    (0..important).for_each(|unit| transfer(&mut initiator, WRITE_10, unit, IMPORTANT));
    let seen = class(&portal, IMPORTANT);
    assert_eq!((seen.name.as_str(), seen.units, seen.writes), ("inode", important, u64::from(important)));
    // A unit may still wait for the cache's device to forget what was in it: what is written past the cache meanwhile does not count.
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

#[test]
fn a_group_number_is_the_class_that_the_cache_keeps_by() {
    // By priority all of what is important stays, whoever comes after it; by time nothing would.
    let (hits, units) = kept("selective");
    assert!(hits == u64::from(units) && units > 100, "{hits} hits in {units} units");
    assert_eq!(kept("lru"), (0, 0));
}

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
