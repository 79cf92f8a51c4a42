//! Starting a command behind gates.
//!
//! The command is prepared and then started ([`Command::spawn`]) or, better, executed in place of this process
//! ([`CommandExt::exec`]). Then nothing stays between the command and its caller; signals, terminal, job control and
//! exit code are its own.
//!
//! The command's own process installs the filter, after its fork and before its exec. It hands the listener to the
//! agent over the socket that OCI runtimes use. It executes only when the agent says that a keeper stands behind the
//! listener.

use crate::error::GateError;
use crate::filter::Filter;
use crate::kernel;
use crate::oci::{ContainerState, SECCOMP_DESCRIPTOR, SeccompState, TAKEN_OVER};
use crate::passing;
use crate::programs::Programs;
use crate::words::{ACCOUNTS_MAX, GateWords};
use plimsoll_core::AccountId;
use rustix::fs::{FileType, fstat};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, recv};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What the loader loads before anything else (ld.so(8)).
const PRELOAD: &str = "LD_PRELOAD";
/// Where the shim finds the words.
const WORDS: &str = "PLIMSOLL_GATE_WORDS";
/// Which of them are its own.
const ACCOUNT: &str = "PLIMSOLL_GATE_ACCOUNT";
/// What those say while they are closed for it.
const GENERATION: &str = "PLIMSOLL_GATE_GENERATION";
/// Number of seccomp filters of the command at its start. A process with more has one of its own, and the shim stands
/// aside.
const FILTERS: &str = "PLIMSOLL_GATE_FILTERS";
/// Options of AddressSanitizer. What it finds of a program that was linked to it as a library holds also where another
/// library comes first.
const SANITIZER: &str = "ASAN_OPTIONS";
const SANITIZER_OPTION: &str = "verify_asan_link_order=0";
/// Where the shim, and programs with the libraries, say the classes of files.
const CLASSES: &str = plimsoll_classes::SOCKET_VARIABLE;
/// How long the agent may take to start a keeper.
const PATIENCE: Duration = Duration::from_secs(10);
/// The version of the OCI runtime specification that we follow.
const OCI_VERSION: &str = "1.0.2";
/// Placeholder of the process's number, which is known only after the fork: as many digits as the largest.
const UNKNOWN_PROCESS: u32 = u32::MAX;

/// The gates that a command is started behind.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    preload: Option<Preload>,
    filter: Option<(Filter, PathBuf, SeccompState)>,
    classes: Option<PathBuf>,
}

/// The shim, and the words that it waits at.
#[derive(Clone, Debug)]
struct Preload {
    shim: PathBuf,
    words: PathBuf,
    account: AccountId,
    generation: u32,
}

impl Launch {
    /// Behind none.
    pub fn new() -> Launch {
        Launch::default()
    }

    /// Adds the preload shim, with the words of `account` for the present generation.
    ///
    /// # Errors
    /// The account has no words.
    pub fn with_shim(self, programs: &Programs, words: &GateWords, account: AccountId) -> Result<Launch, GateError> {
        let has_words = account.0 < ACCOUNTS_MAX;
        let generation = if has_words { words.generation(account) } else { 0 };
        self.with_shim_at(programs.shim(), words.path(), account, generation)
    }

    /// The same by their names, for a caller other than the agent.
    ///
    /// # Errors
    /// The account has no words.
    pub fn with_shim_at(
        self,
        shim: &Path,
        words: &Path,
        account: AccountId,
        generation: u32,
    ) -> Result<Launch, GateError> {
        if account.0 >= ACCOUNTS_MAX {
            return Err(GateError::Account { got: account.0, max: ACCOUNTS_MAX - 1 });
        }
        let preload = Preload { shim: shim.to_owned(), words: words.to_owned(), account, generation };
        Ok(Launch { preload: Some(preload), ..self })
    }

    /// With the socket at which the daemon hears the classes of files.
    #[must_use]
    pub fn with_classes(self, socket: &Path) -> Launch {
        Launch { classes: Some(socket.to_owned()), ..self }
    }

    /// Adds a filter with its listener handed over at `socket`. `metadata` names the account, `name` the command.
    ///
    /// A caller without CAP_SYS_ADMIN gives up gaining privileges by exec (`no_new_privs`): its setuid programs run as
    /// the user that starts them.
    #[must_use]
    pub fn with_filter(self, filter: Filter, socket: &Path, metadata: &str, name: &str) -> Launch {
        let container = ContainerState {
            oci_version: OCI_VERSION.to_owned(),
            id: name.to_owned(),
            status: "creating".to_owned(),
            pid: UNKNOWN_PROCESS,
            bundle: String::new(),
        };
        let state = SeccompState {
            oci_version: OCI_VERSION.to_owned(),
            fds: vec![SECCOMP_DESCRIPTOR.to_owned()],
            pid: UNKNOWN_PROCESS,
            metadata: metadata.to_owned(),
            state: container,
        };
        Launch { filter: Some((filter, socket.to_owned(), state)), ..self }
    }

    /// Puts the command behind the gates, and all that it starts. It can be started once. Libraries that are
    /// preloaded already stay so, behind the shim.
    ///
    /// # Errors
    /// The agent does not listen.
    pub fn prepare(&self, command: &mut Command) -> Result<(), GateError> {
        self.prepare_and_note(command, Arc::default())
    }

    /// This process becomes the command, behind the gates. Answers with what prevents it.
    pub fn execute(&self, command: &mut Command) -> GateError {
        let reached = Arc::<AtomicU8>::default();
        if let Err(error) = self.prepare_and_note(command, Arc::clone(&reached)) {
            return error;
        }
        let source = command.exec();
        match (&self.filter, reached.load(Ordering::Relaxed)) {
            (Some(_), NOTHING) => GateError::Filter { source },
            (Some(_), FILTERED) => GateError::HandOver { source },
            _ => GateError::File { action: "run", path: command.get_program().into(), source },
        }
    }

    fn set_environment(&self, command: &mut Command, preload: &Preload) {
        let Preload { shim, words, account, generation } = preload;
        command.env(PRELOAD, with_first(command, PRELOAD, shim.as_os_str()));
        command.env(SANITIZER, with_first(command, SANITIZER, OsStr::new(SANITIZER_OPTION)));
        command.env(WORDS, words).env(ACCOUNT, account.0.to_string()).env(GENERATION, generation.to_string());
        match own_filters() {
            Some(filters) => command.env(FILTERS, (filters + u32::from(self.filter.is_some())).to_string()),
            None => {
                tracing::warn!(
                    "/proc does not show the seccomp filters of this process: the shim holds no call of the command"
                );
                command.env_remove(FILTERS)
            }
        };
    }

    fn prepare_and_note(&self, command: &mut Command, reached: Arc<AtomicU8>) -> Result<(), GateError> {
        if let Some(preload) = &self.preload {
            self.set_environment(command, preload);
        }
        if let Some(classes) = &self.classes {
            command.env(CLASSES, classes);
        }
        if let Some((filter, path, state)) = &self.filter {
            let socket = UnixStream::connect(path).map_err(GateError::file("connect to", path))?;
            let mut handover = Handover::new(*filter, socket.into(), state, reached)?;
            // SAFETY: what runs between fork and exec was made before; it takes no lock and no memory.
            unsafe { command.pre_exec(move || handover.run()) };
        }
        Ok(())
    }
}

/// A list in the command's environment, separated by colons: `first`, and the present value.
fn with_first(command: &Command, variable: &str, first: &OsStr) -> OsString {
    let set = command.get_envs().find(|(name, _)| *name == OsStr::new(variable)).map(|(_, value)| value);
    let others = match set {
        Some(value) => value.map(OsStr::to_owned),
        None => std::env::var_os(variable),
    };
    let mut list = first.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// The seccomp filters that this process is behind (Linux 5.9).
fn own_filters() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")?.trim().parse().ok())
}

/// Progress of a process with its filter: no filter; a filter without an agent's listener; a filter that the agent
/// serves.
const NOTHING: u8 = 0;
const FILTERED: u8 = 1;
const LISTENED_TO: u8 = 2;

/// Installs a filter and hands its listener over; made before the fork.
struct Handover {
    /// Seen by a process that executes without a fork.
    reached: Arc<AtomicU8>,
    socket: OwnedFd,
    program: Vec<libc::sock_filter>,
    /// For a process with a file as stdin, stdout or stderr.
    program_with_standard_descriptors: Vec<libc::sock_filter>,
    text: Vec<u8>,
    /// Where in the text the process's number goes.
    places: Vec<usize>,
}

impl Handover {
    fn new(
        filter: Filter,
        socket: OwnedFd,
        state: &SeccompState,
        reached: Arc<AtomicU8>,
    ) -> Result<Handover, GateError> {
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(GateError::step("set a timeout"))?;
        let text = serde_json::to_string(state).expect("texts and numbers");
        // In a text the quotes would be escaped.
        let pattern = format!("\"pid\":{UNKNOWN_PROCESS}");
        let digits = pattern.len() - UNKNOWN_PROCESS.to_string().len();
        let places = text.match_indices(&pattern).map(|(place, _)| place + digits).collect();
        Ok(Handover {
            reached,
            socket,
            program: filter.program(),
            program_with_standard_descriptors: filter.with_standard_descriptors().program(),
            text: text.into_bytes(),
            places,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.name_process(rustix::process::getpid().as_raw_nonzero().get() as u32);
        let listener =
            kernel::install(if has_standard_file() { &self.program_with_standard_descriptors } else { &self.program })?;
        self.reached.store(FILTERED, Ordering::Relaxed);
        passing::send(self.socket.as_fd(), &self.text, &[listener.as_fd()])?;
        let mut answer = [0; TAKEN_OVER.len()];
        let mut filled = 0;
        while filled < answer.len() {
            match recv(&self.socket, &mut answer[filled..], RecvFlags::empty()) {
                Ok((0, _)) => break,
                Ok((bytes, _)) => filled += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if answer != TAKEN_OVER {
            // By number: an error with a text would need memory.
            return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        }
        self.reached.store(LISTENED_TO, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the number over its placeholder in the text, padded with spaces, which JSON ignores.
    fn name_process(&mut self, process: u32) {
        for &place in &self.places {
            let field = &mut self.text[place..place + 10];
            field.fill(b' ');
            let (mut rest, mut digits) = (process, [0; 10]);
            let mut count = 0;
            while rest > 0 {
                digits[count] = b'0' + (rest % 10) as u8;
                (rest, count) = (rest / 10, count + 1);
            }
            digits[..count].iter().rev().zip(field).for_each(|(digit, place)| *place = *digit);
        }
    }
}

/// Whether stdin, stdout or stderr leads to a disk.
fn has_standard_file() -> bool {
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    standard.into_iter().any(|descriptor| {
        fstat(descriptor).is_ok_and(|file| FileType::from_raw_mode(file.st_mode) == FileType::RegularFile)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_named_wherever_it_stands_and_nowhere_else() {
        let name = r#""pid":4294967295 and a quote"#;
        let launch = Launch::new().with_filter(Filter::default(), Path::new("/x"), "backup", name);
        let (filter, _, state) = launch.filter.unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let mut handover = Handover::new(filter, socket.into(), &state, Arc::default()).unwrap();
        for process in [1, 32768, u32::MAX - 1] {
            handover.name_process(process);
            let (read, _) = SeccompState::parse(&handover.text, 1).unwrap();
            assert_eq!((read.pid, read.state.pid, &*read.state.id), (process, process, name));
        }
    }

    #[test]
    fn what_was_preloaded_stays() {
        let mut command = Command::new("true");
        let preloaded = |command: &Command| with_first(command, PRELOAD, OsStr::new("/shim.so"));
        command.env(PRELOAD, "/lib/other.so");
        assert_eq!(preloaded(&command), "/shim.so:/lib/other.so");
        command.env(PRELOAD, "");
        assert_eq!(preloaded(&command), "/shim.so");
        command.env_remove(PRELOAD);
        assert_eq!(preloaded(&command), "/shim.so");
    }

    #[test]
    fn an_account_without_words_is_refused() {
        let refusal = Launch::new().with_shim_at(Path::new("/s"), Path::new("/w"), AccountId(64), 1).unwrap_err();
        assert_eq!(refusal.to_string(), "account 64 has no gate, allowed are 0 to 63");
    }
}
