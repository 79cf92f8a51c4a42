//! `plimsoll check FILE`: what a configuration would serve, or everything that is wrong with it.

use super::{allocation_cells, print, print_json, text};
use crate::arguments::CheckArguments;
use crate::config::{Cache, Configuration, ConfigurationError, Defaults, Device, Volume, load};
use crate::outcome::Outcome;
use crate::table::Table;
use crate::up::{refused, remarks};
use plimsoll_core::{ByteCount, Rate, Span};
use plimsoll_engine::cache::{CacheSettings, DirtyMax, semantics_name};
use plimsoll_serve::attach::FileSystemPlan;
use plimsoll_serve::registry::{front_ends as registered, with_sockets};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) fn run(arguments: &CheckArguments) -> Outcome {
    let loaded = load(&arguments.file, &Defaults::of_this_user());
    let checked = loaded.and_then(|configuration| match refused(&configuration) {
        problems if problems.is_empty() => Ok(configuration),
        problems => Err(ConfigurationError { file: configuration.file, problems }),
    });
    match checked {
        Ok(configuration) if arguments.json => print_json(&as_json(&configuration)),
        Ok(configuration) => print(as_tables(&configuration)),
        Err(error) => {
            if arguments.json {
                print_json(&json!({ "file": text(&error.file), "errors": error.problems }))?;
            }
            Err(error.into())
        }
    }
}

fn as_tables(configuration: &Configuration) -> String {
    let mut devices = Table::new(&["device", "scheduler", "behaves like", ">worst case", ">queue"]);
    for device in &configuration.devices {
        let worst_case = Rate::RunsPerSecond(device.profile.worst_case_runs_per_second);
        devices.row([
            device.name.clone(),
            device.scheduler.clone(),
            behaviour(device),
            if device.is_worst_case_known() { worst_case.to_string() } else { "not known".into() },
            device.profile.outstanding_max.to_string(),
        ]);
    }
    let mut pools = Table::new(&["pool", "device", ">reserve", ">limit", ">weight", ">priority"]);
    for pool in &configuration.pools {
        let [reserve, limit, weight, priority] = allocation_cells(&pool.allocation);
        let path = configuration.pool_path(&pool.name);
        pools.row([path, pool.device.clone(), reserve, limit, weight, priority]);
    }
    let mut caches = Table::new(&["cache", "file", ">size", "policy", "classes", "semantics", "volume"]);
    for Cache { name, settings, classes, .. } in &configuration.caches {
        let volume = configuration.volumes.iter().find(|volume| volume.cache.as_ref() == Some(name));
        caches.row([
            name.clone(),
            settings.path.display().to_string(),
            settings.size_bytes.map_or("all of it".into(), |size| ByteCount(size).to_string()),
            settings.policy.name.to_owned(),
            classes.clone(),
            writes(settings),
            volume.map_or("-".into(), |volume| volume.name.clone()),
        ]);
    }
    let caches = if configuration.caches.is_empty() { String::new() } else { format!("{caches}\n") };
    let mut volumes = Table::new(&["volume", "pool", ">size", ">start", ">reserve", ">limit", "content", "served as"]);
    for volume in &configuration.volumes {
        let [reserve, limit, ..] = allocation_cells(&volume.allocation);
        volumes.row([
            volume.name.clone(),
            configuration.pool_path(&volume.pool),
            ByteCount(volume.size_bytes).to_string(),
            ByteCount(volume.start_bytes).to_string(),
            reserve,
            limit,
            content(volume),
            front_ends(volume).join(", "),
        ]);
    }
    let listen = registered().iter().flat_map(|entry| {
        let listens = configuration.listens(entry.section).iter();
        listens.map(|listen| format!("{} on {}\n", entry.title, listen.address))
    });
    let listen = listen.collect::<String>();
    let control = configuration.daemon.control_socket.display();
    let executor = configuration.service_threads().map_or(String::new(), |section| format!("executor: {section}\n"));
    let remarks: String = remarks(configuration).iter().map(|line| format!("{line}\n")).collect();
    format!("{devices}\n{pools}\n{caches}{volumes}\n{executor}{listen}control on unix:{control}\n{remarks}")
}

/// Where the bytes of a volume are, and how they are read.
fn content(volume: &Volume) -> String {
    let read_only = if volume.is_read_only { ", read-only" } else { "" };
    let ahead = volume.read_ahead.map(|ahead| format!(", {} ahead", ByteCount(ahead.bytes().into())));
    format!("{}{read_only}{}", volume.backing, ahead.unwrap_or_default())
}

/// What a device behaves like.
fn behaviour(device: &Device) -> String {
    match (&device.emulate, &device.observe) {
        (Some(model), _) => model.clone(),
        (None, Some(path)) => format!("itself, observed on {}", path.display()),
        (None, None) => "itself".to_owned(),
    }
}

fn front_ends(volume: &Volume) -> Vec<String> {
    let doors = registered().iter().filter_map(|entry| {
        let own = volume.door(entry.section)?;
        let shown = (entry.shown)(&own.name, "");
        Some(match &own.login {
            Some(chap) => format!("{shown} for {:?}", chap.initiator.user),
            None => shown,
        })
    });
    let mount = volume.mount.iter().map(|mount| match &mount.file_system {
        Some(FileSystemPlan { kind, target, .. }) => format!("{kind} on {}", target.display()),
        None => "loop device".to_owned(),
    });
    doors.chain(mount).collect()
}

/// When a write is acknowledged, and what may be dirty: as `plimsoll cache status` has it.
fn writes(settings: &CacheSettings) -> String {
    let time = |what: &str, span: Option<Span>| span.map_or(String::new(), |span| format!(", {what} {span}"));
    let dirty_max = settings.dirty_max.map_or(String::new(), |most| format!(", dirty at most {}", dirty_max(most)));
    let (age, idle) = (time("dirty for", settings.dirty_age), time("idle for", settings.idle_write_back));
    format!("{}{dirty_max}{age}{idle}", semantics_name(settings.semantics))
}

fn dirty_max(most: DirtyMax) -> String {
    match most {
        DirtyMax::Part(part) => format!("{}%", part * 100.0),
        DirtyMax::Bytes(bytes) => ByteCount(bytes).to_string(),
    }
}

fn cache_as_json(Cache { name, settings, classes, .. }: &Cache) -> Value {
    json!({
        "name": name,
        "file": text(&settings.path),
        "size_bytes": settings.size_bytes,
        "policy": settings.policy.name,
        "classes": classes,
        "promote_reads": settings.promotes_reads,
        "watermark_low": settings.watermark_low,
        "watermark_high": settings.watermark_high,
        "semantics": semantics_name(settings.semantics),
        "dirty_max": settings.dirty_max.map(dirty_max),
        "dirty_age_ns": settings.dirty_age.map(Span::as_nanos),
        "idle_write_back_ns": settings.idle_write_back.map(Span::as_nanos),
        "accept_losses": settings.accepts_losses,
        "pools": settings.pools.iter().map(|(path, part)| (path.clone(), json!(part))).collect::<serde_json::Map<_, _>>(),
    })
}

/// The doors of a volume: the front end, what clients ask for, and the user that they must prove to be.
fn doors_as_json(volume: &Volume) -> Vec<Value> {
    let own = with_sockets().filter_map(|(entry, _)| Some((entry, volume.door(entry.section)?)));
    own.map(|(entry, door)| {
        let user = door.login.as_ref().map(|login| &login.initiator.user);
        json!({ "front_end": entry.name, "name": door.name, "user": user })
    })
    .collect()
}

fn as_json(configuration: &Configuration) -> Value {
    let devices = configuration.devices.iter().map(|device| {
        json!({
            "name": device.name,
            "scheduler": device.scheduler,
            "emulate": device.emulate,
            "observe": device.observe.as_deref().map(text),
            "worst_case_runs_per_second":
                device.is_worst_case_known().then_some(device.profile.worst_case_runs_per_second),
            "outstanding_max": device.profile.outstanding_max,
        })
    });
    let pools = configuration.pools.iter().map(|pool| {
        json!({
            "name": pool.name,
            "parent": pool.parent,
            "device": pool.device,
            "allocation": pool.allocation,
        })
    });
    let caches = configuration.caches.iter().map(cache_as_json);
    let volumes = configuration.volumes.iter().map(|volume| {
        json!({
            "name": volume.name,
            "pool": volume.pool,
            "device": volume.device,
            "size_bytes": volume.size_bytes,
            "start_bytes": volume.start_bytes,
            "content": volume.backing.to_string(),
            "cache": volume.cache,
            "read_ahead_bytes": volume.read_ahead.map(|ahead| ahead.bytes()),
            "is_read_only": volume.is_read_only,
            "allocation": volume.allocation,
            "doors": doors_as_json(volume),
            // As `doors` has them, for programs that were written before it.
            "export": volume.door("nbd").map(|export| &export.name),
            "iscsi": volume.door("iscsi").map(|target| json!({
                "name": target.name,
                "chap_user": target.login.as_ref().map(|chap| &chap.initiator.user),
            })),
            "mount": volume.mount.as_ref().map(|mount| json!({
                "filesystem": mount.file_system.as_ref().map(|file_system| file_system.kind),
                "path": mount.file_system.as_ref().map(|file_system| text(&file_system.target)),
                "format": mount.file_system.as_ref().map(|file_system| file_system.format),
                "options": mount.file_system.as_ref().map(|file_system| &file_system.options),
            })),
        })
    });
    let addresses = |section: &str| {
        configuration.listens(section).iter().map(|listen| listen.address.to_string()).collect::<Vec<_>>()
    };
    json!({
        "file": text(&configuration.file),
        "control_socket": text(&configuration.daemon.control_socket),
        "state_directory": text(&configuration.daemon.state_directory),
        "notes_directory": text(&configuration.daemon.notes_directory),
        "addresses": with_sockets().map(|(entry, _)| (entry.name, addresses(entry.section))).collect::<BTreeMap<_, _>>(),
        // As `addresses` has them, for programs that were written before it.
        "listen": addresses("nbd"),
        "iscsi_listen": addresses("iscsi"),
        "executor": configuration.service_threads().map(|section| json!({
            "threads": section.thread_count(),
            "policy": section.policy,
        })),
        "devices": devices.collect::<Vec<_>>(),
        "pools": pools.collect::<Vec<_>>(),
        "caches": caches.collect::<Vec<_>>(),
        "remarks": remarks(configuration),
        "volumes": volumes.collect::<Vec<_>>(),
    })
}
