//! What the levels above tell an engine: which accounts the blocks belong to, and which system calls wait.
//!
//! Planted breaks that turned a test red: pieces that never end where causes change; the whole piece charged to its
//! first cause; a cause that has closed kept; a flush without a cause, or the same ones twice; the time that a turn
//! asks for ignored; the descriptor not watched; the levels not told of a switched scheduler.

use plimsoll_core::{
    AccountId, Allocation, Call, CallDecision, CallId, CallKind, CauseSet, Class, FileId, Operation, PageEvent, Rate,
    Scheduler, Span, ThreadId, Time, Wish,
};
use plimsoll_engine::cache::FoundCache;
use plimsoll_engine::{Below, BlockTag, BlockTags, EngineConfig, EngineError, EngineStatus, HeldReads, UpperLevels};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::Client;
use plimsoll_testkit::{Served, cache_settings, memory, pause, profile, session};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

const KIB: u64 = 1024;
/// More than zygaria lets a session with a limit have at once.
const READS: u32 = 128;

/// Causes by the block's place: which account wrote up to which byte.
struct ByPlace(Vec<(u64, CauseSet)>);

impl BlockTags for ByPlace {
    fn tag(&self, operation: Operation, offset: u64) -> BlockTag {
        assert!(matches!(operation, Operation::Read | Operation::Write), "{operation:?} has no blocks");
        let found = self.0.iter().find(|(end, _)| offset < *end);
        let causes = found.map_or(CauseSet::EMPTY, |(_, causes)| causes.clone());
        BlockTag { causes, class: Class::UNCLASSIFIED, file: None, is_sync: false }
    }
}

fn write(client: &mut Client, offset: u64, length: u32) {
    client.submit_write(0, CommandFlags::NONE, offset, &vec![7; length as usize]).unwrap();
    client.send_submitted().unwrap();
    assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()));
}

/// What an account has moved, by the start of its name.
fn bytes_of(status: &EngineStatus, name: &str) -> u64 {
    let path = format!("pool/{name}#");
    status.accounts.iter().filter(|account| account.path.starts_with(&path)).map(|account| account.bytes).sum()
}

#[test]
fn the_cause_of_a_block_pays_for_it_and_not_its_mount() {
    let served = Served::plain(vec![memory("v", 4 << 20, 0)]);
    let [a, b] = ["a", "b"].map(|name| served.engine.open_session("pool", session(name)).unwrap());
    let both: CauseSet = [a, b].into_iter().collect();
    // The pages of the last part are a's and b's in turns.
    let mut places = vec![
        (40 * KIB, CauseSet::of(a)),
        (256 * KIB, CauseSet::of(b)),
        (260 * KIB, CauseSet::EMPTY),
        (512 * KIB, both),
    ];
    places.extend(
        (0..16).map(|page| (512 * KIB + (page + 1) * 4 * KIB, CauseSet::of(if page % 2 == 0 { a } else { b }))),
    );
    served.engine.set_tags("v", Some(Box::new(ByPlace(places)))).unwrap();
    let mut client = served.connect("v", 4, true);
    let moved = |served: &Served| {
        let status = served.engine.status().unwrap();
        ["a", "b", "client"].map(|name| bytes_of(&status, name) / KIB)
    };
    write(&mut client, 0, 64 << 10);
    assert_eq!(moved(&served), [40, 24, 0], "the piece ends where the causes change");
    write(&mut client, 36 << 10, 64 << 10);
    assert_eq!(moved(&served), [40 + 16, 24 + 16 + 32, 0], "a piece is a run long at least, and its causes share it");
    write(&mut client, 256 << 10, 4 << 10);
    assert_eq!(moved(&served), [56, 72, 4], "what nobody is known for is the connection's");
    write(&mut client, 300 << 10, 6 << 10);
    assert_eq!(moved(&served), [59, 75, 4]);
    write(&mut client, 512 << 10, 64 << 10);
    assert_eq!(moved(&served), [59 + 32, 75 + 32, 4], "pages in turns are shared");
    let status = served.engine.status().unwrap();
    let [pool, of_a] = ["pool", "pool/a#1"].map(|path| status.accounts.iter().find(|one| one.path == path).unwrap());
    assert_eq!(pool.bytes / KIB, 91 + 107 + 4, "nothing is counted twice, nothing is lost");
    assert_eq!((of_a.queued, of_a.in_flight, pool.queued, pool.in_flight), (0, 0, 0, 0));
}

/// Promise: volume-flush-charge.
#[test]
fn a_flush_has_the_causes_of_what_it_makes_durable() {
    let served = Served::plain(vec![memory("v", 4 << 20, 0)]);
    let [a, b] = ["a", "b"].map(|name| served.engine.open_session("pool", session(name)).unwrap());
    let places = vec![(256 * KIB, CauseSet::of(a)), (512 * KIB, CauseSet::of(b))];
    served.engine.set_tags("v", Some(Box::new(ByPlace(places)))).unwrap();
    let mut client = served.connect("v", 4, true);
    let runs = || {
        let status = served.engine.status().unwrap();
        let of = |path| status.accounts.iter().find(|one| one.path == path).map_or(0, |account| account.runs);
        [of("pool/a#1"), of("pool/b#2"), of("pool/client#3")]
    };
    write(&mut client, 0, 4096);
    write(&mut client, 4096, 4096);
    client.flush().unwrap();
    assert_eq!(runs(), [3, 0, 0]);
    client.flush().unwrap();
    assert_eq!(runs(), [3, 0, 1], "nothing was written since");
    write(&mut client, 256 * KIB, 4096);
    client.flush().unwrap();
    assert_eq!(runs(), [3, 2, 1]);
    write(&mut client, 0, 4096);
    served.engine.close_session(a).unwrap();
    client.flush().unwrap();
    assert_eq!(runs(), [0, 2, 2], "a session that has gone causes nothing");
    let status = served.engine.status().unwrap();
    let flushes = |path| status.accounts.iter().find(|one| one.path == path).unwrap().flush_latency.count;
    assert_eq!([flushes("pool/b#2"), flushes("pool/client#3")], [0, 4], "it stands in the queue of who sent it");
}

/// The volume itself has nothing of a write that its cache takes. Broken on purpose and seen red, as it was: they are
/// not looked at, and the engine's thread ends with the first of them that is done.
/// Promise: cache-tenant-ends.
#[test]
fn a_session_stays_open_while_a_cache_has_requests_of_it() {
    /// They take the emulated disk about a second, so the session is asked to close while some are under way.
    const WRITES: u32 = 128;
    let directory = tempfile::tempdir().unwrap();
    let volume = memory("v", 4 << 20, 0);
    let found = FoundCache::find(cache_settings(directory.path().join("fast")), &volume).unwrap();
    let served = Served::plain(vec![volume]);
    let mut slow = plimsoll_devices::build("hdd.wd-aakx", 1);
    let slow = slow.take().expect("the model is in the registry");
    served.engine.attach_cache("v", found.emulated(slow, Span::from_secs(1))).unwrap();
    let a = served.engine.open_session("pool", session("a")).unwrap();
    served.engine.set_tags("v", Some(Box::new(ByPlace(vec![(4 << 20, CauseSet::of(a))])))).unwrap();
    let mut client = served.connect("v", WRITES, true);
    for number in 0..WRITES {
        // Apart, so that each is a write of the cache's own.
        let offset = u64::from(number * 7919 % 1024) * 4096;
        client.submit_write(number, CommandFlags::NONE, offset, &[7; 4096]).unwrap();
    }
    client.send_submitted().unwrap();
    let answered = |client: &mut Client| assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(()));
    answered(&mut client);
    let refused = served.engine.close_session(a).unwrap_err();
    assert!(matches!(refused, EngineError::SessionBusy { .. }), "{refused}");
    (1..WRITES).for_each(|_| answered(&mut client));
    served.engine.close_session(a).unwrap();
    assert_eq!(served.engine.status().unwrap().volumes.len(), 1, "the engine is well");
}

#[test]
fn a_tag_that_names_a_closed_session_names_none() {
    let served = Served::plain(vec![memory("v", 4 << 20, 0)]);
    let [a, b] = ["a", "b"].map(|name| served.engine.open_session("pool", session(name)).unwrap());
    let places = vec![(64 * KIB, CauseSet::of(a)), (128 * KIB, [a, b].into_iter().collect())];
    served.engine.set_tags("v", Some(Box::new(ByPlace(places)))).unwrap();
    let mut client = served.connect("v", 4, true);
    served.wait_until("the connection's own session", |status| status.volumes[0].front_ends == 1);
    served.engine.close_session(a).unwrap();
    write(&mut client, 0, 64 << 10);
    write(&mut client, 64 << 10, 64 << 10);
    let status = served.engine.status().unwrap();
    assert_eq!(["a", "b", "client"].map(|name| bytes_of(&status, name) / KIB), [0, 64, 64]);
}

#[test]
fn a_session_with_requests_under_way_stays() {
    let limited = Allocation { limit: Some(Rate::RunsPerSecond(0.001)), ..Allocation::default() };
    let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![memory("v", 4 << 20, 0)]);
    let mut config = session("a");
    config.allocation = limited;
    let a = served.engine.open_session("pool", config).unwrap();
    served.engine.set_tags("v", Some(Box::new(ByPlace(vec![(4 << 20, CauseSet::of(a))])))).unwrap();
    let mut client = served.connect("v", READS, true);
    for tag in 0..READS {
        client.submit(tag, Command::Read, CommandFlags::NONE, u64::from(tag) * 4096, 4096).unwrap();
    }
    client.send_submitted().unwrap();
    served.wait_until("the reads in the tenant's queue", |status| {
        status.accounts.iter().any(|account| account.path == "pool/a#1" && account.queued > 0)
    });
    let refused = served.engine.close_session(a).unwrap_err();
    assert!(
        matches!(&refused, EngineError::SessionBusy { path, requests } if path == "pool/a#1" && *requests > 0),
        "{refused}"
    );
    served.engine.change_account("pool/a#1", Allocation::default()).unwrap();
    (0..READS).for_each(|_| assert_eq!(client.receive(|_, _, _| {}).unwrap().result, Ok(())));
    let status = served.engine.status().unwrap();
    let reads = |path| status.accounts.iter().find(|one| one.path == path).unwrap().read_latency.count;
    assert_eq!((reads("pool/a#1"), reads("pool/client#2")), (u64::from(READS), 0), "their latency is the tenant's");
    served.engine.close_session(a).unwrap();
    let message = served.engine.set_tags("w", None).unwrap_err().to_string();
    assert_eq!(message, "there is no volume \"w\"");
}

/// What happened to the levels above, and what they shall say next.
#[derive(Default)]
struct Script {
    to_enter: Vec<Call>,
    to_dirty: Vec<PageEvent>,
    admitted: Vec<CallId>,
    held: Vec<CallId>,
    released: Vec<CallId>,
    switched: u32,
}

struct Scripted {
    wake: Arc<OwnedFd>,
    script: Arc<Mutex<Script>>,
}

impl UpperLevels for Scripted {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn turn(&mut self, now: Time, is_ready: bool, below: &mut Below<'_>) -> Option<Time> {
        let scheduler = below.scheduler();
        if is_ready {
            let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        }
        let mut script = self.script.lock().unwrap();
        for event in std::mem::take(&mut script.to_dirty) {
            scheduler.pages_dirtied(now, &event);
        }
        for call in std::mem::take(&mut script.to_enter) {
            let decision = scheduler.call_entered(now, &Call { entered: now, ..call.clone() });
            let list = if decision == CallDecision::Admit { &mut script.admitted } else { &mut script.held };
            list.push(call.id);
        }
        scheduler.released_calls(now, &mut script.released);
        let mut wishes = Vec::new();
        scheduler.wishes(now, &mut wishes);
        let times = wishes.into_iter().filter_map(|wish| if let Wish::WakeAt(at) = wish { Some(at) } else { None });
        times.min()
    }

    fn reads_held(&mut self, _now: Time, _reads: &HeldReads) {}

    fn scheduler_switched(&mut self, _now: Time, _scheduler: &mut dyn Scheduler) {
        self.script.lock().unwrap().switched += 1;
    }
}

fn call(id: u64, account: AccountId) -> Call {
    Call {
        id: CallId(id),
        account,
        thread: ThreadId(1),
        kind: CallKind::Write,
        file: FileId(5),
        offset: 0,
        length: 4096,
        entered: Time::ZERO,
    }
}

#[test]
fn a_scheduler_above_the_block_level_hears_of_calls_and_pages_and_lets_go_by_the_clock() {
    let served = Served::new(EngineConfig::new(profile(), "split_token"), vec![memory("v", 4 << 20, 0)]);
    let limited = Allocation { limit: Some(Rate::BytesPerSecond(1e6)), ..Allocation::default() };
    let mut config = session("limited");
    config.allocation = limited;
    let account = served.engine.open_session("pool", config).unwrap();
    let free = served.engine.open_session("pool", session("free")).unwrap();
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
    let script = Arc::new(Mutex::new(Script::default()));
    let levels = Scripted { wake: wake.clone(), script: script.clone() };
    assert!(served.engine.set_upper_levels(Some(Box::new(levels))).unwrap().is_none());
    let say = |enter: Vec<Call>, dirty: Vec<PageEvent>| {
        let mut script = script.lock().unwrap();
        (script.to_enter, script.to_dirty) = (enter, dirty);
        drop(script);
        rustix::io::write(&*wake, &1u64.to_ne_bytes()).unwrap();
    };
    let wait = |what: &str, is_so: &dyn Fn(&Script) -> bool| {
        let patience = plimsoll_testkit::PATIENCE.as_nanos() / Span::from_millis(5).as_nanos();
        assert!(
            (0..patience).any(|_| {
                pause();
                is_so(&script.lock().unwrap())
            }),
            "never came: {what}"
        );
    };
    say(vec![call(1, account)], Vec::new());
    wait("the first call goes on", &|script| script.admitted == [CallId(1)]);
    // Two megabytes cost the account two seconds: no request comes, only the clock can let its call go on.
    let causes = CauseSet::of(account);
    let dirty = PageEvent { file: FileId(5), offset: 0, length: 2_000_000, causes, previous: CauseSet::EMPTY };
    say(vec![call(2, account), call(3, free)], vec![dirty]);
    wait("who has no limit goes on, who is in debt waits", &|script| script.held == [CallId(2)]);
    assert_eq!(script.lock().unwrap().admitted, [CallId(1), CallId(3)]);
    wait("the held call goes on when its account has paid", &|script| script.released == [CallId(2)]);
    served.engine.switch_scheduler("noop").unwrap();
    assert_eq!(script.lock().unwrap().switched, 1);
    let taken = served.engine.set_upper_levels(None).unwrap();
    assert!(taken.is_some());
    say(vec![call(4, account)], Vec::new());
    served.engine.status().unwrap();
    assert_eq!(script.lock().unwrap().to_enter.len(), 1, "levels that were taken away are not asked any more");
}
