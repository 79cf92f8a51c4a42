//! What an unmeasured disk is taken for.
//!
//! A scheduler that promises how long a call takes, or shares the disk's time, has to know how long a page and a flush
//! take. A disk with a rate of zero would be one that moves nothing: all calls cost the same, and a flush never ends.
//! So it is taken for a slow one of its kind. What is guessed too slow makes others wait longer before a large fsync;
//! the order of tenants does not depend on it.
//!
//! Schedulers for which zero means unknown, and that do without (`split_token`, `zygaria`, `wdt`), are not given this.

use plimsoll_core::DeviceProfile;

/// Small random runs a second and bytes a second in sequence of a disk with a head: one at 5,400 rpm.
const WITH_A_HEAD: (f64, f64) = (75.0, 100e6);
/// Of one without: a solid-state drive of the first years.
const WITHOUT_A_HEAD: (f64, f64) = (2_000.0, 200e6);

/// The device with each unknown rate (zero) as that of a slow one of its kind; what is known stays.
pub fn with_assumed_rates(device: &DeviceProfile) -> DeviceProfile {
    let (runs_per_second, bytes_per_second) = if device.is_rotational { WITH_A_HEAD } else { WITHOUT_A_HEAD };
    let known = |rate: f64, assumed: f64| if rate > 0.0 { rate } else { assumed };
    let sequential = known(device.sequential_bytes_per_second, bytes_per_second);
    DeviceProfile {
        worst_case_runs_per_second: known(device.worst_case_runs_per_second, runs_per_second),
        sequential_bytes_per_second: sequential,
        sequential_write_bytes_per_second: known(device.sequential_write_bytes_per_second, sequential),
        ..device.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Span;

    fn device(rate: f64, is_rotational: bool) -> DeviceProfile {
        DeviceProfile {
            name: "disk".into(),
            capacity_bytes: 1 << 40,
            worst_case_runs_per_second: rate,
            sequential_bytes_per_second: rate * 1e6,
            sequential_write_bytes_per_second: rate * 1e6,
            write_settle: Span::ZERO,
            is_rotational,
            outstanding_max: 4,
        }
    }

    #[test]
    fn what_is_known_stays_and_what_is_not_is_that_of_a_slow_one() {
        assert_eq!(with_assumed_rates(&device(30.0, true)), device(30.0, true));
        for is_rotational in [false, true] {
            let assumed = with_assumed_rates(&device(0.0, is_rotational));
            assert!(assumed.worst_case_runs_per_second > 0.0);
            assert!(assumed.sequential_bytes_per_second > assumed.worst_case_runs_per_second * 4096.0);
            assert!(assumed.sequential_write_bytes_per_second > 0.0);
        }
        // Only how it behaves at its worst was said.
        let worst_case = DeviceProfile { worst_case_runs_per_second: 30.0, ..device(0.0, true) };
        let assumed = with_assumed_rates(&worst_case);
        assert_eq!((assumed.worst_case_runs_per_second, assumed.sequential_bytes_per_second), (30.0, 100e6));
    }
}
