//! What the laws need of a front end: a driver each, written with the clients that the other tests have.

use crate::{iscsi, mount, nbd};
use plimsoll_core::{Allocation, Operation};
use plimsoll_engine::backend::{Volume, VolumeInfo};
use plimsoll_engine::{BufferMemory, EngineConfig, EngineHandle, EngineStatus, spawn};
use plimsoll_testkit::{PATIENCE, pause};

/// Why a client was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The request is not allowed.
    Refused,
    /// The device failed.
    Failed,
    /// The connection has ended.
    Ended,
}

pub type Answer = Result<(), Told>;

/// One request at a time to a volume; offsets and lengths in bytes, multiples of the volume's blocks.
pub trait Client {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Answer;
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Answer;
    /// Writes so that the bytes are durable when it is answered.
    fn write_forced(&mut self, offset: u64, bytes: &[u8]) -> Answer;
    fn flush(&mut self) -> Answer;
    fn trim(&mut self, offset: u64, length: u32) -> Answer;
    fn zero(&mut self, offset: u64, length: u32) -> Answer;
}

/// What a client has begun when it vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It has sent a part of a write.
    Half,
    /// It waits for the answer to a read or write of the block of 4096 bytes with this number.
    Whole(Operation, u64),
}

/// A front end that is served. Dropping it ends it.
pub trait Front {
    /// A further client.
    fn connect(&self) -> Box<dyn Client>;

    /// A client that has begun a request, and is gone when the answer is dropped; `None` where a client of this front
    /// end cannot do that.
    fn begin(&self, begun: Begun) -> Option<Box<dyn Gone>>;

    /// What a client says from its first byte on, in the pieces that the front end receives: it writes 3 to all of the
    /// 4096 bytes from 8192 on, and does something of everything else.
    fn messages(&self) -> Vec<Vec<u8>>;

    /// Says that as one client, which then is gone. Comes back when the front end has let go of it.
    fn say(&self, messages: &[Vec<u8>]);
}

/// A client that vanishes when it is dropped.
pub trait Gone {}

impl<T> Gone for T {}

/// Largest requests, and what a larger one is answered.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes_max: u32,
    pub larger_read: Answer,
    pub larger_write: Answer,
}

/// A front end's driver.
pub struct Driver {
    /// The front end, by its name in the registry.
    pub name: &'static str,
    /// Why its laws cannot be looked at here, if so.
    pub not_run: fn() -> Option<String>,
    pub limits: Limits,
    /// Serves the site's volume.
    pub serve: fn(&Site) -> Box<dyn Front>,
}

/// The drivers, in the order of the registry.
pub const DRIVERS: &[Driver] = &[nbd::DRIVER, iscsi::DRIVER, mount::DRIVER];

/// An engine with the volume `v`.
pub struct Site {
    pub engine: EngineHandle,
    pub volume: VolumeInfo,
    buffers: BufferMemory,
}

impl Site {
    pub fn new(config: EngineConfig, volume: Volume) -> Site {
        let buffers = config.buffers.clone();
        let engine = spawn(config).unwrap();
        engine.open_pool("pool", Allocation::default()).unwrap();
        let info = volume.info().clone();
        engine.add_volume(volume).unwrap();
        Site { engine, volume: info, buffers }
    }

    pub fn block(&self) -> u32 {
        self.volume.block_bytes
    }

    pub fn wait_until(&self, what: &str, is_so: impl Fn(&EngineStatus) -> bool) {
        for _ in 0..PATIENCE.as_nanos() / 5_000_000 {
            if is_so(&self.engine.status().unwrap()) {
                return;
            }
            pause();
        }
        panic!("never came: {what}; now {:?}", self.engine.status().unwrap());
    }

    /// Waits until so many front ends are attached.
    pub fn wait_until_attached(&self, count: u32) {
        self.wait_until("so many front ends", |status| status.volumes[0].front_ends == count);
    }

    /// The end of all front ends: no request, session or buffer of any is left.
    pub fn end(self) {
        self.wait_until_attached(0);
        let status = self.engine.status().unwrap();
        assert_eq!(status.requests_under_way, 0, "every request was given back");
        let paths: Vec<&str> = status.accounts.iter().map(|account| &*account.path).collect();
        assert_eq!(paths, [&*status.device, "pool"], "every session was closed");
        assert!(status.accounts.iter().all(|account| account.queued == 0 && account.in_flight == 0));
        assert_eq!(self.buffers.taken_bytes(), 0, "every buffer was given back");
        self.engine.shutdown(PATIENCE).unwrap();
    }
}
