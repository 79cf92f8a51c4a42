//! Asks the processor to load memory that will be needed. Code that waits for memory and not for instructions can wait
//! for several pieces of it at once, or do other work meanwhile.

/// Bytes that one instruction loads: a cache line of x86-64.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Starts loading `value`; does nothing where the processor has no such instruction.
#[inline]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..size_of::<T>()).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = std::ptr::from_ref(value).cast::<i8>();
        // SAFETY: a prefetch is a hint; as far as the program can tell it neither reads nor writes, and it never
        // faults. The address lies within `value`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
