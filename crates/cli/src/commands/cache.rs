//! `plimsoll cache ...`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::{
    CacheCommand, CacheDetachArguments, CachePolicyArguments, CacheVolumeArguments, DaemonArguments,
    DaemonOutputArguments,
};
use crate::config::{Defaults, load};
use crate::control::client::Client;
use crate::control::protocol::{CacheChange, CacheEntry, Request, Response};
use crate::outcome::{Failure, Outcome};
use crate::table::Table;
use crate::up;
use plimsoll_core::{ByteCount, Span};
use plimsoll_engine::CacheStatus;
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
            print(format!("volume {volume}: what was dirty is on the slow device"))
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

/// Has the daemon do something, after most of what is dirty in the cache of `volume` was written back.
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
            Failure::Failed(format!(
                "volume {volume} has no cache any more: another command has taken it away meanwhile"
            ))
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
    let mut table = Table::new(&["volume", "pool", ">size", ">at most"]);
    for CacheEntry { volume, cache, .. } in caches {
        for pool in &cache.pools {
            let bytes = |units: u32| ByteCount(u64::from(units) << 12).to_string();
            table.row([volume.clone(), pool.pool.clone(), bytes(pool.units), bytes(pool.units_max)]);
        }
    }
    table
}

fn whole_caches(caches: &[CacheEntry]) -> Table {
    let mut table = Table::new(&[
        "volume",
        "cache",
        "policy",
        "semantics",
        ">size",
        ">used",
        ">dirty",
        ">at most",
        ">free",
        ">paced",
        "syncer",
        ">copied",
        ">past it",
        "state",
    ]);
    for CacheEntry { volume, cache, .. } in caches {
        let bytes = |units: u32| ByteCount(u64::from(units) << 12).to_string();
        let blocks = |blocks: u64| ByteCount(blocks << 12).to_string();
        let damaged = cache.damaged_clean + cache.damaged_dirty;
        let state = match () {
            () if cache.has_failed => "FAILED: reads only".to_owned(),
            () if !cache.is_working => "begins or ends".to_owned(),
            () if damaged > 0 => format!("works, {damaged} blocks were DAMAGED, {} lost", cache.damaged_dirty),
            () if cache.bad_units > 0 => format!("works, {} units cannot be written", cache.bad_units),
            () => "works".to_owned(),
        };
        table.row([
            volume.clone(),
            cache.name.clone(),
            cache.policy.clone(),
            semantics(cache),
            bytes(cache.units),
            bytes(cache.used_units),
            bytes(cache.dirty_units),
            cache.writes.dirty_units_max.map_or("-".to_owned(), bytes),
            bytes(cache.free_units),
            format!("{} %", cache.paced_percent),
            if cache.is_cleaning || cache.is_syncer_awake { "awake" } else { "asleep" }.to_owned(),
            blocks(cache.cleaned),
            blocks(cache.writes_around),
            state,
        ]);
    }
    table
}

/// When a write is acknowledged, and how long what is dirty may stay so.
fn semantics(cache: &CacheStatus) -> String {
    let time = |nanoseconds: Option<u64>, what: &str| {
        nanoseconds.map_or(String::new(), |nanoseconds| format!(", {what} {}", Span::from_nanos(nanoseconds)))
    };
    let (age, idle) =
        (time(cache.writes.dirty_age_max_ns, "dirty for"), time(cache.writes.idle_write_back_ns, "idle for"));
    format!("{}{age}{idle}", cache.writes.semantics)
}

fn classes(caches: &[CacheEntry]) -> Table {
    let mut table = Table::new(&["volume", "class", ">size", ">of it", ">reads", ">hits", ">writes", ">hits"]);
    let part = |part: u64, whole: u64| match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 / whole as f64 * 100.0),
    };
    for CacheEntry { volume, cache, .. } in caches {
        for class in &cache.classes {
            table.row([
                volume.clone(),
                format!("{} {}", class.number, class.name).trim_end().to_owned(),
                ByteCount(u64::from(class.units) << 12).to_string(),
                part(class.units.into(), cache.units.into()),
                class.reads.to_string(),
                part(class.read_hits, class.reads),
                class.writes.to_string(),
                part(class.write_hits, class.writes),
            ]);
        }
    }
    table
}
