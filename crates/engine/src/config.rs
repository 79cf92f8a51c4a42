//! Descriptions of an engine, a session and an attached front end, as other threads give them.

use super::buffer_memory::BufferMemory;
use super::work::ServiceRequest;
use plimsoll_core::{Allocation, DeviceProfile, Span};
use plimsoll_devices::DeviceModel;
use plimsoll_executor::Executor;
use std::sync::Arc;

/// Default bound on the lateness of an emulated device's slowest hundredth of replies. An eighth of a revolution of a
/// 7200 rpm disk keeps positioning times recognisable.
pub const LATENESS_BOUND_DEFAULT: Span = Span::from_millis(1);
/// Default time for stopped front ends to answer requests under way.
pub const GRACE_DEFAULT: Span = Span::from_secs(5);

/// What an engine should be.
pub struct EngineConfig {
    /// The device, as its scheduler and its accounts see it.
    pub profile: DeviceProfile,
    /// Name of the scheduler in the registry.
    pub scheduler: String,
    /// The model that replies are held back by; `None` for a real device.
    pub model: Option<Box<dyn DeviceModel + Send>>,
    /// More lateness than this is reported.
    pub lateness_bound: Span,
    /// The processor that the thread is bound to; `None` for any.
    pub processor: Option<usize>,
    /// Service threads for work that takes processor time. Without them the engine's thread does that work.
    pub executor: Option<Arc<Executor<ServiceRequest>>>,
    /// What the buffers of connections are taken from; engines may share it.
    pub buffers: BufferMemory,
}

impl EngineConfig {
    /// A real device with `scheduler`, on any processor.
    pub fn new(profile: DeviceProfile, scheduler: &str) -> EngineConfig {
        let lateness_bound = LATENESS_BOUND_DEFAULT;
        EngineConfig {
            profile,
            scheduler: scheduler.to_owned(),
            model: None,
            lateness_bound,
            processor: None,
            executor: None,
            buffers: BufferMemory::default(),
        }
    }

    /// A device that behaves like `model`, with `scheduler`.
    pub fn emulated(model: Box<dyn DeviceModel + Send>, scheduler: &str) -> EngineConfig {
        let profile = model.profile().clone();
        EngineConfig { model: Some(model), ..EngineConfig::new(profile, scheduler) }
    }
}

/// The session that a front end opens.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// What people call it; a number is appended, so that several can have the same.
    pub name: String,
    /// What it is promised out of its pool.
    pub allocation: Allocation,
}

/// A front end's number on its engine; used again after it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttachmentId(pub(crate) u32);
