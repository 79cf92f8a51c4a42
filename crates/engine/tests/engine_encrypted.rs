//! An encrypted volume: what lies in its file, which threads encrypt and decrypt it, and how requests come to them.

use aes::Aes256;
use aes::cipher::KeyInit;
use plimsoll_engine::backend::Volume;
use plimsoll_engine::cache::{self, FoundCache};
use plimsoll_engine::{EngineConfig, ServiceRequest};
use plimsoll_executor::{Executor, ExecutorConfig, Figures, Policy, Queue, Rules};
use plimsoll_protocols::nbd::CommandFlags;
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{PATIENCE, Random, Served, cache_settings, encrypted_config, file_config, key_bytes, profile};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xts_mode::{Xts128, get_tweak_default};

const SECTOR: usize = 512;
const VOLUME_BYTES: u64 = 8 << 20;
const DEPTH: u32 = 16;

struct Site {
    served: Served,
    executor: Option<Arc<Executor<ServiceRequest>>>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Site {
    fn new(executor: Option<ExecutorConfig>) -> Site {
        // Not in /tmp, which may be a tmpfs without O_DIRECT.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("v.img");
        let volume = Volume::open(encrypted_config("v", &path, VOLUME_BYTES)).unwrap();
        let executor = executor.map(|config| Arc::new(Executor::start(config).unwrap()));
        let engine = EngineConfig { executor: executor.clone(), ..EngineConfig::new(profile(), "noop") };
        Site { served: Served::new(engine, vec![volume]), executor, path, _directory: directory }
    }

    fn ruled(policy: Policy) -> Site {
        Site::new(Some(ExecutorConfig { threads: 1, rules: Rules::Fixed(policy), requests_max: 65_536, seed: 1 }))
    }

    fn figures(&self) -> Figures {
        self.executor.as_ref().expect("it has one").figures()
    }

    /// Waits until the executor has put all answered work aside.
    fn settled(&self) -> Figures {
        self.served.wait_until("the end of all work", |_| self.figures().alive == 0);
        self.figures()
    }
}

/// What another implementation with the key reads in the file.
fn decrypted(path: &Path, range: std::ops::Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, range.start).unwrap();
    let key = key_bytes();
    let cipher = Xts128::new(Aes256::new_from_slice(&key[..32]).unwrap(), Aes256::new_from_slice(&key[32..]).unwrap());
    cipher.decrypt_area(&mut bytes, SECTOR, u128::from(range.start / SECTOR as u64), get_tweak_default);
    bytes
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length).map(|_| random.below(256) as u8).collect()
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Planted breaks: what is written is not encrypted; a piece's sectors are numbered from its request's start.
/// Promise: encrypted-format.
#[test]
fn what_lies_in_the_file_is_plain64_and_nothing_of_what_was_written() {
    for executor in [None, Some(2), Some(65_536)] {
        let config = |requests_max| ExecutorConfig { threads: 2, rules: Rules::Adaptive, requests_max, seed: 1 };
        let site = Site::new(executor.map(config));
        let mut client = site.served.connect("v", DEPTH, true);
        // A request of three pieces, not at a page, and one sector.
        let (large, small) = (noise(1, 600 << 10), noise(2, SECTOR));
        client.write(4096 + 512, &large, false).unwrap();
        client.write(4 << 20, &small, true).unwrap();
        client.flush().unwrap();
        let end = 4096 + 512 + large.len() as u64;
        assert!(decrypted(&site.path, 4096 + 512..end) == large);
        assert!(decrypted(&site.path, 4 << 20..(4 << 20) + 512) == small);
        let stored = std::fs::read(&site.path).unwrap();
        let plain: BTreeSet<&[u8]> = large.chunks(16).chain(small.chunks(16)).collect();
        assert!(stored.chunks(16).all(|block| !plain.contains(block)), "a block lies there as it was written");
        assert!(is_zero(&stored[..4608]) && is_zero(&stored[end as usize..4 << 20]), "nothing else was written");
        let mut read = vec![1; 1 << 20];
        client.read(0, &mut read).unwrap();
        assert!(is_zero(&read[..4608]), "what was never written");
        assert!(read[4608..end as usize] == large && is_zero(&read[end as usize..]));
        let mut sector = [0; SECTOR];
        client.read(4 << 20, &mut sector).unwrap();
        assert!(sector[..] == small);
        client.disconnect().unwrap();
        site.served.wait_until_all_have_gone();
        site.served.engine.shutdown(PATIENCE).unwrap();
    }
}

/// Planted breaks: a trim of part of a page does nothing; zeroes that are written are left to the file system.
/// Promise: encrypted-holes.
#[test]
fn what_is_trimmed_is_a_hole_and_zeroes_that_are_written_are_not_to_be_told_from_data() {
    let site = Site::ruled(Policy::COMBO);
    let mut client = site.served.connect("v", DEPTH, true);
    let block_bytes = u64::from(client.export().minimum_block_bytes);
    let data = noise(3, 4 << 20);
    client.write(0, &data, true).unwrap();
    // More than a scratch buffer, and more than a piece.
    let zeroed = block_bytes..block_bytes + (3 << 19);
    client.write_zeroes(zeroed.start, (zeroed.end - zeroed.start) as u32, CommandFlags::NONE).unwrap();
    let trimmed = (3 << 20) + block_bytes..(3 << 20) + 65536;
    client.trim(trimmed.start, (trimmed.end - trimmed.start) as u32).unwrap();
    client.flush().unwrap();
    let mut expected = data.clone();
    expected[zeroed.start as usize..zeroed.end as usize].fill(0);
    expected[trimmed.start as usize..trimmed.end as usize].fill(0);
    let mut read = vec![0; expected.len()];
    client.read(0, &mut read).unwrap();
    assert!(read == expected);
    let stored = std::fs::read(&site.path).unwrap();
    assert!(is_zero(&stored[trimmed.start as usize..trimmed.end as usize]), "it was given back");
    let is_noise = |sector: &[u8]| sector.chunks(16).all(|block| !is_zero(block));
    assert!(stored[zeroed.start as usize..zeroed.end as usize].chunks(SECTOR).all(is_noise));
    // A reader without us finds the zeroes, too.
    assert!(is_zero(&decrypted(&site.path, zeroed)));
    client.disconnect().unwrap();
    site.served.engine.shutdown(PATIENCE).unwrap();
}

fn write_and_read(client: &mut Client, requests: u32) {
    for number in 0..requests {
        let data = noise(u64::from(number) + 1, 4096);
        client.write(u64::from(number) * 4096, &data, false).unwrap();
        let mut read = vec![0; 4096];
        client.read(u64::from(number) * 4096, &mut read).unwrap();
        assert!(read == data);
    }
}

/// Planted breaks: a read's work is handed in as new; a write's as resumed.
/// Promise: encrypted-resumed.
#[test]
fn a_read_comes_back_from_the_disk_as_resumed_and_waits_where_the_rules_say() {
    const REQUESTS: u32 = 50;
    let served_of = |figures: &Figures| Queue::ALL.map(|queue| figures.queues[queue.index()].served);
    // New writes are high in both; what was resumed is low in the one and high in the other.
    for (policy, expected) in [(Policy::BASELINE, [50, 50, 0]), (Policy::SORD, [100, 0, 0])] {
        let site = Site::ruled(policy);
        let mut client = site.served.connect("v", 1, true);
        write_and_read(&mut client, REQUESTS);
        let figures = site.settled();
        let thread = figures.threads[0];
        assert_eq!((thread.done, thread.resumed), (2 * u64::from(REQUESTS), u64::from(REQUESTS)), "{figures:?}");
        // One of 4 KiB has no checkpoint.
        assert_eq!(served_of(&figures), expected, "{figures:?}");
        client.disconnect().unwrap();
        site.served.engine.shutdown(PATIENCE).unwrap();
    }
}

/// What is written in several turns of a buffer was at the disk in between.
/// Promise: encrypted-resumed.
#[test]
fn zeroes_of_several_buffers_are_resumed_after_each() {
    let site = Site::ruled(Policy::SORD);
    let mut client = site.served.connect("v", 1, true);
    client.write_zeroes(0, 1 << 20, CommandFlags::NONE).unwrap();
    let thread = site.settled().threads[0];
    assert_eq!((thread.done, thread.resumed), (4, 3));
    client.disconnect().unwrap();
    site.served.engine.shutdown(PATIENCE).unwrap();
}

/// More pieces than there are buffers, of a connection that stays and of one that goes. Planted break: no piece is
/// called from the line.
/// Promise: encrypted-oracle.
#[test]
fn a_piece_without_a_buffer_waits_for_one_and_a_client_that_goes_away_disturbs_no_other() {
    let site = Site::ruled(Policy::COMBO);
    let data = noise(9, 1 << 20);
    for round in 0..3 {
        let mut gone = site.served.connect("v", DEPTH, true);
        let mut client = site.served.connect("v", DEPTH, true);
        for tag in 0..DEPTH {
            gone.submit_write(tag, CommandFlags::NONE, u64::from(tag % 4) << 20, &data).unwrap();
            client.submit_write(tag, CommandFlags::NONE, u64::from(4 + tag % 4) << 20, &data).unwrap();
        }
        gone.send_submitted().unwrap();
        client.send_submitted().unwrap();
        drop(gone);
        while client.under_way_count() > 0 {
            assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()), "round {round}");
        }
        let mut read = vec![0; 1 << 20];
        client.read(5 << 20, &mut read).unwrap();
        assert!(read == data);
        client.disconnect().unwrap();
    }
    site.served.wait_until_all_have_gone();
    site.served.engine.shutdown(PATIENCE).unwrap();
}

/// Promise: encrypted-no-cache.
#[test]
fn an_encrypted_volume_has_no_cache() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [slow, fast] = ["slow", "fast"].map(|name| directory.path().join(name));
    let volume = Volume::open(encrypted_config("v", &slow, VOLUME_BYTES)).unwrap();
    let settings = cache_settings(fast.clone());
    let expected = "volume v is encrypted and cannot have a cache: a cache is not encrypted";
    let refused = [
        cache::make(&settings, volume.config(), VOLUME_BYTES, true).err(),
        FoundCache::find(settings.clone(), &volume).err(),
        FoundCache::find_or_make(settings.clone(), volume.config(), VOLUME_BYTES, true).err(),
    ];
    assert_eq!(refused.map(|error| error.expect("it is refused").to_string()), [expected; 3]);
    assert!(!fast.exists(), "nothing was made");
    let plain = Volume::open(file_config("w", &directory.path().join("plain"), Some(VOLUME_BYTES))).unwrap();
    FoundCache::find_or_make(settings, plain.config(), VOLUME_BYTES, true).unwrap();
}
