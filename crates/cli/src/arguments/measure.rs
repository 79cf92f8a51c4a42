//! The command line of `plimsoll device measure`.

use clap::Args;
use plimsoll_core::ByteCount;
use plimsoll_core::units::ParseUnitError;
use plimsoll_engine::measure::SIZE_BYTES_MIN;
use std::path::PathBuf;

/// Arguments of `plimsoll device measure`.
#[derive(Debug, Args)]
pub struct MeasureArguments {
    /// A disk, a file, or a path where a file can be made
    pub path: PathBuf,
    /// Where the profile goes; what is there is replaced [default: it is only printed]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Bytes of a file that is made
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = probe_size)]
    pub size: ByteCount,
    /// Seconds for each of two loads, four where it may be written
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Small requests that are outstanding, and outstanding_max of the profile
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub outstanding: u32,
    /// Write to what exists: its content is lost
    #[arg(long)]
    pub destructive: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn probe_size(text: &str) -> Result<ByteCount, String> {
    let size: ByteCount = text.parse().map_err(|error: ParseUnitError| error.to_string())?;
    match size.0 >= SIZE_BYTES_MIN && size.0.is_multiple_of(1 << 20) {
        true => Ok(size),
        false => Err("allowed are multiples of 1MiB, at least 16MiB".to_owned()),
    }
}
