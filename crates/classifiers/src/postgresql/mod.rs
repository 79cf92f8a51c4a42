//! A PostgreSQL cluster: which class each of its files is.
//!
//! ```text
//!   name of the file ([`layout`])  ->  log, system table, free-space map, temporary
//!                                      a relation  ->  catalogue ([`catalogue`], by psql)  ->  index, or
//!                                                      table: random or sequential
//!   directories are watched ([`watch`]): a file that is new is classified when it appears, a relation that the
//!   catalogue does not know yet as soon as it does; and everything is looked at again now and then
//! ```
//!
//! **The rule** is table 6 of Differentiated Storage Services; there the server itself says the class of each call,
//! from inside. From outside a class is a file's. So a table is read *sequentially* or *at random* as most of its rows
//! were since the last look, which the server counts (`pg_stat_all_tables`). Without reads it stays as it was, and a
//! new one is random.
//!
//! **The complication.** A transaction that has not committed has files that no catalogue shows to others. They keep
//! the class that their file system gives them until it commits and the catalogue is asked again, a second later at
//! most.

pub mod catalogue;
pub mod layout;
mod watch;

pub use catalogue::{Catalogue, CatalogueError, Server};
pub use layout::DatabaseClass;

use layout::Kind;
use plimsoll_classes::{Client, ClientError};
use plimsoll_core::{Class, Span, Time};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;
use watch::Watch;

/// Time after which the catalogue is asked again for a relation that it did not know. Each time in vain doubles it, up
/// to [`LOOK`].
const ASK_AGAIN: Span = Span::from_millis(250);
/// How often everything is looked at again.
const LOOK: Span = Span::from_secs(10);
/// How often it is asked whether it is over.
const WAIT: Span = Span::from_millis(100);

/// A file that every cluster has as long as it lives.
const LASTING: &str = "global/pg_control";

/// Why a cluster cannot be classified.
#[derive(Debug, Error)]
pub enum ClassifierError {
    /// It is not the data directory of a cluster, or cannot be read.
    #[error("{}: {source}", path.display())]
    Directory {
        /// What cannot be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The daemon does not hear, or refuses.
    #[error("{}: {source}", path.display())]
    Refused {
        /// The classified file.
        path: PathBuf,
        /// What the daemon said.
        source: ClientError,
    },
}

/// How many files have which class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Files by what they are.
    pub files: BTreeMap<DatabaseClass, usize>,
    /// Files of relations that the catalogue does not know: theirs is what the file system says.
    pub unknown: usize,
    /// Files that are on no volume of the daemon's: of tablespaces elsewhere, for example.
    pub elsewhere: usize,
}

/// The device and the inode of a file.
type Key = (u64, u64);

/// What became of a file's class.
enum Said {
    /// It has it.
    Known(Key),
    /// It is on no volume of the daemon's.
    Elsewhere,
    /// The file is gone, or none.
    Gone,
}

/// A cluster, and what was said of its files.
pub struct Classifier {
    directory: PathBuf,
    server: Option<Server>,
    client: Client,
    catalogue: Catalogue,
    /// What was said.
    said: BTreeMap<Key, Class>,
    watch: Watch,
}

impl Classifier {
    /// The cluster with this data directory. `client` says its files' classes. Its `server`, if there is one, answers
    /// from the catalogue; without it, relations of users have no class.
    ///
    /// # Errors
    /// It is no data directory, or cannot be watched.
    pub fn new(directory: &Path, server: Option<Server>, client: Client) -> Result<Classifier, ClassifierError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ClassifierError::Directory { path, source }
        };
        let version = directory.join("PG_VERSION");
        std::fs::metadata(&version).map_err(failed(&version))?;
        let watch = Watch::new().map_err(|errno| failed(directory)(errno.into()))?;
        let (catalogue, said) = (Catalogue::default(), BTreeMap::new());
        Ok(Classifier { directory: directory.to_owned(), server, client, catalogue, said, watch })
    }

    /// Looks at everything: asks the catalogue, and says the class of each file of which something else was said
    /// before, or nothing.
    ///
    /// # Errors
    /// The daemon does not hear, or refuses. A catalogue that does not answer is a line in the log.
    pub fn look(&mut self) -> Result<Found, ClassifierError> {
        if let Some(server) = &self.server
            && let Err(error) = self.catalogue.ask(server)
        {
            tracing::warn!("the catalogue is not known: {error}");
        }
        self.see_whether_it_was_forgotten();
        let mut found = Found::default();
        let mut present = BTreeSet::new();
        for directory in layout::directories(&self.directory) {
            // Before it is read, so that nothing comes in between.
            self.watch.add(&self.directory, &directory);
            let Ok(entries) = std::fs::read_dir(self.directory.join(&directory)) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(path) = name.to_str().map(|name| format!("{directory}/{name}")) else { continue };
                let Some(class) = self.class_of(&path) else {
                    found.unknown += usize::from(matches!(layout::kind(&path), Kind::Relation(_)));
                    continue;
                };
                match self.say(&path, class)? {
                    Said::Known(key) => {
                        present.insert(key);
                        *found.files.entry(class).or_default() += 1;
                    }
                    Said::Elsewhere => found.elsewhere += 1,
                    Said::Gone => {}
                }
            }
        }
        // The daemon has forgotten those that were deleted.
        self.said.retain(|key, _| present.contains(key));
        Ok(found)
    }

    /// Goes on looking until it `is_over`. What cannot be said, for a while or for good, is a line in the log, and
    /// tried again.
    pub fn keep_looking(&mut self, is_over: &AtomicBool) {
        let (mut pause, mut problem) = (LOOK, None);
        let mut look_at = now() + pause;
        while !is_over.load(Ordering::Relaxed) {
            let mut is_unknown = false;
            for path in self.watch.wait(look_at.since(now()).min(WAIT)) {
                is_unknown |= !self.see(&path);
            }
            if is_unknown {
                pause = ASK_AGAIN;
                look_at = look_at.min(now() + pause);
            }
            if now() < look_at {
                continue;
            }
            let looked = self.look();
            let is_complete = looked.as_ref().is_ok_and(|found| found.unknown == 0);
            pause = if is_complete { LOOK } else { LOOK.min(pause * 2) };
            look_at = now() + pause;
            let problem_now = looked.err().map(|error| error.to_string());
            if problem_now != problem {
                match &problem_now {
                    Some(why) => tracing::warn!("classes cannot be said: {why}"),
                    None => tracing::info!("classes can be said again"),
                }
                problem = problem_now;
            }
        }
    }

    /// Something is new: whether it is known what it is, and was said. Its inode may have been another file's, of which
    /// the daemon has forgotten what was said.
    fn see(&mut self, path: &str) -> bool {
        let at = self.directory.join(path);
        if at.is_dir() {
            return false;
        }
        if let Ok(found) = rustix::fs::lstat(&at) {
            self.said.remove(&(found.st_dev, found.st_ino));
        }
        match (self.class_of(path), layout::kind(path)) {
            (Some(class), _) => self.say(path, class).is_ok(),
            (None, kind) => kind == Kind::Other,
        }
    }

    /// What a file is; `None` if that is unknown.
    fn class_of(&self, path: &str) -> Option<DatabaseClass> {
        match layout::kind(path) {
            Kind::Of(class) => Some(class),
            Kind::Relation(relation) => self.catalogue.class(&relation),
            Kind::Other => None,
        }
    }

    fn say(&mut self, path: &str, class: DatabaseClass) -> Result<Said, ClassifierError> {
        let at = self.directory.join(path);
        // Files of a running server come and go.
        let Ok(file) = open(&at) else { return Ok(Said::Gone) };
        let Ok(found) = rustix::fs::fstat(&file) else { return Ok(Said::Gone) };
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(Said::Gone);
        }
        let key = (found.st_dev, found.st_ino);
        if self.said.get(&key) != Some(&class.class()) {
            match self.client.classify(&file, class.class()) {
                Err(ClientError::Refused(Errno::STALE)) => return Ok(Said::Gone),
                Err(ClientError::Refused(Errno::NODEV)) => return Ok(Said::Elsewhere),
                Err(source) => return Err(ClassifierError::Refused { path: at, source }),
                Ok(()) => {}
            }
            self.said.insert(key, class.class());
        }
        Ok(Said::Known(key))
    }

    /// A daemon that was started anew knows nothing: then everything is said again.
    fn see_whether_it_was_forgotten(&mut self) {
        let Ok(file) = open(&self.directory.join(LASTING)) else { return };
        let Ok(found) = rustix::fs::fstat(&file) else { return };
        let Some(class) = self.said.get(&(found.st_dev, found.st_ino)) else { return };
        if !self.client.class_of(&file).is_ok_and(|known| known == *class) {
            self.said.clear();
        }
    }
}

/// A file to name it by, and neither to read nor to write it.
fn open(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Now, on a clock that is never set.
fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Time::from_nanos(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}
