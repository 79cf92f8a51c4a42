//! `plimsoll volume list`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::VolumeCommand;
use crate::control::protocol::{Request, Response};
use crate::metrics::text;
use crate::outcome::Outcome;

pub(super) fn run(command: &VolumeCommand) -> Outcome {
    let VolumeCommand::List(arguments) = command;
    let Response::Volumes(volumes) = connect(&arguments.daemon)?.ask(&Request::VolumeList {})? else {
        return Err(unexpected());
    };
    if arguments.json {
        return print_json(&volumes);
    }
    print(text::volumes(&volumes))
}
