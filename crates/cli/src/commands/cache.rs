//! `plimsoll cache ...`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::{
    CacheCommand, CacheDetachArguments, CachePolicyArguments, CacheVolumeArguments, DaemonArguments,
    DaemonOutputArguments,
};
use crate::config::{Defaults, load};
use crate::control::client::Client;
use crate::control::protocol::{CacheChange, CacheEntry, Request, Response};
use crate::metrics::caches::{CACHE, CACHE_CLASS, CACHE_POOL, ClassInCache};
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use crate::up;
use plimsoll_engine::cache::sizes_instead_of;
use std::time::Duration;

/// How often it is looked whether a flush is done.
const PERIOD: Duration = Duration::from_millis(200);

pub(super) fn run(command: &CacheCommand) -> Outcome {
    match command {
        CacheCommand::Status(arguments) => status(arguments),
        CacheCommand::Make(arguments) => {
            let configuration = load(&arguments.file, &Defaults::of_this_user())?;
            print(up::make_cache(&configuration, &arguments.cache, arguments.replace)?)
        }
        CacheCommand::Adopt(arguments) => {
            let configuration = load(&arguments.file, &Defaults::of_this_user())?;
            print(up::adopt_cache(&configuration, &arguments.cache, arguments.moved)?)
        }
        CacheCommand::Forget(arguments) => {
            let configuration = load(&arguments.file, &Defaults::of_this_user())?;
            print(up::forget_cache(&configuration, &arguments.volume)?)
        }
        CacheCommand::Flush(CacheVolumeArguments { volume, daemon }) => {
            flush(&mut connect(daemon)?, volume)?;
            print(format!("volume {volume}: all dirty data is on the slow device"))
        }
        CacheCommand::Attach(arguments) => {
            let (volume, cache) = (arguments.volume.clone(), arguments.cache.clone());
            done(&arguments.daemon, &Request::CacheAttach { volume, cache, make: arguments.make }, None)
        }
        CacheCommand::Rescue(arguments) => {
            let configuration = load(&arguments.file, &Defaults::of_this_user())?;
            print(up::rescue_cache(&configuration, &arguments.volume)?)
        }
        CacheCommand::Detach(CacheDetachArguments { volume, lost, daemon }) => {
            let request = Request::CacheDetach { volume: volume.clone(), lost: *lost };
            // What cannot be read is no reason to stop then.
            done(daemon, &request, Some(volume).filter(|_| !*lost))
        }
        CacheCommand::Resize(arguments) => {
            let (volume, size_bytes) = (arguments.volume.clone(), arguments.size.0);
            // A refused size must not cost a flush.
            if let Some(allowed) = sizes_instead_of(size_bytes) {
                return Err(Failure::BadInput(format!("size: got {}, allowed {allowed}", arguments.size)));
            }
            done(&arguments.daemon, &Request::CacheResize { volume, size_bytes }, Some(&arguments.volume))
        }
        CacheCommand::Policy(arguments) => policy(arguments),
    }
}

/// Asks the daemon to do something, after most dirty blocks in the cache of `volume` were written back.
fn done(daemon: &DaemonArguments, request: &Request, volume: Option<&String>) -> Outcome {
    let mut client = connect(daemon)?;
    if let Some(volume) = volume {
        flush(&mut client, volume)?;
    }
    match client.ask_patiently(request)? {
        Response::Done(what) => print(what),
        _ => Err(unexpected()),
    }
}

fn policy(arguments: &CachePolicyArguments) -> Outcome {
    let classes = arguments.classes.clone().map(|classes| match classes.ends_with(".toml") {
        // The daemon may have been started elsewhere.
        true => std::path::absolute(&classes).map_or(classes, |path| path.display().to_string()),
        false => classes,
    });
    let semantics = arguments.semantics.clone();
    let change = CacheChange { policy: arguments.policy.clone(), classes, strict: None, semantics };
    if change == CacheChange::default() {
        return Err(Failure::BadInput("got nothing to change, allowed --policy, --classes and --semantics".into()));
    }
    done(&arguments.daemon, &Request::CacheSet { volume: arguments.volume.clone(), change }, None)
}

/// Waits until what is dirty is on the slow device.
fn flush(client: &mut Client, volume: &str) -> Outcome {
    let answer = client.ask(&Request::CacheFlush { volume: volume.to_owned() })?;
    let Response::CacheFlushing { passes } = answer else { return Err(unexpected()) };
    loop {
        let caches = list(client)?;
        let entry = caches.into_iter().find(|entry| entry.volume == volume).ok_or_else(|| {
            Failure::Failed(format!("volume {volume} has no cache any more: another command has detached it meanwhile"))
        })?;
        let cache = entry.cache;
        if cache.dirty_units == 0 || cache.clean_passes >= passes {
            return Ok(());
        }
        if !cache.is_cleaning {
            return Err(Failure::Failed(format!("volume {volume}: {}", cache.not_clean(volume))));
        }
        std::thread::park_timeout(PERIOD);
    }
}

fn list(client: &mut Client) -> Result<Vec<CacheEntry>, Failure> {
    match client.ask(&Request::CacheList {})? {
        Response::Caches(caches) => Ok(caches),
        _ => Err(unexpected()),
    }
}

fn status(arguments: &DaemonOutputArguments) -> Outcome {
    let caches = list(&mut connect(&arguments.daemon)?)?;
    if arguments.json {
        return print_json(&caches);
    }
    if caches.is_empty() {
        return print("no volume has a cache");
    }
    let pools = match caches.iter().any(|entry| !entry.cache.pools.is_empty()) {
        true => format!("\n{}", pools(&caches)),
        false => String::new(),
    };
    print(format!("{}\n{}{pools}", whole_caches(&caches), classes(&caches)))
}

/// Pools that may fill only a part of a cache.
fn pools(caches: &[CacheEntry]) -> Table {
    let pools = caches.iter().flat_map(|entry| entry.cache.pools.iter().map(|pool| ([entry.volume.clone()], pool)));
    CACHE_POOL.table_in(["volume"], pools)
}

fn whole_caches(caches: &[CacheEntry]) -> Table {
    CACHE.table_in(["volume"], caches.iter().map(|entry| ([entry.volume.clone()], &entry.cache)))
}

fn classes(caches: &[CacheEntry]) -> Table {
    let classes: Vec<_> = caches.iter().map(|entry| (&entry.volume, ClassInCache::of(&entry.cache))).collect();
    let classes = classes.iter().flat_map(|(volume, of)| of.iter().map(|class| ([volume.to_string()], class)));
    CACHE_CLASS.table_in(["volume"], classes)
}
