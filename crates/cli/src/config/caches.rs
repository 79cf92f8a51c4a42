//! The sections of caches: `[cache.NAME]`.

use super::bounds::{BLOCK_BYTES, SIZE};
use super::model::Cache;
use super::paths::path;
use plimsoll_cache::partition::GROUPS_MAX;
use plimsoll_cache::policies;
use plimsoll_cache::store::Semantics;
use plimsoll_core::{ByteCount, Span};
use plimsoll_engine::cache::{CacheSettings, DirtyMax, semantics_name, sizes_instead_of};
use plimsoll_engine::notes::Notes;
use plimsoll_settings::scheme::{self, SchemeError};
use plimsoll_settings::{Problem, Section};
use std::path::Path;

/// The policy and the scheme of a cache that does not name them.
const POLICY_DEFAULT: &str = "credit";
const CLASSES_DEFAULT: &str = "ext4";
/// When a write is acknowledged: when a device has it, when it is durable, or when the slow device has it.
const SEMANTICS: [Semantics; 3] = [Semantics::WriteCache, Semantics::Strict, Semantics::WriteThrough];
const DIRTY_MAX: &str =
    "a part of the cache such as \"20%\", above 0% and at most 100%, or a size of at least 4096 bytes such as \"4GiB\"";
/// The shortest time after which something is written back, and the longest.
const WRITE_BACK_MIN: Span = Span::from_secs(1);
const WRITE_BACK_MAX: Span = Span::from_secs(24 * 3600);
const WRITE_BACK: &str = "a time from \"1s\" to \"24h\"";
const PART: &str = "a part of the cache such as \"1%\", above 0% and at most 100%";

pub(super) fn cache(
    name: String,
    mut section: Section<'_>,
    directory: &Path,
    notes: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Cache> {
    section.require("file", "the path of a fast device or of a file on one", problems);
    let file = section.read("file", "the path of a file or block device", problems, |text| path(text, directory));
    let size = section.quantity("size", SIZE, problems, |size: &ByteCount| size.0.is_multiple_of(BLOCK_BYTES));
    let names: Vec<&'static str> = policies().iter().map(|entry| entry.name).collect();
    let policy = section.choice("policy", &names, problems).unwrap_or(POLICY_DEFAULT);
    let classes = section.read("classes", "the name of a scheme or the path of one", problems, |text| {
        named_scheme(text, directory).map(|scheme| (text.to_owned(), scheme))
    });
    let promotes_reads = section.boolean("promote_reads", problems).unwrap_or(true);
    let low = section.read("watermark_low", PART, problems, part);
    let high = section.read("watermark_high", PART, problems, part);
    let bounds = section.read_each("pools", PART, problems, part);
    let semantics = section.choice("semantics", &SEMANTICS.map(semantics_name), problems);
    let dirty_max = section.read("dirty_max", DIRTY_MAX, problems, dirty_max);
    let dirty_age = section.read("dirty_age", WRITE_BACK, problems, write_back);
    let idle_write_back = section.read("idle_write_back", WRITE_BACK, problems, write_back);
    let accepts_losses = section.boolean("accept_losses", problems).unwrap_or(false);
    let place = section.finish(problems);
    if let Some((size, allowed)) = size.and_then(|size| Some((size, sizes_instead_of(size.0)?))) {
        problems.push(place.problem("size", size, allowed));
    }
    let policy = policies().iter().find(|entry| entry.name == policy)?;
    let classes =
        classes.or_else(|| Some((CLASSES_DEFAULT.to_owned(), named_scheme(CLASSES_DEFAULT, directory).ok()?)));
    let (file, (classes, scheme)) = (file.unwrap_or_default(), classes?);
    let classes_bounded = scheme.entries().filter(|entry| entry.occupancy_max < 1.0).count();
    let pools_max = GROUPS_MAX / (classes_bounded + 1) - 1;
    if bounds.len() > pools_max && place.is_understood("classes") {
        let allowed = format!("at most {pools_max} beside {classes_bounded} classes with a bound");
        problems.push(place.problem("pools", format!("{} pools", bounds.len()), allowed));
    }
    let usual = CacheSettings::new(&name, file, policy, scheme);
    let watermark_low = low.unwrap_or_else(|| high.map_or(usual.watermark_low, |high| high.min(usual.watermark_low)));
    let watermark_high = high.unwrap_or_else(|| usual.watermark_high.max(watermark_low));
    let are_understood = place.is_understood("watermark_low") && place.is_understood("watermark_high");
    if watermark_low > watermark_high && are_understood {
        let percent = |part: f64| format!("{}%", part * 100.0);
        let allowed = format!("at least watermark_low, {}", percent(watermark_low));
        problems.push(place.problem("watermark_high", percent(watermark_high), allowed));
    }
    let settings = CacheSettings {
        size_bytes: size.map(|size| size.0),
        promotes_reads,
        watermark_low,
        watermark_high,
        semantics: semantics.and_then(semantics_of).unwrap_or_default(),
        dirty_max,
        dirty_age,
        idle_write_back,
        accepts_losses,
        notes: Some(Notes::new(notes.to_owned())),
        ..usual
    };
    Some(Cache { name, settings, classes, bounds, place })
}

/// The scheme that `text` names: one that is built in, or a file, with a relative path that starts from `directory`.
pub fn named_scheme(text: &str, directory: &Path) -> Result<plimsoll_core::class::Scheme, String> {
    let is_file = text.ends_with(".toml");
    let name = if is_file { directory.join(text).display().to_string() } else { text.to_owned() };
    match scheme::load(&name) {
        Ok(named) => Ok(named.scheme),
        Err(SchemeError::Name { allowed, .. }) => Err(allowed),
        Err(error) => {
            // A configuration has one line for each of its mistakes, so of those in the other file the first is named.
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            Err(format!("a file that describes classes ({first})"))
        }
    }
}

/// What a configuration calls so.
pub fn semantics_of(name: &str) -> Option<Semantics> {
    SEMANTICS.into_iter().find(|&semantics| semantics_name(semantics) == name)
}

/// The names of all of them.
pub fn semantics_names() -> String {
    SEMANTICS.map(semantics_name).join(", ")
}

fn dirty_max(text: &str) -> Result<DirtyMax, String> {
    if text.trim_end().ends_with('%') {
        return part(text).map(DirtyMax::Part).map_err(|_| DIRTY_MAX.into());
    }
    let size = text.parse::<ByteCount>().ok().filter(|size| size.0 >= BLOCK_BYTES);
    size.map(|size| DirtyMax::Bytes(size.0)).ok_or_else(|| DIRTY_MAX.into())
}

fn write_back(text: &str) -> Result<Span, String> {
    let time = text.parse::<Span>().ok().filter(|time| (WRITE_BACK_MIN..=WRITE_BACK_MAX).contains(time));
    time.ok_or_else(|| WRITE_BACK.into())
}

fn part(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| PART.into())
}
