//! Whatever several clients do at once to a volume, it behaves like a plain vector of bytes.

mod engine_support;

use engine_support::{Random, Served, file_config, memory, profile};
use plimsoll_brick::backend::Volume;
use plimsoll_brick::engine::EngineConfig;
use plimsoll_brick::nbd::{Client, Command, CommandFlags};
use std::ops::Range;

const VOLUME_BYTES: u64 = 32 << 20;
const BLOCK_BYTES: u64 = 512;
const DEPTH: u32 = 24;
const CONNECTIONS: usize = 4;
const STEPS: usize = 3000;

/// What one tag of one client is doing.
struct UnderWay {
    command: Command,
    range: Range<usize>,
    /// What a read must bring, as it was when the read was submitted: nobody writes there meanwhile.
    got: Vec<u8>,
}

struct Tenant {
    client: Client,
    under_way: Vec<Option<UnderWay>>,
}

/// A range that no request under way changes, or reads if this one changes it.
fn free_range(random: &mut Random, tenants: &[Tenant], is_change: bool) -> Option<Range<usize>> {
    let blocks_max = match random.below(20) {
        0 => 8192,
        1..4 => 512,
        _ => 16,
    };
    let length = (1 + random.below(blocks_max)) * BLOCK_BYTES;
    let offset = random.below((VOLUME_BYTES - length) / BLOCK_BYTES + 1) * BLOCK_BYTES;
    let range = offset as usize..(offset + length) as usize;
    let mut others = tenants.iter().flat_map(|tenant| tenant.under_way.iter().flatten());
    let is_disturbed = others.any(|other| {
        let overlaps = range.start < other.range.end && other.range.start < range.end;
        overlaps && (is_change || other.command != Command::Read)
    });
    (!is_disturbed).then_some(range)
}

fn submit(random: &mut Random, tenants: &mut [Tenant], number: usize, oracle: &mut [u8]) {
    let Some(tag) = tenants[number].under_way.iter().position(Option::is_none) else {
        return receive(&mut tenants[number], oracle);
    };
    let command = match random.below(12) {
        0..5 => Command::Read,
        5..9 => Command::Write,
        9 => Command::Trim,
        10 => Command::WriteZeroes,
        _ => Command::Flush,
    };
    let range = match command {
        Command::Flush => Some(0..0),
        _ => free_range(random, tenants, command.is_write()),
    };
    let Some(range) = range else { return };
    let flags = if random.below(8) == 0 { CommandFlags::FUA } else { CommandFlags::NONE };
    let Tenant { client, under_way } = &mut tenants[number];
    let (offset, length) = (range.start as u64, range.len() as u32);
    if command == Command::Write {
        let mut byte = random.below(256) as u8;
        for target in &mut oracle[range.clone()] {
            byte = byte.wrapping_mul(31).wrapping_add(17);
            *target = byte;
        }
        client.submit_write(tag as u32, flags, offset, &oracle[range.clone()]).unwrap();
    } else {
        if command != Command::Read {
            oracle[range.clone()].fill(0);
        }
        client.submit(tag as u32, command, flags, offset, length).unwrap();
    }
    let got = if command == Command::Read { vec![0xEE; range.len()] } else { Vec::new() };
    under_way[tag] = Some(UnderWay { command, range, got });
}

fn receive(tenant: &mut Tenant, oracle: &[u8]) {
    let Tenant { client, under_way } = tenant;
    let completed = client.receive(|tag, at, bytes| {
        let read = under_way[tag as usize].as_mut().expect("data for a read that is under way");
        read.got[at as usize..][..bytes.len()].copy_from_slice(bytes);
    });
    let completed = completed.unwrap();
    assert_eq!(completed.result, Ok(()));
    let UnderWay { command, range, got } = under_way[completed.tag as usize].take().expect("a reply to a request");
    if command == Command::Read {
        assert!(got == oracle[range.clone()], "a read of {range:?} brought something else");
    }
}

fn compare_with_a_vector(served: &Served, volume: &str, seed: u64) {
    let mut random = Random(seed);
    let mut oracle = vec![0u8; VOLUME_BYTES as usize];
    let tenant = |number| Tenant {
        client: served.connect(volume, DEPTH, number % 2 == 0),
        under_way: (0..DEPTH).map(|_| None).collect(),
    };
    let mut tenants: Vec<Tenant> = (0..CONNECTIONS).map(tenant).collect();
    for _ in 0..STEPS {
        let number = random.below(CONNECTIONS as u64) as usize;
        submit(&mut random, &mut tenants, number, &mut oracle);
        if random.below(6) == 0 && tenants[number].client.under_way_count() > 0 {
            receive(&mut tenants[number], &oracle);
        }
    }
    for tenant in &mut tenants {
        while tenant.client.under_way_count() > 0 {
            receive(tenant, &oracle);
        }
    }
    let mut all = vec![0u8; VOLUME_BYTES as usize];
    tenants[0].client.read(0, &mut all).unwrap();
    assert!(all == oracle);
    tenants.into_iter().for_each(|tenant| tenant.client.disconnect().unwrap());
    let status = served.wait_until_all_have_gone();
    assert_eq!(status.accounts[0].failed, 0);
}

#[test]
fn a_volume_in_memory_behaves_like_a_vector() {
    let served = Served::plain(vec![memory("v", VOLUME_BYTES, 1 << 30)]);
    compare_with_a_vector(&served, "v", 1);
    served.engine.shutdown(engine_support::PATIENCE).unwrap();
}

#[test]
fn a_volume_in_a_file_behaves_like_a_vector_under_every_scheduler() {
    // Not in /tmp, which may be a tmpfs without O_DIRECT.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (number, entry) in plimsoll_schedulers::registry().iter().enumerate() {
        let path = directory.path().join(entry.name);
        let volume = Volume::open(file_config("v", &path, Some(VOLUME_BYTES))).unwrap();
        let served = Served::new(EngineConfig::new(profile(), entry.name), vec![volume]);
        compare_with_a_vector(&served, "v", 2 + number as u64);
        served.engine.shutdown(engine_support::PATIENCE).unwrap();
    }
}

#[test]
fn an_emulated_device_behaves_like_a_vector() {
    let model = plimsoll_devices::build("nvme", 1).expect("the model is in the registry");
    let served = Served::new(EngineConfig::emulated(model, "zygaria"), vec![memory("v", VOLUME_BYTES, 0)]);
    compare_with_a_vector(&served, "v", 9);
    assert!(served.engine.status().unwrap().emulation.is_some());
    served.engine.shutdown(engine_support::PATIENCE).unwrap();
}
