//! Reserves, limits and shares, for every scheduler that promises them, on a device of exactly known speed.

mod metronome;

use metronome::{DISK, Metronome, at, completed, keepers, reserve};
use plimsoll_core::*;
use plimsoll_devices::DeviceModel;
use plimsoll_schedulers::{Entry, Promise, registry};
use plimsoll_sim::block::BlockHost;
use plimsoll_sim::workload::Workload;
use proptest::prelude::*;

const RUNS_PER_SECOND: u64 = 100;

/// One pool of `pool` that holds a session for each of `sessions`; each keeps `depths` outstanding.
fn host(entry: &Entry, pools: &[(Allocation, Vec<(Allocation, u32)>)]) -> BlockHost {
    let device = metronome();
    let mut tree = AccountTree::new(device.profile().clone());
    let mut tenants = Vec::new();
    for (number, (allocation, sessions)) in pools.iter().enumerate() {
        let pool = tree.open(AccountId::ROOT, &format!("pool{number}"), AccountKind::Pool, *allocation).unwrap();
        for (number, &(allocation, depth)) in sessions.iter().enumerate() {
            let name = format!("session{number}");
            tenants.push((tree.open(pool, &name, AccountKind::Session, allocation).unwrap(), depth));
        }
    }
    let scheduler = (entry.build)(device.profile());
    let mut host = BlockHost::new(scheduler, Box::new(device), &tree);
    for (seed, (session, depth)) in tenants.into_iter().enumerate() {
        host.add_tenant(Workload::greedy(session, DISK, depth), seed as u64);
    }
    host
}

fn metronome() -> Metronome {
    Metronome::new(RUNS_PER_SECOND as f64, 4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// 99 % over any five seconds and 95 % over any second, less the one request that a window can cut off, up to a
    /// device that is promised away whole.
    /// Promise: schedulers-reserve.
    #[test]
    fn every_reserve_is_kept(
        parts in proptest::collection::vec((1u32..100, 4u32..64), 2..7),
        greedy_depth in 1u32..200,
        promised_percent in 50.0f64..100.0,
    ) {
        let all: u32 = parts.iter().map(|(part, _)| part).sum();
        let percents: Vec<_> = parts.iter().map(|(part, _)| f64::from(*part) / f64::from(all) * promised_percent).collect();
        for entry in keepers(Promise::Reserve) {
            let tenants = percents.iter().zip(&parts).map(|(&percent, &(_, depth))| (reserve(percent), depth));
            let (first, second): (Vec<_>, Vec<_>) = tenants.enumerate().partition(|(index, _)| index % 2 == 0);
            let pool = |members: Vec<(usize, (Allocation, u32))>| {
                let sum: f64 = members.iter().map(|(index, _)| percents[*index]).sum();
                (reserve(sum), members.into_iter().map(|(_, member)| member).collect::<Vec<_>>())
            };
            let order: Vec<usize> = first.iter().chain(&second).map(|(index, _)| *index).collect();
            let greedy = (reserve(0.0), vec![(reserve(0.0), greedy_depth)]);
            let mut host = host(entry, &[pool(first), pool(second), greedy]);
            let served = host.run_until(at(20.0));
            for (tenant, &index) in order.iter().enumerate() {
                let promised = percents[index] / 100.0 * RUNS_PER_SECOND as f64;
                for start in 1..15 {
                    let (one, five) = (completed(&served, tenant, f64::from(start), 1.0), completed(&served, tenant, f64::from(start), 5.0));
                    prop_assert!(one + 1.0 >= promised * 0.95, "{}: {one} of {promised:.2}/s in second {start}", entry.name);
                    prop_assert!(five + 1.0 >= promised * 5.0 * 0.99, "{}: {five} of {promised:.2}/s in 5 s", entry.name);
                }
            }
        }
    }

    /// No session and no pool exceeds its limit by more than 2 % in any second, less the one request that a window can
    /// add; and the others get the service that a limit leaves over.
    /// Promise: schedulers-limit.
    #[test]
    fn every_limit_is_kept(session_limit in 3.0f64..60.0, pool_limit in 3.0f64..60.0, depth in 1u32..64) {
        for entry in keepers(Promise::Limit) {
            let limited = |runs| Allocation { limit: Some(Rate::RunsPerSecond(runs)), ..Allocation::default() };
            let free = Allocation::default();
            let mut host = host(entry, &[
                (limited(pool_limit), vec![(limited(session_limit), depth), (free, depth)]),
                (free, vec![(free, depth)]),
            ]);
            let mut served = host.run_until(at(12.0));
            served.sort_by_key(|one| one.dispatched);
            let holds = |of: &dyn Fn(usize) -> bool, limit: f64| {
                let times: Vec<_> = served.iter().filter(|one| of(one.tenant)).map(|one| one.dispatched).collect();
                times.iter().enumerate().all(|(index, &start)| {
                    let in_second = times[index..].iter().take_while(|&&time| time.since(start) < Span::from_secs(1));
                    in_second.count() as f64 <= limit * 1.02 + 1.0
                })
            };
            prop_assert!(holds(&|tenant| tenant == 0, session_limit), "{}: session", entry.name);
            prop_assert!(holds(&|tenant| tenant < 2, pool_limit), "{}: pool", entry.name);
            let all: f64 = (0..3).map(|tenant| completed(&served, tenant, 1.0, 10.0)).sum();
            prop_assert!(all >= 10.0 * RUNS_PER_SECOND as f64 - 1.0, "{}: {all} of 1000 served", entry.name);
        }
    }
}

fn zygaria() -> &'static Entry {
    registry().iter().find(|entry| entry.name == "zygaria").unwrap()
}

#[test]
fn what_is_left_goes_to_the_lowest_until_all_stand_level() {
    let mut host = host(
        zygaria(),
        &[
            (reserve(50.0), vec![(reserve(50.0), 8)]),
            (reserve(0.0), vec![(reserve(0.0), 32), (reserve(0.0), 1)]),
            (reserve(0.0), vec![(reserve(0.0), 3)]),
        ],
    );
    let served = host.run_until(at(20.0));
    let rate = |tenant| completed(&served, tenant, 10.0, 10.0) / 10.0;
    assert!((rate(0) - 52.5).abs() < 1.5, "the reserve and the headroom, no more: {}", rate(0));
    assert!((rate(1) + rate(2) - rate(3)).abs() < 0.8, "pools level: {} + {}, {}", rate(1), rate(2), rate(3));
    assert!((rate(1) - rate(2)).abs() < 0.8, "sessions level whatever their depth: {}, {}", rate(1), rate(2));
}

/// Promise: schedulers-weight.
#[test]
fn weights_divide_the_unreserved_rate_whatever_the_depth() {
    let weight = |weight| Allocation { weight, ..Allocation::default() };
    let tenants = [(100, 64), (100, 8), (1000, 32)].map(|(w, depth)| (weight(w), vec![(weight(1), depth)]));
    let served = host(zygaria(), &tenants).run_until(at(70.0));
    let rates = [0, 1, 2].map(|tenant| completed(&served, tenant, 10.0, 60.0) / 60.0);
    for (rate, ideal) in rates.into_iter().zip([8.33, 8.33, 83.3]) {
        assert!((rate / ideal - 1.0).abs() < 0.03, "{rates:?}");
    }
}

/// Promise: accounts-alarm, schedulers-shrink-alike.
#[test]
fn promises_beyond_the_device_shrink_alike() {
    // With a limit or without: a limit that does not bind must not cost its owner a place among the late.
    for limit in [None, Some(Rate::RunsPerSecond(100.0))] {
        shrink_alike(limit);
    }
}

fn shrink_alike(limit_of_first: Option<Rate>) {
    // 160 runs/s are promised on a device that was said to do 200 and does 100.
    let device = metronome();
    let promised = DeviceProfile { worst_case_runs_per_second: 200.0, ..device.profile().clone() };
    let mut tree = AccountTree::new(promised.clone());
    let sessions = [80.0, 40.0, 40.0].map(|runs| {
        let limit = limit_of_first.filter(|_| runs == 80.0);
        let allocation = Allocation { reserve: Rate::RunsPerSecond(runs), limit, ..Allocation::default() };
        tree.open(AccountId::ROOT, &format!("s{runs}{}", tree.iter().count()), AccountKind::Session, allocation)
            .unwrap()
    });
    let mut host = BlockHost::new((zygaria().build)(&promised), Box::new(device), &tree);
    sessions.iter().enumerate().for_each(|(seed, &session)| {
        host.add_tenant(Workload::greedy(session, DISK, 16), seed as u64);
    });
    host.run_until(at(10.0));
    let before = host.scheduler().overload();
    let served = host.run_until(at(40.0));
    let rates = [0, 1, 2].map(|tenant| completed(&served, tenant, 10.0, 30.0) / 30.0);
    for (rate, ideal) in rates.into_iter().zip([50.0, 25.0, 25.0]) {
        assert!((rate / ideal - 1.0).abs() < 0.02, "{rates:?}");
    }
    let behind = host.scheduler().overload().saturating_sub(before).as_secs_f64() / 30.0;
    assert!((behind / (1.0 - 100.0 / 160.0) - 1.0).abs() < 0.02, "and the scheduler says by how much: {behind}");
}

#[test]
fn a_pool_held_by_its_own_limit_does_not_weaken_the_others() {
    // Two hundred sessions use up the reserves of a pool that may not have more: they always wait for its limit.
    let starved = Allocation { limit: Some(Rate::DevicePercent(50.0)), ..reserve(50.0) };
    let crowd = (0..200).map(|_| (reserve(0.25), 4)).collect();
    let mut host = host(
        zygaria(),
        &[(starved, crowd), (reserve(50.0), vec![(reserve(50.0), 8)]), (reserve(0.0), vec![(reserve(0.0), 64)])],
    );
    let served = host.run_until(at(60.0));
    for second in 1..59 {
        let rate = completed(&served, 200, f64::from(second), 1.0);
        assert!(rate >= 50.0, "{rate} of 50 in second {second}");
    }
    assert_eq!(host.scheduler().overload(), Span::ZERO);
}

/// Promise: schedulers-no-burst.
#[test]
fn an_idle_hour_earns_no_burst() {
    let device = metronome();
    let mut tree = AccountTree::new(device.profile().clone());
    let sessions =
        ["returns", "stays"].map(|name| tree.open(AccountId::ROOT, name, AccountKind::Session, reserve(45.0)).unwrap());
    let mut host = BlockHost::new((zygaria().build)(device.profile()), Box::new(device), &tree);
    let returns = Workload { active: at(3600.0)..at(3620.0), ..Workload::greedy(sessions[0], DISK, 64) };
    host.add_tenant(returns, 1);
    host.add_tenant(Workload::greedy(sessions[1], DISK, 64), 2);
    let served = host.run_until(at(3620.0));
    for second in 3600..3619 {
        let rate = completed(&served, 1, f64::from(second), 1.0);
        assert!(rate >= 0.95 * 45.0, "the one that stayed keeps its reserve: {rate} in second {second}");
    }
}

#[test]
fn waiting_for_ones_own_limit_is_not_owed_afterwards() {
    let device = metronome();
    let mut tree = AccountTree::new(device.profile().clone());
    let held = Allocation { limit: Some(Rate::DevicePercent(50.0)), ..reserve(50.0) };
    let held_id = tree.open(AccountId::ROOT, "held", AccountKind::Session, held).unwrap();
    let other_id = tree.open(AccountId::ROOT, "other", AccountKind::Session, reserve(45.0)).unwrap();
    let mut host = BlockHost::new((zygaria().build)(device.profile()), Box::new(device), &tree);
    host.add_tenant(Workload::greedy(held_id, DISK, 64), 1);
    host.add_tenant(Workload::greedy(other_id, DISK, 64), 2);
    host.run_until(at(600.0));
    host.scheduler().account_changed(at(600.0), tree.change(held_id, reserve(50.0)).unwrap());
    let served = host.run_until(at(620.0));
    for second in 600..619 {
        let rate = completed(&served, 1, f64::from(second), 1.0);
        assert!(rate >= 45.0, "ten minutes at a limit must not be made up for: {rate} of 45 in second {second}");
    }
}
