//! Recycled boxes shared by threads, none of which waits for another.
//!
//! **Intuition.** Shelves: a thread with a thing to spare lays it on the first shelf that no other thread holds. A
//! thread that needs one takes it from the first such shelf that has any. **Rule.** Each shelf is a stack behind a lock
//! that is tried and never waited for. **The complication.** With one shelf, a thread that comes while another holds it
//! leaves with nothing, and has to allocate. With more shelves, that happens only beside as many other threads, and an
//! empty shelf costs a look. If another thread holds the only shelf with things, a new thing has to be made, and comes
//! back, too. A shelf drops what it has no room for, so no more is kept than was ever there at once.

use crossbeam_utils::CachePadded;
use std::sync::{Mutex, MutexGuard};

/// Only a thread that comes while as many others hold shelves finds none free.
const SHELVES: usize = 4;

/// See the [module's text](self).
pub(super) struct Spare<T> {
    shelves: [CachePadded<Mutex<Vec<T>>>; SHELVES],
}

impl<T> Spare<T> {
    /// Has room for `things_max`, wherever they lie, without allocating once more.
    pub(super) fn with_capacity(things_max: usize) -> Spare<T> {
        Spare { shelves: std::array::from_fn(|_| CachePadded::new(Mutex::new(Vec::with_capacity(things_max)))) }
    }

    /// Keeps it; it is dropped if other threads hold all shelves. O(1); never waits.
    pub(super) fn put(&self, thing: T) {
        let has_room = |shelf: &MutexGuard<'_, Vec<T>>| shelf.len() < shelf.capacity();
        let free = self.shelves.iter().filter_map(|shelf| shelf.try_lock().ok());
        if let Some(mut shelf) = free.into_iter().find(has_room) {
            shelf.push(thing);
        }
    }

    /// A kept thing, if there is one on a shelf that no other thread holds. O(1); never waits.
    pub(super) fn take(&self) -> Option<T> {
        self.shelves.iter().find_map(|shelf| shelf.try_lock().ok()?.pop())
    }

    /// Stands at all shelves.
    #[cfg(test)]
    pub(super) fn hold(&self) -> Vec<MutexGuard<'_, Vec<T>>> {
        self.shelves.iter().map(|shelf| shelf.lock().expect("no thread panics there")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Broken on purpose and seen red: only the first shelf is looked at, by a put, and by a take.
    #[test]
    fn a_thread_that_finds_another_at_a_shelf_goes_to_the_next_one() {
        let spare = Spare::with_capacity(2);
        spare.put(1);
        let at_first = spare.shelves[0].lock().unwrap();
        assert_eq!(spare.take(), None, "the one that has it is taken");
        spare.put(2);
        assert_eq!(spare.take(), Some(2), "it lay on the second one");
        drop(at_first);
        assert_eq!((spare.take(), spare.take()), (Some(1), None));
    }

    #[test]
    fn where_a_thread_is_at_each_shelf_no_other_waits() {
        let spare = Spare::with_capacity(1);
        let all = spare.hold();
        spare.put(1);
        assert_eq!(spare.take(), None);
        drop(all);
        assert_eq!(spare.take(), None, "it was dropped");
    }

    /// A thread holds the shelf with things, again and again, so that others are made, and come back. Planted break: a
    /// shelf takes whatever comes.
    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        const THINGS: usize = 3;
        let spare = Spare::with_capacity(THINGS);
        for _ in 0..10 * THINGS {
            let at_first = spare.shelves[0].lock().unwrap();
            let taken = spare.take();
            drop(at_first);
            spare.put(taken.unwrap_or(0));
        }
        let kept = spare.shelves.iter().map(|shelf| shelf.lock().unwrap().len()).max();
        assert!(kept <= Some(spare.shelves[0].lock().unwrap().capacity()), "{kept:?}");
        assert_eq!(spare.shelves[0].lock().unwrap().capacity(), THINGS, "none has grown");
    }
}
