//! Journal and metadata: in phases in which a known set of accounts changes the file system, whatever the kernel writes
//! of its journal and its metadata has that set as its causes.
//!
//! Planted breaks that turned this red: loading tags without loading ext4 where it is a module (`make guest-tests`); a
//! file system without fast commits where there are to be some.

mod support;

use plimsoll_core::AccountId;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use support::{Frozen, Rig, Score, Writer, can_run, mask, now_ns, run, serve_as_writer, written};

const CLASSES: [&str; 8] =
    ["unknown", "superblock", "descriptor", "bitmap", "inode", "other metadata", "directory", "journal"];
const INODE: u8 = 4;
const JOURNAL: u8 = 7;
const PROGRAMS: [&str; 5] = ["mkfs.ext4", "mkfs.xfs", "losetup", "dumpe2fs", "debugfs"];

#[test]
fn a_writer() {
    serve_as_writer();
}

struct Phases {
    rig: Rig,
    a: AccountId,
    b: AccountId,
}

impl Phases {
    fn new(file_system: &str, mkfs: &[&str], mount: &str) -> Phases {
        println!("{file_system} {mkfs:?}, {mount}:");
        let mut rig = Rig::new(file_system, mkfs, mount);
        let (a, b) = (rig.account("a"), rig.account("b"));
        for folder in ["a", "b", "c", "d", "e", "f"] {
            fs::create_dir(rig.path(folder)).unwrap();
        }
        let phases = Phases { rig, a, b };
        phases.settle();
        phases
    }

    /// Everything is written where it belongs.
    fn settle(&self) {
        self.rig.sync();
        drop(Frozen::new(&self.rig.mounted));
    }

    /// Lets accounts do their jobs and compares all that was written of journal and metadata, until all is in its
    /// place.
    fn phase(&mut self, name: &str, jobs: &[(AccountId, String)]) -> BTreeMap<u8, Score> {
        let since = now_ns();
        let writers = jobs.iter().map(|(account, job)| Writer::of(&mut self.rig.tags, *account, job)).collect();
        Writer::run(writers);
        self.rig.sync();
        let at_rest = now_ns();
        self.settle();
        let expected = mask(&jobs.iter().map(|(account, _)| *account).collect::<Vec<_>>());
        let mut scores: BTreeMap<u8, Score> = BTreeMap::new();
        println!("  {name}:");
        for (block, tag) in written(&self.rig.tags, self.rig.blocks(), since, now_ns()) {
            let class = tag.class.number();
            // Freezing and thawing write superblocks and an empty log, which no writer of the phase caused.
            let is_of_freezing = tag.time_ns > at_rest && matches!(class, 1 | JOURNAL);
            if class > JOURNAL || is_of_freezing {
                continue;
            }
            scores.entry(class).or_default().enter(expected, &tag);
            if tag.causes_mask != expected {
                println!("    block {block}: {tag:?}, expected {expected:#x}");
            }
        }
        for (class, score) in &scores {
            println!("    {}: {score}", CLASSES[usize::from(*class)]);
        }
        scores
    }

    fn check(&mut self, name: &str, jobs: &[(AccountId, String)]) {
        let scores = self.phase(name, jobs);
        assert!(scores.contains_key(&JOURNAL), "{name}: no journal was written");
        for (class, score) in scores {
            // A block of metadata may be the work of one of several accounts, and a commit after one of them has
            // finished is that of the others. One account's phase leaves no such choice: there, fewer than one is
            // unknown.
            let is_exact = score.exact + score.fewer == score.blocks() && (class != JOURNAL || score.exact > 0);
            assert!(is_exact, "{name}, {}: {score}", CLASSES[usize::from(class)]);
        }
    }

    /// Fast commits since the mount, as the kernel counts them; `None` where it does not tell, which is said.
    fn fast_commits(&self) -> Option<u64> {
        let device = self.rig.device.file_name().unwrap();
        let path = Path::new("/proc/fs/ext4").join(device).join("fc_info");
        let Ok(text) = fs::read_to_string(&path) else {
            println!("not run: whether there were fast commits: there is no {}", path.display());
            return None;
        };
        let line = text.lines().find_map(|line| line.strip_suffix(" commits"));
        Some(line.unwrap_or_else(|| panic!("{}: {text}", path.display())).trim().parse().unwrap())
    }

    fn in_folder(&self, job: &str, name: &str, rest: &str) -> String {
        format!("{job} {} {rest}", self.rig.path(name).display()).trim().to_owned()
    }

    /// The phases of the prototype, then names, attributes and links.
    fn all(&mut self) {
        let (a, b) = (self.a, self.b);
        let job = |phases: &Phases, job, name, rest: &str| phases.in_folder(job, name, rest);
        let create = job(self, "create", "a", "300 8192");
        self.check("300 files of 8 KiB", &[(a, create)]);
        let create_sync = job(self, "create-sync", "b", "100 4096");
        self.check("100 files with fsync", &[(b, create_sync)]);
        let folders = job(self, "mkdir", "c", "200");
        self.check("200 directories", &[(a, folders)]);
        let buffered = job(self, "write", "large", "0 1 8192 1 7");
        self.check("32 MiB in random order", &[(b, buffered)]);
        let unlink = job(self, "unlink", "a", "");
        self.check("300 files deleted by another", &[(b, unlink)]);
        let append = job(self, "append-sync", "log", "100");
        let create = job(self, "create", "d", "300 4096");
        self.check("appends with fsync beside 300 files", &[(a, append), (b, create)]);
        let buffered = job(self, "write", "large2", "0 1 4096 1 8");
        let folders = job(self, "mkdir", "e", "100");
        self.check("16 MiB beside 100 directories", &[(b, buffered), (a, folders)]);
        let rename = job(self, "rename", "b", &self.rig.path("f").display().to_string());
        self.check("100 files renamed", &[(a, rename)]);
        let attributes = job(self, "xattr", "f", "600");
        self.check("100 files with attributes", &[(b, attributes)]);
        let truncate = job(self, "truncate", "large", "1000000");
        self.check("a file truncated by another", &[(a, truncate)]);
    }
}

/// Promise: tags-journal.
#[test]
fn ext4_journal_and_metadata() {
    if can_run(&PROGRAMS) {
        Phases::new("ext4", &[], "defaults").all();
    }
}

/// A block that one task changes again and again is looked up in each transaction anew, and is the task's alone. Nor
/// does it matter that each change is on another processor, which knows nothing of the block. Red if a task that
/// touches the block that it touched last is not looked at, whatever the transaction; red if only the kernel's look-up
/// of a block tells an inode's account.
#[test]
fn a_block_that_one_account_changes_in_every_transaction_is_its_alone() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let mut phases = Phases::new("ext4", &[], "defaults");
    let (a, b) = (phases.a, phases.b);
    // More than share a block of inodes, so that no other writer comes to the middle one's block.
    (0..64).for_each(|name| fs::write(phases.rig.path(&format!("a/{name}")), "").unwrap());
    phases.settle();
    let path = phases.rig.path("a/32");
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let (_, told) = run("debugfs", &["-R", &format!("imap <{inode}>"), &phases.rig.device.display().to_string()]);
    let block: u64 = told.split("at block ").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).expect(&told);
    let since = now_ns();
    let change = format!("chmod-sync {} 100", path.display());
    let create = phases.in_folder("create-sync", "d", "100 4096");
    phases.phase("a file's mode, beside files with fsync", &[(a, change), (b, create)]);
    let written = written(&phases.rig.tags, phases.rig.blocks(), since, now_ns());
    let (_, tag) = written.iter().find(|(other, _)| *other == block).expect("the block of the inode was written");
    assert_eq!((tag.class.number(), tag.causes_mask), (INODE, mask(&[a])), "{tag:?}");
}

/// Promise: tags-journal.
#[test]
fn xfs_log_and_metadata() {
    if can_run(&PROGRAMS) {
        let mut phases = Phases::new("xfs", &[], "defaults");
        phases.all();
        let to = phases.rig.path("clone").display().to_string();
        let clone = phases.in_folder("reflink", "large2", &to);
        phases.check("a file cloned", &[(phases.a, clone)]);
    }
}

/// Promise: tags-journal.
#[test]
fn ext4_in_other_modes() {
    if can_run(&PROGRAMS) {
        for mode in ["data=journal", "dioread_lock"] {
            Phases::new("ext4", &[], mode).all();
        }
    }
}

/// Promise: tags-journal.
#[test]
fn ext4_fast_commits() {
    if can_run(&PROGRAMS) {
        let mut phases = Phases::new("ext4", &["-O", "fast_commit"], "defaults");
        let before = phases.fast_commits();
        phases.all();
        let (a, b) = (phases.a, phases.b);
        let append = ["overlap-a", "overlap-b"].map(|name| phases.in_folder("append-sync", name, "300"));
        let [of_a, of_b] = append;
        // They overlap, and each begins one: the kernel lets one of both go on. Seen red on Linux 6.1: without the
        // causes of the fsync itself one block in 160 had no account.
        phases.check("appends of two with fsync", &[(a, of_a), (b, of_b)]);
        if let Some((before, after)) = before.zip(phases.fast_commits()) {
            println!("  {} fast commits", after - before);
            // On Linux 6.18 one for each of a hundred files and a hundred appends that are synced.
            assert!(after > before, "no fast commit");
        }
    }
}
