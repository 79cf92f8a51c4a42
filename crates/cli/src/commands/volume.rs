//! `plimsoll volume list`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::VolumeCommand;
use crate::control::protocol::{Request, Response, VolumeEntry};
use crate::outcome::Outcome;
use crate::table::Table;
use plimsoll_core::ByteCount;

pub(super) fn run(command: &VolumeCommand) -> Outcome {
    let VolumeCommand::List(arguments) = command;
    let Response::Volumes(volumes) = connect(&arguments.daemon)?.ask(&Request::VolumeList {})? else {
        return Err(unexpected());
    };
    if arguments.json {
        return print_json(&volumes);
    }
    let mut table = Table::new(&["volume", "account", "device", ">size", ">start", "content", "served as", ">users"]);
    for volume in volumes {
        let served = front_ends(&volume);
        let read_only = if volume.is_read_only { ", read-only" } else { "" };
        table.row([
            volume.name,
            volume.path,
            volume.device,
            ByteCount(volume.size_bytes).to_string(),
            ByteCount(volume.start_bytes).to_string(),
            format!("{}{read_only}", volume.content),
            served,
            volume.front_ends.to_string(),
        ]);
    }
    print(table)
}

/// What serves a volume: its export, its target, its block device, as far as it has them.
pub(super) fn front_ends(volume: &VolumeEntry) -> String {
    let export = volume.export.iter().map(|name| format!("NBD export {name:?}"));
    let target = volume.target.iter().map(|name| format!("iSCSI target {name}"));
    let block_device = volume.block_device.iter().map(|device| match &volume.mount_point {
        Some(mount_point) => format!("{} on {}", mount_point.display(), device.display()),
        None => device.display().to_string(),
    });
    export.chain(target).chain(block_device).collect::<Vec<_>>().join(", ")
}
