//! How fast a policy goes through a real trace that is in memory, for comparison with other simulators
//! (`bench-peers/cache.sh`).
//!
//!     replay_speed TRACE UNIT_BYTES UNITS POLICY ROUNDS [FILE]
//!
//! UNIT_BYTES 0 counts each request as one object named by where it begins. Prints the part that misses and the
//! accesses a second of processor time of the fastest round: beside other work the clock says little. FILE is written
//! with the same accesses in libCacheSim's format `oracleGeneral` (without its oracle).

use plimsoll_cache::{ANNOUNCED_AHEAD, Access, Cache, CacheConfig, Outcome, Pool, policies};
use plimsoll_core::class::Scheme;
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, unit_bytes, units, policy, rounds, rest @ ..] = &arguments[..] else {
        eprintln!("usage: replay_speed TRACE UNIT_BYTES UNITS POLICY ROUNDS [FILE]");
        std::process::exit(2);
    };
    let unit_bytes: u64 = unit_bytes.parse().expect("UNIT_BYTES is a number");
    let policy =
        policies().iter().find(|known| known.name == policy).expect("POLICY is lru, s3_fifo, selective or credit");
    let config = CacheConfig::new(units.parse().expect("UNITS is a number"), Scheme::default());
    let mut accesses = Vec::new();
    for record in plimsoll_traces::open(trace, None).expect("TRACE can be read").map(|record| record.expect("a record"))
    {
        let (class, is_write) = (record.class, record.operation.is_write());
        let blocks = match record.offset.checked_div(unit_bytes) {
            Some(first) => first..(record.end() - 1) / unit_bytes + 1,
            None => record.offset / 512..record.offset / 512 + 1,
        };
        accesses.extend(blocks.map(|block| Access { block, class, pool: Pool::default(), is_write }));
    }
    if let Some(path) = rest.first() {
        write(path, &accesses).expect("FILE can be written");
    }
    let (mut fastest, mut misses) = (0.0f64, 0.0);
    for _ in 0..rounds.parse::<u32>().expect("ROUNDS is a number") {
        let mut cache = Cache::new(&config, policy).expect("1 to 2^27 - 1 units");
        let start = processor_seconds();
        let hits = replay(&mut cache, &accesses);
        fastest = fastest.max(accesses.len() as f64 / (processor_seconds() - start));
        misses = 1.0 - hits as f64 / accesses.len() as f64;
    }
    println!("{misses:.4} {:.2} million a second", fastest / 1e6);
}

/// What this thread has had of a processor.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn replay(cache: &mut Cache, accesses: &[Access]) -> u64 {
    let mut hits = 0;
    for (at, access) in accesses.iter().enumerate() {
        if let Some(later) = accesses.get(at + ANNOUNCED_AHEAD) {
            cache.announce(later.block);
        }
        hits += u64::from(matches!(cache.access(access), Outcome::Hit(_)));
        while let Some(job) = cache.clean_next() {
            cache.cleaned(job.unit);
        }
    }
    hits
}

fn write(path: &str, accesses: &[Access]) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for access in accesses {
        file.write_all(&0u32.to_le_bytes())?;
        file.write_all(&access.block.to_le_bytes())?;
        file.write_all(&1u32.to_le_bytes())?;
        file.write_all(&(-1i64).to_le_bytes())?;
    }
    file.flush()
}
