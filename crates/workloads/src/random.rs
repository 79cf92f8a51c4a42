//! Streams of random numbers: one for each thread and each purpose, all from the plan's seed.

use plimsoll_core::Span;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// SplitMix64's increment and multipliers: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
const SPLITMIX_INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;
const SPLITMIX_FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SPLITMIX_SECOND: u64 = 0x94d0_49bb_1331_11eb;

/// What a stream is drawn for, so that two purposes with the same number do not draw the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The steps of a thread.
    Thread = 1,
    /// The size of a file.
    FileSize = 2,
}

/// A stream.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

fn splitmix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(SPLITMIX_INCREMENT);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(SPLITMIX_FIRST);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(SPLITMIX_SECOND);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The stream number `number` for a purpose.
    pub(crate) fn new(seed: u64, purpose: Purpose, number: u64) -> Random {
        let high = splitmix(splitmix(seed) ^ purpose as u64);
        let low = splitmix(high ^ splitmix(number));
        // The generator needs an odd state.
        Random(Pcg64Mcg::new((u128::from(high) << 64 | u128::from(low)) | 1))
    }

    /// 0 to `bound` - 1, each as likely (to one part in 2^64 / `bound`); 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Above 0, at most 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed: the time between arrivals of a Poisson process.
    pub(crate) fn exponential(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(-self.fraction().ln() * mean.as_secs_f64())
    }

    /// One of a table, by weight.
    pub(crate) fn weighted<'table, T>(&mut self, table: &'table [(T, u32)]) -> &'table T {
        let total: u64 = table.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut drawn = self.below(total);
        for (value, weight) in table {
            if drawn < u64::from(*weight) {
                return value;
            }
            drawn -= u64::from(*weight);
        }
        unreachable!("a draw is below the sum of the weights")
    }
}

/// Walks through `pages` pages in order and stops at those that at least one of `updates` uniform updates has hit.
///
/// Each page is hit with the same probability, 1 - (1 - 1/pages)^updates. Gaps between hit pages are then geometric, so
/// the next one is found in constant time and memory, however many pages there are. (That pages are hit independently
/// holds for a Poisson number of updates and nearly for a fixed one.)
#[derive(Clone, Debug)]
pub(crate) struct DirtyPages {
    pages: u64,
    next: u64,
    /// ln(1 - probability that a page is hit).
    log_clean: f64,
}

impl DirtyPages {
    pub(crate) fn new(pages: u64, updates: u64) -> DirtyPages {
        let log_clean = if pages <= 1 { f64::NEG_INFINITY } else { updates as f64 * (-1.0 / pages as f64).ln_1p() };
        DirtyPages { pages, next: if updates == 0 { pages } else { 0 }, log_clean }
    }

    /// How many to expect.
    pub(crate) fn expected(&self) -> f64 {
        -self.log_clean.exp_m1() * self.pages as f64
    }

    pub(crate) fn next(&mut self, random: &mut Random) -> Option<u64> {
        let gap = (random.fraction().ln() / self.log_clean).floor();
        // A gap beyond the last page saturates.
        let page = self.next.saturating_add(gap as u64);
        self.next = page.saturating_add(1);
        (page < self.pages).then_some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn draws_are_even_and_streams_differ_by_seed_purpose_and_number() {
        let mut random = Random::new(1, Purpose::Thread, 0);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        // A count deviates by 93; five deviations.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 465), "{counts:?}");
        let first = |seed, purpose, number| Random::new(seed, purpose, number).below(u64::MAX);
        let drawn = first(1, Purpose::Thread, 0);
        let others = [(2, Purpose::Thread, 0), (1, Purpose::FileSize, 0), (1, Purpose::Thread, 1)];
        assert!(others.into_iter().all(|(seed, purpose, number)| first(seed, purpose, number) != drawn));
    }

    /// The slow, obvious way: hit pages one by one.
    fn hit(pages: u64, updates: u64, random: &mut Random) -> Vec<bool> {
        let mut is_hit = vec![false; pages as usize];
        for _ in 0..updates {
            is_hit[random.below(pages) as usize] = true;
        }
        is_hit
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

        #[test]
        fn dirty_pages_are_as_many_as_if_each_update_had_been_made(
            pages in 1u64..60, updates in 0u64..200, seed: u64
        ) {
            let mut random = Random::new(seed, Purpose::Thread, 0);
            let (mut walked, mut made, rounds) = (vec![0u32; pages as usize], vec![0u32; pages as usize], 400);
            for _ in 0..rounds {
                let mut dirty = DirtyPages::new(pages, updates);
                let mut last = None;
                while let Some(page) = dirty.next(&mut random) {
                    prop_assert!(last < Some(page), "in order, each once");
                    last = Some(page);
                    walked[page as usize] += 1;
                }
                for (count, is_hit) in made.iter_mut().zip(hit(pages, updates, &mut random)) {
                    *count += u32::from(is_hit);
                }
            }
            // Each page's count is binomial with a deviation of at most 10; a difference of two, six deviations.
            for (walked, made) in walked.iter().zip(&made) {
                prop_assert!(walked.abs_diff(*made) <= 85, "{walked} and {made} of {rounds}");
            }
            let expected = DirtyPages::new(pages, updates).expected();
            let mean = made.iter().sum::<u32>() as f64 / f64::from(rounds);
            prop_assert!((expected - mean).abs() <= 0.1 * expected.sqrt() + 0.6, "{expected} and {mean}");
        }
    }
}
