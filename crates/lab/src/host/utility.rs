//! Utilities: programs that read the files of an ended process, with an empty page cache.
//!
//! `find` opens every directory and reads its names. It asks for no attributes, since the names say what is a directory
//! (`d_type`, which find trusts since findutils 4.3). `tar` reads the files of whole directories one after the other.
//! It appends them to an archive on the same file system, each behind a header of 512 bytes and padded to 512. Records
//! are of 10 KiB (its default, `--blocking-factor=20`). `check` is `e2fsck -f`: it reads what
//! [`FileSystem::check_order`] says, from the device itself.
//!
//! [`FileSystem::check_order`]: plimsoll_sim::fs::FileSystem::check_order

use super::recorder::Recorder;
use crate::scenario::{Tool, UtilitySetup};
use plimsoll_core::{AccountId, Time};
use plimsoll_sim::fs::InodeKind;
use plimsoll_sim::{File, Machine, Process};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of a record of an archive.
const RECORD_BYTES: u64 = 10_240;
/// Bytes of a block of an archive, and of a member's header.
const ARCHIVE_BLOCK_BYTES: u64 = 512;

const THERE: &str = "what was listed is there";

/// Forgets what is in memory, then starts the utility on the files in `folder`.
pub(super) fn start(machine: &Machine, setup: &UtilitySetup, folder: String, account: AccountId, recorder: &Recorder) {
    let source = recorder.source(&setup.name);
    let (setup, recorder) = (setup.clone(), recorder.clone());
    machine.spawn(&setup.name.clone(), account, move |process| async move {
        // An unmount and a mount.
        process.sync().await;
        process.sync().await;
        process.machine().drop_caches();
        let watch = Watch { process: process.clone(), recorder, source: source.clone() };
        source.borrow_mut().started = Some(watch.now());
        match setup.tool {
            Tool::Find => find(&process, &watch, folder).await,
            Tool::Tar => tar(&process, &watch, &folder, setup.part).await,
            Tool::Check => check(&process, &watch).await,
        }
        source.borrow_mut().ended = Some(watch.now());
    });
}

/// Counts calls.
struct Watch {
    process: Process,
    recorder: Recorder,
    source: Rc<RefCell<crate::results::Source>>,
}

impl Watch {
    fn now(&self) -> Time {
        self.recorder.at(self.process.now())
    }

    fn record(&self, kind: &'static str, since: Time, bytes: u64) {
        let now = self.now();
        self.source.borrow_mut().record(kind, now, now.since(since), bytes);
    }
}

async fn find(process: &Process, watch: &Watch, folder: String) {
    let mut folders = vec![folder];
    while let Some(path) = folders.pop() {
        let entries = names(process, watch, &path).await;
        let inner = entries.into_iter().rev().filter(|(_, kind)| *kind == InodeKind::Directory);
        folders.extend(inner.map(|(name, _)| format!("{path}/{name}")));
    }
}

async fn names(process: &Process, watch: &Watch, path: &str) -> Vec<(String, InodeKind)> {
    let since = watch.now();
    let names = match path {
        "" => process.read_names("/").await,
        path => {
            process.open(path).await.expect(THERE);
            process.read_names(path).await
        }
    };
    let names = names.expect(THERE);
    watch.record("list", since, 0);
    names
}

async fn tar(process: &Process, watch: &Watch, folder: &str, part: f64) {
    let mut archive = Archive { file: process.create("/archive.tar").await.expect("no other archive"), pending: 0 };
    let mut directories = names(process, watch, folder).await;
    directories.retain(|(_, kind)| *kind == InodeKind::Directory);
    let count = (directories.len() as f64 * part).ceil() as usize;
    for (directory, _) in directories.into_iter().take(count) {
        let path = format!("{folder}/{directory}");
        for (name, _) in names(process, watch, &path).await {
            let file = process.open(&format!("{path}/{name}")).await.expect(THERE);
            let (since, size) = (watch.now(), file.size());
            archive.append(ARCHIVE_BLOCK_BYTES, watch).await;
            let mut offset = 0;
            while offset < size {
                let length = file.read(offset, RECORD_BYTES).await;
                archive.append(length.next_multiple_of(ARCHIVE_BLOCK_BYTES), watch).await;
                offset += length;
            }
            watch.record("unit", since, size);
        }
    }
}

/// An archive, written a record at a time.
struct Archive {
    file: File,
    /// Bytes of the record that is being filled.
    pending: u64,
}

impl Archive {
    async fn append(&mut self, bytes: u64, watch: &Watch) {
        self.pending += bytes;
        while self.pending >= RECORD_BYTES {
            let since = watch.now();
            self.file.append(RECORD_BYTES).await;
            watch.record("write", since, RECORD_BYTES);
            self.pending -= RECORD_BYTES;
        }
    }
}

async fn check(process: &Process, watch: &Watch) {
    for pages in process.machine().file_system.check_order() {
        let since = watch.now();
        process.read_device(pages).await;
        watch.record("read", since, pages.count * plimsoll_sim::cache::PAGE_BYTES);
    }
}
