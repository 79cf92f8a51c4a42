//! The promises on a disk: the 7200 rpm drive of the Zygaria paper, with its own queue that orders as it likes.

use plimsoll_core::*;
use plimsoll_schedulers::build;
use plimsoll_sim::block::{BlockHost, Served};
use plimsoll_sim::workload::{Places, Workload};

const DISK: &str = "hdd.deskstar-120";
const SECONDS: u64 = 60;
const GREEDY_TENANTS: usize = 4;

fn at(seconds: u64) -> Time {
    Time::ZERO + Span::from_secs(seconds)
}

/// Runs tenants with these allocations, each in a pool of its own, random reads over the whole disk.
fn run(scheduler: &str, allocations: &[Allocation], depth: u32, seed: u64) -> (DeviceProfile, Vec<Served>) {
    let device = plimsoll_devices::build(DISK, seed).unwrap();
    let profile = device.profile().clone();
    let mut tree = AccountTree::new(profile.clone());
    let sessions: Vec<_> = allocations
        .iter()
        .enumerate()
        .map(|(number, &allocation)| {
            let pool = tree.open(AccountId::ROOT, &number.to_string(), AccountKind::Pool, allocation).unwrap();
            tree.open(pool, "session", AccountKind::Session, Allocation::default()).unwrap()
        })
        .collect();
    let mut host = BlockHost::new(build(scheduler, &profile).unwrap(), device, &tree);
    for (number, session) in sessions.into_iter().enumerate() {
        host.add_tenant(Workload::greedy(session, 0..profile.capacity_bytes, depth), seed * 100 + number as u64);
    }
    (profile, host.run_until(at(SECONDS)))
}

fn per_second(served: &[Served], tenant: usize, time: impl Fn(&Served) -> Time) -> Vec<f64> {
    let mut counts = vec![0.0; SECONDS as usize + 1];
    for one in served.iter().filter(|one| one.tenant == tenant) {
        counts[time(one).as_secs_f64() as usize] += 1.0;
    }
    counts.truncate(SECONDS as usize);
    counts
}

fn reserve(percent: f64) -> Allocation {
    Allocation { reserve: Rate::DevicePercent(percent), ..Allocation::default() }
}

/// Promise: zygaria-disk-reserve.
#[test]
fn a_reserve_of_30_percent_holds_in_every_second_against_four_greedy_tenants() {
    for seed in 1..=10 {
        for greedy_depth in [16, 64] {
            let mut allocations = vec![reserve(30.0)];
            allocations.extend([Allocation::default(); GREEDY_TENANTS]);
            let (profile, served) = run("zygaria", &allocations, greedy_depth, seed);
            let promised = 0.3 * profile.worst_case_runs_per_second;
            for (second, rate) in per_second(&served, 0, |one| one.completed).into_iter().enumerate().skip(1) {
                assert!(rate >= 0.95 * promised, "seed {seed}: {rate} of {promised:.1} in second {second}");
            }
        }
    }
}

#[test]
fn without_a_scheduler_the_same_tenant_gets_its_share_of_the_queue_only() {
    let (profile, served) = run("noop", &[Allocation::default(); GREEDY_TENANTS + 1], 16, 1);
    let rate = served.iter().filter(|one| one.tenant == 0).count() as f64 / SECONDS as f64;
    assert!(rate < 0.25 * profile.worst_case_runs_per_second, "{rate}");
}

/// Promise: zygaria-disk-limit.
#[test]
fn a_limit_of_40_percent_holds_in_every_second() {
    for seed in 1..=10 {
        let limited = Allocation { limit: Some(Rate::DevicePercent(40.0)), ..Allocation::default() };
        let (profile, served) = run("zygaria", &[limited], 16, seed);
        let limit = 0.4 * profile.worst_case_runs_per_second;
        for (second, rate) in per_second(&served, 0, |one| one.dispatched).into_iter().enumerate() {
            assert!(rate <= 1.02 * limit, "seed {seed}: {rate} of {limit:.1} in second {second}");
        }
        let mean = served.len() as f64 / SECONDS as f64;
        assert!(mean >= 0.98 * limit, "and it is used: {mean} of {limit:.1}");
    }
}

/// Promise: zygaria-alone.
#[test]
fn one_tenant_alone_uses_the_device_as_noop_does() {
    for depth in [1, 4, 10, 32] {
        let served = |scheduler| run(scheduler, &[reserve(30.0)], depth, 1).1.len() as f64;
        let (zygaria, noop) = (served("zygaria"), served("noop"));
        assert!(zygaria >= 0.98 * noop, "depth {depth}: {zygaria} against {noop}");
    }
}

/// Streams that are mixed a run at a time make the head move for each.
/// Promise: zygaria-streams.
#[test]
fn streams_have_as_much_together_as_without_a_scheduler() {
    let bytes = |scheduler: &str| {
        let device = plimsoll_devices::build(DISK, 1).unwrap();
        let profile = device.profile().clone();
        let mut tree = AccountTree::new(profile.clone());
        let names = ["a", "b", "c", "d"];
        let mut open = |name| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
        let sessions = names.map(&mut open);
        let mut host = BlockHost::new(build(scheduler, &profile).unwrap(), device, &tree);
        for (number, session) in sessions.into_iter().enumerate() {
            let start = profile.capacity_bytes / 8 * number as u64;
            let places = Places::Sequential(start..start + (8 << 30));
            host.add_tenant(Workload { places, length: 16 << 10, ..Workload::greedy(session, 0..1, 20) }, 1);
        }
        let served = host.run_until(at(20));
        [0, 1, 2, 3].map(|tenant| {
            served.iter().filter(|one| one.tenant == tenant).map(|one| f64::from(one.length)).sum::<f64>()
        })
    };
    let (with, without) = (bytes("zygaria"), bytes("noop"));
    let total = |of: [f64; 4]| of.iter().sum::<f64>();
    assert!(total(with) >= 0.98 * total(without), "{with:?} against {without:?}");
    assert!(with.iter().all(|&one| (one / with[0] - 1.0).abs() < 0.03), "and they are level: {with:?}");
}

/// A drive serves what is near, so a stream of large requests keeps it from a small one elsewhere.
/// Promise: zygaria-drive-queue.
#[test]
fn a_small_tenant_is_not_starved_by_the_drives_own_queue() {
    let served_small = |scheduler: &str| {
        let device = plimsoll_devices::build("hdd.wd-aakx", 1).unwrap();
        let profile = device.profile().clone();
        let mut tree = AccountTree::new(profile.clone());
        let mut open = |name, allocation| tree.open(AccountId::ROOT, name, AccountKind::Session, allocation).unwrap();
        let (small, bulk) = (open("small", reserve(30.0)), open("bulk", Allocation::default()));
        let mut host = BlockHost::new(build(scheduler, &profile).unwrap(), device, &tree);
        host.add_tenant(Workload::greedy(small, 0..256 << 20, 1), 1);
        let middle = profile.capacity_bytes / 2;
        for stream in 0..4u64 {
            let places = Places::Sequential(middle + (stream << 27)..middle + ((stream + 1) << 27));
            let workload = Workload::greedy(bulk, 0..1, 16);
            host.add_tenant(Workload { places, length: 256 << 10, read_percent: 0, ..workload }, 2 + stream);
        }
        (host.run_until(at(SECONDS)), 0.3 * profile.worst_case_runs_per_second)
    };
    let rate = |served: &[Served]| served.iter().filter(|one| one.tenant == 0).count() as f64 / SECONDS as f64;
    let (without, _) = served_small("noop");
    let (with, promised) = served_small("zygaria");
    assert!(rate(&without) < 0.1 * promised, "{}", rate(&without));
    assert!(rate(&with) >= promised, "one outstanding at a time is enough: {} of {promised}", rate(&with));
}
