//! Advice if a volume's cache is not as the configuration says.

use super::plan;
use crate::config::{Cache, Configuration, Volume};
use plimsoll_cache::store::OpenError;
use plimsoll_engine::backend::VolumeConfig;
use plimsoll_engine::cache::{CacheError, CacheNote};
use plimsoll_engine::notes::{DamagedNote, Notes};
use std::io::{self, ErrorKind};

/// What is noted of a volume's cache. If it may, it first finishes the work of a killed daemon. Such a cache, with
/// everything on the slow device, was about to be given up, and has no note any more.
pub(super) fn noted(
    configuration: &Configuration,
    config: &VolumeConfig,
    finishes: bool,
) -> io::Result<Option<CacheNote>> {
    let notes = plan::notes(configuration);
    let note = notes.get::<CacheNote>(config)?;
    match &note {
        Some(note) if finishes && note.leaving.is_some() && note.why_not_of(&config.name).is_none() => {
            plimsoll_engine::cache::forget(&notes, config)?;
            let (volume, cache) = (&config.name, &note.cache);
            tracing::warn!(
                volume,
                cache,
                "an earlier daemon ended while it gave the cache up: everything is on the slow device, and the cache \
                 is removed now"
            );
            Ok(None)
        }
        _ => Ok(note),
    }
}

/// Why a volume that the configuration gives no cache is not served: it has one. If it may, it finishes what [`noted`]
/// finishes; if not, nothing is changed, and that is no reason either.
pub(super) fn why_not_without(
    configuration: &Configuration,
    section: &Volume,
    config: &VolumeConfig,
    finishes: bool,
) -> Option<String> {
    let (file, place) = (configuration.file.display(), &section.place);
    let at = format!("{file}:{}: volume.{}: cache", place.line, section.name);
    let note = match noted(configuration, config, finishes) {
        Ok(Some(note)) if !finishes && note.leaving.is_some() && note.why_not_of(&section.name).is_none() => {
            return None;
        }
        Ok(Some(note)) => note,
        Ok(None) => return why_not_a_copy(&at, configuration, section, config),
        Err(error) if DamagedNote::behind(&error).is_some() => {
            let name = &section.name;
            return Some(format!(
                "{at}: got none, and {error}: the newest data may be only in its cache, and no whole note names that \
                 cache (to serve the volume: put cache = NAME into the section, then plimsoll cache adopt {file} NAME; to do without the cache, and lose its dirty data: plimsoll cache forget {file} {name})"
            ));
        }
        Err(error) => return Some(format!("{at}: cannot find out whether the volume has a cache: {error}")),
    };
    if let Some(why) = note.why_not_of(&section.name) {
        return Some(format!("{at}: {why}"));
    }
    let (name, path) = (&note.cache, note.path.display());
    Some(format!(
        "{at}: got none, allowed {name:?} on {path}, which was not detached: the newest data may be only there (to \
         serve the volume: put cache = {name:?} into the section; to do without the cache: plimsoll cache forget {file} {})",
        section.name
    ))
}

/// Why a copied or moved file of a volume with a cache is not served: the newest data may be in that cache only.
fn why_not_a_copy(at: &str, configuration: &Configuration, section: &Volume, config: &VolumeConfig) -> Option<String> {
    let note = match Notes::of_its_original::<CacheNote>(config) {
        Ok(note) => note?,
        Err(error) => return Some(format!("{at}: cannot find out whether the volume has a cache: {error}")),
    };
    let (name, cache, path, file) = (&section.name, &note.cache, note.path.display(), configuration.file.display());
    Some(format!(
        "{at}: got none, and its file was copied or moved from one that has the cache {cache:?} on {path}: the newest \
         data may be only there, allowed a copy that was made after plimsoll cache detach (if the file was moved: put cache = {cache:?} into the section, then plimsoll cache adopt {file} {cache} --moved; to serve the file as it is: plimsoll cache forget {file} {name})",
    ))
}

/// There is no cache on the device, and no note says that the volume has one: it was detached, or never made.
pub(super) fn none_is_known(
    configuration: &Configuration,
    section: &Volume,
    cache: &Cache,
    error: &CacheError,
) -> String {
    let (file, line) = (configuration.file.display(), section.place.line_of("cache"));
    format!(
        "{error}, and volume {} has no cache: it was detached or never made; to make one: plimsoll cache make {file} \
         {}; to do without: take {} out of line {line}",
        section.name,
        cache.name,
        section.place.dotted("cache")
    )
}

const LOST: &str = "if there was a cache, its dirty data is lost";

/// What holds something else is given up by a command of its own.
fn how_to_give_up(error: &CacheError, make: &str, config: &VolumeConfig) -> String {
    let volume = &config.name;
    format!("{error}; to give that up: {make} --replace, while no daemon serves volume {volume}")
}

/// Whether the note says that the volume has a cache in another place than `cache`.
fn is_elsewhere(note: &CacheNote, cache: &Cache) -> bool {
    note.leaving.is_none() && std::path::absolute(&cache.settings.path).is_ok_and(|path| path != note.path)
}

/// The configuration has another cache, or another path, than the note.
fn how_to_find(configuration: &Configuration, config: &VolumeConfig, note: &CacheNote) -> String {
    let (volume, name, path) = (&config.name, &note.cache, note.path.display());
    format!(
        "volume {volume} has the cache {name:?} on {path}, which was not detached: put that into the configuration (to \
         do without that cache, and lose its dirty data: plimsoll cache forget {} {volume})",
        configuration.file.display()
    )
}

/// An error, with advice for the cache of the volume of `config`.
pub(super) fn with_advice(
    configuration: &Configuration,
    cache: &Cache,
    config: &VolumeConfig,
    error: &CacheError,
) -> String {
    let command = |what: &str| format!("plimsoll cache {what} {} {}", configuration.file.display(), cache.name);
    let make = command("make");
    // A note that cannot be read may be one.
    let note = plan::notes(configuration).get::<CacheNote>(config);
    let is_noted = !matches!(note, Ok(None));
    let is_missed = matches!(
        error,
        CacheError::System { action: "open", .. } | CacheError::Open { .. } | CacheError::Content { .. }
    );
    if is_missed
        && let Some(note) = note.as_ref().ok().and_then(|note| note.as_ref()).filter(|note| is_elsewhere(note, cache))
    {
        return format!("{error}; {}", how_to_find(configuration, config, note));
    }
    match error {
        CacheError::System { action: "open", source, .. } if source.kind() == ErrorKind::NotFound => {
            let (replace, lost) =
                if is_noted { (" --replace", " (the old cache's dirty data is lost)") } else { ("", "") };
            format!("{error}; to make one: {make}{replace}{lost}")
        }
        CacheError::ReadOnlyDevice { .. } | CacheError::System { action: "open", .. } if is_noted => {
            let (file, volume) = (configuration.file.display(), &config.name);
            format!(
                "{error}; if it can be read and not written: plimsoll cache rescue {file} {volume} copies its dirty \
                 data, and then plimsoll cache forget {file} {volume} gives it up"
            )
        }
        CacheError::Open { source: OpenError::NoCache, .. } => {
            let replace = if is_noted { " --replace" } else { "" };
            format!("{error}; to make one: {make}{replace} ({LOST})")
        }
        CacheError::Unnoted { .. } => format!(
            "{error}; if it has not: {} while no daemon runs; otherwise: {make} --replace (the cache's dirty data is \
             lost)",
            command("adopt")
        ),
        CacheError::NoteDamaged { names_another, .. } => {
            format!("{error}; {}", how_to_note(configuration, config, &command("adopt"), *names_another))
        }
        CacheError::OtherContent { .. } => {
            format!("{error}; if it is the same device with other content: {} while no daemon runs", command("adopt"))
        }
        CacheError::GivenUp { .. } => {
            format!("{error}; to make a new cache in its place: {make} --replace (the old content is lost)")
        }
        CacheError::Older { .. } => {
            format!(
                "{error}; to make a new cache in its place: {make} --replace (the dirty data of the newer copy is \
                     lost)"
            )
        }
        CacheError::Open { source: OpenError::Damaged { .. }, .. } => {
            format!("{error}; {}", how_to_accept(configuration, cache))
        }
        CacheError::Open { source: OpenError::OtherSize { was_blocks, is_blocks }, .. } => {
            format!("{error}; {}", how_to_resize(configuration, config, *was_blocks, *is_blocks))
        }
        CacheError::Content { .. } => how_to_give_up(error, &make, config),
        CacheError::Exists { .. } => format!("{error}, and its volume may need that ({make} --replace)"),
        CacheError::Open { source: OpenError::OtherStore, .. } => {
            let adopt = how_to_join(config, &note, &command("adopt"));
            format!(
                "{error}; {adopt}to make a new cache in its place: {make} --replace (the dirty data of that other \
                 volume is lost)"
            )
        }
        CacheError::Open { source: OpenError::NoSuperblock | OpenError::Spent, .. } => {
            format!("{error}; to make a new cache in its place: {make} --replace ({LOST})")
        }
        error => error.to_string(),
    }
}

/// Advice if no copy of a note is whole.
fn how_to_note(configuration: &Configuration, config: &VolumeConfig, adopt: &str, names_another: bool) -> String {
    let (file, volume) = (configuration.file.display(), &config.name);
    let lost = format!("to do without its cache, and lose the dirty data: plimsoll cache forget {file} {volume}");
    match names_another {
        true => format!("the readable part of the note names another cache ({lost})"),
        false => format!("if that is the volume's cache: {adopt} while no daemon runs ({lost})"),
    }
}

/// Advice to adopt a cache for a store under another name; empty without a note of the store.
fn how_to_join(config: &VolumeConfig, note: &io::Result<Option<CacheNote>>, adopt: &str) -> String {
    let is_moved = Notes::of_its_original::<CacheNote>(config).is_ok_and(|note| note.is_some());
    match is_moved || note.as_ref().is_ok_and(Option::is_some) {
        true => format!(
            "if the slow file was moved here, or its loop device came or went, and the file was not written since: \
             {adopt} --moved while no daemon runs; "
        ),
        false => String::new(),
    }
}

/// Advice to accept the losses of a damaged cache, and the known age of the lost data.
fn how_to_accept(configuration: &Configuration, cache: &Cache) -> String {
    let (file, place) = (configuration.file.display(), &cache.place);
    let written = match cache.settings.dirty_age {
        Some(age) => format!(
            "all of this data was written in the last {age} before the daemon ended, if the slow device kept up \
             (dirty_age)"
        ),
        None => "the time at which this data was written is not recorded".to_owned(),
    };
    format!(
        "{written}; to accept the loss: put accept_losses = true into {} ({file}:{}), then plimsoll up {file} (a copy \
         of {} made before that keeps its content)",
        place.path,
        place.line,
        cache.settings.path.display()
    )
}

/// Advice for a volume with another size, although its cache was not detached.
fn how_to_resize(configuration: &Configuration, config: &VolumeConfig, was_blocks: u64, is_blocks: u64) -> String {
    let (file, volume) = (configuration.file.display(), &config.name);
    let was_bytes = was_blocks * plimsoll_cache::store::BLOCK_BYTES as u64;
    let longer = match is_blocks > was_blocks {
        true => String::new(),
        false => format!(" (a file that was truncated: truncate -s {was_bytes} first)"),
    };
    format!(
        "nothing is lost: put size = \"{was_bytes} B\" back into volume.{volume}; the file or device may stay \
         longer{longer}; then plimsoll up {file}, plimsoll cache detach {volume}, and only then change the size, and plimsoll cache make {file}"
    )
}
