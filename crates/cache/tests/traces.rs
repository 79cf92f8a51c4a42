//! Real traces: hits as others have counted them, and what `credit` promises against LRU.
//!
//! The traces are public and not part of the repository (`docs/cache-policies.md`); where they are not there, nothing
//! is run.

mod support;

use plimsoll_cache::{Access, Cache, CacheConfig, Outcome, Pool};
use plimsoll_core::class::Scheme;
use std::collections::BTreeMap;
use std::path::PathBuf;
use support::policy;

/// The accesses of a trace: one for each `unit_bytes` of each request, or, where objects are counted, one for each
/// request.
fn accesses(name: &str, unit_bytes: Option<u64>) -> Option<Vec<Access>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    if !path.exists() {
        println!("not run: {name} is not there");
        return None;
    }
    let (mut numbers, mut found) = (BTreeMap::new(), Vec::new());
    for record in plimsoll_traces::open(path, None).unwrap().map(Result::unwrap).filter(|record| record.length > 0) {
        let blocks = match unit_bytes {
            Some(bytes) => record.offset / bytes..=(record.end() - 1) / bytes,
            None => record.offset..=record.offset,
        };
        for block in blocks {
            let next = numbers.len() as u64;
            let block = *numbers.entry((record.device, block)).or_insert(next);
            let (class, is_write) = (record.class, record.operation.is_write());
            found.push(Access { block, class, pool: Pool::default(), is_write });
        }
    }
    Some(found)
}

/// The part of the accesses that were no hits, with a syncer that is never behind.
fn misses(name: &str, accesses: &[Access], units: u32, scheme: &Scheme) -> f64 {
    let mut cache = Cache::new(&CacheConfig::new(units, scheme.clone()), policy(name)).unwrap();
    let mut hits = 0;
    for access in accesses {
        hits += u64::from(matches!(cache.access(access), Outcome::Hit(_)));
        while let Some(job) = cache.clean_next() {
            cache.cleaned(job.unit);
        }
    }
    1.0 - hits as f64 / accesses.len() as f64
}

/// Promise: cache-lru-traces.
#[test]
fn lru_has_the_hits_that_libcachesim_counts() {
    for (trace, unit_bytes, units, expected) in
        [("oltp.lis.zst", Some(512), 20_000, 0.329), ("cloudphysics.csv.zst", None, 4_897, 0.805)]
    {
        let Some(accesses) = accesses(trace, unit_bytes) else { continue };
        let found = misses("lru", &accesses, units, &Scheme::default());
        assert!((found - expected).abs() <= 0.0005, "{trace}: {found:.4}, known is {expected}");
    }
}

/// Promise: cache-lru-traces.
#[test]
fn credit_is_never_a_hundredth_worse_than_lru() {
    let scheme = hp_ux();
    let mut sum = 0.0;
    for (trace, unit_bytes) in [
        ("hplajw-1week-with-classes.csv.zst", 4096),
        ("cloudphysics.csv.zst", 4096),
        ("oltp.lis.zst", 512),
        ("disksim-14-devices.ascii.zst", 4096),
        ("cloud_storage-sample.bz2", 4096),
        ("tpcc-small.mqsim.zst", 4096),
    ] {
        let Some(accesses) = accesses(trace, Some(unit_bytes)) else { continue };
        let blocks = accesses.iter().map(|access| access.block).max().unwrap() + 1;
        for percent in [1, 3, 10, 20, 30, 40, 50] {
            let units = (blocks * percent / 100) as u32;
            let [lru, credit] = ["lru", "credit"].map(|name| misses(name, &accesses, units, &scheme));
            println!("{trace} {percent} %: lru {lru:.4}, credit {credit:.4}, {:+.2} %", (credit / lru - 1.0) * 100.0);
            assert!(credit <= lru * 1.01, "{trace} at {units} units: {credit:.4} against {lru:.4}");
            sum += credit / lru - 1.0;
        }
    }
    assert!(sum <= 0.0, "on the whole it must be better: {sum}");
}

/// The classes of `hplajw`; no other trace has any.
fn hp_ux() -> Scheme {
    plimsoll_settings::scheme::load("hp-ux").unwrap().scheme
}
