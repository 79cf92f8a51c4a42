//! What a cached unit takes in memory.

use plimsoll_cache::{Access, Cache, CacheConfig, Pool, policies};
use plimsoll_core::Class;
use plimsoll_core::class::Scheme;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is allocated and not yet freed.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator; counting changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_cached_unit_takes_24_bytes_at_the_most() {
    const UNITS: u32 = 1_000_003;
    for policy in policies() {
        let before = BYTES.load(Ordering::Relaxed);
        let mut cache = Cache::new(&CacheConfig::new(UNITS, Scheme::default()), policy).unwrap();
        // Full, all of it dirty, with units on their way to the store.
        for block in 0..u64::from(UNITS) * 2 {
            let (class, pool) = (Class::new((block % 32) as u8).unwrap(), Pool::new((block % 512) as u16).unwrap());
            cache.access(&Access { block: block * 7919, class, pool, is_write: true });
            if let Some(job) = cache.clean_next() {
                cache.cleaned(job.unit);
            }
        }
        let allocated = BYTES.load(Ordering::Relaxed) - before;
        let a_unit = allocated as f64 / f64::from(UNITS);
        println!("{}: {a_unit:.2} bytes a unit", policy.name);
        assert!(a_unit <= 24.0, "{}: {a_unit:.2} bytes a unit", policy.name);
        assert!(allocated >= cache.bytes() && cache.bytes() > 16 * UNITS as usize, "{} of {allocated}", cache.bytes());
    }
}
