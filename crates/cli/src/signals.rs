//! Signals that end a command with work to undo, or make a daemon read its configuration again.

use crate::outcome::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What told a command to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// SIGTERM or SIGINT: the command is to end.
    ToEnd,
    /// SIGHUP: the terminal has gone, or an administrator asks a daemon to read its configuration again. A terminal
    /// that closes may say so twice, through the shell and by itself.
    HangUp,
}

/// Set by a SIGHUP that came before anything [listened](listen).
static HUNG_UP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Set by the first SIGTERM or SIGINT that a [listener](listen) hears.
static IS_TOLD_TO_END: AtomicBool = AtomicBool::new(false);

/// Whether SIGTERM or SIGINT has come: for work that takes long before a daemon serves.
pub fn is_told_to_end() -> bool {
    IS_TOLD_TO_END.load(Ordering::Relaxed)
}

/// Blocks SIGHUP until [`listen`] handles it, instead of ending: for daemons, as the first thing that they do. A SIGHUP
/// that is ignored stays so.
pub fn hold_hang_ups() {
    if heard(ignored()).all(|signal| signal != SIGHUP) {
        return;
    }
    let hung_up = HUNG_UP.get_or_init(Arc::default);
    if let Err(error) = signal_hook::flag::register(SIGHUP, hung_up.clone()) {
        // The daemon can be told to end by it, as before.
        tracing::warn!("SIGHUP is not held back: {error}");
    }
}

/// Calls `told`, on a thread of its own, at each SIGTERM, SIGINT or SIGHUP. A signal that was ignored at the start of
/// the process stays ignored. `nohup` ignores SIGHUP, and a script SIGINT for its background processes.
///
/// # Errors
/// The system refuses.
pub fn listen(mut told: impl FnMut(Told) + Send + 'static) -> Result<(), Failure> {
    let failed = |error| Failure::Failed(format!("cannot listen for signals: {error}"));
    let ignored = ignored();
    let mut signals = Signals::new(heard(ignored)).map_err(failed)?;
    let hear = move || {
        if HUNG_UP.get().is_some_and(|hung_up| hung_up.swap(false, Ordering::Relaxed)) {
            told(Told::HangUp);
        }
        for signal in signals.forever() {
            if signal == SIGHUP {
                told(Told::HangUp);
            } else {
                IS_TOLD_TO_END.store(true, Ordering::Relaxed);
                told(Told::ToEnd);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(hear).map_err(failed)?;
    Ok(())
}

/// The signals to listen for, where the signals in the mask are ignored.
fn heard(ignored: u64) -> impl Iterator<Item = i32> {
    let is_ignored = move |signal: i32| ignored & 1 << (signal - 1) != 0;
    [SIGTERM, SIGINT, SIGHUP].into_iter().filter(move |&signal| signal == SIGTERM || !is_ignored(signal))
}

/// The signals that this process ignores, one bit each; none if the kernel does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: daemon-ignored-signal.
    #[test]
    fn what_is_ignored_stays_so_but_for_the_signal_that_ends_services() {
        let heard = |ignored| heard(ignored).collect::<Vec<_>>();
        assert_eq!(heard(0), [SIGTERM, SIGINT, SIGHUP]);
        // The mask as nohup leaves it; as a script does; all signals.
        assert_eq!(heard(0b1), [SIGTERM, SIGINT]);
        assert_eq!(heard(0b10), [SIGTERM, SIGHUP]);
        assert_eq!(heard(u64::MAX), [SIGTERM]);
    }
}
