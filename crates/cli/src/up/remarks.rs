//! Keys of caches that are there already, of which nothing comes: `check` and the start of a daemon say so.

use crate::config::{Cache, Configuration};
use plimsoll_core::ByteCount;
use plimsoll_engine::cache::{DirtyMax, cached_bytes_of, cached_bytes_on};

/// A line for each key without effect. A cache that is made in memory's place at each start has its size from the file.
pub(crate) fn remarks(configuration: &Configuration) -> Vec<String> {
    let lines = configuration.caches.iter().flat_map(|cache| {
        let owner = configuration.volumes.iter().find(|volume| volume.cache.as_ref() == Some(&cache.name));
        match owner {
            Some(volume) if volume.backing.is_in_memory() => Vec::new(),
            owner => of_cache(configuration, cache, owner.map(|volume| &*volume.name)),
        }
    });
    lines.collect()
}

fn of_cache(configuration: &Configuration, cache: &Cache, volume: Option<&str>) -> Vec<String> {
    let Some(has_bytes) = cached_bytes_on(&cache.settings.path) else { return Vec::new() };
    let (has, file, place) = (ByteCount(has_bytes), configuration.file.display(), &cache.place);
    let at = |key: &str| format!("{file}:{}: {}", place.line_of(key), place.dotted(key));
    let mut lines = Vec::new();
    if let Some(size) = cache.settings.size_bytes
        && let Some(would) = cached_bytes_of(size).filter(|would| *would != has_bytes)
    {
        let (size, would) = (ByteCount(size), ByteCount(would));
        let resize = match volume {
            Some(volume) => format!("plimsoll cache resize {volume} \"{} B\"", size.0),
            None => "plimsoll cache resize".to_owned(),
        };
        lines.push(format!(
            "{}: {size} has no effect on the cache that is there: it holds {}, not {} (to give it another size: {resize})",
            at("size"),
            has.beside(would),
            would.beside(has)
        ));
    }
    if let Some(DirtyMax::Bytes(most)) = cache.settings.dirty_max
        && most > has_bytes
    {
        let most = ByteCount(most);
        lines.push(format!(
            "{}: {} has no effect on the cache that is there: it holds {}",
            at("dirty_max"),
            most.beside(has),
            has.beside(most)
        ));
    }
    lines
}
