//! A storage server with requests that compete for its processors: the platforms of the request executor's paper (ACM
//! TOS 2018).
//!
//! **Intuition.** Clients send requests at a given rate, whatever becomes of them. What a request needs first is a
//! thread; so there is a queue before the threads long before there is one before the drives. **Rule.** What decides is
//! [`plimsoll_executor`]'s: its [`Queues`], its [`Selector`] and [`Turn`] for each thread, its [`Policy`], asked as its
//! own threads ask them. Here stands only how long what they decide takes, and how maintenance is done in time, which
//! is the paper's system's own (`log.rs`). **Complication.** A thread that takes another turn comes with cold caches,
//! which costs it [`Costs::turn`]; so a policy of long slices does more.
//!
//! ```text
//!   clients --rate--> queues -> threads --+--> done            write: once in the log
//!                       ^                 +--> preempted ----+
//!                       |                 +--> suspended: a drive, the flash cache, the log is full
//!                       +------ resumed <------+
//! ```
//!
//! Every number stands with its source in `docs/simulator.md`.

mod back_end;
mod chance;
mod log;
mod platform;
mod request;
mod server;
mod workload;

pub use platform::{PLATFORMS, Platform};
pub use server::{Filer, FilerFigures};
pub use workload::{FilerWorkload, RequestStream, WORKLOADS};

use plimsoll_core::Span;
use plimsoll_executor::Policy;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct FilerConfig {
    /// On what.
    pub platform: Platform,
    /// What clients ask for.
    pub workload: FilerWorkload,
    /// Requests a second.
    pub per_second: f64,
    /// By which rules.
    pub policy: Policy,
    /// Where a request waits is chosen by [`plimsoll_executor::Adaptive`], and not by the policy's dispatching.
    pub is_adaptive: bool,
    /// Whether a turn of maintenance ends with the run in which a client's request came, as in the service threads.
    /// Otherwise it serves its slice out, as in the paper.
    pub maintenance_gives_way: bool,
    /// How much of a processor things take.
    pub costs: Costs,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// Processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Of a client's request without its data, on average over its runs together.
    pub request: Span,
    /// Of a KiB of data more.
    pub kib: Span,
    /// Deviation of the logarithm of a request's time, which is distributed normally.
    pub deviation: f64,
    /// Of a turn of a thread: what a thread loses that comes to a queue.
    pub turn: Span,
    /// Of an operation of a consistency point, on average.
    pub operation: Span,
}

impl Costs {
    /// Those with which the baseline's mean response time comes to 30 ms where the paper's does.
    pub const PAPER: Costs = Costs {
        request: Span::from_micros(113),
        kib: Span::from_micros(1),
        deviation: 1.18,
        turn: Span::from_micros(20),
        operation: Span::from_micros(500),
    };
}
