//! A small agent: holds the calls of the accounts that a file in the run directory names, at their words and at their
//! listeners, and lets the others go on.
//!
//! It runs as a process of its own, which can be killed: the test binary executes itself with one test, which is
//! ignored otherwise. Each test binary that uses it has that test and calls [`run`] from it.

use super::{Rig, wait_until};
use plimsoll_core::{AccountId, CallDecision, CallId, Span};
use plimsoll_gates::clock::monotonic_now;
use plimsoll_gates::oci::Arrival;
use plimsoll_gates::{
    GateClass, GateError, GateWords, KeeperStarter, Keepers, Listener, ListenerId, Listeners, OciSocket, Programs,
    Registration,
};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const SOCKET_NAME: &str = "oci.sock";
const RUN: &str = "PLIMSOLL_TEST_RUN";
const PROGRAMS: &str = "PLIMSOLL_TEST_PROGRAMS";
/// Which accounts to hold, as a mask.
const HELD: &str = "held";
/// Written by the agent: which mask it has read, how many listeners it has and how many calls it holds.
const STATE: &str = "state";
const TURN: Span = Span::from_millis(20);
const BUDGET: usize = 16;

/// An agent in a process of its own; killed when dropped.
pub struct Agent {
    pub child: Child,
    run: PathBuf,
}

impl Agent {
    pub fn start(rig: &Rig) -> Agent {
        let _ = std::fs::remove_file(rig.run.path().join(STATE));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "agent_process", "--nocapture", "--quiet"]);
        command.env(RUN, rig.run.path()).env(PROGRAMS, rig.disk.path()).stdout(Stdio::null());
        let agent = Agent { child: command.spawn().unwrap(), run: rig.run.path().to_owned() };
        agent.hold(&[]);
        agent
    }

    /// Holds the calls of these accounts, at their words and their listeners, and lets all others go on; returns when
    /// that is so.
    pub fn hold(&self, accounts: &[u32]) {
        let mask: u64 = accounts.iter().map(|account| 1 << account).sum();
        let draft = self.run.join("held.draft");
        std::fs::write(&draft, mask.to_string()).unwrap();
        std::fs::rename(&draft, self.run.join(HELD)).unwrap();
        wait_until("the agent has understood", || self.state().is_some_and(|(read, ..)| read == mask));
    }

    /// Listeners, and calls that are held.
    pub fn listeners_and_held(&self) -> (u64, u64) {
        self.state().map_or((0, 0), |(_, listeners, held)| (listeners, held))
    }

    fn state(&self) -> Option<(u64, u64, u64)> {
        let text = std::fs::read_to_string(self.run.join(STATE)).ok()?;
        let mut fields = text.split(' ').map(|field| field.parse().unwrap());
        Some((fields.next()?, fields.next()?, fields.next()?))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Waits until it has so many listeners.
    pub fn has_listeners(&self, listeners: u64) {
        wait_until("the listeners are there", || self.listeners_and_held().0 == listeners);
    }

    /// Its resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The keepers of a run directory.
pub fn keepers(rig: &Rig) -> Vec<Pid> {
    let socket = rig.run.path().join("keepers.sock");
    let is_ours = |process: &u32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let mut arguments = line.split(|&byte| byte == 0);
        arguments.next().is_some_and(|program| program.ends_with(b"plimsoll-keeper"))
            && arguments.next() == Some(socket.to_str().unwrap().as_bytes())
    };
    super::numbers("/proc").into_iter().filter(is_ours).map(|process| Pid::from_raw(process as i32).unwrap()).collect()
}

/// The agent's main function.
pub fn run() {
    let (Some(run), Some(programs)) = (std::env::var_os(RUN), std::env::var_os(PROGRAMS)) else {
        println!("not run: started by the other tests");
        return;
    };
    SmallAgent::open(Path::new(&run), Path::new(&programs)).unwrap().run(Path::new(&run));
}

struct SmallAgent {
    words: GateWords,
    socket: OciSocket,
    starter: KeeperStarter,
    listeners: Listeners,
    members: u64,
    mask: u64,
    held: Vec<(ListenerId, AccountId, CallId)>,
}

impl SmallAgent {
    fn open(run: &Path, programs: &Path) -> Result<SmallAgent, GateError> {
        let programs = Programs::install(programs)?;
        let words = GateWords::create(run)?;
        let keepers = Keepers::open(run, &programs, &words)?;
        let (starter, listeners) = (keepers.starter(), Listeners::new(keepers));
        let socket = OciSocket::listen(&run.join(SOCKET_NAME), 0o666)?;
        Ok(SmallAgent { words, socket, starter, listeners, members: 0, mask: 0, held: Vec::new() })
    }

    fn run(mut self, run: &Path) {
        loop {
            self.words.renew();
            let sockets: Vec<_> = self.socket.waiting().collect();
            self.listeners.wait(&sockets, TURN).unwrap();
            for arrival in self.socket.accept(monotonic_now()).unwrap() {
                let Ok(Arrival { state, listener, answer }) = arrival else { continue };
                let account = AccountId(state.metadata.parse().unwrap_or(0));
                let registration = Registration { account, name: state.state.id, process: state.pid };
                let Ok(listener) = Listener::new(listener, account) else { continue };
                self.listeners.add(monotonic_now(), self.starter.guard(listener, registration));
                self.members += 1;
                answer.taken_over();
            }
            self.decide();
            self.say(run);
        }
    }

    fn decide(&mut self) {
        let (held, mask) = (&mut self.held, self.mask);
        let turn = self.listeners.turn(monotonic_now(), self.words.lease(), BUDGET, |id, call| {
            if mask >> call.call.account.0 & 1 == 0 {
                return CallDecision::Admit;
            }
            held.push((id, call.call.account, call.call.id));
            CallDecision::Hold
        });
        let turn = turn.unwrap();
        for (id, call) in turn.restricting {
            let account = self.listeners.get(id).unwrap().account();
            self.words.begin_generation(account);
            self.listeners.resume(id, call).unwrap();
        }
        self.members = self.members + turn.returned.len() as u64 - turn.ended.len() as u64;
        let may_go = self.held.extract_if(.., |(_, account, _)| mask >> account.0 & 1 == 0);
        for (id, _, call) in may_go {
            self.listeners.resume(id, call).unwrap();
        }
        let (gone, _) = self.listeners.take_gone(usize::MAX);
        let has_ended = |id| turn.ended.iter().any(|(ended, _)| *ended == id);
        self.held.retain(|(id, _, call)| !has_ended(*id) && !gone.contains(&(*id, *call)));
    }

    /// Reads what to hold, and says what it did after it has acted on it.
    fn say(&mut self, run: &Path) {
        let draft = run.join("state.draft");
        std::fs::write(&draft, format!("{} {} {}", self.mask, self.members, self.held.len())).unwrap();
        std::fs::rename(&draft, run.join(STATE)).unwrap();
        let mask = std::fs::read_to_string(run.join(HELD)).ok().and_then(|mask| mask.parse().ok()).unwrap_or(self.mask);
        for account in (0..u64::BITS).filter(|account| (mask ^ self.mask) >> account & 1 == 1) {
            let is_held = mask >> account & 1 == 1;
            let change = if is_held { GateWords::close } else { GateWords::open };
            GateClass::ALL.into_iter().for_each(|class| change(&self.words, AccountId(account), class));
        }
        self.mask = mask;
    }
}
