//! A client that has lost a connection, or has aborted commands, is overtaken by nothing of that.
//!
//! A backend is slow here where a test says so: it waits for a page of a compressed volume that the test holds.

mod cached;
mod closing;

use plimsoll_core::{Allocation, Rate};
use plimsoll_engine::backend::{Backing, CompressedMemory, Volume, VolumeConfig};
use plimsoll_engine::{EngineConfig, EngineHandle, EngineStatus};
use plimsoll_executor::{Executor, ExecutorConfig, Rules};
use plimsoll_protocols::iscsi::LoggedIn;
use plimsoll_protocols::iscsi::parameters::Parameters;
use plimsoll_protocols::iscsi::pdu::{Digests, Header, NO_TAG, opcode};
use plimsoll_protocols::nbd::wire::Request;
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_protocols::scsi::PortName;
use plimsoll_serve::iscsi::{IscsiConnection, Target};
use plimsoll_testkit::iscsi::{Portal, initiator::Initiator};
use plimsoll_testkit::{BLOCK, PATIENCE, Served, memory, pause, profile, raw_connection, raw_connection_in};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const BLOCKS: u64 = 512;
/// What is written first, and what is written after that.
const OLD: u8 = 1;
const NEW: u8 = 2;
/// The block that a test holds; the one behind it, which the same write comes to afterwards; and one far from both.
const HELD: u64 = 1;
const BEHIND: u64 = 2;
const ELSEWHERE: u64 = 100;

fn config(scheduler: &str) -> EngineConfig {
    let executor = ExecutorConfig { threads: 2, rules: Rules::Adaptive, requests_max: 65_536, seed: 1 };
    EngineConfig {
        executor: Some(Arc::new(Executor::start(executor).unwrap())),
        ..EngineConfig::new(profile(), scheduler)
    }
}

/// A volume `v`, and its pages.
fn compressed() -> (Volume, Arc<CompressedMemory>) {
    let backing = Backing::CompressedMemory { size_bytes: BLOCKS * BLOCK, level: 1 };
    let (name, pool) = ("v".into(), "pool".into());
    let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
    let pages = volume.pages().expect("it is compressed");
    (volume, pages)
}

fn wait_until(engine: &EngineHandle, what: &str, is_so: impl Fn(&EngineStatus) -> bool) {
    for _ in 0..60_000 {
        if is_so(&engine.status().unwrap()) {
            return;
        }
        pause();
    }
    panic!("never came: {what}; now {:?}", engine.status().unwrap());
}

fn has_begun(status: &EngineStatus) -> bool {
    status.accounts.iter().any(|account| account.in_flight > 0)
}

/// Whether the scheduler keeps so many back.
fn are_queued(status: &EngineStatus, count: u32) -> bool {
    status.accounts.iter().any(|account| account.queued >= count)
}

fn send(client: &mut UnixStream, command: Command, block: u64, blocks: u64, content: u8) {
    let length = (blocks * BLOCK) as u32;
    let request = Request { flags: CommandFlags::NONE, command, cookie: block, offset: block * BLOCK, length };
    let mut bytes = request.encode().to_vec();
    if command == Command::Write {
        bytes.resize(bytes.len() + length as usize, content);
    }
    client.write_all(&bytes).unwrap();
}

/// The block that an answer is about.
fn answered(client: &mut UnixStream) -> u64 {
    let mut reply = [0; 16];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    u64::from_be_bytes(reply[8..].try_into().unwrap())
}

fn content(client: &mut UnixStream, block: u64) -> u8 {
    send(client, Command::Read, block, 1, 0);
    let mut bytes = [0; BLOCK as usize];
    assert_eq!(answered(client), block);
    client.read_exact(&mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "block {block} is of several");
    bytes[0]
}

/// Broken on purpose and seen red: nothing is an orphan; a request for an orphan's bytes does not wait.
/// Promise: volume-closed-connection.
#[test]
fn what_a_backend_has_of_a_closed_connection_comes_before_what_is_written_anew() {
    let (volume, pages) = compressed();
    let info = volume.info().clone();
    let served = Served::new(config("noop"), vec![volume]);
    let mut old = raw_connection(&served.engine, &info);
    let held = pages.hold(HELD);
    send(&mut old, Command::Write, HELD, 2, OLD);
    served.wait_until("the write", has_begun);
    drop(old);
    let mut new = raw_connection(&served.engine, &info);
    send(&mut new, Command::Write, BEHIND, 1, NEW);
    send(&mut new, Command::Write, ELSEWHERE, 1, NEW);
    let first = answered(&mut new);
    drop(held);
    let second = answered(&mut new);
    served.wait_until("the end of the old connection", |status| status.volumes[0].front_ends == 1);
    assert_eq!(content(&mut new, BEHIND), NEW);
    assert_eq!((first, second), (ELSEWHERE, BEHIND), "no other request waits");
    drop(new);
    served.wait_until_all_have_gone();
}

/// Broken on purpose and seen red: what waits is not looked at when it is abandoned.
/// Promise: volume-closed-connection.
#[test]
fn a_client_that_waits_on_a_closed_connection_may_vanish_too() {
    let (volume, pages) = compressed();
    let info = volume.info().clone();
    let served = Served::new(config("noop"), vec![volume]);
    let mut old = raw_connection(&served.engine, &info);
    let held = pages.hold(HELD);
    send(&mut old, Command::Write, HELD, 1, OLD);
    served.wait_until("the write", has_begun);
    drop(old);
    let mut second = raw_connection(&served.engine, &info);
    send(&mut second, Command::Write, HELD, 1, NEW);
    served.wait_until("the request that waits", |status| status.requests_under_way == 2);
    drop(second);
    served.wait_until("one request", |status| status.requests_under_way == 1);
    drop(held);
    served.wait_until_all_have_gone();
    assert_eq!(content(&mut raw_connection(&served.engine, &info), HELD), OLD);
}

/// Broken on purpose and seen red: the end of the stream lets what is under way go on; the end is not looked for while
/// there is no room for more requests.
/// Promise: volume-closed-connection.
#[test]
fn what_no_backend_has_of_a_closed_connection_is_dropped() {
    // More than a connection may have under way: the last ones stay in the socket.
    const WRITES: u64 = 270;
    let volume = memory("v", BLOCKS * BLOCK, 0);
    let info = volume.info().clone();
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![volume]);
    let limited = Allocation { limit: Some(Rate::RunsPerSecond(0.001)), ..Allocation::default() };
    served.engine.open_pool("slow", limited).unwrap();
    let mut old = raw_connection_in(&served.engine, &info, "slow");
    (0..WRITES).for_each(|block| send(&mut old, Command::Write, block, 1, OLD));
    served.wait_until("as many requests as it may have", |status| are_queued(status, 200));
    drop(old);
    let mut new = raw_connection(&served.engine, &info);
    for block in 0..WRITES {
        send(&mut new, Command::Write, block, 1, NEW);
        assert_eq!(answered(&mut new), block);
    }
    served.engine.change_account("slow", Allocation::default()).unwrap();
    served.wait_until("the end of the old connection", |status| status.volumes[0].front_ends == 1);
    (0..WRITES).for_each(|block| assert_eq!(content(&mut new, block), NEW, "block {block}"));
    drop(new);
    served.wait_until_all_have_gone_of(&["pool", "slow"]);
}

/// WRITE(10) and READ(10).
fn transfer(code: u8, block: u64, blocks: u8) -> [u8; 10] {
    [code, 0, 0, 0, 0, block as u8, 0, 0, blocks, 0]
}

fn write(initiator: &mut Initiator, block: u64, blocks: u8, content: u8) {
    initiator.request(&transfer(0x2a, block, blocks), 0, &vec![content; usize::from(blocks) * BLOCK as usize]);
}

/// What comes next, and the tag that it is about.
fn heard(initiator: &mut Initiator) -> (u8, u32) {
    let (header, _) = initiator.receive();
    assert_eq!(header.0[3], 0, "{header:?}");
    (header.opcode(), header.initiator_tag())
}

fn read(initiator: &mut Initiator, block: u64) -> u8 {
    let (status, bytes) = initiator.command(&transfer(0x28, block, 1), BLOCK as u32, &[]);
    assert!(status == 0 && bytes.iter().all(|&byte| byte == bytes[0]), "block {block}: {status}");
    bytes[0]
}

/// The answer to this is what comes next, if nothing else does.
fn ping(initiator: &mut Initiator) {
    let mut ping = Header::new(opcode::NOP_OUT | 0x40, PING);
    ping.0[1] = 0x80;
    ping.set_u32(20, NO_TAG);
    ping.set_u32(24, initiator.command_number);
    initiator.send(ping, &[]);
}

const PING: u32 = 1000;
const MANAGEMENT: u32 = 1001;
const ABORT_TASK: u8 = 1;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;

fn manage(initiator: &mut Initiator, function: u8, tag: u32) {
    manage_as(initiator, MANAGEMENT, function, tag);
}

fn manage_as(initiator: &mut Initiator, own_tag: u32, function: u8, tag: u32) {
    let mut request = Header::new(opcode::TASK_MANAGEMENT | 0x40, own_tag);
    request.0[1] = 0x80 | function;
    request.set_u32(20, tag);
    request.set_u32(24, initiator.command_number);
    initiator.send(request, &[]);
}

fn log_out(initiator: &mut Initiator) {
    let mut logout = Header::new(opcode::LOGOUT | 0x40, MANAGEMENT);
    logout.0[1] = 0x80;
    logout.set_u32(24, initiator.command_number);
    initiator.send(logout, &[]);
}

/// A session of the one port of a target, with a connection that does not hear when another one takes its place.
fn deaf_session(engine: &EngineHandle, target: &Arc<Target>) -> Initiator {
    session_in(engine, target, "pool", 0)
}

/// A session of the port of that number, with its account in `pool`.
fn session_in(engine: &EngineHandle, target: &Arc<Target>, pool: &str, port: u8) -> Initiator {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_nanos(PATIENCE.as_nanos()))).unwrap();
    let port = PortName { initiator: "iqn.2026-01.org.example:initiator".into(), isid: [port; 6], target_port: 1 };
    let nexus = target.session_began(&port, UnixStream::pair().unwrap().0).unwrap();
    let negotiated = LoggedIn {
        target: Some(target.name().to_owned()),
        port,
        connection: 0,
        command_number: 1,
        status_number: 1,
        parameters: Parameters::default(),
    };
    let connection = IscsiConnection::new(server.into(), None, target.clone(), nexus, negotiated);
    engine.attach_in("v", pool, plimsoll_testkit::session("iscsi"), Box::new(connection)).unwrap();
    let mut initiator = Initiator { stream, digests: Digests::default(), command_number: 1 };
    assert_eq!(initiator.command(&[0; 6], 0, &[]).0, 2, "the unit attention of a new session");
    initiator
}

/// Broken on purpose and seen red: a session does not abandon what its predecessor in that place had under way.
/// Promise: volume-closed-connection.
#[test]
fn what_a_session_wrote_comes_before_what_the_one_in_its_place_writes() {
    let (volume, pages) = compressed();
    let target = Arc::new(Target::of_volume("iqn.2026-01.org.example:v", None, volume.info(), false));
    let served = Served::new(config("noop"), vec![volume]);
    let mut old = deaf_session(&served.engine, &target);
    let held = pages.hold(HELD);
    write(&mut old, HELD, 2, OLD);
    served.wait_until("the write", has_begun);
    let mut new = deaf_session(&served.engine, &target);
    let tag = new.command_number;
    write(&mut new, BEHIND, 1, NEW);
    write(&mut new, ELSEWHERE, 1, NEW);
    let first = heard(&mut new);
    drop(held);
    let second = heard(&mut new);
    served.wait_until("the end of both writes", |status| status.requests_under_way == 0);
    assert_eq!(read(&mut new, BEHIND), NEW);
    assert_eq!((first, second), ((opcode::RESPONSE, tag + 1), (opcode::RESPONSE, tag)));
}

/// Broken on purpose and seen red: the answer waits for tasks of the same session alone.
/// Promise: volume-aborted.
#[test]
fn task_management_is_answered_when_the_backend_has_done_what_was_aborted() {
    for (function, is_own) in [(ABORT_TASK, true), (CLEAR_TASK_SET, false), (LOGICAL_UNIT_RESET, false)] {
        let (volume, pages) = compressed();
        let portal = Portal::with(config("noop"), vec![(volume, None)]);
        let mut writer = Initiator::log_in(&portal, "v", 1, &[]);
        let mut other = Initiator::log_in(&portal, "v", 2, &[]);
        let held = pages.hold(HELD);
        let tag = writer.command_number;
        write(&mut writer, HELD, 2, OLD);
        wait_until(&portal.engine, "the write", has_begun);
        let manager = if is_own { &mut writer } else { &mut other };
        manage(manager, function, tag);
        ping(manager);
        let first = heard(manager);
        drop(held);
        assert_eq!(first, (opcode::NOP_IN, PING), "function {function} was answered while it may still write");
        assert_eq!(heard(manager), (opcode::TASK_MANAGEMENT_RESPONSE, MANAGEMENT));
    }
}

/// Broken on purpose and seen red: the requests of other sessions are not abandoned.
/// Promise: volume-aborted.
#[test]
fn what_no_backend_has_of_what_was_aborted_is_dropped_and_not_waited_for() {
    let volume = memory("v", BLOCKS * BLOCK, 0);
    let portal = Portal::with(EngineConfig::new(profile(), "zygaria"), vec![(volume, None)]);
    let mut writer = Initiator::log_in(&portal, "v", 1, &[]);
    let mut other = Initiator::log_in(&portal, "v", 2, &[]);
    let limit = |limit| portal.engine.change_account("pool", Allocation { limit, ..Allocation::default() }).unwrap();
    limit(Some(Rate::RunsPerSecond(0.001)));
    // Blocks of 512 bytes; a few may go at once.
    (0..60).for_each(|block| write(&mut writer, 8 * block % 256, 8, OLD));
    wait_until(&portal.engine, "the writes", |status| are_queued(status, 20));
    manage(&mut other, LOGICAL_UNIT_RESET, 0);
    assert_eq!(heard(&mut other), (opcode::TASK_MANAGEMENT_RESPONSE, MANAGEMENT));
    limit(None);
    wait_until(&portal.engine, "the end of the writes", |status| status.requests_under_way == 0);
    // The reset itself.
    assert_eq!(other.command(&[0; 6], 0, &[]).0, 2);
    let (status, bytes) = other.command(&transfer(0x28, 240, 8), 4096, &[]);
    assert!(status == 0 && bytes.iter().all(|&byte| byte == 0), "a write has come after the reset");
}

/// Broken on purpose and seen red: a waiter waits as long as there is any orphan.
/// Promise: volume-aborted.
#[test]
fn a_waiter_is_not_kept_waiting_by_later_aborts() {
    let (volume, pages) = compressed();
    let portal = Portal::with(config("noop"), vec![(volume, None)]);
    let mut initiator = Initiator::log_in(&portal, "v", 1, &[]);
    let (first, second) = (pages.hold(HELD), pages.hold(ELSEWHERE));
    let tag = initiator.command_number;
    write(&mut initiator, HELD, 1, OLD);
    write(&mut initiator, ELSEWHERE, 1, OLD);
    wait_until(&portal.engine, "both writes", |status| status.accounts.iter().any(|account| account.in_flight == 2));
    manage(&mut initiator, ABORT_TASK, tag);
    manage_as(&mut initiator, MANAGEMENT + 1, ABORT_TASK, tag + 1);
    ping(&mut initiator);
    assert_eq!(heard(&mut initiator), (opcode::NOP_IN, PING), "answered while it may still write");
    drop(first);
    wait_until(&portal.engine, "the end of the first write", |status| status.requests_under_way == 1);
    ping(&mut initiator);
    let heard_first = heard(&mut initiator);
    drop(second);
    assert_eq!(heard_first, (opcode::TASK_MANAGEMENT_RESPONSE, MANAGEMENT));
    assert_eq!(heard(&mut initiator), (opcode::NOP_IN, PING));
    assert_eq!(heard(&mut initiator), (opcode::TASK_MANAGEMENT_RESPONSE, MANAGEMENT + 1));
}

/// PERSISTENT RESERVE OUT of a write-exclusive reservation, and its parameters.
fn reserve(action: u8, own: u64, others: u64) -> ([u8; 10], Vec<u8>) {
    let mut parameters = [own.to_be_bytes(), others.to_be_bytes()].concat();
    parameters.resize(24, 0);
    ([0x5f, action, 1, 0, 0, 0, 0, 0, 24, 0], parameters)
}

/// Broken on purpose and seen red: it is answered at once.
/// Promise: volume-aborted.
#[test]
fn preempt_and_abort_is_answered_when_the_backend_has_done_what_was_aborted() {
    const REGISTER: u8 = 0;
    const RESERVE: u8 = 1;
    const PREEMPT_AND_ABORT: u8 = 5;
    let (volume, pages) = compressed();
    let portal = Portal::with(config("noop"), vec![(volume, None)]);
    let mut victim = Initiator::log_in(&portal, "v", 1, &[]);
    let mut other = Initiator::log_in(&portal, "v", 2, &[]);
    let order = |initiator: &mut Initiator, action, own, others| {
        let (command, parameters) = reserve(action, own, others);
        assert_eq!(initiator.command(&command, 0, &parameters).0, 0);
    };
    order(&mut victim, REGISTER, 0, 7);
    order(&mut other, REGISTER, 0, 8);
    order(&mut victim, RESERVE, 7, 0);
    let held = pages.hold(HELD);
    write(&mut victim, HELD, 2, OLD);
    wait_until(&portal.engine, "the write", has_begun);
    let tag = other.command_number;
    let (command, parameters) = reserve(PREEMPT_AND_ABORT, 8, 7);
    other.request(&command, 0, &parameters);
    ping(&mut other);
    let first = heard(&mut other);
    drop(held);
    assert_eq!(first, (opcode::NOP_IN, PING), "answered while the victim may still write");
    assert_eq!(heard(&mut other), (opcode::RESPONSE, tag));
}

/// Broken on purpose and seen red: a logout is answered as it comes; the unit forgets a session that closes.
/// Promise: volume-aborted.
#[test]
fn a_logout_is_answered_after_the_commands_before_it() {
    let (volume, pages) = compressed();
    let portal = Portal::with(config("noop"), vec![(volume, None)]);
    let mut initiator = Initiator::log_in(&portal, "v", 1, &[]);
    let held = pages.hold(HELD);
    let tag = initiator.command_number;
    write(&mut initiator, HELD, 1, OLD);
    wait_until(&portal.engine, "the write", has_begun);
    log_out(&mut initiator);
    let mut other = Initiator::log_in(&portal, "v", 2, &[]);
    assert_eq!(other.command(&[0; 6], 0, &[]).0, 0, "the engine has heard the logout");
    drop(held);
    assert_eq!(heard(&mut initiator), (opcode::RESPONSE, tag));
    assert_eq!(heard(&mut initiator), (opcode::LOGOUT_RESPONSE, MANAGEMENT));
}
