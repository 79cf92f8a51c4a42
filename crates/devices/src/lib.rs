//! Models of storage devices in closed form: from a request and the device's state follows when it will be done.
//!
//! A model knows nothing of threads or clocks. The simulator drives it in virtual time; the engine drives it in real
//! time and holds each reply back until the model says so, which turns a file or memory into a disk.

#![forbid(unsafe_code)]

pub mod flash;
pub mod hdd;
pub mod nvram;
pub mod raid;
mod random;
mod validate;

use flash::Flash;
use hdd::{Hdd, parameters};
use nvram::Nvram;
use plimsoll_core::{Class, DeviceProfile, Operation, Time};
use raid::Raid1e;

pub use validate::{ValidationRow, validate};

/// A request as a device sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The host's name for it, given back on completion.
    pub token: u64,
    /// What is asked.
    pub operation: Operation,
    /// First byte on the device.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// The write must be durable when it completes.
    pub is_forced: bool,
}

/// A request that the device has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The host's name for it.
    pub token: u64,
    /// When it was done; never later than the `now` that asked.
    pub at: Time,
}

/// A device: takes requests, says when the next one is done.
///
/// The caller asks [`next_completion`](DeviceModel::next_completion) and comes back with
/// [`complete`](DeviceModel::complete) at that time or later; how late the caller is does not change the schedule.
pub trait DeviceModel {
    /// What a scheduler may know of it.
    fn profile(&self) -> &DeviceProfile;
    /// Takes a request at `now`.
    fn submit(&mut self, now: Time, request: DeviceRequest);
    /// Takes a request at `now` whose blocks are of `class`. Only a device with a cache cares.
    fn submit_classified(&mut self, now: Time, request: DeviceRequest, class: Class) {
        let _ = class;
        self.submit(now, request);
    }
    /// When to call [`complete`](DeviceModel::complete) next: when the next request will be done, or earlier if that
    /// depends on something that happens first inside a device made of several. `None` if no request is outstanding.
    fn next_completion(&self) -> Option<Time>;
    /// The earliest request that is done by `now`, if any.
    fn complete(&mut self, now: Time) -> Option<Finished>;
    /// Requests taken and not yet given back.
    fn outstanding(&self) -> usize;
}

/// A model that can be asked for by name.
pub struct ModelEntry {
    /// The name in configurations, such as `hdd.deskstar-120`.
    pub name: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// Makes one; the seed decides what is left to chance, such as where the platter stands at first.
    pub build: fn(seed: u64) -> Box<dyn DeviceModel + Send>,
}

static MODELS: &[ModelEntry] = &[
    ModelEntry {
        name: "hdd.wd-aakx",
        summary: "500 GB SATA disk at 7200 rpm, 138 MB/s, native command queueing",
        build: |seed| Box::new(Hdd::new(&parameters::WD_AAKX, seed)),
    },
    ModelEntry {
        name: "hdd.deskstar-120",
        summary: "120 GB disk at 7200 rpm, 112 random reads per second",
        build: |seed| Box::new(Hdd::new(&parameters::DESKSTAR_120, seed)),
    },
    ModelEntry {
        name: "hdd.15k-sas",
        summary: "450 GB SAS disk at 15000 rpm, 204 MB/s",
        build: |seed| Box::new(Hdd::new(&parameters::SAS_15K, seed)),
    },
    ModelEntry {
        name: "ssd.x25-m",
        summary: "80 GB SATA solid-state drive, 35 K random reads and 6.6 K random writes per second",
        build: |seed| Box::new(Flash::new(&flash::X25_M, seed)),
    },
    ModelEntry {
        name: "ssd.x25-e",
        summary: "32 GB SATA solid-state drive, 35 K random reads and 3.3 K random writes per second",
        build: |seed| Box::new(Flash::new(&flash::X25_E, seed)),
    },
    ModelEntry {
        name: "nvme",
        summary: "1.6 TB NVMe solid-state drive, 740 K random reads per second, 3 GB/s",
        build: |seed| Box::new(Flash::new(&flash::NVME, seed)),
    },
    ModelEntry {
        name: "nvme.64th",
        summary: "an eighth of nvme at an eighth of its pace, 11.6 K random reads per second: for real time on a small machine",
        build: |seed| Box::new(Flash::new(&flash::NVME_64TH, seed)),
    },
    ModelEntry {
        name: "raid1e-5",
        summary: "mirrored striping over five SATA disks at 7200 rpm",
        build: |seed| Box::new(Raid1e::new(&raid::RAID1E_5, seed)),
    },
    ModelEntry {
        name: "nvram-log",
        summary: "8 GB of battery-backed memory behind PCIe 3.0",
        build: |_| Box::new(Nvram::new(&nvram::NVRAM_LOG)),
    },
];

/// Every model.
pub fn models() -> &'static [ModelEntry] {
    MODELS
}

/// The model called `name`.
pub fn build(name: &str, seed: u64) -> Option<Box<dyn DeviceModel + Send>> {
    models().iter().find(|entry| entry.name == name).map(|entry| (entry.build)(seed))
}
