//! `plimsoll pool list|add|set|remove`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::{DaemonArguments, DaemonOutputArguments, PoolCommand};
use crate::control::protocol::{Change, Request, Response};
use crate::metrics::text;
use crate::outcome::{Failure, Outcome};

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
    print(text::pools(&pools))
}
