//! A logical unit: a volume as SCSI initiators see it, and what they have agreed on among themselves.
//!
//! All sessions of a unit share its reservations, its mode pages, and the blocks that a command is comparing. They also
//! share unit attentions: events that other sessions have not heard of yet. A command is decoded and checked against
//! all of that. It becomes an [`Outcome`]: an answer at once, a list of parameters to wait for, or a [`Job`] on the
//! volume.

use super::blocks::Blocks;
use super::command::{CDB_BYTES, ScsiCommand};
use super::extents::{AtWork, Change, Extent, Released};
use super::geometry::Geometry;
use super::inquiry::{self, Identity};
use super::job::{Job, Work};
use super::mode::{Asked, Mode};
use super::opcodes;
use super::outcome::Outcome;
use super::reservation::{Access, Notices, PERSISTENT_PARAMETER_BYTES, Persistent, PortName};
use super::sense::{Answer, Sense, Status};
use std::collections::VecDeque;

/// Most unit attentions that wait for a session. A later one is dropped, since the first says enough.
const ATTENTIONS_MAX: usize = 8;
/// A session's first command hears that what it knew of the unit is no more.
const POWER_ON: u16 = 0x2900;
/// A reset of the unit.
const RESET: u16 = 0x2903;
/// A session changed a mode page.
const MODE_CHANGED: u16 = 0x2a01;
/// Descriptors that GET LBA STATUS answers with at the most.
const STATUS_DESCRIPTORS_MAX: usize = 256;

/// A session's number at its unit. Never used again.
pub type NexusId = u64;

struct Nexus {
    id: NexusId,
    port: PortName,
    attentions: VecDeque<u16>,
    /// Its commands that began before this number were aborted by another session.
    aborted_before: u64,
}

/// A volume as initiators see it.
pub struct LogicalUnit {
    geometry: Geometry,
    identity: Identity,
    mode: Mode,
    nexuses: Vec<Nexus>,
    nexuses_so_far: u64,
    reserved_by: Option<NexusId>,
    persistent: Persistent,
    at_work: AtWork,
    released: Released,
    /// Counts the times at which commands were aborted.
    epoch: u64,
    /// Ports that lost their commands to a PERSISTENT RESERVE OUT just now.
    aborted: Option<Vec<PortName>>,
}

impl LogicalUnit {
    /// A unit that no session uses yet.
    pub fn new(geometry: Geometry, identity: Identity) -> LogicalUnit {
        LogicalUnit {
            geometry,
            identity,
            mode: Mode::default(),
            nexuses: Vec::new(),
            nexuses_so_far: 0,
            reserved_by: None,
            persistent: Persistent::default(),
            at_work: AtWork::default(),
            released: Released::default(),
            epoch: 0,
            aborted: None,
        }
    }

    /// A session of `port` begins; one that it had before ends.
    pub fn session_began(&mut self, port: PortName) -> NexusId {
        if let Some(before) = self.nexuses.iter().find(|nexus| nexus.port == port).map(|nexus| nexus.id) {
            self.session_ended(before);
        }
        self.nexuses_so_far += 1;
        let id = self.nexuses_so_far;
        let attentions = VecDeque::from([POWER_ON]);
        self.nexuses.push(Nexus { id, port, attentions, aborted_before: self.epoch });
        id
    }

    /// A session has ended.
    pub fn session_ended(&mut self, nexus: NexusId) {
        self.session_ends(nexus);
        self.nexuses.retain(|other| other.id != nexus);
    }

    /// A session begins no more commands: what it had reserved with RESERVE(6) is free. Those under way can be aborted
    /// as before, by other sessions and by the one that takes its place.
    pub fn session_ends(&mut self, nexus: NexusId) {
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
    }

    /// The number of a command that begins now, for [`is_aborted`](Self::is_aborted).
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a command of `nexus` that began at `epoch` was aborted by another session since.
    pub fn is_aborted(&self, nexus: NexusId, epoch: u64) -> bool {
        self.nexuses.iter().find(|other| other.id == nexus).is_none_or(|nexus| epoch < nexus.aborted_before)
    }

    /// Forgets what sessions have agreed on, as a reset does; aborts every command and tells all sessions. Persistent
    /// reservations stay (SAM-5, 6.3.3).
    pub fn reset(&mut self) {
        self.epoch += 1;
        (self.reserved_by, self.mode) = (None, Mode::default());
        let epoch = self.epoch;
        self.nexuses.iter_mut().for_each(|nexus| nexus.aborted_before = epoch);
        self.tell_all(RESET, |_| true);
    }

    /// Whether commands began to change blocks since the last call. Those have to be aborted at the volume, too.
    pub fn has_new_changes(&mut self) -> bool {
        self.at_work.has_new()
    }

    /// Aborts the commands of all sessions but `nexus` (CLEAR TASK SET), and tells them.
    pub fn abort_others(&mut self, nexus: NexusId) {
        const CLEARED: u16 = 0x2f00;
        self.epoch += 1;
        let epoch = self.epoch;
        self.nexuses.iter_mut().filter(|other| other.id != nexus).for_each(|other| other.aborted_before = epoch);
        self.tell_all(CLEARED, |other| other.id != nexus);
    }

    fn tell_all(&mut self, code: u16, is_meant: impl Fn(&Nexus) -> bool) {
        for nexus in self.nexuses.iter_mut().filter(|nexus| is_meant(nexus)) {
            if nexus.attentions.len() < ATTENTIONS_MAX && !nexus.attentions.contains(&code) {
                nexus.attentions.push_back(code);
            }
        }
    }

    fn take_attention(&mut self, nexus: NexusId) -> Option<Sense> {
        let nexus = self.nexuses.iter_mut().find(|other| other.id == nexus)?;
        nexus.attentions.pop_front().map(Sense::attention)
    }

    /// The bytes of sense data in the format that was asked for.
    pub fn encode(&self, sense: &Sense) -> Vec<u8> {
        sense.encode(self.mode.has_descriptor_sense)
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.geometry.block_bytes
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { geometry: &self.geometry, is_write_protected: self.is_write_protected() }
    }

    fn is_write_protected(&self) -> bool {
        self.geometry.is_read_only || self.mode.is_write_protected
    }

    /// Takes a command of `nexus` for the unit numbered `lun`.
    pub fn command(&mut self, nexus: NexusId, lun: u64, cdb: &[u8; CDB_BYTES]) -> Outcome {
        let decoded = ScsiCommand::decode(cdb);
        let is_there = lun == 0;
        match decoded {
            Ok(ScsiCommand::Inquiry { page: None, allocation }) => {
                return inquiry::standard(is_there, allocation).into();
            }
            Ok(ScsiCommand::Inquiry { page: Some(page), allocation }) if is_there => {
                return inquiry::page(page, &self.identity, &self.geometry, allocation).into();
            }
            Ok(ScsiCommand::ReportLuns { select, allocation }) => return inquiry::units(select, allocation).into(),
            Ok(ScsiCommand::RequestSense { as_descriptors, allocation }) => {
                let pending = if is_there { self.take_attention(nexus) } else { Some(Sense::NO_SUCH_UNIT) };
                let sense = pending.unwrap_or(Sense::NONE);
                return Answer::of_data(sense.encode(as_descriptors), allocation).into();
            }
            _ if !is_there => return Sense::NO_SUCH_UNIT.into(),
            _ => {}
        }
        if let Some(sense) = self.take_attention(nexus) {
            return sense.into();
        }
        match decoded {
            Err(sense) => sense.into(),
            Ok(command) if self.is_kept_out(nexus, &command) => Answer::of_status(Status::ReservationConflict).into(),
            Ok(command) => self.execute(nexus, &command),
        }
    }

    fn port(&self, nexus: NexusId) -> Option<&PortName> {
        self.nexuses.iter().find(|other| other.id == nexus).map(|nexus| &nexus.port)
    }

    /// Whether another session's reservation is in the way (SPC-4, table 66; SBC-4, table 13).
    fn is_kept_out(&self, nexus: NexusId, command: &ScsiCommand) -> bool {
        let access = match command {
            ScsiCommand::Inquiry { .. }
            | ScsiCommand::RequestSense { .. }
            | ScsiCommand::ReportLuns { .. }
            | ScsiCommand::Release6 => Access::Always,
            ScsiCommand::Read(_)
            | ScsiCommand::Verify(..)
            | ScsiCommand::Prefetch(_)
            | ScsiCommand::GetLbaStatus { .. }
            | ScsiCommand::ModeSense { .. } => Access::Reads,
            ScsiCommand::Write(_)
            | ScsiCommand::WriteAndVerify(..)
            | ScsiCommand::CompareAndWrite(_)
            | ScsiCommand::OrWrite(_)
            | ScsiCommand::WriteSame { .. }
            | ScsiCommand::Unmap { .. }
            | ScsiCommand::SynchronizeCache(_)
            | ScsiCommand::ModeSelect { .. }
            | ScsiCommand::PreventAllow { prevents: true } => Access::Writes,
            _ => Access::Asks,
        };
        let is_reserved = self.reserved_by.is_some_and(|holder| holder != nexus) && access != Access::Always;
        is_reserved || self.port(nexus).is_none_or(|port| self.persistent.keeps_out(port, access))
    }

    fn execute(&mut self, nexus: NexusId, command: &ScsiCommand) -> Outcome {
        match *command {
            ScsiCommand::TestUnitReady | ScsiCommand::StartStopUnit | ScsiCommand::PreventAllow { .. } => {
                Answer::GOOD.into()
            }
            ScsiCommand::ReadCapacity10 => inquiry::capacity10(&self.geometry).into(),
            ScsiCommand::ReadCapacity16 { allocation } => inquiry::capacity16(&self.geometry, allocation).into(),
            ScsiCommand::ModeSense { is_long, control, page, subpage, allocation, .. } => {
                let asked = Asked { is_long, control, page, subpage, allocation };
                self.mode.sense(&asked, self.is_write_protected()).into()
            }
            ScsiCommand::ModeSelect { saves: true, .. } => Sense::INVALID_FIELD.into(),
            ScsiCommand::ModeSelect { length: 0, .. } | ScsiCommand::Unmap { length: 0, .. } => Answer::GOOD.into(),
            ScsiCommand::PersistentOut { length, .. } if length != PERSISTENT_PARAMETER_BYTES => {
                Sense::PARAMETER_LIST_LENGTH.into()
            }
            ScsiCommand::ModeSelect { length, .. } | ScsiCommand::PersistentOut { length, .. } => {
                Outcome::Parameters(length)
            }
            ScsiCommand::Unmap { .. } if self.is_write_protected() => Sense::WRITE_PROTECTED.into(),
            ScsiCommand::Unmap { length, .. } => Outcome::Parameters(length),
            ScsiCommand::Reserve6 if self.persistent.has_registrations() => {
                Answer::of_status(Status::ReservationConflict).into()
            }
            ScsiCommand::Reserve6 => {
                self.reserved_by = Some(nexus);
                Answer::GOOD.into()
            }
            ScsiCommand::Release6 => {
                self.reserved_by = self.reserved_by.filter(|&holder| holder != nexus);
                Answer::GOOD.into()
            }
            ScsiCommand::PersistentIn { action, allocation } => self.persistent.report(action, allocation).into(),
            ScsiCommand::ReportOpcodes { options, opcode, action, has_timeouts, allocation } => {
                opcodes::report(options, opcode, action, has_timeouts, allocation).into()
            }
            ScsiCommand::ReportTaskManagement { is_extended, allocation } => {
                // Abort task, abort task set, clear task set, logical unit reset.
                let mut data = vec![0xd8, 0, 0, 0];
                if is_extended {
                    data.resize(16, 0);
                    data[3] = 12;
                }
                Answer::of_data(data, allocation).into()
            }
            ScsiCommand::GetLbaStatus { lba, allocation } => self.lba_status(lba, allocation).into(),
            ScsiCommand::Inquiry { .. } | ScsiCommand::ReportLuns { .. } | ScsiCommand::RequestSense { .. } => {
                unreachable!("answered whatever the state of the unit")
            }
            _ => self.blocks().on_blocks(command),
        }
    }

    /// Takes the parameters of a command that [`command`](Self::command) had wanted them for.
    pub fn parameters(&mut self, nexus: NexusId, cdb: &[u8; CDB_BYTES], list: &[u8]) -> Outcome {
        match ScsiCommand::decode(cdb) {
            Ok(ScsiCommand::ModeSelect { is_long, .. }) => match self.mode.select(is_long, list) {
                Ok(has_changed) => {
                    if has_changed {
                        self.tell_all(MODE_CHANGED, |other| other.id != nexus);
                    }
                    Answer::GOOD.into()
                }
                Err(sense) => sense.into(),
            },
            Ok(ScsiCommand::PersistentOut { action, scope, kind, .. }) => {
                let Some(port) = self.port(nexus).cloned() else { return Answer::GOOD.into() };
                match self.persistent.order(&port, (action, scope, kind), list) {
                    Ok(notices) => {
                        const PREEMPT_AND_ABORT: u8 = 5;
                        self.tell(notices, action == PREEMPT_AND_ABORT);
                        Answer::GOOD.into()
                    }
                    Err(answer) => answer.into(),
                }
            }
            Ok(ScsiCommand::Unmap { class, .. }) => self.blocks().unmap(class, list),
            _ => Sense::INVALID_OPCODE.into(),
        }
    }

    /// Tells ports what they have lost, and aborts their commands if they lose those too.
    fn tell(&mut self, notices: Notices, aborts: bool) {
        self.epoch += u64::from(aborts);
        let epoch = self.epoch;
        for (port, code) in notices {
            self.tell_all(code, |nexus| nexus.port == port);
            if aborts {
                self.nexuses.iter_mut().filter(|nexus| nexus.port == port).for_each(|nexus| {
                    nexus.aborted_before = epoch;
                });
                self.aborted.get_or_insert_default().push(port);
            }
        }
    }

    /// The ports that lost their commands by [`parameters`](Self::parameters) just now, if any. The caller must ensure
    /// that these commands do nothing any more.
    pub fn take_aborted(&mut self) -> Option<Vec<PortName>> {
        self.aborted.take()
    }

    fn lba_status(&self, lba: u64, allocation: usize) -> Answer {
        const MAPPED: u8 = 0;
        const DEALLOCATED: u8 = 1;
        let block = u64::from(self.geometry.block_bytes);
        let size = self.geometry.blocks * block;
        if lba >= self.geometry.blocks {
            return Sense::LBA_OUT_OF_RANGE.into();
        }
        let mut data = vec![0; 8];
        let mut at = lba * block;
        while at < size && data.len() < (8 + 16 * STATUS_DESCRIPTORS_MAX).min(allocation.max(24)) {
            let (is_released, end) = self.released.at(at, size);
            let end = end.min(at + u64::from(u32::MAX) * block);
            data.extend((at / block).to_be_bytes());
            data.extend((((end - at) / block) as u32).to_be_bytes());
            data.extend([if is_released { DEALLOCATED } else { MAPPED }, 0, 0, 0]);
            at = end;
        }
        let length = data.len() as u32 - 4;
        data[..4].copy_from_slice(&length.to_be_bytes());
        Answer::of_data(data, allocation)
    }

    /// A job begins to change blocks. `None` where another one compares them: the answer is then [`Status::Busy`].
    pub fn begin(&mut self, job: &Job) -> Option<u64> {
        let change = match &job.work {
            Work::Read | Work::Verify(_) | Work::Flush => return Some(0),
            Work::Release(extents) => {
                // They may be many: the stretch that holds them all.
                let start = extents.iter().map(|extent| extent.offset).min().unwrap_or(0);
                let end = extents.iter().map(Extent::end).max().unwrap_or(0);
                let released = extents.iter().copied().collect();
                return self.at_work.begin(Extent { offset: start, length: end - start }, Change::Releases(released));
            }
            Work::CompareAndWrite | Work::OrWrite => Change::Compares,
            Work::Write | Work::WriteAndVerify(_) | Work::Repeat { .. } | Work::Zero => Change::Writes,
        };
        self.released.remove(job.extent);
        self.at_work.begin(job.extent, change)
    }

    /// A job that [`begin`](Self::begin) gave `number` is over.
    pub fn end(&mut self, number: u64, succeeded: bool) {
        let released = self.at_work.end(number);
        if succeeded {
            released.extents().for_each(|extent| self.released.add(extent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Class;

    const BLOCK: u64 = 512;

    fn job(work: Work, lba: u64, blocks: u64) -> Job {
        let extent = Extent { offset: lba * BLOCK, length: blocks * BLOCK };
        Job { work, extent, data_out_bytes: 0, class: Class::UNCLASSIFIED, is_forced: false }
    }

    fn release(lba: u64, blocks: u64) -> Job {
        let of = job(Work::Zero, lba, blocks);
        Job { work: Work::Release(vec![of.extent]), ..of }
    }

    /// Whether GET LBA STATUS says of each block that it is deallocated.
    fn deallocated(unit: &LogicalUnit) -> Vec<bool> {
        let answer = unit.lba_status(0, 4096);
        let mut blocks = Vec::new();
        for descriptor in answer.data[8..].chunks_exact(16) {
            let count = u32::from_be_bytes(descriptor[8..12].try_into().unwrap());
            blocks.extend(vec![descriptor[12] == 1; count as usize]);
        }
        blocks
    }

    /// Promise: iscsi-lba-status.
    #[test]
    fn what_was_written_while_it_was_unmapped_is_mapped() {
        let geometry = Geometry { block_bytes: BLOCK as u32, blocks: 8, is_read_only: false, is_rotational: false };
        let mut unit = LogicalUnit::new(geometry, Identity::new("target", "volume"));
        let is_there = |there: [u8; 8]| there.map(|is_there| is_there == 0).to_vec();
        // A write that is under way all the time, and one that comes and goes in the middle.
        let long = unit.begin(&job(Work::Write, 0, 1)).unwrap();
        let unmap = unit.begin(&release(0, 6)).unwrap();
        let short = unit.begin(&job(Work::Write, 2, 2)).unwrap();
        unit.end(short, true);
        unit.end(unmap, true);
        unit.end(long, true);
        assert_eq!(deallocated(&unit), is_there([1, 0, 1, 1, 0, 0, 1, 1]));
        // What comes one after the other is as the last one left it.
        let unmap = unit.begin(&release(0, 3)).unwrap();
        unit.end(unmap, true);
        let write = unit.begin(&job(Work::Write, 1, 1)).unwrap();
        assert_eq!(deallocated(&unit), is_there([0, 1, 0, 1, 0, 0, 1, 1]));
        unit.end(write, true);
        let failed = unit.begin(&release(6, 2)).unwrap();
        unit.end(failed, false);
        assert_eq!(deallocated(&unit), is_there([0, 1, 0, 1, 0, 0, 1, 1]));
    }
}
