//! `plimsoll class`.

use super::{print, print_json};
use crate::arguments::ClassCommand;
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use plimsoll_core::class::Admission;
use plimsoll_settings::scheme::{self, NamedScheme, SchemeError};
use serde_json::json;

/// The scheme called `name`, or of the file `name`; `what` is where the name was given.
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
    }
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
