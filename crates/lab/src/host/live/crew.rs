//! The processes of a run, from the host's side.

use super::cgroups::Groups;
use super::process::{Answer, Job, Link, Start};
use super::runner::Done;
use super::{HostError, ProcessProgram, clock, failed, interrupted};
use crate::results::Source;
use crate::scenario::ProcessSetup;
use plimsoll_core::{Span, Time};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// From the word to all processes until the experiment begins: long enough for all to have heard it.
const HEAD_START: Span = Span::from_millis(20);

/// All processes of a run. Dropping it kills them.
#[derive(Default)]
pub(super) struct Crew {
    members: Vec<Member>,
}

struct Member {
    name: String,
    child: Child,
    link: Link,
}

/// What a crew did, by process.
pub(super) struct Log {
    done: BTreeMap<String, Done>,
}

impl Crew {
    /// Starts another process and waits until it has made its files.
    pub(super) fn add(&mut self, program: &ProcessProgram, job: &Job, stop: &AtomicBool) -> Result<(), HostError> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("make a socket", error))?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(|error| failed(program.path.display(), error))?;
        // The command has a descriptor of the process's side, which must not outlive it there.
        drop(command);
        self.members.push(Member { name: job.name.clone(), child, link: Link::new(ours) });
        let member = self.members.last_mut().expect("one was added");
        member.link.say(job).map_err(|error| failed(&job.name, error))?;
        while !member.link.has_word(clock::SLICE.as_nanos()) {
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
        }
        match member.answer()? {
            Answer::Prepared => Ok(()),
            answer => Err(failed(&job.name, format!("answered {answer:?} to its job"))),
        }
    }

    /// Puts each process into the group of its account.
    pub(super) fn join(&self, groups: &Groups, processes: &[ProcessSetup]) -> Result<(), HostError> {
        let pairs = self.members.iter().zip(processes);
        pairs.into_iter().try_for_each(|(member, process)| groups.join(&process.account, member.child.id()))
    }

    /// Lets all of them begin; answers with when they do.
    pub(super) fn start(&mut self) -> Result<Time, HostError> {
        let origin = clock::now() + HEAD_START;
        for Member { name, link, .. } in &mut self.members {
            link.say(&Start { origin_ns: origin.as_nanos() }).map_err(|error| failed(name, error))?;
        }
        Ok(origin)
    }

    /// Whether a process has met an error: only then it speaks before the end.
    pub(super) fn has_failed(&self) -> bool {
        self.members.iter().any(|member| member.link.has_word(0))
    }

    /// Ends it: every thread finishes the call that it is in.
    pub(super) fn finish(mut self) -> Result<Log, HostError> {
        self.members.iter().for_each(|member| member.link.close());
        let mut log = Log { done: BTreeMap::new() };
        for member in &mut self.members {
            match member.answer()? {
                Answer::Done(done) => log.done.insert(member.name.clone(), done),
                Answer::Prepared => return Err(failed(&member.name, "answered out of turn")),
                Answer::Failed(_) => unreachable!("is an error"),
            };
        }
        Ok(log)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for Member { child, .. } in &mut self.members {
            let _ = child.kill();
        }
        for Member { child, .. } in &mut self.members {
            let _ = child.wait();
        }
    }
}

impl Member {
    fn answer(&mut self) -> Result<Answer, HostError> {
        match self.link.hear() {
            Ok(Some(Answer::Failed(reason))) => Err(failed(&self.name, reason)),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(failed(&self.name, "its process has gone")),
            Err(error) => Err(failed(&self.name, error)),
        }
    }
}

impl Log {
    /// The figures of the seconds that count.
    pub(super) fn sources(&self, counts: &[bool]) -> BTreeMap<String, Source> {
        self.done.iter().map(|(name, done)| (name.clone(), done.tally.source(counts))).collect()
    }

    /// Processor time of all threads.
    pub(super) fn processor(&self) -> Span {
        self.done.values().map(|done| Span::from_nanos(done.processor_ns)).sum()
    }
}
