//! SPC-1-like: a transaction system's disks, as storage arrays are compared by it (the load of the request-executor
//! paper).
//!
//! Capacity is in three units: a data store (45 %), a user store (45 %) and a log (10 %). Load is in business scaling
//! units (BSUs) of 50 I/Os a second, each of eight streams. Streams are uniformly random, sequential, or *walks* in hot
//! spots, which stay near where they were and come back to it.
//!
//! **Rule.** Each stream of each BSU is a Poisson process of its own intensity. Their union is a Poisson process of 50
//! x load a second. Its events choose a stream by intensity and a BSU evenly. It is drawn that way here: one clock,
//! however large the load. Calls are started when due, whatever is outstanding.
//!
//! **Walk.** A hot spot is a binary tree over leaves of eight 4 KiB blocks. A step goes up from the current leaf to a
//! subtree of 64 leaves, and on to one twice as large 44 times in a hundred, again and again. Then it goes down to any
//! of its leaves. Reads cycle through a leaf's blocks. Writes begin at every eighth leaf, hit blocks that were read
//! there or any block, and 15 in a hundred are repeated.
//!
//! **Sources.** Shares of capacity, 40 % reads, streams and 59.6 % for the data store: the paper's section 3.1.
//! Intensities, read shares, places, lengths and the walk's constants are the stream tables of the SPC-1 specification,
//! as encoded in NetApp's published generator (spc1.c, 2005-2009, its "fixed" walk without offsets). No line of it is
//! used. The specification itself was not at hand, so the result is *like* SPC-1 and never an SPC-1 result.

use crate::design::{Common, Design};
use crate::file::FileSpec;
use crate::pace::{Arrivals, Pace};
use crate::random::Random;
use crate::script::{Generator, Program, Script, transfer};
use crate::step::{DEPTH_UNLIMITED, FileIndex, Step};
use crate::thread::ThreadSpec;

/// Bytes; every transfer is a multiple and so aligned (SPC-1).
const BLOCK: u64 = 4096;
/// Per cent of the capacity in each unit (SPC-1; paper 002, section 3.1).
const UNIT_PERCENT: [u64; 3] = [45, 45, 10];
/// Blocks of a leaf of a walk (SPC-1).
const LEAF_BLOCKS: u64 = 8;
/// Leaves of the smallest subtree of a step, 2^6 (SPC-1).
const SUBTREE_LEAVES_MIN: u64 = 64;
/// Per cent of steps that go one level higher (SPC-1).
const HIGHER_PERCENT: u32 = 44;
/// Writes go to leaves that are multiples of this (SPC-1).
const WRITE_LEAF_MULTIPLE: u64 = 8;
/// Per cent of writes that go to any block of the leaf instead of the one read last (SPC-1).
const ANY_BLOCK_PERCENT: u32 = 50;
/// Per cent of writes that are repeated by the next write (SPC-1).
const REPEAT_PERCENT: u32 = 15;
/// Leaves with a remembered cycle of reads; beyond, leaves share. Ours: bounds the memory to 64 KiB a hot spot.
const REMEMBERED_LEAVES_MAX: u64 = 1 << 16;
/// Blocks of a sequential transfer, by weight (SPC-1's SMIX: 40, 24, 20, 8 and 8 %).
const SEQUENTIAL_BLOCKS: &[(u64, u32)] = &[(1, 40), (2, 24), (4, 20), (8, 8), (16, 8)];

/// Where a stream goes, in per cent of its unit.
#[derive(Clone, Copy, Debug)]
enum Course {
    Uniform,
    /// A walk in a hot spot that begins here and is 5 % long.
    Walk {
        begin: u64,
    },
    /// On and on, from a place drawn from this range, for so long; then from another.
    Sequential {
        begin: u64,
        end: u64,
        length: u64,
    },
}

/// Per cent of the unit in a hot spot (SPC-1).
const HOT_SPOT_PERCENT: u64 = 5;

#[derive(Clone, Copy, Debug)]
struct StreamKind {
    unit: u64,
    read_percent: u32,
    course: Course,
}

const fn stream(unit: u64, read_percent: u32, course: Course) -> StreamKind {
    StreamKind { unit, read_percent, course }
}

const READ_AREA: Course = Course::Sequential { begin: 20, end: 60, length: 10 };
const LOG_AREA: Course = Course::Sequential { begin: 0, end: 70, length: 30 };

/// The eight streams of a BSU with their intensities in thousandths (SPC-1).
const STREAMS: &[(StreamKind, u32)] = &[
    (stream(0, 50, Course::Uniform), 35),
    (stream(0, 50, Course::Walk { begin: 15 }), 281),
    (stream(0, 100, READ_AREA), 70),
    (stream(0, 50, Course::Walk { begin: 70 }), 210),
    (stream(1, 30, Course::Uniform), 18),
    (stream(1, 30, Course::Walk { begin: 47 }), 70),
    (stream(1, 100, READ_AREA), 35),
    (stream(2, 0, LOG_AREA), 281),
];

/// An SPC-1-like load.
#[derive(Clone, Debug)]
pub(crate) struct Spc1 {
    /// BSUs.
    pub(crate) load: u32,
    /// Bytes of all three units.
    pub(crate) capacity: u64,
}

impl Spc1 {
    /// I/Os per second and BSU (SPC-1).
    pub(crate) const IOPS_PER_UNIT: f64 = 50.0;
    /// The smallest capacity: so much that a hot spot of the smallest unit has a leaf. Bytes.
    pub(crate) const CAPACITY_MIN: u64 = 1 << 30;

    /// Blocks of a unit.
    fn blocks(&self, unit: u64) -> u64 {
        self.capacity / 100 * UNIT_PERCENT[unit as usize] / BLOCK
    }
}

impl Design for Spc1 {
    fn file_count(&self, _common: &Common) -> u64 {
        UNIT_PERCENT.len() as u64
    }

    fn file(&self, _common: &Common, _seed: u64, file: FileIndex) -> FileSpec {
        let unit = file.0.min(UNIT_PERCENT.len() as u64 - 1);
        FileSpec::filled(format!("asu{}", unit + 1), self.blocks(unit) * BLOCK)
    }

    fn thread_count(&self, _common: &Common) -> u32 {
        1
    }

    fn thread(&self, common: &Common, _thread: u32) -> ThreadSpec {
        let units = (0..UNIT_PERCENT.len() as u64).map(FileIndex).collect();
        ThreadSpec { depth: common.depth.unwrap_or(DEPTH_UNLIMITED), ..ThreadSpec::new("spc1", units) }
    }

    fn program(&self, _common: &Common, _seed: u64, _thread: u32) -> Program {
        let per_second = Spc1::IOPS_PER_UNIT * f64::from(self.load);
        let hot_spots = STREAMS.iter().map(|(kind, _)| match kind.course {
            Course::Walk { begin } => HotSpot::new(self.blocks(kind.unit), begin),
            _ => HotSpot::default(),
        });
        Box::new(Spc1Thread {
            pace: Pace::new(Arrivals::Poisson { per_second }, None),
            unit_blocks: [self.blocks(0), self.blocks(1), self.blocks(2)],
            hot_spots: hot_spots.collect(),
            states: vec![[StreamState::default(); STREAMS.len()]; self.load as usize],
            choices: STREAMS.iter().enumerate().map(|(index, &(_, intensity))| (index, intensity)).collect(),
        })
    }
}

/// A hot spot, shared by the BSUs.
#[derive(Default)]
struct HotSpot {
    first_block: u64,
    leaves: u64,
    /// The next block to read of each leaf.
    cycles: Vec<u8>,
}

impl HotSpot {
    fn new(unit_blocks: u64, begin_percent: u64) -> HotSpot {
        let leaves = unit_blocks * HOT_SPOT_PERCENT / 100 / LEAF_BLOCKS;
        let cycles = vec![0; leaves.min(REMEMBERED_LEAVES_MAX) as usize];
        HotSpot { first_block: unit_blocks * begin_percent / 100, leaves, cycles }
    }
}

/// Where one stream of one BSU stands.
#[derive(Clone, Copy, Default)]
struct StreamState {
    /// The next block (sequential) or the current leaf (walk).
    position: u64,
    /// Behind the last block of this pass; 0: none has begun.
    end: u64,
    /// The block that the next write repeats, plus 1; 0: none.
    repeated: u64,
}

struct Spc1Thread {
    pace: Pace,
    unit_blocks: [u64; 3],
    hot_spots: Vec<HotSpot>,
    states: Vec<[StreamState; STREAMS.len()]>,
    choices: Vec<(usize, u32)>,
}

/// One step of a walk; answers the block.
fn walk(spot: &mut HotSpot, state: &mut StreamState, is_read: bool, random: &mut Random) -> u64 {
    if !is_read && state.repeated > 0 {
        return std::mem::take(&mut state.repeated) - 1;
    }
    if state.end == 0 {
        (state.position, state.end) = (random.below(spot.leaves), spot.leaves);
    }
    let mut subtree = SUBTREE_LEAVES_MIN;
    while subtree < spot.leaves && random.percent(HIGHER_PERCENT) {
        subtree *= 2;
    }
    let first = state.position / subtree * subtree;
    let mut leaf = first + random.below(subtree.min(spot.leaves - first));
    if !is_read {
        leaf -= leaf % WRITE_LEAF_MULTIPLE;
    }
    state.position = leaf;
    let remembered = leaf as usize % spot.cycles.len();
    let cycle = &mut spot.cycles[remembered];
    let block = if is_read {
        let block = u64::from(*cycle);
        *cycle = (*cycle + 1) % LEAF_BLOCKS as u8;
        block
    } else if random.percent(ANY_BLOCK_PERCENT) {
        random.below(LEAF_BLOCKS)
    } else {
        (u64::from(*cycle) + LEAF_BLOCKS - 1) % LEAF_BLOCKS
    };
    let block = spot.first_block + leaf * LEAF_BLOCKS + block;
    if !is_read && random.percent(REPEAT_PERCENT) {
        state.repeated = block + 1;
    }
    block
}

impl Generator for Spc1Thread {
    fn next(&mut self, random: &mut Random, _taken: u64, script: &mut Script) {
        let due = self.pace.next(random);
        let index = *random.weighted(&self.choices);
        let (StreamKind { unit, read_percent, course }, _) = STREAMS[index];
        let bsu = random.below(self.states.len() as u64) as usize;
        let (state, unit_blocks) = (&mut self.states[bsu][index], self.unit_blocks[unit as usize]);
        let is_read = random.percent(read_percent);
        let (block, length) = match course {
            Course::Uniform => (random.below(unit_blocks), 1),
            Course::Walk { .. } => (walk(&mut self.hot_spots[index], state, is_read, random), 1),
            Course::Sequential { begin, end, length } => {
                let blocks = *random.weighted(SEQUENTIAL_BLOCKS);
                if state.position + blocks > state.end {
                    let area = unit_blocks * (end - begin) / 100;
                    state.position = unit_blocks * begin / 100 + random.below(area);
                    state.end = state.position + unit_blocks * length / 100;
                }
                state.position += blocks;
                (state.position - blocks, blocks)
            }
        };
        let action = transfer(is_read, FileIndex(unit), block * BLOCK, length * BLOCK);
        script.step(Step::Start { due, action });
    }
}
