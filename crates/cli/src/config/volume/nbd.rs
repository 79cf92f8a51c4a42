//! `[volume.NAME.nbd]`: a volume as an NBD export.

use super::Volume;
use plimsoll_settings::key::{Absent, Key, KeyTable, Text};
use plimsoll_settings::{Place, Problem, Section, quoted};
use std::collections::BTreeMap;

/// Longest export name of the NBD protocol. Bytes.
const EXPORT_NAME_BYTES_MAX: usize = 4096;
const EXPORT_ALLOWED: &str = "1 to 4096 bytes without control characters";

const EXPORT: Key<Text> = Key {
    name: "export",
    form: Text::new("text", EXPORT_ALLOWED),
    absent: Absent::Words("the volume's name"),
    help: "the name that clients ask for; each once",
};

pub(super) const TABLE: KeyTable = KeyTable { path: "volume.NAME.nbd", keys: &[&EXPORT] };

/// A section `[volume.NAME.nbd]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// What clients ask for.
    pub name: String,
    /// Where the section stands.
    pub place: Place,
}

pub(super) fn read(volume: &str, mut section: Section<'_>, problems: &mut Vec<Problem>) -> Export {
    let name = EXPORT.read(&mut section, problems, |text| {
        let is_fine = (1..=EXPORT_NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_fine { Ok(text.to_owned()) } else { Err(EXPORT_ALLOWED.to_owned()) }
    });
    let place = section.finish(problems);
    Export { name: name.unwrap_or_else(|| volume.to_owned()), place }
}

/// A name leads to one export.
pub(in crate::config) fn check_names_once(volumes: &[Volume], problems: &mut Vec<Problem>) {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in volumes {
        let Some(export) = volume.export.as_ref().filter(|export| export.place.is_understood(EXPORT.name)) else {
            continue;
        };
        if let Some(first) = users.get(export.name.as_str()) {
            let got = format!("the export name of volume {first:?}, {}", quoted(&export.name));
            problems.push(export.place.problem(EXPORT.name, got, "a name of its own"));
        } else {
            users.insert(&export.name, &volume.name);
        }
    }
}
