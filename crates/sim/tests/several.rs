//! Several machines in one virtual time: a guest with its host's file as its disk, and nodes of a cluster.
//!
//! Planted breaks, each of which was seen to make the test named red: the hash is of the first machine only
//! (`the_hash_is_of_both_machines...`); a guest's flush without fdatasync (`a_guests_flush_is_durable...`); the host's
//! threads, or every other node of a pipeline, in a wrong account (`what_a_guest_does...`, `the_writers_account...`);
//! acknowledged when the first node has a packet, a packet or its bytes counted twice, appended twice
//! (`each_byte_is_written...` and three others); a network card without a queue (`network::tests`, and
//! `packets_of_both_clients_queue...` here).

mod common;

use common::*;
use plimsoll_core::*;
use plimsoll_devices::DeviceModel;
use plimsoll_sim::cluster::{Cluster, ClusterConfig};
use plimsoll_sim::fs::FileSystem;
use plimsoll_sim::fs::ext4::{Ext4, Ext4Options};
use plimsoll_sim::guest::{CacheMode, VirtualDisk};
use plimsoll_sim::network::NetworkConfig;
use plimsoll_sim::{Bytes, Machine, MachineConfig, Simulation};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const IMAGE: &str = "/guest.img";

/// A machine more, with ext4 and sessions for processes, which starts now.
fn add(
    simulation: &mut Simulation,
    config: MachineConfig,
    scheduler: Box<dyn Scheduler>,
    device: Box<dyn DeviceModel>,
    sessions: usize,
) -> (Machine, Vec<AccountId>) {
    let mut tree = AccountTree::new(device.profile().clone());
    let mut open = |name: &str| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
    let sessions = (0..sessions).map(|number| open(&format!("session {number}"))).collect();
    let file_system: Rc<dyn FileSystem> = Ext4::new(device.profile().capacity_bytes, Ext4Options::NOLOCK);
    (simulation.add_machine(config, scheduler, device, file_system, &tree), sessions)
}

/// A host with `scheduler`, and a guest in the host's session 1, its disk of 1 GiB a file of the host.
fn host_and_guest(seed: u64, scheduler: Box<dyn Scheduler>, cache: CacheMode) -> (Simulation, Machine, Vec<AccountId>) {
    let config = MachineConfig { seed, memory_bytes: 64 << 20, ..MachineConfig::default() };
    let device = plimsoll_devices::build(DISK, seed).unwrap();
    let (mut simulation, sessions) = machine_with(config.clone(), scheduler, device, 2);
    simulation.machine().spawn("prepare", sessions[0], |process| async move {
        process.create(IMAGE).await.unwrap().fill(1.gib()).await;
        process.sync().await;
    });
    simulation.run_to_completion();
    let disk = VirtualDisk::new(simulation.machine(), IMAGE, sessions[1], cache).unwrap();
    assert_eq!(disk.profile().capacity_bytes, 1.gib());
    let noop = plimsoll_schedulers::build("noop", disk.profile()).unwrap();
    let (guest, guest_sessions) = add(&mut simulation, config, noop, Box::new(disk), 2);
    (simulation, guest, guest_sessions)
}

fn cfq() -> Box<dyn Scheduler> {
    plimsoll_schedulers::build("cfq", plimsoll_devices::build(DISK, 1).unwrap().profile()).unwrap()
}

/// A reader on the host beside a writer in the guest.
fn mixed_run(seed: u64) -> (u64, u64, u64) {
    let (mut simulation, guest, sessions) = host_and_guest(seed, cfq(), CacheMode::Writeback);
    let host = simulation.machine().clone();
    host.spawn("reader", AccountId(3), |process| async move {
        let file = process.create("/big").await.unwrap();
        file.fill(1.gib()).await;
        loop {
            file.read(process.random_below(1.gib() / 4.kib()) * 4.kib(), 4.kib()).await;
        }
    });
    guest.spawn("writer", sessions[0], |process| async move {
        let file = process.create("/data").await.unwrap();
        loop {
            file.write(process.random_below(16.mib() / 4.kib()) * 4.kib(), 4.kib()).await;
            file.fsync().await;
        }
    });
    simulation.run_until(at(3.0));
    assert_eq!(guest.now(), host.now(), "one clock");
    let of = |machine: &Machine, name, kind| machine.statistics.of(name).count(kind);
    (simulation.trace_hash(), of(&host, "reader", CallKind::Read), of(&guest, "writer", CallKind::Fsync))
}

/// Promise: sim-several.
#[test]
fn two_machines_take_the_same_course_twice_and_with_another_seed_another() {
    let (first, again, other) = (mixed_run(1), mixed_run(1), mixed_run(2));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    assert!(first.1 > 20 && first.2 > 5, "both get on: {first:?}");
}

#[test]
fn the_hash_is_of_both_machines_and_of_a_single_one_its_own() {
    let (mut simulation, guest, sessions) = host_and_guest(1, cfq(), CacheMode::Writeback);
    guest.spawn("writer", sessions[0], |process| async move {
        process.create("/small").await.unwrap().write(0, 4.kib()).await;
    });
    simulation.run_to_completion();
    let before = simulation.trace_hash();
    let host_before = simulation.machine().trace.hash();
    // Overwritten in the guest's page cache: nothing happens on the host.
    guest.spawn("writer", sessions[0], |process| async move {
        process.open("/small").await.unwrap().write(0, 4.kib()).await;
    });
    simulation.run_to_completion();
    assert_eq!(simulation.machine().trace.hash(), host_before);
    assert_ne!(simulation.trace_hash(), before);
    let (alone, _) = machine(MachineConfig::default(), "noop", DISK, 1);
    assert_eq!(alone.trace_hash(), alone.machine().trace.hash());
}

/// Pages dirtied on the host, and requests that its scheduler was handed.
type Asked = (Vec<PageEvent>, Vec<BlockRequest>);

/// Writes in the guest, then an fsync; answers with what the host was asked until the fsync returned.
fn flushed_run(cache: CacheMode) -> Asked {
    let (probe, seen) = Probe::new();
    let (mut simulation, guest, sessions) = host_and_guest(1, Box::new(probe), cache);
    let (before, dirtied_before) = (seen.requests().len(), seen.dirtied().len());
    let host = simulation.machine().clone();
    let done: Rc<RefCell<Option<Asked>>> = Rc::default();
    let (note, completed_before) = (done.clone(), host.block.borrow().flow().completed);
    guest.spawn("writer", sessions[0], move |process| async move {
        let file = process.create("/data").await.unwrap();
        file.write(0, 256.kib()).await;
        file.fsync().await;
        let completed = (host.block.borrow().flow().completed - completed_before) as usize;
        let requests = seen.requests()[before..].to_vec();
        assert_eq!(completed, requests.len(), "when the guest's fsync returns, the host's device owes nothing");
        *note.borrow_mut() = Some((seen.dirtied()[dirtied_before..].to_vec(), requests));
    });
    simulation.run_to_completion();
    done.take().expect("the fsync returned")
}

fn bytes_written(requests: &[BlockRequest]) -> u64 {
    requests.iter().filter(|r| r.operation == Operation::Write).map(|r| u64::from(r.length)).sum()
}

/// Promise: sim-guest.
#[test]
fn a_guests_flush_is_durable_on_the_host_before_it_completes() {
    for cache in [CacheMode::Writeback, CacheMode::None] {
        let (dirtied, requests) = flushed_run(cache);
        let last = requests.last().map(|request| request.operation);
        assert_eq!(last, Some(Operation::Flush), "{cache:?}: the last thing is a barrier");
        assert!(bytes_written(&requests) >= 256.kib(), "{cache:?}: data and journal are on the host's device");
        let dirtied_bytes: u64 = dirtied.iter().map(|event| event.length).sum();
        match cache {
            CacheMode::Writeback => assert_eq!(dirtied_bytes, bytes_written(&requests), "what was cached was written"),
            CacheMode::None => assert_eq!(dirtied_bytes, 0, "past the host's cache"),
        }
    }
}

/// Promise: sim-guest.
#[test]
fn what_a_guest_does_is_done_and_caused_by_its_account_on_the_host() {
    const GUEST: AccountId = AccountId(4);
    for cache in [CacheMode::Writeback, CacheMode::None] {
        let (dirtied, requests) = flushed_run(cache);
        for event in &dirtied {
            assert_eq!(event.causes, CauseSet::of(GUEST));
        }
        for request in requests.iter().filter(|request| request.operation == Operation::Write) {
            assert_eq!((request.session, &request.causes), (GUEST, &CauseSet::of(GUEST)), "{cache:?}");
        }
    }
}

#[test]
fn the_hosts_scheduler_throttles_the_guest_as_a_whole() {
    let profile = plimsoll_devices::build(DISK, 1).unwrap().profile().clone();
    let mut scheduler = plimsoll_schedulers::build("scs_token", &profile).unwrap();
    let mut tree = AccountTree::new(profile);
    // The guest's session is the fourth account after the root (see `machine_with`).
    let names = ["flusher", "journal", "session 0", "session 1"];
    for name in names {
        let limit = (name == names[3]).then_some(Rate::BytesPerSecond(1e6));
        let allocation = Allocation { limit, ..Allocation::default() };
        tree.open(AccountId::ROOT, name, AccountKind::Session, allocation).unwrap();
    }
    tree.iter().for_each(|account| scheduler.account_opened(Time::ZERO, account));
    let limited = Limited { inner: scheduler };
    let (mut simulation, guest, sessions) = host_and_guest(1, Box::new(limited), CacheMode::None);
    let start = simulation.machine().now();
    for (number, &session) in sessions.iter().enumerate() {
        guest.spawn("writer", session, move |process| async move {
            let file = process.create(&format!("/data{number}")).await.unwrap();
            loop {
                file.append(64.kib()).await;
                file.fdatasync().await;
            }
        });
    }
    simulation.run_until(start + Span::from_secs(10));
    let written = guest.statistics.of("writer").bytes(CallKind::Write);
    assert!((5_000_000..10_200_000).contains(&written), "1 MB/s for both together: {written} in 10 s");
}

/// A scheduler that has learned its accounts already.
struct Limited {
    inner: Box<dyn Scheduler>,
}

impl Scheduler for Limited {
    fn name(&self) -> &'static str {
        "limited"
    }
    fn call_entered(&mut self, now: Time, call: &Call) -> CallDecision {
        self.inner.call_entered(now, call)
    }
    fn released_calls(&mut self, now: Time, released: &mut Vec<CallId>) {
        self.inner.released_calls(now, released);
    }
    fn wishes(&mut self, now: Time, wishes: &mut Vec<Wish>) {
        self.inner.wishes(now, wishes);
    }
    fn request_added(&mut self, now: Time, request: BlockRequest) {
        self.inner.request_added(now, request);
    }
    fn next(&mut self, now: Time) -> Dispatch {
        self.inner.next(now)
    }
    fn request_completed(&mut self, now: Time, completion: &Completion) {
        self.inner.request_completed(now, completion);
    }
}

#[test]
fn a_guest_without_an_image_is_refused() {
    let (simulation, sessions) = machine(MachineConfig::default(), "noop", DISK, 1);
    let error = VirtualDisk::new(simulation.machine(), "/none.img", sessions[0], CacheMode::Writeback).err().unwrap();
    assert!(error.to_string().contains("/none.img"), "{error}");
}

const CLUSTER: ClusterConfig = ClusterConfig {
    replication: 3,
    block_bytes: 1 << 20,
    packet_bytes: 64 << 10,
    network: NetworkConfig { bytes_per_second: 125_000_000, latency: Span::from_micros(100) },
};

/// What a run of a cluster came to: its hash, bytes that each node has written, packets acknowledged and how late.
struct ClusterRun {
    hash: u64,
    written_bytes: Vec<u64>,
    acknowledged: Vec<(Time, Span)>,
    dirtied: Vec<PageEvent>,
}

/// Two clients, in sessions 0 and 1, write so many blocks each to four nodes.
fn cluster_run(seed: u64, blocks: [u32; 2], limit: Option<Time>) -> ClusterRun {
    let config = MachineConfig { seed, memory_bytes: 64 << 20, ..MachineConfig::default() };
    let device = || plimsoll_devices::build(DISK, seed).unwrap();
    let (probe, seen) = Probe::new();
    let mut tree = AccountTree::new(device().profile().clone());
    let mut open = |name: &str| tree.open(AccountId::ROOT, name, AccountKind::Session, Allocation::default()).unwrap();
    let sessions = [open("a"), open("b")];
    let file_system = || Ext4::new(device().profile().capacity_bytes, Ext4Options::NOLOCK);
    let mut simulation = Simulation::new(config.clone(), Box::new(probe), device(), file_system(), &tree);
    for _ in 1..4 {
        simulation.add_machine(config.clone(), cfq(), device(), file_system(), &tree);
    }
    let executor = simulation.machine().executor.clone();
    let cluster = Cluster::new(&executor, simulation.machines(), 2, CLUSTER);
    let acknowledged: Rc<RefCell<Vec<(Time, Span)>>> = Rc::default();
    let finished = Rc::new(Cell::new(0));
    for (number, &session) in sessions.iter().enumerate() {
        let (log, clock, finished) = (acknowledged.clone(), executor.clone(), finished.clone());
        let note = Rc::new(move |since: Time, bytes: u64| {
            assert_eq!(bytes, 64.kib());
            log.borrow_mut().push((since, clock.now().since(since)));
        });
        let mut client = cluster.client(number, session, seed, note);
        executor.spawn(async move {
            for _ in 0..blocks[number] {
                client.write_block().await;
            }
            finished.set(finished.get() + 1);
        });
    }
    simulation.run_until(limit.unwrap_or(at(10.0)));
    assert_eq!(finished.get(), if limit.is_none() { 2 } else { 0 });
    cluster.assert_conserved();
    let written_bytes = (0..4).map(|node| cluster.written_bytes(node)).collect();
    let acknowledged = acknowledged.take();
    ClusterRun { hash: simulation.trace_hash(), written_bytes, acknowledged, dirtied: seen.dirtied() }
}

/// Promise: sim-cluster.
#[test]
fn each_byte_is_written_on_as_many_nodes_as_there_are_replicas() {
    let run = cluster_run(1, [8; 2], None);
    assert_eq!(run.acknowledged.len(), 2 * 8 * 16, "every packet is acknowledged once");
    assert_eq!(run.written_bytes.iter().sum::<u64>(), 2 * 8 * 3 * 1.mib());
    assert!(run.written_bytes.iter().all(|&bytes| bytes % 1.mib() == 0 && bytes > 0), "{:?}", run.written_bytes);
}

#[test]
fn packets_are_acknowledged_in_order_and_not_before_they_went_all_the_way() {
    let run = cluster_run(1, [4; 2], None);
    // Three hops of 64 KiB at 1 Gb/s and their latency, and the latency back; no acknowledgement can be sooner.
    let hop = Span::from_nanos(65_536 * 8);
    let soonest = (hop + CLUSTER.network.latency) * 3 + CLUSTER.network.latency * 3;
    assert!(run.acknowledged.iter().all(|&(_, latency)| latency >= soonest), "at least {soonest}");
    assert!(run.acknowledged.iter().any(|&(_, latency)| latency < soonest * 2), "an idle cluster is about as fast");
}

#[test]
fn packets_of_both_clients_queue_at_the_cards_that_they_share() {
    let mean = |blocks| {
        let run = cluster_run(1, blocks, None);
        let sum = run.acknowledged.iter().fold(Span::ZERO, |sum, &(_, latency)| sum + latency);
        sum.as_nanos() / run.acknowledged.len() as u64
    };
    // Of four nodes any two pipelines of three share at least two, so a packet waits for those of the other client.
    let (alone, both) = (mean([8, 0]), mean([8, 8]));
    assert!(both > alone + alone / 10, "{alone} ns alone, {both} beside another");
}

#[test]
fn what_is_under_way_is_conserved_at_any_instant() {
    for end_ms in [3.0, 7.5, 11.0, 20.0] {
        let run = cluster_run(2, [1000; 2], Some(at(end_ms / 1000.0)));
        let written = run.written_bytes.iter().sum::<u64>();
        let acknowledged = run.acknowledged.len() as u64 * 64.kib();
        assert!(acknowledged * 3 <= written, "{acknowledged} acknowledged of {written} written on all nodes");
    }
}

/// Promise: sim-cluster.
#[test]
fn the_writers_account_travels_down_the_pipeline() {
    let of = |blocks| {
        let run = cluster_run(1, blocks, None);
        let data: Vec<&PageEvent> = run.dirtied.iter().filter(|event| event.file != FileId(0)).collect();
        let bytes: u64 = data.iter().map(|event| event.length).sum();
        assert_eq!(bytes, run.written_bytes[0]);
        data.iter().flat_map(|event| event.causes.iter()).collect::<BTreeSet<AccountId>>()
    };
    let [a, b] = [AccountId(1), AccountId(2)];
    assert_eq!(of([8, 0]), BTreeSet::from([a]), "the node is at every place of some pipeline");
    assert_eq!(of([0, 8]), BTreeSet::from([b]));
    assert_eq!(of([8, 8]), BTreeSet::from([a, b]));
}

/// Promise: sim-several.
#[test]
fn a_cluster_takes_the_same_course_twice_and_with_another_seed_another() {
    let (first, again, other) =
        (cluster_run(1, [4; 2], None), cluster_run(1, [4; 2], None), cluster_run(2, [4; 2], None));
    assert_eq!((first.hash, &first.acknowledged), (again.hash, &again.acknowledged));
    assert_ne!(first.hash, other.hash);
    assert_ne!(first.written_bytes, other.written_bytes, "other nodes are chosen");
}
