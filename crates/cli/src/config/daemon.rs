//! `[daemon]`: the directories of notes, the control socket, and the memory of connections.

use super::defaults::{CONTROL_SOCKET_NAME, Defaults};
use super::paths::{SOCKET_PATH_BYTES_MAX, bounded, path, socket};
use plimsoll_core::ByteCount;
use plimsoll_engine::BUFFER_BYTES_MIN;
use plimsoll_settings::key::{Absent, Key, KeyTable, Quantity, Text};
use plimsoll_settings::{Place, Problem, Section};
use std::path::{Path, PathBuf};

pub(super) const STATE_DIRECTORY: Key<Text> = Key {
    name: "state_directory",
    form: Text::new("path", "the path of a directory"),
    absent: Absent::Words(
        "as root `/run/plimsoll`; otherwise `$XDG_RUNTIME_DIR/plimsoll`, or `plimsoll-UID` in the directory for \
         temporary files",
    ),
    help: "where the daemon notes what it attached, so that a successor can undo it after a kill -9; one daemon each. \
           At most 94 bytes",
};
pub(super) const NOTES_DIRECTORY: Key<Text> = Key {
    name: "notes_directory",
    form: Text::new("path", "the path of a directory that outlives a reboot"),
    absent: Absent::Words(
        "as root `/var/lib/plimsoll`; otherwise `plimsoll` in `$XDG_STATE_HOME` or in `~/.local/state`, or without a \
         home the state directory",
    ),
    help: "where the daemon notes what outlives a reboot: caches ([cache.md](cache.md)) and keys \
           ([encryption.md](encryption.md#the-key)). The same for every daemon that serves a volume",
};
const BUFFERS: Key<Quantity<ByteCount>> = Key {
    name: "buffers",
    form: Quantity { allowed: "a size of at least 128 MiB", is_allowed: |size| size.0 >= BUFFER_BYTES_MIN },
    absent: Absent::Words("a quarter of the machine's memory"),
    help: "memory that requests and answers of all connections may take together",
};
pub(super) const CONTROL_SOCKET: Key<Text> = Key {
    name: "control_socket",
    form: Text::new("path", "the path of a socket"),
    absent: Absent::Words("`control.sock` in the state directory"),
    help: "where `plimsoll status` and its like connect ([control.md](control.md)); only its owner may open it. No \
           other key has this path",
};

pub(super) const TABLE: KeyTable =
    KeyTable { path: "daemon", keys: &[&STATE_DIRECTORY, &NOTES_DIRECTORY, &BUFFERS, &CONTROL_SOCKET] };

/// The section `[daemon]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSection {
    /// Where `plimsoll status` and its like connect.
    pub control_socket: PathBuf,
    /// Where the daemon keeps what its successor needs to clean up.
    pub state_directory: PathBuf,
    /// Notes that outlive a reboot: which volumes have a cache.
    pub notes_directory: PathBuf,
    /// Bytes that the buffers of all connections may take; `None` for what fits the machine.
    pub buffer_bytes: Option<u64>,
    /// Where the section stands.
    pub place: Place,
}

pub(super) fn read(
    section: Option<Section<'_>>,
    directory: &Path,
    defaults: &Defaults,
    problems: &mut Vec<Problem>,
) -> DaemonSection {
    let Some(mut section) = section else {
        let (control_socket, state_directory) = (defaults.control_socket(), defaults.state_directory.clone());
        let notes_directory = defaults.notes_directory();
        let (buffer_bytes, place) = (None, Place::default());
        return DaemonSection { control_socket, state_directory, notes_directory, buffer_bytes, place };
    };
    let state_directory = STATE_DIRECTORY.read(&mut section, problems, |text| {
        let path = path(text, directory)?;
        // The sockets that are in it by default have to fit.
        let bytes_max = SOCKET_PATH_BYTES_MAX - CONTROL_SOCKET_NAME.len() - 1;
        bounded(path, bytes_max)
    });
    let notes_directory = NOTES_DIRECTORY.read(&mut section, problems, |text| path(text, directory));
    let defaults = Defaults {
        state_directory: state_directory.unwrap_or_else(|| defaults.state_directory.clone()),
        notes_directory: notes_directory.or_else(|| defaults.notes_directory.clone()),
    };
    let control_socket = CONTROL_SOCKET.read(&mut section, problems, |text| socket(text, directory));
    let control_socket = control_socket.unwrap_or_else(|| defaults.control_socket());
    let notes_directory = defaults.notes_directory();
    let state_directory = defaults.state_directory;
    let buffer_bytes = BUFFERS.read(&mut section, problems).map(|size| size.0);
    DaemonSection { control_socket, state_directory, notes_directory, buffer_bytes, place: section.finish(problems) }
}
