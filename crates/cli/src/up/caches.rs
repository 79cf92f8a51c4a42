//! The caches of the daemon's volumes: found and attached at the start, administered afterwards.

use super::cache_advice::{none_is_known, noted, why_not_without, with_advice};
use super::plan;
use super::refusal::Refusal;
use super::served::ServedDevice;
use super::unserved;
use crate::config::{Cache, Configuration, Volume, named_scheme, semantics_names, semantics_of};
use crate::control::protocol::{CacheChange, CacheEntry, Response};
use crate::outcome::Failure;
use plimsoll_cache::policies;
use plimsoll_cache::store::journal::RECORDS;
use plimsoll_cache::store::map::ENTRIES;
use plimsoll_cache::store::{OpenError, Report, Semantics};
use plimsoll_core::ByteCount;
use plimsoll_engine::EngineHandle;
use plimsoll_engine::backend;
use plimsoll_engine::cache::{CacheError, CacheSettings, Forgotten, FoundCache};
use plimsoll_engine::notes::DamagedNote;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes of a block.
const BLOCK_BYTES: u64 = plimsoll_cache::store::BLOCK_BYTES as u64;
/// Blocks that are named when they are lost.
const NAMED_MAX: usize = 10;

/// Finds the caches that the configuration gives to volumes, or reports all that is wrong with them.
pub(super) fn find(
    configuration: &Configuration,
    volumes: &[backend::Volume],
) -> Result<Vec<Option<FoundCache>>, Failure> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for (section, volume) in configuration.volumes.iter().zip(volumes) {
        let Some(cache) = section.cache.as_deref().and_then(|name| configuration.cache(name)) else {
            found.push(None);
            problems.extend(why_not_without(configuration, section, volume).map(Failure::Failed));
            continue;
        };
        match FoundCache::find(cache.settings.clone(), volume) {
            Ok(cache) => found.push(Some(cache)),
            Err(error) => {
                let (file, place) = (configuration.file.display(), &cache.place);
                let (line, key) = (place.line_of("file"), place.dotted("file"));
                let is_none = matches!(error, CacheError::Open { source: OpenError::NoCache, .. });
                let note = noted(configuration, volume, is_none);
                let advice = match (&error, note) {
                    (CacheError::InUse { path, by, .. }, _) => {
                        let (got, allowed) = plan::in_use_words(path, by);
                        problems.push(Failure::BadInput(format!("{file}:{line}: {key}: got {got}, allowed {allowed}")));
                        continue;
                    }
                    (CacheError::Open { source: OpenError::NoCache, .. }, Ok(None)) => {
                        none_is_known(configuration, section, cache, &error)
                    }
                    _ => with_advice(configuration, cache, volume.config(), &error),
                };
                problems.push(Failure::Failed(format!("{file}:{line}: {key}: {advice}")));
            }
        }
    }
    match Failure::of_all(problems) {
        None => Ok(found),
        Some(failure) => Err(failure),
    }
}

/// What was found, in a line.
pub(super) fn found_line(volume: &str, cache: &Cache, report: &Report) -> String {
    let bytes = |units: u32| ByteCount(u64::from(units) << 12);
    let Report { units, dirty_units, journal_blocks, records, lost_pages, lost_journal_blocks, .. } = *report;
    let Report { given_up_units, given_up_dirty_units, .. } = *report;
    let mut line = format!(
        "volume {volume}: cache {}, policy {}, {} found in it, {} of that not yet on the slow device",
        cache.name,
        cache.settings.policy.name,
        bytes(units),
        bytes(dirty_units)
    );
    if journal_blocks > 0 {
        line.push_str(&format!(", {records} records recovered from {journal_blocks} blocks of its journal"));
    }
    if report.unreadable_blocks > 0 {
        line.push_str(&format!(", {} blocks of its own records cannot be read", report.unreadable_blocks));
    }
    if report.has_losses() {
        line.push_str(&format!(
            ", LOST: {lost_pages} pages of its map, each of at most {}, {lost_journal_blocks} blocks of its journal, each of at most \
             {RECORDS} changes; GIVEN UP, since it may be old: {}, {} of that not yet on the slow device",
            bytes(ENTRIES as u32),
            bytes(given_up_units),
            bytes(given_up_dirty_units)
        ));
    }
    line
}

/// Administers the caches of a daemon, from any thread.
pub(super) struct Caches {
    configuration: Configuration,
    devices: Vec<ServedDevice>,
    /// Held while a cache comes, goes or changes. Others may look meanwhile.
    changing: Mutex<()>,
}

impl Caches {
    pub(super) fn new(configuration: Configuration, devices: Vec<ServedDevice>) -> Caches {
        Caches { configuration, devices, changing: Mutex::new(()) }
    }

    /// How all of them are.
    pub(super) fn list(&self) -> Result<Vec<CacheEntry>, Refusal> {
        let mut entries = Vec::new();
        for device in &self.devices {
            let caches = device.engine.caches()?.into_iter();
            let name = &device.profile.name;
            entries.extend(caches.map(|(volume, cache)| CacheEntry { volume, device: name.clone(), cache }));
        }
        Ok(entries)
    }

    /// Begins to write back what is dirty.
    pub(super) fn flush(&self, volume: &str) -> Result<Response, Refusal> {
        let (_, engine) = self.volume(volume)?;
        Ok(Response::CacheFlushing { passes: engine.begin_flush_cache(volume)? })
    }

    /// Puts a cache of the configuration before a volume.
    pub(super) fn attach(&self, volume: &str, cache: &str, makes: bool) -> Result<Response, Refusal> {
        let _changing = self.lock();
        let (section, engine) = self.volume(volume)?;
        let cache = self.cache(cache)?;
        // Before anything is made: a cache that is made gives up the one that the volume has.
        for entry in self.list()? {
            if entry.volume == volume {
                let has = &entry.cache.name;
                return Err(Refusal::Invalid(format!("volume {volume} has cache {has}, detach that first")));
            }
            if entry.cache.name == cache.name {
                return Err(Refusal::Invalid(format!("cache {} is that of volume {}", cache.name, entry.volume)));
            }
        }
        let found = self.found(engine, section, cache, cache.settings.clone(), makes)?;
        let mut line = found_line(volume, cache, &found.report);
        engine.attach_cache(volume, found)?;
        if section.cache.as_deref() != Some(&cache.name) {
            let (file, place) = (self.configuration.file.display(), &section.place);
            line.push_str(&format!(
                "; the next start refuses the volume, because {file}:{} does not name its cache: put cache = {:?} \
                 into that section",
                place.line, cache.name
            ));
        }
        Ok(Response::Done(line))
    }

    /// Detaches the cache of a volume. `may_lose` allows the loss of unreadable dirty data.
    pub(super) fn detach(&self, volume: &str, may_lose: bool) -> Result<Response, Refusal> {
        let _changing = self.lock();
        let (section, engine) = self.volume(volume)?;
        if may_lose {
            let lost = ByteCount(engine.detach_cache_with_losses(volume)?);
            let path = self.configuration.file.display();
            return Ok(Response::Done(format!(
                "volume {volume}: {lost} of dirty data could not be read and are lost, all other data is on the slow \
                 device, the cache is given up (take it out of {path}, too)"
            )));
        }
        engine.detach_cache(volume)?;
        let mut done = format!("volume {volume}: everything is on the slow device, the cache is given up");
        if section.cache.is_some() {
            let (file, place) = (self.configuration.file.display(), &section.place);
            let line = place.line_of("cache");
            done.push_str(&format!(
                "; the next start refuses the volume, because {file}:{line} still names the cache: take {} out",
                place.dotted("cache")
            ));
        }
        Ok(Response::Done(done))
    }

    /// Gives the cache of a volume another size: it starts empty.
    pub(super) fn resize(&self, volume: &str, size_bytes: u64) -> Result<Response, Refusal> {
        let _changing = self.lock();
        let (section, engine) = self.volume(volume)?;
        let entry = self.entry(volume)?;
        let cache = self.cache(&entry.cache.name)?;
        let settings = CacheSettings { size_bytes: Some(size_bytes), ..engine.cache_settings(volume)? };
        // Before anything is given up.
        plimsoll_engine::cache::check_size(&settings).map_err(|error| Refusal::Invalid(error.to_string()))?;
        engine.detach_cache_to_resize(volume, size_bytes)?;
        // From here on no failure loses data: the store has everything, and goes on without a cache.
        let made = self.found(engine, section, cache, settings, true);
        made.and_then(|found| Ok(engine.attach_cache(volume, found)?)).map_err(|why| {
            let name = &cache.name;
            Refusal::Failed(format!(
                "{why}; volume {volume} has no cache now, and everything is on the slow device (to put one before it \
                 again: \
                 plimsoll cache attach {volume} {name} --make)"
            ))
        })?;
        Ok(Response::Done(format!("volume {volume}: its cache has {}, and is empty", ByteCount(size_bytes))))
    }

    /// Gives the cache of a volume another policy, scheme or semantics.
    pub(super) fn change(&self, volume: &str, change: &CacheChange) -> Result<Response, Refusal> {
        if *change == CacheChange::default() {
            return Err(Refusal::Invalid("got nothing to change, allowed policy, classes and semantics".into()));
        }
        let _changing = self.lock();
        let (_, engine) = self.volume(volume)?;
        self.entry(volume)?;
        engine.change_cache(volume, changed(engine.cache_settings(volume)?, change)?)?;
        Ok(Response::Done(format!("volume {volume}: its cache is changed, and keeps its content")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(
        &self,
        engine: &EngineHandle,
        section: &Volume,
        cache: &Cache,
        settings: CacheSettings,
        makes: bool,
    ) -> Result<FoundCache, Refusal> {
        let (config, bytes) = engine.volume_config(&section.name)?;
        let found = FoundCache::find_or_make(settings, &config, bytes, makes);
        found.map_err(|error| Refusal::Failed(with_advice(&self.configuration, cache, &config, &error)))
    }

    fn entry(&self, volume: &str) -> Result<CacheEntry, Refusal> {
        let entry = self.list()?.into_iter().find(|entry| entry.volume == volume);
        entry.ok_or_else(|| Refusal::Invalid(format!("volume {volume} has no cache")))
    }

    fn cache(&self, name: &str) -> Result<&Cache, Refusal> {
        self.configuration.cache(name).ok_or_else(|| {
            let names = self.configuration.caches.iter().map(|cache| cache.name.as_str()).collect::<Vec<_>>();
            let names = if names.is_empty() { "none: the configuration has none".into() } else { names.join(", ") };
            Refusal::NotFound(format!("there is no cache {name:?}, allowed {names}"))
        })
    }

    fn volume(&self, name: &str) -> Result<(&Volume, &EngineHandle), Refusal> {
        let found = self.configuration.volumes.iter().find(|volume| volume.name == name);
        let section = found.ok_or_else(|| {
            Refusal::NotFound(format!("there is no volume {name:?}; plimsoll volume list shows what there is"))
        })?;
        let served = self.devices.iter().find(|device| device.profile.name == section.device);
        Ok((section, &served.expect("a volume is on a device").engine))
    }
}

/// The current settings of a cache with `change` applied; other settings stay.
fn changed(mut settings: CacheSettings, change: &CacheChange) -> Result<CacheSettings, Refusal> {
    if let Some(policy) = &change.policy {
        settings.policy = policies().iter().find(|known| known.name == policy).ok_or_else(|| {
            let names = policies().iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            Refusal::Invalid(format!("policy: got {}, allowed {names}", crate::config::quoted(policy)))
        })?;
    }
    if let Some(classes) = &change.classes {
        let wrong =
            |allowed| Refusal::Invalid(format!("classes: got {}, allowed {allowed}", crate::config::quoted(classes)));
        settings.scheme = named_scheme(classes, Path::new("/")).map_err(wrong)?;
    }
    if let Some(is_strict) = change.strict {
        settings.semantics = if is_strict { Semantics::Strict } else { Semantics::WriteCache };
    }
    if let Some(name) = &change.semantics {
        let (got, names) = (crate::config::quoted(name), semantics_names());
        let wrong = || Refusal::Invalid(format!("semantics: got {got}, allowed {names}"));
        settings.semantics = semantics_of(name).ok_or_else(wrong)?;
    }
    Ok(settings)
}

/// Forgets the cache of a volume, if no daemon runs: the volume is served without the cache's dirty data.
pub(crate) fn forget(configuration: &Configuration, name: &str) -> Result<String, Failure> {
    let file = configuration.file.display();
    let section = configuration.volumes.iter().find(|volume| volume.name == name).ok_or_else(|| {
        let names = configuration.volumes.iter().map(|volume| format!("{:?}", volume.name)).collect::<Vec<_>>();
        Failure::BadInput(format!("{file}: volume: got {name:?}, allowed {}", names.join(", ")))
    })?;
    let (notes, volume) = (plan::notes(configuration), plan::volume(configuration, section));
    let place = format!("{file}:{}: volume.{name}", section.place.line);
    let failed = |error: std::io::Error| Failure::Failed(format!("{place}: cannot forget its cache: {error}"));
    let forgotten = match plimsoll_engine::cache::forget(&notes, &volume) {
        Err(error) if DamagedNote::behind(&error).is_some() => {
            plimsoll_engine::cache::forget_damaged_note(&notes, &volume).map_err(failed)?;
            return Ok(format!(
                "volume {name}: is served without its cache from now on, and the cache's dirty data is lost; {error}, \
                 and the note is removed; WARNING: if a cache of this volume with content comes back, the daemon refuses it until plimsoll cache adopt"
            ));
        }
        forgotten => forgotten.map_err(failed)?,
    };
    match forgotten {
        None => unserved::forget(configuration, section).unwrap_or_else(|| {
            Err(Failure::BadInput(format!("{place}: got one without a cache, allowed one that has a cache")))
        }),
        Some((note, forgotten)) => {
            let (cache, path) = (&note.cache, note.path.display());
            let notes = configuration.daemon.notes_directory.display();
            let refused = format!(
                "if the cache comes back, the daemon refuses it as long as the notes in {notes} \
                                   exist"
            );
            let rest = match forgotten {
                Forgotten::OnDevice => String::new(),
                Forgotten::OfOriginal => {
                    return Ok(format!(
                        "volume {name}: is served without a cache from now on; cache {cache} on {path} belongs to the \
                         file that this one was copied or moved from, and stays"
                    ));
                }
                Forgotten::OfMoved => {
                    return Ok(format!(
                        "volume {name}: is served without a cache from now on; cache {cache} on {path} followed its \
                         slow file to another place, and stays with it"
                    ));
                }
                Forgotten::Elsewhere => format!("; WARNING: {path} holds something else than that cache; {refused}"),
                Forgotten::Unreadable => format!("; WARNING: its device cannot be opened or read; {refused}"),
            };
            Ok(format!("volume {name}: cache {cache} on {path} is given up, and its dirty data is lost{rest}"))
        }
    }
}

/// Copies the dirty data of a cache to the slow device of the volume called `name`, if no daemon serves it. Only reads
/// the cache's device.
pub(crate) fn rescue(configuration: &Configuration, name: &str) -> Result<String, Failure> {
    let file = configuration.file.display();
    let section = configuration.volumes.iter().find(|volume| volume.name == name).ok_or_else(|| {
        let names = configuration.volumes.iter().map(|volume| format!("{:?}", volume.name)).collect::<Vec<_>>();
        Failure::BadInput(format!("{file}: volume: got {name:?}, allowed {}", names.join(", ")))
    })?;
    let place = format!("{file}:{}: volume.{name}", section.place.line);
    let cache = section.cache.as_deref().and_then(|cache| configuration.cache(cache)).ok_or_else(|| {
        Failure::BadInput(format!("{place}: got one without a cache, allowed one with cache = \"NAME\""))
    })?;
    let opened = plan::open(configuration, section)?;
    let rescued = plimsoll_engine::cache::rescue(&cache.settings, &opened);
    let rescued = rescued.map_err(|error| {
        Failure::Failed(format!("{place}: {}", with_advice(configuration, cache, opened.config(), &error)))
    })?;
    let bytes = |units: usize| ByteCount(units as u64 * BLOCK_BYTES);
    let (copied, from) = (bytes(rescued.copied as usize), cache.settings.path.display());
    let done = format!("volume {name}: {copied} copied from {from} to the slow device");
    if rescued.lost.is_empty() {
        return Ok(format!(
            "{done}, nothing is missing (to do without the cache: plimsoll cache forget {file} {name})"
        ));
    }
    let named = rescued.lost.iter().take(NAMED_MAX).map(|block| (block * BLOCK_BYTES).to_string());
    let (named, more) = (named.collect::<Vec<_>>().join(", "), rescued.lost.len().saturating_sub(NAMED_MAX));
    let more = if more > 0 { format!(" and {more} others") } else { String::new() };
    Err(Failure::Failed(format!(
        "{done}; {} cannot be read: the {BLOCK_BYTES} bytes from each of {named}{more} (to give that up: plimsoll cache forget \
         {file} {name})",
        bytes(rescued.lost.len())
    )))
}

/// Makes the cache called `name` for its volume, while no daemon serves the volume.
pub(crate) fn make(configuration: &Configuration, name: &str, replaces: bool) -> Result<String, Failure> {
    let (cache, volume) = cache_and_volume(configuration, name)?;
    // No cache is made for a missing volume, nor for a volume that a daemon serves.
    let opened = plan::open(configuration, volume)?;
    let made = plimsoll_engine::cache::make(&cache.settings, opened.config(), volume.size_bytes, replaces);
    let units = made.map_err(|error| failed(configuration, cache, &error.to_string()))?;
    let bytes = ByteCount(u64::from(units) << 12);
    Ok(format!("cache {name}: {bytes} on {} for volume {}", cache.settings.path.display(), volume.name))
}

/// Notes, on the administrator's word and if no daemon runs, that the cache called `name` belongs to its volume.
/// `is_moved`: the slow file was moved.
pub(crate) fn adopt(configuration: &Configuration, name: &str, is_moved: bool) -> Result<String, Failure> {
    let (cache, section) = cache_and_volume(configuration, name)?;
    let opened = plan::open(configuration, section)?;
    let adopted = plimsoll_engine::cache::adopt(&cache.settings, &opened, is_moved);
    let advised = |error| failed(configuration, cache, &with_advice(configuration, cache, opened.config(), &error));
    let report = adopted.map_err(advised)?;
    Ok(format!("{}; a note now says that the volume has this cache", found_line(&section.name, cache, &report)))
}

fn failed(configuration: &Configuration, cache: &Cache, what: &str) -> Failure {
    Failure::Failed(format!("{}:{}: {what}", configuration.file.display(), cache.place.line))
}

/// The cache of that name, and the volume that has it.
fn cache_and_volume<'c>(configuration: &'c Configuration, name: &str) -> Result<(&'c Cache, &'c Volume), Failure> {
    let file = configuration.file.display();
    let cache = configuration.cache(name).ok_or_else(|| {
        let names = configuration.caches.iter().map(|cache| format!("{:?}", cache.name)).collect::<Vec<_>>().join(", ");
        Failure::BadInput(format!("{file}: cache: got {name:?}, allowed {names}"))
    })?;
    let volume = configuration.volumes.iter().find(|volume| volume.cache.as_deref() == Some(name));
    let volume = volume.ok_or_else(|| {
        let place = &cache.place;
        Failure::BadInput(format!(
            "{file}:{}: cache.{name}: got no volume, allowed a volume with cache = {name:?}",
            place.line
        ))
    })?;
    Ok((cache, volume))
}
