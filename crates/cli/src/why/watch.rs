//! One watched disk: its programs in the kernel, and their counts since the last look.

use super::people::People;
use super::report::{Row, rows};
use plimsoll_agent::files::Files;
use plimsoll_agent::mounts::MountedDisk;
use plimsoll_core::{FileId, Span, Time};
use plimsoll_tags::{Coverage, Options, Tags, TagsError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Kinds of I/O that are told apart between two looks: 16,384 files or so. What finds no room is counted as one.
const FLOWS_MAX: u32 = 1 << 14;
/// Dirty pages with causes that are known one by one: 256 MiB. Of more, the file's recent writers are known.
const DIRTY_PAGES_MAX: u32 = 1 << 16;
/// Tags themselves are not asked for: the smallest table does.
const TAG_BYTES_MAX: u64 = 2 << 20;
/// Time after which the numbers of ended processes are used again, if none of their dirty pages waits: there are 61.
const RECYCLE_AFTER: Span = Span::from_secs(5);

/// A disk with I/O that is followed to its causes, as long as this lives.
pub struct Watched {
    disk: MountedDisk,
    tags: Tags,
    files: Option<Files>,
    people: People,
    /// Dirty pages and blocks of metadata that had found no room before the last look.
    lost_pages: u64,
}

/// What a disk did between two looks.
pub struct CauseSample {
    /// The causes, most bytes first.
    pub rows: Vec<Row>,
    /// Bytes that were counted, but without room to say what caused them.
    pub untold_bytes: u64,
    /// Dirty pages and blocks of metadata without room. The recent writers of their file stand for the processes that
    /// dirtied them.
    pub lost_pages: u64,
}

impl Watched {
    /// Loads the programs.
    ///
    /// # Errors
    /// What [`Tags::load`] says.
    pub fn new(disk: MountedDisk) -> Result<Watched, TagsError> {
        let options = Options {
            has_account_per_process: true,
            dirty_pages_max: DIRTY_PAGES_MAX,
            tag_bytes_max: TAG_BYTES_MAX,
            flows_max: Some(FLOWS_MAX),
            recycle_after: RECYCLE_AFTER,
            ..Options::default()
        };
        let tags = Tags::load(&disk.device, &options)?;
        let files = Files::of(&disk.mount_point).ok();
        let mut watched = Watched { disk, tags, files, people: People::default(), lost_pages: 0 };
        // What came while the programs were being loaded is no whole interval.
        watched.sample(&BTreeMap::new())?;
        Ok(watched)
    }

    /// What is watched.
    pub fn disk(&self) -> &MountedDisk {
        &self.disk
    }

    /// What of its I/O has causes.
    pub fn coverage(&self) -> &Coverage {
        self.tags.coverage()
    }

    /// What the disk did since the last look. `tenants` are sessions by process.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn sample(&mut self, tenants: &BTreeMap<u32, String>) -> Result<CauseSample, TagsError> {
        let taken = self.tags.take_flows()?;
        // Accounts of processes that have ended are there until they are recycled.
        self.people.meet(self.tags.accounts().list()?, tenants);
        let rows = rows(&taken.flows, &self.people);
        self.tags.accounts().recycle()?;
        let lost_pages = self.tags.losses().entries;
        let lost_pages = lost_pages - std::mem::replace(&mut self.lost_pages, lost_pages);
        Ok(CauseSample { rows, untold_bytes: taken.untold_bytes, lost_pages })
    }

    /// Where a file is now, below the mount point, if that can be found out.
    pub fn path(&mut self, now: Time, inode: u64) -> Option<PathBuf> {
        let files = self.files.as_mut().filter(|_| inode != 0)?;
        files.path(now, FileId(inode))
    }

    /// Closes files that were opened to find their paths: a deleted file takes its space until then.
    pub fn close_files(&mut self) {
        self.files.iter_mut().for_each(Files::close);
    }
}
