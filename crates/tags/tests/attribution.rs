//! Data: every block of every file has its true causes and no others, whichever thread submitted it.
//!
//! Breaks that were planted and seen red: see `breaks.rs`, which leaves programs out on purpose.

mod support;

use plimsoll_core::AccountId;
use plimsoll_tags::Options;
use std::path::{Path, PathBuf};
use support::{FILE_SYSTEMS, Frozen, Rig, Truth, Writer, can_run, data_bytes, serve_as_writer, undisturbed};

/// Pages of the files: 32 MiB.
const PAGES: u64 = 8192;
/// Pages of files that must stay dirty: 2 MiB, which a busy machine does not write back at once.
const FEW_PAGES: u64 = 512;
/// Pages of a large write: 1 MiB.
const LARGE: u64 = 256;

#[test]
fn a_writer() {
    serve_as_writer();
}

/// Which pages an account writes in which file, and how.
struct Work<'a> {
    account: AccountId,
    path: &'a Path,
    job: &'a str,
    /// First, step, end.
    pages: (u64, u64, u64),
    /// Pages of each write; more than one are written in order, single ones in random order.
    each: u64,
}

fn write(account: AccountId, path: &Path, pages: (u64, u64, u64)) -> Work<'_> {
    Work { account, path, job: "write", pages, each: 1 }
}

/// Two accounts, a file system, and what they wrote since the last look.
struct Case {
    rig: Rig,
    a: AccountId,
    b: AccountId,
    truth: Truth,
    /// Of the order of pages.
    seed: u64,
}

impl Case {
    fn new(mut rig: Rig) -> Case {
        let (a, b) = (rig.account("a"), rig.account("b"));
        Case { rig, a, b, truth: Truth::default(), seed: 1 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.rig.path(name)
    }

    fn writer(&mut self, account: AccountId, job: &str) -> Writer {
        Writer::of(&mut self.rig.tags, account, job)
    }

    /// Prepares what a writer will do; the truth is entered at once.
    fn prepare(&mut self, work: &Work<'_>) -> Writer {
        let Work { account, path, job, pages: (first, step, end), each } = *work;
        self.seed += 1;
        let rest = match job {
            "write" => format!(" {each} {}", if each == 1 { self.seed } else { 0 }),
            "write-twice" => format!(" {}", self.seed),
            _ => String::new(),
        };
        let pages = (first..end).step_by(step as usize).flat_map(|page| page..page + each);
        self.truth.add(path, pages, account);
        self.writer(account, &format!("{job} {} {first} {step} {end}{rest}", path.display()))
    }

    /// All at the same time.
    fn run(&mut self, works: &[Work<'_>]) {
        let writers = works.iter().map(|work| self.prepare(work)).collect();
        Writer::run(writers);
    }

    /// Both do `job` on a file of their own, `count` pages long afterwards.
    fn run_on_own(&mut self, job: &str, names: [&str; 2], count: u64, pages: u64) {
        let mut writers = Vec::new();
        for (account, name) in [(self.a, names[0]), (self.b, names[1])] {
            let path = self.path(name);
            self.truth.add(&path, 0..pages, account);
            writers.push(self.writer(account, &format!("{job} {} {count}", path.display())));
        }
        Writer::run(writers);
    }

    /// Does what changes dirty pages again, as often as it takes until they stay dirty, and checks.
    fn check_dirty(&mut self, name: &str, mut body: impl FnMut(&mut Case)) {
        let is_done = undisturbed(
            self,
            |case| &mut case.rig,
            |case| {
                case.truth = Truth::default();
                body(case);
            },
        );
        if is_done {
            self.check(name);
        }
    }

    /// What data=journal wrote is only in the journal after a sync before Linux 6.4; freezing brings it to its place.
    fn check(&mut self, name: &str) {
        self.rig.sync();
        drop(Frozen::new(&self.rig.mounted));
        let score = std::mem::take(&mut self.truth).compare(&self.rig.tags);
        println!("  {name}: {score}");
        assert!(score.is_exact(), "{name}: {score}; {:?}", self.rig.tags.health().unwrap());
    }
}

const PROGRAMS: [&str; 5] = ["mkfs.ext4", "mkfs.xfs", "losetup", "dumpe2fs", "debugfs"];

fn on_each(mut body: impl FnMut(Case)) {
    if can_run(&PROGRAMS) {
        for file_system in FILE_SYSTEMS {
            println!("{file_system}:");
            body(Case::new(Rig::new(file_system, &[], "defaults")));
        }
    }
}

/// Promise: tags-data.
#[test]
fn own_files_and_exchanged_owners() {
    on_each(|mut case| {
        let (f, g, a, b) = (case.path("f"), case.path("g"), case.a, case.b);
        case.run(&[write(a, &f, (0, 1, PAGES)), write(b, &g, (0, 1, PAGES / 2))]);
        case.check("own files, 4 KiB in random order");
        case.run(&[write(b, &f, (0, 1, PAGES)), write(a, &g, (0, 1, PAGES / 2))]);
        case.check("overwritten with exchanged owners");
    });
}

/// In the smallest table of dirty pages all that lie 256 KiB apart share a line, which has room for four.
#[test]
fn pages_that_find_no_room_in_their_line() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for file_system in FILE_SYSTEMS {
        let smallest = Options { dirty_pages_max: 0, ..Options::default() };
        let mut case = Case::new(Rig::with(file_system, &[], "defaults", &smallest));
        let (f, a, b) = (case.path("f"), case.a, case.b);
        let share_a_line = |account, first: u64, step: u64| write(account, &f, (first * 64, step * 64, 12 * 64));
        case.run(&[share_a_line(a, 0, 2), share_a_line(b, 1, 2)]);
        case.check("in turns, 256 KiB apart");
        case.run(&[share_a_line(b, 0, 2), share_a_line(a, 1, 2)]);
        case.check("overwritten with exchanged owners");
        assert_eq!(case.rig.tags.health().unwrap().losses.entries, 0, "{file_system}");
    }
}

#[test]
fn large_writes_and_small_ones_into_them() {
    on_each(|mut case| {
        let (f, g, a, b) = (case.path("f"), case.path("g"), case.a, case.b);
        let large = |account, path| Work { each: LARGE, ..write(account, path, (0, LARGE, PAGES)) };
        case.run(&[large(a, &f), large(b, &g)]);
        case.check("sequential writes of 1 MiB, in large folios");
        case.check_dirty("1 MiB by one, 4 KiB dirtied again by another", |case| {
            case.run(&[Work { pages: (0, LARGE, FEW_PAGES), ..large(a, &f) }]);
            case.run(&[write(b, &f, (0, 16, FEW_PAGES))]);
        });
        case.run(&[write(a, &f, (0, 16, PAGES)), write(b, &f, (1, 16, PAGES))]);
        case.check("4 KiB overwritten in large folios");
    });
}

/// Promise: tags-data.
#[test]
fn a_shared_file() {
    on_each(|mut case| {
        let (f, a, b) = (case.path("f"), case.a, case.b);
        let c = case.rig.account("c");
        case.check_dirty("every other page, and every eighth dirtied again by a third", |case| {
            case.run(&[write(a, &f, (0, 2, FEW_PAGES)), write(b, &f, (1, 2, FEW_PAGES))]);
            case.run(&[write(c, &f, (0, 8, FEW_PAGES))]);
        });
    });
}

#[test]
fn stores_into_mapped_files() {
    on_each(|mut case| {
        let (f, a, b) = (case.path("f"), case.a, case.b);
        case.run(&[write(a, &f, (0, 1, PAGES))]);
        case.check("a file in small folios");
        let store = |account, first| Work { job: "store", ..write(account, &f, (first, 4, PAGES)) };
        case.run(&[store(a, 0), store(b, 1)]);
        case.check("stores of two processes");
    });
}

/// Of the kernel that runs, for instance (6, 1).
fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-', '\n']).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// A store into a clean page of a large folio makes the whole folio dirty, so the kernel writes it all for each task
/// that stored anywhere in it. ext4 tells of every such store; XFS of the first one only, and `Coverage` says so.
#[test]
fn stores_into_large_folios_dirty_all_of_them() {
    on_each(|mut case| {
        let (f, a, b) = (case.path("f"), case.a, case.b);
        let is_xfs = case.rig.tags.coverage().file_system == plimsoll_tags::FileSystem::Xfs;
        if !is_xfs && kernel_version() < (6, 16) {
            println!("not run: ext4 has no large folios before Linux 6.16");
            return;
        }
        case.run(&[Work { each: LARGE, ..write(a, &f, (0, LARGE, PAGES)) }]);
        case.check("a file in large folios");
        let store = |account, first| Work { job: "store", ..write(account, &f, (first, 4, FEW_PAGES)) };
        let stores = |case: &mut Case| case.run(&[store(a, 0), store(b, 1)]);
        if !undisturbed(&mut case, |case| &mut case.rig, stores) {
            return;
        }
        case.rig.sync();
        let mut truth = Truth::default();
        truth.add(&f, (0..FEW_PAGES).step_by(4), a);
        truth.add(&f, (0..FEW_PAGES).step_by(4), b);
        let score = truth.compare(&case.rig.tags);
        println!("  stores into large folios, both expected: {score}");
        assert_eq!(score.unknown, 0, "{score}");
        assert!(if is_xfs { score.exact == 0 } else { score.is_exact() }, "{score}");
    });
}

#[test]
fn appends_and_direct_writes() {
    on_each(|mut case| {
        case.run_on_own("append", ["f", "g"], 2000, 2000);
        case.check("appends of 4 KiB");
        case.run_on_own("append-sync", ["h", "i"], 200, 200);
        case.check("appends of 4 KiB, each with fsync");
        case.run_on_own("direct", ["j", "k"], 64, 64 * 16);
        case.check("direct writes");
    });
}

/// Promise: tags-data.
#[test]
fn writers_that_race_with_writeback() {
    on_each(|mut case| {
        let (f, g, a, b) = (case.path("f"), case.path("g"), case.a, case.b);
        let mut syncs = Writer::new(&format!("sync {} 30", case.rig.mounted.display()));
        syncs.begin();
        let twice = |account, path, pages| Work { job: "write-twice", ..write(account, path, pages) };
        case.run(&[twice(a, &f, (0, 1, PAGES)), twice(b, &g, (0, 1, PAGES / 2))]);
        syncs.wait();
        case.check("each page twice, with 30 syncs meanwhile");
    });
}

/// Buffered writes that io_uring hands to a worker thread of the kernel, which is none of the process's own making. The
/// thread that owns the ring is registered, not the process.
/// Promise: tags-data.
#[test]
fn io_uring_workers() {
    on_each(|mut case| {
        let (f, g, a, b) = (case.path("f"), case.path("g"), case.a, case.b);
        let uring = |account, path| Work { job: "uring", ..write(account, path, (0, 1, 2000)) };
        case.run(&[uring(a, &f), uring(b, &g)]);
        case.check("io_uring, process registered");
        let job = format!("threads uring {} 0 2 2000", f.display());
        let writer = Writer::new(&job);
        case.rig.tags.accounts().register_thread(b, writer.test_thread()).unwrap();
        case.truth.add(&f, (0..2000).step_by(2), b);
        Writer::run(vec![writer]);
        case.check("io_uring, thread registered");
    });
}

/// How often a memory cgroup was at its limit: the one number of version 1, or the line of version 2 that says so.
fn times_at_limit(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("high ")).unwrap_or(&text);
    line.trim().parse().unwrap_or_else(|_| panic!("{}: {text}", path.display()))
}

/// A memory cgroup a quarter as large as what is written: the kernel writes back because memory is short, and has done
/// so before any process asks for it. Planted break: writers that are not in the cgroup.
/// Promise: tags-data.
#[test]
fn writeback_that_reclaim_drives() {
    const LIMIT_BYTES: u64 = 8 << 20;
    // Version 1, or version 2 where its controller is on. There `memory.max` kills a process that dirties faster than a
    // disk in memory, interpreted, is written.
    let places = [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.failcnt"),
        ("/sys/fs/cgroup", "memory.high", "memory.events"),
    ];
    let is_on = |folder: &str, file: &str| {
        let text = std::fs::read_to_string(Path::new(folder).join("cgroup.subtree_control")).unwrap_or_default();
        Path::new(folder).join(file).exists() || text.split_whitespace().any(|name| name == "memory")
    };
    let Some((folder, file, counter)) = places.into_iter().find(|(folder, file, _)| is_on(folder, file)) else {
        println!("not run: no memory controller of cgroups at {}", places.map(|(folder, ..)| folder).join(" or "));
        return;
    };
    on_each(|mut case| {
        let group = support::Cgroup::new(Path::new(folder));
        std::fs::write(group.path().join(file), LIMIT_BYTES.to_string()).unwrap();
        let (f, a, b) = (case.path("f"), case.a, case.b);
        let works = [write(a, &f, (0, 2, PAGES)), write(b, &f, (1, 2, PAGES))];
        let writers: Vec<_> = works.iter().map(|work| case.prepare(work)).collect();
        for writer in &writers {
            group.add(writer.process());
        }
        let before = data_bytes(&mut case.rig.tags);
        Writer::run(writers);
        let written = data_bytes(&mut case.rig.tags) - before;
        let times = times_at_limit(&group.path().join(counter));
        println!("  {written} bytes written back before the sync, {times} times at the limit");
        assert!(times > 0, "memory was never short");
        // What is dirty has to have room; version 2 lets it be more for a moment.
        let kept_max = 2 * LIMIT_BYTES;
        assert!(written >= PAGES * plimsoll_tags::BLOCK_BYTES - kept_max, "only {written} bytes before the sync");
        case.check("a shared file four times as large as memory");
    });
}

/// Promise: tags-data.
#[test]
fn modes_of_ext4() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for mode in ["data=journal", "dioread_lock", "dioread_nolock", "data=writeback"] {
        println!("ext4, {mode}:");
        let mut case = Case::new(Rig::new("ext4", &[], mode));
        let (f, g, a, b) = (case.path("f"), case.path("g"), case.a, case.b);
        case.run(&[write(a, &f, (0, 1, PAGES / 4)), write(b, &g, (0, 1, PAGES / 4))]);
        case.check("own files");
        case.check_dirty("a shared file, an eighth dirtied again", |case| {
            case.run(&[write(a, &f, (0, 2, FEW_PAGES)), write(b, &f, (1, 2, FEW_PAGES))]);
            case.run(&[write(b, &f, (0, 8, FEW_PAGES))]);
        });
        case.run_on_own("append-sync", ["h", "i"], 100, 100);
        case.check("appends with fsync");
    }
}

/// Blocks that two files share are written anew when one of them is written. The writer causes the new blocks.
#[test]
fn reflinks_of_xfs() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let mut case = Case::new(Rig::new("xfs", &["-m", "reflink=1"], "defaults"));
    let (f, g, a, b) = (case.path("f"), case.path("g"), case.a, case.b);
    case.run(&[write(a, &f, (0, 1, PAGES))]);
    case.check("a file");
    let clone = case.writer(b, &format!("reflink {} {}", f.display(), g.display()));
    Writer::run(vec![clone]);
    case.run(&[write(b, &g, (0, 4, PAGES)), write(a, &f, (1, 4, PAGES))]);
    case.check("copied on write in the clone and in the original");
    case.truth.add(&g, (2..PAGES).step_by(4), a);
    case.check("what both share still is the writer's");
}
