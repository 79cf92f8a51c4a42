//! Where a file's pages lie: runs of pages that lie in one piece on the device, by place in the file.
//!
//! What both journaling file systems keep for each file. A run is *unwritten* if its blocks were given out and read as
//! zero until data has reached them.

use crate::cache::PageRange;
use std::collections::BTreeMap;

/// Pages of a stretch by which runs are counted, as powers of two: 256 KiB, 16 MiB, 1 GiB, 64 GiB.
const STRETCH_SHIFTS: [u32; 4] = [6, 12, 18, 24];

/// Pages that lie in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First page of the file.
    pub page: u64,
    /// First block of the device.
    pub block: u64,
    /// Pages.
    pub count: u64,
    /// Whether it reads as zero.
    pub is_unwritten: bool,
}

impl Run {
    /// The page after the last.
    pub fn end(&self) -> u64 {
        self.page + self.count
    }

    /// Its part from `page` on, at most `count_max` pages.
    fn part(&self, page: u64, count_max: u64) -> Run {
        let skipped = page - self.page;
        Run { page, block: self.block + skipped, count: (self.count - skipped).min(count_max), ..*self }
    }

    fn goes_on(&self, next: &Run, run_max: u64) -> bool {
        self.end() == next.page
            && self.block + self.count == next.block
            && self.is_unwritten == next.is_unwritten
            && self.count + next.count <= run_max
    }
}

/// Number of runs that begin in each stretch of a file, for stretches of several lengths. So the runs before a page are
/// counted from at most 64 numbers for each length.
#[derive(Clone, Debug, Default)]
struct Counts([BTreeMap<u64, usize>; STRETCH_SHIFTS.len()]);

impl Counts {
    fn add(&mut self, page: u64) {
        for (counts, shift) in self.0.iter_mut().zip(STRETCH_SHIFTS) {
            *counts.entry(page >> shift).or_default() += 1;
        }
    }

    fn remove(&mut self, page: u64) {
        for (counts, shift) in self.0.iter_mut().zip(STRETCH_SHIFTS) {
            let count = counts.get_mut(&(page >> shift)).expect("it was added");
            *count -= 1;
            if *count == 0 {
                counts.remove(&(page >> shift));
            }
        }
    }

    /// How many begin before the shortest stretch with `page`.
    fn before(&self, page: u64) -> usize {
        let mut count = 0;
        for (level, (counts, shift)) in self.0.iter().zip(STRETCH_SHIFTS).enumerate() {
            // The longer stretches before this one's are counted by the next level.
            let first = STRETCH_SHIFTS.get(level + 1).map_or(0, |longer| page >> longer << (longer - shift));
            count += counts.range(first..page >> shift).map(|(_, count)| count).sum::<usize>();
        }
        count
    }
}

/// A file's runs.
#[derive(Clone, Debug)]
pub struct ExtentMap {
    runs: BTreeMap<u64, Run>,
    counts: Counts,
    run_max: u64,
}

impl ExtentMap {
    /// Of an empty file; a run holds at most `run_max` pages.
    pub fn new(run_max: u64) -> ExtentMap {
        ExtentMap { runs: BTreeMap::new(), counts: Counts::default(), run_max }
    }

    /// How many runs: records of the file system's extent tree.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing has a place.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// All runs in order.
    pub fn iter(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// How many runs begin before `page`: which record of the tree speaks of it.
    pub fn index_of(&self, page: u64) -> usize {
        let shift = STRETCH_SHIFTS[0];
        self.counts.before(page) + self.runs.range(page >> shift << shift..page).count()
    }

    fn put(&mut self, run: Run) {
        if self.runs.insert(run.page, run).is_none() {
            self.counts.add(run.page);
        }
    }

    fn take(&mut self, page: u64) {
        if self.runs.remove(&page).is_some() {
            self.counts.remove(page);
        }
    }

    /// The run of `pages`' first page, cut to `pages`; if it has no place, the pages until one that has.
    pub fn find(&self, pages: PageRange) -> Result<Run, u64> {
        match self.run_of(pages.first) {
            Some(run) => Ok(run.part(pages.first, pages.count)),
            None => {
                let next = self.runs.range(pages.first..).next().map_or(u64::MAX, |(&page, _)| page);
                Err(pages.count.min(next - pages.first))
            }
        }
    }

    fn run_of(&self, page: u64) -> Option<&Run> {
        self.runs.range(..=page).next_back().map(|(_, run)| run).filter(|run| run.end() > page)
    }

    /// The last run that begins before `page`.
    pub fn before(&self, page: u64) -> Option<&Run> {
        self.runs.range(..page).next_back().map(|(_, run)| run)
    }

    /// Adds a run for pages that have no place.
    pub fn insert(&mut self, run: Run) {
        debug_assert!(self.find(PageRange { first: run.page, count: run.count }) == Err(run.count));
        let mut run = run;
        if let Some(&previous) = self.before(run.page)
            && previous.goes_on(&run, self.run_max)
        {
            run = Run { count: previous.count + run.count, ..previous };
        }
        if let Some(&next) = self.runs.get(&run.end())
            && run.goes_on(&next, self.run_max)
        {
            self.take(next.page);
            run.count += next.count;
        }
        self.put(run);
    }

    /// Takes out what lies in `pages`; answers with what it was.
    pub fn remove(&mut self, pages: PageRange) -> Vec<Run> {
        let end = pages.first.saturating_add(pages.count);
        let first = self.run_of(pages.first).map_or(pages.first, |run| run.page);
        let touched: Vec<Run> = self.runs.range(first..end).map(|(_, &run)| run).collect();
        let mut removed = Vec::with_capacity(touched.len());
        for run in touched {
            self.take(run.page);
            if run.page < pages.first {
                self.put(run.part(run.page, pages.first - run.page));
            }
            if run.end() > end {
                self.put(run.part(end, u64::MAX));
            }
            let from = run.page.max(pages.first);
            removed.push(run.part(from, end.min(run.end()) - from));
        }
        removed
    }

    /// What is unwritten in `pages` is written now; answers whether anything was.
    pub fn convert(&mut self, pages: PageRange) -> bool {
        let mut is_changed = false;
        let mut from = pages.first;
        while from < pages.end() {
            let rest = PageRange { first: from, count: pages.end() - from };
            from += match self.find(rest) {
                Ok(run) if run.is_unwritten => {
                    self.remove(PageRange { first: run.page, count: run.count });
                    self.insert(Run { is_unwritten: false, ..run });
                    is_changed = true;
                    run.count
                }
                Ok(run) => run.count,
                Err(hole) => hole,
            };
        }
        is_changed
    }

    /// Whether anything in `pages` is unwritten.
    pub fn has_unwritten(&self, pages: PageRange) -> bool {
        let first = self.run_of(pages.first).map_or(pages.first, |run| run.page);
        self.runs.range(first..pages.end()).any(|(_, run)| run.is_unwritten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u64 = 48;
    const RUN_MAX: u64 = 7;
    /// Pages are this far apart, so that runs begin in stretches of each length.
    const DISTANCES: [u64; 3] = [1, 1 << 9, 1 << 21];

    #[derive(Clone, Debug)]
    enum Step {
        Insert { first: u64, count: u64, block: u64, is_unwritten: bool },
        Remove { first: u64, count: u64 },
        Convert { first: u64, count: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0..PAGES, 1..12u64);
        prop_oneof![
            (range.clone(), 0..3u64, any::<bool>()).prop_map(|((first, count), place, is_unwritten)| {
                // Few distances between page and block, so that neighbours often go on.
                Step::Insert { first, count: count.min(RUN_MAX), block: first + 1000 * (place + 1), is_unwritten }
            }),
            range.clone().prop_map(|(first, count)| Step::Remove { first, count }),
            range.prop_map(|(first, count)| Step::Convert { first, count }),
        ]
    }

    proptest! {
        #[test]
        fn runs_say_what_a_table_of_pages_says(steps in proptest::collection::vec(step(), 0..60)) {
            let mut extents = ExtentMap::new(RUN_MAX);
            let mut table: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Insert { first, count, block, is_unwritten } => {
                        let free = (first..first + count).take_while(|page| !table.contains_key(page)).count() as u64;
                        if free > 0 {
                            extents.insert(Run { page: first, block, count: free, is_unwritten });
                            table.extend((0..free).map(|at| (first + at, (block + at, is_unwritten))));
                        }
                    }
                    Step::Remove { first, count } => {
                        let removed = extents.remove(PageRange { first, count });
                        let expected: Vec<_> = (first..first + count).filter_map(|page| table.remove(&page)).collect();
                        let blocks = removed.iter().flat_map(|run| (0..run.count).map(|at| run.block + at));
                        prop_assert_eq!(blocks.collect::<Vec<_>>(), expected.iter().map(|e| e.0).collect::<Vec<_>>());
                    }
                    Step::Convert { first, count } => {
                        let pages = PageRange { first, count };
                        let mut is_changed = false;
                        for (_, entry) in table.range_mut(first..first + count) {
                            is_changed |= std::mem::replace(&mut entry.1, false);
                        }
                        prop_assert_eq!(extents.has_unwritten(pages), is_changed);
                        prop_assert_eq!(extents.convert(pages), is_changed);
                    }
                }
                for page in 0..PAGES + 12 {
                    let found = extents.find(PageRange { first: page, count: 1 }).ok();
                    prop_assert_eq!(found.map(|run| (run.block, run.is_unwritten)), table.get(&page).copied());
                }
                let runs: Vec<&Run> = extents.iter().collect();
                prop_assert!(runs.iter().all(|run| run.count <= RUN_MAX));
                prop_assert!(runs.windows(2).all(|pair| pair[0].end() <= pair[1].page));
            }
        }

        #[test]
        fn runs_before_a_page_are_as_many_as_counting_them_gives(
            pages in proptest::collection::vec((0..100u64, 0..DISTANCES.len()), 0..200),
            removed in (0..100u64, 1..100u64, 0..DISTANCES.len()),
        ) {
            let mut extents = ExtentMap::new(RUN_MAX);
            for (page, distance) in pages {
                let page = PageRange { first: page * DISTANCES[distance], count: 1 };
                if extents.find(page).is_err() {
                    extents.insert(Run { page: page.first, block: page.first, count: 1, is_unwritten: false });
                }
            }
            let (first, count, distance) = removed;
            extents.remove(PageRange { first: first * DISTANCES[distance], count: count * DISTANCES[distance] });
            let begins: Vec<u64> = extents.iter().map(|run| run.page).collect();
            for page in (0..100).flat_map(|page| DISTANCES.map(|distance| page * distance)) {
                prop_assert_eq!(extents.index_of(page), begins.iter().filter(|&&begin| begin < page).count());
            }
        }
    }
}
