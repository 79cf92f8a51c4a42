//! Which thread does what takes a processor's time, in which order, and which pieces a stuck thread keeps waiting.
//!
//! A service thread is kept here by a page of a compressed volume that the test holds.

use super::*;
use crate::backend::{Backing, Volume, VolumeConfig};
use crate::engine::engine_support::{self, BLOCK, Served, memory, pause, profile, raw_connection};
use crate::engine::{EngineConfig, EngineHandle};
use crate::nbd::wire::Request;
use crate::nbd::{Command, CommandFlags};
use plimsoll_executor::{Dispatching, ExecutorConfig, Figures, Policy, Rules, Slicing, ThreadFigures, Watch, Watched};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

const PAGES: usize = 64;
/// The page that a test holds, which keeps each thread that comes to it.
const HELD: u64 = 500;
const VOLUME_PAGES: u64 = 512;

/// One service thread, the usual number on two processors.
fn executor(policy: Policy, requests_max: usize) -> Arc<Executor<ServiceRequest>> {
    let config = ExecutorConfig { threads: 1, rules: Rules::Fixed(policy), requests_max, seed: 1 };
    Arc::new(Executor::start(config).unwrap())
}

/// All clients' requests in one queue, with slices of this length.
fn sliced(slice: Span) -> Policy {
    let slicing = Slicing::ByDepth { base: slice, cap: Span::ZERO, factors: [1.0; 3] };
    Policy { dispatching: Dispatching::AllToHigh, slicing, ..Policy::COMBO }
}

const NEVER_OVER: Span = Span::from_secs(3600);

/// Pieces of one volume, without an engine.
struct Pieces {
    work: Work,
    executor: Arc<Executor<ServiceRequest>>,
    memory: Arc<CompressedMemory>,
}

impl Pieces {
    fn new(policy: Policy, requests_max: usize) -> Pieces {
        let executor = executor(policy, requests_max);
        let memory = Arc::new(CompressedMemory::new(VOLUME_PAGES * PAGE_BYTES as u64, 1).unwrap());
        Pieces { work: Work::new(Some(executor.clone())).unwrap(), executor, memory }
    }

    /// Begins a piece of as many pages as `bytes` has.
    fn begin(&mut self, kind: Kind, piece: u32, first_page: u64, step: PageStep, bytes: &mut [u8]) {
        let answer = self.work.answer(piece);
        let work = PieceWork {
            step,
            bytes: Some(Bytes(bytes.as_mut_ptr())),
            offset: first_page * PAGE_BYTES as u64,
            bytes_left: bytes.len(),
            gives_way: kind == Kind::Maintenance,
            answer,
        };
        self.work.begin(Time::ZERO, kind, Arrival::New, work);
    }

    fn unpack(&self) -> PageStep {
        PageStep::Unpack(self.memory.clone())
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&Figures) -> bool) -> ThreadFigures {
        for _ in 0..60_000 {
            let figures = self.executor.figures();
            if is_so(&figures) {
                return figures.threads[0];
            }
            pause();
        }
        panic!("never came: {what}: {:?}", self.executor.figures());
    }

    /// What is told of so many pieces, in the order in which it is told.
    fn told(&mut self, count: usize) -> Vec<(u32, Result<(), Errno>)> {
        let mut told = Vec::new();
        for _ in 0..60_000 {
            told.extend(self.work.told.done.take().into_iter().map(|note| note.content));
            if told.len() >= count {
                return told;
            }
            self.work.hand_over(Time::ZERO);
            pause();
        }
        panic!("never told of {count}: {told:?}");
    }

    /// What comes of a large piece and of a small one that a client asks for behind it. Both wait before either is
    /// begun. Says which is done first, and how the runs ended.
    fn large_and_small(mut self, kind: Kind, step: PageStep) -> ([u32; 2], ThreadFigures) {
        const KEEPER: u32 = 0;
        const LARGE: u32 = 1;
        const SMALL: u32 = 2;
        let [mut keeper, mut small] = [[0; PAGE_BYTES]; 2];
        let mut large = vec![7; PAGES * PAGE_BYTES];
        let memory = self.memory.clone();
        let held = memory.hold(HELD);
        self.begin(Kind::Read, KEEPER, HELD, self.unpack(), &mut keeper);
        self.wait_until("its begin", |figures| figures.threads[0].running_since.is_some());
        self.begin(kind, LARGE, 0, step, &mut large);
        self.begin(Kind::Read, SMALL, VOLUME_PAGES - 1, self.unpack(), &mut small);
        drop(held);
        let told = self.told(3);
        assert!(told.iter().all(|&(_, result)| result == Ok(())) && told[0].0 == KEEPER, "{told:?}");
        let thread = self.wait_until("the end of all", |figures| figures.alive == 0);
        ([told[1].0, told[2].0], thread)
    }
}

fn cipher() -> Arc<SectorCipher> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    std::fs::write(&path, engine_support::key_bytes()).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    Arc::new(SectorCipher::of_key_file(&path).unwrap())
}

/// What a step of a large piece may be; it encrypts into `target`.
type MakeStep = fn(&Pieces, &mut [u8]) -> PageStep;

const STEPS: [MakeStep; 3] = [
    |pieces, _| PageStep::Pack(pieces.memory.clone()),
    |_, target| PageStep::Encrypt(cipher(), Bytes(target.as_mut_ptr())),
    |_, _| PageStep::Decrypt(cipher()),
];

/// 256 KiB, compressed, encrypted or decrypted, in slices that are spent as soon as they begin. The step stops after
/// each page, and a piece that waits meanwhile is served before. In a slice that is never spent it goes on to its end.
/// Planted breaks: there is no checkpoint; there is one after the last page, too.
#[test]
fn a_large_piece_is_preempted_between_its_pages_when_its_slice_is_spent() {
    for make in STEPS {
        let mut target = vec![0; PAGES * PAGE_BYTES];
        let pieces = Pieces::new(sliced(Span::ZERO), 8);
        let step = make(&pieces, &mut target);
        let (order, thread) = pieces.large_and_small(Kind::Write, step);
        assert_eq!((order, thread.preempted, thread.gave_way), ([2, 1], PAGES as u64 - 1, 0));
        let pieces = Pieces::new(sliced(NEVER_OVER), 8);
        let step = make(&pieces, &mut target);
        let (order, thread) = pieces.large_and_small(Kind::Write, step);
        assert_eq!((order, thread.preempted), ([1, 2], 0));
    }
}

/// However much of its slice is left, of which a few dozen pages fit into one. Planted break: it stops where its slice is spent.
#[test]
fn a_copy_of_the_syncer_gives_way_after_each_page() {
    let pieces = Pieces::new(Policy::COMBO, 8);
    let step = PageStep::Pack(pieces.memory.clone());
    let (_, thread) = pieces.large_and_small(Kind::Maintenance, step);
    assert_eq!(thread.preempted + thread.gave_way, PAGES as u64 - 1, "{thread:?}");
}

/// A page that does not exist makes it panic. Planted break: a piece has succeeded until it has failed.
#[test]
fn a_piece_whose_work_panics_has_failed_and_the_others_go_on() {
    let mut pieces = Pieces::new(Policy::COMBO, 8);
    let mut page = [7_u8; PAGE_BYTES];
    for (piece, first_page, expected) in [(1, 1 << 28, Err(Errno::IO)), (2, 0, Ok(()))] {
        pieces.begin(Kind::Read, piece, first_page, pieces.unpack(), &mut page);
        assert_eq!(pieces.told(1), [(piece, expected)]);
    }
    assert_eq!(page, [0; PAGE_BYTES]);
}

/// There is room for one piece, which is stuck. The others are not begun by the thread that brings them, and come in
/// their order. Planted breaks: a piece that finds no room is done at once; a later piece is handed over before one
/// that stands in the line.
#[test]
fn whoever_finds_no_room_waits_in_line_and_is_not_done_by_the_engines_thread() {
    let mut pieces = Pieces::new(sliced(NEVER_OVER), 1);
    let mut pages = [[7_u8; PAGE_BYTES]; 6];
    let memory = pieces.memory.clone();
    let held = memory.hold(HELD);
    for (number, page) in pages.iter_mut().enumerate() {
        let first_page = if number == 0 { HELD } else { number as u64 };
        pieces.begin(Kind::Read, number as u32, first_page, PageStep::Unpack(memory.clone()), page);
        assert_eq!((pieces.work.line.len(), pieces.work.told.done.take().len()), (number, 0));
    }
    assert_eq!(pieces.work.try_again, Some(Time::ZERO + TRY_AGAIN), "places may be others'");
    drop(held);
    let order: Vec<u32> = pieces.told(6).into_iter().map(|(piece, _)| piece).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(pages, [[0; PAGE_BYTES]; 6]);
}

/// A volume `v` that is compressed, beside `plain`, which is not; one service thread, with room for so many.
struct Site {
    served: Served,
    pages: Arc<CompressedMemory>,
    executor: Arc<Executor<ServiceRequest>>,
    info: [crate::backend::VolumeInfo; 2],
}

impl Site {
    fn new(requests_max: usize) -> Site {
        let backing = Backing::CompressedMemory { size_bytes: VOLUME_PAGES * BLOCK, level: 1 };
        let (name, pool) = ("v".into(), "pool".into());
        let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
        let Backend::Compressed(pages) = &volume.backend else { panic!("it is compressed") };
        let (pages, plain) = (pages.clone(), memory("plain", VOLUME_PAGES * BLOCK, 1 << 30));
        let info = [volume.info().clone(), plain.info().clone()];
        let executor = executor(Policy::COMBO, requests_max);
        let engine = EngineConfig { executor: Some(executor.clone()), ..EngineConfig::new(profile(), "noop") };
        Site { served: Served::new(engine, vec![volume, plain]), pages, executor, info }
    }

    fn engine(&self) -> &EngineHandle {
        &self.served.engine
    }

    fn clients(&self) -> [UnixStream; 2] {
        [0, 1].map(|at| raw_connection(self.engine(), &self.info[at]))
    }

    fn wait_until_busy(&self) {
        self.served.wait_until("the one that is stuck", |_| self.executor.figures().threads[0].running_since.is_some());
    }
}

/// A service thread is at a page for it, and comes back when the engine has gone. A caller that asks anything of the
/// engine is told that it has. Broken on purpose and seen red: what the engine has is dropped with its thread.
#[test]
fn an_engine_whose_thread_panics_frees_nothing_that_others_may_write_to() {
    let site = Site::new(16);
    let [mut reads, _other] = site.clients();
    let held = site.pages.hold(HELD);
    send(&mut reads, Command::Read, HELD);
    site.wait_until_busy();
    assert!(matches!(site.engine().call(|_| panic!("on purpose")), Err::<(), _>(EngineError::Stopped)));
    // The first answer may come before the thread has ended, the second one comes afterwards.
    assert!(matches!(site.engine().status(), Err(EngineError::Stopped)));
    let of_request = 1;
    assert_eq!(Arc::strong_count(&site.pages), 2 + of_request, "the test's, and still the engine's");
    drop(held);
    let is_done = (0..60_000).any(|_| {
        pause();
        site.executor.figures().alive == 0
    });
    assert!(is_done, "{:?}", site.executor.figures());
    assert_eq!(Arc::strong_count(&site.pages), 2);
}

fn send(client: &mut UnixStream, command: Command, page: u64) {
    let (offset, length) = (page * BLOCK, BLOCK as u32);
    let request = Request { flags: CommandFlags::NONE, command, cookie: page, offset, length };
    let mut bytes = request.encode().to_vec();
    if command == Command::Write {
        bytes.resize(bytes.len() + length as usize, page as u8);
    }
    client.write_all(&bytes).unwrap();
}

/// The page that an answer is about, with its content behind it if it was `read`.
fn answered(client: &mut UnixStream, read: bool) -> u64 {
    let mut reply = [0; 16];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    if read {
        client.read_exact(&mut [0; BLOCK as usize]).unwrap();
    }
    u64::from_be_bytes(reply[8..].try_into().unwrap())
}

/// Asks the engine's thread for something else: what it had before that, it has done.
fn engine_has_come_so_far(other: &mut UnixStream) {
    for page in 0..20 {
        send(other, Command::Write, page);
        assert_eq!(answered(other, false), page);
    }
}

fn has_no_answer(client: &mut UnixStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let nothing = client.read(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    nothing
}

/// The one service thread is stuck in a step that does not end, with room for others, and without any. Outcome: a piece
/// that needs a service thread waits, on all volumes, and all else goes on. What is told of the thread is how long it
/// has been at it. When the step ends all are answered. Planted breaks: what finds no room is done by the engine's
/// thread; it is never tried again.
#[test]
fn a_stuck_step_of_the_only_service_thread_stops_what_needs_one_and_nothing_else() {
    for requests_max in [16_384, 1] {
        let site = Site::new(requests_max);
        let [mut stuck, mut other] = site.clients();
        let mut waits = raw_connection(site.engine(), &site.info[0]);
        let held = site.pages.hold(HELD);
        send(&mut stuck, Command::Read, HELD);
        site.wait_until_busy();
        (1..=5).for_each(|page| send(&mut waits, Command::Write, page));
        site.served.wait_until("those who wait", |status| status.requests_under_way == 6);
        engine_has_come_so_far(&mut other);
        assert!(has_no_answer(&mut waits) && has_no_answer(&mut stuck), "room for {requests_max}");
        // What needs no service thread is done on the same volume, too.
        let mut trims = raw_connection(site.engine(), &site.info[0]);
        send(&mut trims, Command::Trim, 9);
        assert_eq!(answered(&mut trims, false), 9);
        let figures = site.executor.figures();
        let told = Watch::new(Span::from_nanos(1)).look(&figures);
        assert!(matches!(told[..], [Watched::Stuck { thread: 0, ran }] if ran > Span::ZERO), "{told:?}: {figures:?}");
        drop(held);
        assert_eq!(answered(&mut stuck, true), HELD);
        (1..=5).for_each(|page| assert_eq!(answered(&mut waits, false), page));
        drop((stuck, waits, trims, other));
        site.served.wait_until_all_have_gone();
    }
}
