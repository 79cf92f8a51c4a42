//! Large tables that are looked at in no order.
//!
//! The processor remembers the addresses of a few thousand pages of memory. With pages of 4 KiB that is less than the
//! tables of any large cache. Linux takes pages of 2 MiB for memory of which it is told before it is first used. What
//! it does with that is its own affair: a table is right in any case.

use crate::threads::{on_threads, threads_for};
use std::mem::MaybeUninit;

/// A table of `count` times `value`, on large pages if there are such. What is slow of it is that the kernel has to
/// find and clear the memory, so that several threads do it.
pub(crate) fn table<T: Copy + Send + Sync>(value: T, count: usize) -> Vec<T> {
    let mut table = Vec::with_capacity(count);
    advise(&mut table);
    let threads = threads_for(count as u32);
    let parts = table.spare_capacity_mut()[..count].chunks_mut(count.div_ceil(threads).max(1));
    on_threads(parts, |part| part.fill(MaybeUninit::new(value)));
    // SAFETY: the capacity is `count` at least, and each of the first `count` was written.
    unsafe { table.set_len(count) };
    table
}

#[cfg(target_os = "linux")]
fn advise<T>(table: &mut Vec<T>) {
    use rustix::mm::{Advice, madvise};
    let (page, spare) = (rustix::param::page_size(), table.spare_capacity_mut());
    let start = spare.as_mut_ptr().cast::<u8>();
    let skipped = start.align_offset(page);
    let bytes = size_of_val(spare).saturating_sub(skipped) / page * page;
    if bytes == 0 {
        return;
    }
    // SAFETY: the pages lie within the table's own memory, of which nothing is changed: this is a hint on what it is
    // kept in. Where the kernel has no large pages it says so, and nothing is lost.
    let _ = unsafe { madvise(start.add(skipped).cast(), bytes, Advice::LinuxHugepage) };
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_table: &mut Vec<T>) {}
