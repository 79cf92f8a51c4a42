//! A cache with an emulated fast device: a file in memory, and a model with the times of a real device.
//!
//! **The rule.** As on an emulated store, bytes are moved at once, by the engine's thread, and what is answered waits
//! for the model. What comes of an operation is not looked at before, so no client can tell that the bytes came early.

use super::super::emulation::Emulation;
use super::VolumeCache;
use crate::cache::FoundCache;
use plimsoll_cache::store::{Action, Operation};
use plimsoll_core::{Operation as Asked, Span, Time};
use plimsoll_devices::{DeviceModel, DeviceRequest};

impl FoundCache {
    /// The same with the times of `model`. The device must be a file in memory, since the engine's thread waits for it.
    /// Replies that are later than `lateness_bound` are counted as late
    /// ([`CacheStatus::emulation`](crate::CacheStatus::emulation)).
    pub fn emulated(self, model: Box<dyn DeviceModel + Send>, lateness_bound: Span) -> FoundCache {
        FoundCache { emulation: Some(Emulation::new(model, lateness_bound)), ..self }
    }
}

impl VolumeCache {
    /// Begins an operation if the device is emulated. Says whether it is.
    pub(super) fn begin_emulated(&mut self, now: Time, operation: &Operation) -> bool {
        let Some(emulation) = &mut self.emulation else { return false };
        let data: &mut [u8] = match operation.action {
            Action::Read | Action::Write => self.machine.buffer(operation),
            Action::Flush | Action::Trim => &mut [],
        };
        match self.device.perform(operation, data) {
            Ok(()) => emulation.submit(now, request_of(operation)),
            Err(error) => {
                tracing::error!(cache = self.settings.name, action = ?operation.action, %error, "the cache's device failed");
                self.ended.push((operation.id, Err(rustix::io::Errno::IO)));
            }
        }
        true
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
