//! Which thread does what takes a processor's time, and in which order.
//!
//! A service thread is kept here by a page of a compressed volume that the test holds.

use super::*;
use crate::backend::KEY_BYTES;
use plimsoll_executor::{Dispatching, ExecutorConfig, Figures, Policy, Rules, Slicing, ThreadFigures};

const PAGES: usize = 64;
/// The page that a test holds, which keeps each thread that comes to it.
const HELD: u64 = 500;
const VOLUME_PAGES: u64 = 512;

/// Lets other threads run.
fn pause() {
    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: Span::from_millis(5).as_nanos() as i64 };
    let _ = rustix::thread::nanosleep(&pause);
}

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
    std::fs::write(&path, std::array::from_fn::<u8, KEY_BYTES, _>(|at| at as u8 * 3 + 1)).unwrap();
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
/// Promise: executor-preempted.
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

/// However much of its slice is left, of which a few dozen pages fit into one. Planted break: it stops where its slice
/// is spent.
/// Promise: executor-maintenance-page.
#[test]
fn a_copy_of_the_syncer_gives_way_after_each_page() {
    let pieces = Pieces::new(Policy::COMBO, 8);
    let step = PageStep::Pack(pieces.memory.clone());
    let (_, thread) = pieces.large_and_small(Kind::Maintenance, step);
    assert_eq!(thread.preempted + thread.gave_way, PAGES as u64 - 1, "{thread:?}");
}

/// A page that does not exist makes it panic. Planted break: a piece has succeeded until it has failed.
/// Promise: executor-panic.
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
/// Promise: executor-no-room.
#[test]
fn a_step_without_room_waits_in_line_and_is_not_done_by_the_engines_thread() {
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
