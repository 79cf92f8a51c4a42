//! `[executor]` beside the volumes: whether the section has a user in this file.

use crate::config::sections::Sections;
use crate::config::volume::backing::{COMPRESSION, ENCRYPTION};
use crate::config::{Backing, Problem};

/// Service threads that have no work in this file.
pub(super) fn check(sections: &Sections, problems: &mut Vec<Problem>) {
    // A volume with keys that were not understood may have been meant as the user.
    let is_any = |key: &str| sections.volumes.iter().any(|volume| volume.place.has(key));
    if let Some(line) = sections.executor_line
        && !sections.volumes.iter().any(|volume| has_work(&volume.backing))
        && !is_any(COMPRESSION.name)
        && !is_any(ENCRYPTION.name)
    {
        let (key, got) = ("executor".to_owned(), "service threads without work".to_owned());
        problems.push(Problem { line, key, got, allowed: "only with a compressed or encrypted volume".to_owned() });
    }
}

fn has_work(backing: &Backing) -> bool {
    matches!(backing, Backing::CompressedMemory { .. } | Backing::File { key_file: Some(_), .. })
}
