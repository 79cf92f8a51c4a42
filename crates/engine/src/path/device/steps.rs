//! Steps of a piece on service threads, and the steps of pieces at a file.

use super::{Device, Site};
use crate::backend::{Backend, CompressedMemory, FileStep, SectorCipher};
use crate::buffer::Buffer;
use crate::work::{Bytes, PageStep};
use plimsoll_core::Operation;
use plimsoll_executor::{Arrival, Kind};
use rustix::io::Errno;
use std::sync::Arc;

impl Device {
    /// Begins a step of a piece, on `length` bytes from `start` of its request.
    fn begin_work(
        &mut self,
        site: &mut Site<'_>,
        index: u32,
        came: Arrival,
        step: PageStep,
        (start, length): (u32, usize),
    ) {
        self.work.watch(site.ring);
        let request = site.table.request_of(index);
        let kind = match request.asked.operation {
            _ if request.is_maintenance => Kind::Maintenance,
            Operation::Read => Kind::Read,
            _ => Kind::Write,
        };
        // SAFETY: `check` found the payload to hold the whole request, of which this is a part.
        let bytes = request.asked.payload.as_ptr().map(|data| Bytes(unsafe { data.add(start as usize).cast_mut() }));
        let work = self.work.piece(index, kind, step, bytes, (request.asked.offset + u64::from(start), length));
        self.work.begin(site.ground.now, kind, came, work);
    }

    /// Lets a piece of a read or write of compressed memory be done.
    pub(super) fn begin_packing(&mut self, site: &mut Site<'_>, index: u32, memory: Arc<CompressedMemory>) {
        let (piece, request) = site.table.piece(index);
        piece.waits.for_backend = true;
        let step = match request.asked.operation {
            Operation::Read => PageStep::Unpack(memory),
            _ if request.is_maintenance => PageStep::Pack(memory),
            _ => PageStep::PackBehind(memory),
        };
        let bytes = (piece.start, piece.length as usize);
        self.begin_work(site, index, Arrival::New, step, bytes);
    }

    /// Begins the step of a piece at a file.
    pub(super) fn begin_step(&mut self, site: &mut Site<'_>, index: u32) {
        match site.table.pieces[index].step {
            FileStep::Encrypt => self.begin_encrypting(site, index),
            FileStep::Decrypt => {
                let cipher = cipher_of(site, index);
                let piece = &site.table.pieces[index];
                let bytes = (piece.start, piece.length as usize);
                self.begin_work(site, index, Arrival::Resumed, PageStep::Decrypt(cipher), bytes);
            }
            _ => self.push_step(site, index),
        }
    }

    /// Begins to encrypt the next bytes of a piece, as many as its scratch buffer takes. Without a buffer the piece
    /// waits for one.
    fn begin_encrypting(&mut self, site: &mut Site<'_>, index: u32) {
        let piece = &mut site.table.pieces[index];
        if piece.scratch.is_none() {
            piece.scratch = self.work.scratch().take(index, piece.length);
        }
        let Some(scratch) = &mut piece.scratch else { return };
        let target = Bytes(scratch.as_mut_ptr());
        let bytes = (piece.start + piece.done_bytes, scratch.capacity().min(piece.left() as usize));
        let came = if piece.done_bytes == 0 { Arrival::New } else { Arrival::Resumed };
        let step = PageStep::Encrypt(cipher_of(site, index), target);
        self.begin_work(site, index, came, step, bytes);
    }

    /// A piece needs its scratch buffer no more: others have waited for one.
    pub(super) fn give_scratch(&mut self, site: &mut Site<'_>, buffer: Buffer) {
        self.work.scratch().give(buffer);
        while let Some((index, buffer)) = self.work.scratch().next(|index| site.table.pieces[index].length) {
            site.table.pieces[index].scratch = Some(buffer);
            self.begin_encrypting(site, index);
        }
    }

    /// Service threads have done something.
    pub(crate) fn hear_of_work(&mut self, site: &mut Site<'_>, is_still_watched: bool) {
        let mut heard = self.work.take_heard(site.ring, is_still_watched);
        for node in heard.drain(..) {
            let (index, result): (u32, Result<(), Errno>) = node.content;
            self.work.keep_node(node);
            let request = site.table.request_of(index);
            if request.asked.operation == Operation::Write {
                let volume = request.volume;
                self.compress_backlog(site, volume);
            }
            self.step_completed(site, index, result.map(|()| 0));
        }
        self.work.heard_all(heard, site.ground.now);
    }

    fn compress_backlog(&mut self, site: &Site<'_>, volume: u32) {
        if let Backend::Compressed(memory) = &site.volumes[volume].volume.backend {
            self.work.compress(site.ground.now, memory);
        }
    }

    /// Tries again what the executor had no room for.
    pub(crate) fn try_work_again(&mut self, site: &mut Site<'_>) {
        if self.work.try_again.take_if(|at| *at <= site.ground.now).is_some() {
            let volumes: Vec<u32> = site.volumes.iter().map(|(index, _)| index).collect();
            volumes.into_iter().for_each(|volume| self.compress_backlog(site, volume));
            self.work.hand_over(site.ground.now);
        }
    }
}

fn cipher_of(site: &Site<'_>, index: u32) -> Arc<SectorCipher> {
    let volume = site.table.request_of(index).volume;
    match &site.volumes[volume].volume.backend {
        Backend::File(file) => file.cipher.clone().expect("what is not encrypted has no such steps"),
        _ => unreachable!("only files have steps"),
    }
}
