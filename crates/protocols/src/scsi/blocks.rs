//! Commands on blocks, held against the volume's size and limits: each becomes a [`Job`].

use super::command::{Compared, ScsiCommand, Transfer};
use super::extents::Extent;
use super::geometry::Geometry;
use super::inquiry::{
    TRANSFER_BYTES_MAX, UNMAP_BYTES_MAX, UNMAP_DESCRIPTORS_MAX, WRITE_SAME_BLOCKS_MAX, compare_blocks_max,
};
use super::job::{Job, Work};
use super::outcome::Outcome;
use super::sense::{Answer, Sense, Status};
use plimsoll_core::Class;

/// Bytes before the descriptors of an UNMAP, and of each (SBC-4, 5.31).
const UNMAP_HEADER_BYTES: usize = 8;
const UNMAP_DESCRIPTOR_BYTES: usize = 16;

/// The unit as commands on its blocks see it.
pub(super) struct Blocks<'unit> {
    pub(super) geometry: &'unit Geometry,
    /// No session may write: the volume is read-only, or a mode page says so.
    pub(super) is_write_protected: bool,
}

impl Blocks<'_> {
    /// A command on blocks.
    pub(super) fn on_blocks(&self, command: &ScsiCommand) -> Outcome {
        self.job(command).unwrap_or_else(|sense| sense.into())
    }

    fn job(&self, command: &ScsiCommand) -> Result<Outcome, Sense> {
        match *command {
            ScsiCommand::Read(transfer) => self.bounded(transfer, Work::Read, 0),
            ScsiCommand::Write(transfer) => self.writing(transfer, Work::Write, 1),
            ScsiCommand::WriteAndVerify(transfer, compared) => {
                self.writing(transfer, Work::WriteAndVerify(compared), 1)
            }
            ScsiCommand::OrWrite(transfer) => self.writing(transfer, Work::OrWrite, 1),
            ScsiCommand::CompareAndWrite(transfer) if transfer.blocks > compare_blocks_max(self.geometry) => {
                Err(Sense::INVALID_FIELD)
            }
            ScsiCommand::CompareAndWrite(transfer) => self.writing(transfer, Work::CompareAndWrite, 2),
            ScsiCommand::Verify(transfer, Compared::Each) => self.bounded(transfer, Work::Verify(Compared::Each), 1),
            ScsiCommand::Verify(transfer, compared) => {
                let extent = self.geometry.extent(transfer.lba, transfer.blocks.into())?;
                let sent = if compared == Compared::One && transfer.blocks > 0 { self.geometry.block_bytes } else { 0 };
                Ok(self.outcome(transfer, Work::Verify(compared), extent, sent))
            }
            ScsiCommand::WriteSame { transfer, unmaps, has_data } => self.write_same(transfer, unmaps, has_data),
            ScsiCommand::Prefetch(transfer) => {
                // There is no cache of ours to fetch into, which is not said to be met.
                self.geometry.extent(transfer.lba, transfer.blocks.into())?;
                Ok(Answer::GOOD.into())
            }
            // A command that does not want to wait (IMMED) waits all the same: an answer that says too little would be
            // worse.
            ScsiCommand::SynchronizeCache(transfer) => {
                let extent = self.geometry.extent(transfer.lba, transfer.blocks.into())?;
                Ok(Outcome::Job(job_of(transfer, Work::Flush, extent, 0)))
            }
            _ => Err(Sense::INVALID_OPCODE),
        }
    }

    fn outcome(&self, transfer: Transfer, work: Work, extent: Extent, sent: u32) -> Outcome {
        // Whether nothing is sent for no blocks, the transport has to see.
        if extent.length == 0 && work != Work::CompareAndWrite {
            return Answer::GOOD.into();
        }
        Outcome::Job(job_of(transfer, work, extent, sent))
    }

    /// A command with bytes that cross the wire `times` times from the initiator, or to it.
    fn bounded(&self, transfer: Transfer, work: Work, times: u32) -> Result<Outcome, Sense> {
        let extent = self.geometry.extent(transfer.lba, transfer.blocks.into())?;
        if extent.length > u64::from(TRANSFER_BYTES_MAX) {
            return Err(Sense::INVALID_FIELD);
        }
        Ok(self.outcome(transfer, work, extent, times * extent.length as u32))
    }

    fn writing(&self, transfer: Transfer, work: Work, times: u32) -> Result<Outcome, Sense> {
        match self.is_write_protected {
            true => Err(Sense::WRITE_PROTECTED),
            false => self.bounded(transfer, work, times),
        }
    }

    fn write_same(&self, transfer: Transfer, unmaps: bool, has_data: bool) -> Result<Outcome, Sense> {
        if self.is_write_protected {
            return Err(Sense::WRITE_PROTECTED);
        }
        let extent = self.geometry.extent(transfer.lba, transfer.blocks.into())?;
        if extent.length == 0 || transfer.blocks > WRITE_SAME_BLOCKS_MAX {
            return Err(Sense::INVALID_FIELD);
        }
        let sent = if has_data { self.geometry.block_bytes } else { 0 };
        let work = match (unmaps, has_data) {
            (unmaps, true) => Work::Repeat { unmaps },
            (true, false) => Work::Release(vec![extent]),
            (false, false) => Work::Zero,
        };
        Ok(Outcome::Job(job_of(transfer, work, extent, sent)))
    }

    /// The extents that an UNMAP names, all checked before any is given back.
    pub(super) fn unmap(&self, class: Class, list: &[u8]) -> Outcome {
        match self.unmapped(list) {
            Err(sense) => sense.into(),
            Ok(extents) if extents.is_empty() => Answer::of_status(Status::Good).into(),
            Ok(extents) => {
                let extent = extents[0];
                let transfer = Transfer { lba: 0, blocks: 0, class, is_forced: false };
                Outcome::Job(job_of(transfer, Work::Release(extents), extent, 0))
            }
        }
    }

    fn unmapped(&self, list: &[u8]) -> Result<Vec<Extent>, Sense> {
        if list.len() < UNMAP_HEADER_BYTES {
            return Err(Sense::PARAMETER_LIST_LENGTH);
        }
        let said = usize::from(u16::from_be_bytes([list[2], list[3]]));
        let descriptors = &list[UNMAP_HEADER_BYTES..];
        let descriptors = &descriptors[..said.min(descriptors.len())];
        if descriptors.len() / UNMAP_DESCRIPTOR_BYTES > UNMAP_DESCRIPTORS_MAX as usize {
            return Err(Sense::INVALID_PARAMETER);
        }
        let mut extents = Vec::new();
        for descriptor in descriptors.chunks_exact(UNMAP_DESCRIPTOR_BYTES) {
            let lba = u64::from_be_bytes(descriptor[..8].try_into().expect("eight bytes"));
            let blocks = u32::from_be_bytes(descriptor[8..12].try_into().expect("four bytes"));
            let extent = self.geometry.extent(lba, blocks.into())?;
            if extent.length > 0 {
                extents.push(extent);
            }
        }
        let sum: u64 = extents.iter().map(|extent| extent.length).sum();
        if sum > UNMAP_BYTES_MAX { Err(Sense::INVALID_PARAMETER) } else { Ok(extents) }
    }
}

fn job_of(transfer: Transfer, work: Work, extent: Extent, data_out_bytes: u32) -> Job {
    Job { work, extent, data_out_bytes, class: transfer.class, is_forced: transfer.is_forced }
}
