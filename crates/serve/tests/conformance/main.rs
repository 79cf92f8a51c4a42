//! Every front end of the registry, held to the laws of `docs/internals/front-ends.md`.
//!
//! A front end has a driver here. One that cannot be served on this machine is *not run*, with the reason.

mod front;
mod iscsi;
mod mount;
mod nbd;
mod noise;
#[path = "../programs/mod.rs"]
mod programs;
mod sockets;

use front::{Answer, Begun, Client, DRIVERS, Driver, Front, Limits, Site, Told};
use plimsoll_core::{Operation, Span};
use plimsoll_engine::backend::Volume;
use plimsoll_engine::{BufferMemory, EngineConfig};
use plimsoll_serve::registry::front_ends;
use plimsoll_testkit::slow::Slow;
use plimsoll_testkit::{BLOCK, Random, file_config, memory, profile};
use programs::LoopDevice;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Looks at a law of each front end that can be served here.
fn each(law: impl Fn(&Driver)) {
    for driver in DRIVERS {
        match (driver.not_run)() {
            Some(why) => println!("not run: {}: {why}", driver.name),
            None => law(driver),
        }
    }
}

fn config() -> EngineConfig {
    // Memory of its own, which the laws look at: of the engine's default, too, there is one for each engine.
    EngineConfig { buffers: BufferMemory::new(1 << 30), ..EngineConfig::new(profile(), "noop") }
}

fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn in_file(directory: &TempDir, size_bytes: u64) -> (Volume, PathBuf) {
    let path = directory.path().join("volume");
    (Volume::open(file_config("v", &path, Some(size_bytes))).unwrap(), path)
}

/// The same law on a volume in memory and on one in a file.
fn on_both(driver: &Driver, size_bytes: u64, law: impl Fn(&Site, &dyn Front)) {
    let directory = directory();
    for volume in [memory("v", size_bytes, 0), in_file(&directory, size_bytes).0] {
        let site = Site::new(config(), volume);
        let front = (driver.serve)(&site);
        law(&site, &*front);
        drop(front);
        site.end();
    }
}

/// Bytes that differ from place to place and from one `seed` to another.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed * 2 + 1);
    let start: Vec<u8> = (0..4099.min(length)).map(|_| random.below(255) as u8 + 1).collect();
    start.iter().copied().cycle().take(length).collect()
}

fn read(client: &mut dyn Client, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; length];
    assert_eq!(client.read(offset, &mut bytes), Ok(()), "{length} bytes at {offset}");
    bytes
}

/// Outcome: a registered front end that no law is looked at for is found, and so is a driver of none.
///
/// Planted break: iSCSI has no driver, red.
#[test]
fn every_front_end_has_a_driver_and_a_page() {
    let registered: Vec<&str> = front_ends().iter().map(|entry| entry.name).collect();
    let driven: Vec<&str> = DRIVERS.iter().map(|driver| driver.name).collect();
    assert_eq!(driven, registered);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for entry in front_ends() {
        assert!(root.join(entry.page).is_file(), "{}: there is no page {}", entry.name, entry.page);
        assert!(!entry.serves.is_empty() && !entry.title.is_empty() && !entry.section.is_empty(), "{}", entry.name);
    }
}

/// Outcome: after any sequence of writes, forced writes, trims, zeroes and flushes by two clients, both read what a
/// plain array has.
///
/// Planted breaks, each red: `FuseConnection` submits a punched hole as a flush; WRITE SAME writes a block too few; the
/// NBD driver submits a trim as a flush.
#[test]
fn clients_read_what_an_array_has() {
    const VOLUME_BYTES: u64 = 4 * MIB;
    const STEPS: u64 = 120;
    each(|driver| {
        on_both(driver, VOLUME_BYTES, |site, front| {
            let mut clients = [front.connect(), front.connect()];
            let (mut array, mut random) = (vec![0; VOLUME_BYTES as usize], Random(11));
            let block = u64::from(site.block());
            for step in 0..STEPS {
                let client = &mut clients[random.below(2) as usize];
                let offset = random.below(VOLUME_BYTES / block - 1) * block;
                let blocks_max = ((VOLUME_BYTES - offset) / block).min(200 * 512 / block);
                let length = ((1 + random.below(blocks_max)) * block) as usize;
                let range = offset as usize..offset as usize + length;
                let bytes = pattern(step, length);
                let (what, answer) = match random.below(6) {
                    0 => ("trim", client.trim(offset, length as u32)),
                    1 => ("zero", client.zero(offset, length as u32)),
                    2 => ("flush", client.flush()),
                    3 => ("forced write", client.write_forced(offset, &bytes)),
                    _ => ("write", client.write(offset, &bytes)),
                };
                assert_eq!(answer, Ok(()), "{}: {what} of {length} at {offset}", driver.name);
                match what {
                    "flush" => {}
                    "trim" | "zero" => array[range].fill(0),
                    _ => array[range].copy_from_slice(&bytes),
                }
                let from = offset.saturating_sub(block);
                let read = read(&mut *clients[random.below(2) as usize], from, length);
                assert!(read == array[from as usize..][..length], "{}: step {step}, after {what}", driver.name);
            }
            for client in &mut clients {
                let whole: Vec<u8> =
                    (0..VOLUME_BYTES).step_by(1 << 18).flat_map(|at| read(&mut **client, at, 1 << 18)).collect();
                assert!(whole == array, "{}: at the end", driver.name);
            }
        });
    });
}

/// Outcome: what was flushed, or written with force, is in the volume's file when it is answered.
#[test]
fn what_is_flushed_or_forced_is_in_the_file() {
    each(|driver| {
        let directory = directory();
        let (volume, path) = in_file(&directory, 4 * MIB);
        let site = Site::new(config(), volume);
        let front = (driver.serve)(&site);
        let (mut writer, mut flusher) = (front.connect(), front.connect());
        for round in 0..20 {
            let (at, bytes) = (round * 65_536, pattern(round, 16_384));
            assert_eq!(writer.write(at, &bytes), Ok(()));
            assert_eq!(flusher.flush(), Ok(()), "of another client");
            let forced = at + 32_768;
            assert_eq!(writer.write_forced(forced, &bytes), Ok(()));
            let stored = std::fs::read(&path).unwrap();
            for at in [at, forced] {
                assert!(stored[at as usize..][..bytes.len()] == bytes, "{}: {at}", driver.name);
            }
        }
        drop((writer, flusher, front));
        site.end();
    });
}

/// Outcome: a flush of any client, and a forced write, make the device flush before they are answered; a plain write
/// does not.
///
/// Planted breaks, each red: the NBD driver, and `IscsiConnection`, force no write; `FuseConnection` answers an fsync
/// without a flush.
#[test]
fn flushes_and_forced_writes_reach_the_device() {
    each(|driver| {
        let directory = directory();
        let backing = directory.path().join("backing");
        std::fs::write(&backing, vec![0; MIB as usize]).unwrap();
        let Some(device) = LoopDevice::over(&backing) else { return };
        let site = Site::new(config(), Volume::open(file_config("v", device.path(), None)).unwrap());
        let front = (driver.serve)(&site);
        let (mut writer, mut flusher) = (front.connect(), front.connect());
        let start = device.flush_count();
        assert_eq!(writer.write(0, &[1; 4096]), Ok(()));
        assert_eq!(device.flush_count(), start, "{}: a plain write does not flush", driver.name);
        assert_eq!(flusher.flush(), Ok(()));
        let flushed = device.flush_count();
        assert!(flushed > start, "{}: a flush", driver.name);
        assert_eq!(writer.write_forced(4096, &[2; 4096]), Ok(()));
        assert!(device.flush_count() > flushed, "{}: a forced write", driver.name);
        drop((writer, flusher, front));
        site.end();
    });
}

/// Outcome: a request that meets an error of the device is told so, and that request only: not the same client's next
/// one, not another client's.
///
/// Planted break: `FuseConnection` answers a failed read with what is in its buffer, red.
#[test]
fn an_error_of_the_device_is_an_error_of_its_request() {
    const HALF: u64 = 2 * MIB;
    each(|driver| {
        // A file that has lost its second half, and cannot grow again.
        let file = memfd_create("volume", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 2 * HALF).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let site = Site::new(config(), Volume::open(file_config("v", &path, None)).unwrap());
        let front = (driver.serve)(&site);
        let (mut client, mut other) = (front.connect(), front.connect());
        let bytes = pattern(5, 65_536);
        assert_eq!(client.write(0, &bytes), Ok(()));
        assert_eq!(client.write(HALF, &bytes), Ok(()));
        ftruncate(&file, HALF).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let mut told_count = 0;
        let mut fails = |answer: Answer, what: &str| {
            told_count += 1;
            assert!(matches!(answer, Err(Told::Failed | Told::Refused)), "{}: {what}: {answer:?}", driver.name);
        };
        for at in [HALF, HALF - BLOCK, 2 * HALF - 65_536] {
            let mut room = vec![0xee; 65_536];
            let answer = client.read(at, &mut room);
            assert_eq!(answer, Err(Told::Failed), "{}: read at {at}", driver.name);
            fails(answer, "read");
            fails(client.write(at, &bytes), "write");
            for client in [&mut client, &mut other] {
                assert!(read(&mut **client, 0, bytes.len()) == bytes, "{}: the first half is there", driver.name);
                assert_eq!(client.write(65_536, &bytes), Ok(()), "{}", driver.name);
                assert_eq!(client.flush(), Ok(()), "{}", driver.name);
            }
            fails(client.write_forced(at, &bytes), "forced write");
            for client in [&mut client, &mut other] {
                // What was acknowledged may be lost where a forced write has failed: each session hears of it once.
                let answer = client.flush();
                if answer.is_err() {
                    fails(answer, "flush");
                }
                assert_eq!(client.flush(), Ok(()), "{}: the second time", driver.name);
            }
        }
        let failed = site.engine.status().unwrap().accounts[0].failed;
        assert_eq!(failed, told_count, "{}: every error was told, once", driver.name);
        drop((client, other, front));
        site.end();
    });
}

/// Outcome: the largest request is served whole, also at the very end of the volume. A larger one is answered as the
/// front end says. One that reaches beyond the end is refused and changes nothing, and the client goes on.
///
/// Planted break: the end of the volume is a block further for `Request::check`, red.
#[test]
fn requests_have_limits_of_size_and_the_volume_has_an_end() {
    const VOLUME_BYTES: u64 = 72 * MIB;
    each(|driver| {
        on_both(driver, VOLUME_BYTES, |site, front| {
            let Limits { bytes_max, larger_read, larger_write } = driver.limits;
            let (name, block, largest) = (driver.name, site.block(), bytes_max as usize);
            let mut client = front.connect();
            for (seed, at) in [(1, 0), (2, VOLUME_BYTES - u64::from(bytes_max))] {
                let bytes = pattern(seed, largest);
                assert_eq!(client.write(at, &bytes), Ok(()), "{name}: at {at}");
                assert!(read(&mut *client, at, largest) == bytes, "{name}: at {at}");
            }
            let mut larger = vec![7; largest + block as usize];
            assert_eq!(client.read(0, &mut larger), larger_read, "{name}");
            assert_eq!(client.write(0, &vec![7; larger.len()]), larger_write, "{name}");
            let mut client = front.connect();
            let last = VOLUME_BYTES - u64::from(block);
            let before = read(&mut *client, last, block as usize);
            let two = vec![9; 2 * block as usize];
            for at in [last, VOLUME_BYTES, VOLUME_BYTES + MIB, (1 << 40) + last] {
                let refused = Err(Told::Refused);
                assert_eq!(client.read(at, &mut two.clone()), refused, "{name}: read at {at}");
                assert_eq!(client.write(at, &two), refused, "{name}: write at {at}");
                assert_eq!(client.write_forced(at, &two), refused, "{name}: forced write at {at}");
                assert_eq!(client.trim(at, 2 * block), refused, "{name}: trim at {at}");
                assert_eq!(client.zero(at, 2 * block), refused, "{name}: zeroes at {at}");
            }
            assert!(read(&mut *client, last, block as usize) == before, "{name}: nothing has changed");
            assert_eq!(client.zero(last, block), Ok(()), "{name}: the last block is a block as any");
            assert_eq!(read(&mut *client, last, block as usize), vec![0; block as usize], "{name}");
        });
    });
}

/// Outcome: a client that vanishes in the middle of a request, before the device has begun it or while the device works
/// on it, keeps no other client from being served and leaves nothing behind.
///
/// Planted breaks, each red: the end of the stream does not end an NBD connection; `FuseConnection` stays when its
/// mount is gone.
#[test]
fn a_client_that_vanishes_leaves_nothing_and_keeps_no_other_waiting() {
    const FAR: u64 = 64 * BLOCK;
    each(|driver| {
        for begun in [Begun::Half, Begun::Whole(Operation::Read, 3), Begun::Whole(Operation::Write, 3)] {
            let sticks_at = match begun {
                Begun::Half => None,
                Begun::Whole(operation, block) => Some((operation, block)),
            };
            let (device, freed) = Slow::new(Span::from_micros(50), sticks_at);
            let config = EngineConfig { buffers: BufferMemory::new(1 << 30), ..EngineConfig::emulated(device, "noop") };
            let site = Site::new(config, memory("v", 4 * MIB, 0));
            let front = (driver.serve)(&site);
            let mut other = front.connect();
            assert_eq!(other.write(FAR, &[4; 8192]), Ok(()));
            if let Some(gone) = front.begin(begun) {
                if sticks_at.is_some() {
                    site.wait_until("the request at the device", |status| status.requests_under_way == 1);
                }
                drop(gone);
                for round in 0..20 {
                    assert_eq!(other.write(FAR, &[round; 8192]), Ok(()), "{}: {begun:?}", driver.name);
                    assert_eq!(read(&mut *other, FAR, 8192), [round; 8192], "{}: {begun:?}", driver.name);
                }
            }
            freed.store(true, Ordering::Relaxed);
            assert_eq!(other.flush(), Ok(()), "{}: {begun:?}", driver.name);
            site.wait_until_attached(1);
            drop((other, front));
            site.end();
        }
    });
}

/// Outcome: random bytes, and what a good client says with damages, end their own connection at most. A good client is
/// served meanwhile and afterwards.
///
/// Planted breaks, each red with a panic of the engine's thread: a FUSE request is taken to have a whole header; a
/// wrong magic number of an NBD request is taken for impossible.
#[test]
fn hostile_bytes_end_their_own_connection_at_most() {
    const ROUNDS: u64 = 300;
    each(|driver| {
        on_both(driver, 4 * MIB, |_, front| {
            let (mut random, good) = (Random(0x5eed), front.messages());
            front.say(&good);
            let mut client = front.connect();
            assert!(read(&mut *client, 8192, 4096) == [3; 4096], "{}: it was understood", driver.name);
            for round in 0..ROUNDS {
                let hostile = match round % 3 {
                    0 => noise::noise(&mut random),
                    _ => noise::damaged(&mut random, &good),
                };
                front.say(&hostile);
                if round % 10 == 0 {
                    client = front.connect();
                }
                let bytes = pattern(round, 8192);
                assert_eq!(client.write(MIB, &bytes), Ok(()), "{}: round {round}: {hostile:x?}", driver.name);
                assert!(read(&mut *client, MIB, 8192) == bytes, "{}: round {round}", driver.name);
            }
        });
    });
}
