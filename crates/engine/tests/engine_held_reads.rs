//! Reads that the scheduler keeps back: no tenant fills the places of a mounted volume with them, and all are paid for.
//!
//! Planted breaks that turned a test red: no bound on what waits; the newest goes early instead of one of the account
//! with most; an early read that completes twice, or never; one that is still paid for under another scheduler; the
//! levels above not told of what waits.

use plimsoll_core::{AccountId, Allocation, CauseSet, Class, Operation, Rate, Scheduler, Time};
use plimsoll_engine::early_reads::{EARLY_MAX, REQUESTS_HELD_MAX};
use plimsoll_engine::{
    AccountReads, AccountStatus, Below, BlockTag, BlockTags, EngineConfig, EngineError, HeldReads, UpperLevels,
};
use plimsoll_protocols::nbd::{Command, CommandFlags};
use plimsoll_serve::nbd::{Client, REQUESTS_MAX};
use plimsoll_testkit::{Served, memory, profile, session};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

const PAGE: u32 = 4096;
const VOLUME_BYTES: u64 = 64 << 20;

/// The first half is one account's, the second another's.
struct Halves([AccountId; 2]);

impl BlockTags for Halves {
    fn tag(&self, _operation: Operation, offset: u64) -> BlockTag {
        let causes = CauseSet::of(self.0[usize::from(offset >= VOLUME_BYTES / 2)]);
        BlockTag { causes, class: Class::UNCLASSIFIED, file: None, is_sync: false }
    }
}

/// Remembers what it heard last of all reads.
struct Listening {
    wake: OwnedFd,
    heard: Arc<Mutex<AccountReads>>,
}

impl UpperLevels for Listening {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn turn(&mut self, _now: Time, _is_ready: bool, _below: &mut Below<'_>) -> Option<Time> {
        None
    }

    fn reads_held(&mut self, _now: Time, reads: &HeldReads) {
        *self.heard.lock().unwrap() = reads.sum();
    }

    fn scheduler_switched(&mut self, _now: Time, _scheduler: &mut dyn Scheduler) {}
}

/// A mounted volume with two tenants; one of them may read as good as nothing.
struct Mounted {
    served: Served,
    heard: Arc<Mutex<AccountReads>>,
    held: AccountId,
}

impl Mounted {
    fn new() -> Mounted {
        let served = Served::new(EngineConfig::new(profile(), "zygaria"), vec![memory("v", VOLUME_BYTES, 0)]);
        let mut config = session("held");
        config.allocation.limit = Some(Rate::RunsPerSecond(0.001));
        let held = served.engine.open_session("pool", config).unwrap();
        let free = served.engine.open_session("pool", session("free")).unwrap();
        served.engine.set_tags("v", Some(Box::new(Halves([held, free])))).unwrap();
        let heard = Arc::new(Mutex::new(AccountReads::default()));
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let levels = Listening { wake, heard: heard.clone() };
        served.engine.set_upper_levels(Some(Box::new(levels))).unwrap();
        Mounted { served, heard, held }
    }

    fn account(&self, name: &str) -> AccountStatus {
        let status = self.served.engine.status().unwrap();
        status.accounts.into_iter().find(|account| account.path.starts_with(name)).unwrap()
    }

    /// What was heard in the last turn that is over.
    fn heard(&self) -> AccountReads {
        self.served.engine.status().unwrap();
        *self.heard.lock().unwrap()
    }

    /// Reads of the held tenant, so many; answers with the connection and with the owners of the reads that went early.
    fn read_much(&self, reads: u32) -> (Client, Vec<u32>) {
        let mut client = self.served.connect("v", reads + 1, true);
        read(&mut client, 0..reads, 0);
        let early = receive(&mut client, reads - REQUESTS_HELD_MAX);
        (client, early)
    }

    fn lift_the_limit(&self) {
        self.served.engine.change_account("pool/held#1", Allocation::default()).unwrap();
    }
}

fn read(client: &mut Client, tags: std::ops::Range<u32>, offset: u64) {
    for tag in tags {
        let place = offset + u64::from(tag % 4096) * u64::from(PAGE);
        client.submit(tag, Command::Read, CommandFlags::NONE, place, PAGE).unwrap();
    }
    client.send_submitted().unwrap();
}

fn receive(client: &mut Client, count: u32) -> Vec<u32> {
    let replies = (0..count).map(|_| client.receive(|_, _, _| {}).unwrap());
    replies
        .map(|reply| {
            assert_eq!(reply.result, Ok(()));
            reply.tag
        })
        .collect()
}

/// Promise: tenants-held-threads.
#[test]
fn so_many_wait_and_the_session_with_most_is_served_early_and_pays_later() {
    const READS: u32 = 200;
    let mounted = Mounted::new();
    let (mut client, mut answered) = mounted.read_much(READS);
    answered.sort_unstable();
    assert!(answered.iter().copied().eq(0..READS - REQUESTS_HELD_MAX), "the oldest go first: {answered:?}");
    read(&mut client, READS..READS + 1, VOLUME_BYTES / 2);
    assert_eq!(receive(&mut client, 1), [READS], "a read that is not held gets through");
    let held = mounted.account("pool/held#1");
    assert_eq!(
        mounted.heard(),
        AccountReads {
            waiting: REQUESTS_HELD_MAX,
            early: held.queued - REQUESTS_HELD_MAX,
            arrived: u64::from(READS) + 1,
        }
    );
    assert!(held.queued > READS / 2 && held.bytes < u64::from(READS / 2 * PAGE), "few were paid for: {held:?}");
    let refused = mounted.served.engine.close_session(mounted.held).unwrap_err();
    assert!(matches!(refused, EngineError::SessionBusy { .. }), "it owes: {refused}");
    mounted.lift_the_limit();
    receive(&mut client, REQUESTS_HELD_MAX);
    let held = mounted.account("pool/held#1");
    assert_eq!((held.queued, held.in_flight, held.bytes), (0, 0, u64::from(READS * PAGE)), "each is paid for once");
    assert_eq!((held.read_latency.count, mounted.heard().waiting, mounted.heard().early), (u64::from(READS), 0, 0));
    mounted.served.engine.close_session(mounted.held).unwrap();
}

#[test]
fn without_levels_above_as_many_wait_as_like() {
    const READS: u32 = 200;
    let mounted = Mounted::new();
    mounted.served.engine.set_upper_levels(None).unwrap();
    let mut client = mounted.served.connect("v", READS + 1, true);
    read(&mut client, 0..READS, 0);
    read(&mut client, READS..READS + 1, VOLUME_BYTES / 2);
    while receive(&mut client, 1) != [READS] {}
    assert!(mounted.account("pool/held#1").queued > REQUESTS_HELD_MAX + 50);
    mounted.lift_the_limit();
}

#[test]
fn another_scheduler_is_not_paid_for_what_went_early() {
    const READS: u32 = 200;
    let mounted = Mounted::new();
    let (mut client, _) = mounted.read_much(READS);
    assert!(mounted.account("pool/held#1").queued > REQUESTS_HELD_MAX);
    mounted.served.engine.switch_scheduler("noop").unwrap();
    receive(&mut client, REQUESTS_HELD_MAX);
    let held = mounted.account("pool/held#1");
    assert_eq!((held.queued, held.in_flight, held.bytes), (0, 0, u64::from(READS * PAGE)));
    mounted.served.engine.switch_scheduler("zygaria").unwrap();
    mounted.lift_the_limit();
    read(&mut client, 0..READS, 0);
    receive(&mut client, READS);
    mounted.served.engine.close_session(mounted.held).unwrap();
}

/// Promise: tenants-held-threads.
#[test]
fn what_is_remembered_is_bounded_and_every_client_is_answered() {
    const BEYOND: u32 = 500;
    const READS: u32 = REQUESTS_HELD_MAX + EARLY_MAX + BEYOND;
    let mounted = Mounted::new();
    let (mut client, _) = mounted.read_much(READS);
    let early = mounted.heard().early;
    // Those that came in one turn are counted at its end: as many as a connection may have.
    assert!((EARLY_MAX..EARLY_MAX + REQUESTS_MAX as u32).contains(&early), "{early}");
    assert_eq!(mounted.account("pool/held#1").queued, REQUESTS_HELD_MAX + early);
    mounted.lift_the_limit();
    receive(&mut client, REQUESTS_HELD_MAX);
    let held = mounted.account("pool/held#1");
    assert_eq!((held.queued, held.in_flight, held.bytes), (0, 0, u64::from(READS * PAGE)));
}
