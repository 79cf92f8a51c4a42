//! Additions: what stands behind the commas.

use super::heads::Head;
use super::words::{Word, Words, WorkloadError, list};
use crate::design::{Common, SyncRule};
use crate::pace::{Arrivals, Bursts};
use crate::thread::THREADS_MAX;
use plimsoll_core::Span;

/// Outstanding units at most. Ours: more than any device's queue (NVMe: 65,535 commands).
const DEPTH_MAX: u64 = 65_535;
/// Writes between two syncs at most.
const SYNC_EVERY_MAX: u64 = 1 << 32;
/// A burst's mean length at least: shorter ones would be passed over by the hundred thousand at low rates.
const BURST_MIN: Span = Span::from_millis(10);
const ARRIVALS: [&str; 3] = ["at", "poisson", "think"];

/// Reads all additions of a head.
pub(super) fn read(words: &mut Words<'_>, head: &Head) -> Result<Common, WorkloadError> {
    let mut common = Common::default();
    let mut seen: Vec<Word<'_>> = Vec::new();
    while !words.is_at_end() {
        let comma = words.read();
        if comma.text != "," {
            return Err(comma.error("a comma, or the end of the text"));
        }
        let word = words.peek();
        let name = words.one_of(head.additions)?;
        if seen.iter().any(|before| before.text == name) {
            return Err(word.error("each addition only once"));
        }
        seen.push(word);
        addition(name, words, &mut common)?;
    }
    agree(&seen, &common)?;
    Ok(common)
}

fn addition(name: &str, words: &mut Words<'_>, common: &mut Common) -> Result<(), WorkloadError> {
    match name {
        "fsync" | "fdatasync" => {
            let every = if words.has("every") { words.number(1..=SYNC_EVERY_MAX)? } else { 1 };
            common.sync = Some(SyncRule { is_data_only: name == "fdatasync", every });
        }
        "at" => common.arrivals = Arrivals::Even { per_second: words.rate()? },
        "poisson" => common.arrivals = Arrivals::Poisson { per_second: words.rate()? },
        "think" => common.arrivals = Arrivals::Closed { think: words.span(Span::ZERO)? },
        "bursts" => {
            let length = words.span(BURST_MIN)?;
            words.expect("every")?;
            common.bursts = Some(Bursts { length, period: words.span(length)? });
        }
        "depth" => common.depth = Some(words.number(1..=DEPTH_MAX)? as u32),
        "threads" => common.threads = words.number(1..=u64::from(THREADS_MAX))? as u32,
        "direct" => common.is_direct = true,
        "start" => common.active.start = words.span(Span::ZERO)?,
        _ => common.active.end = words.span(Span::from_nanos(1))?,
    }
    Ok(())
}

/// Additions that contradict each other: the later one is at fault.
fn agree(seen: &[Word<'_>], common: &Common) -> Result<(), WorkloadError> {
    let find = |names: &[&str]| seen.iter().rposition(|word| names.contains(&word.text));
    let later = |first: Option<usize>, second: Option<usize>| Some(seen[first?.max(second?)]);
    if let Some(arrivals) = seen.iter().filter(|word| ARRIVALS.contains(&word.text)).nth(1) {
        return Err(arrivals.error(format!("one of {}", list(&ARRIVALS))));
    }
    if let Some(syncs) = seen.iter().filter(|word| ["fsync", "fdatasync"].contains(&word.text)).nth(1) {
        return Err(syncs.error("one of fsync or fdatasync"));
    }
    if let Some(word) = later(find(&["depth"]), find(&["fsync", "fdatasync"])) {
        return Err(word.error("depth without fsync, or threads instead of depth"));
    }
    if let Some(word) = later(find(&["depth"]), find(&["think"])) {
        return Err(word.error("depth without think, or threads instead of depth"));
    }
    if let (Some(bursts), None) = (find(&["bursts"]), find(&["at", "poisson"])) {
        return Err(seen[bursts].error("bursts only with at or poisson"));
    }
    if common.active.is_empty() {
        let word = find(&["start", "stop"]).map(|index| seen[index]);
        let allowed = "a start before the stop";
        return word.map_or(Ok(()), |word| Err(word.error(allowed)));
    }
    Ok(())
}
