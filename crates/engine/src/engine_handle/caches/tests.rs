//! What administrators are told of a cache when its engine ends meanwhile, or its device fails when it is given up.

use super::*;
use crate::backend::{Backing, Volume};
use crate::cache::{CacheDevice, CacheError, CacheNote, Leaving, give_up};
use crate::engine_handle::detach::End;
use crate::notes::Notes;
use crate::{BufferClass, EngineConfig, Finished, FrontEnd, Payload, Port, SessionConfig, Submission, spawn};
use plimsoll_cache::policies;
use plimsoll_cache::store::{BLOCK_BYTES, Blocks};
use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, Class, DeviceProfile, Operation, Span};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::mpsc::Sender;

/// Long enough for a machine that is busy with something else.
const PATIENCE: Span = Span::from_secs(300);
const VOLUME_BYTES: u64 = 16 << 20;
const CACHE_BYTES: u64 = 4 << 20;
/// Bytes of the largest request.
const REQUEST_BYTES_MAX: u32 = 64 << 10;

fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "device".into(),
        capacity_bytes: 1 << 30,
        worst_case_runs_per_second: 10_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    }
}

/// An engine's end closes a cache as it is, dirty or not. Outcome: a command that empties it in order to give it up
/// hears that the engine has stopped, and not that it is empty.
///
/// Planted break: a cache that is closed answers the command that waits for its phase to be over.
/// Promise: cache-emptied.
#[test]
fn emptying_a_cache_is_not_reported_done_when_its_engine_ends() {
    let directory = tempfile::tempdir().unwrap();
    let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
    let mut settings = CacheSettings::new("fast", directory.path().join("fast"), policy, Scheme::default());
    settings.size_bytes = Some(CACHE_BYTES);
    let backing = Backing::Memory { size_bytes: VOLUME_BYTES };
    let (name, pool) = ("v".to_owned(), "pool".to_owned());
    let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
    let found = FoundCache::find(settings, &volume).unwrap();
    let engine = spawn(EngineConfig::new(profile(), "noop")).unwrap();
    engine.open_pool("pool", Allocation::default()).unwrap();
    engine.add_volume(volume).unwrap();
    engine.attach_cache("v", found).unwrap();
    let (answer, answered) = channel();
    let is_closed = engine.call(move |engine| {
        engine.conductor.empty_cache("v", false, answer).unwrap();
        // What an engine asks itself when it is to end and its last client has gone.
        engine.conductor.caches_are_closed()
    });
    assert!(!is_closed.unwrap());
    let told = answered.recv().unwrap();
    assert!(matches!(told, Err(EngineError::Stopped)), "{told:?}");
    engine.shutdown(Span::from_secs(5)).unwrap();
}

/// A daemon does not end before its administrators have their answers, and emptying takes as long as the volume is
/// slow.
///
/// Planted breaks that were seen red: a command that waits goes on waiting; the next one waits, too; requests are
/// held.
/// Promise: cache-quick-end.
#[test]
fn emptying_a_cache_of_an_ending_engine_fails_at_once_and_requests_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut cached = Cached::new(directory.path());
    assert!(cached.write(&[7; BLOCK_BYTES]));
    let ((emptied, is_emptied), (flushed, is_flushed)) = (channel(), channel());
    let asked = cached.engine.call(move |engine| {
        engine.conductor.flush_cache("v", Some(flushed)).unwrap();
        engine.conductor.empty_cache("v", false, emptied).unwrap();
        engine.conductor.keep_caches();
    });
    asked.unwrap();
    assert!(matches!(is_emptied.recv().unwrap(), Err(EngineError::Stopped)));
    assert!(is_flushed.recv().is_err());
    // A command that begins to, and one that has flushed it first, too.
    assert!(matches!(cached.engine.detach_cache("v"), Err(EngineError::Stopped)));
    let emptied = cached.engine.call(|engine| engine.conductor.empty_cache("v", false, channel().0)).unwrap();
    assert!(matches!(emptied, Err(EngineError::Stopped)));
    assert!(cached.write(&[8; BLOCK_BYTES]) && cached.read(BLOCK_BYTES) == [8; BLOCK_BYTES]);
    assert!(cached.is_noted());
    cached.found_by_the_next_start().unwrap();
}

/// A device that does so many operations and fails then.
struct Failing<'device> {
    device: &'device mut CacheDevice,
    left: u32,
}

impl Failing<'_> {
    fn begin(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| io::Error::other("the device has failed"))?;
        Ok(())
    }
}

impl Blocks for Failing<'_> {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> io::Result<()> {
        self.begin()?;
        self.device.read(first, into)
    }

    fn write(&mut self, first: u64, from: &[u8]) -> io::Result<()> {
        self.begin()?;
        self.device.write(first, from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.begin()?;
        self.device.flush()
    }
}

/// A client that asks for one thing, from the volume's first byte on, and goes.
struct Asks {
    operation: Operation,
    length: u32,
    /// What is written; nothing otherwise.
    data: Vec<u8>,
    /// Hears what was read, or why the request failed.
    answer: Sender<Result<Vec<u8>, Errno>>,
    is_answered: bool,
}

impl FrontEnd for Asks {
    fn buffer_classes(&self) -> &[BufferClass] {
        &[BufferClass { bytes: REQUEST_BYTES_MAX, count: 1 }]
    }

    fn started(&mut self, port: &mut Port<'_>) {
        let payload = match self.operation {
            Operation::Read => port.take_read_payload(0, self.length).unwrap(),
            Operation::Write => {
                let mut buffer = port.take_buffer(self.length).unwrap();
                buffer.as_mut_slice()[..self.data.len()].copy_from_slice(&self.data);
                Payload::Buffer { buffer, at: 0 }
            }
            _ => Payload::None,
        };
        let (token, operation, length, class) = (0, self.operation, self.length, Class::UNCLASSIFIED);
        port.submit(Submission { token, operation, offset: 0, length, is_forced: false, class, payload });
    }

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        let is_read = self.operation == Operation::Read;
        let read = if is_read { port.read_bytes(&finished).to_vec() } else { Vec::new() };
        let _ = self.answer.send(finished.result.map(|()| read));
        port.give_payload(finished.payload);
        self.is_answered = true;
    }

    fn turn_ended(&mut self, _: &mut Port<'_>) {}

    fn stop(&mut self, _: &mut Port<'_>) {}

    fn cut(&mut self, _: &mut Port<'_>) {}

    fn is_finished(&self) -> bool {
        self.is_answered
    }
}

/// A volume in a file with a cache, and its clients.
struct Cached {
    engine: EngineHandle,
    config: VolumeConfig,
    settings: CacheSettings,
}

impl Cached {
    fn new(directory: &Path) -> Cached {
        let (name, pool) = ("v".to_owned(), "pool".to_owned());
        let path = directory.join("slow");
        let backing = Backing::File { path, size_bytes: Some(VOLUME_BYTES), creates: true, encryption: None };
        let config = VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false };
        let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
        let mut settings = CacheSettings::new("fast", directory.join("fast"), policy, Scheme::default());
        settings.size_bytes = Some(CACHE_BYTES);
        settings.notes = Some(Notes::new(directory.join("notes")));
        let volume = Volume::open(config.clone()).unwrap();
        let found = FoundCache::find_or_make(settings.clone(), &config, VOLUME_BYTES, true).unwrap();
        let engine = spawn(EngineConfig::new(profile(), "noop")).unwrap();
        engine.open_pool("pool", Allocation::default()).unwrap();
        engine.add_volume(volume).unwrap();
        engine.attach_cache("v", found).unwrap();
        Cached { engine, config, settings }
    }

    /// Asks for the first bytes, and gives what was read if that succeeded.
    fn ask(&mut self, operation: Operation, length: usize, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let (answer, answered) = channel();
        let (length, data) = (length as u32, data.to_vec());
        let session = SessionConfig { name: "client".into(), allocation: Allocation::default() };
        let asks = Asks { operation, length, data, answer, is_answered: false };
        self.engine.attach("v", session, Box::new(asks)).unwrap();
        answered.recv_timeout(std::time::Duration::from_nanos(PATIENCE.as_nanos())).unwrap()
    }

    fn flush(&mut self) -> bool {
        self.ask(Operation::Flush, 0, &[]).is_ok()
    }

    fn write(&mut self, data: &[u8]) -> bool {
        self.ask(Operation::Write, data.len(), data).is_ok()
    }

    fn read(&mut self, length: usize) -> Vec<u8> {
        self.ask(Operation::Read, length, &[]).unwrap()
    }

    /// The first bytes on the slow device.
    fn stored(&self, length: usize) -> Vec<u8> {
        let Backing::File { path, .. } = &self.config.backing else { unreachable!("it is in a file") };
        std::fs::read(path).unwrap()[..length].to_vec()
    }

    fn notes(&self) -> &Notes {
        self.settings.notes.as_ref().unwrap()
    }

    fn note(&self) -> Option<CacheNote> {
        self.notes().get(&self.config).unwrap()
    }

    fn is_noted(&self) -> bool {
        self.note().is_some()
    }

    /// Ends the engine, and says what a start finds: how much of it the store lacks.
    fn found_by_the_next_start(self) -> Result<u32, CacheError> {
        self.next_start().map(|found| found.report.dirty_units)
    }

    fn next_start(self) -> Result<FoundCache, CacheError> {
        self.engine.shutdown(PATIENCE).unwrap();
        let volume = Volume::open(self.config).unwrap();
        FoundCache::find(self.settings, &volume)
    }
}

/// Outcome, at whatever operation the device fails: everything is on the store and can be read, writes are refused, the
/// note stays, and the message says so. The cache can be detached once more, and then is gone. The next start finds it
/// with nothing that the store lacks, or finds none.
///
/// Planted breaks that were seen red: writes are not refused; a cache that refuses writes cannot be detached; what is
/// found on the device is believed when the cache is given up for the second time.
/// Promise: cache-failed-end.
#[test]
fn a_cache_whose_device_fails_when_it_is_given_up_refuses_writes_until_it_is_detached() {
    let (old, new) = (vec![7; 8 * BLOCK_BYTES], vec![9; 8 * BLOCK_BYTES]);
    let (mut operations, mut found_none) = (0, 0);
    let failed = |operations: u32| {
        let directory = tempfile::tempdir().unwrap();
        let mut cached = Cached::new(directory.path());
        assert!(cached.write(&old));
        let told = cached.engine.detach_cache_by("v", End::Leaves(Leaving::Detach), |device, superblock| {
            give_up(&mut Failing { device, left: operations }, superblock)
        });
        let Err(told) = told else { return None };
        let means = "everything is on the slow device and can be read; writes are refused until the cache is detached";
        assert!(told.to_string().ends_with(means), "{told}");
        assert!(cached.stored(old.len()) == old && cached.read(old.len()) == old && cached.is_noted());
        assert!(!cached.write(&new), "a write went into a cache that may be gone");
        let status = cached.engine.caches().unwrap().remove(0).1;
        assert!((status.dirty_units, status.has_failed, status.is_working) == (0, true, true), "{status:?}");
        Some((directory, cached))
    };
    while let Some((_directory, mut cached)) = failed(operations) {
        cached.engine.detach_cache("v").unwrap();
        assert!(cached.engine.caches().unwrap().is_empty() && !cached.is_noted());
        assert!(cached.read(old.len()) == old && cached.write(&new) && cached.flush());
        assert!(cached.stored(new.len()) == new);
        let found = cached.found_by_the_next_start();
        assert!(matches!(found, Err(CacheError::Open { .. })), "what was given up was found: {found:?}");

        let (_directory, cached) = failed(operations).expect("it failed before");
        match cached.found_by_the_next_start() {
            Ok(dirty_units) => assert_eq!(dirty_units, 0),
            Err(CacheError::Open { .. }) => found_none += 1,
            Err(error) => panic!("{error}"),
        }
        operations += 1;
    }
    assert!(
        operations >= 5 && (1..operations).contains(&found_none),
        "{operations} operations, {found_none} times none"
    );
}

/// The states in which kill -9 may leave a cache that gets another size: it is noted that the cache leaves, and the
/// device has it still; has given it up; has the new one. Outcome: each start finds a cache of either size with nothing
/// that the store lacks, and the note says no more that the cache leaves.
///
/// Planted breaks that were seen red: nothing is noted before the device gives the cache up; a start makes no cache;
/// what the note says outlives the start.
#[test]
fn a_start_finishes_a_resize_that_was_killed() {
    const NEW_BYTES: u64 = 2 << 20;
    let data = vec![7; 8 * BLOCK_BYTES];
    let resize = End::Leaves(Leaving::Resize { size_bytes: NEW_BYTES });
    for state in ["noted", "given up on the device", "given up", "made"] {
        let directory = tempfile::tempdir().unwrap();
        let mut cached = Cached::new(directory.path());
        assert!(cached.write(&data));
        match state {
            "noted" | "given up on the device" => {
                let killed = cached.engine.detach_cache_by("v", resize, |device, superblock| {
                    if state != "noted" {
                        give_up(device, superblock)?;
                    }
                    Err(io::Error::other("the daemon ends here"))
                });
                killed.unwrap_err();
            }
            _ => cached.engine.detach_cache_to_resize("v", NEW_BYTES).unwrap(),
        }
        let note = cached.note().expect("it stays until the new cache is there");
        assert_eq!(note.leaving, Some(Leaving::Resize { size_bytes: NEW_BYTES }), "{state}");
        if state == "made" {
            let new = CacheSettings { size_bytes: Some(NEW_BYTES), ..cached.settings.clone() };
            FoundCache::find_or_make(new, &cached.config, VOLUME_BYTES, true).unwrap();
            cached.notes().put(&cached.config, &note).unwrap();
        }
        assert!(cached.stored(data.len()) == data);
        let (config, settings) = (cached.config.clone(), cached.settings.clone());
        let found = cached.next_start().unwrap();
        assert_eq!(found.report.dirty_units, 0, "{state}");
        let note: CacheNote = settings.notes.as_ref().unwrap().get(&config).unwrap().unwrap();
        assert_eq!(note.leaving, None, "{state}");
        let units = found.machine.superblock().layout.units;
        let is_old = u64::from(units) * BLOCK_BYTES as u64 > NEW_BYTES;
        assert_eq!(is_old, state == "noted", "{state}: {units} units");
    }
}

/// Where it cannot be noted that the cache leaves, it stays. It takes no writes, since the old note cannot be put back
/// either. Once notes can be written again, it can be detached.
///
/// Planted break that was seen red: the device gives the cache up nevertheless.
#[test]
fn a_cache_stays_where_it_cannot_be_noted_that_it_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let mut cached = Cached::new(directory.path());
    let [old, new] = [7, 9].map(|byte| vec![byte; 8 * BLOCK_BYTES]);
    assert!(cached.write(&old));
    // No process makes a directory there.
    let elsewhere = cached.engine.call(|engine| {
        let (_, cache) = engine.conductor.cache_of("v").unwrap();
        cache.settings_mut().notes.replace(Notes::new("/proc/self/notes".into()))
    });
    let told = cached.engine.detach_cache("v").unwrap_err().to_string();
    assert!(told.contains("it cannot be given up, and the log says why"), "{told}");
    let status = cached.engine.caches().unwrap().remove(0).1;
    assert!(status.has_failed && status.dirty_units == 0, "{status:?}");
    assert!(!cached.write(&new) && cached.read(old.len()) == old && cached.stored(old.len()) == old);
    cached
        .engine
        .call(|engine| engine.conductor.cache_of("v").unwrap().1.settings_mut().notes = elsewhere.unwrap())
        .unwrap();
    cached.engine.detach_cache("v").unwrap();
    assert!(cached.write(&new) && cached.stored(new.len()) == new && !cached.is_noted());
    cached.engine.shutdown(PATIENCE).unwrap();
}

/// A unit that only the cache has is bad; the device works otherwise, or can be read and not written any more. Outcome:
/// the cache stays until the administrator says that something may be lost. Then that unit is lost, everything else is
/// on the slow device, and the volume goes on without the cache.
///
/// Planted breaks: whatever is dirty may be lost; the device must take that the cache is given up.
/// Promise: cache-detach-lost.
#[test]
fn what_cannot_be_read_is_lost_when_that_is_said_and_nothing_else() {
    for is_worn_out in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut cached = Cached::new(directory.path());
        let mut old: Vec<u8> = (0..8 * BLOCK_BYTES).map(|at| (at / 512) as u8 + 1).collect();
        assert!(cached.write(&old) && cached.flush());
        let place = cached.engine.call(|engine| {
            let (_, cache) = engine.conductor.cache_of("v").unwrap();
            let unit = cache.machine_mut().cache().find(3).unwrap();
            cache.machine_mut().superblock().layout.unit_block(unit) * BLOCK_BYTES as u64
        });
        let fast = std::fs::File::options().write(true).open(&cached.settings.path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&fast, &[0xbd; BLOCK_BYTES], place.unwrap()).unwrap();
        fast.sync_all().unwrap();
        if is_worn_out {
            cached
                .engine
                .call(|engine| engine.conductor.cache_of("v").unwrap().1.machine_mut().refuse_writes())
                .unwrap();
        }
        let told = cached.engine.detach_cache("v").unwrap_err().to_string();
        let named = "4 KiB, bytes 12288 to 16384 of volume v (plimsoll cache detach v --lost gives that up)";
        assert!(told.contains(named) && cached.is_noted(), "{told}");
        assert_eq!(cached.engine.caches().unwrap()[0].1.dirty_units, 1, "the rest is copied, worn out: {is_worn_out}");
        let lost = cached.engine.detach_cache_by("v", End::MayLose, |device, superblock| match is_worn_out {
            true => Err(io::Error::other("the device is not written any more")),
            false => give_up(device, superblock),
        });
        assert_eq!(lost.unwrap(), BLOCK_BYTES as u64);
        assert!(cached.engine.caches().unwrap().is_empty() && !cached.is_noted());
        old[3 * BLOCK_BYTES..4 * BLOCK_BYTES].fill(0);
        assert!(cached.stored(old.len()) == old && cached.read(old.len()) == old && cached.write(&old));
        cached.engine.shutdown(PATIENCE).unwrap();
    }
}

/// `detach --lost` of a cache of which everything can be read; the daemon ends when the device has given it up, or
/// before. Outcome: the note says by then that everything is on the slow device, as with any other detach, so the next
/// start needs no administrator's word.
///
/// Planted break that was seen red: a detach that may lose something never notes that the cache leaves.
#[test]
fn a_whole_cache_that_is_given_up_with_losses_leaves_as_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let mut cached = Cached::new(directory.path());
    let data = vec![7; 8 * BLOCK_BYTES];
    assert!(cached.write(&data));
    let (notes, config) = (cached.notes().clone(), cached.config.clone());
    let mut at_the_device = None;
    let lost = cached.engine.detach_cache_by("v", End::MayLose, |device, superblock| {
        at_the_device = Some(notes.get::<CacheNote>(&config));
        give_up(device, superblock)
    });
    assert_eq!(lost.unwrap(), 0);
    let note = at_the_device.unwrap().unwrap().expect("it is noted until it is gone");
    assert_eq!(note.leaving, Some(Leaving::Detach));
    assert!(!cached.is_noted() && cached.stored(data.len()) == data && cached.read(data.len()) == data);
    cached.engine.shutdown(PATIENCE).unwrap();
}

/// Every copy of the note is damaged while the engine has the cache. Outcome: it can be detached all the same, since
/// the engine knows which cache it has.
///
/// Planted break that was seen red: the cache stays, since its note cannot be read.
#[test]
fn a_cache_with_a_damaged_note_can_be_detached() {
    let directory = tempfile::tempdir().unwrap();
    let mut cached = Cached::new(directory.path());
    let data = vec![7; 8 * BLOCK_BYTES];
    assert!(cached.write(&data));
    let note = cached.notes().path_of::<CacheNote>(&cached.config).unwrap().unwrap();
    std::fs::write(&note, "{").unwrap();
    let Backing::File { path, .. } = &cached.config.backing else { unreachable!("it is in a file") };
    let _ = rustix::fs::removexattr(path, "user.plimsoll.cache");
    cached.engine.detach_cache("v").unwrap();
    assert!(!cached.is_noted() && !note.exists() && cached.stored(data.len()) == data);
    cached.engine.shutdown(PATIENCE).unwrap();
}
