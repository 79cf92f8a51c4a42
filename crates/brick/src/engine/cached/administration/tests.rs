//! What administrators are told of a cache whose engine ends meanwhile.

use super::*;
use crate::backend::{Backing, Volume};
use crate::engine::{EngineConfig, spawn};
use plimsoll_cache::policies;
use plimsoll_core::class::Scheme;
use plimsoll_core::{DeviceProfile, Span};

fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "device".into(),
        capacity_bytes: 1 << 30,
        worst_case_runs_per_second: 10_000.0,
        sequential_bytes_per_second: 1e9,
        sequential_write_bytes_per_second: 1e9,
        write_settle: Span::ZERO,
        is_rotational: false,
        outstanding_max: 32,
    }
}

/// An engine's end closes a cache as it is, dirty or not. Outcome: who empties it in order to give it up hears that the engine has
/// stopped, and not that it is empty.
///
/// Planted break: a cache that is closed answers whoever waits for its phase to be over.
#[test]
fn who_empties_a_cache_is_not_told_that_it_is_empty_when_its_engine_ends() {
    let directory = tempfile::tempdir().unwrap();
    let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
    let mut settings = CacheSettings::new("fast", directory.path().join("fast"), policy, Scheme::default());
    settings.size_bytes = Some(4 << 20);
    let backing = Backing::Memory { size_bytes: 16 << 20 };
    let (name, pool) = ("v".to_owned(), "pool".to_owned());
    let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
    let found = FoundCache::find(settings, &volume).unwrap();
    let engine = spawn(EngineConfig::new(profile(), "noop")).unwrap();
    engine.open_pool("pool", Allocation::default()).unwrap();
    engine.add_volume(volume).unwrap();
    engine.attach_cache("v", found).unwrap();
    let (answer, answered) = channel();
    let is_closed = engine.call(move |engine| {
        engine.core.empty_cache("v", answer).unwrap();
        // What an engine asks itself when it is to end and its last client has gone.
        engine.core.caches_are_closed()
    });
    assert!(!is_closed.unwrap());
    let told = answered.recv().unwrap();
    assert!(matches!(told, Err(EngineError::Stopped)), "{told:?}");
    engine.shutdown(Span::from_secs(5)).unwrap();
}
