//! The cache against the obvious: a map of pages, and two plain lists for the page that is given up next.

use super::frames::{ACTIVE, DIRTY, LOCKED, PINNED, REFERENCED, WRITEBACK};
use super::*;
use plimsoll_core::AccountId;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const CAPACITY: u64 = 40;
const INODES: u32 = 3;
const PAGES: u64 = 200;

type Key = (u32, u64);

#[derive(Clone, Debug, Default)]
struct Page {
    is_locked: bool,
    is_dirty: bool,
    is_writeback: bool,
    is_pinned: bool,
    is_referenced: bool,
    causes: BTreeSet<u32>,
}

/// Pages in a map; `inactive` and `active` from oldest to newest.
#[derive(Default)]
struct Oracle {
    pages: BTreeMap<Key, Page>,
    inactive: Vec<Key>,
    active: Vec<Key>,
}

impl Oracle {
    fn touch(&mut self, key: Key) {
        let Some(page) = self.pages.get_mut(&key) else { return };
        if !page.is_referenced {
            page.is_referenced = true;
        } else if let Some(place) = self.inactive.iter().position(|&other| other == key) {
            self.inactive.remove(place);
            page.is_referenced = false;
            self.active.push(key);
        }
    }

    fn remove(&mut self, key: Key) {
        self.pages.remove(&key);
        self.inactive.retain(|&other| other != key);
        self.active.retain(|&other| other != key);
    }

    fn evict_one(&mut self) -> bool {
        for _ in 0..2 * self.pages.len() {
            if (self.inactive.len() < self.active.len() || self.inactive.is_empty()) && !self.active.is_empty() {
                let key = self.active.remove(0);
                self.pages.get_mut(&key).unwrap().is_referenced = false;
                self.inactive.push(key);
            }
            let Some(&key) = self.inactive.first() else { return false };
            let page = self.pages.get_mut(&key).unwrap();
            if !(page.is_locked || page.is_dirty || page.is_writeback || page.is_pinned) {
                self.remove(key);
                return true;
            }
            page.is_referenced = false;
            self.inactive.remove(0);
            self.active.push(key);
        }
        let is_needed = |page: &Page| page.is_locked || page.is_dirty || page.is_writeback || page.is_pinned;
        assert!(self.pages.values().all(is_needed), "a page that no process needs was not found");
        false
    }

    fn is_dirty_and_free(&self, key: Key) -> bool {
        self.pages.get(&key).is_some_and(|page| page.is_dirty && !page.is_writeback)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Key, bool),
    EndRead(Key),
    Touch(Key),
    Dirty(Key, u64, u32),
    WriteRun(u32, u64),
    EndWriteback(Key),
    Truncate(u32, u64),
    Pin(Key, bool),
    MakeRoom(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || (0..INODES, prop_oneof![0..20u64, 0..PAGES]);
    prop_oneof![
        4 => (key(), any::<bool>()).prop_map(|(key, is_locked)| Step::Insert(key, is_locked)),
        2 => key().prop_map(Step::EndRead),
        3 => key().prop_map(Step::Touch),
        4 => (key(), 1..5u64, 0..70u32).prop_map(|(key, count, account)| Step::Dirty(key, count, account)),
        2 => (0..INODES, 0..PAGES).prop_map(|(inode, from)| Step::WriteRun(inode, from)),
        2 => key().prop_map(Step::EndWriteback),
        1 => (0..INODES, 0..PAGES).prop_map(|(inode, first)| Step::Truncate(inode, first)),
        1 => (key(), any::<bool>()).prop_map(|(key, is_pinned)| Step::Pin(key, is_pinned)),
        2 => (1..8u64).prop_map(Step::MakeRoom),
    ]
}

fn accounts(cache: &Cache, number: CauseId) -> BTreeSet<u32> {
    cache.causes.set(number).iter().map(|account| account.0).collect()
}

fn one(page: u64) -> PageRange {
    PageRange { first: page, count: 1 }
}

/// Takes one step in both; what they answer must agree.
fn take(step: Step, cache: &mut Cache, oracle: &mut Oracle) {
    match step {
        Step::Insert(key, is_locked) => {
            if !oracle.pages.contains_key(&key) && (oracle.pages.len() as u64) < CAPACITY {
                cache.insert(InodeNumber(key.0), key.1, if is_locked { LOCKED } else { 0 });
                oracle.pages.insert(key, Page { is_locked, ..Page::default() });
                oracle.inactive.push(key);
            }
        }
        Step::EndRead(key) => {
            if let Some(page) = oracle.pages.get_mut(&key).filter(|page| page.is_locked) {
                page.is_locked = false;
                cache.end_read(InodeNumber(key.0), one(key.1));
            }
        }
        Step::Touch(key) => {
            cache.touch(InodeNumber(key.0), key.1);
            oracle.touch(key);
        }
        Step::Dirty((inode, first), count, account) => {
            let present = |page: &u64| oracle.pages.get(&(inode, *page)).is_some_and(|page| !page.is_locked);
            let count = (first..first + count).take_while(present).count() as u64;
            let number = cache.causes.number(&CauseSet::of(AccountId(account)));
            let mut changes = Vec::new();
            cache.dirty_pages(InodeNumber(inode), PageRange { first, count }, number, &mut changes);
            let mut told = changes.iter().flat_map(|change| {
                (change.pages.first..change.pages.end()).map(|page| (page, accounts(cache, change.previous)))
            });
            for page in first..first + count {
                let state = oracle.pages.get_mut(&(inode, page)).unwrap();
                assert_eq!(told.next(), Some((page, state.causes.clone())), "the causes before");
                state.is_dirty = true;
                state.causes.insert(account);
                oracle.touch((inode, page));
            }
            assert_eq!(told.next(), None);
        }
        Step::WriteRun(inode, from) => write_run(inode, from, cache, oracle),
        Step::EndWriteback(key) => {
            if let Some(page) = oracle.pages.get_mut(&key).filter(|page| page.is_writeback) {
                page.is_writeback = false;
                cache.end_writeback(InodeNumber(key.0), one(key.1));
            }
        }
        Step::Truncate(inode, first) => truncate(inode, first, cache, oracle),
        Step::Pin(key, is_pinned) => {
            if let Some(page) = oracle.pages.get_mut(&key) {
                page.is_pinned = is_pinned;
                cache.set_pinned(InodeNumber(key.0), key.1, is_pinned);
            }
        }
        Step::MakeRoom(count) => {
            let free = |oracle: &Oracle| CAPACITY - oracle.pages.len() as u64;
            let was_enough = free(oracle) >= count;
            while !was_enough && free(oracle) < count.max(RECLAIM_PAGES) && oracle.evict_one() {}
            assert_eq!(cache.make_room(count), free(oracle) >= count);
        }
    }
}

fn write_run(inode: u32, from: u64, cache: &mut Cache, oracle: &mut Oracle) {
    let run = cache.next_dirty_run(InodeNumber(inode), from, PAGES + 10, 3);
    let first = (from..PAGES + 10).find(|&page| oracle.is_dirty_and_free((inode, page)));
    let count = first.map(|first| {
        (first..PAGES + 10).take(3).take_while(|&page| oracle.is_dirty_and_free((inode, page))).count() as u64
    });
    assert_eq!(run, first.zip(count).map(|(first, count)| PageRange { first, count }));
    let Some(run) = run else { return };
    let causes = cache.begin_writeback(InodeNumber(inode), run);
    let mut union = BTreeSet::new();
    for page in run.first..run.end() {
        let state = oracle.pages.get_mut(&(inode, page)).unwrap();
        (state.is_dirty, state.is_writeback) = (false, true);
        union.append(&mut state.causes);
    }
    assert_eq!(causes.iter().map(|account| account.0).collect::<BTreeSet<_>>(), union);
}

fn truncate(inode: u32, first: u64, cache: &mut Cache, oracle: &mut Oracle) {
    let keys: Vec<Key> = oracle.pages.range((inode, first)..=(inode, u64::MAX)).map(|(&key, _)| key).collect();
    if keys.iter().any(|key| oracle.pages[key].is_locked || oracle.pages[key].is_writeback) {
        return;
    }
    let mut freed = Vec::new();
    cache.truncate(InodeNumber(inode), first, &mut freed);
    let told: Vec<_> = freed
        .iter()
        .flat_map(|change| (change.pages.first..change.pages.end()).map(|page| (page, change.previous)))
        .map(|(page, causes)| (page, accounts(cache, causes)))
        .collect();
    let dirty = keys.iter().filter(|key| oracle.pages[key].is_dirty);
    assert_eq!(told, dirty.map(|key| (key.1, oracle.pages[key].causes.clone())).collect::<Vec<_>>());
    keys.into_iter().for_each(|key| oracle.remove(key));
}

/// Every page must look the same in both.
fn compare(cache: &Cache, oracle: &Oracle) {
    for inode in 0..INODES {
        for page in 0..PAGES + 5 {
            let key = (inode, page);
            let expected = oracle.pages.get(&key).map(|page| {
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                flag(page.is_locked, LOCKED)
                    | flag(page.is_dirty, DIRTY)
                    | flag(page.is_writeback, WRITEBACK)
                    | flag(page.is_pinned, PINNED)
                    | flag(page.is_referenced, REFERENCED)
                    | flag(oracle.active.contains(&key), ACTIVE)
            });
            assert_eq!(cache.flags(InodeNumber(inode), page), expected, "{key:?}");
            let causes = oracle.pages.get(&key).map(|page| page.causes.clone()).unwrap_or_default();
            assert_eq!(accounts(cache, cache.causes_of(InodeNumber(inode), page)), causes);
        }
    }
    let count = |of: fn(&Page) -> bool| oracle.pages.values().filter(|page| of(page)).count() as u64;
    assert_eq!(cache.dirty(), count(|page| page.is_dirty));
    assert_eq!(cache.writeback(), count(|page| page.is_writeback));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_cache_is_a_map_of_pages_and_two_lists(steps in proptest::collection::vec(step(), 0..150)) {
        let mut cache = Cache::new(CAPACITY * PAGE_BYTES);
        let mut oracle = Oracle::default();
        for step in steps {
            take(step, &mut cache, &mut oracle);
            cache.assert_conserved();
        }
        compare(&cache, &oracle);
    }
}

#[test]
fn a_file_read_once_does_not_push_out_what_is_used_often() {
    let mut cache = Cache::new(10 * CAPACITY * PAGE_BYTES);
    let (hot, cold) = (InodeNumber(1), InodeNumber(2));
    for page in 0..100 {
        cache.insert(hot, page, 0);
        cache.touch(hot, page);
        cache.touch(hot, page);
    }
    for page in 0..10_000 {
        assert!(cache.make_room(1));
        cache.insert(cold, page, 0);
        cache.touch(cold, page);
    }
    assert_eq!(cache.mapping(hot).unwrap().resident, 100);
}

#[test]
fn memory_full_of_dirty_pages_has_no_room() {
    let mut cache = Cache::new(CAPACITY * PAGE_BYTES);
    let file = InodeNumber(1);
    let pages = PageRange { first: 0, count: CAPACITY };
    (0..CAPACITY).for_each(|page| cache.insert(file, page, 0));
    cache.dirty_pages(file, pages, CauseId::NONE, &mut Vec::new());
    assert!(!cache.make_room(1));
    cache.begin_writeback(file, pages);
    assert!(!cache.make_room(1));
    cache.end_writeback(file, PageRange { first: 7, count: 1 });
    assert!(cache.make_room(1));
    assert_eq!(cache.flags(file, 7), None);
}
