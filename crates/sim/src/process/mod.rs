//! Processes: ordinary `async` functions that make system calls.
//!
//! ```ignore
//! machine.spawn("writer", session, |process| async move {
//!     let file = process.create("/log").await.unwrap();
//!     loop {
//!         file.append(4.kib()).await;
//!         file.fsync().await;
//!         process.sleep(Span::from_millis(10)).await;
//!     }
//! });
//! ```
//!
//! Each process draws from a stream of its own, seeded by the machine's seed, its name and the number of earlier
//! processes of that name. So another process does not change what it draws. Processes of the same name share
//! statistics.

pub(crate) mod cpu;
mod entry;
mod metadata;

use crate::fs::{Actor, FileSystem};
use crate::machine::Machine;
use crate::statistics::ProcessStatistics;
use crate::trace::Trace;
use crate::writeback::throttle::Dirtier;
use plimsoll_core::{AccountId, Span, ThreadId, Time};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

/// Byte counts as people write them.
pub trait Bytes {
    /// So many KiB.
    fn kib(self) -> u64;
    /// So many MiB.
    fn mib(self) -> u64;
    /// So many GiB.
    fn gib(self) -> u64;
}

impl Bytes for u64 {
    fn kib(self) -> u64 {
        self << 10
    }
    fn mib(self) -> u64 {
        self << 20
    }
    fn gib(self) -> u64 {
        self << 30
    }
}

/// A process with one thread; clones are the same process.
#[derive(Clone)]
pub struct Process(Rc<Inner>);

struct Inner {
    machine: Machine,
    actor: Actor,
    thread: ThreadId,
    random: RefCell<Pcg64Mcg>,
    statistics: Rc<ProcessStatistics>,
    dirtier: Dirtier,
    /// Processor time so far, nanoseconds, as the cores count it.
    has_run: Cell<u64>,
}

impl Machine {
    /// Starts a process of `session`.
    pub fn spawn<Program, Run>(&self, name: &str, session: AccountId, program: Program)
    where
        Program: FnOnce(Process) -> Run,
        Run: Future<Output = ()> + 'static,
    {
        let run = program(self.thread(name, session));
        self.statistics.start_process();
        let machine = self.clone();
        self.executor.spawn_process(name, async move {
            run.await;
            machine.statistics.end_process();
        });
    }

    /// A process of `session` for a task that makes calls without end: no process waits for it.
    pub(crate) fn thread(&self, name: &str, session: AccountId) -> Process {
        let (thread, twins, statistics) = self.statistics.add_thread(name);
        Process(Rc::new(Inner {
            machine: self.clone(),
            actor: Actor::process(session),
            thread: ThreadId(thread),
            random: RefCell::new(stream(self.config.seed, name, twins)),
            statistics,
            dirtier: Dirtier::new(self),
            has_run: Cell::new(0),
        }))
    }
}

/// The stream of the `twins`-th process of this name.
fn stream(seed: u64, name: &str, twins: u64) -> Pcg64Mcg {
    let hash = Trace::default();
    for byte in name.bytes() {
        hash.record(crate::trace::Event::CallEntered, Time::ZERO, u64::from(byte), seed);
    }
    // The generator needs an odd state.
    Pcg64Mcg::new((u128::from(hash.hash()) << 64 | u128::from(twins) << 1) | 1)
}

impl Process {
    /// The machine that it runs on.
    pub fn machine(&self) -> &Machine {
        &self.0.machine
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.0.machine.now()
    }

    /// The session that it belongs to.
    pub fn session(&self) -> AccountId {
        self.0.actor.session
    }

    /// Its thread.
    pub fn thread(&self) -> ThreadId {
        self.0.thread
    }

    /// What it experienced.
    pub fn statistics(&self) -> &ProcessStatistics {
        &self.0.statistics
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.0.actor
    }

    pub(crate) fn dirtier(&self) -> &Dirtier {
        &self.0.dirtier
    }

    pub(crate) fn file_system(&self) -> &dyn FileSystem {
        &*self.0.machine.file_system
    }

    /// Waits.
    pub async fn sleep(&self, span: Span) {
        self.0.machine.executor.sleep(span).await;
    }

    /// Waits until `deadline`.
    pub async fn sleep_until(&self, deadline: Time) {
        self.0.machine.executor.sleep_until(deadline).await;
    }

    /// Uses so much of a core's time, which takes longer if there are more processes than cores.
    pub async fn compute(&self, span: Span) {
        self.0.machine.cpu.compute(&self.0.machine.executor, &self.0.has_run, span).await;
    }

    /// A number from 0 to `bound` - 1, each as likely; `bound` must not be 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        let draw = self.0.random.borrow_mut().next_u64();
        ((u128::from(draw) * u128::from(bound)) >> 64) as u64
    }
}
