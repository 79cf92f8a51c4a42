//! Where front ends and volumes sit: what the engine knows of each.

use super::block_tags::BlockTags;
use super::buffer::Arena;
use super::buffer_memory::{BufferMemory, ConnectionMemory};
use super::doubts::Doubts;
use crate::backend::{Volume, VolumeInfo};
use plimsoll_core::{AccountId, CauseSet};

/// Where a front end sits: what the engine knows of it.
pub(crate) struct Seat {
    /// Its number.
    pub(crate) index: u32,
    /// The volume that it serves.
    pub(crate) volume: u32,
    pub(crate) info: VolumeInfo,
    /// The account that its requests are charged to.
    pub(crate) session: AccountId,
    /// Its number among the sessions that read ahead, if the volume is.
    pub(crate) reader: Option<u32>,
    pub(crate) arena: Arena,
    /// Its operations on the ring.
    pub(crate) operations: u32,
    /// Its requests under way.
    pub(crate) requests: u32,
    /// It heard something in this turn.
    pub(crate) is_touched: bool,
    /// It waits until there is memory for a buffer.
    pub(crate) waits_for_memory: bool,
    /// What it takes beside its buffers.
    pub(crate) _memory: Option<ConnectionMemory>,
}

/// A volume at work.
pub(super) struct VolumeSeat {
    pub(super) volume: Volume,
    /// Connections and mounts.
    pub(super) front_ends: u32,
    /// Tells causes and classes of its blocks, if anything can.
    pub(super) tags: Option<Box<dyn BlockTags>>,
    /// The accounts that caused what was written since the last flush.
    pub(super) unflushed: CauseSet,
    /// Accounts that know that its device could not flush. A cache has its own list.
    pub(super) doubts: Doubts,
    /// What the buffers of its connections are taken from.
    pub(super) buffers: BufferMemory,
}
