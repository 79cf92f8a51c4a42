//! The device that a cache is on: as fast as it is, or emulated.
//!
//! **The rule.** As on an emulated store, bytes are moved at once, by the engine's thread, and what is answered waits
//! for the model. What comes of an operation is not looked at before, so no client can tell that the bytes came early.

use crate::cache::CacheDevice;
use crate::emulation::Emulation;
use crate::status::EmulationStatus;
use io_uring::squeue;
use plimsoll_cache::store::{Action, Operation};
use plimsoll_core::{Operation as Asked, Time};
use plimsoll_devices::DeviceRequest;
use std::io;

pub(super) struct FastDevice {
    pub device: CacheDevice,
    /// How long the device takes, if it is emulated.
    emulation: Option<Emulation>,
}

impl FastDevice {
    pub fn new(device: CacheDevice, emulation: Option<Emulation>) -> FastDevice {
        FastDevice { device, emulation }
    }

    /// Begins an operation if the device is emulated: its bytes are moved now, to or from `data`.
    pub fn begin_emulated(&mut self, now: Time, operation: &Operation, data: &mut [u8]) -> Option<io::Result<()>> {
        let emulation = self.emulation.as_mut()?;
        let performed = self.device.perform(operation, data);
        if performed.is_ok() {
            emulation.submit(now, request_of(operation));
        }
        Some(performed)
    }

    /// The ring operation for `operation` on a device that is not emulated.
    pub fn entry(&self, operation: &Operation, data: *mut u8) -> squeue::Entry {
        self.device.entry(operation, data)
    }

    /// The number of an operation that the emulated device has done by now, if there is one.
    pub fn complete(&mut self, now: Time) -> Option<u32> {
        self.emulation.as_mut()?.complete(now).map(|token| token as u32)
    }

    /// When the emulated device will have done something.
    pub fn next_completion(&self) -> Option<Time> {
        self.emulation.as_ref().and_then(Emulation::next_completion)
    }

    /// How late the emulated device answers.
    pub fn emulation_status(&self) -> Option<EmulationStatus> {
        self.emulation.as_ref().map(Emulation::status)
    }
}

fn request_of(operation: &Operation) -> DeviceRequest {
    let asked = match operation.action {
        Action::Read => Asked::Read,
        Action::Write => Asked::Write,
        Action::Flush => Asked::Flush,
        Action::Trim => Asked::Trim,
    };
    let Operation { id, offset_bytes: offset, length_bytes: length, .. } = *operation;
    DeviceRequest { token: u64::from(id), operation: asked, offset, length, is_forced: false }
}
