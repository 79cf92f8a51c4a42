//! Models of storage devices in closed form: from a request and the device's state follows when it will be done.
//!
//! A model knows nothing of threads or clocks. The simulator drives it in virtual time. The engine drives it in real
//! time and holds each reply back until the model says so. That turns a file or memory into a disk.

#![forbid(unsafe_code)]

pub mod flash;
pub mod hdd;
mod model;
pub mod nvram;
pub mod raid;
mod random;
mod registry;
mod validate;

pub use model::{DeviceModel, DeviceRequest, Finished};
pub use registry::{ModelEntry, build, models};
pub use validate::{ValidationRow, validate};
