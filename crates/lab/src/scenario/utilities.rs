//! The sections of a cached volume: `[cache]`, `[utility.*]`, and the sizes that a process's units are counted by.

use super::model::*;
use super::words::NAME;
use plimsoll_core::ByteCount;
use plimsoll_settings::scheme::{self, NamedScheme};
use plimsoll_settings::{Place, Problem, Section, quoted, suggest};

const UTILITIES_MAX: usize = 100;
/// What takes the place of a policy where there is no cache.
const NO_CACHE: &str = "none";
const UNIT_BYTES: u64 = plimsoll_cache::units::UNIT_BYTES;

/// Reads `[cache]`.
pub(super) fn cache(file: &mut Section<'_>, problems: &mut Vec<Problem>) -> Option<CacheSetup> {
    const BYTES: &str = "a size of at least 4KiB that the device has room for";
    let mut section = file.section("cache", problems)?;
    for (key, allowed) in [("device", "the name of a device model"), ("size", BYTES), ("policy", "a policy or none")] {
        section.require(key, allowed, problems);
    }
    let models: Vec<&'static str> = plimsoll_devices::models().iter().map(|model| model.name).collect();
    let device = section.choice("device", &models, problems);
    let capacity = device.and_then(|name| plimsoll_devices::build(name, 0)).map(|model| model.profile().capacity_bytes);
    let is_fitting = |size: &ByteCount| size.0 >= UNIT_BYTES && capacity.is_none_or(|capacity| size.0 <= capacity);
    let bytes = section.quantity("size", BYTES, problems, is_fitting);
    let policies = plimsoll_cache::policies();
    let names: Vec<&'static str> = policies.iter().map(|policy| policy.name).chain([NO_CACHE]).collect();
    let policy = section.choice("policy", &names, problems);
    let classes = section.text("classes", "the name of a scheme of classes", problems).unwrap_or("ext4");
    let scheme = scheme::load(classes);
    let place = section.finish(problems);
    let scheme: Option<NamedScheme> = match scheme {
        Ok(scheme) => Some(scheme),
        Err(scheme::SchemeError::Name { got, allowed }) => {
            problems.push(place.problem("classes", got, allowed));
            None
        }
        Err(scheme::SchemeError::File(error)) => {
            problems.push(place.problem("classes", format!("{} ({error})", quoted(classes)), "a scheme that is right"));
            None
        }
    };
    let policy = policies.iter().find(|entry| Some(entry.name) == policy);
    Some(CacheSetup { device: device?, bytes: bytes?.0, policy, scheme: scheme? })
}

/// Reads `[utility.*]`, in the order of the file.
pub(super) fn utilities(
    file: &mut Section<'_>,
    processes: &[String],
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Vec<UtilitySetup> {
    let sections = file.named_sections("utility", UTILITIES_MAX, problems);
    sections.into_iter().filter_map(|(name, section)| utility(name, section, processes, users, problems)).collect()
}

fn utility(
    name: String,
    mut section: Section<'_>,
    processes: &[String],
    users: &mut Vec<(Place, String)>,
    problems: &mut Vec<Problem>,
) -> Option<UtilitySetup> {
    const OF: &str = "the name of a process";
    const PART: &str = "above 0 and at most 1";
    let tools: Vec<&'static str> = Tool::ALL.iter().map(|(name, _)| *name).collect();
    section.require("tool", "the name of a tool", problems);
    section.require("of", OF, problems);
    let tool = section.choice("tool", &tools, problems);
    let of = section.text("of", OF, problems).map(str::to_owned);
    let part = section.number("part", PART, problems);
    let account = section.text("account", NAME, problems).unwrap_or(&name).to_owned();
    let place = section.finish(problems);
    users.push((place.clone(), account.clone()));
    if let Some(part) = part.filter(|part| !(*part > 0.0 && *part <= 1.0)) {
        problems.push(place.problem("part", part.to_string(), PART));
    }
    if let Some(of) = of.as_ref().filter(|of| !processes.contains(of)) {
        let hint = suggest::hint(of, processes.iter().map(String::as_str));
        let known = if processes.is_empty() { "none: there is none".to_owned() } else { processes.join(", ") };
        problems.push(place.problem("of", quoted(of), format!("{known}{hint}")));
        return None;
    }
    let tool = Tool::ALL.iter().find(|(name, _)| Some(*name) == tool)?.1;
    Some(UtilitySetup { name, account, tool, of: of?, part: part.unwrap_or(1.0) })
}

/// Reads `unit_sizes` of a process.
pub(super) fn sizes(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Vec<(String, u64)> {
    const SIZES: &str = "a list of sizes such as [\"4KiB\", \"1MiB\"]";
    let sizes = section.with("unit_sizes", SIZES, problems, |value| {
        let sizes = value.as_array()?.iter().map(|size| {
            let text = size.get_ref().as_str()?;
            Some((text.to_owned(), text.parse::<ByteCount>().ok()?.0))
        });
        sizes.collect::<Option<Vec<(String, u64)>>>()
    });
    sizes.unwrap_or_default()
}
