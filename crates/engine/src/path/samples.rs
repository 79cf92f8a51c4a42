//! Plain values for tests of stages: a device with one session, a volume in memory, requests.

use super::asker::Asker;
use super::ground::Ground;
use super::next::Next;
use super::request::Request;
use super::table::Table;
use crate::backend::{Backing, Volume, VolumeConfig};
use crate::buffer_memory::BufferMemory;
use crate::doubts::Doubts;
use crate::seat::VolumeSeat;
use crate::submission::{Payload, Submission};
use plimsoll_core::{
    AccountId, AccountKind, AccountTree, Allocation, CauseSet, Class, DeviceProfile, Operation, Span, Time,
};

/// Bytes of the volume.
pub(crate) const VOLUME_BYTES: u64 = 512 << 20;

/// A device, and a session on it.
pub(crate) fn ground() -> (Ground, AccountId) {
    let mut tree = AccountTree::new(profile());
    let session = tree.open(AccountId::ROOT, "session", AccountKind::Session, Allocation::default()).unwrap();
    let mut ground = Ground::new(Time::ZERO, tree, 0);
    ground.meters.opened(Time::ZERO, session);
    (ground, session)
}

pub(crate) fn profile() -> DeviceProfile {
    DeviceProfile {
        name: "disk".into(),
        capacity_bytes: 1 << 30,
        worst_case_runs_per_second: 100.0,
        sequential_bytes_per_second: 1e8,
        sequential_write_bytes_per_second: 1e8,
        write_settle: Span::ZERO,
        is_rotational: true,
        outstanding_max: 10,
    }
}

/// Takes all steps that were said.
pub(crate) fn said(ground: &mut Ground) -> Vec<Next> {
    std::iter::from_fn(|| ground.take_next()).collect()
}

/// Takes all answers: front end, its name for the request, whether it was carried out.
pub(crate) fn answers(ground: &mut Ground) -> Vec<(u32, u64, bool)> {
    let answers = ground.answers.drain(..);
    answers.map(|(front_end, finished)| (front_end, finished.token, finished.result.is_ok())).collect()
}

pub(crate) fn seat(backing: Backing) -> VolumeSeat {
    let (name, pool) = ("v".to_owned(), String::new());
    let volume = Volume::open(VolumeConfig { name, pool, backing, start_bytes: 0, is_read_only: false }).unwrap();
    let (unflushed, doubts, buffers) = (CauseSet::EMPTY, Doubts::default(), BufferMemory::default());
    VolumeSeat { volume, front_ends: 0, tags: None, unflushed, doubts, buffers }
}

/// A volume in memory.
pub(crate) fn memory_seat() -> VolumeSeat {
    seat(Backing::Memory { size_bytes: VOLUME_BYTES })
}

pub(crate) fn submission(operation: Operation, offset: u64, length: u32, payload: Payload) -> Submission {
    Submission { token: 0, operation, offset, length, is_forced: false, class: Class::UNCLASSIFIED, payload }
}

/// A request without bytes, of front end 0 for volume 0; the front end calls it by its number in the table.
pub(crate) fn front_end_request(
    table: &mut Table,
    session: AccountId,
    operation: Operation,
    offset: u64,
    length: u32,
) -> u32 {
    let submission = submission(operation, offset, length, Payload::None);
    let index = table.requests.insert(Request::new(Asker::FrontEnd(0, 0), 0, session, submission, Time::ZERO));
    table.requests[index].asker = Asker::FrontEnd(0, index.into());
    index
}
