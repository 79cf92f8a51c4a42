//! Where processes and tenants of the simulator write their figures.

use crate::results::Source;
use plimsoll_core::Time;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What processes and tenants write their figures into, and when the experiment started.
#[derive(Clone, Default)]
pub(super) struct Recorder {
    pub(super) sources: Rc<RefCell<BTreeMap<String, Rc<RefCell<Source>>>>>,
    pub(super) start: Rc<Cell<Time>>,
}

impl Recorder {
    /// The figures of the processes or tenants of this name.
    pub(super) fn source(&self, name: &str) -> Rc<RefCell<Source>> {
        self.sources.borrow_mut().entry(name.to_owned()).or_default().clone()
    }

    /// The experiment's time: zero at its start.
    pub(super) fn at(&self, now: Time) -> Time {
        Time::ZERO + now.since(self.start.get())
    }
}
