use super::*;
use proptest::prelude::*;

/// The paper's rule in its own words: a request is issued iff U < B + R; at a window's end R' = B + R - U, here at the
/// most a budget.
struct Oracle {
    budget: i64,
    used: i64,
    residual: i64,
}

impl Oracle {
    fn admit(&mut self, sectors: u32) -> bool {
        let is_admitted = self.used < self.budget + self.residual;
        if is_admitted {
            self.used += i64::from(sectors) * CREDITS_PER_SECTOR;
        }
        is_admitted
    }

    fn end_window(&mut self) {
        self.residual = (self.budget + self.residual - self.used).min(self.budget);
        self.used = 0;
    }
}

fn throttle(weights: &[u32], unit: f64) -> (Throttle, Pocket) {
    let (mut throttle, mut pocket) = (Throttle::default(), Pocket::default());
    for (container, &weight) in weights.iter().enumerate() {
        throttle.open(container, weight);
        pocket.open(container);
    }
    throttle.end_windows(1, unit);
    (throttle, pocket)
}

proptest! {
    /// With budgets below a sector a handful is nothing, so pockets hold nothing but debts: exact.
    #[test]
    fn one_thread_keeps_the_papers_books(
        weights in proptest::collection::vec(1u32..4, 1..5),
        windows in proptest::collection::vec(proptest::collection::vec((0usize..5, 1u32..9), 0..12), 1..60),
        unit in 30.0f64..70.0,
    ) {
        let (throttle, mut pocket) = throttle(&weights, unit);
        let mut oracles: Vec<_> = weights.iter().map(|&weight| {
            let budget = (unit * f64::from(weight)) as i64;
            Oracle { budget, used: 0, residual: budget }
        }).collect();
        for asked in windows {
            // Every container asks in each window: a purse that is full takes no more, whatever its owner owes.
            let everybody = (0..weights.len()).map(|container| (container, 1));
            for (container, sectors) in everybody.chain(asked.into_iter().filter(|&(who, _)| who < weights.len())) {
                let expected = oracles[container].admit(sectors);
                let is_admitted = pocket.admit(&throttle, container, sectors);
                prop_assert_eq!(is_admitted, expected, "{} of {}", sectors, container);
            }
            oracles.iter_mut().for_each(Oracle::end_window);
            throttle.end_windows(1, unit);
        }
    }

    /// Over any number of windows a container that asks all the time is admitted what these brought it, and less than
    /// one request more.
    #[test]
    fn a_container_that_always_asks_gets_its_budget(
        weight in 1u32..1000, sectors in 1u32..64, requests_per_budget in 1.1f64..1000.0, windows in 1i64..40,
    ) {
        let cost = i64::from(sectors) * CREDITS_PER_SECTOR;
        let unit = cost as f64 * requests_per_budget / f64::from(weight);
        let (throttle, mut pocket) = throttle(&[weight], unit);
        let budget = throttle.budget(0);
        let mut admitted = 0;
        for _ in 0..windows {
            while pocket.admit(&throttle, 0, sectors) {
                admitted += cost;
            }
            throttle.end_windows(1, unit);
        }
        let brought = budget * (windows + 1);
        prop_assert!((brought..brought + cost).contains(&admitted), "{} of {}", admitted, brought);
    }

    #[test]
    fn a_word_holds_a_window_and_credits_of_either_sign(
        window in 0u64..1 << 40, later in 0u64..1 << 20, credits in -CREDITS_MAX..CREDITS_MAX,
    ) {
        prop_assert_eq!(unpack(pack(window, credits), window + later), (later, credits));
    }
}

/// Promise: wdt-threads.
#[test]
fn threads_together_get_what_one_would_and_nothing_is_lost() {
    const THREADS: usize = 4;
    const WINDOWS: i64 = 200;
    let (throttle, _) = throttle(&[100], 10_000.0);
    let hammer = || {
        let (mut pocket, mut admitted) = (Pocket::new(1), 0);
        for _ in 0..100_000 {
            admitted += i64::from(pocket.admit(&throttle, 0, 1));
        }
        (admitted * CREDITS_PER_SECTOR, pocket.credits[0])
    };
    let (admitted, in_hand) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(hammer)).collect();
        (1..WINDOWS).for_each(|_| throttle.end_windows(1, 10_000.0));
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.fold((0, 0), |(admitted, in_hand), end| (admitted + end.0, in_hand + end.1))
    });
    assert_eq!(throttle.taken(0), admitted + in_hand, "what was taken was spent or is in a pocket");
    let brought = throttle.budget(0) * (WINDOWS + 1);
    assert!(throttle.taken(0) <= brought, "{} of {brought}", throttle.taken(0));
}

#[test]
fn the_roll_of_a_period_names_each_once_and_the_heaviest() {
    let (throttle, mut pocket) = throttle(&[10, 40, 40, 5], 100.0);
    let end_period = || {
        let active = throttle.end_period(1);
        throttle.end_windows(1, 100.0);
        active
    };
    for _ in 0..3 {
        for _ in 0..3 {
            throttle.end_windows(1, 100.0);
            assert!((0..3).all(|container| pocket.admit(&throttle, container, 1)));
        }
        assert_eq!(end_period(), Active { weight: 90, heaviest: Some((1, 40)) }, "also who asks in every window");
    }
    assert!(pocket.admit(&throttle, 0, 1) && pocket.admit(&throttle, 3, 1));
    assert_eq!(throttle.weight_joined(), 5, "one has come, two have not been seen yet");
    throttle.end_windows(1, 100.0);
    assert_eq!(end_period(), Active { weight: 15, heaviest: Some((0, 10)) });
    assert_eq!(end_period(), Active { weight: 0, heaviest: None });
    throttle.set_weight(1, 0);
    assert_eq!(throttle.weight_open(), 55);
}

#[test]
fn a_container_that_comes_back_has_two_budgets_of_its_share() {
    let (throttle, mut pocket) = throttle(&[10, 30], 256.0);
    for _ in 0..3 {
        assert!(pocket.admit(&throttle, 1, 30));
        throttle.end_period(1);
        throttle.count_weight(30);
        throttle.end_windows(1, 256.0);
    }
    assert_eq!((0..100).filter(|_| pocket.admit(&throttle, 0, 1)).count(), 15, "three quarters of 20");
}

#[test]
fn a_container_with_the_number_of_a_closed_one_owes_nothing_and_has_two_budgets() {
    let (mut throttle, mut pocket) = throttle(&[10], 256.0);
    assert!(pocket.admit(&throttle, 0, 1000) && !pocket.admit(&throttle, 0, 1));
    assert_eq!(pocket.windows_until_filled(&throttle, 0), 2, "98 budgets are owed; a purse holds two");
    throttle.open(0, 30);
    pocket.open(0);
    assert_eq!((0..100).filter(|_| pocket.admit(&throttle, 0, 1)).count(), 60);
}
