//! Whether an agent's lease has lasted while a test looked.
//!
//! A tenant beyond its limit is held as long as the agent says that it lives. Where the agent gets no processor for
//! half a second no tenant is held any more, and that is right. So a test's assertions about held tenants may fail
//! then, and the test runs again then, and only then.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use plimsoll_core::{Span, Time};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::words::{LEASE, LEASE_OFFSET};
use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// How often a test is tried, if the lease runs out each time.
const TRIES: u32 = 5;
/// A late renewal is seen however late the watcher looks, so this is only for the end of an agent.
const LOOK: Span = Span::from_millis(20);

thread_local! {
    /// A lease that this thread watched ran out.
    static HAS_RUN_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test, and once more where it has failed and a lease that it [watched](LeaseWatch) had run out.
pub fn unless_a_lease_runs_out(test: impl Fn()) {
    for _ in 1..TRIES {
        HAS_RUN_OUT.set(false);
        match catch_unwind(AssertUnwindSafe(&test)) {
            Ok(()) => return,
            Err(panic) if !HAS_RUN_OUT.get() => resume_unwind(panic),
            Err(_) => println!("once more: the agent's lease ran out meanwhile"),
        }
    }
    test();
}

/// Watches a lease until it is dropped, which is to be before the agent ends.
pub struct LeaseWatch {
    is_over: Arc<AtomicBool>,
    watcher: Option<JoinHandle<bool>>,
}

impl LeaseWatch {
    /// Of the agent that has this file of words.
    pub fn of(words: &Path) -> LeaseWatch {
        let (file, is_over) = (File::open(words).unwrap(), Arc::new(AtomicBool::new(false)));
        let (mut last, is_over_seen) = (until(&file), is_over.clone());
        let mut has_lasted = monotonic_now() < last;
        let watcher = std::thread::spawn(move || {
            loop {
                let is_last = is_over_seen.load(Ordering::Relaxed);
                let next = until(&file);
                // A renewal in time moves the lease on by no more than it lasts.
                has_lasted &= next.since(last) <= LEASE && monotonic_now() < next;
                if is_last {
                    return has_lasted;
                }
                last = next;
                let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
                let _ = rustix::thread::nanosleep(&pause);
            }
        });
        LeaseWatch { is_over, watcher: Some(watcher) }
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let has_lasted = self.watcher.take().is_none_or(|watcher| watcher.join().unwrap_or(false));
        HAS_RUN_OUT.set(HAS_RUN_OUT.get() || !has_lasted);
    }
}

/// When it ends, as the agent has said last.
pub fn until(words: &File) -> Time {
    let mut bytes = [0; 8];
    words.read_exact_at(&mut bytes, LEASE_OFFSET as u64).unwrap();
    Time::from_nanos(u64::from_ne_bytes(bytes))
}
