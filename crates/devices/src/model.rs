//! What every model of a device does.

use plimsoll_core::{Class, DeviceProfile, Operation, Time};

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
    /// Takes a request at `now` for blocks of `class`. Only a device with a cache cares.
    fn submit_classified(&mut self, now: Time, request: DeviceRequest, class: Class) {
        let _ = class;
        self.submit(now, request);
    }
    /// Time of the next call of [`complete`](DeviceModel::complete): the next request's end. It is earlier if that end
    /// depends on an earlier event inside a device made of several. `None` if no request is outstanding.
    fn next_completion(&self) -> Option<Time>;
    /// The earliest request that is done by `now`, if any.
    fn complete(&mut self, now: Time) -> Option<Finished>;
    /// Requests taken and not yet given back.
    fn outstanding(&self) -> usize;
}
