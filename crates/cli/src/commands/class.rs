//! `plimsoll class`.

use super::{print, print_json};
use crate::arguments::{ClassAskArguments, ClassCommand, ClassSayArguments, ClassServerArguments};
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use plimsoll_classes::{Class, Client};
use plimsoll_core::class::Admission;
use plimsoll_settings::scheme::{self, NamedScheme, SchemeError};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The scheme called `name`, or of the file `name`. `what` is the argument that named it.
pub(super) fn load(what: &str, name: &str) -> Result<NamedScheme, Failure> {
    scheme::load(name).map_err(|error| match error {
        SchemeError::Name { got, allowed } => Failure::BadInput(format!("{what}: got {got}, allowed {allowed}")),
        SchemeError::File(error) => Failure::Configuration(error),
    })
}

pub(super) fn run(command: &ClassCommand) -> Outcome {
    match command {
        ClassCommand::List(arguments) => list(arguments.json),
        ClassCommand::Show(arguments) => show(&load("scheme", &arguments.name)?, arguments.json),
        ClassCommand::Say(arguments) => say(arguments),
        ClassCommand::Ask(arguments) => ask(arguments),
    }
}

/// The daemon's socket for classes.
fn client(arguments: &ClassServerArguments) -> Client {
    arguments.at.as_ref().map_or_else(Client::from_environment, |path| Client::new(path))
}

/// The class that people call `text`, by name or number.
fn named_class(scheme: &NamedScheme, text: &str) -> Result<Class, Failure> {
    let number = text.parse().ok().and_then(Class::new);
    let named = number.or_else(|| Some(scheme.scheme.named(text)?.number));
    named.ok_or_else(|| {
        let names: Vec<_> = scheme.scheme.entries().map(|entry| entry.name.as_str()).collect();
        let allowed = format!("0 to 31, or a name of {}: {}", scheme.name, names.join(", "));
        Failure::BadInput(format!("class: got {text:?}, allowed {allowed}"))
    })
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

fn say(arguments: &ClassSayArguments) -> Outcome {
    let class = named_class(&load("--classes", &arguments.server.classes)?, &arguments.class)?;
    let client = client(&arguments.server);
    for path in &arguments.files {
        let file = open_to_name(path).map_err(|error| failed(path, error))?;
        client.classify(&file, class).map_err(|error| failed(path, error))?;
    }
    Ok(())
}

fn ask(arguments: &ClassAskArguments) -> Outcome {
    let scheme = load("--classes", &arguments.server.classes)?;
    let client = client(&arguments.server);
    let mut table = Table::new(&[">number", "class", "file"]);
    for path in &arguments.files {
        let file = open_to_name(path).map_err(|error| failed(path, error))?;
        let class = client.class_of(&file).map_err(|error| failed(path, error))?;
        let entry = scheme.scheme.entry(class).filter(|_| class != Class::UNCLASSIFIED);
        let name = match entry {
            Some(entry) => entry.name.clone(),
            None if class == Class::UNCLASSIFIED => "as the file system says".to_owned(),
            None => "-".to_owned(),
        };
        table.row([class.number().to_string(), name, path.display().to_string()]);
    }
    print(table)
}

/// A file to name it by, and neither to read nor to write it.
fn open_to_name(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn list(is_json: bool) -> Outcome {
    let schemes = scheme::built_in().map(|name| load("scheme", name)).collect::<Result<Vec<_>, _>>()?;
    let count = |scheme: &NamedScheme| scheme.scheme.entries().count();
    if is_json {
        let rows = schemes
            .iter()
            .map(|scheme| json!({ "scheme": scheme.name, "classes": count(scheme), "summary": scheme.summary }));
        return print_json(&rows.collect::<Vec<_>>());
    }
    let mut table = Table::new(&["scheme", ">classes", "summary"]);
    schemes.iter().for_each(|scheme| {
        table.row([scheme.name.clone(), count(scheme).to_string(), scheme.summary.clone()]);
    });
    print(table)
}

fn show(scheme: &NamedScheme, is_json: bool) -> Outcome {
    if is_json {
        let classes: Vec<_> = scheme.scheme.entries().collect();
        return print_json(&json!({ "scheme": scheme.name, "summary": scheme.summary, "classes": classes }));
    }
    let word = |admission| match admission {
        Admission::Always => "always",
        Admission::WhileIdle => "while-idle",
        Admission::Never => "never",
    };
    let mut table = Table::new(&[">number", "class", ">priority", "reads", "writes", ">at most"]);
    for entry in scheme.scheme.entries() {
        table.row([
            entry.number.number().to_string(),
            entry.name.clone(),
            entry.priority.to_string(),
            word(entry.reads).to_owned(),
            word(entry.writes).to_owned(),
            format!("{} %", entry.occupancy_max * 100.0),
        ]);
    }
    print(table)
}
