//! What a disk may hold after a crash: of each block a version between the last that was flushed and the last that was
//! written.

use crate::support::{Daemon, Random};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Address;
use plimsoll_serve::nbd::client::{Client, ClientOptions};
use rustix::process::Signal;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Kills of an ordinary test, and of one of `make soak` unless `SOAK_KILLS` says another number.
pub const KILLS: u32 = 4;
const KILLS_OF_SOAK: u32 = 200;

pub fn kills_of_soak() -> u32 {
    std::env::var("SOAK_KILLS").map_or(KILLS_OF_SOAK, |kills| kills.parse().expect("SOAK_KILLS is a number"))
}

/// Loads each of the parts from a connection of its own until that many requests were acknowledged, and kills the
/// daemon then. Answers how many were.
pub fn load_until_killed(
    daemon: Daemon<'_>,
    address: &Address,
    parts: &mut [Blocks],
    requests: u64,
    random: &mut Random,
) -> u64 {
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for part in parts {
            let (acknowledged, seed) = (&acknowledged, random.below(1 << 30) + 1);
            scope.spawn(move || part.load(address, &mut Random(seed), acknowledged));
        }
        while acknowledged.load(Ordering::Relaxed) < requests {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        daemon.signal(Signal::KILL);
    });
    let (status, _) = daemon.wait();
    assert!(!status.success());
    acknowledged.into_inner()
}

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Requests of one client at once.
const DEPTH: u32 = 16;

/// A version of a block: its number, or zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    number: u64,
    is_zero: bool,
}

impl Version {
    fn bytes(self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        if !self.is_zero {
            let words = bytes.chunks_exact_mut(8).enumerate();
            words.for_each(|(at, word)| {
                word.copy_from_slice(&(self.number << 32 ^ block << 9 ^ at as u64).to_le_bytes());
            });
        }
        bytes
    }
}

/// A block: what it may hold, oldest first.
#[derive(Clone, Debug)]
struct Known {
    versions: Vec<Version>,
    /// Of them, the number of the last that was acknowledged.
    acknowledged: u64,
    is_under_way: bool,
}

/// Blocks that one client has to itself.
pub struct Blocks {
    first: u64,
    known: Vec<Known>,
    next_number: u64,
    /// An acknowledgement says that a write is durable.
    is_strict: bool,
}

enum UnderWay {
    Write {
        block: usize,
        number: u64,
        is_forced: bool,
    },
    Read {
        block: usize,
        bytes: Vec<u8>,
    },
    /// What was acknowledged before.
    Flush(Vec<u64>),
}

impl Blocks {
    /// Blocks that hold zeroes.
    pub fn new(blocks: Range<u64>, is_strict: bool) -> Blocks {
        let zero = Version { number: 0, is_zero: true };
        let known = Known { versions: vec![zero], acknowledged: 0, is_under_way: false };
        let count = (blocks.end - blocks.start) as usize;
        Blocks { first: blocks.start, known: vec![known; count], next_number: 1, is_strict }
    }

    /// Writes, reads and flushes volume `db` until the connection breaks, and counts what was acknowledged.
    fn load(&mut self, address: &Address, random: &mut Random, acknowledged: &AtomicU64) {
        let options = ClientOptions { export_name: "db".into(), depth_max: DEPTH, ..ClientOptions::default() };
        let Ok(mut client) = Client::connect(address, &options) else { return };
        let mut under_way: Vec<Option<UnderWay>> = (0..DEPTH).map(|_| None).collect();
        loop {
            let free = under_way.iter().position(Option::is_none);
            let has_failed = match free {
                Some(tag) => self.submit(&mut client, tag, &mut under_way, random).is_none(),
                None => {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    self.receive(&mut client, &mut under_way).is_none()
                }
            };
            if has_failed {
                self.known.iter_mut().for_each(|known| known.is_under_way = false);
                return;
            }
        }
    }

    fn submit(
        &mut self,
        client: &mut Client,
        tag: usize,
        under_way: &mut [Option<UnderWay>],
        random: &mut Random,
    ) -> Option<()> {
        let number = tag as u32;
        if random.below(40) == 0 {
            client.submit(number, Command::Flush, CommandFlags::NONE, 0, 0).ok()?;
            under_way[tag] = Some(UnderWay::Flush(self.known.iter().map(|known| known.acknowledged).collect()));
            return Some(());
        }
        // Most go to a few blocks, so that some are in the cache and are written again.
        let count = self.known.len() as u64;
        let block = if random.below(3) == 0 { random.below(count) } else { random.below(count / 8) } as usize;
        let known = &mut self.known[block];
        if known.is_under_way {
            return Some(());
        }
        known.is_under_way = true;
        let offset = (self.first + block as u64) * BLOCK_BYTES as u64;
        if random.below(3) == 0 {
            client.submit(number, Command::Read, CommandFlags::NONE, offset, BLOCK_BYTES as u32).ok()?;
            under_way[tag] = Some(UnderWay::Read { block, bytes: vec![0xee; BLOCK_BYTES] });
            return Some(());
        }
        let version = Version { number: self.next_number, is_zero: random.below(12) == 0 };
        self.next_number += 1;
        known.versions.push(version);
        let is_forced = random.below(16) == 0;
        let flags = if is_forced { CommandFlags::FUA } else { CommandFlags::NONE };
        if version.is_zero {
            client.submit(number, Command::WriteZeroes, flags, offset, BLOCK_BYTES as u32).ok()?;
        } else {
            let bytes = version.bytes(self.first + block as u64);
            client.submit_write(number, flags, offset, &bytes).ok()?;
        }
        under_way[tag] = Some(UnderWay::Write { block, number: version.number, is_forced });
        Some(())
    }

    fn receive(&mut self, client: &mut Client, under_way: &mut [Option<UnderWay>]) -> Option<()> {
        let completed = client.receive(|tag, at, data| {
            if let Some(UnderWay::Read { bytes, .. }) = &mut under_way[tag as usize] {
                bytes[at as usize..][..data.len()].copy_from_slice(data);
            }
        });
        let completed = completed.ok()?;
        assert_eq!(completed.result, Ok(()), "as long as the daemon lives, nothing fails");
        match under_way[completed.tag as usize].take()? {
            UnderWay::Write { block, number, is_forced } => {
                let known = &mut self.known[block];
                (known.acknowledged, known.is_under_way) = (number, false);
                if is_forced || self.is_strict {
                    known.versions.retain(|version| version.number >= number);
                }
            }
            UnderWay::Read { block, bytes } => {
                let known = &mut self.known[block];
                known.is_under_way = false;
                let newest = known.versions[known.versions.len() - 1];
                assert!(
                    bytes == newest.bytes(self.first + block as u64),
                    "a read of block {block} brought another version"
                );
            }
            UnderWay::Flush(durable) => {
                for (known, number) in self.known.iter_mut().zip(durable) {
                    known.versions.retain(|version| version.number >= number);
                }
            }
        }
        Some(())
    }

    /// Compares with what was found after a crash; that is what they hold from now on.
    pub fn verify(&mut self, client: &mut Client) {
        let mut bytes = vec![0; BLOCK_BYTES];
        for (at, known) in self.known.iter_mut().enumerate() {
            let block = self.first + at as u64;
            client.read(block * BLOCK_BYTES as u64, &mut bytes).unwrap();
            let found = known.versions.iter().rev().find(|version| version.bytes(block) == bytes);
            let found = *found.unwrap_or_else(|| {
                let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                panic!("block {block} holds {word:#x}, allowed {:?}", known.versions)
            });
            (known.versions, known.acknowledged) = (vec![found], found.number);
        }
    }

    /// Like [`verify`](Self::verify), where reads may fail: answers how many did.
    pub fn verify_what_is_answered(&mut self, client: &mut Client) -> usize {
        let (mut bytes, mut failed) = (vec![0; BLOCK_BYTES], 0);
        for (at, known) in self.known.iter().enumerate() {
            let block = self.first + at as u64;
            match client.read(block * BLOCK_BYTES as u64, &mut bytes) {
                Ok(()) => {
                    let is_known = known.versions.iter().any(|version| version.bytes(block) == bytes);
                    assert!(is_known, "block {block} was served as what it never was, or is no more");
                }
                Err(_) => failed += 1,
            }
        }
        failed
    }
}
