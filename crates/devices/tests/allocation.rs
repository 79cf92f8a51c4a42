//! Once warm, no model allocates for a request. A file of its own, because the allocator is that of the whole process.

use plimsoll_core::{Operation, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest, models};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Of this thread only: the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn run(device: &mut dyn DeviceModel, from: Time, tokens: std::ops::Range<u64>) -> Time {
    let mut now = from;
    for token in tokens {
        let offset = token.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let operation = if token.is_multiple_of(3) { Operation::Write } else { Operation::Read };
        device.submit(now, DeviceRequest { token, operation, offset, length: 4096, is_forced: false });
        while device.outstanding() >= 64 {
            now = device.next_completion().unwrap();
            device.complete(now);
        }
    }
    now
}

#[test]
fn a_warm_model_allocates_nothing() {
    for entry in models() {
        let mut device = (entry.build)(1);
        let warm = run(&mut *device, Time::ZERO, 0..2_000);
        let before = ALLOCATIONS.get();
        run(&mut *device, warm, 2_000..6_000);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{}", entry.name);
    }
}
