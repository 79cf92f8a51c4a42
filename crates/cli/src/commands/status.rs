//! `plimsoll status`: what the daemon does, once or every second.

use super::{connect, print, print_json, show_anew, show_as_it_is, unexpected};
use crate::arguments::StatusArguments;
use crate::control::protocol::{Request, Response};
use crate::metrics::text;
use crate::outcome::{Failure, Outcome};
use std::time::Duration;

/// How often `--watch` prints; rates are of whole seconds.
const PERIOD: Duration = Duration::from_secs(1);

pub(super) fn run(arguments: &StatusArguments) -> Outcome {
    let mut client = connect(&arguments.daemon)?;
    loop {
        let Response::Status(status) = client.ask(&Request::Status {})? else { return Err(unexpected()) };
        if !arguments.watch && arguments.json {
            return print_json(&status);
        }
        let is_read = if arguments.json {
            show_as_it_is(&serde_json::to_string(&status).map_err(|error| Failure::Failed(error.to_string()))?)?
        } else {
            let Response::Tenants(tenants) = client.ask(&Request::Tenants {})? else { return Err(unexpected()) };
            let text = format!("{}{}", text::status(&status), text::tenants(&tenants));
            if !arguments.watch {
                return print(text);
            }
            show_anew(&text)?
        };
        if !is_read {
            return Ok(());
        }
        std::thread::park_timeout(PERIOD);
    }
}
