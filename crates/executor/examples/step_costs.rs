//! What the engine's thread does itself takes, of what could be a request's heavy step: checksums, copies, and memory
//! that is given back.
//!
//! `cargo run --profile quick -p plimsoll-executor --example step_costs` prints microseconds, the median of a few
//! hundred rounds, for what is in the processor's caches and for what is not (docs/executor.md).

use plimsoll_core::crc32c;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 301;
/// More than a processor's caches: what was used so long ago is not in them.
const ALL_BYTES: usize = 256 << 20;

#[allow(clippy::disallowed_methods, reason = "it measures")]
fn microseconds(step: impl FnOnce()) -> f64 {
    let from = Instant::now();
    step();
    from.elapsed().as_secs_f64() * 1e6
}

fn median(mut of: impl FnMut(usize) -> f64) -> f64 {
    let mut all: Vec<f64> = (0..ROUNDS).map(&mut of).collect();
    all.retain(|one| one.is_finite());
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Memory that was never touched.
struct Fresh(*mut u8, usize);

impl Fresh {
    fn new(length: usize) -> Fresh {
        // SAFETY: a new mapping, which only this code has.
        let mapped = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        Fresh(mapped.expect("there is memory").cast(), length)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: all of the mapping, borrowed from its one owner.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }

    /// As a trim of a volume in memory does it.
    fn give_back(&mut self) {
        // SAFETY: private anonymous pages of our own, which read as zeroes afterwards.
        unsafe { madvise(self.0.cast(), self.1, Advice::LinuxDontneedLocked) }.expect("it is given back");
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows it any more.
        let _ = unsafe { munmap(self.0.cast(), self.1) };
    }
}

fn main() {
    let source: Vec<u8> = (0..ALL_BYTES).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut target = vec![0; 256 << 10];
    for length in [4096, 64 << 10, 256 << 10] {
        // Somewhere else each time, or always the same.
        let cold = |round: usize| (round * 7919 * 4096) % (ALL_BYTES - length);
        for (memory, place) in [("cached", None), ("not cached", Some(cold))] {
            let part = |round: usize| {
                let start = place.map_or(0, |place| place(round));
                &source[start..start + length]
            };
            let checksum = median(|round| microseconds(|| _ = black_box(crc32c(black_box(part(round))))));
            let copy = median(|round| microseconds(|| black_box(&mut target)[..length].copy_from_slice(part(round))));
            println!("{:>4} KiB, {memory:>10}: CRC-32C {checksum:6.2} us, copied {copy:6.2} us", length >> 10);
        }
    }
    for length in [4096, 64 << 10, 256 << 10, 1 << 20] {
        let mut fresh: Vec<Fresh> = (0..ROUNDS.min((2 << 30) / length)).map(|_| Fresh::new(length)).collect();
        let count = fresh.len();
        let copy = median(|round| {
            let bytes = fresh[round % count].bytes();
            // Only the first time is the first time.
            if round < count { microseconds(|| bytes.copy_from_slice(&source[..length])) } else { f64::INFINITY }
        });
        let given_back = median(|round| {
            let fresh = &mut fresh[round % count];
            fresh.bytes().fill(1);
            microseconds(|| fresh.give_back())
        });
        println!("{:>5} KiB: copied to new memory {copy:8.2} us, given back {given_back:8.2} us", length >> 10);
    }
}
