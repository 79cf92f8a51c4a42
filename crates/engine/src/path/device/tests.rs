//! A device with a volume in memory, and one with a file of which the test says what the ring has done.

use super::*;
use crate::backend::Backing;
use crate::config::LATENESS_BOUND_DEFAULT;
use crate::path::samples::{front_end_request, ground, memory_seat, profile, said, seat};
use crate::submission::CacheBlock;
use plimsoll_core::{AccountId, DeviceProfile, Span};
use plimsoll_devices::DeviceModel;

struct World {
    ground: Ground,
    session: AccountId,
    table: Table,
    volumes: Slab<VolumeSeat>,
    ring: Ring,
    device: Device,
}

impl World {
    fn new(seat: VolumeSeat, emulation: Option<Emulation>) -> World {
        let ((ground, session), table) = (ground(), Table::with_capacity(0));
        let mut volumes = Slab::with_capacity(1);
        volumes.insert(seat);
        let device = Device::new(emulation, Work::new(None).unwrap());
        World { ground, session, table, volumes, ring: Ring::new().unwrap(), device }
    }

    /// A piece of a request with these bytes, or without any. Gives it and its request.
    fn piece(&mut self, operation: Operation, bytes: Option<&mut [u8; 4096]>) -> (u32, u32) {
        let request = front_end_request(&mut self.table, self.session, operation, 8192, 4096);
        if let Some(bytes) = bytes {
            self.table.requests[request].asked.payload = Payload::Cache(CacheBlock(bytes.as_mut_ptr()));
        }
        (self.table.cut(&self.ground, &mut self.volumes[0], request).unwrap(), request)
    }

    fn with<T>(&mut self, call: impl FnOnce(&mut Device, &mut Site<'_>) -> T) -> T {
        let World { ground, table, volumes, ring, device, .. } = self;
        call(device, &mut Site { ground, table, volumes, ring })
    }

    /// Sends a piece. Gives what comes of it at once.
    fn send(&mut self, piece: u32) -> Vec<Next> {
        self.with(|device, site| device.send(site, piece));
        said(&mut self.ground)
    }

    /// The ring has done a step of a piece.
    fn completed(&mut self, piece: u32, result: Result<u32, Errno>) -> Vec<Next> {
        self.with(|device, site| device.step_completed(site, piece, result));
        said(&mut self.ground)
    }
}

/// Planted breaks: an abandoned piece is written; bytes that are moved do not count.
#[test]
fn memory_does_a_piece_at_once_and_an_abandoned_one_never() {
    let mut world = World::new(memory_seat(), None);
    let (mut written, mut lost, mut read) = ([7; 4096], [9; 4096], [0; 4096]);
    let bytes_left = world.ground.bytes_left;
    let (write, _) = world.piece(Operation::Write, Some(&mut written));
    assert_eq!(world.send(write), [Next::PieceDone(write)]);
    assert_eq!(world.ground.bytes_left, bytes_left - 4096);
    let (abandoned, request) = world.piece(Operation::Write, Some(&mut lost));
    world.table.requests[request].is_abandoned = true;
    assert_eq!(world.send(abandoned), [Next::PieceDone(abandoned)]);
    assert_eq!(world.table.pieces[abandoned].error, Some(Errno::CANCELED));
    let (back, _) = world.piece(Operation::Read, Some(&mut read));
    assert_eq!((world.send(back), read), (vec![Next::PieceDone(back)], [7; 4096]));
}

/// Takes a millisecond for each request.
struct Slow(DeviceProfile, Vec<(Time, u64)>);

impl DeviceModel for Slow {
    fn profile(&self) -> &DeviceProfile {
        &self.0
    }
    fn submit(&mut self, now: Time, request: DeviceRequest) {
        self.1.push((now + Span::from_millis(1), request.token));
    }
    fn next_completion(&self) -> Option<Time> {
        self.1.iter().map(|(at, _)| *at).min()
    }
    fn complete(&mut self, now: Time) -> Option<plimsoll_devices::Finished> {
        let place = self.1.iter().position(|(at, _)| *at <= now)?;
        let (at, token) = self.1.remove(place);
        Some(plimsoll_devices::Finished { token, at })
    }
    fn outstanding(&self) -> usize {
        self.1.len()
    }
}

/// Planted break: a piece is done when its bytes are there.
#[test]
fn an_emulated_device_is_done_when_its_model_says_so() {
    let emulation = Emulation::new(Box::new(Slow(profile(), Vec::new())), LATENESS_BOUND_DEFAULT);
    let mut world = World::new(memory_seat(), Some(emulation));
    let mut bytes = [7; 4096];
    let (piece, _) = world.piece(Operation::Write, Some(&mut bytes));
    assert_eq!(world.send(piece), []);
    let at = Time::ZERO + Span::from_millis(1);
    assert_eq!(world.device.wake_at(), [Some(at), None]);
    for (now, expected) in [(Time::ZERO, vec![]), (at, vec![Next::PieceDone(piece)])] {
        world.ground.now = now;
        world.device.complete_emulated(&mut world.ground, &mut world.table);
        assert_eq!(said(&mut world.ground), expected);
    }
}

/// A file of which the ring does first a part. The piece is an orphan: what waits for it goes on after all else about
/// it is done.
///
/// Planted breaks: a part is taken for all of it; an orphan stays one.
#[test]
fn a_piece_at_a_file_goes_on_until_all_of_it_is_done_and_an_orphan_ends_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    let backing = Backing::File { path, size_bytes: Some(1 << 20), creates: true, encryption: None };
    let mut world = World::new(seat(backing), None);
    let mut bytes = [7; 4096];
    let (piece, request) = world.piece(Operation::Write, Some(&mut bytes));
    assert_eq!(world.send(piece), []);
    let mut orphans = crate::path::orphans::Orphans::default();
    orphans.abandon(&mut world.table, |front_end, token| (front_end, token) == (0, request.into()));
    assert_eq!(world.completed(piece, Ok(512)), []);
    let said = world.completed(piece, Ok(4096 - 512));
    assert!(matches!(said[..], [Next::PieceDone(done), Next::OrphanEnded(_)] if done == piece), "{said:?}");
    assert_eq!((world.table.pieces[piece].orphan, world.table.pieces[piece].error), (None, None));
    let mut bytes = [0; 4096];
    let (read, _) = world.piece(Operation::Read, Some(&mut bytes));
    assert_eq!(world.send(read), []);
    assert_eq!(world.completed(read, Err(Errno::IO)), [Next::PieceDone(read)]);
    assert_eq!(world.table.pieces[read].error, Some(Errno::IO));
    // The ring has the operations and the bytes: it goes first.
    drop(world);
}
