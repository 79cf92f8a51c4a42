//! A cached volume that is asked for more than its slow device does: which request waits for what, what is stuck, and
//! how many may come. The rule itself is tested in a time of its own (`crates/cache/tests/store/overload.rs`); here it
//! is the engine that has to keep it.

use plimsoll_cache::policies;
use plimsoll_cache::store::Semantics;
use plimsoll_core::class::Scheme;
use plimsoll_core::{Allocation, Class, Operation, Span};
use plimsoll_engine::backend::{Backing, Volume, VolumeConfig};
use plimsoll_engine::cache::CacheSettings;
use plimsoll_engine::{BufferClass, EngineConfig, Finished, FrontEnd, Payload, Port, SessionConfig, Submission};
use plimsoll_executor::{Executor, ExecutorConfig, Policy, Queue, Rules};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::slow::Slow;
use plimsoll_testkit::{BLOCK, CACHE_BYTES, PATIENCE, Served, cache_of, cached, content, memory, profile, session};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const BLOCKS: u64 = 16_384;
const DEPTH: u32 = 24;
const ROUNDS_MAX: u64 = 30;
/// What the slow device takes for anything, mostly.
const SLOW: Span = Span::from_micros(300);

fn slow_and_cached(
    sticks_at: Option<(Operation, u64)>,
    semantics: Semantics,
) -> (Served, Arc<AtomicBool>, tempfile::TempDir) {
    let (model, is_freed) = Slow::new(SLOW, sticks_at);
    let volume = memory("v", BLOCKS * BLOCK, 0);
    let (served, directory) =
        cached(EngineConfig::emulated(model, "noop"), volume, |settings| settings.semantics = semantics);
    (served, is_freed, directory)
}

/// Writes `blocks`, as many at once as the client may have under way.
fn write_all(client: &mut Client, blocks: impl Iterator<Item = u64>) {
    let mut free: Vec<u32> = (0..DEPTH).collect();
    for block in blocks {
        if free.is_empty() {
            let completed = client.receive(|_, _, _| {}).unwrap();
            assert_eq!(completed.result, Ok(()));
            free.push(completed.tag);
        }
        let tag = free.pop().expect("one was answered");
        client.submit_write(tag, CommandFlags::NONE, block * BLOCK, &content(block)).unwrap();
    }
    while client.under_way_count() > 0 {
        assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()));
    }
}

/// The numbers below `count`, and again until the observing thread has seen what it wants to see: it may be without a
/// processor for a while. Not for ever.
fn again_until(is_seen: &AtomicBool, count: u64) -> impl Iterator<Item = u64> {
    let goes_on = move |&number: &u64| number < count || !is_seen.load(Ordering::Relaxed);
    (0..ROUNDS_MAX * count).take_while(goes_on).map(move |number| number % count)
}

fn check(client: &mut Client, blocks: impl Iterator<Item = u64>) {
    let mut found = vec![0; BLOCK as usize];
    for block in blocks {
        client.read(block * BLOCK, &mut found).unwrap();
        assert!(found == content(block), "block {block}");
    }
}

/// The slow device is slower than the clients. Outcome: everything is written through the cache and nothing past it,
/// from several connections, under both semantics.
///
/// Planted break that was seen red: a write that finds no unit goes past the cache.
/// Promise: cache-overload.
#[test]
fn more_is_written_than_the_slow_device_takes_and_nothing_goes_past_the_cache() {
    for semantics in [Semantics::WriteCache, Semantics::Strict] {
        let (served, _, _directory) = slow_and_cached(None, semantics);
        let (mut most, is_seen) = (0, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|writer| {
                    let (mut client, is_seen) = (served.connect("v", DEPTH, true), &is_seen);
                    scope.spawn(move || write_all(&mut client, again_until(is_seen, 1000).map(|at| at * 3 + writer)))
                })
                .collect();
            while writers.iter().any(|writer| !writer.is_finished()) {
                most = most.max(cache_of(&served).paced_percent);
                is_seen.store(most > 0, Ordering::Relaxed);
                plimsoll_testkit::pause();
            }
        });
        let cache = cache_of(&served);
        assert_eq!(cache.writes_around, 0, "{cache:?}");
        assert!(cache.cleaned > 1500 && most > 0, "at most {most} % paced: {cache:?}");
        check(&mut served.connect("v", 1, true), (0..3000).step_by(7));
        served.engine.shutdown(PATIENCE).unwrap();
    }
}

/// A client reads more at once than the cache has places for, and the cache wants nothing of it. Outcome: all of it is
/// with the slow device at once, as without a cache, and counted. But what the cache has of it is newer, and is read
/// there.
///
/// Planted breaks that were seen red: such reads take places; they are not counted; they go past what the cache has.
/// Promise: cache-read-past.
#[test]
fn what_no_cache_has_or_wants_is_read_past_it_without_a_place() {
    const READS: u64 = 10;
    const EACH: u64 = 64;
    let (model, _) = Slow::new(Span::from_millis(250), None);
    let (served, _directory) =
        cached(EngineConfig::emulated(model, "noop"), memory("v", BLOCKS * BLOCK, 0), |settings| {
            settings.promotes_reads = false;
        });
    let mut client = served.connect("v", DEPTH, true);
    for number in 0..READS {
        let bytes = (EACH * BLOCK) as u32;
        client.submit(number as u32, Command::Read, CommandFlags::NONE, number * u64::from(bytes), bytes).unwrap();
    }
    client.send_submitted().unwrap();
    served.wait_until("all reads at once", |status| status.requests_under_way == READS as usize);
    for _ in 0..READS {
        assert_eq!(client.receive(|_, _, data| assert!(data.iter().all(|&byte| byte == 0))).unwrap().result, Ok(()));
    }
    let newer = READS * EACH + 3;
    client.write(newer * BLOCK, &content(newer), false).unwrap();
    let mut found = vec![1; 5 * BLOCK as usize];
    client.read((newer - 2) * BLOCK, &mut found).unwrap();
    let expected: Vec<u8> =
        (0..5).flat_map(|at| if at == 2 { content(newer) } else { vec![0; BLOCK as usize] }).collect();
    assert!(found == expected);
    let counted =
        cache_of(&served).classes.iter().fold((0, 0), |sum, class| (sum.0 + class.reads, sum.1 + class.read_hits));
    assert_eq!(counted, (READS * EACH + 5, 1));
    served.engine.shutdown(PATIENCE).unwrap();
}

/// Writes wait for their turn while the cache gets another policy, is flushed, and is taken away. Outcome: each of them
/// is answered once, and what was written is there.
///
/// Planted breaks that were seen red: a request that waits is forgotten when the cache goes; new ones are let in while
/// it is emptied.
/// Promise: cache-waiting-writes.
#[test]
fn writes_that_wait_outlive_another_policy_and_the_end_of_their_cache() {
    let (served, _, _directory) = slow_and_cached(None, Semantics::WriteCache);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (mut client, is_over) = (served.connect("v", DEPTH, true), &is_over);
                scope.spawn(move || write_all(&mut client, again_until(is_over, 3500).map(|at| at * 3 + writer)))
            })
            .collect();
        let wait_for_a_line = || {
            while cache_of(&served).waiting_requests == 0 {
                assert!(!writers.iter().all(|writer| writer.is_finished()), "no request ever waits");
                plimsoll_testkit::pause();
            }
        };
        for policy in ["selective", "credit", "s3_fifo", "lru"] {
            wait_for_a_line();
            let entry = policies().iter().find(|entry| entry.name == policy).unwrap();
            served
                .engine
                .change_cache("v", CacheSettings::new("fast", "fast".into(), entry, Scheme::default()))
                .unwrap();
        }
        wait_for_a_line();
        served.engine.detach_cache("v").unwrap();
        assert!(!writers.iter().all(|writer| writer.is_finished()), "the end comes too late to be seen");
        is_over.store(true, Ordering::Relaxed);
    });
    check(&mut served.connect("v", 1, true), 0..10_500);
    served.engine.shutdown(PATIENCE).unwrap();
}

/// A copy that the slow device never ends. Outcome: its block is held up, and each request for that block; all others
/// go on, though it is one of those that would make room.
///
/// Planted break that was seen red: a flush waits until nothing is being copied.
/// Promise: cache-stuck.
#[test]
fn a_stuck_copy_holds_up_its_block_and_no_other() {
    let (served, is_freed, _directory) = slow_and_cached(Some((Operation::Write, 5)), Semantics::WriteCache);
    let mut client = served.connect("v", DEPTH, true);
    write_all(&mut client, 0..4000);
    assert!(cache_of(&served).cleaned > 2000);
    let mut waits = served.connect("v", 1, true);
    waits.submit_write(0, CommandFlags::NONE, 5 * BLOCK, &content(6)).unwrap();
    waits.send_submitted().unwrap();
    check(&mut client, (0..4000).step_by(11));
    assert_eq!(waits.under_way_count(), 1, "the block is stuck");
    is_freed.store(true, Ordering::Relaxed);
    // Whatever happens next lets the engine look.
    check(&mut client, 0..1);
    assert_eq!(waits.receive(|_, _, _| {}).unwrap().result, Ok(()));
    let mut found = vec![0; BLOCK as usize];
    client.read(5 * BLOCK, &mut found).unwrap();
    assert!(found == content(6));
    served.engine.shutdown(PATIENCE).unwrap();
}

/// A read that the slow device never answers, and all clients ask for its block. Outcome: those wait; a client that
/// wants another block, hit or miss, does not.
///
/// Planted break that was seen red: a session may have all places.
/// Promise: cache-stuck.
#[test]
fn a_stuck_read_holds_up_requests_for_its_block_and_no_others() {
    let (served, is_freed, _directory) = slow_and_cached(Some((Operation::Read, 9000)), Semantics::WriteCache);
    let mut stuck: Vec<_> = (0..4).map(|_| served.connect("v", 200, true)).collect();
    for client in &mut stuck {
        (0..200)
            .for_each(|tag| client.submit(tag, Command::Read, CommandFlags::NONE, 9000 * BLOCK, BLOCK as u32).unwrap());
        client.send_submitted().unwrap();
    }
    let mut client = served.connect("v", DEPTH, true);
    write_all(&mut client, 0..2000);
    check(&mut client, (0..2000).step_by(13));
    assert!(stuck.iter().all(|client| client.under_way_count() == 200));
    is_freed.store(true, Ordering::Relaxed);
    check(&mut client, 0..1);
    for client in &mut stuck {
        while client.under_way_count() > 0 {
            assert_eq!(
                client.receive(|_, _, bytes| assert!(bytes.iter().all(|&byte| byte == 0))).unwrap().result,
                Ok(())
            );
        }
    }
    served.engine.shutdown(PATIENCE).unwrap();
}

/// Requests of the crowd, in all and of each of its members; of twenty, three write, five read and twelve trim.
const CROWD: u64 = 100_000;
const MEMBERS: u64 = 2;

/// Sends everything that it has at once.
struct Crowd {
    first_block: u64,
    count: u64,
    operation_of: fn(u64) -> Operation,
    under_way: u64,
    /// For each answer, the first block of the client that got it.
    answers: Arc<Mutex<Vec<u64>>>,
    is_stopped: bool,
}

impl Crowd {
    fn boxed(
        first_block: u64,
        count: u64,
        operation_of: fn(u64) -> Operation,
        answers: &Arc<Mutex<Vec<u64>>>,
    ) -> Box<Crowd> {
        let answers = answers.clone();
        Box::new(Crowd { first_block, count, operation_of, under_way: 0, answers, is_stopped: false })
    }
}

impl FrontEnd for Crowd {
    fn buffer_classes(&self) -> &[BufferClass] {
        &[BufferClass { bytes: BLOCK as u32, count: u16::MAX }]
    }

    fn started(&mut self, port: &mut Port<'_>) {
        for number in 0..self.count {
            let block = self.first_block + number;
            let operation = (self.operation_of)(number);
            let payload = match operation {
                Operation::Trim => Payload::None,
                _ => {
                    let mut buffer = port.take_buffer(BLOCK as u32).expect("there are as many as requests");
                    if operation == Operation::Write {
                        buffer.as_mut_slice().copy_from_slice(&content(block));
                    }
                    Payload::Buffer { buffer, at: 0 }
                }
            };
            let (offset, length, class) = (block * BLOCK, BLOCK as u32, Class::UNCLASSIFIED);
            port.submit(Submission { token: number, operation, offset, length, is_forced: false, class, payload });
            self.under_way += 1;
        }
    }

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, port: &mut Port<'_>, finished: Finished) {
        assert_eq!(finished.result, Ok(()));
        port.give_payload(finished.payload);
        self.under_way -= 1;
        self.answers.lock().unwrap().push(self.first_block);
    }

    fn turn_ended(&mut self, _: &mut Port<'_>) {}

    fn stop(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn cut(&mut self, _: &mut Port<'_>) {
        self.is_stopped = true;
    }

    fn is_finished(&self) -> bool {
        self.is_stopped && self.under_way == 0
    }
}

/// A hundred thousand changes at once, most of them for the slow device. Outcome: no more than the cache has places
/// for are under way at a time; all are answered, and another client is meanwhile.
///
/// Planted break that was seen red: a line is forgotten in which a request stands. (That each event looks at all that
/// wait makes it four times as long, and not red.)
/// Promise: cache-line.
#[test]
fn a_hundred_thousand_requests_wait_in_line_and_are_all_answered() {
    /// Requests and copies that the cache has at once, and its flush.
    const UNDER_WAY_MAX: usize = 256 + 32 + 1;
    let (model, _) = Slow::new(Span::from_micros(4), None);
    let volume = memory("v", (CROWD + BLOCKS) * BLOCK, 0);
    let (served, _directory) = cached(EngineConfig::emulated(model, "noop"), volume, |settings| {
        settings.size_bytes = Some(4 * CACHE_BYTES);
    });
    let operation_of = |number| if number % 20 < 3 { Operation::Write } else { Operation::Trim };
    let answers = Arc::default();
    for member in 0..MEMBERS {
        let crowd = Crowd::boxed(member * (CROWD / MEMBERS), CROWD / MEMBERS, operation_of, &answers);
        served.engine.attach("v", session("crowd"), crowd).unwrap();
    }
    let mut client = served.connect("v", DEPTH, true);
    write_all(&mut client, CROWD..CROWD + 100);
    let most = Cell::new(0);
    served.wait_until("the answers to everybody", |status| {
        most.set(most.get().max(status.requests_under_way));
        answers.lock().unwrap().len() as u64 == CROWD
    });
    assert!(most.get() <= UNDER_WAY_MAX, "{} were under way", most.get());
    check(&mut client, (0..CROWD).filter(|number| number % 20 < 3 && number % 50 == 0).chain(CROWD..CROWD + 100));
    assert_eq!(cache_of(&served).waiting_requests, 0);
    served.engine.shutdown(PATIENCE).unwrap();
}

/// Two sessions write more than the slow device takes. Outcome: new blocks come in as the sessions' weights say.
///
/// Planted break that was seen red: a block costs all sessions the same.
/// Promise: cache-weights.
#[test]
fn a_session_that_writes_more_than_the_slow_device_takes_has_its_weights_part() {
    const WRITES: u64 = 3000;
    let (served, _, _directory) = slow_and_cached(None, Semantics::WriteCache);
    let answers: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (light, heavy) = (0, 2 * WRITES);
    for (first_block, weight) in [(light, 100), (heavy, 400)] {
        let session = SessionConfig {
            name: format!("weight {weight}"),
            allocation: Allocation { weight, ..Allocation::default() },
        };
        let crowd = Crowd::boxed(first_block, WRITES, |_| Operation::Write, &answers);
        served.engine.attach("v", session, crowd).unwrap();
    }
    served.wait_until("the answers to both", |_| answers.lock().unwrap().len() as u64 == 2 * WRITES);
    // As long as both wait.
    let answers = answers.lock().unwrap();
    let from = answers.iter().position(|&whose| whose == heavy).unwrap();
    let to = answers.iter().rposition(|&whose| whose == heavy).unwrap();
    let of_light = answers[from..to].iter().filter(|&&whose| whose == light).count() as f64;
    let ratio = WRITES as f64 / of_light;
    assert!((3.5..4.5).contains(&ratio), "{ratio}");
    drop(answers);
    served.engine.shutdown(PATIENCE).unwrap();
}

/// What the syncer copies to a compressed volume is maintenance to the request executor, and what clients ask for is
/// not.
///
/// Planted break that was seen red: copies are writes like any other.
/// Promise: cache-compressed-copies.
#[test]
fn copies_of_the_syncer_are_compressed_in_the_maintenance_queue() {
    let backing = Backing::CompressedMemory { size_bytes: BLOCKS * BLOCK, level: 1 };
    let config = VolumeConfig { name: "v".into(), pool: "pool".into(), backing, start_bytes: 0, is_read_only: false };
    let rules = Rules::Fixed(Policy::COMBO);
    let executor = Executor::start(ExecutorConfig { threads: 2, rules, requests_max: 65_536, seed: 1 }).unwrap();
    let executor = Arc::new(executor);
    let engine = EngineConfig { executor: Some(executor.clone()), ..EngineConfig::new(profile(), "noop") };
    let (served, _directory) = cached(engine, Volume::open(config).unwrap(), |_| {});
    let mut client = served.connect("v", DEPTH, true);
    write_all(&mut client, 0..3000);
    let reads: Vec<u64> = (0..3000).step_by(7).collect();
    check(&mut client, reads.iter().copied());
    let (cache, figures) = (cache_of(&served), executor.figures());
    let served_in = |queue: Queue| figures.queues[queue.index()].served;
    assert!(cache.cleaned > 1500, "{cache:?}");
    // Copies that lie one behind the other are one request, of 256 KiB at the most.
    let copies_min = cache.cleaned * BLOCK / (256 << 10);
    assert!(served_in(Queue::Maintenance) >= copies_min, "{copies_min}: {figures:?}");
    let of_clients = served_in(Queue::High) + served_in(Queue::Low);
    assert!((101..=reads.len() as u64).contains(&of_clients), "reads that miss: {figures:?}");
    served.engine.shutdown(PATIENCE).unwrap();
}
