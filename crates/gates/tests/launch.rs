//! Commands behind gates: nothing stays between a command and its parent.

mod support;

use plimsoll_core::{Span, Time};
use plimsoll_gates::{Filter, Launch, OciSocket};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use support::agent::{Agent, keepers};
use support::{Rig, is_root, wait_until};

const ACCOUNT: u32 = 7;
/// What the test binary is to execute in its place.
const SCRIPT: &str = "PLIMSOLL_TEST_SCRIPT";
const SHIM: &str = "PLIMSOLL_TEST_SHIM";
const RUN: &str = "PLIMSOLL_TEST_RUN";

#[test]
#[ignore = "the agent of the other tests"]
fn agent_process() {
    support::agent::run();
}

/// What `plimsoll run` will be: this process becomes the command.
#[test]
#[ignore = "started by the other tests"]
fn execute_in_place() {
    let [Ok(script), Ok(shim), Ok(run)] = [SCRIPT, SHIM, RUN].map(std::env::var) else {
        println!("not run: started by the other tests");
        return;
    };
    let run = std::path::Path::new(&run);
    let launch = Launch::new()
        .with_shim_at(shim.as_ref(), &run.join(plimsoll_gates::words::FILE_NAME), plimsoll_core::AccountId(ACCOUNT), 1)
        .unwrap()
        .with_filter(Filter::default(), &run.join(support::agent::SOCKET_NAME), "7", "script");
    let mut command = Command::new("sh");
    launch.prepare(command.args(["-c", &script])).unwrap();
    panic!("{}", command.exec());
}

fn execute(rig: &Rig, script: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "execute_in_place", "--nocapture"]);
    command.env(SCRIPT, script).env(SHIM, rig.programs.shim()).env(RUN, rig.run.path());
    command.stdout(std::process::Stdio::null()).spawn().unwrap()
}

/// Promise: gates-launch.
#[test]
fn exit_code_and_signals_are_the_commands_own() {
    let rig = Rig::new();
    let agent = Agent::start(&rig);
    assert_eq!(execute(&rig, "exit 7").wait().unwrap().code(), Some(7));
    assert_eq!(execute(&rig, "kill -TERM $$").wait().unwrap().signal(), Some(libc::SIGTERM));
    // None that a shell or nohup may have had ignored before.
    for signal in [Signal::TERM, Signal::USR1, Signal::USR2, Signal::ALARM] {
        let mut child = execute(&rig, "exec sleep 1000");
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
        wait_until("the process has become the command", || name().trim() == "sleep");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
    }
    // Stopped and continued; SIGTSTP would be ignored where no process could continue the process group.
    let mut child = execute(&rig, "exec sleep 1000");
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    let name = || std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
    wait_until("the process has become the command", || name().trim() == "sleep");
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    wait_until("it is stopped", || state() == 'T');
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    wait_until("it goes on", || state() == 'S');
    child.kill().unwrap();
    child.wait().unwrap();
    agent.has_listeners(0);
    wait_until("no keeper is left", || keepers(&rig).is_empty());
}

#[test]
fn without_an_agent_nothing_starts() {
    let rig = Rig::new();
    let refusal = rig.filtered(ACCOUNT, Filter::default()).prepare(&mut Command::new("true")).unwrap_err().to_string();
    assert!(refusal.ends_with("oci.sock: No such file or directory (os error 2)"), "{refusal}");
}

#[test]
fn a_command_does_not_start_before_the_agent_has_taken_over() {
    let rig = Rig::new();
    let mut socket = OciSocket::listen(&rig.run.path().join(support::agent::SOCKET_NAME), 0o600).unwrap();
    let mut command = Command::new("true");
    rig.filtered(ACCOUNT, Filter::default()).prepare(&mut command).unwrap();
    std::thread::scope(|scope| {
        let started = scope.spawn(|| command.spawn().map(drop).map_err(|error| error.raw_os_error()));
        let mut arrived = Vec::new();
        wait_until("it arrives", || {
            arrived.extend(socket.accept(Time::ZERO + Span::from_secs(1)).unwrap());
            !arrived.is_empty()
        });
        assert!(!started.is_finished());
        // Not taken over: closed.
        drop(arrived);
        assert_eq!(started.join().unwrap(), Err(Some(libc::ECONNREFUSED)));
    });
}

/// Root's commands may still gain privileges by exec, others' do not.
#[test]
fn privileges_are_given_up_only_by_callers_that_must() {
    if !is_root() {
        return;
    }
    let rig = Rig::new();
    let _agent = Agent::start(&rig);
    for (uid, expected) in [(0, "NoNewPrivs:\t0"), (65534, "NoNewPrivs:\t1")] {
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").uid(uid);
        rig.filtered(ACCOUNT, Filter::default()).prepare(&mut command).unwrap();
        let status = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(status.contains(expected) && status.contains("Seccomp:\t2"), "{status}");
    }
}
