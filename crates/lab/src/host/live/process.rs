//! A process of a scenario: this program once more, with the threads of one workload in it.
//!
//! What decides by process (the kernel's schedulers by I/O priority, its cgroups) must see as many processes as the
//! scenario has. The processes speak with the host over their standard input, which is a socket, a line of JSON each
//! way:
//!
//! ```text
//!   host      job                      start         (end of file)
//!   process         prepared, or why not                           done, or why not
//! ```
//!
//! The host ends the experiment by closing its side. A process that fails says so at once. So does one that has ended,
//! if the experiment is over when all have. A killed host takes its processes with it. The kernel kills them, since
//! their parent has died, and they have no descriptor of the device that is gone. While the host lives Ctrl-C is its
//! business, so processes are in a group of their own.

use super::clock;
use super::files;
use super::job::Job;
use super::runner::{Done, Team};
use plimsoll_core::Time;
use plimsoll_workloads::{Plan, Workload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// When the experiment begins, on the clock that all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) origin_ns: u64,
}

/// What a process says after its job, and at the end.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    Prepared,
    Done(Done),
    Failed(String),
}

/// One end of the conversation.
pub(super) struct Link {
    stream: BufReader<UnixStream>,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Link {
        Link { stream: BufReader::new(stream) }
    }

    /// Says something.
    pub(super) fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)
    }

    /// Waits for what the other side says; `None` at the end of the conversation.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// Whether there is something to hear within `wait_ns`, the end included.
    pub(super) fn has_word(&self, wait_ns: u64) -> bool {
        let wait = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut polled = [PollFd::new(self.stream.get_ref(), PollFlags::IN)];
        !self.stream.buffer().is_empty() || poll(&mut polled, Some(&wait)).is_ok_and(|ready| ready > 0)
    }

    /// Says that nothing more will be said.
    pub(super) fn close(&self) {
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Write);
    }
}

/// Follows the host at the other end of standard input; only for the program of [`LiveHost`](super::LiveHost).
///
/// # Errors
/// If there is no host, or it has gone.
pub fn serve_process() -> Result<(), String> {
    let stream = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let stream = stream.and_then(|stream| stream.peer_addr().map(|_| stream));
    let mut link = Link::new(stream.map_err(|error| format!("standard input is no socket of a host's: {error}"))?);
    let heard = |error: io::Error| format!("the host cannot be understood: {error}");
    let job: Job = link.hear().map_err(heard)?.ok_or("the host has nothing to do")?;
    die_with(job.parent)?;
    let said = |error: io::Error| format!("the host does not listen: {error}");
    let plan = match prepare(&job) {
        Ok(plan) => plan,
        Err(reason) => return link.say(&Reply::Failed(reason)).map_err(said),
    };
    link.say(&Reply::Prepared).map_err(said)?;
    // A host that has changed its mind ends the conversation here.
    let Some(Start { origin_ns }) = link.hear().map_err(heard)? else { return Ok(()) };
    let answer = run(&link, job, plan, Time::from_nanos(origin_ns)).map_or_else(Reply::Failed, Reply::Done);
    link.say(&answer).map_err(said)
}

/// Makes the kernel kill this process when `parent` dies.
fn die_with(parent: i32) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| format!("follow the host: {error}"))?;
    // It may have died before it was asked for.
    if getppid() == Pid::from_raw(parent) { Ok(()) } else { Err("the host has gone".to_owned()) }
}

fn prepare(job: &Job) -> Result<Plan, String> {
    let workload: Workload = job.workload.parse().map_err(|error| format!("{}: {error}", job.workload))?;
    let plan = workload.plan(job.seed);
    if !job.is_prepared {
        files::prepare(job, &plan)?;
        files::settle(job, &plan)?;
    }
    Ok(plan)
}

/// Runs the threads until the host ends the conversation, one of them fails, or all have ended and that ends the
/// experiment.
fn run(link: &Link, job: Job, plan: Plan, origin: Time) -> Result<Done, String> {
    clock::sleep_until(origin);
    let is_until_ended = job.is_until_ended;
    let team = Team::start(job, plan, origin).map_err(|error| format!("start a thread: {error}"))?;
    let is_over = || team.has_failed() || (is_until_ended && team.has_ended());
    while !is_over() && !link.has_word(clock::SLICE.as_nanos()) {}
    team.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> (Link, Link) {
        let (host, process) = UnixStream::pair().unwrap();
        (Link::new(host), Link::new(process))
    }

    #[test]
    fn a_conversation_ends_when_one_side_has_no_more_to_say() {
        let (mut host, mut process) = links();
        assert!(!process.has_word(0));
        host.say(&Start { origin_ns: u64::MAX }).unwrap();
        host.close();
        assert!(process.has_word(0));
        assert_eq!(process.hear().unwrap(), Some(Start { origin_ns: u64::MAX }));
        assert!(process.has_word(0), "the end is a word, too");
        assert_eq!(process.hear::<Start>().unwrap(), None);
        process.say(&Reply::Failed("disk full".to_owned())).unwrap();
        assert_eq!(host.hear().unwrap(), Some(Reply::Failed("disk full".to_owned())));
    }

    #[test]
    fn what_is_no_message_is_an_error_and_no_end() {
        let (mut host, mut process) = links();
        host.stream.get_mut().write_all(b"{\"origin_ns\": -1}\n").unwrap();
        assert!(process.hear::<Start>().is_err());
    }

    #[test]
    fn a_process_of_no_account_does_nothing() {
        let error = die_with(1 << 30).unwrap_err();
        assert_eq!(error, "the host has gone");
        set_parent_process_death_signal(None).unwrap();
    }
}
