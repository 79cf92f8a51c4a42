//! Conservation of requests, counted in two independent ways, so that a request lost, doubled or timed wrongly shows.

use plimsoll_core::Time;

/// Requests in the block layer, counted as they come and go.
#[derive(Clone, Debug, Default)]
pub struct Flow {
    /// Requests that came.
    pub added: u64,
    /// Requests that were given to the device.
    pub dispatched: u64,
    /// Requests that left.
    pub completed: u64,
    /// The number in the layer, integrated over time: request-nanoseconds.
    area_ns: u128,
    changed: Time,
    /// How long those that left had stayed, in sum.
    sojourn_ns: u128,
}

impl Flow {
    /// A request came.
    pub fn add(&mut self, now: Time) {
        self.integrate(now);
        self.added += 1;
    }

    /// A request left that had come at `arrived`.
    pub fn complete(&mut self, now: Time, arrived: Time) {
        self.integrate(now);
        self.completed += 1;
        self.sojourn_ns += u128::from(now.since(arrived).as_nanos());
    }

    /// How many are in the layer.
    pub fn inside(&self) -> u64 {
        self.added - self.completed
    }

    /// The mean number in the layer until `now`.
    pub fn mean_inside(&self, now: Time) -> f64 {
        let rest = u128::from(self.inside()) * u128::from(now.since(self.changed).as_nanos());
        (self.area_ns + rest) as f64 / now.as_nanos().max(1) as f64
    }

    fn integrate(&mut self, now: Time) {
        self.area_ns += u128::from(self.inside()) * u128::from(now.since(self.changed).as_nanos());
        self.changed = now;
    }

    /// Little's law over the whole run: the mean number inside times the time is the sum of all stays. Requests still
    /// inside (which came at `arrivals`) count until `now`.
    ///
    /// # Panics
    /// If it does not hold to the nanosecond, or the number inside is not the number of `arrivals`.
    pub fn assert_conserved(&mut self, now: Time, arrivals: impl Iterator<Item = Time>) {
        self.integrate(now);
        let (mut inside, mut stays_ns) = (0, self.sojourn_ns);
        for arrived in arrivals {
            inside += 1;
            stays_ns += u128::from(now.since(arrived).as_nanos());
        }
        assert_eq!(self.added, self.completed + inside, "requests added = completed + in flight");
        assert_eq!(self.area_ns, stays_ns, "Little's law: request-nanoseconds inside = sum of the stays");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanoseconds: u64) -> Time {
        Time::from_nanos(nanoseconds)
    }

    #[test]
    fn what_goes_in_comes_out_and_the_mean_is_the_sum_of_the_stays_over_the_time() {
        let mut flow = Flow::default();
        flow.add(at(10));
        flow.add(at(10));
        flow.complete(at(30), at(10));
        flow.add(at(40));
        assert_eq!((flow.inside(), flow.mean_inside(at(50))), (2, (20 + 40 + 10) as f64 / 50.0));
        flow.assert_conserved(at(50), [at(10), at(40)].into_iter());
    }

    #[test]
    #[should_panic(expected = "Little's law")]
    fn a_stay_that_is_timed_wrongly_shows() {
        let mut flow = Flow::default();
        flow.add(at(10));
        flow.complete(at(30), at(11));
        flow.assert_conserved(at(50), std::iter::empty());
    }

    #[test]
    #[should_panic(expected = "in flight")]
    fn a_request_that_is_lost_shows() {
        let mut flow = Flow::default();
        flow.add(at(10));
        flow.assert_conserved(at(50), std::iter::empty());
    }
}
