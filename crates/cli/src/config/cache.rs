//! `[cache.NAME]`: a fast device as the write-back cache of a volume.

use super::bounds::{BLOCK_BYTES, SIZE as SIZE_ALLOWED};
use super::paths::{path, refused_file};
use plimsoll_cache::partition::GROUPS_MAX;
use plimsoll_cache::policies;
use plimsoll_cache::store::Semantics;
use plimsoll_core::{ByteCount, Span};
use plimsoll_engine::cache::{CacheSettings, DirtyMax, semantics_name, sizes_instead_of};
use plimsoll_engine::notes::Notes;
use plimsoll_settings::key::{Absent, Boolean, Choice, Key, KeyTable, Quantity, Text, TextsByName};
use plimsoll_settings::scheme::{self, SchemeError};
use plimsoll_settings::{Place, Problem, Section};
use std::path::Path;

/// When a write is acknowledged: a device has it, it is durable, or the slow device has it.
const SEMANTICS_ALL: [Semantics; 3] = [Semantics::WriteCache, Semantics::Strict, Semantics::WriteThrough];
const DIRTY_MAX_ALLOWED: &str =
    "a part of the cache such as \"20%\", above 0% and at most 100%, or a size of at least 4096 bytes such as \"4GiB\"";
/// The shortest time after which something is written back, and the longest.
const WRITE_BACK_MIN: Span = Span::from_secs(1);
const WRITE_BACK_MAX: Span = Span::from_secs(24 * 3600);
const WRITE_BACK_ALLOWED: &str = "a time from \"1s\" to \"24h\"";
const PART_ALLOWED: &str = "a part of the cache such as \"1%\", above 0% and at most 100%";

pub(super) const FILE: Key<Text> = Key {
    name: "file",
    form: Text::new("path", "the path of a file or block device"),
    absent: Absent::Required("the path of a fast device or of a file on one"),
    help: "a fast device or a file on one, which has no other use. `plimsoll cache make FILE NAME` makes the cache there; \
           a start does not",
};
const SIZE: Key<Quantity<ByteCount>> = Key {
    name: "size",
    form: Quantity { allowed: SIZE_ALLOWED, is_allowed: |size| size.0.is_multiple_of(BLOCK_BYTES) },
    absent: Absent::Words("all of it"),
    help: "bytes to use when the cache is made, 128 KiB to 512 GiB; a file is made as long. Later the key has no \
           effect",
};
const POLICY: Key<Choice> = Key {
    name: "policy",
    form: Choice::of(|| policies().iter().map(|entry| entry.name).collect()),
    absent: Absent::Value("credit"),
    help: "which blocks leave next, and which come in",
};
const CLASSES: Key<Text> = Key {
    name: "classes",
    form: Text::new("name or path", "the name of a scheme or the path of one"),
    absent: Absent::Value("ext4"),
    help: "the scheme of classes: one that is built in (`plimsoll class list`), or a `.toml` file \
           ([classes.md](classes.md))",
};
const SEMANTICS: Key<Choice> = Key {
    name: "semantics",
    form: Choice::of(|| SEMANTICS_ALL.map(semantics_name).to_vec()),
    absent: Absent::Value("write-cache"),
    help: "when a write is acknowledged: when a device has it, when it is durable, or when the slow device has it \
           ([cache.md](cache.md#what-may-be-dirty))",
};
const DIRTY_MAX: Key<Text> = Key {
    name: "dirty_max",
    form: Text::new("part or size", DIRTY_MAX_ALLOWED),
    absent: Absent::Words("all of it"),
    help: "bytes that may be dirty at once, that is, on the fast device only. Writes beyond that wait",
};
const DIRTY_AGE: Key<Text> = Key {
    name: "dirty_age",
    form: Text::new("time", WRITE_BACK_ALLOWED),
    absent: Absent::Words("for ever"),
    help: "how long a block may be dirty, if the slow device answers writes within half of that",
};
const IDLE_WRITE_BACK: Key<Text> = Key {
    name: "idle_write_back",
    form: Text::new("time", WRITE_BACK_ALLOWED),
    absent: Absent::Words("never"),
    help: "after how long without a request everything is written back",
};
const PROMOTE_READS: Key<Boolean> = Key {
    name: "promote_reads",
    form: Boolean,
    absent: Absent::Value(true),
    help: "reads take blocks in; `false`: only writes do",
};
pub(super) const POOLS: Key<TextsByName> = Key {
    name: "pools",
    form: TextsByName { allowed: PART_ALLOWED },
    absent: Absent::Words("none"),
    help: "[pools and sessions](#parts-of-a-cache) that may fill at most a part of the cache with their blocks: \
           `{ backup = \"10%\", \"db/loader\" = \"20%\" }`",
};
const WATERMARK_LOW: Key<Text> = Key {
    name: "watermark_low",
    form: Text::new("part", PART_ALLOWED),
    absent: Absent::Words("`\"1%\"`"),
    help: "the part of the cache that is free when the syncer wakes up",
};
const WATERMARK_HIGH: Key<Text> = Key {
    name: "watermark_high",
    form: Text::new("part", PART_ALLOWED),
    absent: Absent::Words("`\"2%\"`"),
    help: "the part of the cache that is free when the syncer sleeps again",
};
const ACCEPT_LOSSES: Key<Boolean> = Key {
    name: "accept_losses",
    form: Boolean,
    absent: Absent::Value(false),
    help: "if a part of the cache's own records is damaged: `true`: the daemon forgets it and uses the rest; `false`: \
           the daemon does not start, and says how many units and bytes would be lost at most ([cache-format.md](cache-format.md#what-is-believed-beside-damage))",
};

pub(super) const TABLE: KeyTable = KeyTable {
    path: "cache.NAME",
    keys: &[
        &FILE,
        &SIZE,
        &POLICY,
        &CLASSES,
        &SEMANTICS,
        &DIRTY_MAX,
        &DIRTY_AGE,
        &IDLE_WRITE_BACK,
        &PROMOTE_READS,
        &POOLS,
        &WATERMARK_LOW,
        &WATERMARK_HIGH,
        &ACCEPT_LOSSES,
    ],
};

/// Files of caches that are there and cannot be what the configuration says. `configuration` is the path of the file
/// that is checked.
pub(super) fn check_files(caches: &[Cache], configuration: &Path, problems: &mut Vec<Problem>) {
    for cache in caches.iter().filter(|cache| cache.place.is_understood(FILE.name)) {
        problems.extend(refused_file(&cache.place, FILE.name, &cache.settings.path, configuration));
    }
}

/// A section `[cache.NAME]`.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Its name; unique in the file.
    pub name: String,
    /// What it is made from.
    pub settings: CacheSettings,
    /// The scheme of classes, as the file names it.
    pub classes: String,
    /// Pools that may fill only a part of it: the line, the name of a pool or `VOLUME/SESSION`, and the part. The
    /// settings have the paths of their accounts.
    pub bounds: Vec<(usize, String, f64)>,
    /// Where the section stands.
    pub place: Place,
}

pub(super) fn read(
    name: String,
    mut section: Section<'_>,
    directory: &Path,
    notes: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Cache> {
    FILE.require(&mut section, problems);
    let file = FILE.read(&mut section, problems, |text| path(text, directory));
    let size = SIZE.read(&mut section, problems);
    let policy = POLICY.read_or_default(&mut section, problems);
    let classes = CLASSES
        .read(&mut section, problems, |text| named_scheme(text, directory).map(|scheme| (text.to_owned(), scheme)));
    let promotes_reads = PROMOTE_READS.read_or_default(&mut section, problems);
    let low = WATERMARK_LOW.read(&mut section, problems, part);
    let high = WATERMARK_HIGH.read(&mut section, problems, part);
    let bounds = POOLS.read(&mut section, problems, part);
    let semantics = SEMANTICS.read_or_default(&mut section, problems);
    let dirty_max = DIRTY_MAX.read(&mut section, problems, dirty_max);
    let dirty_age = DIRTY_AGE.read(&mut section, problems, write_back);
    let idle_write_back = IDLE_WRITE_BACK.read(&mut section, problems, write_back);
    let accepts_losses = ACCEPT_LOSSES.read_or_default(&mut section, problems);
    let place = section.finish(problems);
    if let Some((size, allowed)) = size.and_then(|size| Some((size, sizes_instead_of(size.0)?))) {
        problems.push(place.problem(SIZE.name, size, allowed));
    }
    check_dirty(&place, size, dirty_max, semantics, problems);
    let policy = policies().iter().find(|entry| entry.name == policy)?;
    let scheme_default = CLASSES.default_value();
    let classes = classes.or_else(|| Some((scheme_default.to_owned(), named_scheme(scheme_default, directory).ok()?)));
    let (file, (classes, scheme)) = (file.unwrap_or_default(), classes?);
    let classes_bounded = scheme.entries().filter(|entry| entry.occupancy_max < 1.0).count();
    let pools_max = GROUPS_MAX / (classes_bounded + 1) - 1;
    if bounds.len() > pools_max && place.is_understood(CLASSES.name) {
        let allowed = format!("at most {pools_max} beside {classes_bounded} classes with a bound");
        problems.push(place.problem(POOLS.name, format!("{} pools", bounds.len()), allowed));
    }
    let usual = CacheSettings::new(&name, file, policy, scheme);
    let watermark_low = low.unwrap_or_else(|| high.map_or(usual.watermark_low, |high| high.min(usual.watermark_low)));
    let watermark_high = high.unwrap_or_else(|| usual.watermark_high.max(watermark_low));
    let are_understood = place.is_understood(WATERMARK_LOW.name) && place.is_understood(WATERMARK_HIGH.name);
    if watermark_low > watermark_high && are_understood {
        let percent = |part: f64| format!("{}%", part * 100.0);
        let allowed = format!("at least watermark_low, {}", percent(watermark_low));
        problems.push(place.problem(WATERMARK_HIGH.name, percent(watermark_high), allowed));
    }
    let settings = CacheSettings {
        size_bytes: size.map(|size| size.0),
        promotes_reads,
        watermark_low,
        watermark_high,
        semantics: semantics_of(semantics).unwrap_or_default(),
        dirty_max,
        dirty_age,
        idle_write_back,
        accepts_losses,
        notes: Some(Notes::new(notes.to_owned())),
        ..usual
    };
    Some(Cache { name, settings, classes, bounds, place })
}

/// Bounds of what is dirty that nothing comes of.
fn check_dirty(
    place: &Place,
    size: Option<ByteCount>,
    dirty_max: Option<DirtyMax>,
    semantics: &str,
    problems: &mut Vec<Problem>,
) {
    if semantics_of(semantics) == Some(Semantics::WriteThrough) {
        for key in [DIRTY_MAX.name, DIRTY_AGE.name, IDLE_WRITE_BACK.name].into_iter().filter(|key| place.has(key)) {
            let got = "a bound of what is dirty, and semantics = \"write-through\", with which nothing is";
            problems.push(place.problem(key, got, "only with other semantics"));
        }
    }
    if let (Some(size), Some(DirtyMax::Bytes(most))) = (size, dirty_max)
        && most > size.0
    {
        let most = ByteCount(most);
        let allowed = format!("at most the size of the cache, {}", size.beside(most));
        problems.push(place.problem(DIRTY_MAX.name, most.beside(size), allowed));
    }
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
    SEMANTICS_ALL.into_iter().find(|&semantics| semantics_name(semantics) == name)
}

/// The names of all of them.
pub fn semantics_names() -> String {
    SEMANTICS_ALL.map(semantics_name).join(", ")
}

fn dirty_max(text: &str) -> Result<DirtyMax, String> {
    if text.trim_end().ends_with('%') {
        return part(text).map(DirtyMax::Part).map_err(|_| DIRTY_MAX_ALLOWED.into());
    }
    let size = text.parse::<ByteCount>().ok().filter(|size| size.0 >= BLOCK_BYTES);
    size.map(|size| DirtyMax::Bytes(size.0)).ok_or_else(|| DIRTY_MAX_ALLOWED.into())
}

fn write_back(text: &str) -> Result<Span, String> {
    let time = text.parse::<Span>().ok().filter(|time| (WRITE_BACK_MIN..=WRITE_BACK_MAX).contains(time));
    time.ok_or_else(|| WRITE_BACK_ALLOWED.into())
}

fn part(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    percent
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| PART_ALLOWED.into())
}
