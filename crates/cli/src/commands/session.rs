//! `plimsoll session open|close`.
//!
//! A session that is opened for a command ends with the connection that asked for it. This process keeps that
//! connection and becomes the command, as `plimsoll run` does: whatever ends the command, the kernel then closes the
//! connection.

use super::{check_name, connect, print, print_json, unexpected};
use crate::arguments::{SessionCommand, SessionOpenArguments};
use crate::control::protocol::{Request, Response};
use crate::outcome::{Failure, Outcome};
use rustix::io::FdFlags;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

pub(super) fn run(command: &SessionCommand) -> Outcome {
    match command {
        SessionCommand::Open(arguments) => open(arguments),
        SessionCommand::Close(arguments) => {
            let request = Request::SessionClose { session: arguments.session.clone() };
            match connect(&arguments.daemon)?.ask(&request)? {
                Response::Done(what) => print(what),
                _ => Err(unexpected()),
            }
        }
    }
}

fn open(arguments: &SessionOpenArguments) -> Outcome {
    let outcome = open_session(arguments);
    if arguments.command.is_empty() { outcome } else { outcome.map_err(Failure::of_wrapper) }
}

fn open_session(arguments: &SessionOpenArguments) -> Outcome {
    let (volume, name, change) = (arguments.volume.clone(), arguments.name.clone(), arguments.change.change());
    check_name(&name)?;
    let command = arguments.command.split_first();
    let mut client = connect(&arguments.daemon)?;
    let answer = client.ask(&Request::SessionOpen { volume, name, change, tied: command.is_some() })?;
    let Response::Session(session) = answer else { return Err(unexpected()) };
    let (word, door) = session.door().ok_or_else(unexpected)?;
    let (variable, door) = (format!("PLIMSOLL_{}", word.to_uppercase()), door.to_owned());
    let Some((program, rest)) = command else {
        return if arguments.json { print_json(&session) } else { print(door) };
    };
    let failed =
        |error: std::io::Error| Failure::Failed(format!("cannot run {}: {error}", Path::new(program).display()));
    let connection = client.ending().map_err(failed)?;
    rustix::io::fcntl_setfd(&connection, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
    let mut command = Command::new(program);
    command.args(rest).env(variable, door).env("PLIMSOLL_SESSION", session.path);
    let error = command.exec();
    Err(Failure::not_executed(&error, format!("cannot run {}: {error}", Path::new(program).display())))
}
