//! Laws that rivals break, for every scheduler that promises limits, reserves or weights: no tenant pays for requests
//! not served, none is paid for sleeping, and none gains by the shape of its load.
//!
//! Breaks that were planted in `zygaria`, and what each turned red (besides others):
//!
//! | break | law |
//! | --- | --- |
//! | a limit is charged when a request comes | `what_waits_is_not_charged` |
//! | the clock of deadlines is never set back | `over_commitment_does_not_go_by_depth` |
//! | no tenant without a reserve goes before one that is due | `over_commitment_does_not_go_by_depth` |
//! | a deadline comes earlier by queue depth | `over_commitment_does_not_go_by_depth` |
//! | a pool's reserve is not charged | `over_commitment_does_not_go_by_depth` |
//! | weights do not count | `shares_go_by_weight_whatever_the_depths` |
//! | a limit that was used before fills up without end | `a_limit_holds_from_the_first_second_after_idling` |
//! | averages do not sink | `a_tenant_that_returns_is_level_with_the_others_after_three_seconds` |
//! | a reserve fills while its tenant does not ask | `a_reserve_earns_nothing_while_nobody_asks` |
//! | a tenant that queues deeper counts as lower | `nobody_gains_by_queueing_deeper` |
//! | beyond 100 outstanding a limit is charged by half | `nobody_gains_by_queueing_deeper` |
//! | a pool's weight is that of its sessions together | `nobody_gains_by_opening_more_sessions_in_its_pool` |
//! | the limit of a pool is not charged | `nobody_gains_by_opening_more_sessions_in_its_pool` |
//! | a level counts bytes; every request is a run | `nobody_gains_by_splitting_its_requests` |
//! | writes count half; a limit is for reads only | `nobody_gains_by_mixing_reads_and_writes` |
//!
//! That a tenant more among 50,000 costs seven lines of memory a key is `min_tree`'s own test; that a decision does not
//! depend on how many requests wait is a benchmark (`benches/zygaria.rs`, `depth`).

mod metronome;

use metronome::{DISK, Metronome, at, completed, keepers, reserve};
use plimsoll_core::*;
use plimsoll_devices::DeviceModel;
use plimsoll_schedulers::{Entry, Promise};
use plimsoll_sim::block::{BlockHost, Served};
use plimsoll_sim::workload::{Arrivals, Places, Workload};

const RUNS_PER_SECOND: f64 = 100.0;
/// What 60 s of a device of 100 runs a second cut off at both ends may differ by, and the 3 % of equal water levels.
const LEVEL_MARGIN: f64 = 0.03;

/// A pool and its sessions, each with what it does.
type Pool = (Allocation, Vec<(Allocation, Workload)>);

fn metronome() -> Metronome {
    Metronome::new(RUNS_PER_SECOND, 4)
}

/// `depth` random reads of 4 KiB outstanding all the time. The session is filled in when its account is open.
fn greedy(depth: u32) -> Workload {
    Workload::greedy(AccountId::ROOT, DISK, depth)
}

fn limit(rate: Rate) -> Allocation {
    Allocation { limit: Some(rate), ..Allocation::default() }
}

fn weight(weight: u32) -> Allocation {
    Allocation { weight, ..Allocation::default() }
}

/// A session without promises of its own, in a pool of its own with these.
fn alone(allocation: Allocation, workload: Workload) -> Pool {
    (allocation, vec![(Allocation::default(), workload)])
}

/// Tenants on `device`, on which as much may be promised as if it did `promised_runs_per_second`.
fn host(entry: &Entry, device: Metronome, promised_runs_per_second: f64, pools: Vec<Pool>) -> BlockHost {
    let promised = DeviceProfile { worst_case_runs_per_second: promised_runs_per_second, ..device.profile().clone() };
    let (mut tree, mut workloads) = (AccountTree::new(promised.clone()), Vec::new());
    for (number, (allocation, sessions)) in pools.into_iter().enumerate() {
        let pool = tree.open(AccountId::ROOT, &number.to_string(), AccountKind::Pool, allocation).unwrap();
        for (number, (allocation, workload)) in sessions.into_iter().enumerate() {
            let session = tree.open(pool, &number.to_string(), AccountKind::Session, allocation).unwrap();
            workloads.push(Workload { session, ..workload });
        }
    }
    let mut host = BlockHost::new((entry.build)(&promised), Box::new(device), &tree);
    for (seed, workload) in workloads.into_iter().enumerate() {
        host.add_tenant(workload, seed as u64);
    }
    host
}

/// Completions a second of the first `tenants`, from second 10 to `until_s`.
fn rates<const TENANTS: usize>(host: &mut BlockHost, until_s: f64) -> [f64; TENANTS] {
    let served = host.run_until(at(until_s));
    std::array::from_fn(|tenant| completed(&served, tenant, 10.0, until_s - 10.0) / (until_s - 10.0))
}

fn assert_level(entry: &Entry, what: &str, first: f64, second: f64) {
    assert!((first / second - 1.0).abs() < LEVEL_MARGIN, "{}: {what}: {first} and {second}", entry.name);
}

/// The most that `tenant` was given in any window of `window`, and in the window that begins with its first request.
fn most_in_any(served: &[Served], tenant: usize, window: Span) -> usize {
    let mut times: Vec<_> = served.iter().filter(|one| one.tenant == tenant).map(|one| one.dispatched).collect();
    times.sort();
    let in_window =
        |(index, &start): (usize, &Time)| times[index..].iter().take_while(|&&time| time.since(start) < window).count();
    times.iter().enumerate().map(in_window).max().unwrap_or(0)
}

/// A bucket that is charged when a request comes, and not when it goes, runs into a debt that grows without end: 11 a
/// second against 10, and soon nothing is served.
/// Promise: schedulers-no-charge-waiting.
#[test]
fn what_waits_is_not_charged() {
    for entry in keepers(Promise::Limit) {
        let offered = Workload { arrivals: Arrivals::Open { per_second: 11.0 }, ..greedy(0) };
        let of_bytes = Rate::BytesPerSecond(10.0 * f64::from(offered.length));
        for rate in [Rate::RunsPerSecond(10.0), Rate::DevicePercent(10.0), of_bytes] {
            for is_pool in [true, false] {
                let (pool, session) = if is_pool { (limit(rate), weight(1)) } else { (weight(1), limit(rate)) };
                let pools = vec![(pool, vec![(session, offered.clone())])];
                let served = host(entry, metronome(), RUNS_PER_SECOND, pools).run_until(at(60.0)).len() as f64;
                assert!((served - 600.0).abs() <= 2.0, "{}: 11/s offered to {rate} for 60 s: {served}", entry.name);
            }
        }
    }
}

/// The rates that tenants with reserves of 1500, 500 and 0 runs a second and weights of 1, 1 and 10 have on a device
/// that was said to do 2000 and does 1000.
fn over_committed(entry: &Entry, depths: [u32; 3]) -> ([f64; 3], Span) {
    let promise = |runs, weight| Allocation { reserve: Rate::RunsPerSecond(runs), weight, ..Allocation::default() };
    let promises = [promise(1500.0, 1), promise(500.0, 1), promise(0.0, 10)];
    let pools = promises.into_iter().zip(depths).map(|(promise, depth)| alone(promise, greedy(depth))).collect();
    let mut host = host(entry, Metronome::new(1000.0, 4), 2000.0, pools);
    let rates = rates(&mut host, 40.0);
    let overload = host.scheduler().overload();
    (rates, overload)
}

/// A scheduler that gives a request its deadline when it comes, at the earliest now, serves in the order of arrival
/// once all deadlines have passed: by queue depth. Reserves shrink alike; the rest, by weight, is the third one's.
/// Promise: schedulers-over-commitment.
#[test]
fn over_commitment_does_not_go_by_depth() {
    for entry in keepers(Promise::Reserve) {
        for depths in [[64, 8, 32], [8, 64, 32], [32, 32, 512]] {
            let (rates, overload) = over_committed(entry, depths);
            let what = format!("depths {depths:?}: {rates:?}");
            assert_level(entry, &what, rates[0], 3.0 * rates[1]);
            assert!(rates[0] + rates[1] >= 0.95 * 1000.0, "{}: {what}: reserves come first", entry.name);
            assert!(rates[2] >= 1.0, "{}: {what}: nobody starves", entry.name);
            assert!(overload > Span::from_secs(5), "{}: {what}: and it is said", entry.name);
        }
    }
}

#[test]
fn shares_go_by_weight_whatever_the_depths() {
    for entry in keepers(Promise::Weight) {
        for depths in [[64, 8, 32], [8, 64, 32], [512, 32, 16]] {
            let tenants = [1, 1, 10].into_iter().zip(depths);
            let pools = tenants.map(|(of, depth)| alone(weight(of), greedy(depth))).collect();
            let rates: [f64; 3] = rates(&mut host(entry, Metronome::new(1000.0, 4), 1000.0, pools), 40.0);
            for (rate, ideal) in rates.into_iter().zip([1.0, 1.0, 10.0].map(|part| part / 12.0 * 1000.0)) {
                assert_level(entry, &format!("depths {depths:?}"), rate, ideal);
            }
        }
    }
}

/// A limit's bucket that fills up while its tenant is idle allows a burst; also where the tenant has asked before.
/// Promise: schedulers-return.
#[test]
fn a_limit_holds_from_the_first_second_after_idling() {
    for entry in keepers(Promise::Limit) {
        let asks = |from_s, until_s| Workload { active: at(from_s)..at(until_s), ..greedy(64) };
        let sessions = [asks(0.0, 10.0), asks(3600.0, 3660.0)].map(|workload| (Allocation::default(), workload)).into();
        let pools = vec![(limit(Rate::RunsPerSecond(10.0)), sessions), alone(weight(1), greedy(8))];
        let served = host(entry, metronome(), RUNS_PER_SECOND, pools).run_until(at(3660.0));
        for (tenant, seconds) in [0, 1].into_iter().flat_map(|tenant| [1, 2, 5].map(|seconds| (tenant, seconds))) {
            let most = most_in_any(&served, tenant, Span::from_secs(seconds));
            let allowed = seconds as usize * 10 + 1; // and the request that the window cuts off
            assert!(most <= allowed, "{}: {most} in {seconds} s, allowed are {allowed}", entry.name);
            assert!(most >= allowed - 2, "{}: {most} in {seconds} s of tenant {tenant}: it asks", entry.name);
        }
    }
}

/// A share that is made up for after a sleep lets a tenant that returns push all others aside for as long.
/// Promise: schedulers-return.
#[test]
fn a_tenant_that_returns_is_level_with_the_others_after_three_seconds() {
    for entry in keepers(Promise::Weight) {
        for slept_s in [60.0, 3600.0] {
            let returns = Workload { active: at(slept_s)..at(slept_s + 30.0), ..greedy(64) };
            let pools = vec![alone(weight(100), returns), alone(weight(100), greedy(8))];
            let served = host(entry, metronome(), RUNS_PER_SECOND, pools).run_until(at(slept_s + 30.0));
            let after = |tenant| completed(&served, tenant, slept_s + 3.0, 25.0);
            assert_level(entry, &format!("{slept_s} s asleep"), after(0), after(1));
            let lost = 150.0 - completed(&served, 1, slept_s, 3.0);
            assert!(lost <= RUNS_PER_SECOND, "{}: the return cost the other one {lost} runs", entry.name);
        }
    }
}

/// A reserve that is owed for a sleep takes the others' reserves away.
#[test]
fn a_reserve_earns_nothing_without_requests() {
    for entry in keepers(Promise::Reserve) {
        let returns = Workload { active: at(600.0)..at(620.0), ..greedy(64) };
        let pools = vec![alone(reserve(45.0), returns), alone(reserve(45.0), greedy(8))];
        let served = host(entry, metronome(), RUNS_PER_SECOND, pools).run_until(at(620.0));
        for second in 600..619 {
            let rate = completed(&served, 1, f64::from(second), 1.0);
            assert!(rate >= 0.95 * 45.0, "{}: {rate} of 45 in second {second}", entry.name);
        }
    }
}

/// Promise: schedulers-no-gain.
#[test]
fn no_tenant_gains_by_queueing_deeper() {
    for entry in keepers(Promise::Weight) {
        let pools = vec![alone(weight(1), greedy(8)), alone(weight(1), greedy(512))];
        let [shallow, deep] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert_level(entry, "8 and 512 outstanding", shallow, deep);
    }
    for entry in keepers(Promise::Limit) {
        let ten = || limit(Rate::RunsPerSecond(10.0));
        let pools = vec![alone(ten(), greedy(1)), alone(ten(), greedy(512))];
        let [shallow, deep] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert_level(entry, "1 and 512 outstanding under one limit", shallow, deep);
    }
}

/// Promise: schedulers-no-gain.
#[test]
fn no_tenant_gains_by_opening_more_sessions_in_its_pool() {
    let crowd = || (0..50).map(|_| (Allocation::default(), greedy(16))).collect::<Vec<_>>();
    let total = |rates: &[f64]| rates.iter().sum::<f64>();
    for entry in keepers(Promise::Weight) {
        let pools = vec![alone(weight(1), greedy(16)), (weight(1), crowd())];
        let rates: [f64; 51] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert_level(entry, "1 and 50 sessions", rates[0], total(&rates[1..]));
    }
    for entry in keepers(Promise::Limit) {
        let pools = vec![alone(weight(1), greedy(16)), (limit(Rate::RunsPerSecond(10.0)), crowd())];
        let rates: [f64; 51] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert!(total(&rates[1..]) <= 10.2, "{}: {} of 10/s", entry.name, total(&rates[1..]));
    }
    for entry in keepers(Promise::Reserve) {
        let pools = vec![alone(reserve(60.0), greedy(16)), (reserve(30.0), crowd())];
        let rates: [f64; 51] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert!(rates[0] >= 0.99 * 60.0, "{}: {} of 60/s beside a crowd", entry.name, rates[0]);
    }
}

/// Where each request costs a movement, small ones must not count less; where bytes cost, requests in pieces must not.
/// Promise: schedulers-no-gain.
#[test]
fn no_tenant_gains_by_splitting_its_requests() {
    let of = |length, places, depth| Workload { length, places, ..greedy(depth) };
    for entry in keepers(Promise::Weight) {
        let anywhere = || Places::Random(DISK);
        let pools =
            [(32 << 10, 8), (4 << 10, 64)].map(|(length, depth)| alone(weight(1), of(length, anywhere(), depth)));
        let [whole, split] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools.into()), 70.0);
        assert_level(entry, "random requests of 32 and 4 KiB", whole, split);
        let halves = || [DISK.start..DISK.end / 2, DISK.end / 2..DISK.end];
        for split_into in [8, 64] {
            let loads = [(256 << 10, 8), ((256 << 10) / split_into, 8 * split_into)].into_iter().zip(halves());
            let pools =
                loads.map(|((length, depth), half)| alone(weight(1), of(length, Places::Sequential(half), depth)));
            let device = Metronome::of_bytes(RUNS_PER_SECOND, 8);
            let [whole, split] = rates(&mut host(entry, device, RUNS_PER_SECOND, pools.collect()), 130.0);
            let split = split / f64::from(split_into);
            assert!(split <= whole * (1.0 + LEVEL_MARGIN), "{}: {whole}, in pieces {split}", entry.name);
            assert!(split >= whole * 0.9, "{}: {whole}, in pieces {split}: as much, or nearly", entry.name);
        }
    }
}

/// Promise: schedulers-no-gain.
#[test]
fn no_tenant_gains_by_mixing_reads_and_writes() {
    let mix = |read_percent, depth| Workload { read_percent, ..greedy(depth) };
    for entry in keepers(Promise::Weight) {
        let pools = [100, 50, 0].map(|read_percent| alone(weight(1), mix(read_percent, 16))).into();
        let rates: [f64; 3] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert_level(entry, "reads and a mixture", rates[0], rates[1]);
        assert_level(entry, "reads and writes", rates[0], rates[2]);
    }
    for entry in keepers(Promise::Limit) {
        let ten = || limit(Rate::RunsPerSecond(10.0));
        let pools = [100, 50, 0].map(|read_percent| alone(ten(), mix(read_percent, 16))).into();
        let rates: [f64; 3] = rates(&mut host(entry, metronome(), RUNS_PER_SECOND, pools), 70.0);
        assert!(rates.iter().all(|&rate| rate <= 10.2), "{}: {rates:?} of 10/s", entry.name);
    }
}
