//! Which account has how many dirty bytes in which file.
//!
//! **Intuition.** A scheduler hears of every page that becomes dirty, is freed, or goes to the device. So it can keep
//! books of the pages yet to be written. They tell the cost of a file's fsync, and an account's backlog. **Rule.** The
//! bytes of a page are shared evenly by the accounts that dirtied it; if another account dirties it too, they are
//! shared anew. A write request of a file takes its bytes out, and so do freed pages. **Complication.** A request has
//! the causes of all its pages, but not page by page. So the bytes of a file are exact. The request's causes give up
//! equal parts; if an account has none left, the others do. Always: the parts of a file's accounts sum up to the file's
//! bytes, and those of an account to the account's.
//!
//! What was dirty before the scheduler came is not in the books; taking out more than there is leaves nothing, and
//! never less than nothing. Pages without a known cause are the device's ([`AccountId::ROOT`]).
//!
//! Cost: O(1) for each cause of an event. Nothing is allocated once as many files and accounts were dirty at once as
//! ever are.

use crate::keyed_slab::KeyedSlab;
use plimsoll_core::{AccountId, BlockRequest, CauseSet, FileId, Operation, PageEvent};

/// Bytes that are shared out as one: a page (x86-64), so that a stretch is shared as its pages are.
const PAGE_BYTES: u64 = 4096;
/// The end of a list.
const NONE: u32 = u32::MAX;

/// A file that has dirty bytes.
#[derive(Clone, Copy)]
struct FileEntry {
    bytes: u64,
    /// The first of its parts.
    parts: u32,
}

/// What an account has in a file; in a list with the file's others.
#[derive(Clone, Copy)]
struct Part {
    bytes: u64,
    before: u32,
    after: u32,
}

/// See the module's text.
#[derive(Default)]
pub struct DirtyLedger {
    total_bytes: u64,
    by_account: Vec<u64>,
    files: KeyedSlab<FileId, FileEntry>,
    /// By the place of the file's entry, and the account.
    parts: KeyedSlab<(u32, AccountId), Part>,
}

/// Part of the `place`-th of `count` accounts in a stretch of `bytes`. In each page the first ones have the bytes that
/// do not divide.
fn portion(bytes: u64, count: u64, place: u64) -> u64 {
    let of = |bytes: u64| bytes / count + u64::from(place < bytes % count);
    bytes / PAGE_BYTES * of(PAGE_BYTES) + of(bytes % PAGE_BYTES)
}

/// Calls `each` with every cause and its portion of `bytes`.
fn share(bytes: u64, causes: &CauseSet, mut each: impl FnMut(AccountId, u64)) {
    let count = causes.len() as u64;
    if count == 0 {
        return each(AccountId::ROOT, bytes);
    }
    for (place, account) in causes.iter().enumerate() {
        each(account, portion(bytes, count, place as u64));
    }
}

impl DirtyLedger {
    /// All dirty bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Dirty bytes of a file.
    pub fn file_bytes(&self, file: FileId) -> u64 {
        self.files.find(file).map_or(0, |entry| self.files.get(entry).bytes)
    }

    /// What an account has dirty in all files: its parts of them.
    pub fn account_bytes(&self, account: AccountId) -> u64 {
        self.by_account.get(account.index()).copied().unwrap_or(0)
    }

    /// What an account has dirty in a file.
    pub fn part_bytes(&self, file: FileId, account: AccountId) -> u64 {
        let part = self.files.find(file).and_then(|entry| self.parts.find((entry, account)));
        part.map_or(0, |part| self.parts.get(part).bytes)
    }

    /// The accounts with something dirty in a file, and how much, latest comers first.
    pub fn parts(&self, file: FileId) -> impl Iterator<Item = (AccountId, u64)> {
        let mut next = self.files.find(file).map_or(NONE, |entry| self.files.get(entry).parts);
        std::iter::from_fn(move || {
            let here = (next != NONE).then_some(next)?;
            let part = self.parts.get(here);
            next = part.after;
            Some((self.parts.key(here).1, part.bytes))
        })
    }

    /// Pages became dirty, or were dirtied again.
    pub fn pages_dirtied(&mut self, event: &PageEvent) {
        if event.previous.is_empty() {
            return self.put(event.file, event.length, &event.causes);
        }
        let mut causes = event.previous.clone();
        causes.union_with(&event.causes);
        if causes != event.previous {
            self.take(event.file, event.length, &event.previous);
            self.put(event.file, event.length, &causes);
        }
    }

    /// Dirty pages were deleted.
    pub fn pages_freed(&mut self, event: &PageEvent) {
        self.take(event.file, event.length, &event.causes);
    }

    /// A request arrived: if it writes data of a file, they are dirty no more.
    pub fn request_added(&mut self, request: &BlockRequest) {
        if let (Some(file), Operation::Write) = (request.file, request.operation) {
            self.take(file, u64::from(request.length), &request.causes);
        }
    }

    /// Strikes a file out: the host turned out to have nothing dirty of it.
    pub fn forget(&mut self, file: FileId) {
        let bytes = self.file_bytes(file);
        self.take(file, bytes, &CauseSet::EMPTY);
    }

    fn put(&mut self, file: FileId, bytes: u64, causes: &CauseSet) {
        if bytes == 0 {
            return;
        }
        let none = FileEntry { bytes: 0, parts: NONE };
        let entry = self.files.find(file).unwrap_or_else(|| self.files.insert(file, none));
        self.files.get_mut(entry).bytes += bytes;
        self.total_bytes += bytes;
        share(bytes, causes, |account, bytes| self.put_part(entry, account, bytes));
    }

    fn put_part(&mut self, entry: u32, account: AccountId, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.by_account.len() <= account.index() {
            self.by_account.resize(account.index() + 1, 0);
        }
        self.by_account[account.index()] += bytes;
        let part = self.parts.find((entry, account)).unwrap_or_else(|| self.open_part(entry, account));
        self.parts.get_mut(part).bytes += bytes;
    }

    /// Takes `bytes` out of a file, or what there is: evenly of `causes`, the rest of each other, and then of other
    /// accounts.
    fn take(&mut self, file: FileId, bytes: u64, causes: &CauseSet) {
        let Some(entry) = self.files.find(file) else { return };
        let bytes = bytes.min(self.files.get(entry).bytes);
        let mut missing = 0;
        share(bytes, causes, |account, portion| missing += portion - self.take_part(entry, account, portion));
        for account in causes.iter() {
            if missing == 0 {
                break;
            }
            missing -= self.take_part(entry, account, missing);
        }
        while missing > 0 {
            let first = self.files.get(entry).parts;
            missing -= self.take_part(entry, self.parts.key(first).1, missing);
        }
        self.total_bytes -= bytes;
        self.files.get_mut(entry).bytes -= bytes;
        if self.files.get(entry).bytes == 0 {
            self.files.remove(entry);
        }
    }

    /// Takes up to `bytes` of an account's part; answers how many there were.
    fn take_part(&mut self, entry: u32, account: AccountId, bytes: u64) -> u64 {
        let Some(part) = self.parts.find((entry, account)) else { return 0 };
        let has = &mut self.parts.get_mut(part).bytes;
        let taken = bytes.min(*has);
        *has -= taken;
        let is_empty = *has == 0;
        self.by_account[account.index()] -= taken;
        if is_empty {
            self.close_part(entry, part);
        }
        taken
    }

    fn open_part(&mut self, entry: u32, account: AccountId) -> u32 {
        let after = self.files.get(entry).parts;
        let part = self.parts.insert((entry, account), Part { bytes: 0, before: NONE, after });
        self.files.get_mut(entry).parts = part;
        if after != NONE {
            self.parts.get_mut(after).before = part;
        }
        part
    }

    fn close_part(&mut self, entry: u32, part: u32) {
        let Part { before, after, .. } = *self.parts.get(part);
        match before {
            NONE => self.files.get_mut(entry).parts = after,
            before => self.parts.get_mut(before).after = after,
        }
        if after != NONE {
            self.parts.get_mut(after).before = before;
        }
        self.parts.remove(part);
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and the test that each turned red:
    //! - freed pages are forgotten (`pages_freed` does nothing): `keeps_the_books_of_each_page`
    //! - pages that others dirty too are counted twice (`take` in `pages_dirtied` left out):
    //!   `keeps_the_books_of_each_page`
    //! - what causes lack is not taken of others: `the_parts_sum_up_whatever_requests_say`

    use super::*;
    use plimsoll_core::{RequestId, Time};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const FILES: u64 = 3;
    const PAGES: u64 = 12;
    const ACCOUNTS: [u32; 5] = [0, 1, 2, 63, 70];

    /// The set of those of [`ACCOUNTS`] with set bits.
    fn set(mask: u8) -> CauseSet {
        ACCOUNTS.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, &a)| AccountId(a)).collect()
    }

    fn event(file: u64, first: u64, count: u64, causes: CauseSet, previous: CauseSet) -> PageEvent {
        PageEvent { file: FileId(file), offset: first * PAGE_BYTES, length: count * PAGE_BYTES, causes, previous }
    }

    fn write(file: u64, pages: u64, causes: CauseSet) -> BlockRequest {
        let bytes = (pages * PAGE_BYTES) as u32;
        let request = BlockRequest::new(RequestId(1), AccountId(1), Operation::Write, 0, bytes, Time::ZERO);
        BlockRequest { file: Some(FileId(file)), causes, ..request }
    }

    /// The obvious way: every dirty page with its set.
    #[derive(Default)]
    struct Pages(BTreeMap<(u64, u64), CauseSet>);

    impl Pages {
        fn part(&self, file: u64, account: u32) -> u64 {
            let mine = self.0.iter().filter(|((of, _), causes)| *of == file && causes.contains(AccountId(account)));
            let share = |causes: &CauseSet| {
                let (count, place) = (causes.len() as u64, causes.iter().position(|a| a.0 == account).unwrap() as u64);
                PAGE_BYTES / count + u64::from(place < PAGE_BYTES % count)
            };
            mine.map(|(_, causes)| share(causes)).sum()
        }

        fn compare(&self, ledger: &DirtyLedger) -> Result<(), TestCaseError> {
            for file in 0..FILES {
                let pages = self.0.keys().filter(|(of, _)| *of == file).count() as u64;
                prop_assert_eq!(ledger.file_bytes(FileId(file)), pages * PAGE_BYTES);
                for account in ACCOUNTS {
                    prop_assert_eq!(ledger.part_bytes(FileId(file), AccountId(account)), self.part(file, account));
                }
            }
            for account in ACCOUNTS {
                let sum: u64 = (0..FILES).map(|file| self.part(file, account)).sum();
                prop_assert_eq!(ledger.account_bytes(AccountId(account)), sum);
            }
            prop_assert_eq!(ledger.total_bytes(), self.0.len() as u64 * PAGE_BYTES);
            Ok(())
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Dirty { file: u64, first: u64, count: u64, mask: u8 },
        Free { file: u64, first: u64 },
        Write { file: u64, first: u64 },
        Forget { file: u64 },
    }

    fn step() -> impl Strategy<Value = Step> {
        let page = (0..FILES, 0..PAGES);
        prop_oneof![
            4 => (page.clone(), 1..5u64, 1..32u8).prop_map(|((file, first), count, mask)| Step::Dirty {
                file, first, count, mask
            }),
            1 => page.clone().prop_map(|(file, first)| Step::Free { file, first }),
            2 => page.prop_map(|(file, first)| Step::Write { file, first }),
            1 => (0..FILES).prop_map(|file| Step::Forget { file }),
        ]
    }

    proptest! {
        /// Requests of one page each, so that their causes are the page's.
        /// Promise: split-dirty-ledger.
        #[test]
        fn keeps_the_books_of_each_page(steps in proptest::collection::vec(step(), 0..80)) {
            let (mut ledger, mut pages) = (DirtyLedger::default(), Pages::default());
            for step in steps {
                match step {
                    Step::Dirty { file, first, count, mask } => {
                        for page in first..first + count {
                            let dirty = pages.0.entry((file, page)).or_default();
                            ledger.pages_dirtied(&event(file, page, 1, set(mask), dirty.clone()));
                            dirty.union_with(&set(mask));
                        }
                    }
                    Step::Free { file, first } => {
                        if let Some(causes) = pages.0.remove(&(file, first)) {
                            ledger.pages_freed(&event(file, first, 1, causes.clone(), causes));
                        }
                    }
                    Step::Write { file, first } => {
                        if let Some(causes) = pages.0.remove(&(file, first)) {
                            ledger.request_added(&write(file, 1, causes));
                        }
                    }
                    Step::Forget { file } => {
                        pages.0.retain(|(of, _), _| *of != file);
                        ledger.forget(FileId(file));
                    }
                }
                pages.compare(&ledger)?;
            }
        }

        /// Whatever requests say of their causes, and however much they take: files are exact, and parts sum up.
        #[test]
        fn the_parts_sum_up_whatever_requests_say(
            steps in proptest::collection::vec((0..FILES, 1..9u64, 0..32u8, any::<bool>()), 0..80),
        ) {
            let (mut ledger, mut bytes) = (DirtyLedger::default(), [0u64; FILES as usize]);
            for (file, count, mask, is_write) in steps {
                let has = &mut bytes[file as usize];
                if is_write {
                    ledger.request_added(&write(file, count, set(mask)));
                    *has = has.saturating_sub(count * PAGE_BYTES);
                } else {
                    ledger.pages_dirtied(&event(file, 0, count, set(mask), CauseSet::EMPTY));
                    *has += count * PAGE_BYTES;
                }
                for file in 0..FILES {
                    let parts: u64 = ledger.parts(FileId(file)).map(|(_, bytes)| bytes).sum();
                    prop_assert_eq!(ledger.file_bytes(FileId(file)), bytes[file as usize]);
                    prop_assert_eq!(parts, bytes[file as usize]);
                }
                let accounts: u64 = ACCOUNTS.iter().map(|&account| ledger.account_bytes(AccountId(account))).sum();
                prop_assert_eq!(accounts, bytes.iter().sum::<u64>());
                prop_assert_eq!(ledger.total_bytes(), accounts);
            }
        }
    }

    #[test]
    fn what_does_not_divide_goes_to_the_first_and_a_stretch_is_shared_as_its_pages_are() {
        let portions = |bytes| [0, 1, 2].map(|place| portion(bytes, 3, place));
        assert_eq!(portions(PAGE_BYTES), [1366, 1365, 1365]);
        assert_eq!(portions(5 * PAGE_BYTES), [5 * 1366, 5 * 1365, 5 * 1365]);
        assert_eq!(portions(PAGE_BYTES + 100), [1366 + 34, 1365 + 33, 1365 + 33]);
    }

    #[test]
    fn what_is_no_write_of_a_files_data_takes_nothing_out() {
        let mut ledger = DirtyLedger::default();
        ledger.pages_dirtied(&event(1, 0, 2, set(2), CauseSet::EMPTY));
        ledger.request_added(&BlockRequest { operation: Operation::Read, ..write(1, 1, set(2)) });
        ledger.request_added(&BlockRequest { file: None, ..write(1, 1, set(2)) });
        ledger.request_added(&write(2, 1, set(2)));
        assert_eq!(ledger.file_bytes(FileId(1)), 2 * PAGE_BYTES);
    }
}
