//! What an account takes in memory while it asks for nothing. A file of its own, because the allocator is that of the
//! whole process.

use plimsoll_core::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get().saturating_sub(layout.size()));
        // SAFETY: the pointer came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Sessions, a hundred to a pool.
const SESSIONS: [u32; 3] = [10_000, 65_000, 200_000];
const SESSIONS_PER_POOL: u32 = 100;
/// What a session takes that asks for nothing (docs/performance.md). Bytes.
const SESSION_BYTES_MAX: usize = 256;

/// Pools and what belongs to them count as their sessions'. Planted break that was seen red: vectors that double.
/// Promise: schedulers-idle-memory.
#[test]
fn an_idle_session_takes_256_bytes_at_the_most() {
    let device = plimsoll_devices::build("nvme", 1).unwrap().profile().clone();
    for sessions in SESSIONS {
        let mut tree = AccountTree::new(device.clone());
        for pool in 0..sessions / SESSIONS_PER_POOL {
            let allocation = Allocation::default();
            let pool = tree.open(AccountId::ROOT, &pool.to_string(), AccountKind::Pool, allocation).unwrap();
            for session in 0..SESSIONS_PER_POOL {
                tree.open(pool, &session.to_string(), AccountKind::Session, allocation).unwrap();
            }
        }
        for name in ["zygaria", "wdt"] {
            let before = LIVE.get();
            let mut scheduler = plimsoll_schedulers::build(name, &device).unwrap();
            tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
            let bytes = (LIVE.get() - before) / sessions as usize;
            println!("{name}: {bytes} bytes for each of {sessions} sessions");
            assert!(bytes <= SESSION_BYTES_MAX, "{name}: {bytes} bytes for each of {sessions} sessions");
        }
    }
}
