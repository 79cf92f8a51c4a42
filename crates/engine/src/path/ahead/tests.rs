//! A session that reads in sequence, of a volume in memory, where the test says when a fetch has ended.

use super::*;
use crate::path::samples::{ground, memory_seat, said, submission};
use crate::seat::VolumeSeat;
use plimsoll_core::Time;

/// How far is read ahead, bytes.
const SETTINGS: u64 = 1 << 20;
const BLOCK: u32 = 4096;

struct World {
    ground: Ground,
    session: AccountId,
    table: Table,
    seat: VolumeSeat,
    ahead: Ahead,
    reader: u32,
}

impl World {
    fn new() -> World {
        let ((ground, session), seat, mut ahead) = (ground(), memory_seat(), Ahead::default());
        ahead.set(0, ReadAhead::new(SETTINGS));
        let reader = ahead.open_reader((0, seat.volume.info().size_bytes), 5, session, None).unwrap();
        World { ground, session, table: Table::with_capacity(0), seat, ahead, reader }
    }

    fn begin(&mut self, operation: Operation, offset: u64, has_causes: bool) -> (u32, Vec<Next>) {
        let World { ground, session, table, seat, ahead, reader } = self;
        let payload = match operation {
            Operation::Read => Payload::Volume(seat.volume.bytes_in_memory(offset, BLOCK).unwrap()),
            _ => Payload::None,
        };
        let submission = submission(operation, offset, BLOCK, payload);
        let index = table.requests.insert(Request::new(Asker::FrontEnd(5, 0), 0, *session, submission, Time::ZERO));
        let of = AheadOf { number: 0, volume: &seat.volume, has_cache: false, has_causes };
        ahead.read(ground, table, of, *reader, index);
        (index, said(ground))
    }

    /// Reads in sequence from the start, until one waits for a fetch. Gives it, and the fetch.
    fn read_until_one_waits(&mut self) -> (u32, u32) {
        for number in 0..100 {
            let (read, said) = self.begin(Operation::Read, number * u64::from(BLOCK), false);
            match said[..] {
                [Next::Add(added)] if added == read => {}
                [Next::Add(fetch)] => return (read, fetch),
                _ => panic!("{said:?}"),
            }
        }
        panic!("nothing is read ahead");
    }

    fn ended(&mut self, fetch: u32, error: Option<Errno>) -> Vec<Next> {
        let request = self.table.requests.remove(fetch).unwrap();
        let Asker::ReadAhead { session, slot } = request.asker else { panic!("{:?}", request.asker) };
        self.ahead.fetched(&mut self.ground, &mut self.table, 0, (session, slot), error);
        said(&mut self.ground)
    }

    fn fetch_one(&mut self, is_held_back: bool) -> Vec<Next> {
        let World { ground, table, seat, ahead, .. } = self;
        let of = AheadOf { number: 0, volume: &seat.volume, has_cache: false, has_causes: false };
        ahead.fetch_one(ground, table, is_held_back, |_| Some(of));
        said(ground)
    }
}

/// Planted breaks: a read is done before its fetch is; a read of which the fetch failed fails, too.
#[test]
fn a_read_that_waits_for_a_fetch_is_done_with_it_or_goes_alone() {
    let mut world = World::new();
    let (read, fetch) = world.read_until_one_waits();
    assert_eq!(world.table.requests[fetch].session, world.session);
    assert_eq!(world.ended(fetch, None), [Next::CacheMoved(0), Next::RequestDone(read)]);
    let mut world = World::new();
    let (read, fetch) = world.read_until_one_waits();
    assert_eq!(world.ended(fetch, Some(Errno::IO)), [Next::CacheMoved(0), Next::Add(read)]);
    let mut world = World::new();
    let (read, fetch) = world.read_until_one_waits();
    world.table.requests[read].is_abandoned = true;
    assert_eq!(world.ended(fetch, Some(Errno::IO)), [Next::CacheMoved(0), Next::RequestDone(read)]);
    assert_eq!(world.table.requests[read].error, Some(Errno::CANCELED));
}

/// Planted break: what nothing waits for is fetched while a read waits for the device.
#[test]
fn what_no_read_waits_for_is_fetched_only_while_no_read_waits_for_the_device() {
    let mut world = World::new();
    let (_, fetch) = world.read_until_one_waits();
    world.ended(fetch, None);
    // Half of what was fetched is read: more is wanted.
    let next = world.table.requests.len() as u64;
    (next..next + 20).for_each(|number| drop(world.begin(Operation::Read, number * u64::from(BLOCK), false)));
    world.ground.reads.began_to_wait(world.session);
    assert_eq!(world.fetch_one(true), [], "its own session has a read that waits");
    world.ground.reads.waits_no_more(world.session);
    world.ground.reads.began_to_wait(AccountId::ROOT);
    assert_eq!(world.fetch_one(false), []);
    let said = world.fetch_one(true);
    assert!(matches!(said[..], [Next::Add(_)]), "what waits is held back by a rule: {said:?}");
}

/// Planted breaks: a read of what is being written finds it in a slot; tags do not matter.
#[test]
fn what_is_being_written_and_what_has_causes_is_read_alone() {
    let mut world = World::new();
    let (_, fetch) = world.read_until_one_waits();
    world.ended(fetch, None);
    let at = world.table.requests.iter().map(|(_, request)| request.asked.offset).max().unwrap() + u64::from(BLOCK);
    let (read, said) = world.begin(Operation::Read, at, false);
    assert_eq!(said, [Next::RequestDone(read)]);
    let (write, said) = world.begin(Operation::Trim, at, false);
    assert_eq!(said, [Next::Add(write)]);
    let (read, said) = world.begin(Operation::Read, at, false);
    assert_eq!(said, [Next::Add(read)]);
    let written = world.table.requests.remove(write).unwrap();
    world.ahead.change_done(&written);
    let (read, said) = world.begin(Operation::Read, at + u64::from(BLOCK), true);
    assert_eq!(said, [Next::Add(read)]);
}

/// Planted break: a front end may leave while something is read ahead for it.
#[test]
fn a_session_leaves_when_nothing_is_read_ahead_for_it_any_more() {
    let mut world = World::new();
    let (_, fetch) = world.read_until_one_waits();
    assert!(!world.ahead.is_through(&mut world.table, 0, Some(world.reader)));
    assert!(world.table.requests[fetch].is_abandoned);
    assert!(world.ahead.through.is_empty());
    world.ended(fetch, None);
    assert_eq!(world.ahead.through, [5]);
    assert!(world.ahead.is_through(&mut world.table, 0, Some(world.reader)));
    world.ahead.close_reader(0, Some(world.reader));
    assert!(world.ahead.status(0).unwrap().fetched_bytes > 0, "its figures stay");
    assert_eq!(world.ahead.status(1), None);
}
