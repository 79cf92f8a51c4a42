//! `plimsoll run`: a command as a tenant of a volume.
//!
//! This process joins, and then becomes the command: nothing stays between the command and the process that started it.
//! So signals, terminal, job control and exit code are its own. What fails before that ends with 125 to 127, as other
//! wrappers do.
//!
//! The daemon may have been started a moment ago, as in `plimsoll agent --mount /data & plimsoll run ...`: its socket
//! is waited for. After half a second this process says so on stderr.

use super::{check_name, connect, unexpected};
use crate::arguments::{DaemonArguments, RunArguments};
use crate::config::{Defaults, name_like};
use crate::control::client::Client;
use crate::control::protocol::{Request, Response};
use crate::metrics::reading::Reading;
use crate::outcome::{Failure, Outcome};
use plimsoll_core::{Span, shown};
use plimsoll_gates::{Filter, GateError};
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How often a daemon's socket is tried, with a pause in between: five seconds together.
const LOOKS: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// After so many looks the command says what it waits for: half a second.
const LOOKS_IN_SILENCE: u32 = 5;

pub(super) fn run(arguments: &RunArguments) -> Outcome {
    become_command(arguments).map_err(Failure::of_wrapper)
}

fn become_command(arguments: &RunArguments) -> Outcome {
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
    let mut client = connect_patiently(&arguments.daemon)?;
    let Response::Joined(entrance) = client.ask(&request)? else {
        return Err(unexpected());
    };
    if arguments.verbose {
        say(&joined(&mut client)?);
    }
    if let Some(why) = &entrance.not_held {
        say(&format!("held by shim and notifications only, not by the freezer: {why}"));
    }
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let launch = entrance.launch(Filter::default()).map_err(|error| failed(&error))?;
    let error = launch.execute(Command::new(program).args(rest));
    Err(match &error {
        GateError::File { action: "run", source, .. } => Failure::not_executed(source, error.to_string()),
        error => failed(error),
    })
}

/// Tells the user something on stderr: stdout is the command's.
fn say(what: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "plimsoll run: {}", shown(what));
}

/// What this process has joined, in words.
fn joined(client: &mut Client) -> Result<String, Failure> {
    let Response::Tenants(tenants) = client.ask(&Request::Tenants {})? else { return Err(unexpected()) };
    let own = f64::from(std::process::id());
    let has_own = |tenant: &&Reading| tenant.subjects("processes").iter().any(|process| process.number() == Some(own));
    let own = tenants.items().iter().find(has_own);
    Ok(own.map_or("joined".to_owned(), |tenant| format!("joined {} as {}", tenant.text("volume"), tenant.text("path"))))
}

/// Connects to the daemon, which may be about to make its socket.
#[allow(clippy::disallowed_methods, reason = "a command waits in real time")]
fn connect_patiently(daemon: &DaemonArguments) -> Result<Client, Failure> {
    let socket = daemon.socket.clone().unwrap_or_else(|| Defaults::of_this_user().control_socket());
    let is_missing = || {
        let error = UnixStream::connect(&socket).err().map(|error| error.kind());
        matches!(error, Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused))
    };
    for look in 0..LOOKS {
        if !is_missing() {
            break;
        }
        if look == LOOKS_IN_SILENCE {
            let wait = Span::from(BETWEEN_LOOKS * LOOKS);
            say(&format!("waiting up to {wait} for a daemon at {}", socket.display()));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    connect(daemon)
}
