//! Which files are new in the directories of a cluster: inotify(7).

use plimsoll_core::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes of events that are taken at a time.
const EVENT_BYTES: usize = 16 << 10;
/// Names that are kept at a time; what is more is seen when everything is looked at again.
const NAMES_MAX: usize = 4096;
const NANOSECONDS: u64 = 1_000_000_000;

pub(super) struct Watch {
    queue: OwnedFd,
    /// The watched directories, relative to the data directory.
    directories: BTreeMap<i32, String>,
}

impl Watch {
    pub(super) fn new() -> Result<Watch, Errno> {
        Ok(Watch { queue: init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?, directories: BTreeMap::new() })
    }

    /// Watches a directory, if it is there. One that is watched already stays so.
    pub(super) fn add(&mut self, root: &Path, directory: &str) {
        let what = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        match add_watch(&self.queue, root.join(directory), what) {
            Ok(number) => drop(self.directories.insert(number, directory.to_owned())),
            Err(Errno::NOENT) => {}
            Err(errno) => tracing::warn!("{directory} cannot be watched: {errno}"),
        }
    }

    /// The paths of what is new; waits for `pause` at most, and answers nothing if nothing came.
    pub(super) fn wait(&mut self, pause: Span) -> Vec<String> {
        let seconds = pause.as_nanos() / NANOSECONDS;
        let until = Timespec { tv_sec: seconds as i64, tv_nsec: (pause.as_nanos() % NANOSECONDS) as i64 };
        let mut polled = [PollFd::new(&self.queue, PollFlags::IN)];
        // A wait that ends early only finds less to do.
        let _ = poll(&mut polled, Some(&until));
        let mut buffer = vec![MaybeUninit::uninit(); EVENT_BYTES];
        let (mut reader, mut names) = (Reader::new(&self.queue, &mut buffer), BTreeSet::new());
        while names.len() < NAMES_MAX
            && let Ok(event) = reader.next()
        {
            if event.events().contains(ReadFlags::IGNORED) {
                self.directories.remove(&event.wd());
            }
            let name = event.file_name().and_then(|name| name.to_str().ok());
            if let (Some(directory), Some(name)) = (self.directories.get(&event.wd()), name) {
                names.insert(format!("{directory}/{name}"));
            }
        }
        names.into_iter().collect()
    }
}
