//! Parallel work at a start, which serves no requests yet: several parts, each on its own thread.

use std::thread;

/// Units below which one thread is as fast as several.
const SHARED_UNITS_MIN: u32 = 1 << 16;
/// Threads at the most: beyond, memory is what they wait for.
const THREADS_MAX: usize = 8;

/// How many threads work on so many units.
pub(crate) fn threads_for(units: u32) -> usize {
    if units < SHARED_UNITS_MIN {
        1
    } else {
        thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX))
    }
}

/// Does `work` with each part, all at once, and answers what came of each. The last part is the caller's thread's.
pub(crate) fn on_threads<P: Send, R: Send>(parts: impl Iterator<Item = P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    let mut parts: Vec<P> = parts.collect();
    let Some(own) = parts.pop() else { return Vec::new() };
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        let own = work(own);
        let mut results: Vec<R> = Vec::with_capacity(others.len() + 1);
        results.extend(others.into_iter().map(|other| other.join().expect("it does not panic")));
        results.push(own);
        results
    })
}
