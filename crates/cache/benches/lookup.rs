//! What an access costs in memory: look-ups a second on one core, all of them hits, half of them, and with units that
//! leave.
//!
//! Blocks come in an order without locality, the worst for a processor's caches, and each is announced eight accesses
//! before, as a replay does that reads its trace ahead.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll_cache::{ANNOUNCED_AHEAD, Access, Cache, CacheConfig, Outcome, Pool, policies};
use plimsoll_core::Class;
use plimsoll_core::class::Scheme;
use std::hint::black_box;

const ACCESSES: u64 = 1_000_000;

/// A block of `blocks`, without locality.
fn block(number: u64, blocks: u64) -> u64 {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % blocks
}

fn round(cache: &mut Cache, blocks: u64, first: u64) -> u64 {
    let mut hits = 0;
    for number in first..first + ACCESSES {
        cache.announce(block(number + ANNOUNCED_AHEAD as u64, blocks));
        let access =
            Access { block: block(number, blocks), class: Class::UNCLASSIFIED, pool: Pool::default(), is_write: false };
        hits += u64::from(matches!(cache.access(&access), Outcome::Hit(_)));
    }
    hits
}

fn benches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cache/access");
    group.throughput(Throughput::Elements(ACCESSES)).sample_size(10);
    for units in [20_000u32, 4_000_000] {
        for (name, parts) in [("hits", 1), ("half", 2)] {
            for policy in policies() {
                let config = CacheConfig::new(units, Scheme::default());
                let mut cache = Cache::new(&config, policy).unwrap();
                // A little less than the cache, so that no block has to leave; or twice as much.
                let blocks = u64::from(units) * 9 / 10 * parts;
                let (rounds, mut first) = (blocks / ACCESSES + 4, 0);
                for _ in 0..rounds {
                    round(&mut cache, blocks, first);
                    first += ACCESSES;
                }
                group.bench_function(BenchmarkId::new(format!("{}-{name}", policy.name), units), |bencher| {
                    bencher.iter(|| {
                        first += ACCESSES;
                        black_box(round(&mut cache, blocks, first))
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(cache, benches);
criterion_main!(cache);
