//! `plimsoll scheduler list`.

use super::{print, print_json};
use crate::arguments::SchedulerCommand;
use crate::outcome::Outcome;
use crate::table::Table;
use plimsoll_schedulers::registry;
use serde_json::json;

pub(super) fn run(command: &SchedulerCommand) -> Outcome {
    let SchedulerCommand::List(output) = command;
    if output.json {
        let schedulers = registry().iter().map(|entry| {
            json!({
                "name": entry.name,
                "summary": entry.summary,
                "is_work_conserving": entry.laws.is_work_conserving,
                "keeps_limits": entry.laws.keeps_limits,
                "keeps_reserves": entry.laws.keeps_reserves,
                "shares_by_weight": entry.laws.shares_by_weight,
            })
        });
        return print_json(&schedulers.collect::<Vec<_>>());
    }
    let mut table = Table::new(&["scheduler", "work-conserving", "limits", "reserves", "weights", "summary"]);
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    for entry in registry() {
        let laws = entry.laws;
        table.row([
            entry.name.to_owned(),
            yes(laws.is_work_conserving),
            yes(laws.keeps_limits),
            yes(laws.keeps_reserves),
            yes(laws.shares_by_weight),
            entry.summary.to_owned(),
        ]);
    }
    print(table)
}
