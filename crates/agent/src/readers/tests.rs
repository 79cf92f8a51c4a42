//! Planted breaks that turned a test red: all who wait let in at once; those who were admitted and have not come left out; a
//! word that never opens; one that admits while something early is not paid.

use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Words, and threads that wait at them.
#[derive(Default)]
struct Crowd {
    closed: RefCell<BTreeMap<AccountId, u32>>,
    /// Threads that were let in and whose read has not come yet, by account.
    on_their_way: RefCell<Vec<AccountId>>,
    admissions_max: Cell<u32>,
}

impl Crowd {
    /// A thread wants to read.
    fn comes(&self, account: AccountId) {
        match self.closed.borrow_mut().get_mut(&account) {
            Some(waiting) => *waiting += 1,
            None => self.on_their_way.borrow_mut().push(account),
        }
    }

    fn goes_on(&self, account: AccountId, count: u32) {
        self.on_their_way.borrow_mut().extend((0..count).map(|_| account));
    }
}

impl ReadGates for Crowd {
    fn close(&self, account: AccountId) {
        assert_eq!(self.closed.borrow_mut().insert(account, 0), None, "it was closed already");
    }

    fn open(&self, account: AccountId) {
        let waited = self.closed.borrow_mut().remove(&account).unwrap_or(0);
        self.goes_on(account, waited);
    }

    fn admit(&self, account: AccountId, count_max: u32) -> u32 {
        let mut closed = self.closed.borrow_mut();
        let waiting = closed.get_mut(&account).expect("only a closed word admits");
        let count = count_max.min(*waiting);
        *waiting -= count;
        self.goes_on(account, count);
        self.admissions_max.set(self.admissions_max.get().max(count));
        count
    }
}

fn members(count: u32) -> Members {
    let members = Members::default();
    (0..count).for_each(|bit| members.set(bit, Some(AccountId(10 + bit))));
    members
}

fn at(milliseconds: u64) -> Time {
    Time::ZERO + Span::from_millis(milliseconds)
}

proptest! {
    /// Threads read one after the other, and the scheduler lets few of their reads go: there are never many below again once
    /// the first have gone, and everybody goes on.
    #[test]
    fn few_wait_below_and_everybody_goes_on(
        threads in prop::collection::vec(1..200u32, 1..6),
        late in prop::collection::vec(0..8usize, 64),
        goes in 1..4u32,
    ) {
        let (crowd, members) = (Crowd::default(), members(threads.len() as u32));
        let (mut readers, mut reads) = (Readers::default(), HeldReads::default());
        let accounts: Vec<AccountId> = members.accounts().collect();
        for (&account, &count) in accounts.iter().zip(&threads) {
            (0..count).for_each(|_| crowd.comes(account));
        }
        let mut done = vec![0u32; accounts.len()];
        let mut first_have_gone = false;
        for turn in 0..3000u64 {
            // Some of those who were let in come below.
            let comes = late[turn as usize % late.len()].min(crowd.on_their_way.borrow().len());
            let comes: Vec<AccountId> = crowd.on_their_way.borrow_mut().drain(..comes).collect();
            for account in comes {
                reads.arrived(account);
                reads.began_to_wait(account);
            }
            // The scheduler lets some go, in turns, and their threads read again.
            for which in 0..goes as usize {
                let place = (turn as usize + which) % accounts.len();
                if reads.of(accounts[place]).waiting > 0 {
                    reads.waits_no_more(accounts[place]);
                    done[place] += 1;
                    crowd.comes(accounts[place]);
                }
            }
            readers.mind(at(turn), &reads, &members, &crowd);
            let below = reads.sum().waiting + crowd.on_their_way.borrow().len() as u32;
            first_have_gone |= below <= WAITING_OF_ALL_MAX;
            // Whoever found the word open went through it before it closed.
            let passed = accounts.len() as u32 * WAITING_MAX + WAITING_OF_ALL_MAX;
            prop_assert!(!first_have_gone || below <= passed, "{below} below after {turn} turns");
        }
        prop_assert!(crowd.admissions_max.get() <= ADMITTED_MAX);
        if late.iter().any(|&late| late > 0) {
            prop_assert!(done.iter().all(|&done| done > 0), "{done:?}");
        }
    }
}

#[test]
fn whoever_was_early_pays_before_anybody_is_admitted() {
    let (crowd, members) = (Crowd::default(), members(2));
    let (mut readers, mut reads) = (Readers::default(), HeldReads::default());
    let [account, other] = [AccountId(10), AccountId(11)];
    reads.was_early(account);
    readers.mind(at(0), &reads, &members, &crowd);
    (0..50).for_each(|_| crowd.comes(account));
    crowd.comes(other);
    (1..500).for_each(|turn| readers.mind(at(turn), &reads, &members, &crowd));
    assert_eq!(*crowd.on_their_way.borrow(), [other], "nobody but who owes nothing");
    reads.is_early_no_more(account);
    readers.mind(at(500), &reads, &members, &crowd);
    let admitted = |crowd: &Crowd| crowd.on_their_way.borrow().iter().filter(|&&who| who == account).count() as u32;
    assert_eq!(admitted(&crowd), ADMITTED_MAX);
    readers.mind(at(501), &reads, &members, &crowd);
    assert_eq!(admitted(&crowd), ADMITTED_MAX, "they have not come yet");
    (0..4).for_each(|_| reads.arrived(account));
    readers.mind(at(502), &reads, &members, &crowd);
    assert_eq!(admitted(&crowd), ADMITTED_MAX + 4, "the cache had what they wanted, or it is read already");
    readers.mind(at(502) + ADMITTED_LAST, &reads, &members, &crowd);
    assert_eq!(admitted(&crowd), 2 * ADMITTED_MAX + 4, "the others will not come");
    (0..100).for_each(|turn| readers.mind(at(1000 + turn * 100), &reads, &members, &crowd));
    assert_eq!((admitted(&crowd), crowd.closed.borrow().len()), (50, 0), "nobody waits, so the word is open");
}

#[test]
fn the_places_are_shared_by_those_who_wait() {
    let (crowd, members) = (Crowd::default(), members(62));
    let (mut readers, mut reads) = (Readers::default(), HeldReads::default());
    for account in members.accounts() {
        reads.began_to_wait(account);
    }
    readers.mind(at(0), &reads, &members, &crowd);
    assert!(crowd.closed.borrow().is_empty(), "one each is not too many");
    members.accounts().for_each(|account| reads.began_to_wait(account));
    readers.mind(at(1), &reads, &members, &crowd);
    assert_eq!(crowd.closed.borrow().len(), 62);
    for account in members.accounts() {
        (0..2).for_each(|_| reads.waits_no_more(account));
        (0..10).for_each(|_| crowd.comes(account));
    }
    readers.mind(at(2), &reads, &members, &crowd);
    assert_eq!(crowd.on_their_way.borrow().len(), 62);
}

#[test]
fn whoever_leaves_takes_those_who_wait_along() {
    let (crowd, members) = (Crowd::default(), members(1));
    let (mut readers, mut reads) = (Readers::default(), HeldReads::default());
    reads.was_early(AccountId(10));
    readers.mind(at(0), &reads, &members, &crowd);
    crowd.comes(AccountId(10));
    readers.leave(AccountId(10), &crowd);
    assert_eq!(*crowd.on_their_way.borrow(), [AccountId(10)]);
    assert!(readers.held.is_empty());
}
