//! Load with open arrivals: requests come when they come, whatever has become of those before.
//!
//! **Intuition.** A client that waits for an answer before the next request asks less of a slow server. It never sees
//! the queue that the server's users would see (*coordinated omission*). **Rule.** Requests are due at the times of a
//! Poisson process of a given rate. A request that cannot be sent when it is due, because the server takes no more, is
//! sent later. Its latency counts from the moment at which it was due. **Complication.** Above what the server can do,
//! latencies grow as long as one measures. So a *sweep* finds the *peak*, the rate at which the mean still stays below
//! a bound. The bound is 30 ms, as in SPC-1 and in the request executor's paper. Then it measures at parts of the peak.
//!
//! | module | what is in it |
//! | --- | --- |
//! | `mix` | what is asked for: a name, or the head of a workload |
//! | `target` | to what: an NBD server, a file, a disk |
//! | `generator` | one rate, for some time |
//! | `sweep` | which rates |
//! | `report` | what comes of it: rows, and a picture |
//!
//! `docs/load.md` has it for users.

mod generator;
mod mix;
mod report;
mod sweep;
mod target;

pub use mix::Mix;
pub use report::{LoadReport, LoadRow, PartRow};
pub use sweep::RATE_MAX;
pub use target::TargetName;

use generator::Course;
use plimsoll_core::Span;
use plimsoll_engine::measure::MeasureError;
use plimsoll_serve::nbd::client::ClientError;
use sweep::Sweep;
use thiserror::Error;

/// What is measured.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The target.
    pub target: TargetName,
    /// With what.
    pub mix: Mix,
    /// Requests a second, one measurement each; none: the peak is looked for, from
    /// [`first_per_second`](Self::first_per_second) on.
    pub rates: Vec<f64>,
    /// Where the search begins.
    pub first_per_second: f64,
    /// The mean latency above which a rate is too much.
    pub latency_max: Span,
    /// How long each rate is sent before it counts.
    pub warm_up: Span,
    /// How long it counts.
    pub window: Span,
    /// Requests under way at the most; the others that are due wait, and their latency runs.
    pub outstanding_max: u32,
    /// Decides places and times.
    pub seed: u64,
    /// The target may be written to.
    pub is_destructive: bool,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The target or the mix cannot be what was said; nothing was sent.
    #[error("{0}")]
    Input(String),
    /// The target is a file or disk that cannot be used; nothing was sent.
    #[error(transparent)]
    Target(MeasureError),
    /// A server could not be reached, or refused; nothing was sent.
    #[error("{target}: {error}")]
    Connect {
        /// The target.
        target: String,
        /// What happened.
        error: ClientError,
    },
    /// A request failed.
    #[error("{target}: {error}")]
    Server {
        /// The target.
        target: String,
        /// What happened.
        error: ClientError,
    },
    /// A request failed.
    #[error(transparent)]
    Device(MeasureError),
    /// Nothing was answered for this long, with requests under way.
    #[error("{target}: no answer for {silence}, with {under_way} requests under way")]
    Silence {
        /// The target.
        target: String,
        /// For how long.
        silence: Span,
        /// How many.
        under_way: u32,
    },
    /// The target was there for the first rates, and is not as it was any more.
    #[error("{error}; it was there for {rates} of the rates")]
    Gone {
        /// What is wrong with it.
        error: Box<LoadError>,
        /// Rates that were sent before.
        rates: usize,
    },
}

impl LoadError {
    /// What was found wrong before anything was sent, or after so many rates.
    fn of_a_later_rate(error: LoadError, rates: usize) -> LoadError {
        if rates == 0 { error } else { LoadError::Gone { error: Box::new(error), rates } }
    }
}

/// Progress: the measured rate, and the part of its time that has passed, 0 to 1.
pub type Progress<'a> = &'a mut dyn FnMut(f64, f64);

/// Measures each rate, or looks for the peak.
///
/// # Errors
/// What [`LoadError`] names.
pub fn measure(options: &LoadOptions, progress: Progress<'_>) -> Result<LoadReport, LoadError> {
    if options.mix.has_writes() && !options.is_destructive {
        let (target, mix) = (&options.target, &options.mix);
        return Err(LoadError::Input(format!(
            "{target}: got the mix {mix:?}, which writes, allowed with --destructive: its content is lost",
            mix = mix.to_string()
        )));
    }
    let mut sweep = Sweep::new(&options.rates, options.first_per_second, options.latency_max);
    let mut rows = Vec::new();
    let mut size_bytes = 0;
    while let Some(per_second) = sweep.next() {
        // Anew for each rate: what an overload left behind is none of the next one's business.
        let again = |error| LoadError::of_a_later_rate(error, rows.len());
        let connected = options.target.connect(&options.mix, options.outstanding_max, options.is_destructive);
        let mut connection = connected.map_err(again)?;
        size_bytes = connection.size_bytes();
        // A rate that is asked for several times is sampled several times, not the same way again.
        let seed = options.seed.wrapping_add(rows.len() as u64);
        let requests = options.mix.requests(size_bytes, per_second, seed).map_err(again)?;
        let course = Course { warm_up: options.warm_up, window: options.window, slots: options.outstanding_max };
        let outcome = course.run(connection.as_mut(), requests, &mut |part| progress(per_second, part))?;
        let row = LoadRow::new(per_second, options.window, &outcome);
        sweep.measured(per_second, row.mean_seconds);
        rows.push(row);
    }
    rows.sort_by(|one, other| one.offered_per_second.total_cmp(&other.offered_per_second));
    Ok(LoadReport {
        target: options.target.to_string(),
        size_bytes,
        mix: options.mix.to_string(),
        latency_max_seconds: options.latency_max.as_secs_f64(),
        window_seconds: options.window.as_secs_f64(),
        seed: options.seed,
        peak_per_second: sweep.peak(),
        rows,
    })
}
