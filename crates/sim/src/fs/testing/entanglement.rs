//! What a commit waits for: open handles, and others' data where it is ordered (split-level paper, figure 5).

use super::{Bench, KINDS, Kind, Queue, Setup, Under, at, is_data};
use crate::cache::InodeNumber;
use crate::fs::Actor;
use crate::fs::ext4::layout::Ext4Layout;
use crate::process::Bytes;
use crate::writeback::WriteFile;
use plimsoll_core::{CallKind, Span, Time};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const DISK: &str = "hdd.wd-aakx";
/// Not held.
const AT_ONCE: Queue = Queue::Passing { held_until: Time::ZERO };

/// Nine in ten of a small writer's fsyncs take less than this, in milliseconds, beside one that writes `bytes` at
/// random places and fsyncs.
fn fsync_ms_beside(kind: Kind, scheduler: Queue, bytes: u64) -> f64 {
    let Bench { mut simulation, sessions, .. } = Setup { scheduler, ..Setup::new(kind, DISK) }.build();
    let machine = simulation.machine().clone();
    machine.spawn("small", sessions[0], |process| async move {
        let file = process.create("/small").await.unwrap();
        loop {
            file.append(4.kib()).await;
            file.fsync().await;
            process.sleep(Span::from_millis(20)).await;
        }
    });
    machine.spawn("large", sessions[1], |process| async move {
        let file = process.create("/large").await.unwrap();
        loop {
            for _ in 0..bytes / 4.kib() {
                file.write(process.random_below(1.gib() / 4.kib()) * 4.kib(), 4.kib()).await;
            }
            file.fsync().await;
        }
    });
    simulation.run_until(at(30.0));
    let small = machine.statistics.of("small");
    small.calls(CallKind::Fsync).unwrap().percentile(90.0).as_millis_f64()
}

#[test]
fn an_ordered_commit_waits_for_the_data_of_others_whatever_the_scheduler_lets_pass() {
    for scheduler in [Queue::Deadline, AT_ONCE] {
        let [little, much] = [4.kib(), 4.mib()].map(|bytes| fsync_ms_beside(Kind::Ordered, scheduler, bytes));
        assert!(much > 5.0 * little, "{scheduler:?}: {little} and {much} ms");
    }
}

#[test]
fn without_ordered_data_it_is_only_the_queue_that_an_fsync_waits_in() {
    for kind in [Kind::Nolock, Kind::Xfs] {
        let [little, much] = [4.kib(), 4.mib()].map(|bytes| fsync_ms_beside(kind, AT_ONCE, bytes));
        assert!(much < 3.0 * little, "{kind:?}: {little} and {much} ms if it may pass");
        let behind = fsync_ms_beside(kind, Queue::Deadline, 4.mib());
        assert!(behind > 3.0 * much, "{kind:?}: {much} and {behind} ms in one queue");
    }
}

#[test]
fn a_commit_waits_for_the_data_of_others_only_in_ordered_mode_and_else_it_is_unwritten_until_it_is_there() {
    const HELD_UNTIL_S: f64 = 4.0;
    for kind in KINDS {
        let scheduler = Queue::Passing { held_until: at(HELD_UNTIL_S) };
        let Bench { mut simulation, sessions, under, .. } = Setup { scheduler, ..Setup::new(kind, DISK) }.build();
        let machine = simulation.machine().clone();
        let seen: Rc<Cell<Option<(Time, bool)>>> = Rc::default();
        let held: Rc<Cell<Option<InodeNumber>>> = Rc::default();
        let (noted, looked_at) = (seen.clone(), held.clone());
        machine.spawn("small", sessions[0], |process| async move {
            let file = process.create("/small").await.unwrap();
            process.sleep(Span::from_secs(1)).await;
            file.append(4.kib()).await;
            file.fsync().await;
            let is_unwritten = under.places(looked_at.get().unwrap())[0].is_unwritten;
            noted.set(Some((process.now(), is_unwritten)));
        });
        machine.spawn("held", sessions[1], |process| async move {
            let file = process.create("/held").await.unwrap();
            held.set(Some(file.inode().number));
            file.append(64.kib()).await;
            file.fsync().await;
            assert!(process.now() > at(HELD_UNTIL_S), "its own data is held");
        });
        simulation.run_to_completion();
        let (ended, is_unwritten) = seen.get().unwrap();
        assert_eq!(ended > at(HELD_UNTIL_S), kind == Kind::Ordered, "{kind:?}: fsync ended at {ended:?}");
        assert_eq!(is_unwritten, kind != Kind::Ordered, "{kind:?}");
    }
}

#[test]
fn an_ordered_commit_writes_what_others_have_dirtied_again() {
    let Bench { mut simulation, sessions, journal, requests, .. } = Setup::new(Kind::Ordered, DISK).build();
    let machine = simulation.machine().clone();
    machine.spawn("writer", sessions[1], |process| async move {
        let file = process.create("/file").await.unwrap();
        file.append(64.kib()).await;
        let (machine, actor) = (process.machine(), Actor::process(process.session()));
        machine.write_file(&actor, file.inode(), WriteFile::WHOLE).await;
        machine.wait_writeback(file.inode().number, WriteFile::WHOLE.pages).await;
        file.write(0, 4.kib()).await;
        let other = process.create("/other").await.unwrap();
        other.fsync().await;
    });
    simulation.run_to_completion();
    let requests = requests.lock().unwrap();
    let ordered: Vec<_> = requests.iter().filter(|r| is_data(r) && r.session == journal).collect();
    assert_eq!(ordered.len(), 1, "the page that was dirty");
    assert!(ordered[0].causes.iter().eq([sessions[1]]), "for the task that dirtied it");
}

#[test]
fn an_fsync_waits_for_the_conversion_of_its_data_and_for_its_commit() {
    let Bench { mut simulation, sessions, under, .. } = Setup::new(Kind::Nolock, DISK).build();
    let Under::Ext4(ext4) = under.clone() else { unreachable!("as it was set up") };
    let machine = simulation.machine().clone();
    machine.spawn("long", sessions[0], |process| async move {
        let (machine, actor) = (process.machine(), Actor::process(process.session()));
        process.sleep(Span::from_millis(500)).await;
        let handle = ext4.journal.start(machine, &actor).await;
        process.sleep(Span::from_millis(100)).await;
        ext4.journal.request(machine, handle.id);
        process.sleep(Span::from_millis(400)).await;
        handle.stop();
    });
    machine.spawn("writer", sessions[1], |process| async move {
        let file = process.create("/file").await.unwrap();
        file.allocate(0, 1.mib()).await;
        file.write(0, 4.kib()).await;
        // The transaction is locked when the data is down: the conversion waits and belongs to the next.
        process.sleep(at(0.7).since(process.now())).await;
        file.fsync().await;
        assert!(process.now() > at(1.0), "the handle is open");
        let history = under.history();
        let block = under.inode_block(file.inode().number);
        let converted = history.joins.iter().filter(|&&(joined, _, _)| joined == block).map(|&(_, id, _)| id).max();
        let committed = history.commits.iter().map(|commit| commit.id).max();
        assert!(converted > Some(1) && committed >= converted, "{converted:?} of {committed:?}");
    });
    simulation.run_to_completion();
}

#[test]
fn a_newcomer_waits_while_a_transaction_is_locked_and_belongs_to_the_next() {
    let Bench { mut simulation, sessions, under, .. } = Setup::new(Kind::Ordered, DISK).build();
    let Under::Ext4(ext4) = under.clone() else { unreachable!("as it was set up") };
    let machine = simulation.machine().clone();
    // Which task, in which transaction, and when it was let in.
    let joined = Rc::new(RefCell::new(Vec::<(&str, u64, Time)>::new()));
    for (name, session, start_ms, open_ms) in
        [("long", sessions[0], 10, 1000), ("early", sessions[1], 50, 1), ("newcomer", sessions[2], 200, 1)]
    {
        let (ext4, joined) = (ext4.clone(), joined.clone());
        machine.spawn(name, session, |process| async move {
            let (machine, actor) = (process.machine().clone(), Actor::process(process.session()));
            process.sleep(Span::from_millis(start_ms)).await;
            let handle = ext4.journal.start(&machine, &actor).await;
            joined.borrow_mut().push((name, handle.id, process.now()));
            handle.join(Ext4Layout::SUPERBLOCK, false).await;
            process.sleep(Span::from_millis(open_ms)).await;
            handle.stop();
        });
    }
    let wanted = ext4.clone();
    machine.spawn("syncer", sessions[3], |process| async move {
        process.sleep(Span::from_millis(100)).await;
        wanted.journal.request(process.machine(), 1);
    });
    simulation.run_until(at(3.0));
    let joined = joined.borrow();
    let names: Vec<(&str, u64)> = joined.iter().map(|&(name, id, _)| (name, id)).collect();
    assert_eq!(names, [("long", 1), ("early", 1), ("newcomer", 2)]);
    let [early, newcomer] = [joined[1].2, joined[2].2];
    let committed = under.history().commits[0].ended;
    assert!(early < at(0.1), "no task wants a commit yet: {early:?}");
    assert!(newcomer > at(1.0), "the handle is open: {newcomer:?}");
    assert!(newcomer < committed, "it need not wait for the commit: {newcomer:?} and {committed:?}");
}

#[test]
fn no_task_joins_a_locked_transaction_and_all_do_from_flush_on() {
    let Bench { mut simulation, sessions, under, .. } = Setup::new(Kind::Ordered, DISK).build();
    let machine = simulation.machine().clone();
    machine.spawn("maker", sessions[0], |process| async move {
        for number in 0..40 {
            // Directories in the root spread over groups: each reads blocks from the disk with its handle open.
            process.mkdir(&format!("/{number}")).await.unwrap();
        }
    });
    machine.spawn("syncer", sessions[1], |process| async move {
        let file = process.create("/file").await.unwrap();
        loop {
            file.append(4.kib()).await;
            file.fsync().await;
        }
    });
    simulation.run_until(at(5.0));
    let history = under.history();
    let mut highest = 0;
    for &(block, id, joined) in &history.joins {
        assert!(id >= highest, "block {block} joins transaction {id} at {joined:?}, after {highest} had begun");
        highest = id;
    }
    let overlapping = history
        .commits
        .iter()
        .any(|commit| history.joins.iter().any(|&(_, id, joined)| id == commit.id + 1 && joined < commit.ended));
    assert!(overlapping, "the next transaction gathers while one is committed");
}
