//! The device: volumes' backends, service threads, and the model of an emulated device.
//!
//! ```text
//!   Send -> send --+--> memory: at once
//!                  +--> file: an operation on the ring, a service thread's work } a piece waits
//!                  +--> model: a time to wait for                              } for both
//!   PieceDone <----+
//! ```

mod steps;

use super::ground::Ground;
use super::next::Next;
use super::orphans::take_orphan;
use super::request::Waits;
use super::table::Table;
use crate::backend::{Backend, PAGE_BYTES, Progress};
use crate::emulation::Emulation;
use crate::error::EngineError;
use crate::ring::{Owner, Ring};
use crate::seat::VolumeSeat;
use crate::slab::Slab;
use crate::submission::Payload;
use crate::work::Work;
use plimsoll_core::{Operation, Time};
use plimsoll_devices::DeviceRequest;
use rustix::io::Errno;

/// What the device works with, and on.
pub(crate) struct Site<'engine> {
    pub(crate) ground: &'engine mut Ground,
    pub(crate) table: &'engine mut Table,
    pub(crate) volumes: &'engine mut Slab<VolumeSeat>,
    pub(crate) ring: &'engine mut Ring,
}

/// A device. Volumes and the ring are not its own, for others use them, too.
pub(crate) struct Device {
    emulation: Option<Emulation>,
    /// Service threads, for what takes a processor's time.
    work: Work,
}

impl Device {
    pub(crate) fn new(emulation: Option<Emulation>, work: Work) -> Device {
        Device { emulation, work }
    }

    /// The model that delays replies; `None` for a real device.
    pub(crate) fn emulation(&self) -> Option<&Emulation> {
        self.emulation.as_ref()
    }

    /// Prepares for a volume that is encrypted.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(crate) fn expect_encrypted(&mut self) -> Result<(), EngineError> {
        self.work.make_scratch()
    }

    /// Gives a piece to the device.
    pub(crate) fn send(&mut self, site: &mut Site<'_>, index: u32) {
        let (piece, request) = site.table.piece(index);
        piece.dispatched = site.ground.now;
        if request.is_abandoned {
            piece.error = Some(Errno::CANCELED);
            return site.ground.then(Next::PieceDone(index));
        }
        self.send_to_model(site, index);
        let Site { ground, table, volumes, .. } = &mut *site;
        let (piece, request) = table.piece(index);
        let VolumeSeat { volume, .. } = &mut volumes[request.volume];
        let takes_time = match &volume.backend {
            Backend::File(file) => file.cipher.is_some(),
            _ => !matches!(request.asked.payload, Payload::Volume(_)),
        };
        if takes_time {
            ground.bytes_left = ground.bytes_left.saturating_sub(piece.length.into());
        }
        match &mut volume.backend {
            Backend::Memory(memory) => {
                let offset = request.asked.offset + u64::from(piece.start);
                match (request.asked.operation, request.asked.payload.as_ptr()) {
                    (Operation::Read, Some(target)) if !matches!(request.asked.payload, Payload::Volume(_)) => {
                        // SAFETY: as for a write; the payload is a buffer or a block of the volume's cache.
                        unsafe { memory.read(offset, target.add(piece.start as usize).cast_mut(), piece.length) }
                    }
                    (Operation::Write, Some(source)) => {
                        // SAFETY: `check` found the payload to hold the whole request, of which this is a piece, and a
                        // write's payload is a buffer, never the volume itself.
                        unsafe { memory.write(offset, source.add(piece.start as usize), piece.length) }
                    }
                    (Operation::Trim | Operation::WriteZeroes, _) => memory.zero(offset, piece.length),
                    // Other reads are answered out of the volume; a flush has nothing to do.
                    (Operation::Read | Operation::Flush | Operation::Write, _) => {}
                }
                if !piece.waits.for_model {
                    ground.then(Next::PieceDone(index));
                }
            }
            Backend::Compressed(memory) => {
                let offset = request.asked.offset + u64::from(piece.start);
                let pages = |bytes: u64| bytes / PAGE_BYTES as u64;
                match request.asked.operation {
                    Operation::Read | Operation::Write => {
                        let memory = memory.clone();
                        return self.begin_packing(site, index, memory);
                    }
                    Operation::Trim | Operation::WriteZeroes => {
                        memory.zero(pages(offset), pages(piece.length.into()));
                    }
                    // It has nothing to do.
                    Operation::Flush => {}
                }
                if !piece.waits.for_model {
                    ground.then(Next::PieceDone(index));
                }
            }
            Backend::File(file) => {
                piece.step = file.first_step(request.asked.operation, request.asked.is_forced);
                piece.waits.for_backend = true;
                self.begin_step(site, index);
            }
        }
    }

    /// Lets the model say when a piece is done, where the device is emulated.
    fn send_to_model(&mut self, site: &mut Site<'_>, index: u32) {
        let Some(emulation) = &mut self.emulation else { return };
        let (piece, request) = site.table.piece(index);
        let offset =
            site.volumes[request.volume].volume.config().start_bytes + request.asked.offset + u64::from(piece.start);
        let (token, operation, length, is_forced) =
            (u64::from(index), request.asked.operation, piece.length, request.asked.is_forced);
        emulation.submit(site.ground.now, DeviceRequest { token, operation, offset, length, is_forced });
        piece.waits.for_model = true;
    }

    /// Puts the step of a piece on the ring.
    fn push_step(&mut self, site: &mut Site<'_>, index: u32) {
        let (piece, request) = site.table.piece(index);
        let Backend::File(file) = &site.volumes[request.volume].volume.backend else {
            unreachable!("only files have steps")
        };
        let start = piece.start + piece.done_bytes;
        let left = piece.left();
        let (data, length) = match (&mut piece.scratch, request.asked.payload.as_ptr()) {
            (Some(scratch), _) => (scratch.as_mut_ptr(), left.min(scratch.capacity() as u32)),
            // SAFETY: `check` found the payload to hold the whole request, of which this is a part.
            (None, Some(data)) => (unsafe { data.add(start as usize).cast_mut() }, left),
            (None, None) => (std::ptr::null_mut(), left),
        };
        let offset = request.asked.offset + u64::from(start);
        let entry = file.entry(piece.step, offset, length, data);
        // SAFETY: the bytes lie in the request's payload, which the request owns until its last piece is done, in the
        // piece's scratch buffer, which it gives back when it is done, or are static; the file is open as long as the
        // volume, which is not removed while a front end is attached.
        unsafe { site.ring.push(entry, Owner::Piece(index)) }
    }

    /// The step of a piece has ended, on the ring or with the service threads. In memory there is one only.
    pub(crate) fn step_completed(&mut self, site: &mut Site<'_>, index: u32, result: Result<u32, Errno>) {
        let (piece, request) = site.table.piece(index);
        let VolumeSeat { volume, doubts, .. } = &mut site.volumes[request.volume];
        let Backend::File(file) = &mut volume.backend else {
            return self.backend_done(site, index, result.err());
        };
        match file.progress(piece.step, piece.left(), request.asked.is_forced, result) {
            Progress::Next(step, bytes) => {
                piece.step = step;
                piece.done_bytes += bytes;
                self.begin_step(site, index);
            }
            Progress::Failed(errno) => {
                let offset = request.asked.offset + u64::from(piece.start + piece.done_bytes);
                file.log_failure(site.ground.now, request.asked.operation, offset, errno);
                if piece.step.leaves_doubt(errno) && !request.asker.is_cache() {
                    doubts.flush_failed();
                }
                self.backend_done(site, index, Some(errno));
            }
            Progress::Done => self.backend_done(site, index, None),
        }
    }

    /// A piece has been read, written or whatever it was, or not.
    fn backend_done(&mut self, site: &mut Site<'_>, index: u32, error: Option<Errno>) {
        let piece = &mut site.table.pieces[index];
        piece.error = error;
        piece.waits.for_backend = false;
        let (scratch, waits_for_model) = (piece.scratch.take(), piece.waits.for_model);
        if !waits_for_model {
            site.ground.then(Next::PieceDone(index));
        }
        if let Some(orphan) = take_orphan(site.table, index) {
            site.ground.then(Next::OrphanEnded(orphan));
        }
        if let Some(scratch) = scratch {
            self.give_scratch(site, scratch);
        }
    }

    /// Lets go of every piece that the emulated device has done by now.
    pub(crate) fn complete_emulated(&mut self, ground: &mut Ground, table: &mut Table) {
        while let Some(token) = self.emulation.as_mut().and_then(|emulation| emulation.complete(ground.now)) {
            let index = token as u32;
            let piece = &mut table.pieces[index];
            piece.waits.for_model = false;
            if piece.waits == (Waits { for_backend: false, for_model: false }) {
                ground.then(Next::PieceDone(index));
            }
        }
    }

    /// Next times at which it has work without an event: a piece is done, or service threads may have room.
    pub(crate) fn wake_at(&self) -> [Option<Time>; 2] {
        [self.emulation.as_ref().and_then(Emulation::next_completion), self.work.try_again]
    }
}

#[cfg(test)]
mod tests;
