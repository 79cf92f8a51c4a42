//! `plimsoll cache ...`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::{
    CacheCommand, CacheDetachArguments, CachePolicyArguments, CacheVolumeArguments, DaemonArguments,
    DaemonOutputArguments,
};
use crate::config::{Defaults, load};
use crate::control::client::Client;
use crate::control::protocol::{CacheChange, Request, Response};
use crate::metrics::reading::Reading;
use crate::metrics::text;
use crate::outcome::{Failure, Outcome};
use crate::up;
use plimsoll_engine::cache::sizes_instead_of;
use plimsoll_engine::status::not_clean;
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
        let entry = caches.items().iter().find(|entry| entry.text("volume") == volume).ok_or_else(|| {
            Failure::Failed(format!(
                "volume {volume} has no cache any more: another command has taken it away meanwhile"
            ))
        })?;
        let cache = entry.at("cache");
        let (Reading::Count(dirty), Reading::Count(clean)) = (cache.at("dirty_units"), cache.at("clean_passes")) else {
            return Err(unexpected());
        };
        if *dirty == 0 || *clean >= passes {
            return Ok(());
        }
        if !cache.is("is_cleaning") {
            return Err(Failure::Failed(format!("volume {volume}: {}", why_not_clean(volume, cache))));
        }
        std::thread::park_timeout(PERIOD);
    }
}

/// Why not all that is dirty in the cache of `volume` could be written back.
fn why_not_clean(volume: &str, cache: &Reading) -> String {
    let ranges = |field| cache.at(field).parsed::<Vec<(u64, u64)>>().unwrap_or_default();
    let (unreadable, not_copied) = (ranges("unreadable_bytes"), ranges("not_copied_bytes"));
    let (unreadable, not_copied) =
        ((cache.count("unreadable"), &unreadable[..]), (cache.count("not_copied"), &not_copied[..]));
    not_clean(volume, cache.count("dirty_units"), unreadable, not_copied, cache.is("has_failed"))
}

fn list(client: &mut Client) -> Result<Reading, Failure> {
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
    print(text::caches(&caches))
}
