//! Another program: it is started, ends or is killed, and its error output is reported.
//!
//! A program that needs a group and an account from its first call on is a shell at first. The shell waits for a word
//! and then executes it.

use super::error::{failed, interrupted};
use super::{HostError, clock};
use plimsoll_core::{Span, Time};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Where programs are looked for besides `PATH`: where Debian keeps those that only root needs.
const SYSTEM_PROGRAM_DIRECTORIES: &str = "/usr/sbin:/sbin";
/// What a shell does that waits for a line and becomes what it was given.
const WAIT_AND_BECOME: &str = "read -r line && exec \"$@\"";
/// How often it is looked whether a program has ended: little beside what any of them takes.
const LOOK: Span = Span::from_millis(1);

fn path() -> String {
    format!("{}:{SYSTEM_PROGRAM_DIRECTORIES}", std::env::var("PATH").unwrap_or_default())
}

/// Why `program` cannot be run here, if so.
pub(super) fn why_not(program: &str) -> Option<String> {
    let is_there = path().split(':').any(|folder| Path::new(folder).join(program).is_file());
    (!is_there).then(|| format!("{program} was not found"))
}

/// A program, or the shell that becomes one. Dropping it kills it.
pub(super) struct Program {
    name: String,
    child: Child,
    /// What it complains of: a file in memory, which is never full as a pipe is.
    complaints: File,
}

impl Program {
    /// Starts `command`; `name` says in messages what it is.
    pub(super) fn start(name: &str, mut command: Command) -> Result<Program, HostError> {
        let complaints = memfd_create(name, MemfdFlags::CLOEXEC).map(File::from);
        let complaints = complaints.map_err(|errno| failed(name, errno))?;
        let stderr = complaints.try_clone().map_err(|error| failed(name, error))?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr).process_group(0).current_dir("/");
        let child = command.env("PATH", path()).spawn().map_err(|error| failed(name, error))?;
        Ok(Program { name: name.to_owned(), child, complaints })
    }

    /// Starts a shell that becomes what `arguments` say, the program first, when it is told to [begin](Self::begin).
    pub(super) fn wait(name: &str, arguments: impl IntoIterator<Item = String>) -> Result<Program, HostError> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WAIT_AND_BECOME, "sh"]).args(arguments);
        Program::start(name, command)
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.child.id()
    }

    /// Lets it become what it is to be; it has nothing to read then.
    pub(super) fn begin(&mut self) -> Result<(), HostError> {
        self.input().write_all(b"\n").map_err(|error| failed(&self.name, error))
    }

    /// What it reads, which ends when this is dropped.
    ///
    /// # Panics
    /// If it was taken before.
    pub(super) fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("it is a pipe, and taken once")
    }

    /// Sends it a signal, if it is still there.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(process, signal);
        }
    }

    /// Whether it has ended, and how.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, HostError> {
        self.child.try_wait().map_err(|error| failed(&self.name, error))
    }

    /// Waits for its end; answers with when that was.
    pub(super) fn end(mut self, stop: &AtomicBool) -> Result<Time, HostError> {
        let status = loop {
            if let Some(status) = self.ended()? {
                break status;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            clock::sleep_until(clock::now() + LOOK);
        };
        let ended = clock::now();
        if status.success() { Ok(ended) } else { Err(self.failed(status)) }
    }

    /// What it has failed with.
    pub(super) fn failed(&mut self, status: ExitStatus) -> HostError {
        let mut said = String::new();
        let _ = self.complaints.rewind().and_then(|()| self.complaints.read_to_string(&mut said));
        failed(&self.name, format!("{status}: {}", said.lines().next().unwrap_or_default()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
