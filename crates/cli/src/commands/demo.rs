//! `plimsoll demo`.

use super::{out, print};
use crate::arguments::DemoArguments;
use crate::demo::{self, DemoOptions, Demonstration};
use crate::outcome::{Failure, Outcome};

pub(super) fn run(arguments: &DemoArguments) -> Outcome {
    out::check(&arguments.out)?;
    let options = DemoOptions {
        seconds: arguments.seconds,
        is_quiet: arguments.no_progress || arguments.json,
        uses_nbd: arguments.nbd,
    };
    let demonstration = demo::run(&options)?;
    tell(&demonstration, arguments)?;
    demonstration.report.verdict()
}

/// The report, then the picture.
fn tell(demonstration: &Demonstration, arguments: &DemoArguments) -> Outcome {
    let (report, picture) = (&demonstration.report, &arguments.out);
    if arguments.json {
        let text = serde_json::to_string(report).map_err(|error| Failure::Failed(error.to_string()))?;
        print(text)?;
        return demonstration.draw(picture);
    }
    print(report)?;
    demonstration.draw(picture)?;
    print(format!("picture: {}", picture.display()))
}
