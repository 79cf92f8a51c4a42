//! The processes of a run, from the host's side.

use super::cgroups::Groups;
use super::error::{failed, interrupted};
use super::job::Job;
use super::memory::MemoryGroup;
use super::process::{Link, Reply, Start};
use super::runner::Done;
use super::tally::Tally;
use super::tenants::Tenants;
use super::{HostError, ProcessProgram, clock};
use crate::results::Source;
use crate::scenario::ProcessSetup;
use plimsoll_core::{Span, Time};
use plimsoll_gates::Launch;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// From the word to all processes until the experiment begins: long enough for all to have heard it.
pub(super) const HEAD_START: Span = Span::from_millis(20);

/// All processes of a run.
#[derive(Default)]
pub(super) struct Crew {
    members: Vec<Member>,
}

/// One of them. Dropping it kills it.
struct Member {
    name: String,
    child: Child,
    link: Link,
    /// What it said while the experiment ran: that it has failed, or come to its end.
    said: Option<Result<Reply, HostError>>,
}

/// What was done.
#[derive(Default)]
pub(super) struct Log {
    /// By process or tenant, and by source of units that are counted apart.
    tallies: BTreeMap<String, Tally>,
    /// Processor time of all threads.
    pub(super) processor: Span,
}

/// The source of the I/O that is measured: processes, queries or clients.
pub(super) trait Load {
    /// Lets all of them begin; answers with when they do.
    fn start(&mut self) -> Result<Time, HostError>;

    /// Whether the wait is over: a load has met an error, or all have ended and that ends the experiment.
    fn is_over(&mut self) -> bool;

    /// Ends it.
    fn finish(self) -> Result<Log, HostError>;
}

impl Crew {
    /// Has a process make its files, and then starts the process that uses them, behind `gates`. Preparation is no
    /// account's I/O and waits at no gate. Both processes have `memory`, if it is bounded.
    pub(super) fn add(
        &mut self,
        program: &ProcessProgram,
        job: Job,
        gates: Option<&Launch>,
        memory: Option<&MemoryGroup>,
        stop: &AtomicBool,
    ) -> Result<(), HostError> {
        drop(Member::start(program, &job, None, memory, stop)?);
        self.members.push(Member::start(program, &Job { is_prepared: true, ..job }, gates, memory, stop)?);
        Ok(())
    }

    /// What each process does is its tenant's I/O from now on.
    pub(super) fn enroll(&self, tenants: &Tenants, processes: &[ProcessSetup]) -> Result<(), HostError> {
        let pairs = self.members.iter().zip(processes);
        pairs.into_iter().try_for_each(|(member, process)| tenants.enroll(&process.account, member.child.id()))
    }

    /// Puts each process into the group of its account.
    pub(super) fn join(&self, groups: &Groups, processes: &[ProcessSetup]) -> Result<(), HostError> {
        let pairs = self.members.iter().zip(processes);
        pairs.into_iter().try_for_each(|(member, process)| groups.join(&process.account, member.child.id()))
    }
}

impl Load for Crew {
    fn start(&mut self) -> Result<Time, HostError> {
        let origin = clock::now() + HEAD_START;
        for Member { name, link, .. } in &mut self.members {
            link.say(&Start { origin_ns: origin.as_nanos() }).map_err(|error| failed(name, error))?;
        }
        Ok(origin)
    }

    fn is_over(&mut self) -> bool {
        for member in self.members.iter_mut().filter(|member| member.said.is_none() && member.link.has_word(0)) {
            member.said = Some(member.answer());
        }
        let has_failed = self.members.iter().any(|member| matches!(member.said, Some(Err(_))));
        has_failed || self.members.iter().all(|member| member.said.is_some())
    }

    fn finish(mut self) -> Result<Log, HostError> {
        // Every thread finishes the call that it is in.
        self.members.iter().for_each(|member| member.link.close());
        let mut log = Log::default();
        for member in &mut self.members {
            match member.said.take().unwrap_or_else(|| member.answer())? {
                Reply::Done(done) => log.add(&member.name, done),
                Reply::Prepared => return Err(failed(&member.name, "answered out of turn")),
                Reply::Failed(_) => unreachable!("is an error"),
            }
        }
        Ok(log)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for Member { child, .. } in &mut self.members {
            let _ = child.kill();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Member {
    /// Starts a process and waits until it has its files.
    fn start(
        program: &ProcessProgram,
        job: &Job,
        gates: Option<&Launch>,
        memory: Option<&MemoryGroup>,
        stop: &AtomicBool,
    ) -> Result<Member, HostError> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("make a socket", error))?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        let prepared = gates.map_or(Ok(()), |gates| gates.prepare(&mut command));
        prepared.map_err(|error| failed(&job.name, error))?;
        let child = command.spawn().map_err(|error| failed(program.path.display(), error))?;
        // The command has a descriptor of the process's side, which must not outlive it there.
        drop(command);
        let mut member = Member { name: job.name.clone(), child, link: Link::new(ours), said: None };
        memory.map_or(Ok(()), |memory| memory.join(member.child.id()))?;
        member.link.say(job).map_err(|error| failed(&job.name, error))?;
        while !member.link.has_word(clock::SLICE.as_nanos()) {
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
        }
        match member.answer()? {
            Reply::Prepared => Ok(member),
            answer => Err(failed(&job.name, format!("answered {answer:?} to its job"))),
        }
    }

    fn answer(&mut self) -> Result<Reply, HostError> {
        match self.link.hear() {
            Ok(Some(Reply::Failed(reason))) => Err(failed(&self.name, reason)),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(failed(&self.name, "its process has gone")),
            Err(error) => Err(failed(&self.name, error)),
        }
    }
}

impl Log {
    /// Takes in what one process or tenant did.
    pub(super) fn add(&mut self, name: &str, done: Done) {
        let Done { tallies, processor_ns } = done;
        self.processor += Span::from_nanos(processor_ns);
        self.tallies.insert(name.to_owned(), tallies.all);
        self.tallies.extend(tallies.sized);
    }

    /// The figures of the seconds that count.
    pub(super) fn sources(&self, counts: &[bool]) -> BTreeMap<String, Source> {
        self.tallies.iter().map(|(name, tally)| (name.clone(), tally.source(counts))).collect()
    }
}
