//! What an agent hears of a call, and when calls go on: the listeners, turn by turn.

mod support;

use plimsoll_core::{AccountId, CallDecision, CallId, CallKind, FileId, Span, Time};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::listener::FileKey;
use plimsoll_gates::oci::Arrival;
use plimsoll_gates::{
    Filter, GateClass, GateClasses, GateWords, HeldCall, KeeperStarter, Keepers, Listener, ListenerId, Listeners,
    OciSocket, Registration,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, connect, sendmsg,
    socket,
};
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use support::lease::unless_a_lease_runs_out;
use support::{PROGRESS, Rig, Tenant, wait_until};

const BUDGET: usize = 16;

/// An agent, turned by hand.
struct Hand {
    words: GateWords,
    socket: OciSocket,
    starter: KeeperStarter,
    listeners: Listeners,
}

impl Hand {
    fn new(rig: &Rig) -> Hand {
        let words = rig.words();
        let keepers = Keepers::open(rig.run.path(), &rig.programs, &words).unwrap();
        let (starter, listeners) = (keepers.starter(), Listeners::new(keepers));
        let socket = OciSocket::listen(&rig.run.path().join(support::agent::SOCKET_NAME), 0o600).unwrap();
        Hand { words, socket, starter, listeners }
    }

    /// Starts a tenant, which waits meanwhile until its listener is taken over.
    fn start(&mut self, rig: &Rig, account: u32, filter: Filter, what: &str, threads: usize) -> (Tenant, ListenerId) {
        std::thread::scope(|scope| {
            let tenant = scope.spawn(|| rig.tenant(&rig.filtered(account, filter), what, threads));
            let mut added = None;
            wait_until("the listener arrives", || {
                for arrival in self.socket.accept(monotonic_now()).unwrap() {
                    let Arrival { state, listener, answer } = arrival.unwrap();
                    let account = AccountId(state.metadata.parse().unwrap());
                    let registration = Registration { account, name: state.state.id, process: state.pid };
                    let listener = Listener::new(listener, account).unwrap();
                    added = Some(self.listeners.add(monotonic_now(), self.starter.guard(listener, registration)));
                    answer.taken_over();
                }
                added.is_some()
            });
            (tenant.join().unwrap(), added.unwrap())
        })
    }

    fn turn(&mut self, now: Time, decide: impl FnMut(ListenerId, &HeldCall) -> CallDecision) -> usize {
        self.words.renew();
        self.listeners.turn(now, self.words.lease(), BUDGET, decide).unwrap().notifications
    }

    /// Waits until a call comes, and holds it.
    fn hold_one(&mut self) -> CallId {
        let mut held = None;
        wait_until("a call is held", || {
            self.turn(monotonic_now(), |_, call| {
                held = Some(call.call.id);
                CallDecision::Hold
            });
            held.is_some()
        });
        held.expect("it was waited for")
    }
}

#[test]
fn a_call_names_its_caller_its_kind_and_its_file() {
    let rig = Rig::new();
    let mut hand = Hand::new(&rig);
    let (tenant, id) = hand.start(&rig, 9, Filter::new(GateClasses::ALL), "fsync", 1);
    let mut seen: Vec<HeldCall> = Vec::new();
    wait_until("some calls are seen", || {
        hand.turn(monotonic_now(), |listener, call| {
            assert_eq!(listener, id);
            seen.push(call.clone());
            CallDecision::Admit
        });
        seen.iter().filter(|call| call.class == GateClass::Sync).count() > 3
    });
    let path = std::fs::read_link(format!("/proc/{}/fd/3", tenant.child.id())).unwrap();
    let file = std::fs::metadata(path).unwrap();
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let key = FileKey { device, inode: file.ino() };
    let of = |class| seen.iter().rev().find(|call| call.class == class).unwrap();
    for call in [of(GateClass::Write), of(GateClass::Sync)] {
        assert_eq!((call.file, call.call.file, call.call.account), (Some(key), key.id(), AccountId(9)));
        assert_eq!(call.call.thread.0, tenant.child.id());
        assert_ne!(call.call.file, FileId::DEVICE);
    }
    let write = &of(GateClass::Write).call;
    assert_eq!((write.kind, write.offset, write.length), (CallKind::Write, 0, 4096));
    assert_eq!(of(GateClass::Sync).call.kind, CallKind::Fsync);
}

/// Broken on purpose and seen red: all listeners are handed over; none is.
#[test]
fn what_one_account_had_is_anothers_once_it_is_handed_over() {
    let rig = Rig::new();
    let mut hand = Hand::new(&rig);
    let _tenant = hand.start(&rig, 9, Filter::new(GateClasses::ALL), "fsync", 1);
    for (from, to, whose) in [(8, 7, 9), (9, 7, 7)] {
        hand.listeners.hand_over(AccountId(from), AccountId(to));
        let mut accounts = Vec::new();
        wait_until("a call is seen", || {
            hand.turn(monotonic_now(), |_, call| {
                accounts.push(call.call.account);
                CallDecision::Admit
            });
            !accounts.is_empty()
        });
        assert!(accounts.iter().all(|account| *account == AccountId(whose)), "{accounts:?}, not {whose}");
    }
}

/// Promise: gates-floods.
#[test]
fn what_is_no_listener_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // A name that looks like one's.
    let file = std::fs::File::create(folder.path().join("anon_inode:seccomp notify")).unwrap();
    let pipe = std::io::pipe().unwrap().0;
    for descriptor in [file.into(), pipe.into()] {
        let refusal = Listener::new(descriptor, AccountId(1)).err().unwrap().to_string();
        assert!(refusal.starts_with("the descriptor is no seccomp listener but "), "{refusal}");
    }
}

/// Broken on purpose and seen red: `resume_due` that takes whatever is first.
#[test]
fn a_call_goes_on_when_it_is_due_and_not_before() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let mut hand = Hand::new(&rig);
        let (tenant, id) = hand.start(&rig, 9, Filter::default(), "range", 1);
        let held = hand.hold_one();
        let lease = rig.watch_lease();
        let due = monotonic_now() + Span::from_secs(1000);
        hand.listeners.resume_at(id, held, due);
        assert_eq!(hand.listeners.next_due(), Some(due));
        let before = tenant.counts();
        for _ in 0..20 {
            assert_eq!(hand.turn(due.saturating_sub(Span::from_nanos(1)), |_, _| CallDecision::Hold), 0);
            support::pause(10);
        }
        assert_eq!(tenant.counts(), before);
        assert!(hand.listeners.get(id).unwrap().is_waiting(held));
        drop(lease);
        // The lease has run out by then, so that nothing is received: a due call is let go all the same.
        hand.turn(due, |_, _| CallDecision::Hold);
        wait_until("it went on", || tenant.counts() > before);
        assert_eq!(hand.listeners.next_due(), None);
    });
}

/// An agent in which nothing happens renews its lease and takes no turns.
///
/// Broken on purpose and seen red: a lease that counts as renewed late if the turn before saw its end.
#[test]
fn a_call_after_a_silence_is_heard_in_the_next_turn() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let mut hand = Hand::new(&rig);
        let (_tenant, id) = hand.start(&rig, 9, Filter::default(), "range", 1);
        let held = hand.hold_one();
        let _lease = rig.watch_lease();
        let until = hand.words.lease().until;
        while monotonic_now() <= until {
            hand.words.renew();
            support::pause(10);
        }
        hand.listeners.resume(id, held).unwrap();
        wait_until("it makes another call", || {
            hand.words.renew();
            let mut polled = [PollFd::new(hand.listeners.get(id).unwrap(), PollFlags::IN)];
            poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
        });
        assert_eq!(hand.turn(monotonic_now(), |_, _| CallDecision::Hold), 1);
    });
}

/// Broken on purpose and seen red: a listener that is heard as soon as the lease is renewed; one that is not said to be
/// heard again.
#[test]
fn a_listener_is_left_to_its_keeper_for_a_moment_after_the_lease_had_run_out() {
    let rig = Rig::new();
    let mut hand = Hand::new(&rig);
    let (tenant, _) = hand.start(&rig, 9, Filter::default(), "range", 1);
    wait_until("a call is heard", || hand.turn(monotonic_now(), |_, _| CallDecision::Hold) == 1);
    let before = tenant.counts();
    wait_until("its keeper lets it go on", || tenant.counts() > before);
    hand.words.renew();
    let lease = hand.words.lease();
    let turn = hand.listeners.turn(lease.since, lease, BUDGET, |_, _| CallDecision::Hold).unwrap();
    assert!(turn.notifications == 0 && turn.again_at.is_some_and(|at| at > lease.since), "{turn:?}");
    let again_at = turn.again_at.unwrap();
    wait_until("it is heard again", || {
        let now = monotonic_now();
        let heard = hand.turn(now, |_, _| CallDecision::Hold);
        assert!(heard == 0 || now >= again_at);
        heard == 1
    });
}

/// Broken on purpose and seen red: a turn with a budget for each listener.
/// Promise: gates-floods.
#[test]
fn a_turn_hears_every_listener_and_no_more_calls_than_its_budget() {
    let rig = Rig::new();
    let mut hand = Hand::new(&rig);
    let mut floods = [1, 2].map(|account| hand.start(&rig, account, Filter::default(), "range", 64));
    let (other, _) = hand.start(&rig, 3, Filter::default(), "fsync", 1);
    let (before, mut turns_full) = (other.returned()[0], [0, 0]);
    wait_until("all go on", || {
        for _ in 0..50 {
            let mut heard = std::collections::BTreeMap::new();
            let sum = hand.turn(monotonic_now(), |id, _| {
                *heard.entry(id).or_insert(0) += 1;
                CallDecision::Admit
            });
            assert!(sum <= BUDGET, "{sum} calls in a turn: {heard:?}");
            for (full, (_, flooding)) in turns_full.iter_mut().zip(&floods) {
                *full += usize::from(heard.get(flooding).is_some_and(|&heard| heard >= BUDGET / 3));
            }
        }
        turns_full.iter().all(|&full| full > 100) && other.returned()[0] > before + PROGRESS
    });
    let (flood, flooding) = &mut floods[0];
    flood.end();
    wait_until("its listener has ended", || {
        let lease = hand.words.lease();
        let turn = hand.listeners.turn(monotonic_now(), lease, BUDGET, |_, _| CallDecision::Admit).unwrap();
        hand.words.renew();
        turn.ended.iter().any(|(id, registration)| id == flooding && registration.process == flood.child.id())
    });
}

/// Broken on purpose and seen red: looks that begin with the first call each time; a listener that is left out once
/// there are no looks left.
/// Promise: gates-floods.
#[test]
fn threads_killed_while_held_are_found_some_looks_at_a_time() {
    const THREADS: usize = 40;
    const LOOKS: usize = 16;
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let mut hand = Hand::new(&rig);
        let (mut killed, of_killed) = hand.start(&rig, 1, Filter::default(), "range", THREADS);
        let (_waiting, of_waiting) = hand.start(&rig, 2, Filter::default(), "range", THREADS);
        let _lease = rig.watch_lease();
        wait_until("all are held", || {
            hand.turn(monotonic_now(), |_, _| CallDecision::Hold);
            let held = [of_killed, of_waiting].map(|id| hand.listeners.get(id).unwrap().held());
            held == [THREADS; 2]
        });
        killed.end();
        let (mut gone, mut rounds) = (Vec::new(), 0);
        loop {
            let (found, has_more) = hand.listeners.take_gone(LOOKS);
            assert!(found.len() <= LOOKS);
            gone.extend(found);
            rounds += 1;
            assert!(rounds < THREADS, "looks that find no end");
            if !has_more {
                break;
            }
        }
        assert_eq!((gone.len(), rounds), (THREADS, 2 * THREADS / LOOKS + 1));
        assert!(gone.iter().all(|&(id, _)| id == of_killed), "{gone:?}");
        let held = [of_killed, of_waiting].map(|id| hand.listeners.get(id).unwrap().held());
        assert_eq!(held, [0, THREADS]);
    });
}

/// A child forked while we write a program has it open for writing until it executes, and no process can run it
/// meanwhile.
///
/// Red with one try.
#[test]
fn a_keeper_whose_program_is_busy_is_started_when_it_is_not() {
    let rig = Rig::new();
    let mut hand = Hand::new(&rig);
    let program = rig.disk.path().join("plimsoll-keeper");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut writer = Command::new("sh");
    let mut writer =
        writer.args(["-c", "exec 3<> \"$0\"; echo; sleep 0.2"]).arg(program).stdout(Stdio::piped()).spawn().unwrap();
    // It has it open once it says something.
    writer.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let (_tenant, _) = hand.start(&rig, 9, Filter::default(), "range", 1);
    assert_eq!(support::agent::keepers(&rig).len(), 1);
    writer.wait().unwrap();
}

/// An offer that cannot be taken, for example because there are no descriptors left, is its keeper's business.
#[test]
fn a_listener_that_cannot_be_taken_back_holds_up_no_other() {
    let rig = Rig::new();
    let mut hand = Hand::new(&rig);
    let (_tenant, _) = hand.start(&rig, 9, Filter::default(), "range", 1);
    wait_until("a call is heard", || hand.turn(monotonic_now(), |_, _| CallDecision::Admit) > 0);
    let keeper = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    connect(&keeper, &SocketAddrUnix::new(rig.run.path().join("keepers.sock")).unwrap()).unwrap();
    let pipe = std::io::pipe().unwrap().0;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // In the place of the ledger is something of another size.
    let offered = [pipe.as_fd(); 3];
    assert!(control.push(SendAncillaryMessage::ScmRights(&offered)));
    let registration = br#"{"account":9,"name":"another","process":1}"#;
    sendmsg(&keeper, &[IoSlice::new(registration)], &mut control, SendFlags::empty()).unwrap();
    wait_until("the tenant's calls are heard", || hand.turn(monotonic_now(), |_, _| CallDecision::Admit) > 0);
}
