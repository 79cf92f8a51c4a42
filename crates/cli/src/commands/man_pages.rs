//! `plimsoll man-pages`: what `--help` says, as a page for each command.

use crate::arguments::{self, ManPagesArguments};
use crate::outcome::{Failure, Outcome};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

pub(super) fn run(arguments: &ManPagesArguments) -> Outcome {
    let directory = &arguments.directory;
    let failed = |error: io::Error| Failure::Failed(format!("{}: {error}", directory.display()));
    fs::create_dir_all(directory).map_err(failed)?;
    let mut command = arguments::command().disable_help_subcommand(true);
    command.build();
    let pages = write(&command, directory).map_err(failed)?;
    writeln!(io::stdout(), "{pages} pages in {}", directory.display())?;
    Ok(())
}

/// The page of a command and those of the commands below it; answers how many.
fn write(command: &Command, directory: &Path) -> io::Result<usize> {
    let man = Man::new(command.clone()).source(format!("Plimsoll {}", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    examples(command).to_writer(&mut page)?;
    fs::write(directory.join(man.get_filename()), page)?;
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.map(|command| write(command, directory)).try_fold(1, |pages, more| Ok(pages + more?))
}

/// What stands below a command's help, line by line as it is there.
fn examples(command: &Command) -> Roff {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut page = Roff::new();
    page.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in after.lines().skip_while(|line| line.starts_with("Example")) {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page
}
