//! The policies that there are, by name: fixed ones, and the one that adapts.

use crate::{Adaptive, Policy};

/// What service threads go by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rules {
    /// A policy that stays.
    Fixed(Policy),
    /// Queues and slices follow from the needs of earlier requests of the same sort: [`Adaptive`].
    Adaptive,
}

impl Rules {
    /// By name, as a configuration has them.
    pub const ALL: [(&'static str, Rules); 5] = [
        ("baseline", Rules::Fixed(Policy::BASELINE)),
        ("sord", Rules::Fixed(Policy::SORD)),
        ("qats", Rules::Fixed(Policy::QATS)),
        ("combo", Rules::Fixed(Policy::COMBO)),
        ("adaptive", Rules::Adaptive),
    ];

    /// Slices and weights; dispatching too where it stays.
    pub(crate) fn policy(&self) -> Policy {
        match self {
            Rules::Fixed(policy) => *policy,
            Rules::Adaptive => Adaptive::POLICY,
        }
    }
}
