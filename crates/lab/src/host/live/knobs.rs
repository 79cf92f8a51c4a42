//! The kernel's knobs of writeback, set as the scenario's machine has them and put back afterwards.
//!
//! They are global, so the found values are written down first. A killed run leaves them changed, and the next one
//! restores them before it reads them. A scenario with the default machine changes nothing.

use super::HostError;
use super::error::failed;
use plimsoll_sim::MachineConfig;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/proc/sys/vm";
/// Where the old values are noted, beside the state directory.
const NOTE: &str = "vm-knobs";
/// Limits are set in bytes, because the simulated machine has a memory of its own; writing one of a pair clears the
/// other.
const PAIRS: [(&str, &str); 2] = [("dirty_bytes", "dirty_ratio"), ("dirty_background_bytes", "dirty_background_ratio")];
const EXPIRE: &str = "dirty_expire_centisecs";
const INTERVAL: &str = "dirty_writeback_centisecs";
/// A day of other work leaves memory neither free nor in large pieces, which costs milliseconds. The 99th percentile of
/// `split-fig12-ssd-live` was 3.1 to 6.4 ms, and 3.1 to 3.3 after both of these
/// (`docs/lab-notes/figures-live-2026-11.md`).
const AFRESH: [(&str, u64); 2] = [("drop_caches", 3), ("compact_memory", 1)];
const NS_PER_CENTISECOND: u64 = 10_000_000;

/// Knobs that were turned. Dropping it turns them back.
pub(super) struct Knobs {
    note: PathBuf,
}

fn read(knob: &str) -> Result<u64, HostError> {
    let path = Path::new(FOLDER).join(knob);
    let text = std::fs::read_to_string(&path).map_err(|error| failed(path.display(), error))?;
    text.trim().parse().map_err(|error| failed(path.display(), error))
}

fn write(knob: &str, value: u64) -> Result<(), HostError> {
    let path = Path::new(FOLDER).join(knob);
    std::fs::write(&path, value.to_string()).map_err(|error| failed(path.display(), error))
}

/// Has the kernel free and compact memory as far as it permits. So a run finds memory as on a machine that has just
/// started. Nothing is lost, and there is nothing to put back: files in use are read anew.
pub(super) fn begin_afresh() {
    for (knob, value) in AFRESH {
        // Others than root may not, and a kernel need not have both.
        let _ = write(knob, value);
    }
}

/// What brings back the values that are set now.
fn current() -> Result<Vec<(&'static str, u64)>, HostError> {
    let mut values = Vec::new();
    for (bytes, ratio) in PAIRS {
        let value = read(bytes)?;
        values.push(if value > 0 { (bytes, value) } else { (ratio, read(ratio)?) });
    }
    for knob in [EXPIRE, INTERVAL] {
        values.push((knob, read(knob)?));
    }
    Ok(values)
}

/// What the scenario's machine has.
fn wanted(config: &MachineConfig) -> [(&'static str, u64); 4] {
    let part = |percent: u32| config.memory_bytes / 100 * u64::from(percent);
    [
        (PAIRS[0].0, part(config.dirty_ratio)),
        (PAIRS[1].0, part(config.dirty_background_ratio)),
        (EXPIRE, config.dirty_expire.as_nanos() / NS_PER_CENTISECOND),
        (INTERVAL, config.dirty_writeback_interval.as_nanos() / NS_PER_CENTISECOND),
    ]
}

/// Bytes that may be dirty before the kernel makes writers wait, as the scenario's machine has it.
pub(super) fn dirty_bytes_max(config: &MachineConfig) -> u64 {
    wanted(config)[0].1
}

/// The lines of a note, of knobs that we turn.
fn parse(note: &str) -> Vec<(&str, u64)> {
    let known =
        |knob: &str| PAIRS.iter().any(|pair| [pair.0, pair.1].contains(&knob)) || [EXPIRE, INTERVAL].contains(&knob);
    let line = |line: &'_ str| -> Option<(usize, u64)> {
        let (knob, value) = line.split_once(' ')?;
        known(knob).then(|| value.parse().ok().map(|value| (knob.len(), value)))?
    };
    note.lines().filter_map(|text| line(text).map(|(length, value)| (&text[..length], value))).collect()
}

impl Knobs {
    /// Turns the knobs as `config` asks; `None` if it asks for nothing special. The note is kept in `folder`.
    pub(super) fn set(config: &MachineConfig, folder: &Path) -> Result<Option<Knobs>, HostError> {
        if wanted(config) == wanted(&MachineConfig::default()) {
            return Ok(None);
        }
        let knobs = Knobs { note: note_path(folder) };
        let lines: Vec<String> = current()?.iter().map(|(knob, value)| format!("{knob} {value}\n")).collect();
        std::fs::write(&knobs.note, lines.concat()).map_err(|error| failed(knobs.note.display(), error))?;
        // From here on a drop puts them back.
        wanted(config).into_iter().try_for_each(|(knob, value)| write(knob, value))?;
        Ok(Some(knobs))
    }

    fn restore(&self) -> Result<(), HostError> {
        let Ok(note) = std::fs::read_to_string(&self.note) else { return Ok(()) };
        parse(&note).into_iter().try_for_each(|(knob, value)| write(knob, value))?;
        std::fs::remove_file(&self.note).map_err(|error| failed(self.note.display(), error))
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            eprintln!("the kernel's knobs of writeback were not put back: {error}; {} has them", self.note.display());
        }
    }
}

/// The note lies beside the mounted file system, not in it.
fn note_path(folder: &Path) -> PathBuf {
    folder.with_file_name(NOTE)
}

/// Puts back what a run that was killed left, if it did; `folder` as for [`Knobs::set`].
pub(super) fn recover(folder: &Path) -> bool {
    let left = Knobs { note: note_path(folder) };
    left.note.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_brings_back_only_what_is_ours() {
        let note = "dirty_ratio 20\ndirty_background_bytes 1000\n../../kernel/panic 1\nswappiness 5\ndirty_bytes\n";
        assert_eq!(parse(note), [("dirty_ratio", 20), ("dirty_background_bytes", 1000)]);
    }

    #[test]
    fn limits_are_the_parts_of_the_simulated_machines_memory() {
        let config = MachineConfig { memory_bytes: 1000 << 20, dirty_ratio: 30, ..MachineConfig::default() };
        assert_eq!(wanted(&config)[..2], [("dirty_bytes", 300 << 20), ("dirty_background_bytes", 100 << 20)]);
        assert_eq!(wanted(&config)[2..], [(EXPIRE, 3000), (INTERVAL, 500)]);
    }
}
