//! `plimsoll demo`.

use super::print;
use crate::arguments::DemoArguments;
use crate::demo::{self, DemoOptions};
use crate::outcome::{Failure, Outcome};

pub(super) fn run(arguments: &DemoArguments) -> Outcome {
    let options = DemoOptions {
        seconds: arguments.seconds,
        picture: arguments.out.clone(),
        is_quiet: arguments.no_progress || arguments.json,
        uses_nbd: arguments.nbd,
    };
    let report = demo::run(&options)?;
    if arguments.json {
        let text = serde_json::to_string(&report).map_err(|error| Failure::Failed(error.to_string()))?;
        print(text)?;
    } else {
        print(format!("{report}picture: {}", options.picture.display()))?;
    }
    report.verdict()
}
