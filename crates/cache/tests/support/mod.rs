//! The slow and obvious cache: a list of blocks, gone through for everything.
#![allow(dead_code, reason = "each test uses a part of it")]

use plimsoll_cache::duel::{Tally, Way};
use plimsoll_cache::ghosts::Ghosts;
use plimsoll_cache::miss_costs::MissCosts;
use plimsoll_cache::s3_fifo::GhostQueue;
use plimsoll_cache::stays::Stays;
use plimsoll_cache::{Access, CacheConfig, PolicyEntry, Pool, policies};
use plimsoll_core::Class;
use plimsoll_core::class::Admission;
use std::collections::VecDeque;

pub fn policy(name: &str) -> &'static PolicyEntry {
    policies().iter().find(|policy| policy.name == name).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    InOrder,
    Cleaning,
    Wanted,
    Free,
    Aside,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub block: u64,
    pub class: Class,
    pub pool: Pool,
    pub is_dirty: bool,
    pub place: Place,
    is_again: bool,
    /// The frequency under S3-FIFO.
    uses: u8,
    /// Units taken in when it was put in order, in whole steps.
    stamp: u64,
    /// When it was put where it is.
    turn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Hit,
    Taken,
    Refused,
    Busy,
    Full,
}

pub struct Slow {
    name: &'static str,
    config: CacheConfig,
    pub entries: Vec<Entry>,
    to_clean: VecDeque<u64>,
    cleaning: u32,
    /// Units with a block that was trimmed while it was copied.
    trimmed: u32,
    taken: u64,
    turn: u64,
    pub is_awake: bool,
    again_halves: i64,
    ghosts: [Ghosts; 2],
    ghost_queue: GhostQueue,
    /// The way of `credit`.
    pub way: Way,
    duel: Option<Box<SlowDuel>>,
}

/// As long as a cache is small, its shadows are as large.
struct SlowDuel {
    strict: Slow,
    level: Slow,
    costs: MissCosts,
    tally: Tally,
    stays: Stays,
}

impl SlowDuel {
    fn new(config: &CacheConfig) -> SlowDuel {
        let &CacheConfig { units, promotes_reads, seed, .. } = config;
        let (scheme, pools) = (config.scheme.clone(), config.pools.clone());
        let shadow =
            CacheConfig { promotes_reads, pools, seed: seed.wrapping_add(1), ..CacheConfig::new(units, scheme) };
        SlowDuel {
            strict: Slow::new("selective", &shadow),
            level: Slow::new("level", &shadow),
            costs: MissCosts::default(),
            tally: Tally::new(units),
            stays: Stays::new(units),
        }
    }

    fn observed(&mut self, access: &Access, is_busy: bool, way: Way) -> Way {
        self.costs.observed(access.block, access.class);
        let answers = [&mut self.strict, &mut self.level].map(|shadow| {
            let is_there = shadow.entries.iter().any(|entry| entry.block == access.block);
            if !is_there && is_busy {
                return Answer::Busy;
            }
            let answer = shadow.access(access);
            while let Some(block) = shadow.clean_next() {
                shadow.cleaned(block, false, true);
            }
            answer
        });
        let hits = answers.map(|answer| answer == Answer::Hit);
        if [Answer::Hit, Answer::Taken].contains(&answers[0]) {
            self.stays.observed(access.class, hits[0], self.strict.in_order(access.class));
        }
        self.tally.count(hits[0], hits[1], self.costs.of(access.class));
        self.tally.way_after(way)
    }
}

impl Slow {
    pub fn new(name: &'static str, config: &CacheConfig) -> Slow {
        let ghosts = || Ghosts::new(config.units / 10, config.seed);
        Slow {
            name,
            config: config.clone(),
            entries: Vec::new(),
            to_clean: VecDeque::new(),
            cleaning: 0,
            trimmed: 0,
            taken: 0,
            turn: 0,
            is_awake: false,
            again_halves: 0,
            ghosts: [ghosts(), ghosts()],
            ghost_queue: GhostQueue::new(config.units / 2, config.seed),
            way: if name == "credit" { Way::Strict } else { Way::Level },
            duel: (name == "credit").then(|| Box::new(SlowDuel::new(config))),
        }
    }

    fn is_credit(&self) -> bool {
        !["lru", "s3_fifo", "selective"].contains(&self.name)
    }

    fn is_s3_fifo(&self) -> bool {
        self.name == "s3_fifo"
    }

    fn ignores_classes(&self) -> bool {
        ["lru", "s3_fifo"].contains(&self.name)
    }

    fn step(&self) -> u64 {
        u64::from((self.config.units / if self.is_s3_fifo() { 64 } else { 128 }).max(1))
    }

    fn age(&self, entry: &Entry) -> u64 {
        (self.taken / self.step() - entry.stamp) * self.step()
    }

    fn credit(&self, entry: &Entry) -> i64 {
        let (priority, size) = (i64::from(self.config.scheme.priority(entry.class)), i64::from(self.config.units));
        let again = if entry.is_again { self.again_halves / 2 } else { 0 };
        match (self.name, self.way) {
            ("lru", _) => 0,
            ("selective", _) => -priority * (1 << 40),
            (_, Way::Strict) => (15 - priority) * (1 << 40),
            (_, Way::Level) => (15 - priority) * size / 4 + again,
        }
    }

    /// Of blocks with the same age and credit, the order of lists decides which leaves: by priority, then used again
    /// last, then by group.
    fn list(&self, entry: &Entry) -> (usize, u8, bool) {
        let bounded: Vec<Class> =
            self.config.scheme.entries().filter(|entry| entry.occupancy_max < 1.0).map(|entry| entry.number).collect();
        let rank = bounded.iter().position(|&class| class == entry.class).map_or(0, |at| at + 1);
        let pool = self.config.pools.iter().position(|(pool, _)| *pool == entry.pool).map_or(0, |at| at + 1);
        let priority = if self.ignores_classes() { 0 } else { self.config.scheme.priority(entry.class) };
        let group = rank * (self.config.pools.len() + 1) + pool;
        (group, priority, self.is_credit() && entry.is_again)
    }

    pub fn count(&self, is_it: impl Fn(&Entry) -> bool) -> u32 {
        self.entries.iter().filter(|entry| is_it(entry)).count() as u32
    }

    pub fn free_units(&self) -> u32 {
        let empty = self.config.units - self.entries.len() as u32 - self.trimmed;
        empty + self.count(|entry| entry.place == Place::Free)
    }

    fn max(&self, part: f64) -> u32 {
        ((f64::from(self.config.units) * part) as u32).max(1)
    }

    fn class_max(&self, class: Class) -> u32 {
        let part = self.config.scheme.entry(class).map_or(1.0, |entry| entry.occupancy_max);
        if part < 1.0 { self.max(part) } else { u32::MAX }
    }

    fn in_order(&self, class: Class) -> u32 {
        self.count(|entry| entry.place == Place::InOrder && entry.class == class)
    }

    fn put(&mut self, at: usize, place: Place) {
        self.turn += 1;
        let stamp = self.taken / self.step();
        let entry = &mut self.entries[at];
        (entry.place, entry.turn) = (place, self.turn);
        if place == Place::InOrder {
            entry.stamp = stamp;
        }
    }

    /// S3-FIFO as it is in the paper, over all blocks at each step: the oldest of the small queue while that has a
    /// tenth, else of the main one; a block that was used moves instead.
    fn s3_fifo_victim(&mut self, is_among: impl Fn(&Entry) -> bool) -> Option<usize> {
        loop {
            let is_in_order = |entry: &Entry| entry.place == Place::InOrder && is_among(entry);
            let (small, main) = (
                self.count(|entry| is_in_order(entry) && !entry.is_again),
                self.count(|entry| is_in_order(entry) && entry.is_again),
            );
            let is_main = 10 * small < small + main;
            let of_queue = self.entries.iter().enumerate();
            let of_queue = of_queue.filter(|(_, entry)| is_in_order(entry) && entry.is_again == is_main);
            // Groups with a bound have queues of their own, and the one with the oldest block is next.
            let at = of_queue.min_by_key(|(_, entry)| (entry.stamp, self.list(entry).0, entry.turn))?.0;
            let uses = self.entries[at].uses;
            if uses < if is_main { 1 } else { 2 } {
                return Some(at);
            }
            (self.entries[at].uses, self.entries[at].is_again) = (if is_main { uses - 1 } else { 0 }, true);
            self.put(at, Place::InOrder);
        }
    }

    fn victim(&mut self, is_among: impl Fn(&Entry) -> bool) -> Option<usize> {
        if self.is_s3_fifo() {
            return self.s3_fifo_victim(is_among);
        }
        let in_order = (0..self.entries.len()).filter(|&at| {
            let entry = &self.entries[at];
            entry.place == Place::InOrder && is_among(entry)
        });
        // The oldest of each list, and of those the one with the highest score; of equals that of the last list.
        let lists = in_order.map(|at| (self.list(&self.entries[at]), self.entries[at].turn, at));
        let oldest = lists.fold(std::collections::BTreeMap::new(), |mut oldest, (list, turn, at)| {
            let first = oldest.entry(list).or_insert((turn, at));
            *first = (*first).min((turn, at));
            oldest
        });
        let victim = oldest.iter().max_by_key(|(list, (_, at))| {
            let entry = &self.entries[*at];
            (self.age(entry) as i64 - self.credit(entry), **list)
        });
        victim.map(|(_, &(_, at))| at)
    }

    fn expel(&mut self, is_among: impl Fn(&Entry) -> bool) -> bool {
        let Some(at) = self.victim(is_among) else { return false };
        if self.entries[at].is_dirty {
            self.put(at, Place::Cleaning);
            self.to_clean.push_back(self.entries[at].block);
        } else {
            self.put(at, Place::Free);
        }
        true
    }

    fn refill(&mut self) {
        self.is_awake |= self.free_units() < self.config.watermark_low;
        if self.is_awake {
            while self.free_units() + self.to_clean.len() as u32 + self.cleaning < self.config.watermark_high {
                if !self.expel(|_| true) {
                    break;
                }
            }
            self.is_awake = self.free_units() < self.config.watermark_high;
        }
    }

    fn make_room(&mut self, class: Class, pool: Pool) {
        loop {
            if self.in_order(class) >= self.class_max(class) {
                self.expel(|entry| entry.class == class);
                continue;
            }
            let part = self.config.pools.iter().find(|(bounded, _)| *bounded == pool);
            let Some((_, part)) = part else { return };
            if self.count(|entry| entry.place == Place::InOrder && entry.pool == pool) < self.max(*part) {
                return;
            }
            self.expel(|entry| entry.pool == pool);
        }
    }

    fn learn(&mut self, was_again: bool) {
        let most = i64::from(self.config.units) * 6;
        if self.way == Way::Strict {
            return;
        }
        self.again_halves = (self.again_halves + if was_again { 1 } else { -1 }).clamp(0, most);
    }

    fn give_back(&mut self, at: usize) {
        let Entry { class, pool, block, is_again, .. } = self.entries[at];
        self.make_room(class, pool);
        self.learn(is_again);
        let at = self.entries.iter().position(|entry| entry.block == block).unwrap();
        (self.entries[at].is_again, self.entries[at].uses) = (true, 0);
        self.put(at, Place::InOrder);
    }

    /// A block became one of another class, which may be beyond its bound now.
    fn keep_bound(&mut self, old: Class, class: Class) {
        while old != class && self.in_order(class) > self.class_max(class) {
            self.expel(|entry| entry.class == class);
        }
    }

    fn hit(&mut self, at: usize, access: &Access) {
        self.entries[at].is_dirty |= access.is_write;
        let entry = self.entries[at];
        match entry.place {
            Place::InOrder if self.is_s3_fifo() => {
                self.entries[at].uses = (entry.uses + 1).min(3);
                self.entries[at].class = access.class;
                if self.list(&self.entries[at]) != self.list(&entry) {
                    self.put(at, Place::InOrder);
                }
                self.keep_bound(entry.class, access.class);
            }
            Place::InOrder => {
                let is_second = entry.is_again || self.age(&entry) >= u64::from(self.config.units / 32);
                if !self.is_credit() || self.way == Way::Strict || is_second || entry.class != access.class {
                    self.entries[at].is_again = is_second;
                    self.entries[at].class = access.class;
                    self.put(at, Place::InOrder);
                }
                self.keep_bound(entry.class, access.class);
            }
            Place::Cleaning | Place::Wanted => {
                self.entries[at].class = access.class;
                self.entries[at].place = Place::Wanted;
            }
            Place::Free | Place::Aside => {
                self.entries[at].class = access.class;
                // It is nowhere while room is made.
                self.entries[at].place = Place::Wanted;
                self.give_back(at);
                self.refill();
            }
        }
    }

    fn admission(&self, access: &Access) -> Admission {
        let entry = self.config.scheme.deciding(access.class);
        let admission =
            entry.map_or(Admission::Always, |entry| if access.is_write { entry.writes } else { entry.reads });
        if self.ignores_classes() { Admission::Always } else { admission }
    }

    pub fn access(&mut self, access: &Access) -> Answer {
        let admission = self.admission(access);
        if let Some(duel) = &mut self.duel {
            self.way = duel.observed(access, self.is_awake && admission == Admission::WhileIdle, self.way);
        }
        if let Some(at) = self.entries.iter().position(|entry| entry.block == access.block) {
            self.hit(at, access);
            return Answer::Hit;
        }
        let is_in_vain = |duel: &SlowDuel| self.way == Way::Strict && duel.stays.are_in_vain(access.class);
        if admission == Admission::WhileIdle && self.duel.as_deref().is_some_and(is_in_vain) {
            return Answer::Refused;
        }
        if admission == Admission::Never || !access.is_write && !self.config.promotes_reads {
            return Answer::Refused;
        }
        if admission == Admission::WhileIdle && self.is_awake {
            return Answer::Busy;
        }
        if self.entries.len() as u32 + self.trimmed == self.config.units {
            let free = (0..self.entries.len()).filter(|&at| self.entries[at].place == Place::Free);
            let Some(at) = free.min_by_key(|&at| self.entries[at].turn) else { return Answer::Full };
            let gone = self.entries.remove(at);
            self.ghosts[usize::from(gone.is_again)].push(gone.block, gone.is_again);
            if !gone.is_again {
                self.ghost_queue.push(gone.block);
            }
        }
        self.make_room(access.class, access.pool);
        self.taken += 1;
        let came_back =
            [false, true].into_iter().find(|&again| self.ghosts[usize::from(again)].take(access.block).is_some());
        came_back.into_iter().for_each(|again| self.learn(again));
        let Access { block, class, pool, is_write } = *access;
        let is_again = if self.is_s3_fifo() { self.ghost_queue.take(access.block) } else { came_back.is_some() };
        self.entries.push(Entry {
            block,
            class,
            pool,
            is_dirty: is_write,
            place: Place::InOrder,
            is_again,
            uses: 0,
            stamp: 0,
            turn: 0,
        });
        self.put(self.entries.len() - 1, Place::InOrder);
        self.refill();
        Answer::Taken
    }

    pub fn clean_next(&mut self) -> Option<u64> {
        let block = self.to_clean.pop_front()?;
        self.cleaning += 1;
        self.entries.iter_mut().find(|entry| entry.block == block).unwrap().is_dirty = false;
        Some(block)
    }

    /// `is_trimmed`: the block was trimmed after the job was handed out.
    pub fn cleaned(&mut self, block: u64, is_trimmed: bool, succeeded: bool) {
        self.cleaning -= 1;
        if is_trimmed {
            self.trimmed -= 1;
        } else {
            let at = self.entries.iter().position(|entry| entry.block == block).unwrap();
            self.entries[at].is_dirty |= !succeeded;
            let entry = self.entries[at];
            if entry.is_dirty || entry.place == Place::Wanted { self.give_back(at) } else { self.put(at, Place::Free) }
        }
        self.refill();
    }

    /// The block, of which a job is with the host, cannot be read. False if so many cannot that it is the device.
    pub fn set_aside(&mut self, block: u64) -> bool {
        let at = self.entries.iter().position(|entry| entry.block == block).unwrap();
        let is_used = self.entries[at].is_dirty || self.entries[at].place == Place::Wanted;
        if !is_used && self.count(|entry| entry.place == Place::Aside) >= self.config.watermark_high {
            return false;
        }
        self.cleaning -= 1;
        self.entries[at].is_dirty = true;
        if is_used {
            self.give_back(at)
        } else {
            self.put(at, Place::Aside)
        }
        self.refill();
        true
    }

    /// The store has the block after all, if it was aside.
    pub fn set_clean(&mut self, block: u64) -> bool {
        let is_it = |entry: &Entry| entry.block == block && entry.place == Place::Aside;
        let Some(at) = self.entries.iter().position(is_it) else { return false };
        self.entries[at].is_dirty = false;
        self.put(at, Place::Free);
        true
    }

    /// Whether a job of the block is with the host, which must then be told apart from later ones.
    pub fn trim(&mut self, block: u64) -> bool {
        if let Some(duel) = &mut self.duel {
            duel.strict.trim(block);
            duel.level.trim(block);
        }
        let Some(at) = self.entries.iter().position(|entry| entry.block == block) else { return false };
        let entry = self.entries.remove(at);
        let is_leaving = matches!(entry.place, Place::Cleaning | Place::Wanted);
        let waiting = self.to_clean.len();
        self.to_clean.retain(|&other| other != block);
        let is_copied = is_leaving && waiting == self.to_clean.len();
        self.trimmed += u32::from(is_copied);
        is_copied
    }
}
