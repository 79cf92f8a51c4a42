//! `plimsoll scheduler list`.

use super::{print, print_json};
use crate::arguments::SchedulerCommand;
use crate::outcome::Outcome;
use crate::table::Table;
use plimsoll_schedulers::{Entry, Kept, Level, Promise, Reach, Target, registry};
use serde_json::{Value, json};

pub(super) fn run(command: &SchedulerCommand) -> Outcome {
    let SchedulerCommand::List(output) = command;
    if output.json {
        return print_json(&registry().iter().map(as_json).collect::<Vec<_>>());
    }
    let mut summaries = Table::new(&["scheduler", "what it does"]);
    for entry in registry() {
        summaries.row([entry.name.to_owned(), entry.summary.to_owned()]);
    }
    let refuses = registry().iter().filter_map(|entry| Some((entry.name, entry.refuses_tenants?)));
    let refuses = refuses.map(|(name, reason)| format!("{name} takes no tenants: {reason}\n")).collect::<String>();
    print(format!(
        "{summaries}\nWhat each keeps, where, and at which level; everything else is refused.\n{}\n{refuses}",
        promises()
    ))
}

/// A row for each promise that a scheduler keeps.
fn promises() -> Table {
    let mut table = Table::new(&["scheduler", "keeps", "volumes", "tenants", "observed disks", "cgroups"]);
    for entry in registry() {
        let mut name = entry.name.to_owned();
        for (promise, reach) in rows(entry) {
            let cells = Target::ALL.map(|target| cell(entry, promise, target, reach));
            let [volumes, tenants, observed, cgroups] = cells;
            let pools = if reach == Reach::TopPools { " of pools" } else { "" };
            let keeps = format!("{}{pools}", promise.name());
            table.row([std::mem::take(&mut name), keeps, volumes, tenants, observed, cgroups]);
        }
        if entry.keeps.is_empty() {
            table.row([name, "nothing".into(), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
    }
    table
}

fn rows(entry: &Entry) -> Vec<(Promise, Reach)> {
    let reaches = |promise| [Reach::All, Reach::TopPools].map(|reach| (promise, reach));
    let is_kept = |(promise, reach): &(Promise, Reach)| {
        entry.keeps.iter().any(|kept| kept.promise == *promise && kept.reach == *reach)
    };
    Promise::ALL.into_iter().flat_map(reaches).filter(is_kept).collect()
}

fn cell(entry: &Entry, promise: Promise, target: Target, reach: Reach) -> String {
    let kept = entry.kept(promise, target).filter(|kept| kept.reach == reach);
    kept.map_or("-".to_owned(), |kept| kept.levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", "))
}

fn as_json(entry: &Entry) -> Value {
    let keeps = entry.keeps.iter().map(|Kept { promise, target, levels, reach }| {
        json!({
            "promise": promise.name(),
            "target": target.name(),
            "levels": levels.iter().map(|level: &Level| level.name()).collect::<Vec<_>>(),
            "accounts": match reach {
                Reach::All => "all",
                Reach::TopPools => "pools directly on the device",
            },
        })
    });
    json!({
        "name": entry.name,
        "summary": entry.summary,
        "is_work_conserving": entry.is_work_conserving,
        "keeps": keeps.collect::<Vec<_>>(),
        "refuses_tenants": entry.refuses_tenants,
    })
}
