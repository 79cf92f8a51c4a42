//! `plimsoll pool list|add|set|remove`.

use super::{allocation_cells, connect, print, print_json, unexpected};
use crate::arguments::{DaemonArguments, DaemonOutputArguments, PoolCommand};
use crate::control::protocol::{Change, Request, Response};
use crate::outcome::{Failure, Outcome};
use crate::table::Table;

pub(super) fn run(command: &PoolCommand) -> Outcome {
    match command {
        PoolCommand::List(arguments) => list(arguments),
        PoolCommand::Add(arguments) => {
            let (pool, device) = (arguments.pool.clone(), arguments.device.clone());
            change(&arguments.daemon, &Request::PoolAdd { pool, device, change: arguments.change.change() })
        }
        PoolCommand::Set(arguments) => {
            let (pool, what) = (arguments.pool.clone(), arguments.change.change());
            if what == Change::default() {
                let allowed = "got nothing to change, allowed --reserve, --limit and --weight";
                return Err(Failure::BadInput(allowed.into()));
            }
            change(&arguments.daemon, &Request::PoolSet { pool, change: what })
        }
        PoolCommand::Remove(arguments) => {
            change(&arguments.daemon, &Request::PoolRemove { pool: arguments.pool.clone() })
        }
    }
}

fn change(daemon: &DaemonArguments, request: &Request) -> Outcome {
    match connect(daemon)?.ask(request)? {
        Response::Done(what) => print(what),
        _ => Err(unexpected()),
    }
}

fn list(arguments: &DaemonOutputArguments) -> Outcome {
    let Response::Pools(pools) = connect(&arguments.daemon)?.ask(&Request::PoolList {})? else {
        return Err(unexpected());
    };
    if arguments.json {
        return print_json(&pools);
    }
    let mut table = Table::new(&["pool", "kind", "device", ">reserve", ">limit", ">weight", ">priority"]);
    for pool in pools {
        let [reserve, limit, weight, priority] = allocation_cells(&pool.allocation);
        let kind = match () {
            () if pool.is_volume => "volume",
            () if pool.is_session => "session",
            () => "pool",
        };
        let kind = kind.to_owned();
        table.row([pool.path, kind, pool.device, reserve, limit, weight, priority]);
    }
    print(table)
}
