//! Commands under way on one connection.
//!
//! A session's window says how many commands the initiator may send before one is answered. Each of them has a place
//! here and, by the counts of [`BUFFER_CLASSES`], buffers for whatever it may need. So a command never waits for
//! another one's buffer, which may wait for data that stand behind it in the same stream.

use super::outbox::KEPT_BYTES_MAX;
use plimsoll_engine::{Buffer, BufferClass};
use plimsoll_protocols::iscsi::pdu::Header;
use plimsoll_protocols::scsi::inquiry::TRANSFER_BYTES_MAX;
use plimsoll_protocols::scsi::job::SCRATCH_BYTES;
use plimsoll_protocols::scsi::{CDB_BYTES, Job, JobProgress};

/// Commands of one session under way at the most, in the order of their numbers.
pub const COMMANDS_MAX: usize = 64;
/// More of them that the initiator sends as immediate, out of that order.
pub const IMMEDIATE_MAX: usize = 4;
/// Of tasks: the engine calls their requests by them.
pub(super) const PLACES: usize = COMMANDS_MAX + IMMEDIATE_MAX;

/// Answers of the largest size that one send keeps, for commands that the initiator sees as done.
const SENT_MAX: usize = KEPT_BYTES_MAX / TRANSFER_BYTES_MAX as usize;

/// Buffers of a connection: each command has one of any size, and another to compare with. Answers that are being sent
/// have some, too.
pub(super) const BUFFER_CLASSES: &[BufferClass] = &[
    BufferClass { bytes: 4 << 10, count: PLACES as u16 },
    BufferClass { bytes: SCRATCH_BYTES, count: 2 * PLACES as u16 },
    BufferClass { bytes: TRANSFER_BYTES_MAX, count: (PLACES + SENT_MAX) as u16 },
];

/// What a command waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// The initiator's bytes, which are parameters.
    Parameters,
    /// The initiator's bytes, before the volume does something with them.
    Data(Job),
    /// The volume.
    Volume(JobProgress),
    /// What other sessions had under way, after it has aborted their commands.
    Aborted,
}

impl Stage {
    /// The initiator still has to send something.
    pub(super) fn is_unfed(&self) -> bool {
        matches!(self, Stage::Parameters | Stage::Data(_))
    }
}

/// Data that are on their way from the initiator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// What it was asked for with; [`NO_TAG`](plimsoll_protocols::iscsi::pdu::NO_TAG) for data that come without.
    pub(super) transfer_tag: u32,
    /// The byte after its last.
    pub(super) end: u32,
    /// The number of the PDU that comes next.
    pub(super) next_number: u32,
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) header: Header,
    /// When it began, as its unit counts.
    pub(super) epoch: u64,
    pub(super) stage: Stage,
    /// The initiator's bytes.
    pub(super) data: Option<Buffer>,
    /// How many are wanted, and how many have come.
    pub(super) wanted: u32,
    pub(super) received: u32,
    pub(super) burst: Burst,
    /// How often data were asked for.
    pub(super) asked: u32,
    /// Bytes that the command is about, whatever the initiator has room for.
    pub(super) whole_bytes: u32,
    /// Its number among those at work on the unit's blocks.
    pub(super) ticket: u64,
    /// The engine has a request of it.
    pub(super) is_at_volume: bool,
    /// No initiator waits for its answer any more.
    pub(super) is_aborted: bool,
}

impl Task {
    pub(super) fn new(header: Header, epoch: u64, stage: Stage) -> Task {
        Task {
            header,
            epoch,
            stage,
            data: None,
            wanted: 0,
            received: 0,
            burst: Burst::default(),
            asked: 0,
            whole_bytes: 0,
            ticket: 0,
            is_at_volume: false,
            is_aborted: false,
        }
    }

    /// Bytes that the initiator sends, by what it says.
    pub(super) fn sent_bytes(&self) -> u32 {
        if self.header.flags() & 0x20 != 0 { expected_bytes(&self.header) } else { 0 }
    }
}

/// The CDB in a command's header.
pub(super) fn cdb(header: &Header) -> [u8; CDB_BYTES] {
    header.0[32..].try_into().expect("sixteen bytes")
}

/// Bytes that the initiator expects to send or to receive.
pub(super) fn expected_bytes(header: &Header) -> u32 {
    header.u32(20)
}

/// The tasks of a connection, by place.
pub(super) struct Tasks {
    places: Vec<Option<Box<Task>>>,
    /// Of these, those that were not immediate.
    ordered: usize,
}

impl Tasks {
    pub(super) fn new() -> Tasks {
        Tasks { places: (0..PLACES).map(|_| None).collect(), ordered: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    /// Commands that the initiator may still send in order.
    pub(super) fn free(&self) -> u32 {
        (COMMANDS_MAX - self.ordered) as u32
    }

    /// Whether there is a place for a command.
    pub(super) fn has_room(&self, is_immediate: bool) -> bool {
        match is_immediate {
            true => self.places.iter().flatten().count() - self.ordered < IMMEDIATE_MAX,
            false => self.ordered < COMMANDS_MAX,
        }
    }

    /// Puts a task into a place; [`has_room`](Self::has_room) must have said yes.
    pub(super) fn insert(&mut self, task: Task) -> usize {
        self.ordered += usize::from(!task.header.is_immediate());
        let place = self.places.iter().position(Option::is_none).expect("there is room");
        self.places[place] = Some(Box::new(task));
        place
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Box<Task>> {
        let task = self.places.get_mut(place)?.take()?;
        self.ordered -= usize::from(!task.header.is_immediate());
        Some(task)
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Task> {
        self.places.get_mut(place)?.as_deref_mut()
    }

    /// The place of the task that the initiator calls `tag`. O(places).
    pub(super) fn find(&self, tag: u32) -> Option<usize> {
        self.iter().find(|(_, task)| task.header.initiator_tag() == tag && !task.is_aborted).map(|(place, _)| place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Task)> {
        self.places.iter().enumerate().filter_map(|(place, task)| Some((place, task.as_deref()?)))
    }
}
