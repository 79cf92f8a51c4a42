//! A volume's content: the keys `file`, `memory`, `compression` and `encryption` of `[volume.NAME]`.

use super::{SIZE, Volume};
use crate::config::paths::{path, refused_file};
use plimsoll_core::ByteCount;
use plimsoll_engine::backend::{COMPRESSION_LEVELS, KEY_OPENED, KeyError, check_key};
use plimsoll_settings::key::{Absent, Boolean, Key, KeyTable, SubTable, Text};
use plimsoll_settings::{Problem, Section, quoted};
use std::fmt;
use std::path::{Path, PathBuf};

/// How volumes in memory can be compressed.
const COMPRESSION_ALLOWED: &str = "\"zstd\", or \"zstd:LEVEL\" with 1 to 19";
const KEY_FILE_ALLOWED: &str = "the path of a file with 64 random bytes";

pub(in crate::config) const FILE: Key<Text> = Key {
    name: "file",
    form: Text::new("path", "the path of a file or block device"),
    absent: Absent::Words("exactly one of `file` and `memory = true` is required"),
    help: "its content is there: a file or block device, each once, that exists and has at least `size` bytes",
};
pub(super) const MEMORY: Key<Boolean> = Key {
    name: "memory",
    form: Boolean,
    absent: Absent::Words("exactly one of `file` and `memory = true` is required"),
    help: "its content is in memory, gone when the daemon ends",
};
pub(in crate::config) const COMPRESSION: Key<Text> = Key {
    name: "compression",
    form: Text::new("text", COMPRESSION_ALLOWED),
    absent: Absent::Words("as it is"),
    help: "with `memory`: its content is kept compressed, by the threads of [`[executor]`](#executor); `\"zstd\"` is \
           `\"zstd:1\"`",
};
pub(in crate::config) const ENCRYPTION: Key<SubTable> = Key {
    name: "encryption",
    form: SubTable { table: &ENCRYPTION_TABLE },
    absent: Absent::Words("it is not"),
    help: "with `file`: the content of `file` is encrypted (AES-256-XTS), by the threads of [`[executor]`](#executor) \
           ([encryption.md](encryption.md)). Not with `cache`",
};
const KEY_FILE: Key<Text> = Key {
    name: "key_file",
    form: Text::new("path", KEY_FILE_ALLOWED),
    absent: Absent::Required(KEY_FILE_ALLOWED),
    help: "the key; only the file's owner may read it",
};
const ENCRYPTION_TABLE: KeyTable = KeyTable { path: "volume.NAME.encryption", keys: &[&KEY_FILE] };

/// Where a volume's content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In a file or a block device.
    File {
        /// Its absolute path.
        path: PathBuf,
        /// Where the key is that it is encrypted with; `None`: it is not.
        key_file: Option<PathBuf>,
    },
    /// In memory, gone when the daemon ends.
    Memory,
    /// The same, compressed and with checksums.
    CompressedMemory {
        /// zstd's.
        level: u8,
    },
}

impl Backing {
    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Backing::File { key_file: Some(_), .. })
    }

    /// Whether it is gone when the daemon ends.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Backing::Memory | Backing::CompressedMemory { .. })
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backing::File { path, key_file: None } => write!(out, "{}", path.display()),
            Backing::File { path, key_file: Some(_) } => write!(out, "{}, encrypted", path.display()),
            Backing::Memory => out.write_str("memory"),
            Backing::CompressedMemory { .. } => out.write_str("memory, compressed"),
        }
    }
}

pub(super) fn read(section: &mut Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<Backing> {
    const ALLOWED: &str = "exactly one of file = \"PATH\" and memory = true";
    let file = FILE.read(section, problems, |text| path(text, directory));
    let memory = MEMORY.read(section, problems);
    match (section.place().has(FILE.name), memory) {
        (true, Some(true)) => problems.push(section.place().problem(MEMORY.name, "both a file and memory", ALLOWED)),
        (false, None | Some(false)) if section.place().has(MEMORY.name) == memory.is_some() => {
            problems.push(section.place().problem("", "neither a file nor memory", ALLOWED));
        }
        _ => {}
    }
    let level = COMPRESSION.read(section, problems, compression_level);
    if level.is_some() && memory != Some(true) {
        problems.push(section.place().problem(
            COMPRESSION.name,
            "compression of a volume in a file",
            "only with memory = true",
        ));
    }
    let encryption = ENCRYPTION.read(section, problems);
    let is_encrypted = encryption.is_some();
    let key_file = encryption.and_then(|section| key_file(section, directory, problems));
    if is_encrypted && memory == Some(true) {
        let (got, allowed) = ("encryption of a volume in memory", "only with file = \"PATH\"");
        problems.push(section.place().problem(ENCRYPTION.name, got, allowed));
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

/// The process that serves the volume checks the file itself, when it opens the volume.
fn key_file(mut section: Section<'_>, directory: &Path, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    KEY_FILE.require(&mut section, problems);
    let key_file = KEY_FILE.read(&mut section, problems, |text| path(text, directory));
    section.finish(problems);
    key_file
}

/// Files of volumes that are there and cannot be what the configuration says. What is not there may come before the
/// daemon starts.
/// `configuration` is the path of the file that is checked.
pub(in crate::config) fn check_files(volumes: &[Volume], configuration: &Path, problems: &mut Vec<Problem>) {
    for volume in volumes {
        let Backing::File { path, key_file } = &volume.backing else { continue };
        let refused = refused_file(&volume.place, FILE.name, path, configuration);
        problems.extend(refused.or_else(|| of_volume(volume, path)));
        problems.extend(key_file.as_deref().and_then(|key| of_key(volume, key)));
    }
}

fn of_volume(volume: &Volume, path: &Path) -> Option<Problem> {
    let metadata = std::fs::metadata(path).ok()?;
    let (kind, shown) = (metadata.file_type(), quoted(&path.to_string_lossy()));
    let (has, size) = (ByteCount(metadata.len()), ByteCount(volume.size_bytes));
    let is_short = kind.is_file() && volume.place.is_understood(SIZE.name) && has.0 < size.0;
    is_short.then(|| {
        let (has, size) = (has.beside(size), size.beside(has));
        volume.place.problem(
            SIZE.name,
            format!("{size}, and {shown} has {has}"),
            "at most what the file has, or a longer file",
        )
    })
}

/// A key that this user may not read is read at the start, by the daemon's user.
fn of_key(volume: &Volume, key: &Path) -> Option<Problem> {
    let error = match check_key(key).err()? {
        KeyError::System { action: KEY_OPENED, .. } => return None,
        error => error.to_string(),
    };
    let (is, allowed) =
        error.split_once(", allowed ").unwrap_or((&error, "a file of the daemon's user with 64 random bytes"));
    let (place, got) = (&volume.place, format!("{}: {is}", quoted(&key.to_string_lossy())));
    let (line, key) = (place.line_of(ENCRYPTION.name), format!("{}.{}", place.dotted(ENCRYPTION.name), KEY_FILE.name));
    Some(Problem { line, key, got, allowed: allowed.to_owned() })
}
