//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Gives each tenant of a shared disk the reserve, limit, share or deadline that it was promised.
#[derive(Debug, Parser)]
#[command(
    name = "plimsoll",
    version,
    after_help = "Examples:
  plimsoll check plimsoll.toml     what would be served, or what is wrong
  plimsoll up plimsoll.toml        serve it until Ctrl-C or SIGTERM
  plimsoll status --watch          rates, queues and latencies, every second

Exit codes: 0 done; 1 it failed, or a claim that was checked does not hold; 2 the configuration or an argument is
wrong, and nothing was started; 3 not run: this machine or this user cannot."
)]
pub struct Arguments {
    /// What to write to stderr: error, warn, info, debug, trace, or a filter such as plimsoll_brick=debug
    #[arg(long, global = true, default_value = "info", value_name = "LEVEL")]
    pub log: String,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a configuration and print what it would serve
    #[command(after_help = "Example:
  $ plimsoll check plimsoll.toml
  plimsoll.toml:7: pool.web.reserv: got an unknown key, allowed deadlines, ... (did you mean \"reserve\"?)

Every error of the file is reported, one on a line, as FILE:LINE: KEY: got X, allowed Y. Nothing is started and no
backing file is opened. Every key is described in docs/configuration.md.")]
    Check(CheckArguments),
    /// The models of devices that a volume can be made to behave like
    #[command(subcommand)]
    Device(DeviceCommand),
    /// The schedulers that a device can be given
    #[command(subcommand)]
    Scheduler(SchedulerCommand),
}

/// Arguments of `plimsoll check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The configuration, in TOML
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll device ...`.
#[derive(Debug, Subcommand)]
pub enum DeviceCommand {
    /// List the models
    #[command(after_help = "Example:
  $ plimsoll device list
  model             capacity  random runs/s  sequential  queue  summary
  hdd.deskstar-120  ...

A model is named in a configuration as  [device.NAME] emulate = \"hdd.deskstar-120\".")]
    List(OutputArguments),
    /// Compare each model with the figures that are known of the real device
    #[command(after_help = "Example:
  $ plimsoll device check
  model  figure  known  model says  apart  allowed  source

Exit code 1 if a figure is further from the known one than its row allows.")]
    Check(OutputArguments),
}

/// `plimsoll scheduler ...`.
#[derive(Debug, Subcommand)]
pub enum SchedulerCommand {
    /// List the schedulers and what each promises
    #[command(after_help = "Example:
  $ plimsoll scheduler list
  scheduler  work-conserving  limits  reserves  summary
  noop       yes              no      no        first come, first served; the device orders as it likes")]
    List(OutputArguments),
}

/// Arguments of commands that only print.
#[derive(Debug, Args)]
pub struct OutputArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
