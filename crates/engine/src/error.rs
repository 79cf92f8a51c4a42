//! Why an engine cannot start or do what it was asked to.

use plimsoll_core::ByteCount;
use plimsoll_core::account::AccountError;
use std::borrow::Cow;
use std::io;
use thiserror::Error;

/// Why an engine cannot start or do what it was asked to.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// Nothing can be done without a ring.
    #[error(
        "cannot set up io_uring: {source} (it needs Linux 6.1, kernel.io_uring_disabled = 0 and a seccomp filter that allows it)"
    )]
    Ring {
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// No such scheduler.
    #[error("there is no scheduler {name:?}, known are {known}")]
    UnknownScheduler {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// A pool or session cannot be opened, changed or closed. The message says by how much reserves do not fit.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// No such pool.
    #[error("there is no pool {path:?}")]
    UnknownPool {
        /// What was asked for.
        path: String,
    },
    /// A pool cannot be closed as long as a volume opens its sessions there.
    #[error("pool {path} is used by volume {volume}")]
    PoolInUse {
        /// The pool.
        path: String,
        /// The volume.
        volume: String,
    },
    /// A session cannot be closed as long as requests that it caused are under way.
    #[error("session {path} has {requests} requests under way")]
    SessionBusy {
        /// The session.
        path: String,
        /// Requests that it caused, whole or in part.
        requests: usize,
    },
    /// No such volume.
    #[error("there is no volume {name:?}")]
    UnknownVolume {
        /// What was asked for.
        name: String,
    },
    /// Two volumes of one name.
    #[error("there is a volume {name} already")]
    VolumeExists {
        /// The name.
        name: String,
    },
    /// A volume cannot be removed as long as a front end is attached to it.
    #[error("volume {name} is in use: {front_ends} attached")]
    VolumeInUse {
        /// The volume.
        name: String,
        /// Connections and mounts.
        front_ends: u32,
    },
    /// A volume has one cache, and cannot go as long as it has it.
    #[error("volume {volume} has a cache: detach it first")]
    Cached {
        /// The volume.
        volume: String,
    },
    /// It has none.
    #[error("volume {volume} has no cache")]
    NotCached {
        /// The volume.
        volume: String,
    },
    /// A cache cannot do what it was asked to.
    #[error("cache {cache}: {what}")]
    CacheFailed {
        /// The cache.
        cache: String,
        /// Why.
        what: Cow<'static, str>,
    },
    /// A policy cannot be given to a cache.
    #[error("{message}")]
    CachePolicy {
        /// Why.
        message: String,
    },
    /// Two volumes would share a part of the device.
    #[error("volume {volume} would overlap volume {other} on the device")]
    Overlap {
        /// The new one.
        volume: String,
        /// The one that is there.
        other: String,
    },
    /// A volume would end beyond the device.
    #[error(
        "volume {volume} would end at {}, the device has {}", ByteCount(*.end_bytes).beside(ByteCount(*.capacity_bytes)),
        ByteCount(*.capacity_bytes).beside(ByteCount(*.end_bytes))
    )]
    BeyondDevice {
        /// The volume.
        volume: String,
        /// Byte after its last.
        end_bytes: u64,
        /// Bytes of the device.
        capacity_bytes: u64,
    },
    /// One recording at a time.
    #[error("device {device} is being recorded already")]
    Recorded {
        /// The device.
        device: String,
    },
    /// What was written may not be durable.
    #[error("volume {volume} could not be made durable: {source}")]
    Sync {
        /// The volume.
        volume: String,
        /// What the system said.
        source: io::Error,
    },
}
