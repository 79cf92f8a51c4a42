//! A queue from many threads to one receiver that waits for none of them.
//!
//! **Intuition.** A basket: a thread that has something puts it in, and the receiver takes all that is in it. **Rule.**
//! A list with one head (Treiber 1986). A sender lets its node point at the head and makes the node the head, in one
//! exchange. The receiver swaps the head for nothing, and turns round what it has, so that it is in order. No thread
//! sees a node before it is whole, so there is nothing to wait for. The sender that puts the first node into an empty
//! basket wakes the receiver.
//!
//! **Why no queue of crossbeam's or of std's.** There, a sender takes a place first and fills it then. The receiver
//! that takes it out spins meanwhile. An engine's thread may be real-time ([`urgency`](super::urgency)). It may have
//! preempted, on its own processor, the very thread that it would spin for. Both would stand still until the kernel
//! throttles it, for up to a second.
//!
//! **Complication.** A node is memory of its own. The receiver uses it again, so nothing is allocated once as many were
//! under way as ever.

use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A node of the list.
pub(super) struct Node<T> {
    pub(super) content: T,
    /// Which was put in before it, while it is in the basket.
    before: AtomicPtr<Node<T>>,
}

impl<T> Node<T> {
    pub(super) fn new(content: T) -> Box<Node<T>> {
        Box::new(Node { content, before: AtomicPtr::default() })
    }
}

/// See the [module's text](self).
pub(super) struct Basket<T: Send + 'static> {
    /// Which was put in last; null if it is empty.
    last: AtomicPtr<Node<T>>,
}

impl<T: Send + 'static> Default for Basket<T> {
    fn default() -> Basket<T> {
        Basket { last: AtomicPtr::default() }
    }
}

impl<T: Send + 'static> Basket<T> {
    /// Puts a node in, and says whether the basket was empty: then the receiver has to be told. O(1); from any thread.
    pub(super) fn put(&self, node: Box<Node<T>>) -> bool {
        let node = Box::leak(node);
        let mut last = self.last.load(Relaxed);
        loop {
            *node.before.get_mut() = last;
            // Release: the receiver sees what is in it.
            match self.last.compare_exchange_weak(last, ptr::from_mut(node), Release, Relaxed) {
                Ok(_) => return last.is_null(),
                Err(now) => last = now,
            }
        }
    }

    /// Takes all that is in it, in the order in which it was put in. O(nodes), and waits for no thread.
    pub(super) fn take(&self) -> Vec<Box<Node<T>>> {
        let mut taken = Vec::new();
        self.take_into(&mut taken);
        taken
    }

    /// As [`take`](Self::take), behind what `taken` has.
    pub(super) fn take_into(&self, taken: &mut Vec<Box<Node<T>>>) {
        let from = taken.len();
        let mut last = self.last.swap(ptr::null_mut(), Acquire);
        while !last.is_null() {
            // SAFETY: it is a box that `put` leaked. Since the head was swapped for null no other thread can reach it
            // or those before it: a thread that puts something in only compares the head's address and never follows
            // it, and each that is before another is before it alone.
            let node = unsafe { Box::from_raw(last) };
            last = node.before.load(Relaxed);
            taken.push(node);
        }
        taken[from..].reverse();
    }
}

impl<T: Send + 'static> Drop for Basket<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Four put in what they number, and one takes whenever it is told. Broken on purpose and seen red: what is taken
    /// is not turned round; the head is written and not exchanged (a crash).
    /// Promise: volume-no-spinning.
    #[test]
    fn what_several_put_in_is_taken_once_and_in_the_order_of_each() {
        const PUTTERS: usize = 4;
        const EACH: usize = 20_000;
        let (basket, told) = (Basket::default(), AtomicUsize::new(0));
        let mut next = [0; PUTTERS];
        std::thread::scope(|scope| {
            for putter in 0..PUTTERS {
                let (basket, told) = (&basket, &told);
                scope.spawn(move || {
                    for number in 0..EACH {
                        if basket.put(Node::new((putter, number))) {
                            told.fetch_add(1, Release);
                        }
                    }
                });
            }
            let (mut taken, mut heard, mut turns) = (Vec::new(), 0, 0_u64);
            while next != [EACH; PUTTERS] {
                // As a receiver that sleeps until it is told: what is not told of is never taken.
                while told.load(Acquire) == heard {
                    turns += 1;
                    assert!(turns < 100_000_000, "not told of all: {next:?}");
                    std::thread::yield_now();
                }
                heard = told.load(Acquire);
                basket.take_into(&mut taken);
                for node in taken.drain(..) {
                    let (putter, number) = node.content;
                    assert_eq!(number, next[putter], "of {putter}");
                    next[putter] += 1;
                }
            }
        });
        assert!(basket.take().is_empty());
    }

    /// Broken on purpose and seen red: it is told of every node but the first.
    #[test]
    fn what_is_left_in_a_basket_goes_with_it() {
        let content = Arc::new(());
        let basket = Basket::default();
        assert!(basket.put(Node::new(content.clone())) && !basket.put(Node::new(content.clone())));
        let taken = basket.take();
        assert!(basket.put(Node::new(content.clone())), "it was empty again");
        assert_eq!((taken.len(), Arc::strong_count(&content)), (2, 4));
        drop((basket, taken));
        assert_eq!(Arc::strong_count(&content), 1);
    }
}
