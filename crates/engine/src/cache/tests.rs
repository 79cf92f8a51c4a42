//! Caches that are found, refused and given up, on files.

use super::*;
use crate::backend::Backing;
use plimsoll_cache::policies;
use plimsoll_cache::store::bytes::{BlockKind, seal};
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tracing::field::Field;
use tracing::{Subscriber, span};

/// Two caches that are found have different seeds, and decide by them; one that is given is taken as it is.
///
/// Planted breaks: none is drawn; what is drawn does not come to the configuration.
/// Promise: cache-index-seed.
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

/// On a file system in memory, so that no disk is filled where the refusal fails. The cache that is there stays.
///
/// Planted break, seen red: the room is not looked at.
#[test]
fn a_size_without_room_is_refused_before_anything_is_touched() {
    let shared_memory = Path::new("/dev/shm");
    let (room, directory) = (CacheDevice::room(shared_memory), tempfile::tempdir_in(shared_memory));
    let (Some(room), Ok(directory)) = (room.filter(|room| *room < CACHE_BYTES_MAX / 2), directory) else {
        return eprintln!("not run: no file system in memory with a bound");
    };
    let (_, settings) = noted_cache(directory.path());
    let of = |size_bytes: u64| CacheSettings { size_bytes: Some(size_bytes), ..settings.clone() };
    // Others use it, too.
    let refused = check_size(&of((room * 2).next_multiple_of(BLOCK_BYTES as u64))).unwrap_err();
    assert!(matches!(refused, CacheError::NoRoom { .. }), "{refused}");
    assert!(refused.to_string().contains("has room for: the file can grow by"), "{refused}");
    assert!(check_size(&of(CACHE_BYTES_MIN)).is_ok());
    assert_eq!(std::fs::metadata(&settings.path).unwrap().len(), CACHE_BYTES_MIN);
}

/// An empty file at the cache's path grows and becomes the cache.
///
/// Planted break that was seen red: `make` reads superblocks of a file that is too short for them.
#[test]
fn an_empty_file_becomes_a_cache() {
    let directory = tempfile::tempdir().unwrap();
    let fast = directory.path().join("fast");
    std::fs::write(&fast, []).unwrap();
    let (config, settings) = noted_cache(directory.path());
    assert_eq!((settings.path.as_path(), std::fs::metadata(&fast).unwrap().len()), (&*fast, CACHE_BYTES_MIN));
    FoundCache::find_or_make(settings, &config, 1 << 20, false).unwrap();
}

/// A file at the cache's path is no whole number of blocks, and its bytes are behind the last whole one. Outcome: it is
/// refused and stays.
///
/// Planted break that was seen red: what is behind the last whole block is not read.
#[test]
fn a_file_whose_last_bytes_are_data_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let (config, settings) = noted_cache(directory.path());
    let path = directory.path().join("other");
    let settings = CacheSettings { path: path.clone(), notes: None, size_bytes: Some(CACHE_BYTES_MIN), ..settings };
    for zeroes in [0, 4094, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES + 7] {
        let content = [vec![0; zeroes], vec![7]].concat();
        std::fs::write(&path, &content).unwrap();
        let refused = FoundCache::find_or_make(settings.clone(), &config, 1 << 20, true).map(drop).unwrap_err();
        assert!(matches!(refused, CacheError::Content { .. }), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

/// Writes both superblocks anew.
fn put_superblocks(settings: &CacheSettings, block: &[u8; BLOCK_BYTES]) {
    let mut bytes = std::fs::read(&settings.path).unwrap();
    bytes[..BLOCK_BYTES].copy_from_slice(block);
    bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(block);
    std::fs::write(&settings.path, bytes).unwrap();
}

/// A cache that is forgotten is given up on its device; if it is not there, or if that is not known, this is said. In
/// any case it is noted that it was given up.
///
/// What was said before of an empty device at its path, that the cache is given up there, hid that it was elsewhere and
/// might come back.
///
/// Planted break that was seen red: what cannot be read is not that cache.
/// Promise: notes-given-up, notes-required-cache.
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
        let (_, forgotten) = forget(&notes, &config).unwrap().expect("it was noted");
        assert_eq!(notes.get::<CacheNote>(&config).unwrap(), None);
        assert!(notes.is_given_up(&superblock.uuid).unwrap());
        forgotten
    };
    assert_eq!(forgotten(&|_, _| ()), Forgotten::OnDevice);
    assert_eq!(forgotten(&|settings, _| put_superblocks(settings, &[0; BLOCK_BYTES])), Forgotten::Elsewhere);
    let damaged = forgotten(&|settings, superblock| {
        let mut damaged = superblock.encode();
        damaged[VERSION_AT] ^= 1;
        put_superblocks(settings, &damaged);
    });
    assert_eq!(damaged, Forgotten::Elsewhere);
    let other = forgotten(&|settings, superblock| {
        put_superblocks(settings, &Superblock { uuid: [7; 16], ..superblock }.encode());
    });
    assert_eq!(other, Forgotten::Elsewhere);
    let unreadable = forgotten(&|settings, _| std::fs::write(&settings.path, []).unwrap());
    assert_eq!(unreadable, Forgotten::Unreadable);
    let newer = forgotten(&|settings, superblock| {
        let mut newer = superblock.encode();
        newer[VERSION_AT] += 1;
        seal(&mut newer, BlockKind::Superblock);
        put_superblocks(settings, &newer);
    });
    assert_eq!(newer, Forgotten::Unreadable);
    let spent = forgotten(&|settings, superblock| {
        put_superblocks(settings, &Superblock { generation: 1 << 62, ..superblock }.encode());
    });
    assert_eq!(spent, Forgotten::Unreadable);
}

/// A slow file was copied, and the cache followed the copy (`adopt --moved`). The old file's note still names the
/// cache. Outcome: forgetting it takes that note away, and the cache stays what it is for the copy.
///
/// Planted break: the cache is given up, as any other is; the copy loses what only its cache has.
#[test]
fn a_cache_that_followed_its_file_is_not_given_up_with_the_old_files_note() {
    let directory = tempfile::tempdir().unwrap();
    let (config, settings) = noted_cache(directory.path());
    let notes = settings.notes.clone().unwrap();
    let superblock = probe(&mut CacheDevice::open(&settings, false).unwrap()).unwrap();
    let moved = Superblock { store: [9; 16], starts: superblock.starts + 1, ..superblock };
    put_superblocks(&settings, &moved.encode());
    let (_, forgotten) = forget(&notes, &config).unwrap().expect("it was noted");
    assert_eq!((forgotten, notes.get::<CacheNote>(&config).unwrap()), (Forgotten::OfMoved, None));
    assert!(!notes.is_given_up(&superblock.uuid).unwrap());
    assert_eq!(probe(&mut CacheDevice::open(&settings, false).unwrap()).unwrap(), moved);
}

/// Events of the log, each with its fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut |field: &Field, value: &dyn Debug| text.push_str(&format!(" {field}={value:?}")));
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// A start gives up a page of the map, and then fails, since it cannot note that there is a cache. Outcome: the log
/// says what is lost, for the next start finds nothing amiss.
///
/// Planted break that was seen red: only the code that is handed the cache says what was lost.
/// Promise: notes-lost-cache.
#[test]
fn what_a_start_gives_up_is_told_though_it_fails_later() {
    let directory = tempfile::tempdir().unwrap();
    let (config, settings) = noted_cache(directory.path());
    let layout = probe(&mut CacheDevice::open(&settings, false).unwrap()).unwrap().layout;
    let mut bytes = std::fs::read(&settings.path).unwrap();
    for slot in 0..2 {
        let at = layout.map_block(slot, 0) as usize * BLOCK_BYTES;
        bytes[at..at + BLOCK_BYTES].fill(0);
    }
    std::fs::write(&settings.path, bytes).unwrap();
    // No process makes a directory there.
    let notes = Some(Notes::new("/proc/self/notes".into()));
    let settings = CacheSettings { accepts_losses: true, notes, ..settings };
    let log = Log::default();
    let find = || FoundCache::find_or_make(settings.clone(), &config, 1 << 20, false);
    let found = tracing::subscriber::with_default(log.clone(), find);
    assert!(matches!(found.err().expect("nothing can be noted"), CacheError::System { .. }));
    let said = |part: &str| log.0.lock().unwrap().iter().any(|line| line.starts_with("ERROR") && line.contains(part));
    assert!(said("cache=\"fast\" volume=\"v\" lost_pages=1"), "{:?}", log.0.lock().unwrap());
    let again = FoundCache::find_or_make(CacheSettings { notes: None, ..settings }, &config, 1 << 20, false).unwrap();
    assert!(!again.report.has_losses());
}

/// Two slow devices may be known by the same, and then the note of the one is found for the other. Outcome: the cache
/// of the one is not given up for the other, and the line names the volume it belongs to.
///
/// Planted break that was seen red: whatever is noted is forgotten.
/// Promise: notes-required-cache.
#[test]
fn a_cache_that_is_noted_of_another_volume_is_not_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let (config, settings) = noted_cache(directory.path());
    let notes = settings.notes.clone().unwrap();
    let error = forget(&notes, &VolumeConfig { name: "w".into(), ..config.clone() }).expect_err("it is of v");
    let fast = settings.path.display();
    let said = format!("that of volume \"v\", and cache \"fast\" of that volume, on {fast}, was not detached");
    assert!(error.to_string().contains(&said), "{error}");
    assert!(notes.get::<CacheNote>(&config).unwrap().is_some());
    FoundCache::find_or_make(settings, &config, 1 << 20, false).expect("it is there");
}

/// A start makes the cache of a volume in memory anew, and `attach --make` that of any volume. Outcome: the old cache
/// of the same volume, or of another one in memory, makes room. A cache that is of another store, or may be, does not
/// and is not touched.
///
/// Planted breaks that were seen red: whatever is there makes room; a volume in memory has a name that no other has; a
/// damaged cache is none.
/// Promise: notes-made.
#[test]
fn a_start_never_makes_a_cache_where_one_of_another_volume_is() {
    let directory = tempfile::tempdir().unwrap();
    let (config, settings) = noted_cache(directory.path());
    let in_memory = |name: &str, size_bytes| {
        let backing = Backing::Memory { size_bytes };
        let (name, pool) = (name.to_owned(), "pool".to_owned());
        Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap()
    };
    let volume = in_memory("w", 1 << 20);
    let of_memory = CacheSettings { notes: None, ..settings.clone() };
    let is_refused = |found: Result<FoundCache, CacheError>| match found {
        Err(CacheError::Exists { .. }) => true,
        Err(error) => panic!("{error}"),
        Ok(_) => false,
    };
    let before = std::fs::read(&settings.path).unwrap();
    assert!(is_refused(FoundCache::find(of_memory.clone(), &volume)));
    assert!(is_refused(FoundCache::find_or_make(of_memory.clone(), volume.config(), 1 << 20, true)));
    assert!(before == std::fs::read(&settings.path).unwrap(), "what is refused is not touched");
    let error = FoundCache::find_or_make(of_memory.clone(), volume.config(), 1 << 20, false).err().unwrap();
    assert!(matches!(error, CacheError::Open { source: OpenError::OtherStore, .. }), "{error}");
    // Its own is made anew.
    FoundCache::find_or_make(settings.clone(), &config, 1 << 20, true).unwrap();
    // One of an unknown volume.
    put_superblocks(&settings, &std::array::from_fn(|at| if at < 8 { b"PLIMCACH"[at] } else { 0 }));
    assert!(is_refused(FoundCache::find(of_memory.clone(), &volume)));
    // Without its superblocks it is data of unknown origin; a device that holds nothing is taken.
    put_superblocks(&settings, &[0; BLOCK_BYTES]);
    let error = FoundCache::find(of_memory.clone(), &volume).err().unwrap();
    assert!(matches!(error, CacheError::Content { content: crate::content::Content::Unknown { .. }, .. }), "{error}");
    std::fs::write(&settings.path, vec![0; before.len()]).unwrap();
    for (name, size_bytes) in [("w", 1 << 20), ("w", 1 << 20), ("w", 1 << 21), ("x", 1 << 20)] {
        FoundCache::find(of_memory.clone(), &in_memory(name, size_bytes)).unwrap();
    }
    assert!(is_refused(FoundCache::find_or_make(settings, &config, 1 << 20, true)));
}

/// The slow file is copied with its attributes and then gone, as when it was moved to another file system. Outcome: the
/// cache follows it after the word, once and with its note. It follows no file without a note, none from before the
/// last start, none of another size or of another volume; nor does another cache follow that file. What is refused is
/// not touched.
///
/// Planted breaks that were seen red: how often the cache has begun is not compared; which cache the note names is not;
/// the note is not written.
#[test]
fn a_cache_follows_a_slow_file_that_was_moved_and_no_other_one() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (config, settings) = noted_cache(directory.path());
    let copied = |name: &str| {
        let mut copy = std::process::Command::new("cp");
        assert!(copy.arg("--preserve=xattr").args([at("slow"), at(name)]).status().unwrap().success());
    };
    copied("older");
    FoundCache::find_or_make(settings.clone(), &config, 1 << 20, false).unwrap();
    ["moved", "longer"].into_iter().for_each(copied);
    std::fs::File::options().write(true).open(at("longer")).unwrap().set_len(2 << 20).unwrap();
    std::fs::write(at("plain"), vec![0; 1 << 20]).unwrap();
    std::fs::remove_file(at("slow")).unwrap();
    let volume = |file: &str, name: &str| {
        let backing = Backing::File { path: at(file), size_bytes: None, creates: false, encryption: None };
        Volume::open(VolumeConfig { name: name.to_owned(), backing, ..config.clone() }).unwrap()
    };
    if Notes::of_its_original::<CacheNote>(volume("moved", "v").config()).unwrap().is_none() {
        return eprintln!("not run: no extended attributes on this file system");
    }
    let other = CacheSettings { path: at("other"), name: "other".to_owned(), ..settings.clone() };
    make(&other, volume("plain", "w").config(), 1 << 20, false).unwrap();
    let before = [&settings, &other].map(|settings| std::fs::read(&settings.path).unwrap());
    let refused = |settings: &CacheSettings, file: &str, name: &str, is_moved| {
        adopt(settings, &volume(file, name), is_moved).unwrap_err().to_string()
    };
    let without_word = refused(&settings, "moved", "v", false);
    assert!(without_word.ends_with("the cache belongs to another store"), "{without_word}");
    for (settings, file, name, why) in [
        (&settings, "older", "v", "of start 1 of the cache, which has started 2 times: the slow file is an older copy"),
        (&settings, "plain", "v", "no note that is attached to the slow file names this cache"),
        (&settings, "longer", "v", "it has 2 MiB now"),
        (&settings, "moved", "w", "is noted as that of volume \"v\""),
        (&other, "moved", "v", "no note that is attached to the slow file names this cache"),
    ] {
        let said = refused(settings, file, name, true);
        assert!(said.contains(why), "{file}: {said}");
    }
    assert!(before == [&settings, &other].map(|settings| std::fs::read(&settings.path).unwrap()));
    for _ in 0..2 {
        adopt(&settings, &volume("moved", "v"), true).unwrap();
        let note = settings.notes.as_ref().unwrap().get::<CacheNote>(volume("moved", "v").config()).unwrap();
        assert_eq!(note.map(|note| note.starts), Some(3), "the move counts as a start, once");
    }
    FoundCache::find(settings.clone(), &volume("moved", "v")).unwrap();
    // A copy that was left behind has no claim any more.
    assert!(refused(&settings, "older", "v", true).contains("which has started 4 times"));
}

/// The kernel takes no more writes to a fast device. Outcome: the refusal says so, and the volume's cache can be
/// forgotten: it is noted that the cache was given up, though its device keeps it. As root, with a loop device.
///
/// Planted breaks that were seen red: the refusal of such a device is that of a device that another program uses; it
/// ends `forget`.
#[test]
fn a_fast_device_that_takes_no_writes_any_more_can_be_forgotten() {
    let losetup = |arguments: &[&std::ffi::OsStr]| {
        let output = std::process::Command::new("losetup").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fast.img");
    std::fs::write(&file, vec![0; CACHE_BYTES_MIN as usize]).unwrap();
    let of = |more: &str| losetup(&["--find".as_ref(), "--show".as_ref(), more.as_ref(), file.as_os_str()]);
    let Some(device) = of("--nooverlap") else { return eprintln!("not run: takes root and loop devices") };
    std::os::unix::fs::symlink(&device, directory.path().join("fast")).unwrap();
    let (config, settings) = noted_cache(directory.path());
    let uuid = probe(&mut CacheDevice::open(&settings, false).unwrap()).unwrap().uuid;
    losetup(&["--detach".as_ref(), device.as_ref()]).unwrap();
    let read_only = of("--read-only").unwrap();
    std::fs::remove_file(directory.path().join("fast")).unwrap();
    std::os::unix::fs::symlink(&read_only, directory.path().join("fast")).unwrap();
    let found = FoundCache::find_or_make(settings.clone(), &config, 1 << 20, false).map(drop).unwrap_err();
    let forgotten = forget(settings.notes.as_ref().unwrap(), &config);
    losetup(&["--detach".as_ref(), read_only.as_ref()]).unwrap();
    assert!(matches!(found, CacheError::ReadOnlyDevice { .. }), "{found}");
    assert!(matches!(forgotten, Ok(Some((_, Forgotten::Unreadable)))), "{forgotten:?}");
    let notes = settings.notes.as_ref().unwrap();
    assert!(notes.is_given_up(&uuid).unwrap() && notes.get::<CacheNote>(&config).unwrap().is_none());
}
