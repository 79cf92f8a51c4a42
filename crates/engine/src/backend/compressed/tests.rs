//! Pages against a vector of pages, with a thread that compresses in between; and the two at the same page.

use super::*;
use proptest::prelude::*;
use std::sync::mpsc::channel;
use std::time::Duration;

const PAGES: u64 = 1200;

/// A page that compresses, one that does not, or zeroes.
pub(super) fn page(kind: u8, seed: u64) -> [u8; PAGE_BYTES] {
    let mut word = seed | 1;
    std::array::from_fn(|at| {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        match kind {
            0 => 0,
            1 => (at as u8) & 7 | (seed as u8) << 3,
            _ => (word >> 56) as u8,
        }
    })
}

fn memory(level: u8) -> CompressedMemory {
    CompressedMemory::new(PAGES * PAGE_BYTES as u64, level).unwrap()
}

fn compress_all(memory: &CompressedMemory) {
    while memory.compress_one() == CompressionStep::Page {}
}

fn kept_bytes(memory: &CompressedMemory) -> impl Iterator<Item = usize> {
    (0..PAGES).map(|page| memory.kept(page).map_or(0, |kept| kept.len()))
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { page: u64, kind: u8, seed: u64 },
    WriteBehind { page: u64, kind: u8, seed: u64 },
    Zero { first: u64, pages: u64 },
    Compress { pages: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    // Some pages often, so that they are written again.
    let page = || prop_oneof![0..4_u64, 0..PAGES];
    prop_oneof![
        2 => (page(), 0..3_u8, any::<u64>()).prop_map(|(page, kind, seed)| Step::Write { page, kind, seed }),
        4 => (page(), 0..3_u8, any::<u64>()).prop_map(|(page, kind, seed)| Step::WriteBehind { page, kind, seed }),
        1 => (page(), 0..700_u64).prop_map(|(first, pages)| Step::Zero { first, pages: pages.min(PAGES - first) }),
        2 => (0..5_u64).prop_map(|pages| Step::Compress { pages }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Planted breaks: what does not get smaller is not kept; zeroes are not put; a page comes into the backlog each
    /// time that it is written.
    /// Promise: compressed-backlog, compressed-oracle.
    #[test]
    fn pages_are_what_was_written_last(
        steps in prop::collection::vec(any_step(), 1..120), level in COMPRESSION_LEVELS,
    ) {
        let memory = memory(level);
        let mut plain = vec![[0; PAGE_BYTES]; PAGES as usize];
        for step in steps {
            match step {
                Step::Write { page: at, kind, seed } => {
                    plain[at as usize] = page(kind, seed);
                    memory.write(at, &plain[at as usize]).unwrap();
                    // Another volume's level in between changes nothing.
                    packed(&plain[at as usize], 20 - level).unwrap();
                }
                Step::WriteBehind { page: at, kind, seed } => {
                    plain[at as usize] = page(kind, seed);
                    memory.write_behind(at, &plain[at as usize]).unwrap();
                }
                Step::Zero { first, pages } => {
                    memory.zero(first, pages);
                    plain[first as usize..(first + pages) as usize].fill([0; PAGE_BYTES]);
                }
                Step::Compress { pages } => (0..pages).for_each(|_| { memory.compress_one(); }),
            }
            let in_backlog = (0..PAGES).filter(|&page| memory.place(page).is_some_and(|it| lock(it).is_in_backlog));
            prop_assert_eq!(memory.backlog_bytes(), (in_backlog.count() * PAGE_BYTES) as u64);
        }
        let mut read = [1; PAGE_BYTES];
        let mut check = || {
            for (at, expected) in plain.iter().enumerate() {
                prop_assert_eq!(memory.read(at as u64, &mut read), Ok(()));
                prop_assert!(&read == expected, "page {}", at);
            }
            prop_assert_eq!(memory.stored_bytes(), kept_bytes(&memory).sum::<usize>() as u64);
            Ok(())
        };
        check()?;
        compress_all(&memory);
        check()?;
        // Nothing is left as it was that could be smaller.
        for (kept, page) in kept_bytes(&memory).zip(&plain) {
            prop_assert_eq!(kept, packed(page, level).unwrap().map_or(0, |kept| kept.len()));
        }
    }
}

/// Planted break: a write does not pay, and nothing asks whether there is room.
/// Promise: compressed-backlog-bound.
#[test]
fn what_is_kept_as_it_is_is_bounded() {
    let memory = memory(1);
    let bound = PAGES as usize / 8;
    for number in 0..PAGES {
        memory.write_behind(number, &page(1, number)).unwrap();
        let plain = kept_bytes(&memory).filter(|&bytes| bytes == codec::PLAIN_BYTES).count();
        assert!(plain <= bound, "{plain} of {bound} after {number}");
    }
    assert!(memory.backlog.pages() > bound * 9 / 10, "{} of {bound}", memory.backlog.pages());
    assert_eq!(memory.compressed_by_writers_bytes() + memory.backlog_bytes(), PAGES * PAGE_BYTES as u64);
    assert_eq!(memory.compressed_behind_bytes(), 0);
    // Those that are in it are written again, and are in it once.
    let before = memory.backlog.pages();
    (0..bound as u64 / 4).for_each(|number| memory.write_behind(number, &page(1, number + 1)).unwrap());
    assert_eq!(memory.backlog.pages(), before);
    compress_all(&memory);
    assert_eq!(memory.compressed_behind_bytes(), (before * PAGE_BYTES) as u64);
}

/// What is compressed is not what is there any more. Planted break: it is put whatever is there.
/// Promise: compressed-backlog.
#[test]
fn a_page_that_is_written_while_it_is_compressed_stays_what_was_written() {
    let (memory, mut read) = (memory(1), [0; PAGE_BYTES]);
    for second in [page(1, 2), page(2, 2), page(0, 2)] {
        memory.write_behind(3, &page(1, 1)).unwrap();
        assert_eq!(memory.backlog.take(), Some(3));
        let snapshot = memory.leave_backlog(3).unwrap();
        let made = smaller(&snapshot, 1).unwrap().unwrap();
        memory.write_behind(3, &second).unwrap();
        memory.put_instead(3, &snapshot, made);
        assert_eq!(memory.read(3, &mut read), Ok(()));
        assert!(read == second);
        compress_all(&memory);
        assert_eq!(Ok(memory.kept(3)), packed(&second, 1));
    }
}

/// Whether nothing is in the backlog; if there is, others get time.
fn is_empty(memory: &CompressedMemory, turn: u32) -> bool {
    let is_empty = memory.backlog.pages() == 0;
    match turn {
        _ if is_empty => {}
        0..20_000 => std::thread::yield_now(),
        _ => std::thread::park_timeout(Duration::from_millis(1)),
    }
    is_empty
}

/// The same with threads, as engine and service threads do it: one writes the same pages again and again and begins
/// what is needed, another one compresses. Planted breaks: as above; a thread that goes is still counted.
/// Promise: compressed-backlog.
#[test]
fn writers_and_compressors_at_the_same_pages() {
    let memory = Arc::new(memory(1));
    let (begun, to_do) = channel::<Compressing>();
    std::thread::scope(|scope| {
        scope.spawn(move || to_do.iter().for_each(|mut compressing| while compressing.one_page() {}));
        let mut read = [0; PAGE_BYTES];
        for number in 0..30_000_u64 {
            let (at, written) = (number / 5 % 3, page(1, number));
            memory.write_behind(at, &written).unwrap();
            Compressing::begin(&memory, 1).into_iter().for_each(|compressing| begun.send(compressing).unwrap());
            // Now and then it may come to the end.
            if number % 5 == 4 {
                assert!((0..40_000).any(|turn| is_empty(&memory, turn)), "forgotten after write {number}");
            }
            assert_eq!(memory.read(at, &mut read), Ok(()));
            assert!(read == written, "write {number}");
        }
        drop(begun);
    });
    assert_eq!(memory.backlog.pages(), 0);
    assert_eq!(memory.stored_bytes(), kept_bytes(&memory).sum::<usize>() as u64);
}

/// Planted break: a thread that finds nothing more does not look again after it has said that it goes.
/// Promise: compressed-backlog.
#[test]
fn what_comes_while_the_last_one_goes_is_not_forgotten() {
    let memory = Arc::new(memory(1));
    memory.write_behind(1, &page(1, 1)).unwrap();
    let mut compressing = Compressing::begin(&memory, 1).unwrap();
    assert!(compressing.one_page() && memory.compress_one() == CompressionStep::Nothing, "it has found nothing more");
    memory.write_behind(2, &page(1, 2)).unwrap();
    assert!(Compressing::begin(&memory, 1).is_none(), "there seems to be one who compresses");
    assert!(compressing.stays(&memory) && compressing.one_page() && !compressing.one_page());
    memory.write_behind(3, &page(1, 3)).unwrap();
    assert!(Compressing::begin(&memory, 1).is_some(), "it has gone");
}

/// Planted break: a thread that compresses keeps the volume.
#[test]
fn no_thread_compresses_a_volume_that_is_gone() {
    let memory = Arc::new(memory(1));
    (0..10).for_each(|number| memory.write_behind(number, &page(1, number)).unwrap());
    let mut compressing = Compressing::begin(&memory, 1).unwrap();
    assert!(compressing.one_page());
    drop(memory);
    assert!(!compressing.one_page());
}

/// Nothing can be compressed for a while. A thread that tries stops after a page, which stays in the backlog. What is
/// kept as it is stays within the bound whatever is written, and what is acknowledged is there. Afterwards all of it is
/// compressed.
///
/// Broken on purpose and seen red: a page that could not be compressed does not come back; a write of it meanwhile
/// finds no place taken.
/// Promise: compressed-bound.
#[test]
fn pages_that_could_not_be_compressed_stay_in_the_backlog() {
    let (memory, mut read) = (Arc::new(memory(1)), [0; PAGE_BYTES]);
    let bound = PAGES as usize / 8;
    codec::FAILS.set(true);
    let mut plain = vec![[0; PAGE_BYTES]; PAGES as usize];
    for round in 0..2 {
        for at in 0..PAGES {
            let content = page(1, at + round);
            match memory.write_behind(at, &content) {
                Ok(()) => plain[at as usize] = content,
                Err(NotCompressed) => assert!(memory.backlog.pages() > bound * 3 / 4, "there is room"),
            }
            // A thread that compresses has taken a page, and others are written before it knows that it cannot.
            let taken = memory.backlog.take().map(|page| (page, memory.leave_backlog(page).unwrap()));
            let others = (0..3).map(|other| (at + 400 * other) % PAGES).map(|at| (at, page(1, at + round + 7)));
            for (at, content) in others {
                if memory.write_behind(at, &content).is_ok() {
                    plain[at as usize] = content;
                }
            }
            taken.into_iter().for_each(|(page, snapshot)| memory.come_back(page, &snapshot));
            let mut compressing = Compressing::begin(&memory, 1).unwrap();
            let before = memory.backlog.pages();
            assert!(!compressing.one_page(), "it tries again at once");
            assert_eq!(memory.backlog.pages(), before);
            let kept = kept_bytes(&memory).filter(|&bytes| bytes == codec::PLAIN_BYTES).count();
            assert!(kept == before && kept <= bound, "{kept} are kept, {before} in the backlog, of {bound}");
        }
    }
    assert_eq!(memory.backlog.pages(), bound, "it is full");
    codec::FAILS.set(false);
    compress_all(&memory);
    for (at, expected) in plain.iter().enumerate() {
        assert_eq!(memory.read(at as u64, &mut read), Ok(()));
        assert!(&read == expected, "page {at}");
        assert_eq!(Ok(memory.kept(at as u64)), packed(expected, 1));
    }
    // Every place is free again.
    (0..bound as u64 * 7 / 8).for_each(|number| memory.write_behind(number, &page(1, number + 9)).unwrap());
    assert_eq!(memory.compressed_by_writers_bytes(), 0);
}
