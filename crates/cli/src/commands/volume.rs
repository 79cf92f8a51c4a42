//! `plimsoll volume list`.

use super::{connect, print, print_json, unexpected};
use crate::arguments::VolumeCommand;
use crate::control::doors::in_words;
use crate::control::protocol::{Request, Response};
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
        let served = in_words(&volume.served_as);
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
