//! btrfs: the account that dirtied a page first is the cause of its data; of its metadata nothing is known. Where a
//! file's pages are on the device only btrfs knows (FIEMAP tells addresses of its own), so blocks are found by the
//! inode in their tags.

mod support;

use plimsoll_tags::FileSystem;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::{Rig, Writer, can_run, mask, now_ns, serve_as_writer, undisturbed, written};

const PAGES: u64 = 4096;
/// So few that they stay dirty until they are synced.
const FEW_PAGES: u64 = 512;

#[test]
fn a_writer() {
    serve_as_writer();
}

fn rig() -> Option<Rig> {
    if !can_run(&["mkfs.btrfs", "losetup"]) {
        return None;
    }
    // Opening a context loads the module, where it is one.
    if let Err(error) = rustix::mount::fsopen("btrfs", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC) {
        println!("not run: this kernel has no btrfs: {error}");
        return None;
    }
    Some(Rig::new("btrfs", &[], "defaults"))
}

/// What was written of a file since `since`: how many blocks have which causes.
fn causes_of(rig: &Rig, path: &Path, since: u64) -> BTreeMap<u64, u64> {
    let inode = fs::metadata(path).unwrap().ino();
    let mut causes = BTreeMap::new();
    for (_, tag) in written(&rig.tags, rig.blocks(), since, now_ns()) {
        if tag.inode == inode {
            *causes.entry(tag.causes_mask).or_default() += 1;
        }
    }
    causes
}

/// Promise: tags-btrfs.
#[test]
fn data_has_the_tasks_that_dirtied_it_first_as_causes() {
    let Some(mut rig) = rig() else { return };
    let coverage = rig.tags.coverage().clone();
    assert_eq!((coverage.file_system, coverage.has_metadata), (FileSystem::Btrfs, false));
    assert!(!coverage.has_repeated_dirtying && coverage.to_string().starts_with("data only of Btrfs; "), "{coverage}");
    let (a, b) = (rig.account("a"), rig.account("b"));
    let (f, g, h) = (rig.path("f"), rig.path("g"), rig.path("h"));
    let job = |path: &Path, first, step, pages| format!("write {} {first} {step} {pages} 1 3", path.display());
    for (owner_of_f, owner_of_g) in [(a, b), (b, a)] {
        let since = now_ns();
        let writers = [(owner_of_f, &f), (owner_of_g, &g)];
        let writers = writers.map(|(account, path)| Writer::of(&mut rig.tags, account, &job(path, 0, 1, PAGES)));
        Writer::run(writers.into());
        rig.sync();
        for (path, account) in [(&f, owner_of_f), (&g, owner_of_g)] {
            assert_eq!(causes_of(&rig, path, since), [(mask(&[account]), PAGES)].into(), "{}", path.display());
        }
    }
    // A shared file, of which b dirties an eighth that is a's already: that stays a's.
    let mut since = 0;
    let is_done = undisturbed(
        &mut rig,
        |rig| rig,
        |rig| {
            since = now_ns();
            for (account, first, step) in [(a, 0, 2), (b, 1, 2), (b, 0, 8)] {
                Writer::run(vec![Writer::of(&mut rig.tags, account, &job(&h, first, step, FEW_PAGES))]);
            }
        },
    );
    rig.sync();
    let half = FEW_PAGES / 2;
    let found = causes_of(&rig, &h, since);
    assert!(!is_done || found == [(mask(&[a]), half), (mask(&[b]), half)].into(), "{found:?}");
}
