//! A live run with a cache before the device, and the utilities after it: what is counted is the cache's and by the
//! classes of ext4, and nothing is left behind.

mod live_support;

use live_support::{MACHINE, can_mount, knobs, knobs_before, mounts, note, run};
use plimsoll_lab::host::HostError;
use plimsoll_lab::scenario::{self, Setup};
use plimsoll_sim::cached_volume::{CacheFigures, ClassCounts};
use std::path::Path;
use std::sync::PoisonError;

/// Numbers of the scheme of classes `ext4`.
const UNCLASSIFIED: usize = 0;
const DIRECTORY: usize = 6;
const JOURNAL: usize = 7;
const FILES: std::ops::RangeInclusive<usize> = 8..=18;

/// Of the files of a file server (paper 003, Table 8).
const SIZES: [&str; 14] = [
    "1KiB", "2KiB", "4KiB", "8KiB", "16KiB", "32KiB", "64KiB", "128KiB", "256KiB", "512KiB", "1MiB", "2MiB", "8MiB",
    "32MiB",
];

/// A small file server: files that are three times as much as the memory, and then all utilities. The volume is no
/// larger than the table of tags: on one of 1 TiB 128 blocks share a place in it, and where ext4 puts two directories,
/// at random, on places of one another, what is written of one while the other is read has no class.
fn setup(machine: &str, policy: &str) -> Setup {
    let text = format!(
        "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"live\"]\ntakes = \"1 s\"\n\
         duration = \"120s\"\nuntil_ended = true\n\
         [machine]\ndevice = \"raid1e-5\"\nscheduler = \"noop\"\nfile_system = \"ext4\"\nvolume = \"8GiB\"\n\
         memory = \"32MiB\"\n{machine}\n\
         [cache]\ndevice = \"ssd.x25-e\"\nsize = \"20MB\"\npolicy = \"{policy}\"\n\
         [process.server]\nworkload = \"fileserver files 100 directories 10 transactions 100\"\nin_root = true\n\
         written_before = true\nunit_sizes = {SIZES:?}\n\
         [utility.find]\ntool = \"find\"\nof = \"server\"\n\
         [utility.tar]\ntool = \"tar\"\nof = \"server\"\npart = 0.2\n\
         [utility.check]\ntool = \"check\"\nof = \"server\"\n\
         [row.r]\ntitle = \"t\"\nmeasure = '1'\nunit = \"\"\n"
    );
    let scenario = scenario::parse(&text, Path::new("live.toml"), &[]).unwrap_or_else(|error| panic!("{error}"));
    scenario.variants[0].setup.clone()
}

fn sum(figures: &CacheFigures, of: impl Fn(&ClassCounts) -> u64) -> u64 {
    figures.sum(of)
}

fn of_files(figures: &CacheFigures, of: impl Fn(&ClassCounts) -> u64) -> u64 {
    figures.classes[FILES].iter().map(of).sum()
}

fn memory_groups() -> usize {
    let groups = std::fs::read_dir("/sys/fs/cgroup/memory").into_iter().flatten().flatten();
    groups.filter(|entry| entry.file_name().to_string_lossy().starts_with("plimsoll-live-")).count()
}

/// Red without tags (no block has a class), if every unit counts as one that reads, if utilities find what is in memory
/// (they read nothing), if the run does not end with its processes (two minutes), and without the recovery of groups.
/// Promise: lab-live-cache.
#[test]
fn what_a_cache_counts_is_by_the_classes_of_ext4_and_nothing_is_left() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() {
        return;
    }
    let before = knobs_before();
    // What a predecessor that was killed left.
    let left = Path::new("/sys/fs/cgroup/memory/plimsoll-live-1");
    if std::fs::create_dir(left).is_ok() {
        std::fs::create_dir_all(note("")).unwrap();
        std::fs::write(note("memory-group"), left.display().to_string()).unwrap();
    }
    let result = run(&setup("", "selective"));
    assert_eq!((knobs(), mounts(), memory_groups(), note("memory-group").exists()), (before, 0, 0, false));
    let result = match result {
        Err(HostError::NotRun(reason)) => return println!("not run: {reason}"),
        result => result.unwrap(),
    };
    let took = |source: &str| {
        let source = &result.sources[source];
        source.ended.unwrap().since(source.started.unwrap()).as_secs_f64()
    };
    assert!(took("server") > 0.0 && took("server") < 120.0, "{}", took("server"));
    let units = |source: &str| -> u64 {
        let units = result.sources.get(source).and_then(|source| source.series("unit"));
        units.map_or(0, |units| units.window(0, 120).iter().map(|second| second.count).sum())
    };
    let [read, written] = ["read", "write"].map(|kind| -> u64 {
        let of_sizes = SIZES.map(|size| units(&format!("server.{kind}.{size}")));
        of_sizes.iter().sum()
    });
    assert!(read > written && written > 0 && read + written == units("server"), "{read} {written} {}", units("server"));
    let server = &result.cache["server"];
    assert!(server.classes[JOURNAL].units > 0, "{server:?}");
    assert!(
        of_files(server, |counts| counts.writes) > 0 && of_files(server, |counts| counts.read_hits) > 0,
        "{server:?}"
    );
    let unclassified = server.classes[UNCLASSIFIED];
    let all = sum(server, |counts| counts.reads + counts.writes);
    assert!((unclassified.reads + unclassified.writes) * 100 < all, "{server:?}");
    let units = sum(server, |counts| counts.units);
    assert!(units > 0 && units <= result.cache_units, "{units} of {}", result.cache_units);

    // Nothing of the files is in memory: directories are read, then files, then the device itself.
    let (find, tar, check) = (&result.cache["find"], &result.cache["tar"], &result.cache["check"]);
    assert!(find.classes[DIRECTORY].reads >= 10 && of_files(find, |counts| counts.reads) == 0, "{find:?}");
    assert!(of_files(tar, |counts| counts.reads) > 0 && of_files(tar, |counts| counts.writes) > 0, "{tar:?}");
    assert!(check.classes[UNCLASSIFIED].reads > 0, "{check:?}");
    assert_eq!(check.classes[UNCLASSIFIED].reads, sum(check, |counts| counts.reads), "{check:?}");
    assert!(["find", "tar", "check"].iter().all(|utility| took(utility) > 0.0));
}

/// Red if a run without a policy has a cache all the same.
#[test]
fn what_it_cannot_do_is_not_run_with_the_reason_and_no_policy_is_no_cache() {
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let refused = run(&setup("kernel_scheduler = \"bfq\"", "lru"));
    let reason = "a cache takes the classes that our station tells, and a kernel_scheduler is without one";
    assert_eq!(refused.err(), Some(HostError::NotRun(reason.to_owned())));
    let tenant = "title = \"t\"\npaper = \"none\"\nsource = \"s\"\ndescription = \"d\"\nhosts = [\"live\"]\ntakes = \"1 s\"\n\
         duration = \"2s\"\n[machine]\ndevice = \"raid1e-5\"\nscheduler = \"noop\"\n\
         [cache]\ndevice = \"ssd.x25-e\"\nsize = \"80MB\"\npolicy = \"lru\"\n\
         [tenant.t]\npattern = \"random\"\nlength = \"4KiB\"\n[row.r]\ntitle = \"t\"\nmeasure = '1'\nunit = \"\"\n";
    let tenant = scenario::parse(tenant, Path::new("live.toml"), &[]).unwrap_or_else(|error| panic!("{error}"));
    let reason = "a cache can only be on a mounted device, because its blocks have classes";
    assert_eq!(run(&tenant.variants[0].setup).err(), Some(HostError::NotRun(reason.to_owned())));
    if !can_mount() {
        return;
    }
    match run(&setup("", "none")) {
        Err(HostError::NotRun(reason)) => println!("not run: {reason}"),
        result => assert!(result.unwrap().cache.is_empty()),
    }
}
