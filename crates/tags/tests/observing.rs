//! Counters, events, and what is left behind: nothing.

mod support;

use plimsoll_tags::{Counters, Event, Options, Tags, TagsError};
use std::collections::BTreeMap;
#[cfg(feature = "bpf")]
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use support::{FILE_SYSTEMS, Rig, Writer, can_run, mask, serve_as_writer, undisturbed};

const PROGRAMS: [&str; 5] = ["mkfs.ext4", "mkfs.xfs", "losetup", "dumpe2fs", "debugfs"];
const PAGES: u64 = 400;
const PAGE_BYTES: u64 = 4096;

#[test]
fn a_writer() {
    serve_as_writer();
}

/// What has been counted since `before`, of all accounts and of none.
fn sums(tags: &mut Tags) -> Counters {
    let accounts = tags.accounts();
    let each = accounts.list().unwrap().into_iter().map(|info| accounts.counters(info.account).unwrap());
    let mut sum = accounts.unknown().unwrap();
    for counters in each {
        sum.read_bytes += counters.read_bytes;
        sum.data_bytes += counters.data_bytes;
        sum.journal_bytes += counters.journal_bytes;
        sum.metadata_bytes += counters.metadata_bytes;
    }
    sum
}

/// Sectors read and written, as the kernel counts them for the device.
fn device_bytes(rig: &Rig) -> (u64, u64) {
    let name = rig.device.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    (fields[2] * 512, fields[6] * 512)
}

/// Promise: tags-sum.
#[test]
fn counters_add_up_to_what_the_device_did() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for file_system in FILE_SYSTEMS {
        let mut rig = Rig::new(file_system, &[], "defaults");
        let (a, b) = (rig.account("a"), rig.account("b"));
        let device_before = device_bytes(&rig);
        let before = sums(&mut rig.tags);
        let (f, g) = (rig.path("f"), rig.path("g"));
        let jobs = [
            (a, format!("write {} 0 1 {PAGES} 1 3", f.display())),
            (b, format!("write {} 0 2 {PAGES} 1 3", g.display())),
            (b, format!("create-sync {} 20 8192", rig.mounted.display())),
        ];
        let writers = jobs.iter().map(|(account, job)| Writer::of(&mut rig.tags, *account, job)).collect();
        Writer::run(writers);
        rig.sync();
        fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        Writer::run(vec![Writer::of(&mut rig.tags, b, &format!("read {}", f.display()))]);
        let (device, after) = (device_bytes(&rig), sums(&mut rig.tags));
        assert_eq!(
            after.written_bytes() - before.written_bytes(),
            device.1 - device_before.1,
            "{file_system}: written"
        );
        assert_eq!(after.read_bytes - before.read_bytes, device.0 - device_before.0, "{file_system}: read");
        let counters = |rig: &mut Rig, account| rig.tags.accounts().counters(account).unwrap();
        let (of_a, of_b) = (counters(&mut rig, a), counters(&mut rig, b));
        println!("{file_system}: {of_a:?}\n  {of_b:?}");
        assert_eq!(of_a.data_bytes, PAGES * PAGE_BYTES);
        assert_eq!(of_a.dirtied_bytes, PAGES * PAGE_BYTES);
        assert_eq!(of_b.data_bytes, (PAGES / 2 + 40) * PAGE_BYTES);
        assert!(of_b.read_bytes >= PAGES * PAGE_BYTES && of_a.read_bytes < PAGES * PAGE_BYTES);
        assert!(of_b.journal_bytes > 0 && of_a.written_bytes_by_class[13] == of_a.data_bytes);
    }
}

#[test]
fn what_is_deleted_before_it_is_written_was_freed() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for file_system in FILE_SYSTEMS {
        let mut rig = Rig::new(file_system, &[], "defaults");
        let (a, b, f) = (rig.account("a"), rig.account("b"), rig.path("f"));
        let before = |rig: &mut Rig| [a, b].map(|account| rig.tags.accounts().counters(account).unwrap().freed_bytes);
        let mut freed = [0, 0];
        let is_done = undisturbed(
            &mut rig,
            |rig| rig,
            |rig| {
                freed = before(rig);
                for (account, job) in
                    [(a, format!("write {} 0 1 {PAGES} 1 3", f.display())), (b, format!("truncate {} 0", f.display()))]
                {
                    Writer::run(vec![Writer::of(&mut rig.tags, account, &job)]);
                }
            },
        );
        let after = before(&mut rig);
        assert!(!is_done || after == [freed[0] + PAGES * PAGE_BYTES, freed[1]], "{file_system}: {freed:?}, {after:?}");
    }
}

#[test]
fn events_tell_each_change_once() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for file_system in FILE_SYSTEMS {
        let options = Options { event_bytes: Some(4 << 20), has_request_events: true, ..Options::default() };
        let mut rig = Rig::with(file_system, &[], "defaults", &options);
        let (a, b, f) = (rig.account("a"), rig.account("b"), rig.path("f"));
        let is_done = undisturbed(
            &mut rig,
            |rig| rig,
            |rig| {
                rig.tags.events(usize::MAX, |_| {});
                for (account, step, seed) in [(a, 1, 3), (a, 1, 4), (b, 8, 5)] {
                    let job = format!("write {} 0 {step} {PAGES} 1 {seed}", f.display());
                    Writer::run(vec![Writer::of(&mut rig.tags, account, &job)]);
                }
            },
        );
        if !is_done {
            continue;
        }
        rig.sync();
        let job = format!("write {} 0 1 10 1 5", f.display());
        Writer::run(vec![Writer::of(&mut rig.tags, b, &job)]);
        Writer::run(vec![Writer::of(&mut rig.tags, b, &format!("truncate {} 0", f.display()))]);
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&f).unwrap());
        let (mut fresh, mut joined, mut freed, mut issued_data) = (0, 0, 0, 0);
        let mut in_flight: BTreeMap<u64, u32> = BTreeMap::new();
        let both = mask(&[a, b]);
        rig.tags.events(usize::MAX, |event| match event {
            Event::Dirtied { inode: of, pages, previous: 0, .. } if of == inode => fresh += u64::from(pages),
            Event::Dirtied { inode: of, pages, previous, causes, .. } if of == inode => {
                assert_eq!((previous, causes), (mask(&[a]), mask(&[b])));
                joined += u64::from(pages);
            }
            Event::Freed { inode: of, pages, causes, .. } if of == inode => {
                assert_eq!(causes, mask(&[b]));
                freed += u64::from(pages);
            }
            Event::Issued { id, bytes, operation, causes, class, inode: of, .. } => {
                if operation == 1 && class.number() >= 8 {
                    issued_data += u64::from(bytes);
                    assert_eq!(of, inode, "{event:?}");
                    assert!(causes != 0 && causes & !both == 0, "{event:?}");
                }
                in_flight.insert(id, bytes);
            }
            Event::Completed { id, bytes, status, .. } => {
                assert_eq!(status, 0);
                let left = in_flight.get_mut(&id).map(|left| {
                    *left = left.saturating_sub(bytes);
                    *left
                });
                assert!(left.is_some(), "{event:?} was not issued");
                if left == Some(0) {
                    in_flight.remove(&id);
                }
            }
            _ => {}
        });
        assert_eq!((fresh, joined), (PAGES + 10, PAGES / 8), "{file_system}");
        assert!(freed <= 10, "the ten are freed, or were written back before: {freed}");
        assert_eq!(issued_data, (PAGES + 10 - freed) * PAGE_BYTES, "{file_system}");
        assert_eq!((in_flight.len(), rig.tags.losses().events), (0, 0), "{file_system}");
        let mut again = 0;
        rig.tags.events(usize::MAX, |_| again += 1);
        assert_eq!(again, 0, "the ring is empty now");
    }
}

/// Programs of ours that the kernel has, by the names of two that are always loaded: their numbers, which are never
/// used again.
#[cfg(feature = "bpf")]
fn programs_loaded() -> BTreeSet<u32> {
    let names = ["block_bio_queue", "sched_process_e"];
    let programs = libbpf_rs::query::ProgInfoIter::default();
    let ours = programs.filter(|program| names.iter().any(|name| program.name.to_string_lossy().starts_with(name)));
    ours.map(|program| program.id).collect()
}

/// Waits until these are gone: the kernel frees programs after a grace period, which may be long where a processor is
/// taken away.
#[cfg(feature = "bpf")]
fn are_gone(programs: &BTreeSet<u32>) -> bool {
    let pause = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    (0..6000).any(|_| {
        let _ = rustix::thread::nanosleep(&pause);
        programs_loaded().is_disjoint(programs)
    })
}

/// Promise: tags-leftovers.
#[cfg(feature = "bpf")]
#[test]
fn nothing_is_left_after_a_drop_nor_after_a_kill() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let rig = Rig::new("ext4", &[], "defaults");
    let before = programs_loaded();
    let second = Tags::load(&rig.device, &Options::default()).unwrap();
    let of_second = &programs_loaded() - &before;
    assert!(!of_second.is_empty(), "two can watch one device");
    assert!(second.coverage().warnings.iter().any(|warning| warning.contains("was mounted before")));
    drop(second);
    assert!(are_gone(&of_second), "after a drop");
    let mut loader = Writer::new(&format!("load {}", rig.device.display()));
    loader.begin();
    loader.pause();
    let of_loader = &programs_loaded() - &before;
    assert!(!of_loader.is_empty());
    drop(loader);
    assert!(are_gone(&of_loader), "after a kill");
}

#[test]
fn memory_is_bounded_and_stated() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let small = Options { dirty_pages_max: 0, tag_bytes_max: 0, ..Options::default() };
    let mut rig = Rig::with("ext4", &[], "defaults", &small);
    let bytes = rig.tags.memory_bytes();
    println!("{bytes} bytes with the smallest tables, {} of them tags", rig.tags.table().bytes());
    assert!(bytes > 0 && bytes < 64 << 20, "{bytes}");
    // More dirty pages than there is room for: their causes are those of the file's writers, and that is counted.
    let (a, f) = (rig.account("a"), rig.path("f"));
    Writer::run(vec![Writer::of(&mut rig.tags, a, &format!("write {} 0 1 5000 1 3", f.display()))]);
    rig.sync();
    let mut truth = support::Truth::default();
    truth.add(&f, 0..5000, a);
    let (score, health) = (truth.compare(&rig.tags), rig.tags.health().unwrap());
    println!("{score}; {health:?}");
    assert!(health.losses.entries > 0 && health.blocks_guessed > 0, "{health:?}");
    assert_eq!(score.wrong + score.more, 0, "{score}");
}

#[test]
fn what_cannot_be_tagged_is_refused_in_one_line() {
    let load = |path: &str| Tags::load(Path::new(path), &Options::default()).err().expect("it cannot be").to_string();
    if !can_run(&PROGRAMS) {
        assert!(load("/dev/null").starts_with("not run: "));
        return;
    }
    assert_eq!(load("/dev/null"), "/dev/null: is not a block device");
    assert_eq!(load("/nowhere"), "/nowhere: cannot be opened: No such file or directory (os error 2)");
    Writer::run(vec![Writer::new("load-as-nobody /dev/null")]);
}

#[test]
fn errors_have_a_type() {
    let error = Tags::load(Path::new("/dev/null"), &Options::default()).err();
    assert!(matches!(error, Some(TagsError::NotRun(_) | TagsError::Device { .. })), "{error:?}");
}
