//! Power failures of a volume that is served over NBD: the engine, its cache and its encryption as they are, on disks
//! that lose what was not flushed. After each the volume is started again, and every sector is compared with what was
//! promised.
//!
//! `POWER_SEED=N` runs one seed again; `POWER_MINUTES` says how long the search of `make soak` goes on.

mod power_support;

use plimsoll_cache::policies;
use plimsoll_cache::store::Semantics;
use plimsoll_core::Span;
use plimsoll_engine::EngineConfig;
use plimsoll_engine::backend::{Volume, VolumeConfig};
use plimsoll_engine::cache::{CacheSettings, FoundCache};
use plimsoll_engine::notes::Notes;
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{PATIENCE, Random, Served, cache_settings, encrypted_config, file_config, monotonic_ns};
use power_support::disks::{Disks, NAMES, SECTOR};
use power_support::oracle::Oracle;
use rustix::mount::UnmountFlags;
use std::ops::Range;
use std::path::Path;

const VOLUME_BYTES: usize = 1 << 20;
/// Some 110 units for 256 blocks.
const CACHE_BYTES: usize = 512 << 10;
const SECTORS: usize = VOLUME_BYTES / SECTOR;
/// Sectors of most requests, and how many requests go to them.
const HOT_SECTORS: usize = 256;
const REQUEST_SECTORS_MAX: u64 = 48;
const DEPTH: u32 = 16;
/// Power failures in a row of one seed.
const FAILURES: u32 = 4;
const REQUESTS_MAX: u64 = 400;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;
/// How long an engine may take to tell that its disks are gone.
const PATIENCE_FOR_ERRORS: Span = Span::from_secs(20);
const SEEDS_FRESH: u64 = 3;

/// What a seed sets up.
struct Setup {
    config: VolumeConfig,
    cache: Option<CacheSettings>,
}

impl Setup {
    fn new(mount: &Path, beside: &Path, random: &mut Random) -> Setup {
        let slow = mount.join(NAMES[0]);
        if random.below(4) == 0 {
            // Its key and its notes are no part of the machine that loses its power.
            let mut config = encrypted_config("v", &beside.join("key"), VOLUME_BYTES as u64);
            if let plimsoll_engine::backend::Backing::File { path, creates, .. } = &mut config.backing {
                (*path, *creates) = (slow, false);
            }
            return Setup { config, cache: None };
        }
        let usual = cache_settings(mount.join(NAMES[1]));
        let policy = &policies()[random.below(policies().len() as u64) as usize];
        let semantics = if random.below(2) == 0 { Semantics::Strict } else { Semantics::WriteCache };
        let (notes, promotes_reads) = (Some(Notes::new(beside.join("notes"))), random.below(4) > 0);
        let size_bytes = Some(CACHE_BYTES as u64);
        let cache = CacheSettings { policy, semantics, promotes_reads, notes, size_bytes, ..usual };
        Setup { config: file_config("v", &slow, None), cache: Some(cache) }
    }

    fn is_strict(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.semantics == Semantics::Strict)
    }

    fn start(&self, makes: bool) -> Served {
        let volume = Volume::open(self.config.clone()).unwrap();
        let found = self
            .cache
            .as_ref()
            .map(|cache| FoundCache::find_or_make(cache.clone(), &self.config, VOLUME_BYTES as u64, makes).unwrap());
        let served = Served::new(EngineConfig::new(plimsoll_testkit::profile(), "noop"), vec![volume]);
        if let Some(found) = found {
            served.engine.attach_cache("v", found).unwrap();
        }
        served
    }
}

enum UnderWay {
    Change { number: usize, is_forced: bool },
    Flush { sent: u64 },
    Read { first: usize, sent: u64, bytes: Vec<u8> },
}

/// A client that asks for anything, anywhere, also for what it has under way.
struct Load<'l> {
    client: Client,
    oracle: &'l mut Oracle,
    under_way: Vec<Option<UnderWay>>,
    is_strict: bool,
}

impl Load<'_> {
    fn sectors(random: &mut Random) -> Range<usize> {
        let range = if random.below(4) > 0 { HOT_SECTORS } else { SECTORS };
        let (mut first, mut count) =
            (random.below(range as u64) as usize, random.below(REQUEST_SECTORS_MAX) as usize + 1);
        if random.below(3) > 0 {
            // Whole blocks, which come into the cache.
            (first, count) = (first / 8 * 8, count.next_multiple_of(8));
        }
        first..(first + count).min(SECTORS)
    }

    fn send(&mut self, random: &mut Random) {
        let Some(tag) = self.under_way.iter().position(Option::is_none) else { return self.receive() };
        let is_forced = random.below(16) == 0;
        let flags = if is_forced { CommandFlags::FUA } else { CommandFlags::NONE };
        let sectors = Load::sectors(random);
        let (offset, length) = ((sectors.start * SECTOR) as u64, (sectors.len() * SECTOR) as u32);
        let number = tag as u32;
        let (submitted, under_way) = match random.below(20) {
            0 => {
                let sent = self.oracle.moment();
                let submitted = self.client.submit(number, Command::Flush, CommandFlags::NONE, 0, 0);
                (submitted, UnderWay::Flush { sent })
            }
            1..=4 => {
                let sent = self.oracle.moment();
                let submitted = self.client.submit(number, Command::Read, CommandFlags::NONE, offset, length);
                (submitted, UnderWay::Read { first: sectors.start, sent, bytes: vec![0xee; length as usize] })
            }
            kind @ 5..=7 => {
                let command = if kind == 5 { Command::Trim } else { Command::WriteZeroes };
                let change = self.oracle.zero(sectors, command == Command::Trim);
                let submitted = self.client.submit(number, command, flags, offset, length);
                (submitted, UnderWay::Change { number: change, is_forced })
            }
            _ => {
                let (change, bytes) = self.oracle.write(sectors);
                let submitted = self.client.submit_write(number, flags, offset, &bytes);
                (submitted, UnderWay::Change { number: change, is_forced })
            }
        };
        submitted.unwrap();
        self.under_way[tag] = Some(under_way);
    }

    /// Hears an answer. After the power failed, errors are among them.
    fn receive(&mut self) {
        let under_way = &mut self.under_way;
        let completed = self.client.receive(|tag, at, data| {
            if let Some(UnderWay::Read { bytes, .. }) = &mut under_way[tag as usize] {
                bytes[at as usize..][..data.len()].copy_from_slice(data);
            }
        });
        let completed = completed.unwrap();
        let answered = self.under_way[completed.tag as usize].take().expect("it was sent");
        if completed.result.is_err() {
            return;
        }
        match answered {
            UnderWay::Change { number, is_forced } => self.oracle.answered(number, is_forced || self.is_strict),
            UnderWay::Flush { sent } => {
                self.oracle.flushed(sent);
                if !self.under_way.iter().flatten().any(|other| matches!(other, UnderWay::Read { .. })) {
                    self.oracle.forget();
                }
            }
            UnderWay::Read { first, sent, bytes } => self.oracle.check_read(first, &bytes, sent).unwrap(),
        }
    }
}

/// Power failures in a row, each at a moment of its own.
fn run(seed: u64, mount: &Path, disks: &Disks) {
    let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let beside = tempfile::tempdir().unwrap();
    let setup = Setup::new(mount, beside.path(), random);
    // Shown if it fails.
    println!(
        "seed {seed}: {:?}",
        setup.cache.as_ref().map(|cache| (cache.policy.name, cache.semantics, cache.promotes_reads))
    );
    let mut oracle = Oracle::new(SECTORS);
    let mut served = setup.start(true);
    for _ in 0..FAILURES {
        let client = served.connect("v", DEPTH, true);
        let under_way = (0..DEPTH).map(|_| None).collect();
        let mut load = Load { client, oracle: &mut oracle, under_way, is_strict: setup.is_strict() };
        (0..random.below(REQUESTS_MAX) + 1).for_each(|_| load.send(random));
        load.client.send_submitted().unwrap();
        // Some of what is under way ends before.
        for _ in 0..random.below(u64::from(DEPTH)).min(load.client.under_way_count().into()) {
            load.receive();
        }
        disks.power_off();
        while load.client.under_way_count() > 0 {
            let is_answered = load.client.wait(PATIENCE_FOR_ERRORS).unwrap();
            assert!(is_answered, "nobody answers after the power failed: {:?}", served.engine.status());
            load.receive();
        }
        drop(load);
        // What an engine says without its disks is of no account.
        let _ = served.engine.shutdown(PATIENCE);
        drop(served);
        let loses = [random.below(4) > 0, random.below(4) > 0];
        disks.power_on(loses, random);
        served = setup.start(false);
        let mut client = served.connect("v", 1, true);
        let mut bytes = vec![0xee; VOLUME_BYTES];
        client.read(0, &mut bytes).unwrap();
        oracle.check_survivors(&bytes).unwrap();
    }
    served.engine.shutdown(PATIENCE).unwrap();
}

/// Runs each seed on disks of its own, and says which one failed. False if this machine cannot.
fn run_all(seeds: impl Iterator<Item = u64>) -> bool {
    for seed in seeds {
        let directory = tempfile::tempdir().unwrap();
        let disks = Disks::new([VOLUME_BYTES, CACHE_BYTES]);
        let Some(session) = disks.mount(directory.path()) else { return false };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, directory.path(), &disks)));
        // An engine that a failed run has left stands in the way of no other run.
        disks.power_off();
        if let Err(panic) = outcome {
            // Ends the connection, too: else a process that looks at all mounts waits for this process, and it for
            // itself.
            let _ = rustix::mount::unmount(directory.path(), UnmountFlags::FORCE | UnmountFlags::DETACH);
            println!(
                "seed {seed}; again: POWER_SEED={seed} cargo test -p plimsoll-engine --test power_failure -- --ignored what_was_promised_survives_power_failures"
            );
            std::panic::resume_unwind(panic);
        }
        // A program that looks at all mounts may have this one open for a moment: it is not waited for by the unmount,
        // but by the join.
        rustix::mount::unmount(directory.path(), UnmountFlags::DETACH).unwrap();
        session.join().unwrap();
    }
    true
}

fn seed_from_environment() -> Option<u64> {
    std::env::var("POWER_SEED").ok().map(|seed| seed.parse().expect("POWER_SEED is a number"))
}

/// Fixed seeds, and fresh ones. Outcome: every request is answered, and every sector is what was promised.
///
/// Planted break that was seen red (in 27 s of fresh seeds): a range of trims that fails before its first step hands
/// its blocks to itself.
#[test]
fn what_was_promised_survives_power_failures() {
    match seed_from_environment() {
        Some(seed) => run_all(seed..=seed),
        None => run_all(SEEDS) && run_all((0..SEEDS_FRESH).map(|more| monotonic_ns() + more)),
    };
}

#[test]
#[ignore = "make soak: for POWER_MINUTES"]
fn what_was_promised_survives_many_power_failures() {
    let minutes: u64 =
        std::env::var("POWER_MINUTES").map_or(2, |text| text.parse().expect("POWER_MINUTES is a number"));
    let begun = monotonic_ns();
    let mut seeds = 0;
    let goes_on = |_: &u64| monotonic_ns() - begun < minutes * 60_000_000_000;
    if run_all((0..).map(|more| begun.wrapping_add(more)).take_while(goes_on).inspect(|_| seeds += 1)) {
        println!("{seeds} seeds, {} power failures", seeds * FAILURES);
    }
}
