//! Operations that a cache has asked its device and its store for, by number, until the cache has heard of their ends.

use plimsoll_cache::store::Operation;
use rustix::io::Errno;

pub(super) struct Operations {
    by_number: Vec<Option<Operation>>,
    under_way: u32,
    /// Those that ended and of which the cache has not heard.
    pub ended: Vec<(u32, Result<(), Errno>)>,
}

impl Operations {
    /// At most `max` are under way.
    pub fn new(max: usize) -> Operations {
        Operations { by_number: vec![None; max], under_way: 0, ended: Vec::with_capacity(max) }
    }

    pub fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    pub fn get(&self, id: u32) -> Option<Operation> {
        self.by_number[id as usize]
    }

    pub fn begin(&mut self, operation: Operation) {
        self.under_way += 1;
        self.by_number[operation.id as usize] = Some(operation);
    }

    /// The cache hears of the end of an operation: its number is free.
    pub fn take(&mut self, id: u32) -> Operation {
        self.under_way -= 1;
        self.by_number[id as usize].take().expect("what ends was begun")
    }
}
