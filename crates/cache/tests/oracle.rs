//! The cache answers as the slow and obvious one does, under every policy, with bounds, with a syncer that dawdles, with trims.
//!
//! Planted breaks that these tests find: a write to a free unit that stays in the free list; the bound of a class not looked at when a
//! unit is reclassified; a unit that was written while it was copied and is called clean; the oldest of the wrong list; ghosts of
//! both kinds confused; a block that is relocated and loses its place in the order.

mod support;

use plimsoll_cache::units::UnitId;
use plimsoll_cache::{Access, Cache, CacheConfig, Outcome, Pool};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, ClassEntry, Scheme};
use proptest::prelude::*;
use support::{Answer, Place, Slow, policy};

/// Three classes that are always taken in, one that is while the syncer sleeps, one that is only read in; two with bounds.
fn scheme() -> Scheme {
    let entry = |number, priority| ClassEntry::new(Class::new(number).unwrap(), &format!("class-{number}"), priority);
    let mut scheme = Scheme::default();
    scheme.set(entry(0, 12));
    scheme.set(entry(1, 0));
    scheme.set(ClassEntry { occupancy_max: 0.3, ..entry(2, 5) });
    scheme.set(ClassEntry { reads: Admission::WhileIdle, writes: Admission::WhileIdle, ..entry(3, 11) });
    scheme.set(ClassEntry { writes: Admission::Never, occupancy_max: 0.5, ..entry(4, 5) });
    scheme
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Access(Access),
    CleanNext,
    /// The job at this place of those under way, and whether it succeeds.
    Cleaned(usize, bool),
    Trim(u64),
}

fn step(blocks: u64) -> impl Strategy<Value = Step> {
    let access = (0..blocks, 0u8..5, 0u16..3, any::<bool>()).prop_map(|(block, class, pool, is_write)| {
        let (class, pool) = (Class::new(class).unwrap(), Pool::new(pool).unwrap());
        Step::Access(Access { block, class, pool, is_write })
    });
    prop_oneof![
        8 => access,
        2 => Just(Step::CleanNext),
        2 => (0usize..8, prop::bool::weighted(0.9)).prop_map(|(at, succeeds)| Step::Cleaned(at, succeeds)),
        1 => (0..blocks).prop_map(Step::Trim),
    ]
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Hit(_) => Answer::Hit,
        Outcome::Taken(_) => Answer::Taken,
        Outcome::Refused => Answer::Refused,
        Outcome::Busy => Answer::Busy,
        Outcome::Full => Answer::Full,
    }
}

fn compare(name: &'static str, config: &CacheConfig, blocks: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut cache = Cache::new(config, policy(name)).unwrap();
    let mut slow = Slow::new(name, config);
    // Jobs with the host: unit, block, and whether the block was trimmed since.
    let mut jobs: Vec<(UnitId, u64, bool)> = Vec::new();
    for step in steps {
        match *step {
            Step::Access(access) => {
                let outcome = cache.access(&access);
                prop_assert_eq!(answer(outcome), slow.access(&access));
                // As a cache on a device does with what is written again; nobody can tell but by the unit's number.
                if let (Outcome::Hit(from), true) = (outcome, access.is_write && access.block % 2 == 0)
                    && let Some(to) = cache.take_empty()
                {
                    prop_assert_eq!(cache.relocate(access.block, to), from);
                    jobs.iter_mut().filter(|job| job.0 == from).for_each(|job| job.0 = to);
                    cache.release(from);
                }
            }
            Step::CleanNext => {
                let job = cache.clean_next();
                prop_assert_eq!(job.map(|job| job.block), slow.clean_next());
                jobs.extend(job.map(|job| (job.unit, job.block, false)));
            }
            Step::Cleaned(at, succeeds) if at < jobs.len() => {
                let (unit, block, is_trimmed) = jobs.remove(at);
                if succeeds {
                    cache.cleaned(unit)
                } else {
                    cache.clean_failed(unit)
                }
                slow.cleaned(block, is_trimmed, succeeds);
            }
            Step::Cleaned(..) => {}
            Step::Trim(block) => {
                cache.trim(block);
                if slow.trim(block) {
                    jobs.iter_mut().filter(|job| job.1 == block).for_each(|job| job.2 = true);
                }
            }
        }
        prop_assert_eq!(cache.free_units(), slow.free_units());
        prop_assert_eq!(cache.is_syncer_awake(), slow.is_awake);
        for block in 0..blocks {
            let entry = slow.entries.iter().find(|entry| entry.block == block);
            let found = cache.find(block).map(|unit| cache.is_dirty(unit));
            prop_assert_eq!(found, entry.map(|entry| entry.is_dirty), "block {}", block);
        }
        for number in 0..5 {
            let class = Class::new(number).unwrap();
            let in_order = slow.count(|entry| entry.place == Place::InOrder && entry.class == class);
            prop_assert_eq!(cache.class_units(class), in_order);
        }
        // The promises themselves, whatever the slow cache says.
        let clean = slow.entries.iter().filter(|entry| entry.place == Place::Free);
        prop_assert!(clean.into_iter().all(|entry| !entry.is_dirty), "a free unit may be given away");
        prop_assert!(cache.class_units(Class::new(2).unwrap()) <= (config.units * 3 / 10).max(1));
        prop_assert!(cache.pool_units(Pool::new(2).unwrap()) <= (config.units / 4).max(1));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn it_answers_as_the_slow_one_does(
        name in prop::sample::select(vec!["lru", "selective", "credit"]),
        units in 1u32..48, high in 1u32..8, low in 1u32..8, promotes_reads in prop::bool::weighted(0.9), seed in any::<u64>(),
        steps in prop::collection::vec(step(64), 1..400),
    ) {
        let high = high.min(units);
        let config = CacheConfig {
            watermark_low: low.min(high),
            watermark_high: high,
            promotes_reads,
            pools: vec![(Pool::new(2).unwrap(), 0.25)],
            seed,
            ..CacheConfig::new(units, scheme())
        };
        compare(name, &config, 64, &steps)?;
    }
}
