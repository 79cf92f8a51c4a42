//! Arguments of `plimsoll scenario`.

use super::OutputArguments;
use clap::{Args, Subcommand};
use plimsoll_lab::scenario::Setting;
use std::path::PathBuf;

/// Makes this program a process of a live run.
pub const LIVE_PROCESS: &str = "live-process";

/// `plimsoll scenario ...`.
#[derive(Debug, Subcommand)]
pub enum ScenarioCommand {
    /// List the scenarios
    #[command(after_help = "Example:
  $ plimsoll scenario list
  scenario       paper                  hosts  takes  
  device-curves  none, data sheets      sim    10 s   What each device model does, ...")]
    List(OutputArguments),
    /// What a scenario is: machine, accounts, workloads, claims
    #[command(after_help = "Example:
  $ plimsoll scenario show split-fig1")]
    Show(ScenarioShowArguments),
    /// Run a scenario and compare what was measured with what is claimed
    #[command(after_help = "Examples:
  $ plimsoll scenario run split-fig1
  $ plimsoll scenario run split-fig1 --set machine.device=ssd.x25-m --seeds 5
  $ plimsoll scenario run all --out results

Any key of the file can be set (docs/scenarios.md). With --out the folder gets NAME.svg, NAME.json and report.html.
Exit code 1 if a claim does not hold; 2 if the scenario or an argument is wrong; 3 if it was not run.")]
    Run(ScenarioRunArguments),
    /// A process of a live run; its host starts it
    #[command(name = LIVE_PROCESS, hide = true)]
    LiveProcess,
}

/// Arguments of `plimsoll scenario show`.
#[derive(Debug, Args)]
pub struct ScenarioShowArguments {
    /// A scenario's name, or the path of a .toml file
    pub name: String,
    /// Change a key first
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Setting>,
}

/// Arguments of `plimsoll scenario run`.
#[derive(Debug, Args)]
pub struct ScenarioRunArguments {
    /// A scenario's name, the path of a .toml file, or "all" that run on the host
    pub name: String,
    /// Where it runs: in virtual time, or with real processes
    #[arg(long, default_value = "sim", value_parser = ["sim", "live"])]
    pub host: String,
    /// Change a key of the file
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Setting>,
    /// How many seeds [default: as the scenario says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: Option<u32>,
    /// Write JSON, to stdout if FILE is "-"
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write pictures, JSON and a page over all of them into a folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
}
