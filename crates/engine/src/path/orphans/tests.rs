//! Which request waits for what, and how much is looked at to find it.

use super::stretches::Stretch;
use super::{Orphans, take_orphan};
use crate::path::next::{Next, Orphan};
use crate::path::samples::{answers, front_end_request, ground, memory_seat, said};
use crate::path::table::Table;
use plimsoll_core::Operation;
use proptest::prelude::*;
use rustix::io::Errno;

/// Bytes that `length` long stretches side by side have, by number.
fn side_by_side(at: u64, length: u64) -> Stretch {
    Stretch { volume: 0, start: at * length, end: (at + 1) * length }
}

/// Planted break that was seen red: at the end of an orphan, all that wait are looked at.
#[test]
fn the_end_of_an_orphan_costs_what_it_is_in_the_way_of() {
    const COUNT: u64 = 20_000;
    for length in [4096, 3 * 4096] {
        let mut orphans = Orphans::default();
        let numbers: Vec<u64> = (0..COUNT).map(|at| orphans.began(side_by_side(at, length))).collect();
        assert!((0..COUNT).all(|at| orphans.hold(side_by_side(at, length), at as u32, None)));
        for (at, number) in (0..).zip(numbers) {
            let free = orphans.ended(side_by_side(at, length), number);
            assert_eq!(free.iter().map(|held| u64::from(held.request)).collect::<Vec<_>>(), [at]);
        }
        // Its own, and at most one neighbour, once when a request comes and once when an orphan ends.
        let looks = orphans.at_backends.looks + orphans.held.looks;
        assert!(looks <= 4 * COUNT, "{looks} looks at {COUNT} orphans of {length} bytes");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Began(Stretch),
    BeganInCache(u32),
    Came(Stretch),
    Waits(u32),
    /// One of those there are.
    Ended(usize),
}

fn stretch() -> impl Strategy<Value = Stretch> {
    (0..2u32, 0..20u64, 1..9u64).prop_map(|(volume, start, length)| Stretch { volume, start, end: start + length })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => stretch().prop_map(Event::Began),
        1 => (0..2u32).prop_map(Event::BeganInCache),
        3 => stretch().prop_map(Event::Came),
        1 => (0..2u32).prop_map(Event::Waits),
        4 => any::<usize>().prop_map(Event::Ended),
    ]
}

/// An orphan: its number, its volume, its bytes if it is at a backend.
type Open = (u64, u32, Option<Stretch>);

fn has_bytes_of(orphan: &Open, stretch: Stretch) -> bool {
    orphan.2.is_some_and(|own| own.volume == stretch.volume && own.start < stretch.end && stretch.start < own.end)
}

/// A request that waits, and for which orphans.
type Waiting = (u32, Vec<u64>);

/// The requests that wait for nothing more, now that an orphan has ended.
fn freed(waiting: &mut Vec<Waiting>, number: u64) -> Vec<u32> {
    waiting.iter_mut().for_each(|(_, orphans)| orphans.retain(|&orphan| orphan != number));
    waiting.extract_if(.., |(_, orphans)| orphans.is_empty()).map(|(name, _)| name).collect()
}

proptest! {
    /// Planted breaks that were seen red: a request counts the end of orphans that came after it; a front end that
    /// wants to know of the end waits for all that there are.
    #[test]
    fn every_request_waits_for_the_orphans_at_its_arrival(events in prop::collection::vec(event(), 0..60)) {
        let mut orphans = Orphans::default();
        let (mut open, mut held, mut waiters): (Vec<Open>, Vec<Waiting>, Vec<Waiting>) = Default::default();
        for (name, event) in (0u32..).zip(events) {
            match event {
                Event::Began(stretch) => open.push((orphans.began(stretch), stretch.volume, Some(stretch))),
                Event::BeganInCache(volume) => open.push((orphans.began_in_cache(volume), volume, None)),
                Event::Came(stretch) => {
                    let in_the_way = open.iter().filter(|orphan| has_bytes_of(orphan, stretch));
                    let in_the_way: Vec<u64> = in_the_way.map(|&(number, ..)| number).collect();
                    prop_assert_eq!(orphans.hold(stretch, name, None), !in_the_way.is_empty());
                    held.extend((!in_the_way.is_empty()).then_some((name, in_the_way)));
                }
                Event::Waits(volume) => {
                    let number = orphans.next_number();
                    orphans.waiters.insert((volume, number), (volume, name.into()));
                    let of_volume: Vec<u64> = open.iter().filter(|orphan| orphan.1 == volume).map(|orphan| orphan.0).collect();
                    match of_volume.is_empty() {
                        true => prop_assert_eq!(orphans.next_waiter(volume), Some((volume, name.into()))),
                        false => waiters.push((name, of_volume)),
                    }
                }
                Event::Ended(_) if open.is_empty() => {}
                Event::Ended(which) => {
                    let (number, volume, stretch) = open.remove(which % open.len());
                    let free = match stretch {
                        Some(stretch) => orphans.ended(stretch, number),
                        None => {
                            orphans.open.remove(&(volume, number));
                            Vec::new()
                        }
                    };
                    let free: Vec<u32> = free.iter().map(|held| held.request).collect();
                    prop_assert_eq!(free, freed(&mut held, number));
                    let told: Vec<u32> =
                        std::iter::from_fn(|| orphans.next_waiter(volume)).map(|(_, token)| token as u32).collect();
                    prop_assert_eq!(told, freed(&mut waiters, number));
                }
            }
        }
    }
}

/// A write at a backend is abandoned, and another request for its bytes comes.
///
/// Planted breaks: a read is an orphan; the request begins at once; a front end is told while the orphan is there.
#[test]
fn what_an_abandoned_write_is_in_the_way_of_begins_when_it_has_ended() {
    let ((mut ground, session), mut seat, mut table) = (ground(), memory_seat(), Table::with_capacity(0));
    let mut orphans = Orphans::default();
    let mut pieces = [Operation::Write, Operation::Read].map(|operation| {
        let request = front_end_request(&mut table, session, operation, 0, 4096);
        let piece = table.cut(&ground, &mut seat, request).unwrap();
        table.pieces[piece].waits.for_backend = true;
        piece
    });
    orphans.abandon(&mut table, |front_end, _| front_end == 0);
    let later = front_end_request(&mut table, session, Operation::Write, 2048, 4096);
    let dropped = front_end_request(&mut table, session, Operation::Write, 2048, 4096);
    let beside = front_end_request(&mut table, session, Operation::Write, 8192, 4096);
    let held = [later, dropped, beside].map(|request| orphans.hold_request(&table, request, Some(6)));
    assert_eq!(held, [true, true, false]);
    orphans.wait_for_abandoned(&mut ground, 0, (1, 9));
    orphans.wait_for_abandoned(&mut ground, 1, (1, 8));
    assert_eq!(answers(&mut ground), [(1, 8, true)]);
    orphans.abandon(&mut table, |_, token| token == u64::from(dropped));
    assert_eq!(orphans.drop_abandoned(&mut table).collect::<Vec<_>>(), [dropped]);
    assert_eq!(table.requests[dropped].error, Some(Errno::CANCELED));
    pieces.sort_unstable();
    let ended: Vec<Orphan> = pieces.iter().filter_map(|&piece| take_orphan(&mut table, piece)).collect();
    assert_eq!(ended.len(), 1);
    orphans.orphan_ended(&mut ground, ended[0]);
    assert_eq!(said(&mut ground), [Next::Begin { request: later, reader: Some(6) }]);
    assert_eq!(answers(&mut ground), [(1, 9, true)]);
    let number = orphans.began_in_cache(0);
    orphans.wait_for_abandoned(&mut ground, 0, (1, 7));
    assert_eq!(answers(&mut ground), []);
    orphans.orphan_ended(&mut ground, Orphan::InCache { volume: 0, number });
    assert_eq!((answers(&mut ground), said(&mut ground)), (vec![(1, 7, true)], vec![]));
}
