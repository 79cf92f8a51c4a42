//! The way of a SCSI command: from its PDU over its data and the volume to its answer.

use super::IscsiConnection;
use super::tasks::{Burst, PLACES, Stage, Task, cdb, expected_bytes};
use crate::connection::Phase;
use plimsoll_core::Operation;
use plimsoll_engine::{Finished, Payload, Port, Submission};
use plimsoll_protocols::iscsi::pdu::{Header, NO_TAG, opcode};
use plimsoll_protocols::scsi::job::SCRATCH_BYTES;
use plimsoll_protocols::scsi::{Answer, Job, JobProgress, Outcome, Place, Sense, Status, Step, Work};

/// Bits of the flags of a command and of what answers it.
const READS: u8 = 0x40;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const HAS_STATUS: u8 = 0x01;

/// Flags and count for the bytes that a command had too many or too few.
fn residual(expected: u32, whole: u32) -> (u8, u32) {
    match whole.cmp(&expected) {
        std::cmp::Ordering::Less => (UNDERFLOW, expected - whole),
        std::cmp::Ordering::Equal => (0, 0),
        std::cmp::Ordering::Greater => (OVERFLOW, whole - expected),
    }
}

impl IscsiConnection {
    /// A SCSI command has come, perhaps with data.
    pub(super) fn command(&mut self, port: &mut Port<'_>, header: &Header, data: &[u8]) {
        if !self.tasks.has_room(header.is_immediate()) {
            return self.respond(header, &Answer::of_status(Status::TaskSetFull), 0);
        }
        let (outcome, epoch, block_bytes) = {
            let mut unit = self.target.unit();
            let outcome = unit.command(self.nexus, header.unit(), &cdb(header));
            (outcome, unit.epoch(), unit.block_bytes())
        };
        let mut task = match outcome {
            Outcome::Answer(answer) => return self.respond(header, &answer, answer.data.len() as u32),
            Outcome::Parameters(bytes) => {
                let mut task = Task::new(*header, epoch, Stage::Parameters);
                (task.whole_bytes, task.wanted) = (bytes, bytes.min(task.sent_bytes()));
                task
            }
            Outcome::Job(job) if job.work == Work::Read => {
                return self.read(port, header, epoch, job, block_bytes);
            }
            Outcome::Job(mut job) => {
                let whole = job.data_out_bytes;
                let sent = Task::new(*header, epoch, Stage::Parameters).sent_bytes();
                if sent != whole && job.is_strict() {
                    return self.respond(header, &Sense::INVALID_FIELD.into(), whole);
                }
                if sent < whole {
                    // As many whole blocks are written as come; what compares or repeats has to have all.
                    let is_write = matches!(job.work, Work::Write | Work::WriteAndVerify(_));
                    if !is_write || !sent.is_multiple_of(block_bytes) {
                        return self.respond(header, &Sense::INVALID_INFORMATION_UNIT.into(), whole);
                    }
                    (job.data_out_bytes, job.extent.length) = (sent, sent.into());
                    if sent == 0 {
                        return self.respond(header, &Answer::GOOD, whole);
                    }
                }
                let wanted = job.data_out_bytes;
                Task { whole_bytes: whole, wanted, ..Task::new(*header, epoch, Stage::Data(job)) }
            }
        };
        let has_first_burst = !header.is_final();
        if !self.take_immediate_data(port, &mut task, data) {
            return self.respond(header, &Answer::of_status(Status::TaskSetFull), 0);
        }
        let has_all = task.received >= task.wanted;
        if has_first_burst && !has_all {
            let end = self.session.parameters.first_burst_bytes_max.min(task.sent_bytes());
            task.burst = Burst { transfer_tag: NO_TAG, end, next_number: 0 };
        }
        let place = self.tasks.insert(task);
        match (has_all, has_first_burst) {
            (true, _) => self.begin(port, place),
            (false, true) => {}
            (false, false) => self.ask_for_data(place),
        }
    }

    /// Gives a task a buffer for its data, and puts the immediate data of the command into it.
    fn take_immediate_data(&mut self, port: &mut Port<'_>, task: &mut Task, data: &[u8]) -> bool {
        if task.wanted == 0 {
            return true;
        }
        let repeats = matches!(&task.stage, Stage::Data(Job { work: Work::Repeat { .. }, .. }));
        let Some(mut buffer) = port.take_buffer(if repeats { SCRATCH_BYTES } else { task.wanted }) else {
            return false;
        };
        let length = data.len().min(task.wanted as usize);
        buffer.as_mut_slice()[..length].copy_from_slice(&data[..length]);
        (task.received, task.data) = (data.len() as u32, Some(buffer));
        true
    }

    /// A read: no more is read than the initiator has room for.
    fn read(&mut self, port: &mut Port<'_>, header: &Header, epoch: u64, mut job: Job, block_bytes: u32) {
        let whole = job.extent.length as u32;
        let room = if header.flags() & READS != 0 { expected_bytes(header) } else { 0 };
        // The smaller of the two first: next to what 32 bits can say there is no multiple.
        job.extent.length = whole.min(room).next_multiple_of(block_bytes).into();
        if job.extent.length == 0 {
            return self.respond(header, &Answer::GOOD, whole);
        }
        let stage = Stage::Volume(JobProgress::new(job, &[]));
        let place = self.tasks.insert(Task { whole_bytes: whole, ..Task::new(*header, epoch, stage) });
        self.step(port, place);
    }

    /// Tells the initiator to send what is missing, a burst at a time.
    fn ask_for_data(&mut self, place: usize) {
        self.transfer_tag = self.transfer_tag.wrapping_add(1) & 0x7fff_ffff;
        let transfer_tag = self.transfer_tag;
        let burst_bytes_max = self.session.parameters.burst_bytes_max;
        let Some(task) = self.tasks.get_mut(place) else { return };
        let length = (task.wanted - task.received).min(burst_bytes_max);
        task.burst = Burst { transfer_tag, end: task.received + length, next_number: 0 };
        let mut ready = Header::new(opcode::READY_TO_TRANSFER, task.header.initiator_tag());
        ready.0[8..16].copy_from_slice(&task.header.0[8..16]);
        for (at, value) in [(20, transfer_tag), (36, task.asked), (40, task.received), (44, length)] {
            ready.set_u32(at, value);
        }
        task.asked += 1;
        self.number(&mut ready, false);
        self.outbox.push(ready, &[]);
    }

    /// Data of a command have come. Those of a command that is no more are ignored.
    pub(super) fn data_out(&mut self, port: &mut Port<'_>, header: &Header, data: &[u8]) {
        let Some(place) = self.tasks.find(header.initiator_tag()) else { return };
        let Some(task) = self.tasks.get_mut(place) else { return };
        let Burst { transfer_tag, end, next_number } = task.burst;
        let (start, length) = (header.u32(40), data.len() as u32);
        let is_unfed = task.stage.is_unfed();
        let is_expected = is_unfed
            && (header.u32(20), header.u32(36)) == (transfer_tag, next_number)
            && start == task.received
            && length <= end.saturating_sub(start)
            && (!header.is_final() || transfer_tag == NO_TAG || start + length == end);
        if !is_expected {
            if is_unfed {
                self.finish(port, place, &Sense::DATA_PHASE_ERROR.into());
            }
            return;
        }
        if let Some(buffer) = &mut task.data {
            let room = &mut buffer.as_mut_slice()[..task.wanted as usize];
            let room = room.get_mut(start as usize..).unwrap_or_default();
            let length = data.len().min(room.len());
            room[..length].copy_from_slice(&data[..length]);
        }
        task.received += length;
        task.burst.next_number += 1;
        let is_over = header.is_final() || task.received == end;
        let has_all = task.received >= task.wanted;
        match (is_over, has_all) {
            (true, true) => self.begin(port, place),
            (true, false) => self.ask_for_data(place),
            (false, _) => {}
        }
    }

    /// All data of a command have come.
    fn begin(&mut self, port: &mut Port<'_>, place: usize) {
        let Some(task) = self.tasks.get_mut(place) else { return };
        let mut unit = self.target.unit();
        if unit.is_aborted(self.nexus, task.epoch) {
            drop(unit);
            return self.forget(port, place);
        }
        let sent = task.received.min(task.wanted) as usize;
        let data = task.data.as_mut().map_or(&mut [][..], |buffer| buffer.as_mut_slice());
        let cdb = cdb(&task.header);
        let job = match std::mem::replace(&mut task.stage, Stage::Parameters) {
            Stage::Data(job) => job,
            _ => match unit.parameters(self.nexus, &cdb, &data[..sent]) {
                Outcome::Job(job) => job,
                Outcome::Answer(answer) => {
                    let aborted = unit.take_aborted();
                    drop(unit);
                    return match aborted {
                        None => self.finish(port, place, &answer),
                        Some(of_ports) => self.abort_of(port, place, &of_ports),
                    };
                }
                Outcome::Parameters(_) => unreachable!("parameters have no parameters"),
            },
        };
        let progress = JobProgress::new(job, data);
        if let Work::Repeat { .. } = progress.job().work {
            let block = progress.job().data_out_bytes as usize;
            let (pattern, rest) = data[..SCRATCH_BYTES as usize].split_at_mut(block);
            rest.chunks_mut(block).for_each(|place| place.copy_from_slice(&pattern[..place.len()]));
        }
        let ticket = unit.begin(progress.job());
        drop(unit);
        task.stage = Stage::Volume(progress);
        match ticket {
            Some(ticket) => {
                task.ticket = ticket;
                self.step(port, place);
            }
            None => self.finish(port, place, &Answer::of_status(Status::Busy)),
        }
    }

    /// Has the next step of a job carried out.
    fn step(&mut self, port: &mut Port<'_>, place: usize) {
        let Some(task) = self.tasks.get_mut(place) else { return };
        let Stage::Volume(progress) = &task.stage else { return };
        let (class, is_forced) = (progress.job().class, progress.job().is_forced);
        let Step::Volume { operation, offset, length, place: of_bytes } = progress.next() else {
            return self.finish(port, place, &Answer::GOOD);
        };
        let payload = match (operation, of_bytes) {
            (Operation::Read, _) => port.take_read_payload(offset, length),
            (_, Place::Data(at)) => task.data.take().map(|buffer| Payload::Buffer { buffer, at }),
            _ => Some(Payload::None),
        };
        let Some(payload) = payload else {
            return self.finish(port, place, &Answer::of_status(Status::TaskSetFull));
        };
        task.is_at_volume = true;
        let is_forced = is_forced && operation.is_write();
        let token = place as u64;
        port.submit(Submission { token, operation, offset, length, is_forced, class, payload });
    }

    /// The engine has carried a step out.
    pub(super) fn step_ended(&mut self, port: &mut Port<'_>, mut finished: Finished) {
        let place = finished.token as usize;
        if place >= PLACES {
            return self.aborted_have_ended(place);
        }
        let Some(task) = self.tasks.get_mut(place) else { return port.give_payload(finished.payload) };
        task.is_at_volume = false;
        // As it closes, too: what others have aborted takes no further step.
        let is_of_nobody = || self.target.unit().is_aborted(self.nexus, task.epoch);
        let is_forgotten = self.phase == Phase::Broken || task.is_aborted || is_of_nobody();
        let progress = match &mut task.stage {
            Stage::Volume(progress) => progress,
            // Its own session may be one of those whose commands it has aborted.
            Stage::Aborted if self.phase != Phase::Broken && !task.is_aborted => {
                return self.finish(port, place, &Answer::GOOD);
            }
            _ => return self.forget(port, place),
        };
        if is_forgotten {
            port.give_payload(finished.payload);
            return self.forget(port, place);
        }
        if progress.job().work == Work::Read {
            return match progress.completed(finished.result, &[], &mut []) {
                Ok(()) => self.respond_with(port, place, finished),
                Err(answer) => {
                    port.give_payload(finished.payload);
                    self.finish(port, place, &answer)
                }
            };
        }
        if finished.operation == Operation::Write
            && let Payload::Buffer { buffer, .. } = std::mem::replace(&mut finished.payload, Payload::None)
        {
            task.data = Some(buffer);
        }
        let data = task.data.as_mut().map_or(&mut [][..], |buffer| buffer.as_mut_slice());
        let read = if finished.operation == Operation::Read { port.read_bytes(&finished) } else { &[] };
        let outcome = progress.completed(finished.result, read, data);
        port.give_payload(finished.payload);
        match outcome {
            Ok(()) => self.step(port, place),
            Err(answer) => self.finish(port, place, &answer),
        }
    }

    /// Ends a task without an answer.
    pub(super) fn forget(&mut self, port: &mut Port<'_>, place: usize) {
        self.end(port, place, false);
    }

    /// Takes a task out of its place and gives back what it had.
    fn end(&mut self, port: &mut Port<'_>, place: usize, succeeded: bool) -> Option<Box<Task>> {
        let mut task = self.tasks.remove(place)?;
        if let Some(buffer) = task.data.take() {
            port.give_buffer(buffer);
        }
        self.target.unit().end(task.ticket, succeeded);
        Some(task)
    }

    /// Answers a task that is over.
    fn finish(&mut self, port: &mut Port<'_>, place: usize, answer: &Answer) {
        let Some(task) = self.end(port, place, answer.status == Status::Good) else { return };
        self.respond(&task.header, answer, task.whole_bytes);
    }

    /// Answers a read with its bytes, and with its status in their last PDU.
    fn respond_with(&mut self, port: &mut Port<'_>, place: usize, mut finished: Finished) {
        let has_digest = self.session.parameters.digests.data;
        if has_digest && matches!(finished.payload, Payload::Volume(_)) {
            // What lies in the volume may change until it is sent, and then its digest would be wrong.
            let Some(mut buffer) = port.take_buffer(finished.length) else {
                return self.finish(port, place, &Answer::of_status(Status::TaskSetFull));
            };
            buffer.as_mut_slice()[..finished.length as usize].copy_from_slice(port.read_bytes(&finished));
            finished.payload = Payload::Buffer { buffer, at: 0 };
        }
        let Some(task) = self.end(port, place, true) else { return port.give_payload(finished.payload) };
        let (header, whole) = (task.header, task.whole_bytes);
        let length = finished.length.min(expected_bytes(&header)) as usize;
        self.data_in(&header, length, whole, |outbox, header, at, length| {
            // SAFETY: the read brought at least `length` bytes, which stay until `keep` has let go of them. With a
            // digest they were copied above, or lie in a buffer already.
            unsafe { outbox.push_part(header, &finished.payload, at, length) }
        });
        self.outbox.keep(finished.payload);
    }

    /// Sends `length` bytes in as many PDUs as it takes, the last with the status.
    fn data_in(
        &mut self,
        command: &Header,
        length: usize,
        whole: u32,
        push: impl Fn(&mut super::outbox::PduOutbox, Header, usize, usize),
    ) {
        let segment = self.session.parameters.initiator_data_bytes_max as usize;
        let burst = self.session.parameters.burst_bytes_max as usize;
        let (flags, count) = residual(expected_bytes(command), whole);
        let (mut at, mut number) = (0, 0);
        while at < length {
            let burst_end = (at / burst + 1) * burst;
            let end = (at + segment).min(burst_end).min(length);
            let is_last = end == length;
            let mut header = Header::new(opcode::DATA_IN, command.initiator_tag());
            header.0[1] = if is_last || end == burst_end { 0x80 } else { 0 };
            for (place, value) in [(20, NO_TAG), (36, number), (40, at as u32)] {
                header.set_u32(place, value);
            }
            if is_last {
                header.0[1] |= HAS_STATUS | flags;
                header.set_u32(44, count);
            }
            self.number(&mut header, is_last);
            if !is_last {
                header.set_u32(24, 0);
            }
            push(&mut self.outbox, header, at, end - at);
            (at, number) = (end, number + 1);
        }
    }

    /// Answers a command that is over; it was about `whole` bytes.
    pub(super) fn respond(&mut self, command: &Header, answer: &Answer, whole: u32) {
        let reads = command.flags() & READS != 0;
        if answer.status == Status::Good && !answer.data.is_empty() && reads && expected_bytes(command) > 0 {
            let data = &answer.data[..answer.data.len().min(expected_bytes(command) as usize)];
            return self.data_in(command, data.len(), whole, |outbox, header, at, length| {
                outbox.push(header, &data[at..at + length]);
            });
        }
        let mut header = Header::new(opcode::RESPONSE, command.initiator_tag());
        let (flags, count) = residual(expected_bytes(command), whole);
        header.0[1] |= flags;
        header.0[3] = answer.status as u8;
        header.set_u32(44, count);
        let sense = answer.sense.map(|sense| self.target.unit().encode(&sense)).unwrap_or_default();
        let mut data = Vec::new();
        if !sense.is_empty() {
            data.extend((sense.len() as u16).to_be_bytes());
            data.extend(sense);
        }
        self.answer(header, &data);
    }
}
