//! What is said where a volume's cache is not found as the configuration has it, and what can be done about that.

use super::plan;
use crate::config::{Cache, Configuration, Volume};
use plimsoll_cache::store::OpenError;
use plimsoll_engine::backend::{self, VolumeConfig};
use plimsoll_engine::cache::{CacheError, CacheNote};
use plimsoll_engine::notes::Notes;
use std::io::{self, ErrorKind};

/// What is noted of a volume's cache. If it may, it first finishes what a daemon that was killed had begun: a cache
/// with everything on the slow device was about to leave, and it has no note any more.
pub(super) fn noted(
    configuration: &Configuration,
    volume: &backend::Volume,
    finishes: bool,
) -> io::Result<Option<CacheNote>> {
    let (notes, config) = (plan::notes(configuration), volume.config());
    let note = notes.get::<CacheNote>(config)?;
    match &note {
        Some(note) if finishes && note.leaving.is_some() && note.why_not_of(&config.name).is_none() => {
            plimsoll_engine::cache::forget(&notes, config)?;
            let (volume, cache) = (&config.name, &note.cache);
            tracing::warn!(
                volume,
                cache,
                "a daemon ended while it gave the cache up: everything is on the slow device, and the cache is gone now"
            );
            Ok(None)
        }
        _ => Ok(note),
    }
}

/// Why a volume that the configuration gives no cache is not served: it has one.
pub(super) fn why_not_without(
    configuration: &Configuration,
    section: &Volume,
    volume: &backend::Volume,
) -> Option<String> {
    let (file, place) = (configuration.file.display(), &section.place);
    let at = format!("{file}:{}: volume.{}: cache", place.line, section.name);
    let note = match noted(configuration, volume, true) {
        Ok(Some(note)) => note,
        Ok(None) => return why_not_a_copy(&at, configuration, section, volume),
        Err(error) => return Some(format!("{at}: cannot tell whether it has one: {error}")),
    };
    if let Some(why) = note.why_not_of(&section.name) {
        return Some(format!("{at}: {why}"));
    }
    let (name, path) = (&note.cache, note.path.display());
    Some(format!(
        "{at}: got none, allowed {name:?} on {path}, which was not detached: what is newest may be only there (to serve \
         it: put cache = {name:?} into the section; to do without it: plimsoll cache forget {file} {})",
        section.name
    ))
}

/// Why a file is not served that was copied or moved from one with a cache: what is newest may be in that cache only.
fn why_not_a_copy(
    at: &str,
    configuration: &Configuration,
    section: &Volume,
    volume: &backend::Volume,
) -> Option<String> {
    let note = match Notes::of_its_original::<CacheNote>(volume.config()) {
        Ok(note) => note?,
        Err(error) => return Some(format!("{at}: cannot tell whether it has one: {error}")),
    };
    let (name, cache, path) = (&section.name, &note.cache, note.path.display());
    Some(format!(
        "{at}: got none, and its file was copied or moved from one that has the cache {cache:?} on {path}: what is newest may be only \
         there, allowed a copy that was made after plimsoll cache detach (to serve it as it is: plimsoll cache forget {} {name})",
        configuration.file.display()
    ))
}

/// There is no cache on the device, and none is noted of the volume: it was detached, or never made.
pub(super) fn none_is_known(
    configuration: &Configuration,
    section: &Volume,
    cache: &Cache,
    error: &CacheError,
) -> String {
    let (file, line) = (configuration.file.display(), section.place.line_of("cache"));
    format!(
        "{error}, and volume {} has none: it was detached or never made; to make one: plimsoll cache make {file} {}; to do without: \
         take {} out of line {line}",
        section.name,
        cache.name,
        section.place.dotted("cache")
    )
}

/// An error, and what can be done about the cache of the volume that `config` describes.
pub(super) fn with_advice(
    configuration: &Configuration,
    cache: &Cache,
    config: &VolumeConfig,
    error: &CacheError,
) -> String {
    let command = |what: &str| format!("plimsoll cache {what} {} {}", configuration.file.display(), cache.name);
    let make = command("make");
    let lost = "if there was one, what only it had is lost";
    // A note that cannot be read may be one.
    let note = plan::notes(configuration).get::<CacheNote>(config);
    let is_noted = !matches!(note, Ok(None));
    let is_elsewhere = |note: &CacheNote| {
        note.leaving.is_none() && std::path::absolute(&cache.settings.path).is_ok_and(|path| path != note.path)
    };
    match error {
        CacheError::System { action: "open", .. } | CacheError::Open { .. } | CacheError::Content { .. }
            if note.as_ref().is_ok_and(|note| note.as_ref().is_some_and(is_elsewhere)) =>
        {
            let note = note.ok().flatten().expect("it was just there");
            let (volume, name, path) = (&config.name, &note.cache, note.path.display());
            format!(
                "{error}; volume {volume} has the cache {name:?} on {path}, which was not detached: put that into the configuration (to \
                 do without it, and lose what only it has: plimsoll cache forget {} {volume})",
                configuration.file.display()
            )
        }
        CacheError::System { action: "open", source, .. } if source.kind() == ErrorKind::NotFound => {
            let (replace, lost) =
                if is_noted { (" --replace", " (what only the old one had is lost)") } else { ("", "") };
            format!("{error}; to make one: {make}{replace}{lost}")
        }
        CacheError::ReadOnlyDevice { .. } | CacheError::System { action: "open", .. } if is_noted => {
            let (file, volume) = (configuration.file.display(), &config.name);
            format!(
                "{error}; if it can be read and not written: plimsoll cache rescue {file} {volume} copies what only it has, and \
                 plimsoll cache forget {file} {volume} gives it up then"
            )
        }
        CacheError::Open { source: OpenError::NoCache, .. } => {
            let replace = if is_noted { " --replace" } else { "" };
            format!("{error}; to make one: {make}{replace} ({lost})")
        }
        CacheError::Unnoted { .. } => format!(
            "{error}; if it has not: {} while no daemon runs; otherwise: {make} --replace (what only it had is lost)",
            command("adopt")
        ),
        CacheError::OtherContent { .. } => {
            format!("{error}; if it is the same, with another content: {} while no daemon runs", command("adopt"))
        }
        CacheError::GivenUp { .. } => {
            format!("{error}; to make another in its place: {make} --replace (what is there is lost)")
        }
        CacheError::Older { .. } => {
            format!("{error}; to make another in its place: {make} --replace (what only the newer one has is lost)")
        }
        CacheError::Open { source: OpenError::Damaged { .. }, .. } => {
            format!("{error}; accept_losses = true accepts that")
        }
        CacheError::Exists { .. } => format!("{error}, and its volume may need that ({make} --replace)"),
        CacheError::Open { source: OpenError::OtherStore { .. }, .. } => {
            format!(
                "{error}; to make another in its place: {make} --replace (what only that store's cache has is lost)"
            )
        }
        CacheError::Open { source: OpenError::NoSuperblock | OpenError::Spent, .. } => {
            format!("{error}; to make another in its place: {make} --replace ({lost})")
        }
        error => error.to_string(),
    }
}
