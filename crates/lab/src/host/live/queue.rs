//! Settings of the block device's queue: the kernel's scheduler among them.
//!
//! A loop device takes 128 requests at once and serves each at once, so whichever scheduler the kernel has for it never
//! sees a queue. With `none` the number of requests is that of the device. So `none` comes first, then the number for
//! the scheduler below, then the scheduler, which gets requests of its own.
//!
//! A loop device keeps its settings when its file is taken away. So the old values are written down before they change.
//! The end of the run restores them, or the next run if this one is killed.

use super::HostError;
use super::error::failed;
use crate::scenario::MachineSetup;
use plimsoll_serve::attach::isolated;
use std::io;
use std::path::{Path, PathBuf};

/// Schedulers of the kernel that a loop device takes.
pub(crate) const KERNEL_SCHEDULERS: &[&str] = &["none", "mq-deadline", "kyber", "bfq"];
/// Requests at the device below at once. A disk needs the next one when it is done with one, and few enough let the
/// kernel's scheduler decide.
const DEVICE_REQUESTS: u32 = 4;
const BYTES_PER_KIB: u64 = 1024;
/// Where the old values are noted, beside the state directory.
const NOTE: &str = "queue-settings";
const FOLDER: &str = "/sys/block";
/// The scheduler comes first when values are noted, and last when they are set.
const SCHEDULER: &str = "scheduler";
const REQUESTS: &str = "nr_requests";
/// `blk-wbt`, the block layer's own throttling of writes: off, and as the kernel has it by default.
const WRITE_THROTTLING: &str = "wbt_lat_usec";
const WRITE_THROTTLING_OFF: &str = "0";
const WRITE_THROTTLING_DEFAULT: &str = "-1";
const SETTINGS: [&str; 6] = [SCHEDULER, REQUESTS, "rotational", "read_ahead_kb", "max_sectors_kb", WRITE_THROTTLING];

/// Settings that were changed. Dropping it puts them back.
pub(super) struct Queue {
    note: PathBuf,
}

/// A setting of a loop device and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QueueSetting<'a> {
    device: &'a str,
    name: &'a str,
    value: &'a str,
}

impl Queue {
    /// Gives the block device `device` (`loop0`) what the machine has; `folder` is where the file system is mounted.
    pub(super) fn set(device: &str, machine: &MachineSetup, folder: &Path) -> Result<Queue, HostError> {
        let queue = Queue { note: note_path(folder) };
        isolated(|| queue.set_here(device, machine)).map_err(|error| failed("set the queue", error))??;
        Ok(queue)
    }

    fn set_here(&self, device: &str, machine: &MachineSetup) -> Result<(), HostError> {
        let set = |name: &str, value: &str| {
            put(&QueueSetting { device, name, value }).map_err(|error| failed(path(device, name).display(), error))
        };
        let is_there = |name: &&&str| path(device, name).exists();
        let mut note = String::new();
        for name in SETTINGS.iter().filter(is_there) {
            let value = read(device, name).map_err(|error| failed(path(device, name).display(), error))?;
            note += &format!("{device} {name} {value}\n");
            // From here on a drop puts back what is noted.
            std::fs::write(&self.note, &note).map_err(|error| failed(self.note.display(), error))?;
            if *name == SCHEDULER {
                // With any other the number of requests, which is noted next, is the scheduler's and not the device's.
                set(SCHEDULER, "none")?;
            }
        }
        let config = &machine.config;
        let profile = plimsoll_devices::build(machine.device, 0).map(|model| model.profile().clone());
        let is_rotational = profile.is_some_and(|profile| profile.is_rotational);
        set("rotational", if is_rotational { "1" } else { "0" })?;
        set("read_ahead_kb", &(config.read_ahead_bytes / BYTES_PER_KIB).to_string())?;
        set("max_sectors_kb", &(u64::from(config.request_bytes_max) / BYTES_PER_KIB).to_string())?;
        let throttling = match machine.kernel_scheduler {
            Some(_) => WRITE_THROTTLING_DEFAULT,
            // The simulated block layer has none, as Linux had none before 4.10.
            None => WRITE_THROTTLING_OFF,
        };
        if is_there(&&WRITE_THROTTLING) {
            set(WRITE_THROTTLING, throttling)?;
        }
        if let Some(scheduler) = machine.kernel_scheduler {
            if !machine.has_kernel_wdt {
                set(REQUESTS, &DEVICE_REQUESTS.to_string())?;
            }
            set(SCHEDULER, scheduler)?;
        }
        Ok(())
    }

    /// Puts everything back, and forgets it if that worked.
    fn restore(&self) -> Result<(), String> {
        let Ok(note) = std::fs::read_to_string(&self.note) else { return Ok(()) };
        let settings = parse(&note);
        let (schedulers, others): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.name == SCHEDULER);
        let none = schedulers.iter().map(|setting| QueueSetting { value: "none", ..(*setting).clone() });
        let mut problems = Vec::new();
        for setting in none.chain(others.into_iter().chain(schedulers.iter().copied()).cloned()) {
            if let Err(error) = put(&setting) {
                problems.push(format!("{}: {error}", path(setting.device, setting.name).display()));
            }
        }
        match std::fs::remove_file(&self.note) {
            Err(error) => Err(format!("{}: {error}", self.note.display())),
            Ok(()) if problems.is_empty() => Ok(()),
            Ok(()) => Err(problems.join("; ")),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let restored = isolated(|| self.restore()).unwrap_or_else(|error| Err(error.to_string()));
        if let Err(error) = restored {
            eprintln!("settings of a loop device were not put back: {error}");
        }
    }
}

fn path(device: &str, name: &str) -> PathBuf {
    Path::new(FOLDER).join(device).join("queue").join(name)
}

/// The value that is set now; of a list, the one in brackets.
fn read(device: &str, name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(path(device, name))?;
    Ok(chosen(&text).to_owned())
}

fn chosen(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(chosen, _)| chosen)
}

/// Sets a value. Requests twice: the kernel passes over a number that it has already, but the device's own may differ.
fn put(setting: &QueueSetting<'_>) -> io::Result<()> {
    let path = path(setting.device, setting.name);
    if setting.name == REQUESTS
        && let Ok(requests) = setting.value.parse::<u32>()
    {
        std::fs::write(&path, (requests + 1).to_string())
            .or_else(|_| std::fs::write(&path, (requests - 1).to_string()))?;
    }
    std::fs::write(&path, setting.value)
}

/// The lines of a note, of settings that we change.
fn parse(note: &str) -> Vec<QueueSetting<'_>> {
    let is_loop = |device: &str| {
        device
            .strip_prefix("loop")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let line = |line| match str::split(line, ' ').collect::<Vec<_>>()[..] {
        [device, name, value] if is_loop(device) && SETTINGS.contains(&name) && !value.is_empty() => {
            Some(QueueSetting { device, name, value })
        }
        _ => None,
    };
    note.lines().filter_map(line).collect()
}

/// The note lies beside the mounted file system, not in it.
fn note_path(folder: &Path) -> PathBuf {
    folder.with_file_name(NOTE)
}

/// Puts back what a run that was killed left, if it did; `folder` as for [`Queue::set`].
pub(super) fn recover(folder: &Path) -> bool {
    let left = Queue { note: note_path(folder) };
    left.note.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_list_is_the_one_in_brackets() {
        assert_eq!(chosen("none mq-deadline [bfq] kyber\n"), "bfq");
        assert_eq!(chosen("128\n"), "128");
    }

    #[test]
    fn a_note_brings_back_only_what_is_ours() {
        let note = "loop7 scheduler none\nsda scheduler bfq\nloop/../sda nr_requests 1\nloop nr_requests 1\n\
                    loop7 io_timeout 1\nloop7 nr_requests\nloop7 nr_requests 128\n";
        let setting = |name, value| QueueSetting { device: "loop7", name, value };
        assert_eq!(parse(note), [setting(SCHEDULER, "none"), setting(REQUESTS, "128")]);
    }
}
