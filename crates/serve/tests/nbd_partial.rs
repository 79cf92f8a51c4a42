//! Clients that did not ask how large a volume's blocks are: they may read and write any bytes, whatever others do to
//! the same blocks.

mod programs;

use plimsoll_engine::EngineConfig;
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig, VolumeInfo};
use plimsoll_executor::{Executor, ExecutorConfig, Rules};
use plimsoll_protocols::nbd::{Command, CommandFlags, Errno, ExportInfo, Negotiated};
use plimsoll_serve::nbd::client::ClientOptions;
use plimsoll_serve::nbd::{Client, NbdConnection, export_info};
use plimsoll_testkit::{BLOCK, Random, Served, answered, file_config, memory, profile, session};
use programs::{is_installed, run};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

const VOLUME_BYTES: u64 = 256 << 10;

/// A volume `v` in compressed memory, with blocks of 4 KiB; service threads read and write it, so that requests
/// overlap.
fn compressed() -> (Served, VolumeInfo) {
    let executor = ExecutorConfig { threads: 3, rules: Rules::Adaptive, requests_max: 65_536, seed: 1 };
    let executor = Some(Arc::new(Executor::start(executor).unwrap()));
    let backing = Backing::CompressedMemory { size_bytes: VOLUME_BYTES, level: 1 };
    let (name, pool) = ("v".into(), "pool".into());
    let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
    let info = volume.info().clone();
    assert_eq!(info.block_bytes, 4096);
    (Served::new(EngineConfig { executor, ..EngineConfig::new(profile(), "noop") }, vec![volume]), info)
}

/// A client that did not ask.
fn unasked(served: &Served, volume: &VolumeInfo, depth_max: u32, structured_replies: bool) -> Client {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let export = ExportInfo { minimum_block_bytes: 1, ..export_info(volume, false) };
    let negotiated = Negotiated { export: export.clone(), structured_replies, block_size_known: false };
    let connection = Box::new(NbdConnection::new(theirs.into(), negotiated));
    served.engine.attach(&volume.name, session("unasked"), connection).unwrap();
    Client::agreed(ours.into(), export, &ClientOptions { depth_max, structured_replies, ..ClientOptions::default() })
}

/// One client does what comes to random bytes, and compares with what it knows.
fn check_against_an_oracle(served: &Served, volume: &VolumeInfo, rounds: u32) {
    let (mut random, mut known) = (Random(u64::from(rounds)), vec![0; volume.size_bytes as usize]);
    let mut clients = [unasked(served, volume, 1, true), unasked(served, volume, 1, false)];
    clients[0].write(0, &known, false).unwrap();
    for round in 0..rounds {
        let client = &mut clients[round as usize % 2];
        let start = random.below(volume.size_bytes - 1);
        let length =
            1 + random.below(if round % 5 == 0 { 40_000 } else { 3 * BLOCK }).min(volume.size_bytes - start - 1);
        let range = start as usize..(start + length) as usize;
        let flags = if random.below(4) == 0 { CommandFlags::FUA } else { CommandFlags::NONE };
        match random.below(8) {
            0..3 => {
                let byte = 1 + random.below(255) as u8;
                known[range.clone()].fill(byte);
                client.write(start, &known[range], flags == CommandFlags::FUA).unwrap();
            }
            3 => {
                known[range].fill(0);
                client.write_zeroes(start, length as u32, flags).unwrap();
            }
            4 => {
                // What was trimmed reads as before or as zeroes, and nothing else changes.
                client.trim(start, length as u32).unwrap();
                let mut read = vec![1; range.len()];
                client.read(start, &mut read).unwrap();
                let is_either = |(read, before): (&u8, &u8)| *read == 0 || read == before;
                assert!(read.iter().zip(&known[range.clone()]).all(is_either), "round {round}");
                known[range].copy_from_slice(&read);
            }
            _ => {
                let mut read = vec![1; range.len()];
                client.read(start, &mut read).unwrap();
                assert!(read == known[range], "round {round}: {length} bytes at {start}");
            }
        }
    }
    let mut read = vec![1; known.len()];
    clients[1].read(0, &mut read).unwrap();
    assert!(read == known);
}

/// Planted breaks that were seen red: the bytes before a write in its first block are not put back; a read's reply
/// begins at the block.
/// Promise: nbd-any-bytes.
#[test]
fn any_bytes_are_read_written_zeroed_and_trimmed() {
    let (served, volume) = compressed();
    check_against_an_oracle(&served, &volume, 1_500);
    served.wait_until_all_have_gone();
    let of_memory = memory("m", VOLUME_BYTES, 1 << 30);
    let info = of_memory.info().clone();
    let served = Served::plain(vec![of_memory]);
    check_against_an_oracle(&served, &info, 600);
    served.wait_until_all_have_gone();
}

/// Clients write neighbouring sectors of the same blocks, all at once, and one writes and zeroes whole blocks between:
/// each finds what it wrote last. Planted breaks that were seen red: no request claims blocks; a change that comes
/// later does not wait.
/// Promise: nbd-any-bytes.
#[test]
fn what_is_written_beside_a_part_of_a_block_is_not_undone() {
    const WRITERS: u64 = 4;
    const DEPTH: u64 = 8;
    const SECTOR: u64 = 512;
    let (served, volume) = compressed();
    let whole = served.connect("v", 1, true);
    assert_eq!(whole.export().minimum_block_bytes, 4096, "the client that asks is told");
    let mut clients: Vec<Client> = (0..WRITERS).map(|_| unasked(&served, &volume, DEPTH as u32, true)).collect();
    // Each has two of a block's eight sectors; of the last block, the whole-block writer's bytes are left to one of
    // them.
    let sector = |writer: u64, tag: u64| (tag / 2) * BLOCK + (2 * writer + tag % 2) * SECTOR;
    for round in 1..=150u8 {
        for (writer, client) in (0..).zip(&mut clients) {
            for tag in 0..DEPTH {
                let flags = if tag % 3 == 0 { CommandFlags::FUA } else { CommandFlags::NONE };
                let bytes = [round ^ (writer as u8) << 6; SECTOR as usize];
                client.submit_write(tag as u32, flags, sector(writer, tag), &bytes).unwrap();
            }
            client.send_submitted().unwrap();
        }
        for client in &mut clients {
            for _ in 0..DEPTH {
                assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()));
            }
        }
        for (writer, client) in (0..).zip(&mut clients) {
            for tag in 0..DEPTH {
                let mut read = [0; SECTOR as usize];
                client.read(sector(writer, tag), &mut read).unwrap();
                assert!(read == [round ^ (writer as u8) << 6; SECTOR as usize], "round {round}, {writer}, {tag}");
            }
        }
    }
    drop(clients);
    whole.disconnect().unwrap();
    served.wait_until_all_have_gone();
}

/// A whole block is written while a part of it is: afterwards it is the one's and the other's, and never what was there
/// before. Planted break that was seen red: a change that comes later does not wait.
/// Promise: nbd-any-bytes.
#[test]
fn a_whole_block_written_beside_a_part_of_it_stays_written() {
    let (served, volume) = compressed();
    let mut part = unasked(&served, &volume, 1, true);
    let mut whole = served.connect("v", 1, true);
    for round in 1..=250u8 {
        part.submit_write(0, CommandFlags::NONE, 1000, &[round; 100]).unwrap();
        whole.submit_write(0, CommandFlags::NONE, 0, &[255 - round; 4096]).unwrap();
        part.send_submitted().unwrap();
        whole.send_submitted().unwrap();
        assert_eq!(part.receive(|_, _, _| {}).unwrap().result, Ok(()));
        assert_eq!(whole.receive(|_, _, _| {}).unwrap().result, Ok(()));
        let mut read = [0; 4096];
        whole.read(0, &mut read).unwrap();
        assert!(read[..1000].iter().chain(&read[1100..]).all(|byte| *byte == 255 - round), "round {round}");
        let of_part = &read[1000..1100];
        assert!(of_part == [round; 100] || of_part == [255 - round; 100], "round {round}");
    }
}

/// Promise: nbd-any-bytes.
#[test]
fn a_client_that_goes_in_the_middle_leaves_no_claim() {
    let (served, volume) = compressed();
    let mut other = unasked(&served, &volume, 1, true);
    for round in 0..40u8 {
        let mut gone = unasked(&served, &volume, 16, true);
        for tag in 0..16 {
            gone.submit_write(tag, CommandFlags::NONE, 100, &[round; 6000]).unwrap();
        }
        gone.send_submitted().unwrap();
        other.write(4000, &[round; 200], true).unwrap();
        drop(gone);
        other.write_zeroes(50, 5000, CommandFlags::NONE).unwrap();
    }
    other.disconnect().unwrap();
    served.wait_until_all_have_gone();
}

/// Promise: nbd-any-bytes.
#[test]
fn what_cannot_be_done_is_answered() {
    let (served, volume) = compressed();
    let mut client = unasked(&served, &volume, 1, true);
    let end = volume.size_bytes;
    assert_eq!(answered(client.write(end - 100, &[1; 200], false)), Err(Errno::NoSpace));
    assert_eq!(answered(client.read(end - 1, &mut [0; 2])), Err(Errno::InvalidArgument));
    client.submit(0, Command::Read, CommandFlags::NONE, 1, 0).unwrap();
    assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Err(Errno::InvalidArgument));
    // A client that asked keeps to whole blocks.
    let mut asked = served.connect("v", 1, true);
    assert_eq!(answered(asked.write(512, &[1; 512], false)), Err(Errno::InvalidArgument));
    client.disconnect().unwrap();
    asked.disconnect().unwrap();
    served.wait_until_all_have_gone();
    let large = memory("large", 64 << 20, 1 << 30);
    let info = large.info().clone();
    served.add(large);
    let mut client = unasked(&served, &info, 1, true);
    let data = vec![7; 32 << 20];
    assert_eq!(answered(client.write(100, &data, false)), Err(Errno::InvalidArgument), "no buffer is so large");
    client.write(512, &data, false).unwrap();
    client.write_zeroes(100, 48 << 20, CommandFlags::NONE).unwrap();
    let mut read = [1; 1000];
    client.read((32 << 20) + 1, &mut read).unwrap();
    assert_eq!(read, [0; 1000]);
}

/// A loop device with sectors of 4 KiB, detached at the end.
struct LargeSectors(String);

impl LargeSectors {
    fn over(path: &Path) -> Option<LargeSectors> {
        if !is_installed("losetup") {
            return None;
        }
        let output = run("losetup", &["--find", "--show", "--sector-size", "4096", path.to_str().unwrap()]);
        if !output.status.success() {
            println!("not run: no loop device: {}", String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        Some(LargeSectors(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for LargeSectors {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

/// Promise: nbd-any-bytes.
#[test]
fn a_disk_of_large_sectors_takes_any_bytes() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("backing");
    std::fs::File::create(&path).unwrap().set_len(VOLUME_BYTES).unwrap();
    let Some(device) = LargeSectors::over(&path) else { return };
    let volume = Volume::open(file_config("disk", Path::new(&device.0), None)).unwrap();
    let info = volume.info().clone();
    assert_eq!(info.block_bytes, 4096);
    let served = Served::plain(vec![volume]);
    check_against_an_oracle(&served, &info, 400);
    served.wait_until_all_have_gone();
    served.engine.shutdown(plimsoll_testkit::PATIENCE).unwrap();
}
