//! The request executor of an enterprise filer (ACM TOS 2018): its rules, and the threads that follow them.
//!
//! **Intuition.** The requests of a storage server compete for its processors before they compete for its disks. So
//! there are few service threads and three queues. *High* is for short requests, *low* for the rest, *maintenance* for
//! work at a steady pace (flushing the log before it is full). **Rule.** A [`Policy`] says in which queue a request
//! waits ([`Dispatching`]). A free thread draws a queue by weight ([`Selector`]) and gets a time slice ([`Slicing`]).
//! It serves requests of that queue until the slice is spent; then it draws again. A request that has to wait (for a
//! lock, a block from the disk) is suspended, and *restarted* after the wait. One that takes more than the slice is
//! *preempted* and restarted.
//!
//! **Complication.** A lottery can pass a queue over for any time. Here it cannot: [`Selector`] gives a bound, which
//! the paper does not.
//!
//! What decides has no clock, thread or chance of its own: times and tickets are arguments, so the simulator runs it in
//! virtual time. The service threads ([`Executor`]) each have a [`Selector`] of their own and share only the queues and
//! their depths. `docs/executor.md` has the rules with their figures.

mod adaptive;
mod dispatching;
mod policy;
mod queues;
mod rules;
mod selector;
mod slices;
mod threads;
mod turn;

pub use adaptive::{Adaptive, LowSorts};
pub use dispatching::Dispatching;
pub use policy::Policy;
pub use queues::{Queues, URGENT_IN_A_ROW_MAX, Waiting};
pub use rules::Rules;
pub use selector::Selector;
pub use slices::Slicing;
pub use threads::{
    Checkpoint, Executor, ExecutorConfig, Figures, Full, QueueFigures, ThreadFigures, Watch, Watched, checkpoint,
    give_way, is_slice_spent,
};
pub use turn::Turn;

/// One of the three queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// Requests that are expected to be short.
    High,
    /// All other requests of clients.
    Low,
    /// What the server does for itself at a steady pace: consistency points.
    Maintenance,
}

/// Queues.
pub const QUEUES: usize = 3;

impl Queue {
    /// All of them, in the order of [`Queue::index`].
    pub const ALL: [Queue; QUEUES] = [Queue::High, Queue::Low, Queue::Maintenance];

    /// Its place in arrays of one element a queue.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What a request does, as far as a policy cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A client reads.
    Read,
    /// A client writes.
    Write,
    /// Anything else that a client wants.
    Other,
    /// Work of the server's own: consistency points, log flushing.
    Maintenance,
}

/// How a request comes to its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrival {
    /// For the first time.
    New,
    /// It was suspended for something that it lacked and that is there now.
    Resumed,
    /// It used up its slice before it was done.
    Preempted,
}

impl Arrival {
    /// Whether it had been run before: the paper's RS.
    pub fn is_restart(self) -> bool {
        self != Arrival::New
    }
}
