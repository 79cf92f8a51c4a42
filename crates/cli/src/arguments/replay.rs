//! The command line of `plimsoll replay`.

use clap::Args;
use plimsoll_core::ByteCount;
use plimsoll_lab::replay_cache::CacheSize;
use plimsoll_traces::Format;
use std::path::PathBuf;

/// The sizes that are compared unless others are named.
const SIZES: &str = "1%,2%,5%,10%,20%,30%,40%,50%";
const UNIT_BYTES_MIN: u64 = 512;
const UNIT_BYTES_MAX: u64 = 65_536;

/// Arguments of `plimsoll replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The trace, compressed or not
    pub trace: PathBuf,
    /// The device model
    #[arg(long, value_name = "MODEL", required_unless_present = "cache")]
    pub device: Option<String>,
    /// The scheduler
    #[arg(long, value_name = "NAME", required_unless_present = "cache")]
    pub scheduler: Option<String>,
    /// Accounts with their reserves and limits, and the volumes in them (TOML)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// So many requests at a time, as fast as they are served
    #[arg(long, value_name = "DEPTH", conflicts_with = "speed", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub closed: Option<u32>,
    /// By the time stamps, so many times as fast
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub speed: f64,
    /// The trace's format [default: what its content shows]
    #[arg(long, value_name = "F")]
    pub format: Option<Format>,
    /// What is said of caches.
    #[command(flatten)]
    pub cache: CacheArguments,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `plimsoll replay --cache`.
#[derive(Debug, Args)]
pub struct CacheArguments {
    /// Through caches of these sizes instead of a device: bytes, or parts of the blocks touched [default: 1% to 50%]
    #[arg(
        long, value_name = "SIZES", num_args = 0..=1, require_equals = true, default_missing_value = SIZES, value_delimiter = ',',
        value_parser = cache_size, conflicts_with_all = ["device", "scheduler", "config", "closed", "speed"],
    )]
    pub cache: Vec<CacheSize>,
    /// What the trace's classes are: a scheme that is built in, or the path of a .toml file
    #[arg(long, value_name = "SCHEME", default_value = "ext4", requires = "cache", conflicts_with = "device")]
    pub classes: String,
    /// One of these policies instead of all
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "cache", conflicts_with = "device")]
    pub policy: Vec<String>,
    /// Only writes take blocks into the cache
    #[arg(long, requires = "cache", conflicts_with = "device")]
    pub no_promotion: bool,
    /// Bytes of a unit
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = unit_size, requires = "cache", conflicts_with = "device")]
    pub unit: ByteCount,
    /// Draw the curves of misses into a file (SVG)
    #[arg(long, value_name = "FILE", requires = "cache", conflicts_with = "device")]
    pub out: Option<PathBuf>,
}

fn cache_size(text: &str) -> Result<CacheSize, String> {
    const ALLOWED: &str = "allowed are sizes such as 64MiB, and parts of the blocks touched, above 0% to 100%";
    let part = |percent: &str| percent.trim().parse().ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
    let size = match text.strip_suffix('%') {
        Some(percent) => part(percent).map(|percent: f64| CacheSize::Part(percent / 100.0)),
        None => text.parse().ok().filter(|bytes: &ByteCount| bytes.0 > 0).map(|bytes| CacheSize::Bytes(bytes.0)),
    };
    size.ok_or_else(|| ALLOWED.to_owned())
}

fn unit_size(text: &str) -> Result<ByteCount, String> {
    let bytes = text
        .parse()
        .ok()
        .filter(|bytes: &ByteCount| bytes.0.is_power_of_two() && (UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&bytes.0));
    bytes.ok_or_else(|| "allowed are powers of two from 512B to 64KiB".to_owned())
}
