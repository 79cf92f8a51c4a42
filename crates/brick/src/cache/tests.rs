//! Caches that are found, refused and given up, on files.

use super::*;
use plimsoll_cache::policies;
use plimsoll_cache::store::bytes::{Kind, seal};
use std::path::Path;

/// Two caches that are found have different seeds, and decide by them; one that is given is taken as it is.
///
/// Planted breaks: none is drawn; what is drawn does not come to the configuration.
#[test]
fn each_cache_that_is_found_has_a_seed_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let backing = Backing::Memory { size_bytes: 1 << 20 };
    let config = VolumeConfig { name: "v".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false };
    let volume = Volume::open(config).unwrap();
    let seed_of = |name: &str, seed: Option<u64>| {
        let path = directory.path().join(name);
        let usual = CacheSettings::new(name, path, &policies()[0], Scheme::default());
        let settings = CacheSettings { size_bytes: Some(CACHE_BYTES_MIN), seed, ..usual };
        let found = FoundCache::find(settings, &volume).unwrap();
        found.settings.config(found.report.units.max(1)).seed
    };
    let drawn = [seed_of("one", None), seed_of("other", None)];
    assert!(drawn[0] != drawn[1] && !drawn.contains(&0), "{drawn:?}");
    assert_eq!(seed_of("third", Some(7)), 7);
}

/// A volume in a file, in `directory`, and its cache, of which it is noted that it is there.
fn noted_cache(directory: &Path) -> (VolumeConfig, CacheSettings) {
    let slow = directory.join("slow");
    std::fs::write(&slow, vec![0; 1 << 20]).unwrap();
    let backing = Backing::File { path: slow, size_bytes: None, creates: false, encryption: None };
    let config = VolumeConfig { name: "v".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false };
    let usual = CacheSettings::new("fast", directory.join("fast"), &policies()[0], Scheme::default());
    let notes = Some(Notes::new(directory.join("notes")));
    let settings = CacheSettings { size_bytes: Some(CACHE_BYTES_MIN), notes, ..usual };
    make(&settings, &config, 1 << 20, false).unwrap();
    FoundCache::find_or_make(settings.clone(), &config, 1 << 20, false).unwrap();
    (config, settings)
}

/// Writes both superblocks anew.
fn put_superblocks(settings: &CacheSettings, block: &[u8; BLOCK_BYTES]) {
    let mut bytes = std::fs::read(&settings.path).unwrap();
    bytes[..BLOCK_BYTES].copy_from_slice(block);
    bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(block);
    std::fs::write(&settings.path, bytes).unwrap();
}

/// A cache that is forgotten is given up on its device, or was not there; if that is not known, this is not said.
///
/// Planted break that was seen red: what cannot be read is not that cache.
#[test]
fn a_cache_is_not_said_to_be_given_up_if_it_may_be_there() {
    // Where a superblock's version stands.
    const VERSION_AT: usize = 8;
    let forgotten = |change: &dyn Fn(&CacheSettings, Superblock)| {
        let directory = tempfile::tempdir().unwrap();
        let (config, settings) = noted_cache(directory.path());
        let notes = settings.notes.clone().unwrap();
        let superblock = probe(&mut CacheDevice::open(&settings, false).unwrap()).unwrap();
        change(&settings, superblock);
        let (_, is_given_up) = forget(&notes, &config).unwrap().expect("it was noted");
        assert_eq!(notes.get::<CacheNote>(&config).unwrap(), None);
        is_given_up
    };
    assert!(forgotten(&|_, _| ()));
    assert!(forgotten(&|settings, _| put_superblocks(settings, &[0; BLOCK_BYTES])), "there is none");
    assert!(forgotten(&|settings, superblock| {
        let mut damaged = superblock.encode();
        damaged[VERSION_AT] ^= 1;
        put_superblocks(settings, &damaged);
    }));
    assert!(forgotten(&|settings, superblock| {
        put_superblocks(settings, &Superblock { uuid: [7; 16], ..superblock }.encode());
    }));
    assert!(!forgotten(&|settings, _| std::fs::write(&settings.path, []).unwrap()), "it cannot be read");
    assert!(!forgotten(&|settings, superblock| {
        let mut newer = superblock.encode();
        newer[VERSION_AT] += 1;
        seal(&mut newer, Kind::Superblock);
        put_superblocks(settings, &newer);
    }));
    assert!(!forgotten(&|settings, superblock| {
        put_superblocks(settings, &Superblock { generation: 1 << 62, ..superblock }.encode());
    }));
}
