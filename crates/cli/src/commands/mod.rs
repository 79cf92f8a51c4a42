//! One file a command.

mod check;
mod device;
mod scheduler;

use crate::arguments::{Arguments, Command};
use crate::outcome::{Failure, Outcome, exit};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    // clap itself ends with 0 after --help and --version, and with 2 on bad arguments.
    let arguments = Arguments::parse();
    exit(start_log(&arguments.log).and_then(|()| dispatch(arguments.command)))
}

fn dispatch(command: Command) -> Outcome {
    match command {
        Command::Check(arguments) => check::run(&arguments),
        Command::Device(command) => device::run(&command),
        Command::Scheduler(command) => scheduler::run(&command),
    }
}

fn start_log(level: &str) -> Outcome {
    let filter = tracing_subscriber::EnvFilter::try_new(level).map_err(|error| {
        Failure::BadInput(format!(
            "--log: got {level:?} ({error}), allowed error, warn, info, debug, trace or a filter"
        ))
    })?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
    Ok(())
}

/// Prints on stdout; a reader that went away, as `| head` does, is no failure.
fn print(text: impl std::fmt::Display) -> Outcome {
    let text = text.to_string();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(std::io::stdout().lock(), "{text}{end}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints `value` as JSON with line breaks.
fn print_json(value: &impl serde::Serialize) -> Outcome {
    print(serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.to_string()))?)
}
