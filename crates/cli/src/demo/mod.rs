//! `plimsoll demo`: a bulk writer freezes a small transactional writer on a shared disk. Plimsoll gives the small
//! writer its reserve back.
//!
//! ```text
//!   transactions: 4 KiB + fsync      backup: large files            two tenants
//!            |                           |
//!          ext4                        ext4                         a volume each (FUSE, loop device)
//!            +------------+--------------+
//!                 scheduler: noop, then zygaria
//!                 one emulated 7200 rpm drive, in memory
//! ```
//!
//! Three stages: the small writer alone, both without Plimsoll, both with it; the switch happens under load. Without
//! root the same tenants write to the same disk over NBD, without a file system, and the demo says so.
//!
//! A busy machine makes the emulated drive answer late. Seconds with late replies don't count: a stage continues until
//! it has enough others, or gives up.

mod disk;
mod picture;
mod report;
mod stopwatch;
mod tenant;

pub use report::{Claim, Report, StageReport};

use crate::outcome::Failure;
use crate::signals;
use disk::Disk;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_core::{ByteCount, Span};
use report::Sample;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stopwatch::Stopwatch;
use tenant::{Backup, Transaction, Transactions};

/// How long the small writer is alone, seconds: enough to know what it asks for.
const ALONE_SECONDS: u64 = 6;
/// Seconds at the start of each stage that do not count: the page cache of the stage before goes to the disk.
const SETTLE_SECONDS: u64 = 3;
/// Most time of a stage, in lengths of it, to find seconds in which the drive is emulated truly.
const PATIENCE_FACTOR: u64 = 3;

/// What the demonstration is to do.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Seconds that are counted, without and with Plimsoll each.
    pub seconds: u64,
    /// No progress bar.
    pub is_quiet: bool,
    /// NBD even where file systems could be mounted.
    pub uses_nbd: bool,
}

/// What was seen.
pub struct Demonstration {
    /// In figures.
    pub report: Report,
    transactions: Vec<Transaction>,
}

impl Demonstration {
    /// Draws the picture into an SVG file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn draw(&self, file: &Path) -> Result<(), Failure> {
        picture::draw(&self.report, &self.transactions, file)
    }
}

/// A part of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alone,
    Without,
    With,
}

impl Stage {
    fn title(self) -> &'static str {
        match self {
            Stage::Alone => "alone",
            Stage::Without => "with the backup",
            Stage::With => "with the backup and Plimsoll",
        }
    }

    fn scheduler(self) -> &'static str {
        if self == Stage::With { "zygaria" } else { "noop" }
    }
}

/// Runs the demonstration.
///
/// # Errors
/// The disk could not be set up, or the user pressed Ctrl-C.
pub fn run(options: &DemoOptions) -> Result<Demonstration, Failure> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let handler = Arc::clone(&is_stopped);
    signals::listen(move |_| handler.store(true, Ordering::Relaxed))?;

    let progress = progress_bar(options);
    progress.set_message("preparing two volumes on an emulated 7200 rpm drive");
    let disk = Disk::prepare(options.uses_nbd)?;
    let stopwatch = Stopwatch::start();
    let transactions = Transactions::start(disk.transactions()?, stopwatch);
    let mut backup = None;
    let mut stages = Vec::new();
    for stage in [Stage::Alone, Stage::Without, Stage::With] {
        disk.switch(stage.scheduler())?;
        if stage == Stage::Without {
            backup = Some(Backup::start(disk.backup()?));
        }
        progress.set_message(stage.title());
        let seconds = if stage == Stage::Alone { ALONE_SECONDS } else { options.seconds };
        let samples = sample(&disk, &transactions, backup.as_ref(), stopwatch, seconds, &is_stopped, &progress)?;
        stages.push((stage, samples));
    }
    progress.set_message("putting everything away");
    let transactions = transactions.stop();
    drop(backup);
    let report = Report::new(&disk, options.seconds, stages, &transactions);
    progress.finish_and_clear();
    Ok(Demonstration { report, transactions })
}

fn progress_bar(options: &DemoOptions) -> ProgressBar {
    let steps = ALONE_SECONDS + 2 * options.seconds + 3 * SETTLE_SECONDS;
    let bar = if options.is_quiet { ProgressBar::hidden() } else { ProgressBar::new(steps) };
    let style = ProgressStyle::with_template("{bar:40} {elapsed} of about {len} s: {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Watches both tenants, one sample a second, until `seconds` of them count. Those of the settling time are not
/// sampled.
fn sample(
    disk: &Disk,
    transactions: &Transactions,
    backup: Option<&Backup>,
    stopwatch: Stopwatch,
    seconds: u64,
    is_stopped: &AtomicBool,
    progress: &ProgressBar,
) -> Result<Vec<Sample>, Failure> {
    let mut samples: Vec<Sample> = Vec::new();
    let start = stopwatch.elapsed();
    let mut before = (stopwatch.elapsed(), transactions.count(), disk.served()?);
    for second in 1..=SETTLE_SECONDS + PATIENCE_FACTOR * seconds {
        stopwatch.sleep_until(start + Span::from_secs(second));
        if is_stopped.load(Ordering::Relaxed) {
            return Err(Failure::Failed("stopped by Ctrl-C; everything was put away".to_owned()));
        }
        let now = (stopwatch.elapsed(), transactions.count(), disk.served()?);
        let sample = Sample::between(&before, &now);
        before = now;
        if second <= SETTLE_SECONDS || sample.is_true {
            progress.inc(1);
        }
        if second > SETTLE_SECONDS {
            samples.push(sample);
        }
        if samples.iter().filter(|sample| sample.is_true).count() as u64 == seconds {
            break;
        }
    }
    if let Some(problem) = transactions.problem().or_else(|| backup.and_then(Backup::problem)) {
        return Err(Failure::Failed(problem));
    }
    Ok(samples)
}

/// Bytes as the demonstration prints them.
fn mebibytes(bytes: f64) -> String {
    ByteCount(bytes as u64).to_string()
}
