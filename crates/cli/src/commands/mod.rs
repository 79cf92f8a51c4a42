//! One file a command.

mod cache;
mod check;
mod class;
mod classify;
mod container_profile;
mod demo;
mod device;
mod load;
mod man_pages;
mod measure;
mod out;
mod pool;
mod record;
mod replay;
mod replay_cache;
mod run;
mod scenario;
mod scheduler;
mod session;
mod status;
mod volume;
mod why;

use crate::arguments::{self, Command, DaemonArguments};
use crate::config::{Defaults, name_refusal};
use crate::control::client::Client;
use crate::outcome::{Failure, OWN_FAILURE, Outcome, exit};
use crate::signals;
use plimsoll_core::{Allocation, Rate, shown_lines};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

/// Clears a terminal and goes to its first line (ECMA-48, ED and CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    // Before all slow steps: until the daemon listens for SIGHUP, the signal would end it.
    if command_of(std::env::args_os().skip(1)).is_some_and(|command| command == "up" || command == "agent") {
        signals::hold_hang_ups();
    }
    // clap itself ends with 0 after --help and --version, and with 2 on bad arguments.
    let arguments = match arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && runs_another(std::env::args_os().skip(1)) => {
            // Standard error may be closed: the code says it, too.
            let _ = error.print();
            return ExitCode::from(OWN_FAILURE);
        }
        Err(error) => error.exit(),
    };
    let level = arguments.log.as_deref().unwrap_or_else(|| default_level(&arguments.command));
    exit(start_log(level).and_then(|()| dispatch(arguments.command)))
}

/// Whether wrong arguments are those of `plimsoll run`, which otherwise exits with the code of the command that it
/// runs.
fn runs_another(arguments: impl Iterator<Item = OsString>) -> bool {
    command_of(arguments).is_some_and(|command| command == "run")
}

/// The first argument that is no option, nor an option's value.
fn command_of(mut arguments: impl Iterator<Item = OsString>) -> Option<OsString> {
    loop {
        match arguments.next() {
            Some(option) if option == "--log" => drop(arguments.next()),
            Some(option) if option.as_encoded_bytes().starts_with(b"-") => {}
            command => return command,
        }
    }
}

/// A command that serves logs what it does. An experiment, which makes disks and puts them away for each of its cases,
/// logs only what went wrong.
fn default_level(command: &Command) -> &'static str {
    match command {
        Command::Demo(_) | Command::Scenario(_) => "warn",
        _ => "info",
    }
}

fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Agent(arguments) => crate::up::agent(&arguments),
        Command::Up(arguments) => crate::up::run(&arguments.file),
        Command::Status(arguments) => status::run(&arguments),
        Command::Pool(command) => pool::run(&command),
        Command::Session(command) => session::run(&command),
        Command::Volume(command) => volume::run(&command),
        Command::Cache(command) => cache::run(&command),
        Command::Run(arguments) => run::run(&arguments),
        Command::Why(arguments) => why::run(&arguments),
        Command::ContainerProfile(arguments) => container_profile::run(&arguments),
        Command::ManPages(arguments) => man_pages::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Device(command) => device::run(&command),
        Command::Scheduler(command) => scheduler::run(&command),
        Command::Scenario(command) => scenario::run(&command),
        Command::Class(command) => class::run(&command),
        Command::Load(arguments) => load::run(&arguments),
        Command::Classify(command) => classify::run(&command),
        Command::Replay(arguments) => replay::run(&arguments),
    }
}

fn start_log(level: &str) -> Outcome {
    let filter = tracing_subscriber::EnvFilter::try_new(level).map_err(|error| {
        Failure::BadInput(format!(
            "--log: got {level:?} ({error}), allowed error, warn, info, debug, trace or a filter"
        ))
    })?;
    // A command logs on when its log is read no more, or the disk is full: an error of the log's own would be told on
    // stderr, too, and end the thread.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    log.log_internal_errors(false).init();
    Ok(())
}

/// Connects to the running daemon: the named daemon, or this user's own.
fn connect(daemon: &DaemonArguments) -> Result<Client, Failure> {
    match &daemon.socket {
        Some(socket) => Client::connect(socket),
        None => Client::connect_own(&Defaults::of_this_user().control_socket()),
    }
}

/// Refuses a chosen name of any length as the daemon would.
fn check_name(name: &str) -> Outcome {
    name_refusal(name).map_or(Ok(()), |refusal| Err(Failure::BadInput(refusal)))
}

/// The daemon answered something else than was asked: it is of another version.
fn unexpected() -> Failure {
    Failure::Failed("the daemon's answer is to another question: is it of this version?".into())
}

/// Reserve, limit, weight and priority as tables have them.
fn allocation_cells(allocation: &Allocation) -> [String; 4] {
    let dash = || "-".to_owned();
    [
        if allocation.reserve == Rate::ZERO { dash() } else { allocation.reserve.to_string() },
        allocation.limit.map_or_else(dash, |limit| limit.to_string()),
        allocation.weight.to_string(),
        allocation.priority.to_string(),
    ]
}

/// Prints on stdout, with characters escaped that a terminal obeys. A reader that went away, as `| head` does, is no
/// failure.
fn print(text: impl std::fmt::Display) -> Outcome {
    show(text).map(drop)
}

/// The same for a command that prints repeatedly. Answers whether a reader of the output is still there.
fn show(text: impl std::fmt::Display) -> Result<bool, Failure> {
    show_as_it_is(&shown_lines(&text.to_string()))
}

/// The same on a terminal that is cleared before.
fn show_anew(text: &str) -> Result<bool, Failure> {
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    show_as_it_is(&format!("{clear}{}", shown_lines(text)))
}

/// The same for JSON, which has escapes of its own.
fn show_as_it_is(text: &str) -> Result<bool, Failure> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(std::io::stdout().lock(), "{text}{end}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A path as JSON has it: bytes that are no text are replaced.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Prints `value` as JSON with line breaks.
fn print_json(value: &impl serde::Serialize) -> Outcome {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.to_string()))?;
    show_as_it_is(&json).map(drop)
}
