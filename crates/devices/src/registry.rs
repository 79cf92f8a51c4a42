//! The models that there are, by name.

use crate::flash::{self, Flash};
use crate::hdd::{Hdd, parameters};
use crate::model::DeviceModel;
use crate::nvram::{self, Nvram};
use crate::raid::{self, Raid1e};

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
