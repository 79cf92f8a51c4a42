//! Front ends and volumes together: where clients connect, names that lead to one door, front ends that go together on
//! a volume. All follows from what each front end of the registry says of itself, and nothing here names one.

use crate::config::volume::READ_ONLY;
use crate::config::{Listen, Listens, Problem, Volume, quoted};
use plimsoll_serve::connection::Address;
use plimsoll_serve::registry::{front_ends, with_sockets};
use plimsoll_serve::sockets::DoorSection;
use std::collections::BTreeMap;
use std::path::Path;

/// The addresses, with the default one of each front end that has a door and no address in the file.
pub(super) fn with_defaults(mut listens: Listens, volumes: &[Volume], state_directory: &Path) -> Listens {
    for (entry, sockets) in with_sockets() {
        if volumes.iter().any(|volume| volume.door(entry.section).is_some()) {
            let by_default = || vec![Listen { address: (sockets.tables.default_address)(state_directory), line: 0 }];
            listens.entry(entry.section).or_insert_with(by_default);
        }
    }
    listens
}

/// A name leads to one door.
pub(super) fn check_names_once(volumes: &[Volume], problems: &mut Vec<Problem>) {
    for (entry, sockets) in with_sockets() {
        let mut users: BTreeMap<&str, &str> = BTreeMap::new();
        let key = sockets.tables.name;
        for volume in volumes {
            let Some(door) = volume.door(entry.section).filter(|door| door.place.is_understood(key)) else { continue };
            if let Some(first) = users.get(door.name.as_str()) {
                let got = format!("{} of volume {first:?}, {}", sockets.words.the_name, quoted(&door.name));
                problems.push(door.place.problem(key, got, "a name of its own"));
            } else {
                users.insert(&door.name, &volume.name);
            }
        }
    }
}

/// From other machines, only clients that prove their identity may connect.
pub(super) fn check_reach(listens: &Listens, volumes: &[Volume], problems: &mut Vec<Problem>) {
    for (entry, sockets) in with_sockets() {
        let (section, Some(login)) = (entry.section, sockets.login) else { continue };
        let is_open = |door: &DoorSection| door.login.is_none() && door.place.is_understood(login);
        let Some(open) = volumes.iter().find(|volume| volume.door(section).is_some_and(is_open)) else { continue };
        for Listen { address, line } in listens.get(section).into_iter().flatten() {
            if matches!(address, Address::Tcp(address) if !address.ip().is_loopback()) {
                let (address, volume) = (address.to_string(), &open.name);
                let got = format!("{address:?}, which other machines reach, and volume {volume:?} without {login}");
                let allowed = format!(
                    "a loopback address such as 127.0.0.1 or [::1], or {login} for every volume with {section}"
                );
                problems.push(Problem { line: *line, key: format!("{section}.listen"), got, allowed });
            }
        }
    }
}

/// Addresses of a front end that no volume has.
pub(super) fn check_effect(listens: &Listens, volumes: &[Volume], problems: &mut Vec<Problem>) {
    for (entry, _) in with_sockets() {
        let section = entry.section;
        // A volume with keys that were not understood may have been meant as the user.
        if volumes.iter().any(|volume| volume.place.has(section)) {
            continue;
        }
        if let Some(Listen { address, line }) = listens.get(section).and_then(|addresses| addresses.first()) {
            let (key, got) = (format!("{section}.listen"), format!("{} for no volume", quoted(&address.to_string())));
            let allowed = format!("only with a volume that has {section} = {{}}");
            problems.push(Problem { line: *line, key, got, allowed });
        }
    }
}

/// Each volume has a front end, and those that it has go together.
pub(super) fn check_together(volumes: &[Volume], problems: &mut Vec<Problem>) {
    for volume in volumes {
        if !front_ends().iter().any(|entry| volume.place.has(entry.section)) {
            let tables: Vec<&str> = front_ends().iter().map(|entry| entry.a_section).collect();
            let got = format!("neither {} table", tables.join(" nor "));
            let allowed = "at least one of them: otherwise no client can use it";
            problems.push(volume.place.problem("", got, allowed));
        } else if volume.place.is_understood(READ_ONLY.name) && !volume.is_read_only {
            check_writers(volume, problems);
        }
    }
}

/// A volume that is written has no other writer beside clients with reservations: the other writer would not hear of
/// them. Nor has it one beside a file system of this machine.
fn check_writers(volume: &Volume, problems: &mut Vec<Problem>) {
    const ONE: &str = "one of the two, or read_only = true";
    let doors: Vec<_> =
        with_sockets().filter_map(|(entry, of)| Some((entry, of, volume.door(entry.section)?))).collect();
    let mut refuse = |door: &DoorSection, a_door: &str, is: &str, why: &str| {
        let got = format!("{a_door} of a volume that is {is}");
        problems.push(door.place.problem("", got, format!("{ONE}: {why}")));
    };
    const TWO_WRITERS: &str = "two writers would destroy the file system";
    for (entry, sockets, door) in doors.iter().filter(|(_, sockets, _)| sockets.has_reservations) {
        for (other, of_other, _) in doors.iter().filter(|(other, ..)| other.section != entry.section) {
            let why = format!("reservations would not hold for {} clients", other.title);
            refuse(door, sockets.words.a_door, of_other.words.served, &why);
        }
        if volume.mount.is_some() {
            refuse(door, sockets.words.a_door, "mounted here", TWO_WRITERS);
        }
    }
    for (_, sockets, door) in doors.iter().filter(|(_, sockets, _)| !sockets.has_reservations) {
        if volume.mount.as_ref().is_some_and(|mount| mount.is_mounted()) {
            refuse(door, sockets.words.a_door, "mounted here", TWO_WRITERS);
        }
    }
}
