//! `plimsoll session open|close`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::SessionCommand;
use crate::control::protocol::{Request, Response};
use crate::outcome::Outcome;

pub(super) fn run(command: &SessionCommand) -> Outcome {
    match command {
        SessionCommand::Open(arguments) => {
            let (volume, name) = (arguments.volume.clone(), arguments.name.clone());
            let request = Request::SessionOpen { volume, name, change: arguments.change.change() };
            match connect(&arguments.daemon)?.ask(&request)? {
                Response::Session(session) if arguments.json => print_json(&session),
                Response::Session(session) => print(session.export),
                _ => Err(unexpected()),
            }
        }
        SessionCommand::Close(arguments) => {
            let request = Request::SessionClose { session: arguments.session.clone() };
            match connect(&arguments.daemon)?.ask(&request)? {
                Response::Done(what) => print(what),
                _ => Err(unexpected()),
            }
        }
    }
}
