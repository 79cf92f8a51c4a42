//! The preload gate: who waits, who does not, and that nobody waits for an agent that is gone.

mod support;

use plimsoll_core::AccountId;
use plimsoll_gates::{GateClass, Launch};
use support::lease::unless_a_lease_runs_out;
use support::{Plan, Rig, alive};

const ACCOUNT: u32 = 7;
const WRITERS: usize = 8;

/// Broken on purpose and seen red: a shim whose `pwrite` does not ask the word.
#[test]
fn nobody_passes_a_closed_gate_and_everybody_passes_an_open_one() {
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

/// Broken on purpose and seen red: a direct read whose probe is the read itself.
#[test]
fn each_call_waits_at_the_word_of_its_class_and_at_no_other() {
    use GateClass::{Metadata, Read, Sync, Write};
    let calls = [
        ("append", &[Write][..]),
        ("writev", &[Write, Metadata]),
        ("pwritev2", &[Write]),
        ("fsync", &[Write, Sync]),
        ("fdatasync", &[Write, Sync]),
        ("range", &[Sync]),
        ("create", &[Metadata]),
        ("mkdir", &[Metadata]),
        ("rename", &[Metadata]),
        ("truncate", &[Metadata]),
        ("allocate", &[Metadata]),
        ("cold", &[Read]),
        ("direct", &[Read]),
        // What the cache has, and what is no file, waits for nothing.
        ("read", &[]),
        ("pipe", &[]),
    ];
    let rig = Rig::new();
    let words = rig.words();
    alive(&words, || {
        for (what, waits_for) in calls {
            println!("{what}");
            let mut tenant = rig.tenant(&rig.preload(ACCOUNT), what, 1);
            let others = GateClass::ALL.into_iter().filter(|class| !waits_for.contains(class));
            others.for_each(|class| words.close(AccountId(ACCOUNT), class));
            tenant.goes_on();
            for &class in waits_for {
                words.close(AccountId(ACCOUNT), class);
                tenant.waits();
                words.open(AccountId(ACCOUNT), class);
                tenant.goes_on();
            }
            GateClass::ALL.into_iter().for_each(|class| words.open(AccountId(ACCOUNT), class));
        }
    });
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

#[test]
fn a_lease_that_runs_out_holds_nobody_and_one_that_is_renewed_holds_again() {
    let rig = Rig::new();
    let words = rig.words();
    let mut tenant = rig.tenant(&rig.preload(ACCOUNT), "write", WRITERS);
    for _ in 0..2 {
        alive(&words, || {
            tenant.goes_on();
            words.close(AccountId(ACCOUNT), GateClass::Write);
            tenant.waits();
        });
        // Nobody renews any more; and who was let go once is not held up again at every call.
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
        let gate = Launch::new().with_shim_at(rig.programs.shim(), &path, AccountId(ACCOUNT)).unwrap();
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
