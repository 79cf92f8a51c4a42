//! `plimsoll run`: a command as a tenant of a volume.
//!
//! This process joins, and then becomes the command: nothing stays between the command and whoever started it, so signals,
//! terminal, job control and exit code are its own.

use super::{check_name, connect, unexpected};
use crate::arguments::RunArguments;
use crate::config::name_like;
use crate::control::protocol::{Request, Response};
use crate::outcome::{Failure, Outcome};
use plimsoll_gates::Filter;
use std::path::Path;
use std::process::Command;

pub(super) fn run(arguments: &RunArguments) -> Outcome {
    let (program, rest) = arguments.command.split_first().expect("clap asks for one");
    let base = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let name = arguments.name.clone().unwrap_or_else(|| name_like(&base));
    check_name(&name)?;
    let request = Request::Join {
        volume: arguments.volume.clone(),
        pool: arguments.pool.clone(),
        name,
        change: arguments.change.change(),
        process: std::process::id(),
    };
    let Response::Joined(entrance) = connect(&arguments.daemon)?.ask(&request)? else { return Err(unexpected()) };
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let launch = entrance.launch(Filter::default()).map_err(|error| failed(&error))?;
    Err(failed(&launch.execute(Command::new(program).args(rest))))
}
