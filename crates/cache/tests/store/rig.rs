//! A host in memory: it does the cache's operations in a random order, and can be stopped after each.

use crate::device::{self, Device, SECTOR, SECTORS};
use crate::search::Faults;
use crate::timed::{Answered, Timing};
use crate::versions::Versions;
use plimsoll_cache::store::{
    Action, BLOCK_BYTES, Blocks, CacheStore, Depth, Failure, Identity, Layout, OpenError, Opened, Operation, Request,
    RequestKind, Semantics, Target, format, open,
};
use plimsoll_cache::{CacheConfig, PolicyEntry, Pool, UnitId, policies};
use plimsoll_core::Class;
use plimsoll_core::class::{Admission, ClassEntry, Scheme};
use std::sync::Arc;

/// SplitMix64.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut hash = self.0;
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (hash ^ (hash >> 31)) % end
    }
}

pub fn policy(name: &str) -> &'static PolicyEntry {
    policies().iter().chain(crate::structure::FOR_TESTS).find(|policy| policy.name == name).unwrap()
}

/// What a run is made of.
#[derive(Clone)]
pub struct Setup {
    pub units: u32,
    pub journal_blocks: u32,
    pub store_blocks: u64,
    pub policy: &'static str,
    pub semantics: Semantics,
    pub depth: Depth,
    /// Whether what is damaged is given up at a start.
    pub accepts_losses: bool,
    /// Whether class 1 and pool 1 may fill only a part.
    pub has_bounds: bool,
}

impl Setup {
    pub fn small(policy: &'static str, semantics: Semantics) -> Setup {
        let depth = Depth { requests: 6, cleaning: 3 };
        let (accepts_losses, has_bounds) = (false, false);
        Setup { units: 20, journal_blocks: 16, store_blocks: 48, policy, semantics, depth, accepts_losses, has_bounds }
    }

    pub fn layout(&self) -> Layout {
        Layout { units: self.units, journal_blocks: self.journal_blocks }
    }

    pub fn identity(&self) -> Identity {
        Identity { store: *b"the store's name", store_blocks: self.store_blocks }
    }

    pub fn config(&self) -> CacheConfig {
        let mut scheme = Scheme::default();
        let class =
            |number, priority| ClassEntry::new(Class::new(number).unwrap(), &format!("class-{number}"), priority);
        scheme.set(class(0, 12));
        let occupancy_max = if self.has_bounds { 0.4 } else { 1.0 };
        scheme.set(ClassEntry { occupancy_max, ..class(1, 0) });
        scheme.set(ClassEntry { writes: Admission::Never, ..class(2, 5) });
        scheme.set(ClassEntry { reads: Admission::WhileIdle, writes: Admission::WhileIdle, ..class(3, 11) });
        let mut config = CacheConfig::new(self.units, scheme);
        if self.has_bounds {
            config.pools = vec![(Pool::new(1).unwrap(), 0.3)];
        }
        config.watermark_low = (self.units / 6).max(1);
        config.watermark_high = (self.units / 4).max(1);
        config
    }

    pub fn devices(&self) -> (Device, Device) {
        let mut cache = Device::new(self.layout().blocks());
        format(&mut cache, self.identity(), [1; 16], self.layout()).unwrap();
        (cache, Device::new(self.store_blocks))
    }

    pub fn open(&self, cache: &mut Device) -> Result<CacheStore, OpenError> {
        Ok(CacheStore::new(self.find(cache)?, self.semantics, self.depth))
    }

    pub fn find(&self, cache: &mut dyn Blocks) -> Result<Opened, OpenError> {
        open(cache, self.identity(), &self.config(), policy(self.policy), self.accepts_losses)
    }

    /// The same, but what is damaged is given up.
    pub fn accepting(&self) -> Setup {
        Setup { accepts_losses: true, ..self.clone() }
    }

    /// The first block that is neither superblock, journal nor map.
    pub fn first_unit(&self) -> u64 {
        self.layout().unit_block(UnitId(0))
    }
}

/// A request under way.
#[derive(Clone)]
struct Asked {
    token: u64,
    kind: RequestKind,
    block: u64,
    sectors: u8,
    /// Blocks that it changes, each with the number of its new version.
    changes: Vec<(u64, u64)>,
    since: u64,
    /// What a flush promises.
    promises: Vec<u64>,
    /// For each sector of the block, the last write that was acknowledged when this was asked for.
    floor: [u64; SECTORS],
}

pub struct Doing {
    operation: Operation,
    /// The numbers on the device of what is written, a block each, or of what a flush covers.
    numbers: Vec<u64>,
    /// When its device is done with it.
    pub until: u64,
}

impl Doing {
    /// The number of its operation.
    pub fn number(&self) -> u32 {
        self.operation.id
    }
}

pub struct Rig {
    pub setup: Setup,
    pub machine: CacheStore,
    pub cache: Device,
    pub store: Device,
    pub versions: Versions,
    pub random: Random,
    asked: Vec<Asked>,
    pub doing: Vec<Doing>,
    tokens: u64,
    /// Operations that fail, one in so many; 0: none.
    pub store_fails_one_in: u64,
    /// What else goes wrong.
    pub faults: Faults,
    /// A flush of the store failed, so what is read may be older than what was acknowledged.
    pub store_lost: bool,
    /// A block's class is its number and this, modulo four; the pool is always this.
    pub class_shift: u64,
    pub pool: Pool,
    pub failures: Vec<Failure>,
    /// Doubts of the machine's that the host has been told of.
    told: u64,
    /// Requests of a workload that trims and writes parts of blocks too.
    pub is_rough: bool,
    /// For tests that go by [`Rig::end_next`].
    pub timing: Timing,
    pub answered: Vec<Answered>,
}

impl Rig {
    pub fn new(setup: Setup, mut cache: Device, store: Device, versions: Versions, seed: u64) -> Rig {
        let machine = setup.open(&mut cache).unwrap();
        let random = Random(seed);
        Rig {
            setup,
            machine,
            cache,
            store,
            versions,
            random,
            asked: Vec::new(),
            doing: Vec::new(),
            tokens: 0,
            store_fails_one_in: 0,
            faults: Faults::default(),
            store_lost: false,
            class_shift: 0,
            pool: Pool::default(),
            failures: Vec::new(),
            told: 0,
            is_rough: true,
            timing: Timing::new(),
            answered: Vec::new(),
        }
    }

    pub fn fresh(setup: Setup, seed: u64) -> Rig {
        let ((cache, store), versions) = (setup.devices(), Versions::new(setup.store_blocks));
        Rig::new(setup, cache, store, versions, seed)
    }

    /// One step: any of the events that can happen next.
    pub fn step(&mut self) {
        match self.random.below(5) {
            0 | 1 if self.asked.len() < self.setup.depth.requests as usize => self.ask(),
            _ if !self.doing.is_empty() => {
                let at = self.random.below(self.doing.len() as u64) as usize;
                self.end(at);
            }
            _ => self.ask(),
        }
        self.take();
    }

    /// Asks for something.
    pub fn ask(&mut self) {
        // Half of all on an eighth of the blocks.
        let part = if self.random.below(2) == 0 { self.setup.store_blocks / 8 } else { self.setup.store_blocks };
        let block = self.random.below(part);
        let kind = match self.random.below(20) {
            0..=9 => RequestKind::Write,
            10..=16 => RequestKind::Read,
            17 if self.is_rough => RequestKind::Trim,
            _ => RequestKind::Flush,
        };
        let sectors = match self.random.below(6) {
            0 if self.is_rough && kind != RequestKind::Trim => {
                let first = self.random.below(8);
                let count = 1 + self.random.below(8 - first);
                (((1u32 << count) - 1) << first) as u8
            }
            _ => u8::MAX,
        };
        self.request(kind, block, sectors);
    }

    pub fn request(&mut self, kind: RequestKind, block: u64, sectors: u8) -> bool {
        self.tokens += 1;
        let from = sectors.trailing_zeros() as u16 * SECTOR as u16;
        let to = (8 - sectors.leading_zeros() as u16) * SECTOR as u16;
        let class = Class::new(((block + self.class_shift) % 4) as u8).unwrap();
        let request = Request { token: self.tokens, kind, block, from, to, class, pool: self.pool };
        let promises = if kind == RequestKind::Flush { self.versions.acknowledged() } else { Vec::new() };
        let (token, since) = (self.tokens, self.timing.now);
        let floor = self.versions.floor(block);
        let mut asked = Asked { token, kind, block, sectors, changes: Vec::new(), since, promises, floor };
        let data = match kind {
            RequestKind::Write | RequestKind::Trim => {
                let (number, data) = self.versions.submit(block, sectors, kind == RequestKind::Trim);
                asked.changes.push((block, number));
                data
            }
            RequestKind::Read | RequestKind::Flush => device::zeroes(),
        };
        let is_taken = self.machine.submit(&request, &data[usize::from(from)..usize::from(to)]);
        self.was_taken(asked, is_taken)
    }

    /// Trims as many blocks from `block` on as the cache has nothing of, as one request, if there are several; else
    /// `block` alone.
    pub fn trim(&mut self, block: u64, blocks: u64) -> bool {
        let end = (block + blocks).min(self.setup.store_blocks);
        let count = self.machine.free_run(block..end);
        if count < 2 {
            return self.request(RequestKind::Trim, block, u8::MAX);
        }
        self.tokens += 1;
        let versions = &mut self.versions;
        let changes =
            (block..block + u64::from(count)).map(|block| (block, versions.submit(block, u8::MAX, true).0)).collect();
        let (token, since, floor) = (self.tokens, self.timing.now, versions.floor(block));
        let (kind, sectors, promises) = (RequestKind::Trim, u8::MAX, Vec::new());
        let is_taken = self.machine.submit_trim(token, block, count, Class::UNCLASSIFIED);
        self.was_taken(Asked { token, kind, block, sectors, changes, since, promises, floor }, is_taken)
    }

    fn was_taken(&mut self, asked: Asked, is_taken: bool) -> bool {
        if is_taken {
            self.asked.push(asked);
        } else {
            asked.changes.iter().for_each(|&(block, _)| self.versions.withdraw(block, asked.sectors));
        }
        self.take();
        assert!(is_taken || !self.doing.is_empty(), "a request that is refused has nothing to wait for");
        is_taken
    }

    pub fn device(&mut self, target: Target) -> &mut Device {
        match target {
            Target::Cache => &mut self.cache,
            Target::Store => &mut self.store,
        }
    }

    /// Requests that were taken and not answered.
    pub fn under_way(&self) -> usize {
        self.asked.len()
    }

    /// Takes what the machine hands out.
    pub fn take(&mut self) {
        while let Some(operation) = self.machine.next_operation() {
            self.begin(operation);
        }
        self.take_answers();
        // The last answer that is taken may let a shutdown go on.
        while let Some(operation) = self.machine.next_operation() {
            self.begin(operation);
        }
    }

    fn begin(&mut self, operation: Operation) {
        let block = operation.offset_bytes / BLOCK_BYTES as u64;
        let from = operation.offset_bytes as usize % BLOCK_BYTES;
        let blocks = block..block + u64::from(operation.length_bytes / BLOCK_BYTES as u32).max(1);
        let sectors = match operation.length_bytes as usize / SECTOR {
            count if count < SECTORS => (((1u32 << count) - 1) << (from / SECTOR)) as u8,
            _ => u8::MAX,
        };
        let mut data = [0; BLOCK_BYTES];
        if operation.action == Action::Write {
            data[from..from + operation.length_bytes as usize].copy_from_slice(self.machine.buffer(&operation));
        }
        let device = self.device(operation.target);
        let data = Arc::new(data);
        let numbers = match operation.action {
            Action::Read => Vec::new(),
            Action::Write | Action::Trim => blocks.map(|block| device.begin(block, sectors, data.clone())).collect(),
            Action::Flush => device.begin_flush(),
        };
        let until = self.timing.until(&operation, &self.setup.layout());
        self.doing.push(Doing { operation, numbers, until });
    }

    fn take_answers(&mut self) {
        let (asked, versions, failures) = (&mut self.asked, &mut self.versions, &mut self.failures);
        let is_strict = self.setup.semantics == Semantics::Strict;
        let (now, answered) = (self.timing.now, &mut self.answered);
        let (doubts, told, store_lost) = (self.machine.doubts(), &mut self.told, self.store_lost);
        while self.machine.next_answer(|token, failure, data| {
            let at = asked.iter().position(|asked| asked.token == token).expect("no request is answered twice");
            let done = asked.remove(at);
            // A client that flushes hears once of each doubt, whether the flush succeeds or not.
            let is_told = done.kind == RequestKind::Flush && std::mem::replace(told, doubts) < doubts;
            if is_told {
                versions.doubt();
            }
            if let Some(failure) = failure {
                failures.push(failure);
                return;
            }
            answered.push(Answered { kind: done.kind, since: done.since, at: now });
            match done.kind {
                RequestKind::Read => {
                    let mut content = [0; BLOCK_BYTES];
                    let from = done.sectors.trailing_zeros() as usize * SECTOR;
                    content[from..from + data.len()].copy_from_slice(data);
                    let busy = asked.iter().any(|other| other.changes.iter().any(|change| change.0 == done.block));
                    if !busy && failures.is_empty() && doubts == 0 {
                        versions.check_newest(done.block, done.sectors, &content).unwrap();
                    }
                    let floor = if store_lost { [0; SECTORS] } else { done.floor };
                    versions.check_from(done.block, done.sectors, &content, &floor).unwrap();
                }
                RequestKind::Write | RequestKind::Trim => {
                    for (block, number) in done.changes {
                        versions.acknowledge(block, done.sectors, number);
                        if is_strict {
                            versions.durable(block, done.sectors, number);
                        }
                    }
                }
                RequestKind::Flush if is_told => {}
                RequestKind::Flush => versions.flushed(&done.promises),
            }
        }) {}
    }

    /// Ends an operation.
    pub fn end(&mut self, at: usize) {
        let Doing { operation, numbers, .. } = self.doing.swap_remove(at);
        let one_in = if operation.target == Target::Store { self.store_fails_one_in } else { 0 };
        let fails = one_in > 0 && operation.action != Action::Read && self.random.below(one_in) == 0;
        let block = operation.offset_bytes / BLOCK_BYTES as u64;
        let from = operation.offset_bytes as usize % BLOCK_BYTES;
        let fails = fails || {
            let device = self.device(operation.target);
            let is_planted = device.fails_at == Some(device.writes) && operation.action != Action::Read;
            device.writes += u64::from(operation.action != Action::Read);
            is_planted
        };
        let fails = fails || self.faults.fails(&operation, &mut self.random);
        if !fails {
            match operation.action {
                Action::Read => {
                    let content = self.device(operation.target).get(block).clone();
                    let buffer = self.machine.buffer(&operation);
                    buffer.copy_from_slice(&content[from..from + operation.length_bytes as usize]);
                }
                Action::Write | Action::Trim => {
                    numbers.iter().for_each(|&number| self.device(operation.target).end(number));
                }
                Action::Flush => self.device(operation.target).end_flush(&numbers),
            }
        }
        match operation.action {
            Action::Flush if fails && operation.target == Target::Store => {
                self.store_lost = true;
                self.store.lose(|below| self.random.below(below));
            }
            // Each block was done nevertheless, or it was not.
            Action::Write | Action::Trim if fails => {
                for number in numbers {
                    match self.random.below(2) {
                        0 => self.device(operation.target).end(number),
                        _ => self.device(operation.target).drop_write(number),
                    }
                }
            }
            _ => {}
        }
        self.machine.completed(operation.id, !fails);
    }

    /// Ends an operation that is under way. False if there is none.
    pub fn finish_one(&mut self) -> bool {
        self.take();
        let first = (0..self.doing.len()).min_by_key(|&at| self.doing[at].operation.id);
        first.inspect(|&at| self.end(at)).is_some()
    }

    /// The lowest number of an operation of that sort that is under way.
    pub fn number_of(&self, target: Target, action: Action) -> Option<u32> {
        let is_it = |doing: &&Doing| (doing.operation.target, doing.operation.action) == (target, action);
        self.doing.iter().filter(is_it).map(|doing| doing.operation.id).min()
    }

    /// Goes on, the lowest number first, until an operation of that sort is under way, and answers its number.
    pub fn until(&mut self, target: Target, action: Action) -> u32 {
        self.take();
        loop {
            if let Some(number) = self.number_of(target, action) {
                return number;
            }
            assert!(self.finish_one(), "the machine wants no {action:?} of {target:?}");
            self.take();
        }
    }

    /// Ends the operation of that number.
    pub fn end_number(&mut self, number: u32) {
        let at = self.doing.iter().position(|doing| doing.operation.id == number).expect("it is under way");
        self.end(at);
        self.take();
    }

    /// Goes on until nothing is left to do but the operation of that number.
    pub fn settle_but(&mut self, held: u32) {
        self.take();
        while let Some(at) = self.doing.iter().position(|doing| doing.operation.id != held) {
            self.end(at);
            self.take();
        }
    }

    /// Goes on until nothing is left to do.
    pub fn settle(&mut self) {
        self.take();
        while !self.doing.is_empty() {
            let at = self.random.below(self.doing.len() as u64) as usize;
            self.end(at);
            self.take();
        }
    }

    /// Reads everything, and answers what each block holds, or why it cannot be read.
    pub fn read_all(&mut self) -> Vec<Result<Box<[u8]>, Failure>> {
        self.settle();
        assert!(self.asked.is_empty(), "{} requests were never answered", self.asked.len());
        let blocks = self.setup.store_blocks;
        (0..blocks).map(|block| self.read(block)).collect()
    }

    pub fn read(&mut self, block: u64) -> Result<Box<[u8]>, Failure> {
        let class = Class::new((block % 4) as u8).unwrap();
        let kind = RequestKind::Read;
        let request = Request { token: 0, kind, block, from: 0, to: BLOCK_BYTES as u16, class, pool: Pool::default() };
        assert!(self.machine.submit(&request, &[]));
        let mut answer = None;
        loop {
            while self.machine.next_answer(|_, failure, data| {
                answer = Some(match failure {
                    Some(failure) => Err(failure),
                    None => Ok(data.into()),
                });
            }) {}
            let Some(operation) = self.machine.next_operation() else { break };
            self.begin(operation);
            self.end(self.doing.len() - 1);
        }
        answer.expect("a read is answered")
    }
}
