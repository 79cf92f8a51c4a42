//! `plimsoll classify`.

use crate::arguments::{ClassifyCommand, PostgresqlArguments};
use crate::outcome::{Failure, Outcome};
use plimsoll_classes::Client;
use plimsoll_classifiers::postgresql::{Classifier, ClassifierError, DatabaseClass, Found, Server};
use std::io::Write;
use std::sync::atomic::AtomicBool;

pub(super) fn run(command: &ClassifyCommand) -> Outcome {
    match command {
        ClassifyCommand::Postgresql(arguments) => postgresql(arguments),
    }
}

fn postgresql(arguments: &PostgresqlArguments) -> Outcome {
    let client = arguments.at.as_ref().map_or_else(Client::from_environment, |path| Client::new(path));
    let server = (!arguments.without_catalogue).then(|| server(arguments));
    let mut classifier = Classifier::new(&arguments.data_directory, server, client).map_err(failure)?;
    let found = classifier.look().map_err(failure)?;
    if found.files.is_empty() && found.elsewhere > 0 {
        let path = arguments.data_directory.display();
        return Err(Failure::BadInput(format!(
            "--data-directory: {path} is on no volume that is mounted with tenants here"
        )));
    }
    // A reader that went away ends nothing.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{}", counts(&found));
    if arguments.once {
        return Ok(());
    }
    let _ = writeln!(out, "watching; Ctrl-C or SIGTERM ends it");
    let _ = out.flush();
    // Signals end it.
    classifier.keep_looking(&AtomicBool::new(false));
    Ok(())
}

fn failure(error: ClassifierError) -> Failure {
    match error {
        ClassifierError::Directory { .. } => {
            Failure::BadInput(format!("--data-directory: {error}, allowed is that of a PostgreSQL cluster"))
        }
        ClassifierError::Refused { .. } => Failure::Failed(error.to_string()),
    }
}

fn server(arguments: &PostgresqlArguments) -> Server {
    let PostgresqlArguments { psql, host, port, user, .. } = arguments;
    let host = host.iter().map(|host| format!("--host={host}"));
    let port = port.iter().map(|port| format!("--port={port}"));
    let user = user.iter().map(|user| format!("--username={user}"));
    Server { psql: psql.clone(), options: host.chain(port).chain(user).collect() }
}

fn counts(found: &Found) -> String {
    let name = |class| match class {
        DatabaseClass::Log => "log",
        DatabaseClass::SystemTable => "system table",
        DatabaseClass::FreeSpaceMap => "free-space map",
        DatabaseClass::Temporary => "temporary",
        DatabaseClass::RandomTable => "random table",
        DatabaseClass::SequentialTable => "sequential table",
        DatabaseClass::Index => "index",
    };
    let count = |class| format!("{} {}", name(class), found.files.get(&class).copied().unwrap_or(0));
    let counts: Vec<String> = DatabaseClass::ALL.into_iter().map(count).collect();
    let unknown = match found.unknown {
        0 => String::new(),
        unknown => {
            format!("; {unknown} files of relations that the catalogue does not show are as the file system says")
        }
    };
    let elsewhere = match found.elsewhere {
        0 => String::new(),
        elsewhere => format!("; {elsewhere} files are on other disks"),
    };
    format!("{}{unknown}{elsewhere}", counts.join(", "))
}
