//! Read-ahead: how much of a file to read beyond what is asked for (Linux `mm/readahead.c`, `ondemand_readahead`).
//!
//! A sequential reader gets a window that doubles up to a maximum. The first page of the window's last part is marked.
//! The use of a marked page starts the next window before the present one is used up. So a sequential reader never
//! waits for a device that is fast enough. A reader that jumps gets what it asked for and no more.
//!
//! Left out of Linux's rules: guessing from the cache that an interleaved reader is sequential
//! (`try_context_readahead`).

use crate::cache::PageRange;

/// Where one open file's reader stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAhead {
    /// First page of the present window.
    start: u64,
    /// Its pages; 0 if there is none.
    size: u64,
    /// Pages at its end that begin with the mark.
    ahead: u64,
    /// The last page that was used.
    previous: Option<u64>,
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The pages.
    pub pages: PageRange,
    /// The page that gets the mark; none for a reader that jumps.
    pub mark: Option<u64>,
}

impl ReadAhead {
    /// What to read when the reader wants `wanted` and the first of them is not in memory, or carries the mark
    /// (`is_marked`). At most `max` pages ahead.
    pub fn next(&mut self, wanted: PageRange, is_marked: bool, max: u64) -> Window {
        let end = self.start + self.size;
        if max == 0 {
            return Window { pages: wanted, mark: None };
        }
        if self.size > 0 && (wanted.first == end || wanted.first == end - self.ahead) {
            self.start = end;
            self.size = next_size(self.size, max);
            self.ahead = self.size;
        } else if is_marked {
            self.start = wanted.first + 1;
            self.size = next_size(wanted.count, max);
            self.ahead = self.size;
        } else if wanted.first == 0 || wanted.count > max || self.goes_on(wanted.first) {
            self.start = wanted.first;
            self.size = initial_size(wanted.count, max);
            self.ahead = if self.size > wanted.count { self.size - wanted.count } else { self.size };
        } else {
            return Window { pages: wanted, mark: None };
        }
        if self.start == wanted.first && self.size == self.ahead {
            self.size = (self.size + next_size(self.size, max)).min(max).max(self.size);
            self.ahead = self.ahead.min(self.size / 2).max(1);
        }
        let pages = PageRange { first: self.start, count: self.size };
        Window { pages, mark: Some(self.start + self.size - self.ahead) }
    }

    /// The reader used a page.
    pub fn used(&mut self, page: u64) {
        self.previous = Some(page);
    }

    fn goes_on(&self, page: u64) -> bool {
        self.previous.is_some_and(|previous| page == previous || page == previous + 1)
    }
}

/// `get_init_ra_size`.
fn initial_size(wanted: u64, max: u64) -> u64 {
    let size = wanted.next_power_of_two();
    match size {
        size if size <= max / 32 => size * 4,
        size if size <= max / 4 => size * 2,
        _ => max,
    }
}

/// `get_next_ra_size`.
fn next_size(size: u64, max: u64) -> u64 {
    match size {
        size if size < max / 16 => size * 4,
        size if size <= max / 2 => size * 2,
        _ => max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: u64 = 32;

    fn range(first: u64, count: u64) -> PageRange {
        PageRange { first, count }
    }

    #[test]
    fn a_sequential_reader_of_single_pages_gets_windows_that_double() {
        let mut state = ReadAhead::default();
        let first = state.next(range(0, 1), false, MAX);
        assert_eq!(first, Window { pages: range(0, 4), mark: Some(1) });
        let second = state.next(range(1, 1), true, MAX);
        assert_eq!(second, Window { pages: range(4, 8), mark: Some(4) });
        let third = state.next(range(4, 1), true, MAX);
        assert_eq!(third, Window { pages: range(12, 16), mark: Some(12) });
        assert_eq!(state.next(range(12, 1), true, MAX).pages, range(28, 32));
        assert_eq!(state.next(range(28, 1), true, MAX).pages, range(60, 32));
    }

    #[test]
    fn a_reader_that_jumps_gets_what_it_asks_for() {
        let mut state = ReadAhead::default();
        for page in [700, 20, 431] {
            assert_eq!(state.next(range(page, 2), false, MAX), Window { pages: range(page, 2), mark: None });
            state.used(page + 1);
        }
    }

    proptest! {
        /// The oracle: what a sequential reader must see, whatever it asks for at a time: every page comes once.
        #[test]
        fn a_sequential_reader_gets_every_page_once(asked in proptest::collection::vec(1u64..70, 1..60)) {
            let (mut state, mut have, mut mark, mut at) = (ReadAhead::default(), 0, None, 0);
            for count in asked {
                for page in at..at + count {
                    while page >= have || mark == Some(page) {
                        let window = state.next(range(page, at + count - page), mark == Some(page), MAX);
                        prop_assert!(window.pages.first <= have, "no gap");
                        prop_assert!(window.pages.end() > have, "something new");
                        prop_assert!(window.mark.is_some_and(|mark| mark < window.pages.end() && mark > page || mark == window.pages.first));
                        have = window.pages.end();
                        mark = window.mark;
                        if mark == Some(page) { mark = None; }
                    }
                    state.used(page);
                }
                at += count;
                prop_assert!(have <= at + 2 * MAX, "at most two windows ahead");
            }
        }
    }
}
