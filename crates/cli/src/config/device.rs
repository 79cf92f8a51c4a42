//! `[device.NAME]`: a disk that pools share, or an observed one; its scheduler and its known rates.

use super::MeasuredProfile;
use super::bounds::{OUTSTANDING_MAX, WORST_CASE as WORST_CASE_ALLOWED, is_worst_case};
use super::paths::path;
use plimsoll_core::units::RUN_BYTES_MAX;
use plimsoll_core::{DeviceProfile, Rate, Span};
use plimsoll_settings::key::{Absent, Choice, Integer, Key, KeyTable, Quantity, Text};
use plimsoll_settings::{Place, Problem, Section, quoted};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The scheduler of a device that does not name one.
pub const SCHEDULER_DEFAULT: &str = "zygaria";
/// The default for mounted volumes with tenants: a scheduler that keeps limits there (decision record 0007).
pub const SCHEDULER_WITH_TENANTS_DEFAULT: &str = "split_token";
/// The default for an observed disk: a scheduler above the block level, since its requests cannot be ordered.
pub const SCHEDULER_OF_OBSERVED_DEFAULT: &str = "split_token";
/// What tenants of an observed disk are charged for: what they cause, by default, or what their processes submit.
pub const TAGS: [&str; 2] = ["causes", TAGS_OF_SUBMITTERS];
/// The second of [`TAGS`].
pub const TAGS_OF_SUBMITTERS: &str = "submitters";
/// Default for the requests at a device that is not emulated. A SATA device queues 32 (NCQ); an NVMe device is close to
/// its rate at 32 random 4 KB reads.
pub const OUTSTANDING_DEFAULT: u32 = 32;

pub(super) const EMULATE: Key<Choice> = Key {
    name: "emulate",
    form: Choice::summarized(
        || plimsoll_devices::models().iter().map(|model| model.name).collect(),
        "the name of a model (`plimsoll device list`)",
    ),
    absent: Absent::Words("as fast as it is"),
    help: "behaves like this model in real time; the content still is where the volumes say",
};
pub(super) const OBSERVE: Key<Text> = Key {
    name: "observe",
    form: Text::new("path", "the path of a mount point"),
    absent: Absent::Words("a device of volumes"),
    help: "an observed disk: Plimsoll sees its requests, and holds its tenants at their calls ([agent.md](agent.md)). \
           The path of its block device is allowed, too. Each disk once; no volumes, no `emulate`",
};
const OBSERVED_TAGS: Key<Choice> = Key {
    name: "tags",
    form: Choice::of(|| TAGS.to_vec()),
    absent: Absent::Words("`\"causes\"`"),
    help: "with `observe`: what tenants are charged for. `causes`: the I/O that they cause as BPF observes \
           it, or without BPF the I/O that their processes submit; `submitters`: always the latter ([agent.md](agent.md#without-bpf))",
};
pub(super) const SCHEDULER: Key<Choice> = Key {
    name: "scheduler",
    form: Choice::summarized(
        || plimsoll_schedulers::registry().iter().map(|entry| entry.name).collect(),
        "the name of a scheduler (`plimsoll scheduler list`)",
    ),
    absent: Absent::Words(
        "`\"zygaria\"`; `\"split_token\"` with `observe` and where a volume takes tenants \
         ([why](decisions/0007-the-scheduler-with-tenants.md))",
    ),
    help: "decides the order, and [which promises are kept](#which-promises-are-kept)",
};
pub(super) const PROFILE: Key<Text> = Key {
    name: "profile",
    form: Text::new("path", "the path of a file"),
    absent: Absent::Words("the model's"),
    help: "a file that `plimsoll device measure` wrote ([below](#measuring-a-device)). `worst_case` and \
           `outstanding_max` here go before it",
};
pub(super) const WORST_CASE: Key<Quantity<Rate>> = Key {
    name: "worst_case",
    form: Quantity { allowed: WORST_CASE_ALLOWED, is_allowed: is_worst_case },
    absent: Absent::Words(
        "the profile's, or the model's; without either not known, and then there are no reserves and no percentages",
    ),
    help: "small random I/O that the device does at its worst: what can be promised on it",
};
const OUTSTANDING: Key<Integer> = Key {
    name: "outstanding_max",
    form: Integer::new(1..=OUTSTANDING_MAX, "requests"),
    absent: Absent::Words("the profile's, or the model's; 32 without either"),
    help: "requests that are kept at the device: enough to keep it efficient, few enough to keep control",
};
const SEED: Key<Integer> = Key {
    name: "seed",
    form: Integer::new(0..=i64::MAX as u64, ""),
    absent: Absent::Value(1),
    help: "decides what the emulation leaves to chance; only with `emulate`",
};

pub(super) const TABLE: KeyTable = KeyTable {
    path: "device.NAME",
    keys: &[&EMULATE, &OBSERVE, &OBSERVED_TAGS, &SCHEDULER, &PROFILE, &WORST_CASE, &OUTSTANDING, &SEED],
};

/// A section `[device.NAME]`.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// The model that it behaves like; `None` for as fast as it is.
    pub emulate: Option<String>,
    /// The mount point of an observed disk's file system. `None` for a device of volumes.
    pub observe: Option<PathBuf>,
    /// With `observe`: tenants are charged for what their processes submit, not for what they cause.
    pub is_by_submitter: bool,
    /// The scheduler, from the registry.
    pub scheduler: String,
    /// Decides what the emulation leaves to chance.
    pub seed: u64,
    /// What schedulers and admission know of it. `worst_case_runs_per_second` is 0 where it is unknown; then there are
    /// no percentages and no reserves.
    pub profile: DeviceProfile,
    /// Where the section stands.
    pub place: Place,
}

impl Device {
    /// The profile of a device of which nothing is known but what the file says.
    pub fn unknown_profile(name: &str, worst_case_runs_per_second: f64) -> DeviceProfile {
        DeviceProfile {
            name: name.to_owned(),
            capacity_bytes: u64::MAX,
            worst_case_runs_per_second,
            sequential_bytes_per_second: worst_case_runs_per_second * RUN_BYTES_MAX as f64,
            sequential_write_bytes_per_second: worst_case_runs_per_second * RUN_BYTES_MAX as f64,
            write_settle: Span::ZERO,
            is_rotational: false,
            outstanding_max: OUTSTANDING_DEFAULT,
        }
    }

    /// Whether percentages and reserves mean something here.
    pub fn is_worst_case_known(&self) -> bool {
        self.profile.worst_case_runs_per_second > 0.0
    }
}

/// A section with wrong keys stays a device, a pool, a cache or a volume: references to it and its other keys are still
/// checked. Its place knows the keys that were not understood.
pub(super) fn read(name: String, mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Device {
    let emulate = EMULATE.read(&mut section, problems);
    let observe = OBSERVE.read(&mut section, problems, |text| path(text, directory));
    let default = if is_observed(section.place()) { SCHEDULER_OF_OBSERVED_DEFAULT } else { SCHEDULER_DEFAULT };
    let scheduler = SCHEDULER.read(&mut section, problems).unwrap_or(default);
    let tags = OBSERVED_TAGS.read(&mut section, problems);
    let measured = PROFILE.read(&mut section, problems, |text| measured(text, directory));
    let worst_case = WORST_CASE.read(&mut section, problems);
    let outstanding_max = OUTSTANDING.read(&mut section, problems);
    let seed = SEED.read_or_default(&mut section, problems);
    let place = section.finish(problems);
    if emulate.is_some() && observe.is_some() {
        problems.push(place.problem(EMULATE.name, "a model for a disk that is there", "only without observe"));
    }
    if tags.is_some() && !is_observed(&place) {
        problems.push(place.problem(OBSERVED_TAGS.name, "tags of a device of volumes", "only with observe"));
    }
    if place.has(SEED.name) && place.is_understood(SEED.name) && !place.has(EMULATE.name) {
        problems.push(place.problem(SEED.name, "the seed of an emulation that there is not", "only with emulate"));
    }
    let model = emulate.and_then(|emulate| plimsoll_devices::build(emulate, seed));
    let mut profile = match model {
        Some(model) => DeviceProfile { name: name.clone(), ..model.profile().clone() },
        None => Device::unknown_profile(&name, 0.0),
    };
    if let Some(measured) = measured {
        measured.put(&mut profile);
    }
    if let Some(Rate::RunsPerSecond(worst_case)) = worst_case {
        profile.worst_case_runs_per_second = worst_case;
    }
    if let Some(outstanding_max) = outstanding_max {
        profile.outstanding_max = outstanding_max as u32;
    }
    let (emulate, scheduler) = (emulate.map(str::to_owned), scheduler.to_owned());
    let is_by_submitter = tags == Some(TAGS_OF_SUBMITTERS);
    Device { name, emulate, observe, is_by_submitter, scheduler, seed, profile, place }
}

/// What a file says that `plimsoll device measure` wrote. A configuration has one line for each of its mistakes, so of
/// those in the other file the first is named.
fn measured(text: &str, directory: &Path) -> Result<MeasuredProfile, String> {
    MeasuredProfile::read(&path(text, directory)?).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().to_owned();
        format!("a file that plimsoll device measure wrote ({first})")
    })
}

/// Whether the device at `place` was meant as an observed one, even if the path is invalid.
pub(super) fn is_observed(place: &Place) -> bool {
    place.has(OBSERVE.name)
}

/// One device for each observed disk.
pub(super) fn check_observed_once(devices: &[Device], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&Path, &str> = BTreeMap::new();
    for device in devices {
        let Some(path) = device.observe.as_deref() else { continue };
        if let Some(first) = users.get(path) {
            let got = format!("the mount point of device {first:?}, {}", quoted(&path.to_string_lossy()));
            problems.push(device.place.problem(OBSERVE.name, got, "a mount point of its own"));
        } else {
            users.insert(path, &device.name);
        }
    }
}
