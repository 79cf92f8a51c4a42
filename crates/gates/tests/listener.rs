//! The filter and its listener: which calls wait, which do not, and what happens when the agent or a keeper is gone.

mod support;

use plimsoll_gates::{Filter, GateClass, GateClasses};
use rustix::process::{Signal, kill_process};
use std::collections::BTreeMap;
use support::agent::{Agent, keepers};
use support::lease::unless_a_lease_runs_out;
use support::only::{CALLS, job};
use support::{Plan, Rig, wait_until};

const ACCOUNT: u32 = 7;
const OTHER: u32 = 8;
const WRITERS: usize = 8;

#[test]
#[ignore = "the agent of the other tests"]
fn agent_process() {
    support::agent::run();
}

fn all() -> Filter {
    Filter::new(GateClasses::ALL)
}

/// Broken on purpose and seen red: a filter without pwrite64.
/// Promise: gates-closed.
#[test]
fn no_call_passes_a_closed_gate_and_every_call_passes_an_open_one() {
    unless_a_lease_runs_out(|| {
        let rig = Rig::new();
        let agent = Agent::start(&rig);
        let mut tenant = rig.tenant(&rig.filtered(ACCOUNT, all()), "write", WRITERS);
        for _ in 0..3 {
            tenant.goes_on();
            let lease = rig.watch_lease();
            agent.hold(&[ACCOUNT]);
            let closed = tenant.returned();
            tenant.waits_in(libc::SYS_pwrite64, WRITERS);
            tenant.passed_once_at_most(&closed);
            drop(lease);
            wait_until("the agent knows of all", || agent.listeners_and_held() == (1, WRITERS as u64));
            agent.hold(&[OTHER]);
        }
        tenant.goes_on();
        tenant.end();
        agent.has_listeners(0);
        wait_until("the keeper ends with its tenant", || keepers(&rig).is_empty());
    });
}

/// Each call does nothing else that the filter notifies, so each is held for itself.
///
/// Broken on purpose and seen red: a filter without `rename`, without `syncfs`.
/// Promise: gates-closed.
#[test]
fn each_call_is_held_if_its_class_is_notified_and_not_otherwise() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    for (class, calls) in CALLS {
        let filter = Filter::new(GateClasses::default().with(class));
        // Not called by the C library any more.
        let more = (class == GateClass::Metadata).then_some(("SYS_open", libc::SYS_open));
        let calls = calls.iter().copied().chain(more);
        let numbers: BTreeMap<i64, &str> = calls.map(|(name, number)| (number, name)).collect();
        let start = |(number, name)| (rig.tenant(&rig.filtered(ACCOUNT, filter), &job(name), 1), number, name);
        let mut held: Vec<_> = numbers.into_iter().map(start).collect();
        held.iter_mut().for_each(|(tenant, ..)| tenant.goes_on());
        agent.hold(&[ACCOUNT]);
        for (tenant, number, name) in &held {
            println!("{name}");
            tenant.waits_in(*number, 1);
        }
        // A call that a slow disk holds is no such call.
        wait_until("the agent holds each", || agent.listeners_and_held().1 == held.len() as u64);
        agent.hold(&[]);
        held.iter_mut().for_each(|(tenant, ..)| tenant.goes_on());
    }
    // A call on a descriptor that is no file is notified and goes on at once.
    let mut pipe =
        rig.tenant(&rig.filtered(ACCOUNT, Filter::new(GateClasses::default().with(GateClass::Write))), "pipe", 1);
    agent.hold(&[ACCOUNT]);
    pipe.goes_on();
    // A call that the filter does not ask for is not notified.
    let mut reader = rig.tenant(&rig.filtered(ACCOUNT, Filter::default()), "write", 1);
    reader.goes_on();
}

/// Promise: gates-handed-over.
#[test]
fn the_next_agent_is_given_every_listener_under_load() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let mut tenant = rig.tenant(&rig.filtered(ACCOUNT, all()), "write", WRITERS);
    let mut other = rig.tenant(&rig.filtered(OTHER, all()), "write", WRITERS);
    [&mut tenant, &mut other].into_iter().for_each(support::Tenant::goes_on);
    agent.hold(&[ACCOUNT]);
    tenant.waits_in(libc::SYS_pwrite64, WRITERS);
    agent.kill();
    tenant.goes_on();
    for _ in 0..3 {
        let agent = Agent::start(&rig);
        agent.has_listeners(2);
        agent.hold(&[ACCOUNT]);
        tenant.waits_in(libc::SYS_pwrite64, WRITERS);
        other.goes_on();
        agent.hold(&[]);
        tenant.goes_on();
        agent.hold(&[OTHER]);
        other.waits_in(libc::SYS_pwrite64, WRITERS);
        agent.kill();
        other.goes_on();
    }
}

/// A daemon that ends takes its words away. Keeper and agent would both hear the listener, and the agent wait in it for
/// the tenant's next call, and with it every tenant that the agent hears.
///
/// Broken on purpose and seen red: whatever keeper comes is taken.
/// Promise: gates-keeper-words.
#[test]
fn a_keeper_that_looks_at_other_words_keeps_its_listener() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let mut left = rig.tenant(&rig.filtered(ACCOUNT, all()), "write", WRITERS);
    left.goes_on();
    agent.hold(&[ACCOUNT]);
    left.waits_in(libc::SYS_pwrite64, WRITERS);
    agent.kill();
    std::fs::remove_file(rig.run.path().join(plimsoll_gates::words::FILE_NAME)).unwrap();
    left.goes_on();
    let agent = Agent::start(&rig);
    let mut tenant = rig.tenant(&rig.filtered(OTHER, all()), "write", WRITERS);
    for _ in 0..3 {
        tenant.goes_on();
        agent.hold(&[ACCOUNT, OTHER]);
        tenant.waits_in(libc::SYS_pwrite64, WRITERS);
        left.goes_on();
        // The left keeper comes ten times a second, and is sent away.
        assert_eq!(agent.listeners_and_held(), (1, WRITERS as u64));
        agent.hold(&[]);
    }
    // A keeper that comes back to an agent with the same words is still taken over.
    agent.kill();
    tenant.goes_on();
    let agent = Agent::start(&rig);
    agent.has_listeners(1);
    agent.hold(&[OTHER]);
    tenant.waits_in(libc::SYS_pwrite64, WRITERS);
    left.goes_on();
    left.end();
    wait_until("its keeper ends with it", || keepers(&rig).len() == 1);
}

/// Promise: gates-keeper-killed.
#[test]
fn a_keeper_that_is_killed_is_replaced() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let mut tenant = rig.tenant(&rig.filtered(ACCOUNT, all()), "write", WRITERS);
    tenant.goes_on();
    agent.hold(&[ACCOUNT]);
    tenant.waits_in(libc::SYS_pwrite64, WRITERS);
    let first = keepers(&rig);
    assert_eq!(first.len(), 1);
    // It is deaf to everything but this.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        kill_process(first[0], signal).unwrap();
    }
    assert_eq!(keepers(&rig), first);
    kill_process(first[0], Signal::KILL).unwrap();
    wait_until("another keeper is there", || keepers(&rig).iter().any(|keeper| *keeper != first[0]));
    tenant.waits_in(libc::SYS_pwrite64, WRITERS);
    agent.kill();
    tenant.goes_on();
}

/// Broken on purpose and seen red: a keeper that is started by the thread that hears the listeners.
/// Promise: gates-keeper-start.
#[test]
fn no_tenant_waits_for_a_keeper_that_takes_long_to_start() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let mut tenant = rig.tenant(&rig.filtered(ACCOUNT, all()), "write", WRITERS);
    tenant.goes_on();
    let first = keepers(&rig);
    let slow = rig.disk.path().join("slow");
    std::fs::write(&slow, "").unwrap();
    let program = rig.disk.path().join("plimsoll-keeper");
    let (real, script) = (rig.disk.path().join("real-plimsoll-keeper"), rig.disk.path().join("script"));
    std::fs::rename(&program, &real).unwrap();
    let (slow_text, real_text) = (slow.display(), real.display());
    let text = format!("#!/bin/sh\nwhile [ -e {slow_text} ]; do sleep 0.1; done\nexec {real_text} \"$@\"\n");
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(&script, &program).unwrap();
    kill_process(first[0], Signal::KILL).unwrap();
    for _ in 0..3 {
        agent.hold(&[ACCOUNT]);
        tenant.waits_in(libc::SYS_pwrite64, WRITERS);
        agent.hold(&[]);
        tenant.goes_on();
    }
    assert_eq!(keepers(&rig), []);
    std::fs::remove_file(slow).unwrap();
    wait_until("another keeper is there", || keepers(&rig).len() == 1);
    agent.kill();
    tenant.goes_on();
}

/// The kernel's rule for a listener that no process holds; no agent can change it.
#[test]
fn without_agent_and_keeper_calls_fail_with_enosys() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let mut plan = Plan::new(rig.disk.path(), "write", WRITERS);
    // A standard descriptor that is a file has all three behind the gate, and then the tenant could print nothing.
    plan.command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    plan.command.stderr(std::process::Stdio::piped());
    let mut tenant = plan.start(&rig.filtered(ACCOUNT, all()));
    tenant.goes_on();
    agent.hold(&[ACCOUNT]);
    tenant.waits_in(libc::SYS_pwrite64, WRITERS);
    // Stopped, it cannot replace the keeper.
    agent.signal(Signal::STOP);
    keepers(&rig).into_iter().for_each(|keeper| kill_process(keeper, Signal::KILL).unwrap());
    agent.kill();
    let status = tenant.child.wait().unwrap();
    let said = std::io::read_to_string(tenant.child.stderr.take().unwrap()).unwrap();
    assert_eq!((status.code(), said.contains("Function not implemented")), (Some(3), true), "{said}");
}

/// Broken on purpose and seen red: a keeper that does not look at the lease.
/// Promise: gates-dead-agent.
#[test]
fn a_stuck_agent_holds_no_process_and_holds_again_when_it_is_back() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let mut tenant = rig.tenant(&rig.filtered(ACCOUNT, all()), "write", WRITERS);
    tenant.goes_on();
    agent.hold(&[ACCOUNT]);
    for _ in 0..3 {
        tenant.waits_in(libc::SYS_pwrite64, WRITERS);
        agent.signal(Signal::STOP);
        tenant.goes_on();
        agent.signal(Signal::CONT);
    }
    tenant.waits_in(libc::SYS_pwrite64, WRITERS);
}

/// Promise: gates-rings.
#[test]
fn rings_and_calls_of_another_architecture_do_not_pass_by() {
    let rig = Rig::new();
    let _agent = Agent::start(&rig);
    rig.tenant(&rig.filtered(ACCOUNT, Filter::default()), "ring", 2).goes_on();
    if cfg!(target_arch = "x86_64") {
        let mut tenant = rig.tenant(&rig.filtered(ACCOUNT, Filter::default()), "32-bit", 1);
        let status = tenant.child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGSYS), "{status}");
    }
}

#[test]
fn a_file_as_stdout_is_gated_and_a_terminal_or_pipe_is_not() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    let start = |stdout: std::process::Stdio| {
        let mut plan = Plan::new(rig.disk.path(), "stdout", 1);
        plan.command.stdout(stdout);
        plan.start(&rig.filtered(ACCOUNT, Filter::new(GateClasses::default().with(GateClass::Write))))
    };
    let mut into_file = start(std::fs::File::create(rig.disk.path().join("out")).unwrap().into());
    let mut into_null = start(std::process::Stdio::null());
    [&mut into_file, &mut into_null].into_iter().for_each(support::Tenant::goes_on);
    agent.hold(&[ACCOUNT]);
    into_file.waits_in(libc::SYS_write, 1);
    into_null.goes_on();
}
