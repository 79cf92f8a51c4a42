//! What is left of a cache with damaged records, if that is accepted: of each block the newest version or what the
//! store has, and never an older version that was in the cache.

use crate::crash::{Points, crash_plainly};
use crate::damage::{newest_of_journal, records_of, setup, spoil, used};
use crate::device::Device;
use crate::rig::{Random, Rig, Setup};
use plimsoll_cache::store::journal::{Change, RECORDS};
use plimsoll_cache::store::map::{self, ENTRIES};
use plimsoll_cache::store::{OpenError, Report, RequestKind, Semantics, probe};
use std::collections::{BTreeMap, BTreeSet};

/// Where the cache's own records are, but for those that a start does not need and for the newest block of the journal.
fn records_at(rig: &Rig) -> Vec<u64> {
    let (layout, newest) = (rig.setup.layout(), newest_of_journal(&rig.cache, &rig.setup));
    let start = probe(&mut rig.cache.clone()).unwrap().journal_sequence;
    let journal = (start..newest).map(|sequence| layout.journal_block(sequence));
    journal.chain(layout.map_start(0)..layout.map_start(2)).collect()
}

/// What a cache was found to be after some of its records were spoiled.
struct Trial<'a> {
    /// As it was before.
    rig: &'a Rig,
    name: String,
    report: Report,
    next: Rig,
}

impl Trial<'_> {
    /// Spoils these blocks. `None` if nothing is lost by that, and then everything is there.
    fn new<'a>(rig: &'a Rig, spoiled: &[u64], random: &mut Random) -> Option<Trial<'a>> {
        let (setup, name) = (&rig.setup, format!("{spoiled:?}"));
        let mut cache = rig.cache.after_kill();
        spoiled.iter().for_each(|&block| spoil(&mut cache, block, random));
        cache.writes = 0;
        let next = |cache| Rig::new(setup.clone(), cache, rig.store.after_kill(), rig.versions.clone(), 1);
        let told = match setup.find(&mut cache.clone()) {
            Ok(_) => {
                for (block, content) in next(cache).read_all().iter().enumerate() {
                    let content = content.as_ref().expect("no unit is spoiled");
                    rig.versions.check(block as u64, content).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                return None;
            }
            Err(OpenError::Damaged { report }) => *report,
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(cache.writes, 0, "{name}: what is refused is not touched");
        let report = setup.accepting().find(&mut cache).unwrap_or_else(|error| panic!("{name}: {error}")).report;
        let losses = |report: &Report| {
            let Report { lost_pages, lost_journal_blocks, given_up_units, given_up_dirty_units, .. } = *report;
            (lost_pages, lost_journal_blocks, given_up_units, given_up_dirty_units, report.lost_units_max())
        };
        assert_eq!(losses(&told), losses(&report), "{name}: what is lost is what was told");
        // It is accepted once: then the cache is whole again.
        Some(Trial { rig, name, report, next: next(cache) })
    }

    /// Reads everything. Answers how many blocks are lost.
    fn assert_nothing_is_old(&mut self) -> u32 {
        let Trial { rig, name, report, next } = self;
        // If the program died, a read promises no durability; a flush does.
        next.request(RequestKind::Flush, 0, u8::MAX);
        let mut lost = 0;
        for (block, content) in next.read_all().iter().enumerate() {
            let content = content.as_ref().unwrap_or_else(|failure| panic!("{name}: block {block}: {failure}"));
            if let Err(error) = rig.versions.check(block as u64, content) {
                assert!(content[..] == rig.store.get(block as u64)[..], "{name}: not what the store has: {error}");
                lost += 1;
            }
            next.versions.settle(block as u64, content);
        }
        let unknown = RECORDS as u64 * report.lost_journal_blocks + ENTRIES as u64 * u64::from(report.lost_pages);
        assert!(u64::from(lost) <= u64::from(report.given_up_dirty_units) + unknown, "{name}: {lost} of {report:?}");
        // The bound that the refusal named: no larger than the cache.
        assert!(u64::from(lost) <= report.lost_units_max(), "{name}: {lost} of {report:?}");
        lost
    }

    /// What was found stays: in crashes, while work goes on, and when it is cleaned.
    fn assert_it_stays(mut self, random: &mut Random) {
        let (next, name) = (&mut self.next, &self.name);
        for _ in 0..12 {
            next.step();
            let found = crash_plainly(next, random, &mut Points::default());
            found.unwrap_or_else(|error| panic!("{name}: crashed afterwards: {error}"));
        }
        next.settle();
        next.machine.clean_all();
        next.settle();
        next.request(RequestKind::Flush, 0, u8::MAX);
        next.settle();
        assert_eq!(next.machine.dirty_units(), 0, "{name}");
        for block in 0..next.setup.store_blocks {
            let found = next.versions.check_newest(block, u8::MAX, &next.store.get(block)[..]);
            found.unwrap_or_else(|error| panic!("{name}: on the store: {error}"));
        }
    }
}

/// Each of a cache's records, each two of them, and both slots of each page of the map with each slot of the others.
fn combinations(rig: &Rig) -> Vec<Vec<u64>> {
    let (at, layout) = (records_at(rig), rig.setup.layout());
    let mut all: Vec<Vec<u64>> = at.iter().map(|&one| vec![one]).collect();
    all.extend(
        at.iter().enumerate().flat_map(|(first, &one)| at[first + 1..].iter().map(move |&other| vec![one, other])),
    );
    for page in 0..layout.map_pages() {
        let both = [0, 1].map(|slot| layout.map_block(slot, page));
        let others = (layout.map_start(0)..layout.map_start(2)).filter(|other| !both.contains(other));
        all.extend(others.map(|other| vec![both[0], both[1], other]));
    }
    all
}

/// Spoils each of these combinations. Answers how many trials lost something, and how many blocks were lost.
fn spoil_all(rig: &Rig, random: &mut Random) -> (u32, u32) {
    let (mut trials, mut blocks) = (0, 0);
    for spoiled in combinations(rig) {
        let Some(mut trial) = Trial::new(rig, &spoiled, random) else { continue };
        (trials, blocks) = (trials + 1, blocks + trial.assert_nothing_is_old());
        if random.below(8) == 0 {
            trial.assert_it_stays(random);
        }
    }
    (trials, blocks)
}

/// Any one and any two of a cache's own records are spoiled, pages of the map in either slot and blocks of the journal,
/// and three slots of two pages: of a cache with several pages, closed and killed, and of one that is so small that
/// what it gives up is soon written past it. Outcome: what the cache still has is not older than what was flushed, and
/// for the rest there is what the store has; no more is lost than was told.
///
/// Planted breaks: a page of which the older slot is left is believed beside one that is lost; everything that the map
/// and the journal said before the damage is believed; only clean units are given up.
/// Promise: store-losses.
#[test]
fn whatever_is_spoiled_nothing_old_is_taken_for_good() {
    let mut random = Random(7);
    let (mut trials, mut blocks) = (0, 0);
    let mut look = |rig: &Rig| {
        let found = spoil_all(rig, &mut random);
        (trials, blocks) = (trials + found.0, blocks + found.1);
    };
    for seed in 0..8 {
        look(&used(&setup(), seed, seed % 2 == 0));
    }
    for seed in 0..32 {
        let policy = if seed < 24 { ["lru", "selective", "credit"][seed as usize % 3] } else { "s3_fifo" };
        let semantics = if seed % 2 == 0 { Semantics::WriteCache } else { Semantics::Strict };
        let setup = Setup { units: 14, store_blocks: 32, ..Setup::small(policy, semantics) };
        // As it is in the midst of its work.
        let mut rig = Rig::fresh(setup, seed);
        (0..600 + seed * 7).for_each(|_| rig.step());
        look(&rig);
    }
    println!("{trials} times something was lost, {blocks} blocks in all");
    assert!(trials > 500 && blocks > 500, "{trials}, {blocks}");
}

/// The page of the map in which each block's unit is.
fn pages_of(rig: &Rig) -> BTreeMap<u64, u32> {
    let found = rig.setup.open(&mut rig.cache.after_kill()).unwrap();
    let unit = |block| found.cache().find(block).map(|unit| (block, unit.0 / ENTRIES as u32));
    (0..rig.setup.store_blocks).filter_map(unit).collect()
}

/// The pages that have their valid slot in one of these blocks, after a shutdown.
fn holding(cache: &Device, setup: &Setup, blocks: &[u64]) -> Vec<u32> {
    let (layout, uuid) = (setup.layout(), probe(&mut cache.clone()).unwrap().uuid);
    let generation = |slot, page| map::head(cache.get(layout.map_block(slot, page)), &uuid).unwrap().generation;
    let holds = |page| usize::from(generation(1, page) > generation(0, page));
    (0..layout.map_pages()).filter(|&page| blocks.contains(&layout.map_block(holds(page), page))).collect()
}

/// One bad page costs its own units, several cost theirs; everything else of the cache is there.
/// Promise: store-losses.
#[test]
fn what_is_damaged_is_lost_and_nothing_else_if_that_is_accepted() {
    let (setup, mut random, mut lost_units) = (setup(), Random(23), 0);
    let rig = used(&setup, 23, true);
    let (layout, pages) = (setup.layout(), pages_of(&rig));
    let slots: Vec<u64> = (layout.map_start(0)..layout.map_start(2)).collect();
    let is_of_map = |spoiled: &Vec<u64>| spoiled.iter().all(|block| slots.contains(block));
    for spoiled in combinations(&rig).into_iter().filter(is_of_map) {
        let holding = holding(&rig.cache, &setup, &spoiled);
        let Some(mut trial) = Trial::new(&rig, &spoiled, &mut random) else {
            assert!(holding.is_empty(), "{spoiled:?}");
            continue;
        };
        // As soon as one slot is lost, it is unknown whether the remaining slot of another page is valid.
        let page_of = |block: &u64| ((block - layout.map_start(0)) % u64::from(layout.map_pages())) as u32;
        let lost: BTreeSet<u32> = spoiled.iter().map(page_of).collect();
        assert!(!holding.is_empty(), "{spoiled:?}");
        assert_eq!(trial.report.lost_pages as usize, lost.len(), "{spoiled:?}: {:?}", trial.report);
        assert_eq!(trial.report.given_up_units, 0);
        let kept: Vec<u64> = pages.iter().filter(|(_, page)| !lost.contains(page)).map(|(&block, _)| block).collect();
        assert_eq!(trial.report.units as usize, kept.len(), "{spoiled:?}");
        lost_units += pages.len() - kept.len();
        for block in kept {
            let content = trial.next.read(block).unwrap();
            rig.versions.check_newest(block, u8::MAX, &content).unwrap();
        }
        trial.assert_nothing_is_old();
    }
    assert!(pages.len() > 40 && lost_units > pages.len(), "{lost_units}");
}

/// Of a damaged journal what is recorded behind the damage is kept, as it is proven, and nothing else. It is accepted
/// once, and what was behind the damage is never taken for what comes next.
///
/// Planted breaks: nothing behind the damage is kept; numbers go on from the damage.
/// Promise: store-losses.
#[test]
fn behind_the_damage_of_a_journal_everything_is_kept_and_before_it_nothing() {
    let (setup, mut random, mut kept, mut given_up) = (setup(), Random(60), 0, 0);
    for seed in 60..72 {
        let mut rig = used(&setup, seed, false);
        let start = probe(&mut rig.cache).unwrap().journal_sequence;
        let newest = newest_of_journal(&rig.cache, &setup);
        for damaged in start..newest {
            let spoiled = [setup.layout().journal_block(damaged)];
            let mut trial = Trial::new(&rig, &spoiled, &mut random).expect("a block that others follow is needed");
            let mut last = BTreeMap::new();
            for record in (damaged + 1..=newest).flat_map(|sequence| records_of(&rig.cache, &setup, sequence)) {
                last.insert(record.block, record.change);
            }
            last.retain(|_, change| *change != Change::Invalid);
            let report = trial.report;
            assert_eq!((report.lost_journal_blocks, report.journal_blocks), (1, newest - damaged));
            assert_eq!(report.units as usize, last.len(), "seed {seed}, block {damaged}: {report:?}");
            for &block in last.keys() {
                assert!(trial.next.machine.cache().find(block).is_some());
                let content = trial.next.read(block).unwrap();
                rig.versions.check_newest(block, u8::MAX, &content).unwrap();
            }
            (kept, given_up) = (kept + report.units, given_up + report.given_up_dirty_units);
            trial.assert_nothing_is_old();
            let mut cache = trial.next.cache.after_kill();
            let again = setup.find(&mut cache).expect("it is accepted once").report;
            assert!(!again.has_losses());
        }
    }
    assert!(kept > 50 && given_up > 50, "{kept} kept, {given_up} dirty ones given up");
}
