//! A cache before a volume in memory. The test does what the cache asks the volume for; nothing is handed to the
//! kernel.

use super::*;
use crate::cache::{CACHE_BYTES_MIN, CacheSettings, FoundCache};
use crate::doubts::Doubts;
use crate::path::asker::Asker;
use crate::path::next::Next;
use crate::path::samples::{answers, ground, memory_seat, said, submission};
use crate::submission::Payload;
use plimsoll_cache::policies;
use plimsoll_core::Operation;
use plimsoll_core::class::Scheme;
use std::path::Path;

const FRONT_END: u32 = 3;

struct World {
    ground: Ground,
    session: AccountId,
    table: Table,
    ring: Ring,
    caches: Caches,
}

impl World {
    /// Volume 2 has a cache, which works.
    fn new(directory: &Path) -> World {
        let (ground, session) = ground();
        let policy = policies().iter().find(|entry| entry.name == "lru").unwrap();
        let usual = CacheSettings::new("fast", directory.join("fast"), policy, Scheme::default());
        let settings = CacheSettings { size_bytes: Some(CACHE_BYTES_MIN), ..usual };
        let found = FoundCache::find(settings, &memory_seat().volume).unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let cache = VolumeCache::new(found, AccountId::ROOT, Doubts::default(), begun);
        let mut caches = Caches::default();
        caches.put(2, Box::new(cache), false);
        let mut world = World { ground, session, table: Table::with_capacity(0), ring: Ring::new().unwrap(), caches };
        assert_eq!(world.drive(), []);
        has_begun.try_recv().unwrap().unwrap();
        world
    }

    /// Drives each cache that may go on. Gives what comes of it.
    fn drive(&mut self) -> Vec<Next> {
        let World { ground, table, ring, caches, .. } = self;
        while let Some(volume) = caches.next_with_work() {
            caches.drive(Surroundings { volume, ground, table, ring, tags: None }, "v");
        }
        said(ground)
    }

    fn submit(&mut self, operation: Operation, token: u64) {
        let submission = Submission { token, ..submission(operation, 0, 4096, Payload::None) };
        self.caches.submit(self.ground.now, 2, (FRONT_END, self.session), submission);
    }

    /// The one request that the cache has made of its volume.
    fn request_of(&self, said: &[Next]) -> u32 {
        match *said {
            [Next::Add(request)] if self.table.requests[request].asker.is_cache() => request,
            _ => panic!("{said:?}"),
        }
    }

    fn store_done(&mut self, request: u32, error: Option<Errno>) {
        let done = self.table.requests.remove(request).unwrap();
        let Asker::Cache(first) = done.asker else { panic!("{:?}", done.asker) };
        self.caches.store_done(&mut self.ground, &mut self.table, 2, (first, done.asked.length), error);
    }
}

/// Planted breaks: a cache is driven twice for one request; a volume without a cache is driven.
#[test]
fn a_miss_is_a_request_of_the_volume_and_its_end_is_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    world.caches.moved(0);
    assert!(!world.caches.have_work());
    world.submit(Operation::Read, 7);
    assert!(world.caches.have_work());
    assert_eq!((world.caches.requests_of(world.session), world.caches.requests_of(AccountId::ROOT)), (1, 0));
    let said = world.drive();
    let request = world.request_of(&said);
    assert_eq!((world.table.requests[request].session, world.table.requests[request].volume), (world.session, 2));
    assert_eq!((world.drive(), world.caches.have_work()), (vec![], false));
    world.store_done(request, None);
    assert_eq!((world.drive(), answers(&mut world.ground)), (vec![], vec![(FRONT_END, 7, true)]));
    assert_eq!(world.caches.requests_of(world.session), 0);
}

/// Planted break: an error of the volume is none of the request.
#[test]
fn a_miss_that_the_volume_cannot_read_fails() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    world.submit(Operation::Read, 7);
    let said = world.drive();
    let request = world.request_of(&said);
    world.store_done(request, Some(Errno::IO));
    assert_eq!((world.drive(), answers(&mut world.ground)), (vec![], vec![(FRONT_END, 7, false)]));
}

/// Planted break: a cache that is not closed yet is not in use.
#[test]
fn a_cache_is_closed_and_taken_away_with_what_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let (answer, answered) = std::sync::mpsc::channel();
    let cache = world.caches.get_mut(2).unwrap();
    assert!(cache.refuse_if_in_use().is_err());
    cache.begin_emptying(false, answer).unwrap();
    world.caches.moved(2);
    world.submit(Operation::Read, 7);
    world.drive();
    assert!(answered.try_recv().is_err(), "it still writes its snapshot, which no kernel does here");
    assert!(world.caches.get_mut(2).unwrap().refuse_if_in_use().is_err());
    let mut cache = world.caches.take(2).unwrap();
    let held: Vec<Asker> = cache.take_waiting(2).map(|request| request.asker).collect();
    assert_eq!((held, world.caches.has(2)), (vec![Asker::FrontEnd(FRONT_END, 7)], false));
    // The ring has addresses of its buffers: it goes first.
    drop(world);
}
