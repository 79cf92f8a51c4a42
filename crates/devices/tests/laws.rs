//! Laws that every model keeps, whatever it stands for, under random requests; the smallest failing case is printed.

use plimsoll_core::{Operation, Span, Time};
use plimsoll_devices::hdd::{Hdd, parameters};
use plimsoll_devices::{DeviceModel, DeviceRequest, Finished, models};
use proptest::prelude::*;

/// Every model by name, and a drive with a write cache, which no model has by default.
fn devices(seed: u64) -> Vec<Box<dyn DeviceModel + Send>> {
    let mut devices: Vec<_> = models().iter().map(|entry| (entry.build)(seed)).collect();
    let buffer = parameters::BufferParameters { write_cache_bytes: 2 << 20, ..parameters::WD_AAKX.buffer };
    let cached = parameters::HddParameters { buffer, ..parameters::WD_AAKX };
    devices.push(Box::new(Hdd::new(&cached, seed)));
    devices
}

/// One step of a host: how long it waits, then what it asks.
type Step = (Span, DeviceRequest);

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => Just(Operation::Read),
        8 => Just(Operation::Write),
        1 => Just(Operation::Flush),
        1 => Just(Operation::Trim),
        1 => Just(Operation::WriteZeroes),
    ]
}

/// Offsets near each other, anywhere on the device, and anywhere at all, aligned or not.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![(0u64..64).prop_map(|block| block * 4096), 0u64..30_000_000_000, any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![4 => Just(4096u32), 2 => Just(128 << 10), 1 => 0u32..3_000_000];
    let pause = prop_oneof![4 => Just(0u64), 2 => 0u64..300_000, 1 => 0u64..40_000_000];
    (pause, operation(), offset(), length, any::<bool>()).prop_map(|(pause, operation, offset, length, is_forced)| {
        (Span::from_nanos(pause), DeviceRequest { token: 0, operation, offset, length, is_forced })
    })
}

/// Submits all steps; comes back in time for every completion if `is_punctual`, otherwise only after the last step.
fn run(device: &mut dyn DeviceModel, steps: &[Step], is_punctual: bool) -> Vec<(Finished, Time)> {
    let (mut now, mut finished) = (Time::ZERO, Vec::new());
    let mut submitted = Vec::new();
    for (token, (pause, request)) in steps.iter().enumerate() {
        let next: Time = now + *pause;
        while let Some(at) = device.next_completion().filter(|at| is_punctual && *at <= next) {
            finished.extend(std::iter::from_fn(|| device.complete(at)));
        }
        now = next;
        submitted.push(now);
        device.submit(now, DeviceRequest { token: token as u64, ..request.clone() });
        assert_eq!(device.outstanding(), submitted.len() - finished.len());
    }
    while let Some(at) = device.next_completion() {
        assert!(at > now || !is_punctual, "a device that is asked at {at:?} again and again never gets anywhere");
        now = now.max(at);
        finished.extend(std::iter::from_fn(|| device.complete(now)));
    }
    assert_eq!(device.outstanding(), 0);
    finished.into_iter().map(|done| (done, submitted[done.token as usize])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_request_completes_once_after_it_came_and_in_the_order_of_time(
        steps in proptest::collection::vec(step(), 0..60), seed in any::<u64>(),
    ) {
        for mut device in devices(seed) {
            let finished = run(&mut *device, &steps, true);
            let mut tokens: Vec<_> = finished.iter().map(|(done, _)| done.token).collect();
            tokens.sort_unstable();
            prop_assert_eq!(tokens, (0..steps.len() as u64).collect::<Vec<_>>());
            prop_assert!(finished.is_sorted_by_key(|(done, _)| done.at));
            for (done, submitted) in finished {
                prop_assert!(done.at > submitted, "{}: {done:?} came at {submitted:?}", device.profile().name);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_times_and_a_late_host_changes_none(
        steps in proptest::collection::vec(step(), 0..60), seed in any::<u64>(),
    ) {
        for ((mut punctual, mut again), mut late) in devices(seed).into_iter().zip(devices(seed)).zip(devices(seed)) {
            let finished = run(&mut *punctual, &steps, true);
            prop_assert_eq!(&finished, &run(&mut *again, &steps, true), "{}", again.profile().name);
            prop_assert_eq!(&finished, &run(&mut *late, &steps, false), "{}", late.profile().name);
        }
    }

    #[test]
    fn nothing_finishes_before_it_is_asked_for(steps in proptest::collection::vec(step(), 1..20), seed in any::<u64>()) {
        for mut device in devices(seed) {
            for (token, (_, request)) in steps.iter().enumerate() {
                device.submit(Time::ZERO, DeviceRequest { token: token as u64, ..request.clone() });
            }
            while let Some(at) = device.next_completion() {
                prop_assert_eq!(device.complete(at.saturating_sub(Span::from_nanos(1))), None);
                while let Some(done) = device.complete(at) {
                    prop_assert_eq!(done.at, at);
                }
            }
        }
    }
}

/// Requests of 4 KiB per second, one outstanding.
fn rate(device: &mut dyn DeviceModel, operation: Operation, stride: u64) -> f64 {
    let (requests, mut now) = (500, Time::ZERO);
    for token in 0..requests {
        let offset = token * stride % (device.profile().capacity_bytes - 4096) / 4096 * 4096;
        device.submit(now, DeviceRequest { token, operation, offset, length: 4096, is_forced: false });
        while device.outstanding() > 0 {
            now = device.next_completion().unwrap();
            device.complete(now);
        }
    }
    requests as f64 / now.as_secs_f64()
}

#[test]
fn where_a_head_moves_sequential_reads_are_much_faster_than_scattered_ones() {
    for entry in models() {
        let read = |stride| rate(&mut *(entry.build)(1), Operation::Read, stride);
        let (sequential, scattered) = (read(4096), read(12_345_678_901));
        if (entry.build)(1).profile().is_rotational {
            assert!(sequential > 20.0 * scattered, "{}: {sequential} {scattered}", entry.name);
        } else {
            assert!((sequential / scattered - 1.0).abs() < 0.05, "{}: {sequential} {scattered}", entry.name);
        }
    }
}

#[test]
fn trimming_is_cheap() {
    for entry in models() {
        let trim = rate(&mut *(entry.build)(1), Operation::Trim, 12_345_678_901);
        assert!(trim > 9_000.0, "{}: {trim}", entry.name);
    }
}

#[test]
fn an_offset_beyond_the_capacity_wraps_around() {
    for entry in models() {
        let finish = |wraps: u64| {
            let mut device = (entry.build)(1);
            let offset = 81_920_000 + wraps * device.profile().capacity_bytes;
            let request =
                DeviceRequest { token: 1, operation: Operation::Read, offset, length: 4096, is_forced: false };
            device.submit(Time::ZERO, request);
            device.next_completion()
        };
        assert_eq!(finish(0), finish(3), "{}", entry.name);
    }
}

/// As many outstanding as the profile says must be enough: more would take control away and gain nothing.
#[test]
fn the_profile_keeps_the_device_busy() {
    for entry in models() {
        let measure = |outstanding: u64| {
            let mut device = (entry.build)(1);
            let submit = |device: &mut dyn DeviceModel, now, token: u64| {
                let offset = (token + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) / 4096 * 4096;
                let request =
                    DeviceRequest { token, operation: Operation::Read, offset, length: 4096, is_forced: false };
                device.submit(now, request);
            };
            (0..outstanding).for_each(|token| submit(&mut *device, Time::ZERO, token));
            let mut now = Time::ZERO;
            for token in outstanding..outstanding + 6_000 {
                now = device.next_completion().unwrap();
                if device.complete(now).is_some() {
                    submit(&mut *device, now, token);
                }
            }
            6_000.0 / now.as_secs_f64()
        };
        let profile = (entry.build)(1).profile().clone();
        let (enough, plenty) =
            (measure(profile.outstanding_max.into()), measure(4 * u64::from(profile.outstanding_max)));
        assert!(enough > 0.98 * plenty, "{}: {enough} of {plenty}", entry.name);
    }
}
