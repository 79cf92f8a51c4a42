//! The command line of `plimsoll load`.

use clap::Args;
use plimsoll_core::Span;
use plimsoll_core::units::ParseUnitError;
use plimsoll_lab::load::{Mix, RATE_MAX, TargetName};
use std::path::PathBuf;

const RATE_MIN: f64 = 0.1;

/// Arguments of `plimsoll load`.
#[derive(Debug, Args)]
pub struct LoadArguments {
    /// nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=/PATH, unix:/PATH or tcp:ADDRESS:PORT; or a file or disk
    pub target: TargetName,
    /// spc1-like, or read, write or mix as in docs/workloads.md without the file
    #[arg(long, value_name = "MIX", default_value = "read random 4KiB")]
    pub mix: Mix,
    /// Requests a second, one or several [default: look for the peak]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = rate)]
    pub rate: Vec<f64>,
    /// The rate at which the search for the peak begins
    #[arg(long, value_name = "N", default_value = "100", value_parser = rate, conflicts_with = "rate")]
    pub first: f64,
    /// The peak is the highest rate with a mean latency up to this; of the rates of --rate too
    #[arg(long, value_name = "TIME", default_value = "30ms", value_parser = latency)]
    pub latency_max: Span,
    /// Seconds that count, for each rate
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Seconds before them, for each rate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub warm_up: u64,
    /// Requests under way at the most; others that are due wait, and their latency runs
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub outstanding: u32,
    /// What times and places are drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write to the target, if the mix writes: its content is lost
    #[arg(long)]
    pub destructive: bool,
    /// Draw latency over rate into a file (SVG)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (RATE_MIN..=RATE_MAX).contains(rate));
    rate.ok_or_else(|| format!("allowed are requests a second from {RATE_MIN} to {RATE_MAX}"))
}

fn latency(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: ParseUnitError| error.to_string())?;
    if span > Span::ZERO { Ok(span) } else { Err("allowed are times above 0".to_owned()) }
}
