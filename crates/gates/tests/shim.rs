//! The preload gate: which calls wait, which do not, and that no call waits for an agent that is gone.

mod support;

use plimsoll_core::AccountId;
use plimsoll_gates::{GateClass, GateWords, Launch};
use std::collections::BTreeSet;
use support::lease::unless_a_lease_runs_out;
use support::only::{CALLS, UNGATED, job};
use support::{Plan, Rig, alive, wait_until};

const ACCOUNT: u32 = 7;
const WRITERS: usize = 8;

/// Broken on purpose and seen red: a shim with a `pwrite` that does not ask the word.
/// Promise: gates-closed.
#[test]
fn no_call_passes_a_closed_gate_and_every_call_passes_an_open_one() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let words = rig.words();
        let mut tenant = rig.tenant(&rig.preload(ACCOUNT), "write", WRITERS);
        alive(&words, || {
            for _ in 0..3 {
                tenant.goes_on();
                let _lease = rig.watch_lease();
                words.close(AccountId(ACCOUNT), GateClass::Write);
                let closed = tenant.returned();
                tenant.waits();
                tenant.passed_once_at_most(&closed);
                words.open(AccountId(ACCOUNT), GateClass::Write);
            }
            tenant.goes_on();
        });
    });
}

/// Each call does nothing else that a gate knows, so each waits for itself.
///
/// Broken on purpose and seen red: a direct read that is its own probe; a shim without a gate at `syncfs`, at `rename`,
/// at `unlink`.
/// Promise: gates-closed.
#[test]
fn each_call_waits_at_the_word_of_its_class_and_at_no_other() {
    let rig = Rig::new();
    let words = rig.words();
    let change = |classes: &[GateClass], change: fn(&GateWords, AccountId, GateClass)| {
        classes.iter().for_each(|&class| change(&words, AccountId(ACCOUNT), class));
    };
    alive(&words, || {
        for (class, calls) in CALLS {
            let calls =
                calls.iter().map(|(name, _)| job(name)).chain((class == GateClass::Read).then(|| "direct".to_owned()));
            let start = |what: String| (rig.tenant(&rig.preload(ACCOUNT), &what, 1), what);
            let mut tenants: Vec<_> = calls.map(start).collect();
            let others: Vec<_> = GateClass::ALL.into_iter().filter(|&other| other != class).collect();
            change(&others, GateWords::close);
            for (tenant, what) in &mut tenants {
                println!("{what} goes on");
                tenant.goes_on();
            }
            change(&[class], GateWords::close);
            for (tenant, what) in &tenants {
                println!("{what} waits");
                tenant.waits();
            }
            change(&[class], GateWords::open);
            tenants.iter_mut().for_each(|(tenant, _)| tenant.goes_on());
            change(&others, GateWords::open);
        }
        // A call on cached data, on a pipe, or without a change does not wait.
        change(&GateClass::ALL, GateWords::close);
        for what in ["read", "pipe"].map(str::to_owned).into_iter().chain(UNGATED.map(job)) {
            println!("{what}");
            rig.tenant(&rig.preload(ACCOUNT), &what, 1).goes_on();
        }
    });
}

/// So a call that is added to the shim is tried too.
#[test]
fn every_call_of_the_shim_is_among_those_that_were_tried() {
    let header = include_str!("../shim/calls.h");
    let gated = header.lines().filter_map(|line| {
        let (kind, rest) = line.split_once('(')?;
        let mut arguments = rest.split([',', ')']).map(str::trim);
        match kind {
            "GATED" => arguments.nth(1),
            "ALLOCATE" | "OPEN" | "OPEN_WITHOUT_MODE" => arguments.next(),
            _ => None,
        }
    });
    let tried = CALLS.into_iter().flat_map(|(_, calls)| calls).map(|(name, _)| *name);
    // One function with other flags.
    let tried = tried.filter(|&name| name != "open O_TRUNC");
    assert_eq!(gated.collect::<BTreeSet<_>>(), tried.collect());
}

/// Broken on purpose and seen red: a shim that goes on only when the word is open.
#[test]
fn as_many_go_on_as_are_admitted() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let words = rig.words();
        let mut tenant = rig.tenant(&rig.preload(ACCOUNT), "write", WRITERS);
        alive(&words, || {
            words.close(AccountId(ACCOUNT), GateClass::Write);
            tenant.waits();
            let lease = rig.watch_lease();
            for admitted in [3, 1] {
                let closed: u64 = tenant.returned().iter().sum();
                assert_eq!(words.admit(AccountId(ACCOUNT), GateClass::Write, admitted), admitted);
                tenant.waits();
                assert_eq!(tenant.returned().iter().sum::<u64>(), closed + u64::from(admitted), "one call each");
            }
            let all = WRITERS as u32;
            assert_eq!(words.admit(AccountId(ACCOUNT), GateClass::Write, all + 2), all, "nobody is behind them");
            drop(lease);
            words.open(AccountId(ACCOUNT), GateClass::Write);
            tenant.goes_on();
        });
    });
}

/// An agent that admits calls must not wait until a thread of the account goes on: the kernel wakes the threads that
/// waited longest.
#[test]
fn strangers_take_the_places_of_admitted_readers_until_more_are_admitted_than_they_are() {
    const STRANGERS: u32 = 64;
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let words = rig.words();
        let (account, class) = (AccountId(ACCOUNT), GateClass::Write);
        alive(&words, || {
            words.close(account, class);
            let stranger = rig.stranger(ACCOUNT, class, &["wait", &STRANGERS.to_string()]);
            stranger.waits(STRANGERS as usize);
            // So it stands behind them.
            let mut tenant = rig.tenant(&rig.preload(ACCOUNT), "write", 1);
            tenant.waits();
            let lease = rig.watch_lease();
            for _ in 0..3 {
                assert_eq!(words.admit(account, class, STRANGERS / 4), STRANGERS / 4);
            }
            tenant.waits();
            assert_eq!(tenant.returned(), [0], "forty-eight were let in, and the one who is meant was none of them");
            stranger.waits(STRANGERS as usize);
            assert_eq!(words.admit(account, class, 2 * STRANGERS), STRANGERS + 1);
            wait_until("the call goes on", || tenant.returned() == [1]);
            drop(lease);
            words.open(account, class);
            tenant.goes_on();
        });
    });
}

/// Broken on purpose and seen red: a shim that sleeps until it is woken.
/// Promise: gates-strangers.
#[test]
fn a_process_moved_to_a_stranger_s_word_goes_on_when_its_lease_runs_out() {
    let rig = Rig::new();
    let words = rig.words();
    let (account, class) = (AccountId(ACCOUNT), GateClass::Write);
    let mut tenant = rig.tenant(&rig.preload(ACCOUNT), "write", WRITERS);
    let _stranger = rig.stranger(ACCOUNT, class, &["move"]);
    alive(&words, || {
        for _ in 0..3 {
            tenant.goes_on();
            words.close(account, class);
            tenant.waits();
            wait_until("all are at another word", || words.admit(account, class, 1) == 0);
            words.open(account, class);
        }
        tenant.goes_on();
    });
}

#[test]
fn sixty_two_accounts_wait_apart() {
    let rig = Rig::new();
    let words = rig.words();
    let mut tenants: Vec<_> =
        (1..63).map(|account| (account, rig.tenant(&rig.preload(account), "append", 1))).collect();
    alive(&words, || {
        let is_held = |account: u32| account % 3 == 1;
        for account in (1..63).filter(|&account| is_held(account)) {
            words.close(AccountId(account), GateClass::Write);
        }
        tenants.iter_mut().filter(|(account, _)| !is_held(*account)).for_each(|(_, tenant)| tenant.goes_on());
        tenants.iter_mut().filter(|(account, _)| is_held(*account)).for_each(|(_, tenant)| tenant.waits());
        for account in (1..63).filter(|&account| is_held(account)) {
            words.open(AccountId(account), GateClass::Write);
        }
        tenants.iter_mut().for_each(|(_, tenant)| tenant.goes_on());
    });
}

/// Promise: gates-dead-agent.
#[test]
fn a_lease_that_runs_out_holds_no_process_and_a_renewed_one_holds_again() {
    let rig = Rig::new();
    let words = rig.words();
    let mut tenant = rig.tenant(&rig.preload(ACCOUNT), "write", WRITERS);
    for _ in 0..2 {
        alive(&words, || {
            tenant.goes_on();
            words.close(AccountId(ACCOUNT), GateClass::Write);
            tenant.waits();
        });
        // No agent renews the lease any more. A tenant that was let go once is not held up again at every call.
        tenant.goes_on();
        alive(&words, || tenant.waits());
        words.open(AccountId(ACCOUNT), GateClass::Write);
    }
}

#[test]
fn words_that_are_not_there_or_not_words_are_no_gate() {
    let rig = Rig::new();
    let words = rig.words();
    let bad = [("missing", None), ("short", Some(vec![1; 100])), ("garbage", Some(vec![1; 1 << 20]))];
    for (name, content) in bad {
        let path = rig.run.path().join(name);
        content.into_iter().for_each(|content| std::fs::write(&path, content).unwrap());
        let gate = Launch::new().with_shim_at(rig.programs.shim(), &path, AccountId(ACCOUNT), 1).unwrap();
        rig.tenant(&gate, "write", 2).goes_on();
    }
    // And an account that the shim does not know.
    GateClass::ALL.into_iter().for_each(|class| words.close(AccountId(0), class));
    for account in ["64", "-1", "", "7x", "99999999999999999999"] {
        let mut plan = Plan::new(rig.disk.path(), "write", 2);
        rig.preload(ACCOUNT).prepare(&mut plan.command).unwrap();
        plan.command.env("PLIMSOLL_GATE_ACCOUNT", account);
        alive(&words, || plan.start(&Launch::new()).goes_on());
    }
}
