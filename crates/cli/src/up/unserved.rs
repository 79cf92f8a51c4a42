//! Volumes that would be served without the cache that has what is newest of them, though no note says so.

use super::plan;
use crate::config::{Cache, Configuration, Problem, Volume, quoted};
use crate::outcome::Failure;
use plimsoll_core::ByteCount;
use plimsoll_engine::cache::{BelongsBy, UnservedCache, forget_unserved, unserved_cache};

/// Every volume that has blocks in a cache which the configuration does not give to it, and which are nowhere else.
pub(super) fn volumes(configuration: &Configuration) -> Vec<Problem> {
    let problems = configuration.volumes.iter().filter_map(|section| {
        let unserved = cache_of(configuration, section)?;
        Some(problem(configuration, section, &unserved))
    });
    problems.collect()
}

/// Notes that cannot be read are told where the volume's own is read.
fn cache_of(configuration: &Configuration, section: &Volume) -> Option<UnservedCache> {
    let is_other = |cache: &&Cache| section.cache.as_ref() != Some(&cache.name);
    let caches = configuration.caches.iter().filter(is_other);
    let caches: Vec<_> = caches.map(|cache| (cache.name.clone(), cache.settings.path.clone())).collect();
    let others = configuration.volumes.iter().filter(|other| other.name != section.name);
    let others: Vec<_> = others.map(|other| plan::volume(configuration, other)).collect();
    let (notes, volume) = (plan::notes(configuration), plan::volume(configuration, section));
    let found = unserved_cache(&notes, &volume, section.size_bytes, &caches, &others).ok()??;
    // A volume with another cache is not taken for a volume of another name.
    (section.cache.is_none() || found.belongs_by == BelongsBy::Store).then_some(found)
}

fn problem(configuration: &Configuration, section: &Volume, unserved: &UnservedCache) -> Problem {
    let UnservedCache { cache, path, belongs_by, dirty_units, .. } = unserved;
    let (file, volume, path) = (configuration.file.display(), &section.name, path.display());
    let has = dirty_units.map_or("records that do not tell what is dirty".to_owned(), |units| {
        format!("{} not yet on the slow device", ByteCount(u64::from(units) << 12))
    });
    let got = section.cache.as_deref().map_or("none".to_owned(), quoted);
    let forget = format!("plimsoll cache forget {file} {volume}");
    let (owner, way) = match belongs_by {
        BelongsBy::Store => (
            "of this volume",
            format!(
                "to serve it: put cache = {} into the section, then plimsoll cache adopt {file} {cache}; to do without, and lose what only \
                 that cache has: {forget}",
                quoted(cache)
            ),
        ),
        BelongsBy::Name => (
            "of the volume of this name, which had another slow file then",
            format!("to serve it: bring that file back; to serve this one as it is: {forget}"),
        ),
        BelongsBy::Size => (
            "of a volume of this size that no note names",
            format!("if it is this one: bring back the slow file that the cache is of; to serve it as it is: {forget}"),
        ),
    };
    let got = format!("{got}, and cache {cache} on {path} has {has}, {owner}");
    section.place.problem("cache", got, format!("the cache that has what is newest of the volume ({way})"))
}

/// Takes the word that a volume is served without the cache that it would be refused for. `None`: there is none.
pub(super) fn forget(configuration: &Configuration, section: &Volume) -> Option<Result<String, Failure>> {
    let unserved = cache_of(configuration, section)?;
    let (file, line, name) = (configuration.file.display(), section.place.line, &section.name);
    let (cache, path) = (&unserved.cache, unserved.path.display());
    let (notes, volume) = (plan::notes(configuration), plan::volume(configuration, section));
    Some(match forget_unserved(&notes, &volume, &unserved) {
        Ok(true) => Ok(format!("volume {name}: cache {cache} on {path} is given up, and what only it had is lost")),
        Ok(false) => {
            Ok(format!("volume {name}: is served as it is; cache {cache} on {path} stays, with what only it has"))
        }
        Err(error) => {
            Err(Failure::Failed(format!("{file}:{line}: volume.{name}: cannot forget the cache {cache}: {error}")))
        }
    })
}
