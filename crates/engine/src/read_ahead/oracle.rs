//! The oracle: a device of blocks that have a version each, and sessions with reads. A read must not bring an older
//! version than was acknowledged, or read by any session, when it was sent.

use super::{Changes, Fetch, Lookup, ReadAhead, ReadSegment, Reader};
use plimsoll_core::{Span, Time};
use proptest::prelude::*;

const BLOCK: u64 = 4096;
const BLOCKS: usize = 512;
const SETTINGS: u64 = ReadAhead::BYTES_MIN;

#[derive(Clone, Debug)]
enum Step {
    /// One of a few programs reads on, so many blocks, after having skipped some.
    ReadOn(usize, usize, usize),
    /// A session reads somewhere.
    Read(usize, usize, usize),
    /// A write is sent, reaches the device, is acknowledged.
    Write(usize, usize),
    Apply(usize),
    Acknowledge(usize),
    /// The device looks again at what a session's fetch wants; the fetch ends, or fails.
    Look(usize, usize),
    End(usize, usize, bool),
    Ahead(usize),
    Wait,
}

fn step() -> impl Strategy<Value = Step> {
    let skips = prop_oneof![6 => Just(0usize), 1 => 1..4usize];
    let succeeds = prop::bool::weighted(0.95);
    prop_oneof![
        12 => (0..3usize, 1..3usize, skips).prop_map(|(program, blocks, skip)| Step::ReadOn(program, blocks, skip)),
        2 => (0..2usize, 0..BLOCKS, 1..9usize).prop_map(|(session, block, count)| Step::Read(session, block, count)),
        3 => (0..BLOCKS / 2, 1..9usize).prop_map(|(block, blocks)| Step::Write(block, blocks)),
        3 => (0..8usize).prop_map(Step::Apply),
        3 => (0..8usize).prop_map(Step::Acknowledge),
        6 => (0..2usize, 0..4usize).prop_map(|(session, fetch)| Step::Look(session, fetch)),
        6 => (0..2usize, 0..4usize, succeeds).prop_map(|(session, fetch, succeeds)| Step::End(session, fetch, succeeds)),
        6 => (0..2usize).prop_map(Step::Ahead),
        1 => Just(Step::Wait),
    ]
}

struct Write {
    block: usize,
    blocks: usize,
    version: Option<u64>,
}

/// What a read must not bring anything older than, for each of its blocks.
struct WaitingRead {
    block: usize,
    at_least: Vec<u64>,
    part: ReadSegment,
}

/// One session, with what it has under way.
struct Session {
    reader: Reader,
    fetches: Vec<Fetch>,
    /// What each slot's memory holds.
    memory: Vec<Vec<u64>>,
    waiting: Vec<WaitingRead>,
}

impl Session {
    fn new() -> Session {
        let settings = ReadAhead::new(SETTINGS).unwrap();
        let reader = Reader::new(settings, BLOCKS as u64 * BLOCK);
        let memory = vec![Vec::new(); settings.slots() as usize];
        Session { reader, fetches: Vec::new(), memory, waiting: Vec::new() }
    }

    fn begin(&mut self, fetch: Fetch, device: &[u64]) {
        assert!(fetch.length > 0 && fetch.length <= ReadAhead::new(SETTINGS).unwrap().chunk_bytes());
        assert!(fetch.offset + u64::from(fetch.length) <= BLOCKS as u64 * BLOCK);
        assert!(self.fetches.iter().all(|other| other.slot != fetch.slot), "a slot that is being filled");
        let mut of_slot = self.waiting.iter().map(|read| &read.part).filter(|part| part.slot == fetch.slot);
        assert!(of_slot.all(|part| part.at_in_slot + part.length <= fetch.length), "a part lies in its chunk");
        self.fetches.push(fetch);
        self.look(self.fetches.len() - 1, device);
    }

    fn look(&mut self, fetch: usize, device: &[u64]) {
        let Some(fetch) = self.fetches.get(fetch) else { return };
        let first = (fetch.offset / BLOCK) as usize;
        let count = (u64::from(fetch.length) / BLOCK) as usize;
        self.memory[fetch.slot as usize] = device[first..first + count].to_vec();
    }
}

struct World {
    sessions: [Session; 2],
    changes: Changes,
    now: Time,
    device: Vec<u64>,
    /// What was acknowledged or read of each block.
    known: Vec<u64>,
    versions: u64,
    writes: Vec<Write>,
    programs: [usize; 3],
    handed_out: u64,
}

impl World {
    fn new() -> World {
        World {
            sessions: [Session::new(), Session::new()],
            changes: Changes::default(),
            now: Time::ZERO,
            device: vec![0; BLOCKS],
            known: vec![0; BLOCKS],
            versions: 0,
            writes: Vec::new(),
            programs: [0, 170, 200],
            handed_out: 0,
        }
    }

    fn read(&mut self, number: usize, block: usize, blocks: usize) {
        let (block, blocks) = (block, blocks.min(BLOCKS - block));
        let (offset, length) = (block as u64 * BLOCK, (blocks as u64 * BLOCK) as u32);
        let session = &mut self.sessions[number];
        let found = match self.changes.touch(offset, length) {
            true => Lookup::Miss,
            false => session.reader.read(self.now, offset, length),
        };
        let Lookup::Hit(fetch) = found else {
            // The device answers at once.
            let (known, device) = (&mut self.known[block..], &self.device[block..]);
            return known.iter_mut().zip(device).take(blocks).for_each(|(known, &device)| *known = device);
        };
        let mut parts = Vec::new();
        session.reader.hand_out(offset, length, |part| parts.push(part));
        let mut at = 0;
        for part in parts {
            assert_eq!(part.at_in_read, at, "no byte is left out");
            at += part.length;
            let first = block + (u64::from(part.at_in_read) / BLOCK) as usize;
            let count = (u64::from(part.length) / BLOCK) as usize;
            let read = WaitingRead { block: first, at_least: self.known[first..first + count].to_vec(), part };
            match part.is_ready {
                true => self.check(number, &read),
                false => self.sessions[number].waiting.push(read),
            }
        }
        assert_eq!(at, length);
        fetch.into_iter().for_each(|fetch| self.sessions[number].begin(fetch, &self.device));
    }

    /// Compares what a part of a read brings with the oldest that it may be.
    fn check(&mut self, number: usize, read: &WaitingRead) {
        let first = (u64::from(read.part.at_in_slot) / BLOCK) as usize;
        for (place, at_least) in read.at_least.iter().enumerate() {
            let got = self.sessions[number].memory[read.part.slot as usize][first + place];
            let known = &mut self.known[read.block + place];
            assert!(got >= *at_least, "block {} is {got}, {at_least} was known", read.block + place);
            *known = got.max(*known);
        }
        self.handed_out += u64::from(read.part.length);
    }

    fn end(&mut self, number: usize, fetch: usize, succeeds: bool) {
        let session = &mut self.sessions[number];
        if fetch >= session.fetches.len() {
            return;
        }
        let fetch = session.fetches.remove(fetch);
        let of_slot = |read: &WaitingRead| read.part.slot == fetch.slot;
        let (waited, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut session.waiting).into_iter().partition(of_slot);
        session.waiting = waiting;
        waited.iter().filter(|_| succeeds).for_each(|read| self.check(number, read));
        self.sessions[number].reader.ended(fetch.slot, succeeds);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::ReadOn(program, blocks, skipped) => {
                let block = self.programs[program] + skipped;
                let block = if block + blocks > BLOCKS { 0 } else { block };
                self.programs[program] = block + blocks;
                self.read(program % 2, block, blocks);
            }
            Step::Read(session, block, blocks) => self.read(session, block, blocks),
            Step::Write(block, blocks) => {
                let blocks = blocks.min(BLOCKS - block);
                self.changes.begin(block as u64 * BLOCK, (blocks as u64 * BLOCK) as u32);
                self.writes.push(Write { block, blocks, version: None });
            }
            Step::Apply(write) => {
                let Some(write) = self.writes.get_mut(write).filter(|write| write.version.is_none()) else { return };
                self.versions += 1;
                write.version = Some(self.versions);
                self.device[write.block..write.block + write.blocks].fill(self.versions);
            }
            Step::Acknowledge(write) => {
                let Some(version) = self.writes.get(write).and_then(|write| write.version) else { return };
                let Write { block, blocks, .. } = self.writes.remove(write);
                let (offset, length) = (block as u64 * BLOCK, (blocks as u64 * BLOCK) as u32);
                self.changes.end(offset, length);
                self.sessions.iter_mut().for_each(|session| session.reader.changed(offset, length));
                for known in &mut self.known[block..block + blocks] {
                    *known = version.max(*known);
                }
            }
            Step::Look(session, fetch) => self.sessions[session].look(fetch, &self.device),
            Step::End(session, fetch, succeeds) => self.end(session, fetch, succeeds),
            Step::Ahead(session) => {
                let session = &mut self.sessions[session];
                if let Some(fetch) = session.reader.next_ahead(self.now) {
                    session.begin(fetch, &self.device);
                }
            }
            Step::Wait => self.now += Span::from_secs(6),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Planted breaks that were seen red: a change cuts nothing off; it cuts nothing off what is being fetched; it cuts
    /// off the wrong end; what is being changed is handed out.
    /// Promise: read-ahead-fresh.
    #[test]
    fn no_read_brings_what_was_changed_before_it_was_sent(steps in prop::collection::vec(step(), 1..400)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| world.take(step));
        for number in 0..2 {
            while !world.sessions[number].fetches.is_empty() {
                world.end(number, 0, true);
            }
            let session = &mut world.sessions[number];
            prop_assert!(session.waiting.is_empty(), "no read waits for what does not come");
            session.reader.close();
            let figures = *session.reader.figures();
            prop_assert!(figures.wasted_bytes <= figures.fetched_bytes);
        }
    }
}

/// The steps above do hand out bytes.
#[test]
fn programs_that_read_on_are_handed_what_was_fetched() {
    let mut world = World::new();
    for _ in 0..50 {
        for program in 0..2 {
            let steps = [Step::ReadOn(program, 1, 0), Step::Ahead(program), Step::End(program, 0, true)];
            steps.into_iter().for_each(|step| world.take(step));
        }
    }
    assert!(world.handed_out > 80 * BLOCK, "{}", world.handed_out);
}
