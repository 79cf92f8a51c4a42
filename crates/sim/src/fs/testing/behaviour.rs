//! What each file system does and the others do not: what a commit waits for, which processes share it, what is written
//! for which cause.

use super::oracle::{Disk, assert_order};
use super::{Bench, KINDS, Kind, Setup, Under, at, is_data};
use crate::fs::class;
use crate::process::Bytes;
use plimsoll_core::{CallKind, CauseSet, Class, Operation, Span};
use std::collections::BTreeSet;

const DISK: &str = "hdd.wd-aakx";

#[test]
fn ten_callers_of_fsync_share_commits() {
    for kind in KINDS {
        let Bench { mut simulation, sessions, under, .. } = Setup::new(kind, DISK).build();
        let machine = simulation.machine().clone();
        for (number, &session) in sessions.iter().enumerate() {
            machine.spawn("writer", session, |process| async move {
                let file = process.create(&format!("/{number}")).await.unwrap();
                for _ in 0..20 {
                    file.append(4.kib()).await;
                    file.fsync().await;
                }
            });
        }
        simulation.run_to_completion();
        let fsyncs = machine.statistics.of("writer").count(CallKind::Fsync);
        let commits = under.history().commits.len() as u64;
        assert_eq!(fsyncs, 200);
        assert!(commits * 2 < fsyncs, "{kind:?}: {commits} commits for {fsyncs} fsyncs");
    }
}

/// Linux 6.18 traced the same in 525 of 526 commits (`jbd2_run_stats`: 3 blocks, 5 with descriptor and commit block).
#[test]
fn a_commit_of_an_append_logs_a_descriptor_the_bitmap_the_group_and_the_inode() {
    const LOGGED: usize = 4;
    for kind in [Kind::Ordered, Kind::Nolock] {
        let Bench { mut simulation, sessions, under, .. } = Setup::new(kind, DISK).build();
        simulation.machine().spawn("writer", sessions[0], |process| async move {
            let file = process.create("/file").await.unwrap();
            file.fsync().await;
            for _ in 0..20 {
                file.append(4.kib()).await;
                file.fsync().await;
            }
        });
        simulation.run_to_completion();
        let history = under.history();
        let logged: Vec<usize> = history.commits.iter().skip(1).map(|commit| commit.before_record).collect();
        assert_eq!(logged, [LOGGED; 20], "{kind:?}");
    }
}

#[test]
fn a_change_is_committed_after_a_while_without_a_request() {
    for (kind, seconds) in [(Kind::Ordered, 5.0), (Kind::Nolock, 5.0), (Kind::Xfs, 30.0)] {
        let Bench { mut simulation, sessions, under, .. } = Setup::new(kind, DISK).build();
        let machine = simulation.machine().clone();
        machine.spawn("maker", sessions[0], |process| async move {
            process.mkdir("/directory").await.unwrap();
        });
        simulation.run_until(at(seconds - 0.1));
        assert_eq!(under.history().commits.len(), 0, "{kind:?}: not before {seconds} s");
        simulation.run_until(at(seconds + 1.0));
        assert_eq!(under.history().commits.len(), 1, "{kind:?}: after {seconds} s");
    }
}

#[test]
fn a_full_journal_is_emptied_and_everything_goes_on() {
    for kind in KINDS {
        let mut setup = Setup::new(kind, "nvme");
        setup.log_blocks = Some(1024);
        let Bench { mut simulation, sessions, under, seen, .. } = setup.build();
        let machine = simulation.machine().clone();
        machine.spawn("maker", sessions[0], |process| async move {
            for number in 0..600 {
                let directory = format!("/{number}");
                process.mkdir(&directory).await.unwrap();
                let file = process.create(&format!("{directory}/file")).await.unwrap();
                file.append(4.kib()).await;
                file.fsync().await;
            }
        });
        simulation.run_to_completion();
        let history = under.history();
        let logged: usize = history.commits.iter().map(|commit| commit.places.len()).sum();
        assert!(logged > 1024 + 512, "{kind:?}: the journal went round: {logged} blocks");
        assert_order(&Disk::replay(&seen.lock().unwrap()), &under);
    }
}

#[test]
fn a_commit_of_many_blocks_is_there_before_its_record() {
    for kind in KINDS {
        let Bench { mut simulation, sessions, under, seen, .. } = Setup::new(kind, DISK).build();
        let machine = simulation.machine().clone();
        machine.spawn("maker", sessions[0], |process| async move {
            for number in 0..400 {
                process.create(&format!("/{number}")).await.unwrap();
            }
            process.sync().await;
        });
        simulation.run_to_completion();
        let places = under.history().commits.iter().map(|commit| commit.places.len()).max().unwrap();
        assert!(places > 24, "{kind:?}: several records, or many blocks: {places}");
        assert_order(&Disk::replay(&seen.lock().unwrap()), &under);
    }
}

#[test]
fn blocks_are_free_only_when_their_release_is_committed() {
    for kind in KINDS {
        let Bench { mut simulation, sessions, under, .. } = Setup::new(kind, DISK).build();
        let machine = simulation.machine().clone();
        machine.spawn("owner", sessions[0], |process| async move {
            let file = process.create("/file").await.unwrap();
            file.append(1.mib()).await;
            file.fsync().await;
            let places = under.places(file.inode().number);
            let free = || places.iter().flat_map(|run| run.block..run.block + run.count).map(|b| under.is_free(b));
            process.unlink("/file").await.unwrap();
            assert!(free().all(|is_free| !is_free), "{kind:?}: the unlink is not committed");
            process.sync().await;
            process.sleep(Span::from_millis(1)).await;
            assert!(free().all(|is_free| is_free), "{kind:?}: it is committed");
        });
        simulation.run_to_completion();
    }
}

/// Classes and causes of what was written in place and to the log, without data.
fn metadata_written(bench: &Bench) -> (BTreeSet<(Class, u64)>, BTreeSet<u64>) {
    let mask = |causes: &CauseSet| causes.iter().map(|account| 1u64 << account.0).sum::<u64>();
    let requests = bench.requests.lock().unwrap();
    let writes = requests.iter().filter(|request| request.operation == Operation::Write && !is_data(request));
    let (log, in_place): (Vec<_>, Vec<_>) = writes.partition(|request| request.class == class::JOURNAL);
    assert!(log.iter().all(|request| request.session == bench.journal), "the journal's task submits what it writes");
    let in_place = in_place.iter().map(|request| (request.class, mask(&request.causes))).collect();
    (in_place, log.iter().map(|request| mask(&request.causes)).collect())
}

#[test]
fn metadata_has_the_class_of_its_kind_and_its_changers_as_causes() {
    for kind in KINDS {
        let mut bench = Setup::new(kind, DISK).build();
        let machine = bench.simulation.machine().clone();
        let [one, other] = [bench.sessions[0], bench.sessions[1]];
        machine.spawn("maker", one, |process| async move {
            process.mkdir("/one").await.unwrap();
            let file = process.create("/one/file").await.unwrap();
            for place in 0..30 {
                file.write(place * 64.kib(), 4.kib()).await;
            }
            file.fsync().await;
        });
        bench.simulation.run_until(at(60.0));
        let only_one = 1 << one.0;
        let (in_place, log) = metadata_written(&bench);
        assert_eq!(log, BTreeSet::from([only_one]), "{kind:?}");
        let classes: BTreeSet<Class> = in_place.iter().map(|&(class, _)| class).collect();
        let expected = [class::GROUP_DESCRIPTOR, class::BITMAP, class::INODE, class::INDIRECT, class::DIRECTORY].into();
        assert_eq!(classes, expected, "{kind:?}");
        assert!(in_place.iter().all(|&(_, causes)| causes == only_one), "{kind:?}: {in_place:?}");
        // Another changes one directory: its blocks are its own, those that both changed since are both's, no other is.
        machine.spawn("other", other, |process| async move {
            process.create("/one/other").await.unwrap();
            process.sync().await;
        });
        bench.requests.lock().unwrap().clear();
        bench.simulation.run_until(at(160.0));
        let (in_place, log) = metadata_written(&bench);
        assert_eq!(log, BTreeSet::from([1 << other.0]), "{kind:?}");
        assert!(in_place.iter().all(|&(_, causes)| causes == 1 << other.0), "{kind:?}: {in_place:?}");
        assert!(in_place.contains(&(class::DIRECTORY, 1 << other.0)), "{kind:?}: {in_place:?}");
    }
}

#[test]
fn a_commit_is_for_all_callers_that_joined() {
    for kind in KINDS {
        let mut bench = Setup::new(kind, DISK).build();
        let machine = bench.simulation.machine().clone();
        for &session in &bench.sessions[..2] {
            machine.spawn("maker", session, |process| async move {
                let file = process.create(&format!("/{}", process.session().0)).await.unwrap();
                file.append(4.kib()).await;
                process.sleep(Span::from_secs(1)).await;
                process.sync().await;
            });
        }
        bench.simulation.run_until(at(0.5));
        bench.requests.lock().unwrap().clear();
        bench.simulation.run_to_completion();
        let requests = bench.requests.lock().unwrap();
        let record = requests.iter().find(|request| request.class == class::JOURNAL && request.is_forced);
        let causes: Vec<_> = record.expect("a commit has a record").causes.iter().collect();
        assert_eq!(causes, bench.sessions[..2], "{kind:?}");
    }
}

#[test]
fn fdatasync_does_not_commit_what_only_changed_times() {
    for kind in KINDS {
        let Bench { mut simulation, sessions, under, .. } = Setup::new(kind, DISK).build();
        let machine = simulation.machine().clone();
        let counts = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let (seen, counted) = (under.clone(), counts.clone());
        machine.spawn("writer", sessions[0], |process| async move {
            let file = process.create("/file").await.unwrap();
            file.append(64.kib()).await;
            file.fsync().await;
            process.sleep(Span::from_millis(10)).await;
            file.write(0, 4.kib()).await;
            counted.borrow_mut().push(seen.history().commits.len());
            file.fdatasync().await;
            counted.borrow_mut().push(seen.history().commits.len());
            file.fsync().await;
            counted.borrow_mut().push(seen.history().commits.len());
        });
        simulation.run_to_completion();
        let counts = counts.borrow();
        assert_eq!((counts[1] - counts[0], counts[2] - counts[1]), (0, 1), "{kind:?}: {counts:?}");
    }
}

fn hash_of(kind: Kind, seed: u64) -> u64 {
    let mut setup = Setup::new(kind, DISK);
    setup.config.seed = seed;
    let Bench { mut simulation, sessions, .. } = setup.build();
    let machine = simulation.machine().clone();
    for &session in &sessions[..3] {
        machine.spawn("tenant", session, |process| async move {
            let path = format!("/{}", process.session().0);
            let file = process.create(&path).await.unwrap();
            for _ in 0..50 {
                file.write(process.random_below(1000) * 4.kib(), 4.kib()).await;
                if process.random_below(4) == 0 {
                    file.fsync().await;
                }
            }
            process.unlink(&path).await.unwrap();
        });
    }
    simulation.run_until(at(10.0));
    simulation.trace_hash()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    for kind in KINDS {
        assert_eq!(hash_of(kind, 1), hash_of(kind, 1), "{kind:?}");
        assert_ne!(hash_of(kind, 1), hash_of(kind, 2), "{kind:?}");
    }
}

#[test]
fn files_that_grow_side_by_side_lie_in_few_pieces() {
    for kind in KINDS {
        let Bench { mut simulation, sessions, under, .. } = Setup::new(kind, "nvme").build();
        let machine = simulation.machine().clone();
        let pieces = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        for &session in &sessions[..4] {
            let (under, pieces) = (under.clone(), pieces.clone());
            machine.spawn("grower", session, |process| async move {
                let file = process.create(&format!("/{}", process.session().0)).await.unwrap();
                for _ in 0..256 {
                    file.append(64.kib()).await;
                    file.fsync().await;
                }
                pieces.borrow_mut().push(under.places(file.inode().number).len());
            });
        }
        simulation.run_to_completion();
        assert!(pieces.borrow().iter().all(|&count| count < 32), "{kind:?}: 256 appends, {:?} pieces", pieces.borrow());
    }
}

/// While the log has no room for the transaction that says so, the file's block still reads as zero.
#[test]
fn pages_stay_in_writeback_until_their_blocks_count_as_written() {
    let mut setup = Setup::new(Kind::Xfs, "nvme");
    setup.log_blocks = Some(1024);
    let Bench { mut simulation, sessions, under, .. } = setup.build();
    let machine = simulation.machine().clone();
    machine.spawn("writer", sessions[0], |process| async move {
        let file = process.create("/file").await.unwrap();
        file.allocate(0, 4.kib()).await;
        file.write(0, 4.kib()).await;
        process.sleep_until(at(1.0)).await;
        file.fsync().await;
    });
    simulation.run_until(at(0.5));
    let Under::Xfs(xfs) = under.clone() else { unreachable!("it was built so") };
    for _ in 0..1024 {
        let (xfs, machine) = (xfs.clone(), machine.clone());
        machine.clone().spawn_kernel(async move { xfs.log.reserve(&machine).await });
    }
    simulation.run_until(at(1.5));
    let file = machine.inode_of("/file").unwrap();
    assert!(under.places(file)[0].is_unwritten, "the log has no room");
    assert!(machine.cache.borrow().mapping(file).unwrap().is_writeback(0));
    assert_eq!(machine.statistics.of("writer").count(CallKind::Fsync), 0, "fsync waits for the page");
}
