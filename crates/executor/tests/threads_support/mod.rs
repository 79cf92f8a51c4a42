//! What the tests of the service threads share: an executor, patience, and a request that keeps its thread.

#![allow(dead_code, reason = "each test file uses a part of it")]

use plimsoll_executor::{Executor, ExecutorConfig, Figures, Kind, Policy, Rules};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Sender;

pub type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

pub const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Other, Kind::Maintenance];

pub fn executor(threads: usize, requests_max: usize) -> Executor<Request> {
    ruled(Rules::Fixed(Policy::COMBO), threads, requests_max)
}

pub fn ruled(rules: Rules, threads: usize, requests_max: usize) -> Executor<Request> {
    Executor::start(ExecutorConfig { threads, rules, requests_max, seed: 1 }).unwrap()
}

pub fn pause() {
    let _ = rustix::thread::nanosleep(&rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1_000_000 });
}

/// Waits for something that must come.
pub fn wait_until(executor: &Executor<Request>, what: &str, is_so: impl Fn(&Figures) -> bool) -> Figures {
    let found = (0..60_000).find_map(|_| {
        let figures = executor.figures();
        if is_so(&figures) {
            return Some(figures);
        }
        pause();
        None
    });
    found.unwrap_or_else(|| panic!("never came: {what}: {:?}", executor.figures()))
}

pub fn all_done(executor: &Executor<Request>) -> Figures {
    wait_until(executor, "the end of all", |figures| figures.alive == 0)
}

/// Lets a blocker go, also when a test fails: else its executor would wait for it.
pub struct Go(pub Arc<AtomicBool>);

impl Drop for Go {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A request that keeps its thread until it is let go, and says when it has it.
pub fn blocker(go: &Go, begun: Sender<()>) -> Request {
    let go = go.0.clone();
    Box::pin(async move {
        begun.send(()).unwrap();
        while !go.load(SeqCst) {
            std::thread::yield_now();
        }
    })
}
