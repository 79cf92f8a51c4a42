//! The other tests can fail: with a program left out, the I/O that it is for is not attributed any more.

mod support;

use plimsoll_tags::Options;
use support::{Rig, Score, Truth, Writer, can_run, mask, now_ns, serve_as_writer, undisturbed, written};

const PROGRAMS: [&str; 5] = ["mkfs.ext4", "mkfs.xfs", "losetup", "dumpe2fs", "debugfs"];
const PAGES: u64 = 512;
const CLASS_JOURNAL: u8 = 7;

#[test]
fn a_writer() {
    serve_as_writer();
}

fn rig(file_system: &str, left_out: &[&str]) -> Rig {
    let left_out = left_out.iter().map(|name| name.to_string()).collect();
    Rig::with(file_system, &[], "defaults", &Options { left_out, ..Options::default() })
}

/// One account writes a file, another dirties every eighth page again before it is written.
fn dirtied_again(mut rig: Rig) -> Option<Score> {
    let (a, b, path) = (rig.account("a"), rig.account("b"), rig.path("f"));
    let mut truth = Truth::default();
    let body = |rig: &mut Rig| {
        truth = Truth::default();
        for (account, step) in [(a, 1), (b, 8)] {
            let job = format!("write {} 0 {step} {PAGES} 1 3", path.display());
            Writer::run(vec![Writer::of(&mut rig.tags, account, &job)]);
            truth.add(&path, (0..PAGES).step_by(step), account);
        }
    };
    if !undisturbed(&mut rig, |rig| rig, body) {
        return None;
    }
    rig.sync();
    Some(truth.compare(&rig.tags))
}

/// One account dirties a file, another commits the transaction in which that was noted; then the kernel writes the file
/// back in a transaction that only its own threads have joined.
fn written_back(mut rig: Rig) -> Option<Score> {
    let (a, b) = (rig.account("a"), rig.account("b"));
    let (path, mut number) = (rig.path("f"), 0);
    let body = |rig: &mut Rig| {
        number += 1;
        let job = format!("write {}{number} 0 1 {PAGES} 1 3", path.display());
        Writer::run(vec![Writer::of(&mut rig.tags, a, &job)]);
        let job = format!("create-sync {} 1 0", rig.mounted.display());
        Writer::run(vec![Writer::of(&mut rig.tags, b, &job)]);
    };
    if !undisturbed(&mut rig, |rig| rig, body) {
        return None;
    }
    let since = now_ns();
    rig.sync();
    let mut score = Score::default();
    for (_, tag) in written(&rig.tags, rig.blocks(), since, now_ns()) {
        if tag.class.number() == CLASS_JOURNAL {
            score.enter(mask(&[a]), &tag);
        }
    }
    Some(score)
}

/// A file that a registered process's child wrote.
fn written_by_a_child(mut rig: Rig) -> Option<Score> {
    let (a, path) = (rig.account("a"), rig.path("f"));
    let job = format!("fork write {} 0 1 {PAGES} 1 3", path.display());
    Writer::run(vec![Writer::of(&mut rig.tags, a, &job)]);
    rig.sync();
    let mut truth = Truth::default();
    truth.add(&path, 0..PAGES, a);
    Some(truth.compare(&rig.tags))
}

/// With everything `check` is exact, without the programs it is not.
fn check(what: &str, file_system: &str, left_out: &[&str], check: impl Fn(Rig) -> Option<Score>) {
    if !can_run(&PROGRAMS) {
        return;
    }
    let (Some(whole), Some(broken)) = (check(rig(file_system, &[])), check(rig(file_system, left_out))) else { return };
    println!("{file_system}, {what}: {whole}\n  without {left_out:?}: {broken}");
    assert!(whole.is_exact(), "{whole}");
    assert!(!broken.is_exact() && broken.blocks() > 0, "{broken}");
}

#[test]
fn without_the_hooks_of_repeated_dirtying() {
    check("dirtied again", "ext4", &["block_dirty_buffer"], dirtied_again);
    check("dirtied again", "xfs", &["xfs_file_buffered_write"], dirtied_again);
}

#[test]
fn without_proxies() {
    let proxies = ["ext4_journal_start_inode", "ext4_ext_map_blocks_enter", "ext4_mark_inode_dirty"];
    check("written back", "ext4", &proxies, written_back);
    let proxies = ["iomap_writeback_folio", "iomap_writepage", "xfs_unwritten_convert", "xfs_setfilesize"];
    check("written back", "xfs", &proxies, written_back);
}

#[test]
fn without_inheritance() {
    check("a child", "ext4", &["sched_process_fork"], written_by_a_child);
}
