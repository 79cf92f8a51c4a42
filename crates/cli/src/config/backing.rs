//! Where a volume's content is, and how it lies there: the keys `file`, `memory`, `compression` and `encryption` of
//! `[volume.NAME]`.

use super::model::Backing;
use super::paths::path;
use plimsoll_engine::backend::COMPRESSION_LEVELS;
use plimsoll_settings::{Problem, Section};
use std::path::{Path, PathBuf};

/// How volumes in memory can be compressed.
const COMPRESSION_ALLOWED: &str = "\"zstd\", or \"zstd:LEVEL\" with 1 to 19";
const KEY_FILE: &str = "the path of a file with 64 random bytes";

pub(super) fn read(section: &mut Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<Backing> {
    const ALLOWED: &str = "exactly one of file = \"PATH\" and memory = true";
    let file = section.read("file", "the path of a file or block device", problems, |text| path(text, directory));
    let memory = section.boolean("memory", problems);
    match (section.place().has("file"), memory) {
        (true, Some(true)) => problems.push(section.place().problem("memory", "both a file and memory", ALLOWED)),
        (false, None | Some(false)) if section.place().has("memory") == memory.is_some() => {
            problems.push(section.place().problem("", "neither a file nor memory", ALLOWED));
        }
        _ => {}
    }
    let level = section.read("compression", COMPRESSION_ALLOWED, problems, compression_level);
    if level.is_some() && memory != Some(true) {
        problems.push(section.place().problem(
            "compression",
            "compression of a volume in a file",
            "only with memory = true",
        ));
    }
    let encryption = section.section("encryption", problems);
    let is_encrypted = encryption.is_some();
    let key_file = encryption.and_then(|section| key_file(section, directory, problems));
    if is_encrypted && memory == Some(true) {
        let (got, allowed) = ("encryption of a volume in memory", "only with file = \"PATH\"");
        problems.push(section.place().problem("encryption", got, allowed));
    }
    let in_memory = level.map_or(Backing::Memory, |level| Backing::CompressedMemory { level });
    file.map(|path| Backing::File { path, key_file }).or((memory == Some(true)).then_some(in_memory))
}

/// `zstd`, which is its first level, or `zstd:LEVEL`.
fn compression_level(text: &str) -> Result<u8, String> {
    let level = match text.strip_prefix("zstd") {
        Some("") => Some(*COMPRESSION_LEVELS.start()),
        Some(rest) => rest.strip_prefix(':').and_then(|level| level.parse().ok()),
        None => None,
    };
    level.filter(|level| COMPRESSION_LEVELS.contains(level)).ok_or_else(|| COMPRESSION_ALLOWED.to_owned())
}

/// The file itself is looked at when the volume is opened, by the process that serves it.
fn key_file(mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    section.require("key_file", KEY_FILE, problems);
    let key_file = section.read("key_file", KEY_FILE, problems, |text| path(text, directory));
    section.finish(problems);
    key_file
}
