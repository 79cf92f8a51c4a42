//! A search for faults: random setups, requests, failures, changes of policy and restarts, each made from one number; a
//! crash at every step, and invariants looked at after every step. What fails is made small and printed.
//!
//! | variable | what it says |
//! | --- | --- |
//! | `SEARCH_SEED` | the one case that is played |
//! | `SEARCH_MINUTES` | how long [`search_soak`] goes on, default 1 |
//! | `SEARCH_SEEDS` | it ends after so many cases, if that is sooner |
//! | `SEARCH_THREADS` | how many cases are played at once, default 2 |

mod case;
mod faults;
mod look;
mod play;
mod shrink;

pub use faults::{Bad, Faults, Rate};

use case::Case;
use look::Tally;
use play::{Found, play};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::time::{Duration, Instant};

/// What `make test` gives the search: a budget, and nothing that is measured.
const TEST_SECONDS: u64 = 60;
/// A step takes less than a second; one that takes so long never ends.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// How often a long search says how far it is.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// Seeds that found something once are played first.
///
/// The first: a job that had ended copied a block again (C1 of November 2026). The second: a power failure in a start
/// after a kill tore both superblocks (D3). The third: a write with a bad unit waited for another one, and the only
/// place to copy waited for that write. The fourth: a write waited for a unit of its own when the last units that
/// could have come were bad. The fifth: a store lost what it had been told before a kill, and the flush of the next
/// daemon was held to promise that.
const FOUND_ONCE: &[u64] = &[
    17_759_649_602_287_658_121,
    8_830_998_875_740_193_630,
    11_392_552_194_936_201_039,
    2_945_016_987_504_538_954,
    8_530_084_417_911_634_994,
];
/// So many of them were cases without ranges of trims, and stay so.
const FOUND_BEFORE_RANGES: usize = 3;
/// So many of them were cases without the policy `s3_fifo`, and stay so.
const FOUND_BEFORE_S3_FIFO: usize = 5;

thread_local! {
    /// Panics of this thread are findings, and printed as such.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

#[allow(
    clippy::disallowed_methods,
    reason = "the search is a host: it has so much time, and sees what hangs; no case knows the time"
)]
fn now() -> Instant {
    Instant::now()
}

/// What a case finds; a panic is a finding, too.
fn quietly(play: impl FnOnce() -> Result<(), Found>) -> Result<(), Found> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                before(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let found = catch_unwind(AssertUnwindSafe(play));
    IS_QUIET.set(false);
    found.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(Found { step: usize::MAX - 1, error: format!("a panic: {}", text.unwrap_or_default()) })
    })
}

/// A case that failed.
struct Finding {
    case: Case,
    found: Found,
}

/// What one thread does now.
#[derive(Default)]
struct Worker {
    seed: AtomicU64,
    step: AtomicU64,
}

/// How long a search goes on.
struct Budget {
    time: Duration,
    seeds: u64,
    threads: usize,
    reports: bool,
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, and not {text:?}")))
}

/// Plays one case after the other until one fails or the budget is used up.
fn work(
    worker: &Worker,
    next: &AtomicU64,
    first: u64,
    budget: &Budget,
    began: Instant,
    total: &Mutex<Tally>,
) -> Option<Finding> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= budget.seeds || began.elapsed() >= budget.time {
            return None;
        }
        let seed = FOUND_ONCE.get(number as usize).copied().unwrap_or(first.wrapping_add(number));
        let (case, mut tally) = (Case::new(seed), Tally::default());
        worker.seed.store(seed, Ordering::Relaxed);
        let found = quietly(|| play(&case, &mut tally, |step| worker.step.store(step as u64, Ordering::Relaxed)));
        total.lock().expect("it is added to and read").add(&tally);
        if let Err(found) = found {
            return Some(Finding { case, found });
        }
    }
}

/// Searches, and answers what was done. Panics with what it finds, made small.
fn search(first: u64, budget: Budget) -> Tally {
    let (budget, began, total) = (Arc::new(budget), now(), Arc::new(Mutex::new(Tally::default())));
    let (next, (says, heard)) = (Arc::new(AtomicU64::new(0)), mpsc::channel());
    let workers: Vec<Arc<Worker>> = (0..budget.threads).map(|_| Arc::default()).collect();
    for worker in &workers {
        let (worker, next, budget, total, says) =
            (worker.clone(), next.clone(), budget.clone(), total.clone(), says.clone());
        // A case that hangs is left alone, and ends with the process.
        std::thread::spawn(move || says.send(work(&worker, &next, first, &budget, began, &total)));
    }
    let (mut left, mut reported, mut seen) = (workers.len(), began, vec![(0, 0, began); workers.len()]);
    while left > 0 {
        match heard.recv_timeout(Duration::from_secs(1)) {
            Ok(None) => left -= 1,
            Ok(Some(Finding { case, found })) => report(case, found),
            Err(_) => {}
        }
        for (worker, (seed, step, since)) in workers.iter().zip(&mut seen) {
            let is = (worker.seed.load(Ordering::Relaxed), worker.step.load(Ordering::Relaxed));
            if is != (*seed, *step) {
                (*seed, *step, *since) = (is.0, is.1, now());
            }
            assert!(left < workers.len() || since.elapsed() < HANGS_AFTER, "SEARCH_SEED={seed} hangs in step {step}");
        }
        if budget.reports && reported.elapsed() >= REPORT_EVERY {
            reported = now();
            println!("search: {}", summary(&total.lock().expect("it is added to and read"), began.elapsed()));
        }
    }
    let tally = *total.lock().expect("it is added to and read");
    println!("search: {}, nothing was found", summary(&tally, began.elapsed()));
    tally
}

fn summary(tally: &Tally, time: Duration) -> String {
    let Tally { cases, steps, crashes, starts } = tally;
    let (minutes, rate) = (time.as_secs() / 60, *starts as f64 / time.as_secs_f64().max(0.001));
    format!(
        "{minutes} minutes, {cases} seeds, {steps} steps, {crashes} crash points, {starts} starts, {rate:.0} a second"
    )
}

/// Makes the case small and panics with it.
fn report(case: Case, found: Found) -> ! {
    let (seed, first) = (case.seed, found.error.clone());
    let (case, found) = shrink::shrink(case, found);
    panic!(
        "the search found something; again with SEARCH_SEED={seed}\n{first}\n\nmade smaller, {} steps; it fails in step {}:\n{}\n\n{case}",
        case.steps.len(),
        found.step,
        found.error
    );
}

/// One case, if `SEARCH_SEED` names one.
///
/// The backtrace of a finding says nothing.
fn one_case() -> bool {
    let Some(seed) = variable("SEARCH_SEED") else { return false };
    let case = Case::new(seed);
    let found = quietly(|| play(&case, &mut Tally::default(), |_| {}));
    if let Err(found) = found {
        report(case, found);
    }
    true
}

/// Fixed seeds, and fresh ones, for as long as `make test` has for it. Outcome: nothing is found.
///
/// Planted breaks that were seen red are listed in `docs/cache-format.md`.
/// Promise: store-search, store-trim-race.
#[test]
fn the_search_finds_nothing() {
    if one_case() {
        return;
    }
    let threads = variable("SEARCH_THREADS").unwrap_or(2) as usize;
    let fixed = Budget { time: Duration::from_secs(TEST_SECONDS), seeds: 60, threads, reports: false };
    let began = now();
    search(0, fixed);
    let first = RandomState::new().hash_one(0);
    println!("search: fresh seeds from {first} on");
    let time = Duration::from_secs(TEST_SECONDS).saturating_sub(began.elapsed());
    search(first, Budget { time, seeds: u64::MAX, threads, reports: false });
}

/// The same with fresh seeds only, for as long as is wanted: `make soak`.
/// Promise: store-search.
#[test]
#[ignore = "as long as SEARCH_MINUTES says: make soak"]
fn search_soak() {
    if one_case() {
        return;
    }
    let first = variable("SEARCH_FROM").unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("search: fresh seeds from {first} on");
    let time = Duration::from_secs(60 * variable("SEARCH_MINUTES").unwrap_or(1));
    let threads = variable("SEARCH_THREADS").unwrap_or(2) as usize;
    let tally =
        search(first, Budget { time, seeds: variable("SEARCH_SEEDS").unwrap_or(u64::MAX), threads, reports: true });
    assert!(tally.starts > 0, "nothing was searched");
}
