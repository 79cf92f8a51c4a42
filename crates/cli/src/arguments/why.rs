//! Arguments of `plimsoll why`.

use super::DaemonArguments;
use clap::Args;
use plimsoll_core::Span;
use std::path::PathBuf;

/// Shorter intervals would show the looking. A hundredth of it is what a look costs.
const INTERVAL_MIN: Span = Span::from_millis(100);
const INTERVAL_MAX: Span = Span::from_secs(3600);

/// Arguments of `plimsoll why`.
#[derive(Debug, Args)]
pub struct WhyArguments {
    /// A mount point or a block device [default: all disks that are mounted]
    #[arg(value_name = "MOUNT|DEVICE")]
    pub target: Option<PathBuf>,
    /// Seconds between tables, which is also the span of the rates
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Span,
    /// The number of tables [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// The daemon that knows the names of tenants, if one runs.
    #[command(flatten)]
    pub daemon: DaemonArguments,
}

fn interval(text: &str) -> Result<Span, String> {
    let span = text.parse::<Span>().ok().filter(|span| (INTERVAL_MIN..=INTERVAL_MAX).contains(span));
    span.ok_or_else(|| format!("allowed are {INTERVAL_MIN} to {INTERVAL_MAX}"))
}
