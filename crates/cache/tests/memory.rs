//! What a cached unit takes in memory.

#[path = "support/metadata.rs"]
mod metadata;

use metadata::Metadata;
use plimsoll_cache::store::{
    Action, BLOCK_BYTES, CacheStore, Depth, Identity, Request, RequestKind, Semantics, format, open,
};
use plimsoll_cache::{Access, Cache, CacheConfig, PolicyEntry, Pool, policies, store};
use plimsoll_core::Class;
use plimsoll_core::class::{ClassEntry, Scheme};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts what is allocated and not yet freed.
struct Counting;

thread_local! {
    /// Bytes that this thread has, and how often it has asked for some: the test harness has threads of its own.
    static COUNTED: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: everything is left to the system's allocator; counting changes nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (bytes, allocations) = COUNTED.get();
        COUNTED.set((bytes + layout.size(), allocations + 1));
        // SAFETY: the caller's promise is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let (bytes, allocations) = COUNTED.get();
        COUNTED.set((bytes.saturating_sub(layout.size()), allocations));
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Does whatever the cache asks for, as if the devices held zeroes.
fn do_all(store: &mut CacheStore) {
    loop {
        while store.next_answer(|_, failure, _| assert_eq!(failure, None)) {}
        let Some(operation) = store.next_operation() else { return };
        if operation.action == Action::Read {
            store.buffer(&operation).fill(0);
        }
        store.completed(operation.id, true);
    }
}

/// Classes of different priorities, which need more memory than those of one.
fn scheme() -> Scheme {
    let mut scheme = Scheme::default();
    for number in 0..16 {
        scheme.set(ClassEntry::new(Class::new(number).unwrap(), &format!("class-{number}"), number));
    }
    scheme
}

fn request(token: u64, kind: RequestKind, block: u64) -> Request {
    let (class, pool) = (Class::new((block % 32) as u8).unwrap(), Pool::new((block % 512) as u16).unwrap());
    Request { token, kind, block, from: 0, to: BLOCK_BYTES as u16, class, pool }
}

/// The fixed part of a cache on a device, beside two buffers of a block for each request and one for each copy: its
/// journal's records, pages of a snapshot, what is counted by class and pool, `credit`'s shadows, which have 2048 units
/// each at the least, and since the mend of C4 the blocks that the slow device refused: 16 KiB of the 240.
const FIXED_BYTES_MAX: usize = 240 << 10;

fn fixed_bytes_max(depth: Depth) -> usize {
    FIXED_BYTES_MAX + (2 * depth.requests + depth.cleaning) as usize * BLOCK_BYTES
}

/// What a cache on a device takes when it has worked for a while, which allocates nothing.
fn bytes_on_a_device(units: u32, policy: &PolicyEntry, depth: Depth) -> usize {
    let layout = store::Layout { units, journal_blocks: 64 };
    let identity = Identity { store: [0; 16], store_blocks: 1 << 30 };
    let mut device = Metadata::new(&layout);
    format(&mut device, identity, [1; 16], layout).unwrap();
    let (before, _) = COUNTED.get();
    let config = CacheConfig::new(units, scheme());
    let opened = open(&mut device, identity, &config, policy, false).unwrap();
    let mut store = CacheStore::new(opened, Semantics::WriteCache, depth);
    let data = [0; BLOCK_BYTES];
    let run = |store: &mut CacheStore, blocks: std::ops::Range<u64>| {
        for block in blocks {
            let kind = if block % 8 == 7 { RequestKind::Read } else { RequestKind::Write };
            while !store.submit(&request(block, kind, block % (1 << 22) * 7919 % (1 << 29)), &data) {
                do_all(store);
            }
            do_all(store);
        }
    };
    let units = u64::from(units);
    run(&mut store, 0..units * 9 / 8);
    let (warm, allocations) = COUNTED.get();
    run(&mut store, units * 9 / 8..units * 5 / 4);
    assert_eq!(COUNTED.get().1, allocations, "{}", policy.name);
    let counters = store.counters();
    assert!(counters.snapshots > 3 && counters.cleaned > units / 1000, "{counters:?}");
    warm - before
}

/// On a device too, with everything that is needed to find it again, from 64 MiB on; and once it works nothing is
/// allocated. Of a small cache the fixed part is what counts, so that it is looked at apart.
///
/// Planted breaks that were seen red: shadows of a 64th; shadows of 4096 units at the least; ghosts of a fifth.
/// Promise: store-unit-memory.
#[test]
fn a_unit_on_a_device_takes_24_bytes_at_the_most_beside_a_fixed_part_and_work_allocates_nothing() {
    let depth = Depth { requests: 16, cleaning: 8 };
    for policy in policies() {
        let mut smaller: Option<(u32, usize)> = None;
        let sizes: &[u32] = &[16_384, 65_536, 262_144, 1_000_003];
        // The policy that takes most.
        for &units in if policy.name == "credit" { sizes } else { &sizes[..3] } {
            let bytes = bytes_on_a_device(units, policy, depth);
            let fixed = bytes as f64 - 24.0 * f64::from(units);
            println!("{}, {units} units: {bytes} bytes, {fixed:.0} beyond 24 a unit", policy.name);
            assert!(fixed <= fixed_bytes_max(depth) as f64, "{}, {units} units: {fixed:.0}", policy.name);
            if let Some((before, bytes_before)) = smaller.replace((units, bytes)) {
                let each = (bytes - bytes_before) as f64 / f64::from(units - before);
                println!("{}: {each:.2} bytes for each unit more", policy.name);
                assert!(each <= 24.0, "{}, {before} to {units} units: {each:.2} bytes each", policy.name);
            }
        }
    }
    // As many places as a volume's cache has.
    let depth = Depth { requests: 256, cleaning: 32 };
    let credit = policies().iter().find(|policy| policy.name == "credit").unwrap();
    let bytes = bytes_on_a_device(16_384, credit, depth);
    println!("with a volume's depth {bytes} bytes");
    assert!(bytes <= 24 * 16_384 + (5 << 19), "{bytes}");
}

/// Promise: cache-unit-memory.
#[test]
fn a_cached_unit_takes_24_bytes_at_the_most() {
    const UNITS: u32 = 1_000_003;
    for policy in policies() {
        let (before, _) = COUNTED.get();
        let mut cache = Cache::new(&CacheConfig::new(UNITS, scheme()), policy).unwrap();
        // Full, all of it dirty, with units on their way to the store.
        for block in 0..u64::from(UNITS) * 2 {
            let (class, pool) = (Class::new((block % 32) as u8).unwrap(), Pool::new((block % 512) as u16).unwrap());
            cache.access(&Access { block: block * 7919, class, pool, is_write: true });
            if let Some(job) = cache.clean_next() {
                cache.cleaned(job.unit);
            }
        }
        let allocated = COUNTED.get().0 - before;
        let a_unit = allocated as f64 / f64::from(UNITS);
        println!("{}: {a_unit:.2} bytes a unit", policy.name);
        assert!(a_unit <= 24.0, "{}: {a_unit:.2} bytes a unit", policy.name);
        assert!(allocated >= cache.bytes() && cache.bytes() > 16 * UNITS as usize, "{} of {allocated}", cache.bytes());
    }
}
