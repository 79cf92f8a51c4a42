//! `wdt` and `static_throttle` on a drive: shares, use, tenants that come and go.

use plimsoll_core::*;
use plimsoll_sim::block::{BlockHost, Served};
use plimsoll_sim::workload::{Arrivals, Places, Workload};
use std::ops::Range;

const DRIVE: &str = "ssd.x25-e";
const DEPTH: u32 = 64;

/// A container: weight, reads in a hundred, when it asks.
struct Tenant {
    weight: u32,
    read_percent: u8,
    depth: u32,
    active_s: Range<f64>,
}

fn tenant(weight: u32, read_percent: u8) -> Tenant {
    Tenant { weight, read_percent, depth: DEPTH, active_s: 0.0..1e6 }
}

fn at(seconds: f64) -> Time {
    Time::ZERO + Span::from_secs_f64(seconds)
}

fn run(scheduler: &str, tenants: &[Tenant], seconds: f64) -> Vec<Served> {
    let device = plimsoll_devices::build(DRIVE, 1).unwrap();
    let capacity = device.profile().capacity_bytes;
    let mut tree = AccountTree::new(device.profile().clone());
    let open = |(number, tenant): (usize, &Tenant)| {
        let allocation = Allocation { weight: tenant.weight, ..Allocation::default() };
        tree.open(AccountId::ROOT, &number.to_string(), AccountKind::Session, allocation).unwrap()
    };
    let sessions: Vec<_> = tenants.iter().enumerate().map(open).collect();
    let scheduler = plimsoll_schedulers::build(scheduler, device.profile()).unwrap();
    let mut host = BlockHost::new(scheduler, device, &tree);
    for (number, (tenant, session)) in tenants.iter().zip(sessions).enumerate() {
        let workload = Workload {
            session,
            places: Places::Random(0..capacity),
            length: 4096,
            read_percent: tenant.read_percent,
            arrivals: Arrivals::Closed { depth: tenant.depth, think: Span::ZERO },
            active: at(tenant.active_s.start)..at(tenant.active_s.end),
        };
        host.add_tenant(workload, number as u64 + 1);
    }
    host.run_until(at(seconds))
}

/// Requests a second of each tenant in these seconds.
fn rates(served: &[Served], tenants: usize, window: Range<f64>) -> Vec<f64> {
    let seconds = window.end - window.start;
    let window = at(window.start)..at(window.end);
    let of = |tenant| served.iter().filter(|one| one.tenant == tenant && window.contains(&one.completed)).count();
    (0..tenants).map(|tenant| of(tenant) as f64 / seconds).collect()
}

/// The largest error of any ratio between two of them.
fn ratio_error(rates: &[f64], weights: &[u32]) -> f64 {
    let lines: Vec<f64> = rates.iter().zip(weights).map(|(rate, &weight)| rate / f64::from(weight)).collect();
    lines.iter().copied().fold(0.0, f64::max) / lines.iter().copied().fold(f64::MAX, f64::min) - 1.0
}

/// Promise: wdt-ratios.
#[test]
fn shares_are_as_weights_and_the_drive_is_used() {
    for weights in [[400, 200, 100, 40], [100, 100, 100, 100], [40, 100, 200, 400]] {
        for reads in [[100; 4], [90, 80, 70, 60]] {
            let tenants =
                || weights.iter().zip(reads).map(|(&weight, reads)| tenant(weight, reads)).collect::<Vec<_>>();
            let served = run("wdt", &tenants(), 14.0);
            let shares = rates(&served, 4, 4.0..14.0);
            assert!(ratio_error(&shares, &weights) < 0.02, "{weights:?}, {reads:?}: {shares:?}");
            // Writes cost a drive more than reads: only the served load is compared.
            if reads == [100; 4] {
                let unmanaged: f64 = rates(&run("noop", &tenants(), 6.0), 4, 2.0..6.0).iter().sum();
                let all: f64 = shares.iter().sum();
                assert!(all >= 0.98 * unmanaged, "{weights:?}: {all} of {unmanaged}");
            }
        }
    }
}

/// Was seen red where tenants with credits are served in turn whatever they weigh: then the lightest uses its up as a
/// window begins.
/// Promise: wdt-window.
#[test]
fn a_window_is_used_up_side_by_side() {
    let served = run("wdt", &[tenant(400, 100), tenant(40, 100)], 4.0);
    for half_window in 40..80 {
        let begin = f64::from(half_window) / 20.0;
        let shares = rates(&served, 2, begin..begin + 0.05);
        let of_all = shares[1] / shares.iter().sum::<f64>();
        assert!((0.8 / 11.0..1.2 / 11.0).contains(&of_all), "{of_all} from {begin} s on");
    }
}

/// Promise: wdt-unused-share.
#[test]
fn what_the_heaviest_does_not_want_goes_to_the_others_by_weight() {
    let mut tenants = vec![tenant(400, 100), tenant(200, 100), tenant(100, 100)];
    tenants[0].depth = 1;
    let shares = rates(&run("wdt", &tenants, 12.0), 3, 2.0..12.0);
    let unmanaged: f64 = rates(&run("noop", &tenants, 6.0), 3, 2.0..6.0).iter().sum();
    assert!(ratio_error(&shares[1..], &[200, 100]) < 0.02, "{shares:?}");
    assert!(shares.iter().sum::<f64>() >= 0.97 * unmanaged, "{shares:?} of {unmanaged}");
}

#[test]
fn containers_come_and_go_and_the_heaviest_changes() {
    let mut tenants = vec![tenant(100, 100), tenant(50, 100), tenant(400, 100)];
    tenants[2].active_s = 5.0..10.0;
    let served = run("wdt", &tenants, 20.0);
    let seconds = |window: Range<f64>| rates(&served, 3, window);
    assert!(ratio_error(&seconds(2.0..5.0)[..2], &[100, 50]) < 0.02);
    // The one that slept has a budget more at once, and a second passes until all credits fit again.
    assert!(ratio_error(&seconds(7.0..10.0), &[100, 50, 400]) < 0.03, "{:?}", seconds(7.0..10.0));
    let after = seconds(12.0..20.0);
    assert!(ratio_error(&after[..2], &[100, 50]) < 0.02, "{after:?}");
    let alone: f64 = seconds(2.0..5.0).iter().sum();
    for second in 5..19 {
        let all: f64 = seconds(f64::from(second)..f64::from(second) + 1.0).iter().sum();
        assert!(all >= 0.97 * alone, "{all} of {alone} in second {second}");
    }
}

/// Promise: wdt-unused-share.
#[test]
fn a_burst_after_idling_is_a_budget_more() {
    let mut tenants = vec![tenant(100, 100), tenant(100, 100)];
    tenants[1].active_s = 60.0..61.0;
    let served = run("wdt", &tenants, 61.0);
    let shares = rates(&served, 2, 60.0..61.0);
    // Half of ten windows; half a window that was kept, and as much for a window that the second cuts in two.
    let budget = shares.iter().sum::<f64>() / 20.0;
    assert!(shares[1] <= shares[0] + 2.0 * budget, "{shares:?}");
}

/// The heaviest asks for little, so all credits are ten thousand times what the drive can do when another one as heavy
/// comes.
#[test]
fn a_light_container_is_served_though_a_prediction_was_far_off() {
    let mut tenants = vec![tenant(10_000, 100), tenant(1, 100), tenant(10_000, 100)];
    tenants[0].depth = 1;
    tenants[2].active_s = 5.0..20.0;
    let served = run("wdt", &tenants, 20.0);
    let shares = rates(&served, 3, 10.0..20.0);
    // Its share of 35,000 reads a second, less a window.
    assert!((1.0..4.0).contains(&shares[1]), "{shares:?}");
}

#[test]
fn static_caps_waste_what_is_not_used_and_fit_no_mixture() {
    let weights = [400, 200, 100, 40];
    let tenants: Vec<_> = weights.iter().zip([30, 66, 62, 47]).map(|(&weight, reads)| tenant(weight, reads)).collect();
    let shares = rates(&run("static_throttle", &tenants, 8.0), 4, 2.0..8.0);
    assert!(ratio_error(&shares, &weights) > 0.2, "{shares:?}");
    let mut tenants = tenants;
    tenants[0].active_s = 0.0..1.0;
    let without = rates(&run("static_throttle", &tenants, 8.0), 4, 2.0..8.0);
    let (before, after): (f64, f64) = (shares[1..].iter().sum(), without[1..].iter().sum());
    assert!(after <= 1.05 * before, "{before} then {after}: nobody gets what the absent one leaves");
}
