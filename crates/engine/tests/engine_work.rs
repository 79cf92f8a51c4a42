//! Which pieces a stuck service thread keeps waiting, and what an engine that has panicked frees.
//!
//! A service thread is kept here by a page of a compressed volume that the test holds.

use plimsoll_core::Span;
use plimsoll_engine::backend::{Backing, CompressedMemory, Volume, VolumeConfig, VolumeInfo};
use plimsoll_engine::{BufferClass, EngineConfig, EngineError, EngineHandle, Finished, FrontEnd, Port, ServiceRequest};
use plimsoll_executor::{Executor, ExecutorConfig, Policy, Rules, Watch, Watched};
use plimsoll_protocols::nbd::wire::Request;
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_testkit::{BLOCK, Served, memory, pause, profile, raw_connection, session};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The page that a test holds, which keeps each thread that comes to it.
const HELD: u64 = 500;
const VOLUME_PAGES: u64 = 512;

/// One service thread, the usual number on two processors.
fn executor(policy: Policy, requests_max: usize) -> Arc<Executor<ServiceRequest>> {
    let config = ExecutorConfig { threads: 1, rules: Rules::Fixed(policy), requests_max, seed: 1 };
    Arc::new(Executor::start(config).unwrap())
}

/// A volume `v` that is compressed, beside `plain`, which is not; one service thread, with room for so many.
struct Site {
    served: Served,
    pages: Arc<CompressedMemory>,
    executor: Arc<Executor<ServiceRequest>>,
    info: [VolumeInfo; 2],
}

impl Site {
    fn new(requests_max: usize) -> Site {
        let backing = Backing::CompressedMemory { size_bytes: VOLUME_PAGES * BLOCK, level: 1 };
        let (name, pool) = ("v".into(), "pool".into());
        let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
        let pages = volume.pages().expect("it is compressed");
        let plain = memory("plain", VOLUME_PAGES * BLOCK, 1 << 30);
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

/// A front end with which an engine's thread panics.
struct Panics;

impl FrontEnd for Panics {
    fn buffer_classes(&self) -> &[BufferClass] {
        panic!("on purpose")
    }

    fn started(&mut self, _: &mut Port<'_>) {}

    fn ring_completed(&mut self, _: &mut Port<'_>, _: u32, _: Result<u32, Errno>, _: bool) {}

    fn request_completed(&mut self, _: &mut Port<'_>, _: Finished) {}

    fn turn_ended(&mut self, _: &mut Port<'_>) {}

    fn stop(&mut self, _: &mut Port<'_>) {}

    fn cut(&mut self, _: &mut Port<'_>) {}

    fn is_finished(&self) -> bool {
        false
    }
}

/// A service thread is at a page for it, and comes back when the engine has gone. A caller that asks anything of the
/// engine is told that it has. Broken on purpose and seen red: what the engine has is dropped with its thread.
/// Promise: volume-panic.
#[test]
fn an_engine_whose_thread_panics_frees_nothing_that_others_may_write_to() {
    let site = Site::new(16);
    let [mut reads, _other] = site.clients();
    let held = site.pages.hold(HELD);
    send(&mut reads, Command::Read, HELD);
    site.wait_until_busy();
    let attached = site.engine().attach("plain", session("panics"), Box::new(Panics));
    assert!(matches!(attached, Err(EngineError::Stopped)));
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
/// Promise: executor-stuck.
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
        site.served.wait_until("the requests that wait", |status| status.requests_under_way == 6);
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
