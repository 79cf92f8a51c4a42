//! The service trees: which queue's turn it is.
//!
//! Seven trees: three kinds of workload in real time, three at best effort, one for the idle class. In each, queues
//! stand by the time at which they should be served. The tree with the earliest head is served for a while, then the
//! choice is made again.

use super::queue::{IoClass, ThinkTime, Workload};
use std::collections::BTreeSet;

const TREES: usize = 7;
const WORKLOADS: [Workload; 3] = [Workload::Async, Workload::SyncNoIdle, Workload::Sync];

/// When a queue should be served, in nanoseconds on the host's clock; below zero for one that goes ahead of all.
pub type TreeKey = i64;

/// Where a queue stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    tree: usize,
    key: TreeKey,
    /// Equal keys stand in the order in which they came.
    number: u64,
    is_sync: bool,
}

#[derive(Default)]
struct Tree {
    queues: BTreeSet<(TreeKey, u64, usize)>,
    think: ThinkTime,
}

/// See the module's text. Queues are known by their index.
#[derive(Default)]
pub struct ServiceTrees {
    trees: [Tree; TREES],
    standings: Vec<Option<Standing>>,
    number: u64,
    busy: usize,
    busy_sync: usize,
}

fn tree_of(class: IoClass, workload: Workload) -> usize {
    match class {
        IoClass::RealTime => workload as usize,
        IoClass::BestEffort => WORKLOADS.len() + workload as usize,
        IoClass::Idle => TREES - 1,
    }
}

impl ServiceTrees {
    /// Puts `queue` where its class, workload and key say, wherever it stood before.
    pub fn put(&mut self, queue: usize, class: IoClass, workload: Workload, key: TreeKey) {
        self.remove(queue);
        if self.standings.len() <= queue {
            self.standings.resize(queue + 1, None);
        }
        self.number += 1;
        let is_sync = workload != Workload::Async;
        let standing = Standing { tree: tree_of(class, workload), key, number: self.number, is_sync };
        self.trees[standing.tree].queues.insert((key, standing.number, queue));
        self.standings[queue] = Some(standing);
        self.busy += 1;
        self.busy_sync += usize::from(is_sync);
    }

    /// Takes `queue` out, if it stands in a tree.
    pub fn remove(&mut self, queue: usize) {
        let Some(standing) = self.standings.get_mut(queue).and_then(Option::take) else { return };
        self.trees[standing.tree].queues.remove(&(standing.key, standing.number, queue));
        self.busy -= 1;
        self.busy_sync -= usize::from(standing.is_sync);
    }

    /// Whether `queue` stands in a tree.
    pub fn holds(&self, queue: usize) -> bool {
        self.standings.get(queue).is_some_and(Option::is_some)
    }

    /// How many queues stand in the tree that `queue` is in.
    pub fn companions(&self, queue: usize) -> usize {
        let standing = self.standings.get(queue).copied().flatten();
        standing.map_or(0, |standing| self.trees[standing.tree].queues.len())
    }

    /// The think time of the tree that `queue` stands in, or would.
    pub fn think(&mut self, queue: usize, class: IoClass, workload: Workload) -> &mut ThinkTime {
        let standing = self.standings.get(queue).copied().flatten();
        let tree = standing.map_or(tree_of(class, workload), |standing| standing.tree);
        &mut self.trees[tree].think
    }

    /// Queues in all trees, and how many of them are synchronous.
    pub fn busy(&self) -> (usize, usize) {
        (self.busy, self.busy_sync)
    }

    /// Queues in the trees of `class`.
    pub fn busy_in(&self, class: IoClass) -> usize {
        match class {
            IoClass::Idle => self.trees[TREES - 1].queues.len(),
            _ => WORKLOADS.iter().map(|&workload| self.count(class, workload)).sum(),
        }
    }

    /// Queues in one tree.
    pub fn count(&self, class: IoClass, workload: Workload) -> usize {
        self.trees[tree_of(class, workload)].queues.len()
    }

    /// The first queue of a tree and its key.
    pub fn first(&self, class: IoClass, workload: Workload) -> Option<(TreeKey, usize)> {
        self.trees[tree_of(class, workload)].queues.first().map(|&(key, _, queue)| (key, queue))
    }

    /// The last key of the idle class.
    pub fn last_idle(&self) -> Option<TreeKey> {
        self.trees[TREES - 1].queues.last().map(|&(key, ..)| key)
    }

    /// The kind of workload in `class` that has the queue due first.
    pub fn earliest(&self, class: IoClass) -> Option<Workload> {
        let first = |&workload: &Workload| self.first(class, workload).map(|(key, _)| (key, workload));
        WORKLOADS.iter().filter_map(first).min_by_key(|&(key, _)| key).map(|(_, workload)| workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLASSES: [IoClass; 3] = [IoClass::RealTime, IoClass::BestEffort, IoClass::Idle];

    proptest! {
        #[test]
        fn agrees_with_a_list(
            steps in proptest::collection::vec((0usize..12, 0usize..3, 0usize..3, 0i64..20, any::<bool>()), 1..150),
        ) {
            let (mut trees, mut oracle) = (ServiceTrees::default(), Vec::<(TreeKey, usize, IoClass, Workload)>::new());
            for (queue, class, workload, key, stays) in steps {
                let (class, workload) = (CLASSES[class], WORKLOADS[workload]);
                oracle.retain(|entry| entry.1 != queue);
                match stays {
                    true => {
                        trees.put(queue, class, workload, key);
                        oracle.push((key, queue, class, workload));
                        oracle.sort_by_key(|entry| entry.0); // Stable: equal keys stay in the order in which they came.
                    }
                    false => trees.remove(queue),
                }
                let sync = oracle.iter().filter(|entry| entry.3 != Workload::Async).count();
                prop_assert_eq!(trees.busy(), (oracle.len(), sync));
                prop_assert_eq!(trees.holds(queue), stays);
                for class in [IoClass::RealTime, IoClass::BestEffort] {
                    let of_class = || oracle.iter().filter(move |entry| entry.2 == class);
                    prop_assert_eq!(trees.busy_in(class), of_class().count());
                    let earliest = trees.earliest(class).and_then(|workload| trees.first(class, workload));
                    prop_assert_eq!(earliest.map(|first| first.0), of_class().map(|entry| entry.0).next());
                    for workload in WORKLOADS {
                        let mut of_tree = of_class().filter(|entry| entry.3 == workload).peekable();
                        let first = of_tree.peek().map(|entry| (entry.0, entry.1));
                        prop_assert_eq!(trees.first(class, workload), first);
                        prop_assert_eq!(trees.count(class, workload), of_tree.count());
                    }
                }
                let idle = oracle.iter().rfind(|entry| entry.2 == IoClass::Idle);
                prop_assert_eq!(trees.last_idle(), idle.map(|entry| entry.0));
            }
        }
    }
}
