//! The cache answers as the slow and obvious one does, under every policy, with bounds, with a syncer that dawdles,
//! with trims.
//!
//! Planted breaks that these tests find: a write to a free unit that stays in the free list; the bound of a class not
//! looked at when a unit is reclassified; a unit that was written while it was copied and is called clean; the oldest
//! of the wrong list; ghosts of both kinds confused; a block that is relocated and loses its place in the order; under
//! `s3_fifo` a small queue of a fifth, and a block that keeps its frequency on the way to the main queue.

mod support;

use plimsoll_cache::duel::Way;
use plimsoll_cache::units::UnitId;
use plimsoll_cache::{ANNOUNCED_AHEAD, Access, Cache, CacheConfig, Outcome, Pool};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, ClassEntry, Scheme};
use proptest::prelude::*;
use support::{Answer, Place, Slow, policy};

/// Three classes that are always taken in, one that is while the syncer sleeps, one that is only read in; two with
/// bounds.
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
    /// What such a job was to copy cannot be read.
    SetAside(usize),
    /// The store has that after all.
    SetClean(u64),
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
        1 => (0usize..8).prop_map(Step::SetAside),
        1 => (0..blocks).prop_map(Step::SetClean),
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

/// The promises themselves, whatever the slow cache says.
fn keeps_its_promises(cache: &Cache, slow: &Slow, config: &CacheConfig) -> Result<(), TestCaseError> {
    prop_assert_eq!(cache.audit(), Ok(()));
    let clean = slow.entries.iter().filter(|entry| entry.place == Place::Free);
    prop_assert!(clean.into_iter().all(|entry| !entry.is_dirty), "a free unit may be given away");
    prop_assert!(cache.class_units(Class::new(2).unwrap()) <= (config.units * 3 / 10).max(1));
    prop_assert!(cache.pool_units(Pool::new(2).unwrap()) <= (config.units / 4).max(1));
    Ok(())
}

/// Answers the cache, and the ways that it went, one after the other.
fn compare(
    name: &'static str,
    config: &CacheConfig,
    blocks: u64,
    steps: &[Step],
) -> Result<(Cache, Vec<Way>), TestCaseError> {
    let mut cache = Cache::new(config, policy(name)).unwrap();
    let mut slow = Slow::new(name, config);
    // Jobs with the host: unit, block, and whether the block was trimmed since.
    let mut jobs: Vec<(UnitId, u64, bool)> = Vec::new();
    let mut ways = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        // As a replay does: nothing is decided by it.
        if let Some(Step::Access(later)) = steps.get(at + ANNOUNCED_AHEAD) {
            cache.announce(later.block);
        }
        match *step {
            Step::Access(access) => {
                let outcome = cache.access(&access);
                prop_assert_eq!(answer(outcome), slow.access(&access));
                // As a cache on a device does with a block that is written again; only the unit's number shows it.
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
            Step::SetAside(at) if jobs.get(at).is_some_and(|job| !job.2) => {
                let (unit, block, _) = jobs[at];
                let is_aside = cache.set_aside(unit);
                prop_assert_eq!(is_aside, slow.set_aside(block));
                is_aside.then(|| jobs.remove(at));
            }
            Step::SetClean(block) => {
                if slow.set_clean(block) {
                    cache.set_clean(cache.find(block).expect("a unit aside is there"));
                }
            }
            Step::Cleaned(..) | Step::SetAside(_) => {}
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
        keeps_its_promises(&cache, &slow, config)?;
        ways.push(slow.way);
    }
    ways.dedup();
    Ok((cache, ways))
}

fn read(block: u64, class: u8) -> Access {
    Access { block, class: Class::new(class).unwrap(), pool: Pool::default(), is_write: false }
}

/// Forty blocks of the highest priority, and two hundred of `class`, which do not fit into a cache of sixty beside
/// them.
fn round(round: u64, class: u8) -> impl Iterator<Item = Step> {
    let others = (0..200u64).map(move |turn| read(40 + (round * 200 + turn) % 360, class));
    (0..40).map(move |block| read(block, 1)).chain(others).map(Step::Access)
}

/// First the forty blocks of the highest priority come back, after more than the cache has room for. Then they never
/// do, and twenty of a low one do soon. Then it is as it was.
/// Promise: cache-credit-way.
#[test]
fn it_changes_its_way_as_the_slow_one_does() {
    let second = (0..1000).flat_map(|turn| [read(100 + turn % 300, 3), read(40 + turn % 20, 0)]).map(Step::Access);
    let rounds = || (0..12).flat_map(|number| round(number, 0));
    let steps: Vec<_> = rounds().chain(second).chain(rounds()).collect();
    let (_, ways) = compare("credit", &CacheConfig::new(60, scheme()), 400, &steps).unwrap();
    assert_eq!(ways, [Way::Strict, Way::Level, Way::Strict]);
}

/// Promise: cache-unused-class.
#[test]
fn a_class_that_leaves_unused_is_not_taken_in_any_more_until_it_is_used() {
    let after = |steps: &[Step]| {
        let (mut cache, ways) = compare("credit", &CacheConfig::new(60, scheme()), 400, steps).unwrap();
        assert_eq!(ways, [Way::Strict]);
        cache.access(&read(1000, 3))
    };
    let mut steps: Vec<_> = (0..12).flat_map(|number| round(number, 3)).collect();
    assert_eq!(after(&steps), Outcome::Refused);
    steps.extend((0..20).map(|turn| Step::Access(read(100 + turn % 10, 3))));
    assert!(matches!(after(&steps), Outcome::Taken(_)));
}

/// On the level way a second look, soon after the first, is no use; on the strict one it is, as under `selective`.
#[test]
fn on_the_strict_way_each_use_counts() {
    let blocks = (0..6).chain([0]).chain(10..207);
    let steps: Vec<_> = blocks.map(|block| Step::Access(read(block, 0))).collect();
    for policy in ["selective", "credit"] {
        let (cache, _) = compare(policy, &CacheConfig::new(200, scheme()), 400, &steps).unwrap();
        assert_eq!([0, 1].map(|block| cache.find(block).is_some()), [true, false], "{policy}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    /// Promise: cache-oracle, store-damaged-unit.
    #[test]
    fn it_answers_as_the_slow_one_does(
        name in prop::sample::select(vec!["lru", "s3_fifo", "selective", "credit"]),
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
