//! Classes and pools that may fill only a part of the cache.
//!
//! A class or pool at its bound makes room out of its own: the policy names a victim *among* its units. So that the
//! policy can answer, units of a bounded class and of a bounded pool stand in lists of their own. Each pair of them is
//! a *group*, and all units without a bound are in the first.

use crate::units::{POOLS_MAX, Pool};
use plimsoll_core::Class;
use plimsoll_core::class::{CLASSES, Scheme};

/// Most groups: a policy looks at the lists of all of them for each unit that leaves.
pub const GROUPS_MAX: usize = 64;

/// The units among which one may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// All units.
    All,
    /// The units of a class with a bound.
    Class(Class),
    /// The units of a pool with a bound.
    Pool(Pool),
}

/// The bound classes and pools, and how many units each has.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Units that each class may have in the cache's order.
    class_units_max: [u32; CLASSES],
    pool_units_max: Vec<u32>,
    class_units: [u32; CLASSES],
    pool_units: Vec<u32>,
    /// 0 without a bound, else the number among those with one, from 1.
    class_rank: [u8; CLASSES],
    pool_rank: Vec<u8>,
    pool_ranks: usize,
    groups: usize,
}

impl Partition {
    /// The bounds of `scheme` and of `pools` (each with its part of the cache) in a cache of `units`. `None` if they
    /// make more than [`GROUPS_MAX`] groups.
    pub fn new(units: u32, scheme: &Scheme, pools: &[(Pool, f64)]) -> Option<Partition> {
        let part = |part: f64| ((f64::from(units) * part) as u32).max(1);
        let mut partition = Partition {
            class_units_max: [u32::MAX; CLASSES],
            pool_units_max: vec![u32::MAX; POOLS_MAX],
            class_units: [0; CLASSES],
            pool_units: vec![0; POOLS_MAX],
            class_rank: [0; CLASSES],
            pool_rank: vec![0; POOLS_MAX],
            pool_ranks: pools.len() + 1,
            groups: 0,
        };
        let mut classes = 0;
        for entry in scheme.entries().filter(|entry| entry.occupancy_max < 1.0) {
            classes += 1;
            let class = usize::from(entry.number.number());
            (partition.class_rank[class], partition.class_units_max[class]) = (classes, part(entry.occupancy_max));
        }
        partition.groups = (usize::from(classes) + 1) * partition.pool_ranks;
        if partition.groups > GROUPS_MAX {
            return None;
        }
        for (rank, &(pool, occupancy_max)) in pools.iter().enumerate() {
            let pool = usize::from(pool.number());
            (partition.pool_rank[pool], partition.pool_units_max[pool]) = (rank as u8 + 1, part(occupancy_max));
        }
        Some(partition)
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The group of a unit.
    #[inline]
    pub fn group(&self, class: Class, pool: Pool) -> usize {
        let class_rank = usize::from(self.class_rank[usize::from(class.number())]);
        class_rank * self.pool_ranks + usize::from(self.pool_rank[usize::from(pool.number())])
    }

    /// Whether a group's units are among those that may leave.
    pub fn is_among(&self, group: usize, among: Among) -> bool {
        match among {
            Among::All => true,
            Among::Class(class) => group / self.pool_ranks == usize::from(self.class_rank[usize::from(class.number())]),
            Among::Pool(pool) => group % self.pool_ranks == usize::from(self.pool_rank[usize::from(pool.number())]),
        }
    }

    /// The class or pool that must make room before one more unit of `class` and `pool` enters; `None` if neither must.
    #[inline]
    pub fn must_make_room(&self, class: Class, pool: Pool) -> Option<Among> {
        let (c, p) = (usize::from(class.number()), usize::from(pool.number()));
        if self.class_units[c] >= self.class_units_max[c] {
            return Some(Among::Class(class));
        }
        (self.pool_units[p] >= self.pool_units_max[p]).then_some(Among::Pool(pool))
    }

    /// Whether `class` has more units than it may have.
    pub fn is_beyond(&self, class: Class) -> bool {
        let class = usize::from(class.number());
        self.class_units[class] > self.class_units_max[class]
    }

    /// Whether `pool` has more units than it may have.
    pub fn is_pool_beyond(&self, pool: Pool) -> bool {
        let pool = usize::from(pool.number());
        self.pool_units[pool] > self.pool_units_max[pool]
    }

    /// So many units of each class and of each pool came into the cache's order.
    pub fn came_at_once(&mut self, classes: &[u32; CLASSES], pools: &[u32]) {
        self.class_units.iter_mut().zip(classes).for_each(|(units, more)| *units += more);
        self.pool_units.iter_mut().zip(pools).for_each(|(units, more)| *units += more);
    }

    /// A unit came into the cache's order.
    pub fn came(&mut self, class: Class, pool: Pool) {
        self.class_units[usize::from(class.number())] += 1;
        self.pool_units[usize::from(pool.number())] += 1;
    }

    /// A unit left it.
    pub fn left(&mut self, class: Class, pool: Pool) {
        self.class_units[usize::from(class.number())] -= 1;
        self.pool_units[usize::from(pool.number())] -= 1;
    }

    /// Units of a class in the cache's order.
    pub fn class_units(&self, class: Class) -> u32 {
        self.class_units[usize::from(class.number())]
    }

    /// The units that a pool may have at most; `u32::MAX` without a bound.
    pub fn pool_units_max(&self, pool: Pool) -> u32 {
        self.pool_units_max[usize::from(pool.number())]
    }

    /// Units in the cache's order, of all pools.
    pub(crate) fn pool_units_of_all(&self) -> u32 {
        self.pool_units.iter().sum()
    }

    /// Units of a pool in the cache's order.
    pub fn pool_units(&self, pool: Pool) -> u32 {
        self.pool_units[usize::from(pool.number())]
    }
}
